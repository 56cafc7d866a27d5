"""What is found out before a launch."""

from __future__ import annotations

import pytest
from brev_lab import BrevLab

from tao_sdk.preflight import PreflightRequest, run_preflight
from tao_sdk.skills import SkillBank
from tao_sdk.skills.layout import PACKAGED_BANK

BANK = SkillBank(PACKAGED_BANK)


@pytest.mark.seed("001.11")
def test_access(lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """API access is proven by `brev ls`, with an API key by environment; nothing is guessed."""
    request = PreflightRequest(platform="brev")
    found = {check.name: check for check in run_preflight(request, BANK).checks}
    assert found["brev.access"].message == "logged in; instances: box (RUNNING)"
    lab.cloud.configure(api_key="bak-0123")
    assert [check.name for check in run_preflight(request, BANK).failures] == ["brev.access"]
    monkeypatch.setenv("BREV_API_TOKEN", "bak-0123")
    assert run_preflight(request, BANK).ok
    with lab.cloud.faulty(down=True):
        assert [check.name for check in run_preflight(request, BANK).failures] == ["brev.access"]


@pytest.mark.seed("001.11")
def test_a_mounted_path_needs_proof(lab: BrevLab) -> None:
    request = PreflightRequest(platform="brev", paths={"train": "/data/train"})
    assert [check.name for check in run_preflight(request, BANK).failures] == ["path:train"]


@pytest.mark.seed("000.13")
def test_the_results_root_in_a_job(lab: BrevLab) -> None:
    """/results where it is mounted, nothing otherwise."""
    sdk = lab.sdk()
    mounted = sdk.create_job(**lab.job('echo "[$TAO_RESULTS_ROOT]"'))
    bare = sdk.create_job(**{**lab.job('echo "[$TAO_RESULTS_ROOT]"'), "mounts": []})
    sdk.wait_all([mounted.id, bare.id], timeout=90)
    assert sdk.get_job_logs(mounted.id) == "[/results]\n"
    assert sdk.get_job_logs(bare.id) == "[]\n"
    assert mounted.results_dir == f"brev://box{lab.results}/{mounted.id}"
    assert bare.results_dir == ""
