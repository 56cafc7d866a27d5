"""Every action of two banks as a job: what it needs is staged, and its spec names it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml
from entrypoints import Container, entrypoint
from stores import Bucket

from lab import skill_bank
from tao_sdk.runner.place_names import render
from tao_sdk.runner.uris import scheme_of
from tao_sdk.skills import SkillAction, SkillBank, action
from tao_sdk.skills.layout import PACKAGED_BANK
from tao_sdk.skills.spec_values import is_unset, leaves, put, value_at

READERS = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}
WEIGHTS = "/weights/given"
REAL_MODELS = 12


def prepared(bank: SkillBank, model: str) -> Iterator[SkillAction]:
    """Every action of a model with all of its inputs in the bucket."""
    skill = bank.model(model)
    for deploy in (False, True):
        for name, metadata in skill.actions(deploy=deploy).items():
            variants: list[str | None] = [*skill.variants(metadata)]
            for variant in variants or [None]:
                wanted = action(model, name, bank=bank, deploy=deploy, variant=variant)
                yield action(
                    model,
                    name,
                    bank=bank,
                    deploy=deploy,
                    variant=variant,
                    overrides={
                        **hubs_replaced(wanted),
                        **{key: given(wanted, key) for key in wanted.missing},
                    },
                )


def given(wanted: SkillAction, key: str) -> str | list[str]:
    """An object of the bucket; in a list, where the template has one."""
    uri = f"s3://bucket/{key}/data.bin"
    return [uri] if isinstance(value_at(wanted.specs, key), list) else uri


def first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def hubs_replaced(wanted: SkillAction) -> dict[str, str]:
    """Defaults that would be fetched from Hugging Face or NGC."""
    return {
        render(path): WEIGHTS
        for path, value in leaves(wanted.specs)
        if isinstance(value, str) and scheme_of(value)
    }


@pytest.mark.seed("000.16")
@pytest.mark.parametrize("number", range(REAL_MODELS))
def test_every_action_of_a_model(box: Container, bucket: Bucket, number: int) -> None:
    bank = SkillBank(skill_bank())
    assert len(bank.list_models()) == REAL_MODELS
    run_every_action(bank, bank.list_models()[number], box, bucket)


@pytest.mark.seed("000.16")
@pytest.mark.parametrize("model", SkillBank(PACKAGED_BANK).list_models())
def test_every_action_of_a_packaged_model(box: Container, bucket: Bucket, model: str) -> None:
    run_every_action(SkillBank(PACKAGED_BANK), model, box, bucket)


def run_every_action(bank: SkillBank, model: str, box: Container, bucket: Bucket) -> None:
    """Each with `cat` for its command: what it prints is the spec that a container would read."""
    box.env = bucket.env
    for wanted in prepared(bank, model):
        staged = {
            key: uri
            for key in wanted.inputs
            if isinstance(uri := first(value_at(wanted.specs, key)), str)
            and uri.startswith("s3://")
        }
        bucket.put({uri.removeprefix("s3://bucket/"): key.encode() for key, uri in staged.items()})
        arguments = {**wanted.entrypoint_arguments(), "command": "cat {config_path}"}
        ended = box.end(box.start(entrypoint(**arguments)))
        assert ended.code == 0, (model, wanted.name, ended.err)
        spec = READERS[wanted.config_format](ended.out)
        for key in staged:
            path = Path(first(value_at(spec, key)))
            assert path.is_relative_to(box.work / "inputs"), (model, wanted.name, key, path)
            assert path.read_bytes() == key.encode()
        for key in wanted.outputs:
            assert str(value_at(spec, key)).startswith(str(box.work)), (model, wanted.name, key)
        assert others(spec, wanted) == others(wanted.specs, wanted)


@pytest.mark.parametrize("name", ["images.tar.gz", "images"])
def test_images_may_be_an_archive_or_a_folder(box: Container, bucket: Bucket, name: str) -> None:
    """Whatever the metadata calls them: clip says folder, dino says file."""
    bank = SkillBank(skill_bank())
    box.env = bucket.env
    bucket.put({"images.tar.gz": archive({"a.jpg": b"A"}), "images/a.jpg": b"A"})
    clip, dino = "dataset.val.datasets[0].image_dir", "dataset.test_data_sources.image_dir"
    for model, key in (("clip", clip), ("dino", dino)):
        wanted = action(model, "evaluate", bank=bank, overrides={key: f"s3://bucket/{name}"})
        arguments = {**wanted.entrypoint_arguments(), "command": "cat {config_path}"}
        ended = box.end(box.start(entrypoint(**arguments)))
        assert ended.code == 0, ended.err
        folder = Path(value_at(yaml.safe_load(ended.out), key))
        assert (folder / "a.jpg").read_bytes() == b"A"


def archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def others(spec: dict[str, Any], wanted: SkillAction) -> dict[str, Any]:
    """The rest of a spec: everything that is neither an input nor an output, and is set."""
    rest: dict[str, Any] = {}
    declared = (*wanted.inputs, *wanted.outputs)
    for path, value in leaves(spec):
        if not is_unset(value) and not render(path).startswith(declared):
            put(rest, render(path), value)
    return rest
