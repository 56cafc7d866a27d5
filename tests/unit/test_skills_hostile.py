"""Banks that are broken in every place: a sentence, never a traceback."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from skill_banks import TINY, Bank

from tao_sdk.errors import TaoError
from tao_sdk.skills import action, scripts
from tao_sdk.skills.checking import check_bank

MODEL = f"skills/models/{TINY}"
FILES = [
    "versions.yaml",
    "skills/platform/platforms.manifest.json",
    "skills/models/schemas.manifest.json",
    "skills/models/automl_support.json",
    f"{MODEL}/references/skill_info.yaml",
    f"{MODEL}/references/tao-deploy-tiny.skill_info.yaml",
    f"{MODEL}/references/spec_template_train.yaml",
    f"{MODEL}/schemas/train.schema.json",
    f"{MODEL}/schemas/manifest.json",
]
WRONG: list[Any] = [5, "word", ["item"], {"key": 5}, None, [[1]], True]
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "not text": b"\xff\xfe\x00\x01",
    "cut off": b'{"a": [',
    "a list": b"[1, 2]",
    "code": b"!!python/object/apply:os.getcwd []",
    "deep": b"[" * 3000 + b"]" * 3000,
    "contains itself": b"a: &a\n  b: *a\n",
    "a date": b"actions: {2020-01-01: {}}",
    "no date": b"a: 2020-13-45",
}


def questions(root: Path) -> Iterator[Callable[[], object]]:
    """Everything that can be asked of a bank."""
    here = ["--skill-bank", str(root)]
    for form in ("text", "json"):
        words = [*here, "--format", form]
        yield partial(scripts.list_tao_platforms, words)
        yield partial(scripts.list_tao_platforms, [*words, "--platform", "zed"])
        yield partial(scripts.list_tao_models, words)
        yield partial(scripts.list_automl_support, words)
        yield partial(scripts.list_tao_capabilities, words)
    yield lambda: scripts.resolve_tao_image([*here, "--model", "tiny_net"])
    yield lambda: scripts.resolve_tao_image([*here, "--model", TINY, "--action", "gen_trt_engine"])
    yield lambda: scripts.resolve_versions_key([*here, "images.tao_toolkit.pyt"])
    yield lambda: check_bank(root)
    yield lambda: action("tiny_net", bank=root, overrides={"num_epochs": 3})
    yield lambda: action("tiny_net", bank=root, dataset_roots={"train_datasets": "s3://b/d"})
    yield lambda: action("tiny_net", "evaluate", bank=root, deploy=True)


def ask_everything(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for question in questions(root):
        with contextlib.suppress(TaoError):
            question()
        assert capsys.readouterr().err.count("\n") <= 1


@pytest.mark.parametrize("what", CONTENTS)
def test_broken_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    bank = Bank(tmp_path)
    for name in FILES:
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(CONTENTS[what])
        ask_everything(bank.root, capsys)
        (tmp_path / name).write_bytes(whole)


@pytest.mark.parametrize("name", FILES, ids=lambda name: Path(name).name)
def test_values_of_another_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Each value in turn; with what it is replaced goes round."""
    Bank(tmp_path)
    path = tmp_path / name
    whole = (
        yaml.safe_load(path.read_text()) if path.suffix == ".yaml" else json.loads(path.read_text())
    )
    for number, (place, wrong) in enumerate(zip(places(whole), itertools.cycle(WRONG))):
        path.write_text(json.dumps(replaced(whole, place, wrong)))
        os.utime(
            path, ns=(number, number)
        )  # parsed versions are kept as long as a file is as it was
        ask_everything(tmp_path, capsys)


def test_links_that_lead_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Bank(tmp_path)
    (tmp_path / "skills/models/loop").symlink_to("../models")
    (tmp_path / "skills/models/itself").symlink_to("itself")
    for name in FILES:
        (tmp_path / name).unlink()
        (tmp_path / name).symlink_to(Path(name).name)
        ask_everything(tmp_path, capsys)


def test_a_description_that_is_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Bank(tmp_path)
    (tmp_path / "skills/applications/app").mkdir(parents=True)
    (tmp_path / "skills/applications/app/SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    assert scripts.list_tao_capabilities(["--skill-bank", str(tmp_path)]) == 1
    assert "SKILL.md cannot be read" in capsys.readouterr().err


def places(node: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    below = enumerate(node) if isinstance(node, list) else ()
    for key, value in node.items() if isinstance(node, dict) else below:
        yield (*here, key)
        yield from places(value, (*here, key))


def replaced(whole: Any, place: tuple[Any, ...], value: Any) -> Any:
    copied = node = copy.deepcopy(whole)
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return copied
