"""`check_bank`: everything that is wrong with a bank, with its file and key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tao_sdk.errors import TaoError
from tao_sdk.skills.checking.manifests import (
    check_models_manifest,
    check_platform_manifest,
    check_versions,
)
from tao_sdk.skills.checking.problems import (
    NOTE,
    PROBLEM,
    Finding,
    note,
    problem,
    shape_problems,
)
from tao_sdk.skills.checking.schema_files import check_schemas, check_templates, has_infinity
from tao_sdk.skills.checking.skill_metadata import Metadata, check_metadata
from tao_sdk.skills.checking.yaml_source import check_yaml_text
from tao_sdk.skills.files import read_json_mapping, read_yaml_mapping
from tao_sdk.skills.layout import LAYERS
from tao_sdk.skills.shapes import METADATA
from tao_sdk.skills.skill_bank import SkillBank

__all__ = ["NOTE", "PROBLEM", "Finding", "check_bank"]


def check_bank(path: str | Path | None = None) -> list[Finding]:
    """What is wrong with a bank. A folder that is no bank at all raises `BankNotFoundError`."""
    bank = SkillBank(path)
    return list(dict.fromkeys(_Check(bank).findings()))


class _Check:
    def __init__(self, bank: SkillBank) -> None:
        self._bank = bank
        self._root = bank.path
        self._readable = True

    def findings(self) -> Iterator[Finding]:
        versions, flaws = self._read(self._root / "versions.yaml")
        yield from flaws
        if versions is not None:
            yield from check_versions(versions)
        for layer in LAYERS:
            yield from self._check_layer(layer, versions)
        if self._bank.layer("platform").is_dir():
            yield from check_platform_manifest(self._bank)
        if self._bank.list_models() or self._bank.layer("models").is_dir():
            yield from self._check_models()
        yield from self._check_numbers()

    def _check_layer(self, layer: str, versions: dict[str, Any] | None) -> Iterator[Finding]:
        for skill in self._bank.skills(layer):
            files = [skill / "references/skill_info.yaml", skill / "config.json"]
            files += sorted((skill / "references").glob("*.skill_info.yaml"))
            contents: dict[str, dict[str, Any]] = {}
            for path in files:
                if not path.is_file():
                    continue
                content, flaws = self._read(path)
                flaws += shape_problems(content, METADATA, self._relative(path))
                yield from flaws
                if content is None or flaws:
                    self._readable = self._readable and layer not in ("models", "data")
                    continue
                contents[path.name] = content
                file = self._relative(path)
                if path.suffix == ".yaml":
                    yield from check_yaml_text(path.read_text(encoding="utf-8"), file)
                yield from check_metadata(Metadata(content, file, layer, skill, versions))
            yield from self._compare(skill, contents)
            if layer == "models" and not contents and self._readable:
                yield problem(self._relative(skill), "", "has no references/skill_info.yaml")

    def _compare(self, skill: Path, contents: dict[str, dict[str, Any]]) -> Iterator[Finding]:
        """Two files about one skill: the older one is not read, so it must not disagree."""
        new, old = contents.get("skill_info.yaml"), contents.get("config.json")
        if new is None or old is None:
            return
        for key in sorted(set(new) & set(old)):
            if new[key] != old[key]:
                yield note(
                    self._relative(skill / "config.json"),
                    key,
                    "differs from references/skill_info.yaml, which counts",
                )

    def _check_models(self) -> Iterator[Finding]:
        if not self._readable:
            return  # what cannot be read was reported, and would be again for every model
        try:
            yield from check_models_manifest(self._bank)
            for name in self._bank.list_models():
                skill = self._bank.model(name)
                yield from check_schemas(skill, self._root)
                yield from check_templates(skill, self._root)
        except TaoError as error:
            yield problem(self._relative(self._bank.layer("models")), "", str(error))

    def _check_numbers(self) -> Iterator[Finding]:
        layer = self._bank.layer("models")
        found = [path for path in sorted(layer.rglob("*.json")) if has_infinity(path)]
        if found:
            yield note(
                self._relative(layer),
                "",
                f"{len(found)} JSON files have Infinity for a number, as in "
                f"{self._relative(found[0])}: strict parsers refuse them",
            )

    def _read(self, path: Path) -> tuple[dict[str, Any] | None, list[Finding]]:
        read = read_json_mapping if path.suffix == ".json" else read_yaml_mapping
        try:
            return read(path), []
        except TaoError as error:
            message = str(error).removeprefix(str(path)).lstrip(": ")
            return None, [problem(self._relative(path), "", message)]

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()
