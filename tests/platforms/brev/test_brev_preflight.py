"""What is found out before a launch."""

from __future__ import annotations

import pytest
from brev_lab import BrevLab

from tao_sdk.preflight import Check, PreflightRequest, run_preflight
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
def test_what_would_be_ordered(lab: BrevLab) -> None:
    """For a launch that gets an instance of its own: which, and what it costs; none is made."""

    def offer(gpu_count: int, **options: object) -> Check:
        asked = PreflightRequest(
            platform="brev", gpu_count=gpu_count, target_gpu_count=8, options=options
        )
        [found] = [c for c in run_preflight(asked, BANK).checks if c.name == "brev.offer"]
        return found

    assert offer(1).message == "g5.xlarge (1 x A10G, aws, $1.21 an hour)"
    assert offer(2, gpu_type="L40S").message == "g6e.12xlarge (4 x L40S, aws, $8.90 an hour)"
    assert offer(0).message == "n2d-standard-2 (no GPU, $0.10 an hour)"
    for gpu_count, options, says in (
        (1, {"gpu_type": "H200"}, "there are: A100, A10G, L40S, T4G"),
        (16, {"gpu_type": "L40S"}, "no instance has more than 4"),
        (1, {"gpu_type": 7}, "gpu_type"),
        (1, {"cloud_cred_id": "c"}, "no `create --cloud-cred-id`"),
    ):
        found = offer(gpu_count, **options)
        assert (found.status, says in found.message, bool(found.remedy)) == ("failed", True, True)
    with lab.cloud.faulty(drop_before=1.0):
        assert offer(1).status == "passed", "nothing is run anywhere"
    assert lab.cloud.ever_made() == ["box"]


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
