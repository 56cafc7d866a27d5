"""The generated parts of the documentation, except for the seed lines."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import tao_sdk
from tao_sdk.failures.markdown import catalogue_markdown
from tao_sdk.platforms import registry
from tao_sdk.platforms.request import COMMON_OPTIONS, Option, options_of
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.settings import INJECTED_CREDENTIALS, SETTINGS, Setting

ROOT = Path(__file__).resolve().parents[1]

# All platforms of the project; those that the registry does not have are planned.
_PLATFORMS = {
    "local": "processes of this machine",
    "virtualenv": "Python scripts in a virtual environment of this machine",
    "docker": "containers of this machine's daemon or another's",
    "slurm": "batch jobs of a cluster, over ssh",
    "kubernetes": "Jobs of a cluster",
    "brev": "rented instances",
    "lepton": "Lepton's managed jobs",
}


def platforms() -> str:
    """The platforms of the project."""
    ours = _our_platforms()
    rows = [
        [f"`{name}`", what, f"yes: `{ours[name].__name__}`" if name in ours else "planned"]
        for name, what in _PLATFORMS.items()
    ]
    return _table(["Platform", "A job is", "Today"], rows)


def common_options() -> str:
    """Keywords of `create_job` on every platform."""
    return _option_table(COMMON_OPTIONS)


def platform_options() -> str:
    """Keywords of `create_job` by platform."""
    return "\n\n".join(
        f"### `{name}`\n\n{_option_table(options_of(sdk.options_type))}"
        for name, sdk in _our_platforms().items()
    )


def catalogue() -> str:
    """The causes of failures."""
    return catalogue_markdown().strip()


def public_names() -> str:
    """The names of the package root, each linked to the API page that has it."""
    documented = _documented_names()
    rows = []
    for name in sorted(tao_sdk.__all__, key=str.lower):
        path = f"tao_sdk.{name}"
        rows.append([f"[`{name}`]({documented[path]}#{path})", _summary(getattr(tao_sdk, name))])
    return _table(["Name", "What it is"], rows)


def settings_read() -> str:
    """Variables that steer the SDK."""
    return _setting_table(s for s in SETTINGS.values() if not s.injected)


def settings_injected() -> str:
    """Variables that a job finds."""
    return _setting_table(s for s in SETTINGS.values() if s.injected)


def credentials() -> str:
    """The names of the client's variables inside a job."""
    rows = [[f"`{outside}`", f"`{inside}`"] for outside, inside in INJECTED_CREDENTIALS.items()]
    return _table(["Here", "In the job"], rows)


def cli_help() -> str:
    """The output of `--help` of each command."""
    overview = _help()
    listed = overview.partition("Commands:\n")[2].partition("\n\n")[0]
    names = [line.split()[0] for line in listed.splitlines()]
    blocks = [f"```text\n{overview}\n```"]
    blocks += [f"### `tao-sdk {name}`\n\n```text\n{_help(name)}\n```" for name in names]
    return "\n\n".join(blocks)


def code(file: str, *names: str) -> str:
    """The source of the named classes and functions of a file."""
    source = (ROOT / file).read_text(encoding="utf-8")
    found = {
        node.name: node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    lines = source.splitlines()
    parts = [
        textwrap.dedent("\n".join(lines[_first_line(node) - 1 : node.end_lineno]))
        for node in (found[name] for name in names)
    ]
    return "```python\n" + "\n\n\n".join(parts) + "\n```"


def _first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _documented_names() -> dict[str, str]:
    """The API page of each documented name."""
    found = {}
    for page in sorted((ROOT / "docs" / "reference" / "api").glob("*.md")):
        for path in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            found[path] = page.name
    return found


def _summary(thing: object) -> str:
    """The first sentence of a docstring."""
    if isinstance(thing, str):
        return "the version of this package"
    paragraph = inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0]
    return re.split(r"(?<=\w\w)[.;:] ", " ".join(paragraph.split()))[0].rstrip(".")


def _our_platforms() -> dict[str, type[PlatformSDK]]:
    """The platforms of this package, without others that are installed here."""
    classes = {name: registry.get(name) for name in registry.names()}
    return {name: sdk for name, sdk in classes.items() if sdk.__module__.startswith("tao_sdk.")}


def _option_table(options: Iterable[Option]) -> str:
    rows = [[f"`{o.name}`", _prose(o.meaning), _default(o.default)] for o in options]
    return _table(["Keyword", "Meaning", "Default"], rows)


def _default(value: object) -> str:
    return "" if value in (None, "", ()) else f"`{value}`"


def _setting_table(settings: Iterable[Setting]) -> str:
    rows = [[f"`{s.name}`", _meaning(s), _default(s.default)] for s in settings]
    return _table(["Variable", "Meaning", "Default"], rows)


def _meaning(setting: Setting) -> str:
    notes = [_prose(setting.meaning)]
    if setting.aliases:
        notes.append(f"also read from {', '.join(f'`{name}`' for name in setting.aliases)}")
    if setting.secret:
        notes.append("**secret**")
    if setting.obtain:
        notes.append(f"to get one: {setting.obtain}")
    return "; ".join(notes)


def _prose(text: str) -> str:
    """Text in which Markdown shall not look for tags."""
    return text.replace("<", "&lt;").replace(">", "&gt;")


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in lines
    )


def _help(*words: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(tao_sdk.__file__).parents[1]),
        "COLUMNS": "100",
    }
    answer = subprocess.run(
        [sys.executable, "-m", "tao_sdk.cli", *words, "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()
