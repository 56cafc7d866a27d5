"""A launch that is about to be made, and ways to break it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tao_sdk import settings
from tao_sdk.preflight import Check, PreflightReport, PreflightRequest, run_preflight
from tao_sdk.skills import SkillBank
from tao_sdk.skills.layout import PACKAGED_BANK

BANK = SkillBank(PACKAGED_BANK)
CANARIES = {
    name: f"canary-of-{name.lower()}-0123456789"
    for name in ("HF_TOKEN", "NGC_KEY", "BREV_API_TOKEN", "LEPTON_AUTH_TOKEN", "AWS_SESSION_TOKEN")
}
# What this machine has set must not decide about a test.
_FOREIGN = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ENDPOINT_URL",
    "CUDA_VISIBLE_DEVICES",
)

COCO = {
    "images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(40)],
    "categories": [{"id": 1, "name": "thing"}],
    "annotations": [{"id": n, "image_id": n, "bbox": [0, 0, 1, 1]} for n in range(40)],
}
RECORDS = [{"id": n, "video": f"{n}.mp4", "video_fps": 30} for n in range(12)]


def write_data(folder: Path) -> None:
    """Annotations in the three forms, and media."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coco.json").write_text(json.dumps(COCO))
    (folder / "annotations.json").write_text(json.dumps(RECORDS))
    (folder / "eval.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    (folder / "media").mkdir(exist_ok=True)
    (folder / "media" / "0.mp4").write_bytes(b"0")


def isolate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this machine; secrets that must never show."""
    for setting in settings.SETTINGS.values():
        for name in (setting.name, *setting.aliases):
            monkeypatch.delenv(name, raising=False)
    for name in _FOREIGN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker-config"))
    monkeypatch.setenv("HF_TOKEN", CANARIES["HF_TOKEN"])
    monkeypatch.setenv("NGC_KEY", CANARIES["NGC_KEY"])


class Launch:
    """A request that passes, until somebody breaks it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, **request: Any) -> None:
        self.monkeypatch = monkeypatch
        self.folder = folder
        """Where files of the test may be put."""
        self.asked: dict[str, Any] = {"paths": {}, **request}

    def set(self, name: str, value: str | None) -> None:
        if value is None:
            self.monkeypatch.delenv(name, raising=False)
        else:
            self.monkeypatch.setenv(name, value)

    def ask(self, **changes: Any) -> None:
        self.asked.update(changes)

    def path(self, label: str, path: object) -> None:
        self.asked["paths"] = {**self.asked["paths"], label: str(path)}

    def run(self) -> PreflightReport:
        heard: list[Check] = []
        report = run_preflight(PreflightRequest(**self.asked), BANK, heard.append)
        assert sorted(check.name for check in heard) == sorted(c.name for c in report.checks)
        said = json.dumps(report.as_json())
        for name, value in CANARIES.items():
            assert value not in said, f"{name} is shown"
        assert "Traceback" not in said
        assert "the check itself failed" not in said, said
        return report


class Broken(NamedTuple):
    """One thing that is wrong, and what must be said about it."""

    what: str
    how: Callable[[Any], object]
    check: str
    says: str
    """Part of the message or the remedy."""


def broken(*variants: Broken) -> pytest.MarkDecorator:
    ids = [variant.what for variant in variants]
    return pytest.mark.parametrize("variant", variants, ids=ids)


def assert_passes(report: PreflightReport) -> Mapping[str, Check]:
    assert report.ok, [f"{check.name}: {check.message}" for check in report.failures]
    return {check.name: check for check in report.checks}


def assert_names_it(launch: Launch, variant: Broken) -> Check:
    """The one thing that is broken is named, and nothing else is."""
    variant.how(launch)
    report = launch.run()
    told = [f"{check.name}: {check.message}" for check in report.failures]
    assert [check.name for check in report.failures] == [variant.check], told
    [found] = report.failures
    assert variant.says in f"{found.message}\n{found.remedy}"
    assert found.remedy, "it says what to do"
    return found


def names_in(folder: Path) -> set[str]:
    """Everything below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
