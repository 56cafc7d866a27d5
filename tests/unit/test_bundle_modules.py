"""What travels with a payload: all that it needs, and nothing that it does not."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.bundle.command import parts_of
from tao_sdk.bundle.preparation import import_targets, is_package, module_names, shortened, stripped
from tao_sdk.runner.loading import unfold
from tao_sdk.script_runner import build_entrypoint

FILE, FOLDER = {"type": "file"}, {"type": "folder"}
SELECTIVE = {
    "videos": {"selective": {"annotation": "labels", "keys": ["video"]}},
    "labels": {"type": "file"},
}
OTHER_STORES = {"hub", "ngc", "pretrained"}
DELIVERY = {"deliver", "excludes", "uploads"}

# What functions import that only certain payloads call, besides the ones that are named here.
RARE = {"links", "long_command", "mirror"}

# Payloads, and what their modules could import in functions that such a payload never calls.
PAYLOADS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "bare": ({"command": "true"}, {"long_command", "prepare"} | DELIVERY),
    "a long command": ({"command": f"echo {'x' * 140_000}"}, {"prepare"} | DELIVERY),
    "links": (
        {"command": "true", "inputs": {"/data": "/mnt/data"}},
        {"archives", "arguments", "download", "parallel", "resuming", "s3", "selective"}
        | {"partial_file", "spec_writer", "staging_lock", "variables", "mirror", "long_command"}
        | OTHER_STORES | DELIVERY,
    ),
    "passthrough with data": (
        {"command": "true", "inputs": {"/data": "s3://b/k"}, "outputs": ["/out"]},
        {"arguments", "resuming", "selective", "spec_writer", "variables"} | RARE | OTHER_STORES,
    ),
    "passthrough with a mirror": (
        {"command": "true", "inputs": {"/data": "s3://b/k"}, "mount_path": "/mnt"},
        {"arguments", "long_command", "resuming", "selective", "spec_writer", "variables"}
        | OTHER_STORES | DELIVERY | {"s3.upload"},
    ),
    "passthrough with results": (
        {"command": "true", "outputs": ["/out"]},
        {"arguments", "download", "long_command", "resuming", "spec_writer", "stage", "variables"},
    ),
    "args": (
        {"command": "true", "args": {"x": 1}},
        {"resuming", "spec_writer", "stage", "variables"} | DELIVERY,
    ),
    "args with data and variables": (
        {"command": "true", "args": {"x": "s3://b/${env:KEY}", "out": ""},
         "inputs": ["x"], "outputs": ["out"]},
        {"archives", "copies", "links", "mirror", "resuming", "selective", "spec_writer"}
        | OTHER_STORES,
    ),
    "json": (
        {"command": "{config_path}", "specs": {"a": 1}, "config_format": "json"},
        {"arguments", "long_command", "resuming", "stage", "toml_writer", "variables"}
        | {"yaml_writer"} | DELIVERY,
    ),
    "toml": (
        {"command": "{config_path}", "specs": {"a": 1}, "config_format": "toml"},
        {"arguments", "long_command", "resuming", "stage", "variables", "yaml_writer"} | DELIVERY,
    ),
    "yaml with data": (
        {"command": "{config_path}", "specs": {"data": "s3://b/k/", "results_dir": ""},
         "inputs": {"data": FOLDER}, "outputs": {"results_dir": FOLDER}, "config_format": "yaml"},
        {"arguments", "copies", "resuming", "selective", "toml_writer", "variables"}
        | RARE | OTHER_STORES,
    ),
    "a file that is no archive": (
        {"command": "{config_path}", "specs": {"labels": "s3://b/l.json", "results_dir": ""},
         "inputs": {"labels": FILE}, "outputs": {"results_dir": FOLDER}, "config_format": "yaml"},
        {"archives", "arguments", "copies", "resuming", "selective", "toml_writer", "variables"}
        | RARE | OTHER_STORES,
    ),
    "a file that is an archive": (
        {"command": "{config_path}", "specs": {"images": "s3://b/i.tar.gz", "results_dir": ""},
         "inputs": {"images": FILE}, "outputs": {"results_dir": FOLDER}, "config_format": "yaml"},
        {"arguments", "copies", "resuming", "selective", "toml_writer", "variables"}
        | RARE | OTHER_STORES,
    ),
    "a file whose name only the job knows": (
        {"command": "{config_path}", "specs": {"images": "s3://b/${env:NAME}", "results_dir": ""},
         "inputs": {"images": FILE}, "outputs": {"results_dir": FOLDER}, "config_format": "yaml"},
        {"arguments", "copies", "resuming", "selective", "toml_writer"} | RARE | OTHER_STORES,
    ),
    "resume": (
        {"command": "{config_path}",
         "specs": {"resume_training_checkpoint_path": "", "results_dir": ""},
         "outputs": {"results_dir": FOLDER}, "config_format": "yaml"},
        {"archives", "arguments", "copies", "selective", "staging_lock", "toml_writer", "variables"}
        | RARE | OTHER_STORES,
    ),
    "a checkpoint that is given": (
        {"command": "{config_path}",
         "specs": {"resume_training_checkpoint_path": "/mnt/model.pth", "results_dir": ""},
         "outputs": {"results_dir": FOLDER}, "config_format": "yaml"},
        {"arguments", "copies", "download", "long_command", "resuming", "stage", "toml_writer"}
        | {"variables"},
    ),
    "a checkpoint that only the job knows": (
        {"command": "{config_path}",
         "specs": {"resume_training_checkpoint_path": "${env:FROM}", "results_dir": ""},
         "outputs": {"results_dir": FOLDER}, "config_format": "yaml"},
        {"archives", "arguments", "copies", "selective", "staging_lock", "toml_writer"}
        | RARE | OTHER_STORES,
    ),
    "hugging face": (
        {"command": "{config_path}", "specs": {"m": "hf_model://o/m"}, "config_format": "yaml"},
        {"arguments", "ngc", "resuming", "s3", "selective", "toml_writer", "variables"}
        | RARE | DELIVERY,
    ),
    "ngc": (
        {"command": "{config_path}", "specs": {"m": "ngc://o/m:1"}, "config_format": "yaml"},
        {"arguments", "hub", "resuming", "s3", "selective", "toml_writer", "variables"}
        | RARE | DELIVERY,
    ),
    "selective": (
        {"command": "{config_path}", "specs": {"videos": "s3://b/v/", "labels": "s3://b/l.json"},
         "inputs": SELECTIVE, "config_format": "yaml"},
        {"arguments", "resuming", "s3.upload", "toml_writer", "variables"}
        | RARE | OTHER_STORES | DELIVERY,
    ),
    "everything": (
        {"command": "{config_path}",
         "specs": {"videos": "s3://b/v/", "labels": "s3://b/l.json", "m": "hf_model://o/m",
                   "n": "ngc://o/m:1", "key": "${env:KEY}", "results_dir": "",
                   "resume_training_checkpoint_path": ""},
         "inputs": SELECTIVE, "outputs": {"results_dir": FOLDER}, "config_format": "yaml"},
        {"arguments", "copies", "toml_writer"} | RARE,
    ),
}  # fmt: skip


def travelling_with(asked: dict[str, Any]) -> dict[str, str]:
    """Names and sources in the command that these arguments make."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        command = build_entrypoint(**asked)["command"]
    parts = parts_of(command)
    return dict(zip(parts[3].split(), map(unfold, parts[4:]), strict=True))


def imports(name: str, *, in_functions: bool = True) -> set[str]:
    """Modules of the runner that one of them imports."""
    tree = ast.parse(stripped(name))
    package = name if is_package(name) else name.rpartition(".")[0]
    return {
        module
        for node in (ast.walk(tree) if in_functions else tree.body)
        if isinstance(node, ast.ImportFrom) and node.level
        for module in import_targets(node, package)
    }


@pytest.mark.parametrize("case", PAYLOADS)
def test_all_that_a_payload_imports_travels_with_it(case: str) -> None:
    """Whoever adds an import to a function has to say here which payloads do without it."""
    asked, left_behind = PAYLOADS[case]
    found = set(travelling_with(asked))
    assert {module for name in found for module in imports(name)} - found == left_behind


def test_every_module_travels_with_some_payload() -> None:
    found = {name for asked, _ in PAYLOADS.values() for name in travelling_with(asked)}
    # The loader stands in front of the others.
    assert found | {"loading"} == set(module_names())


def test_a_payload_does_not_change_the_text_of_a_module() -> None:
    for name, source in travelling_with(PAYLOADS["everything"][0]).items():
        assert source.rstrip() == shortened(name).rstrip()


def test_modules_that_are_loaded_know_all_that_they_import() -> None:
    for asked, _ in PAYLOADS.values():
        found = set(travelling_with(asked))
        assert {m for name in found for m in imports(name, in_functions=False)} <= found
        assert {name.rpartition(".")[0] for name in found if "." in name} <= found


# ------------------------------------------------------------------ for old Pythons


def write_all(folder: Path) -> None:
    for name in module_names():
        path = folder / name.replace(".", "/")
        path = path / "__init__.py" if is_package(name) else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shortened(name), encoding="utf-8")
    (folder / "__init__.py").touch()


def test_nothing_newer_than_python_3_8_is_used(tmp_path: Path) -> None:
    vermin = Path(sysconfig.get_path("scripts"), "vermin")
    if not vermin.exists():
        pytest.skip("vermin is not installed: pip install vermin")
    write_all(tmp_path)
    # Python 3.8 takes any keyword of hashlib.new, and leaves it alone.
    options = ["--no-tips", "--target=3.8-", "--violations"]
    options += ["--exclude", "hashlib.new(usedforsecurity)"]
    done = subprocess.run(
        [sys.executable, vermin, *options, tmp_path], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", module_names())
def test_the_syntax_is_that_of_python_3_8(name: str) -> None:
    ast.parse(shortened(name), feature_version=(3, 8))


def test_python_3_8_can_import_every_module(tmp_path: Path) -> None:
    pythons = sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python"))
    python = str(pythons[-1]) if pythons else shutil.which("python3.8")
    if not python:
        pytest.skip("there is no Python 3.8 here: pyenv install 3.8")
    write_all(tmp_path / "tao_runner")
    lines = [f"import sys; sys.path.append({str(tmp_path)!r})"]
    lines += [f"import tao_runner.{name}" for name in module_names()]
    subprocess.run([python, "-I", "-S", "-c", "\n".join(lines)], check=True, timeout=60)
