"""Which GPUs of a host a job may take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tao_sdk.errors import CapacityError, ValidationError
from tao_sdk.platforms.common.gpu_choice import GpuRequest, choose_gpus, refuse_own_choice
from tao_sdk.platforms.gpus.discovery import Gpu, pretend
from tao_sdk.platforms.request import JobRequest
from tao_sdk.secrets import Secret

FOUR = pretend("4")


def asked(gpu_count: int = 1, *ids: str, nodes: int = 1) -> GpuRequest:
    options = SimpleNamespace(gpu_ids=ids)
    return GpuRequest.of(JobRequest("run", gpu_count=gpu_count, num_nodes=nodes, options=options))


def indexes(wanted: GpuRequest, gpus: list[Gpu] = FOUR) -> tuple[list[str], int]:
    chosen, per_node = choose_gpus(gpus, wanted, "this host")
    return [gpu.index for gpu in chosen], per_node


def test_by_count_any_may_be_taken() -> None:
    assert indexes(asked(2)) == (["0", "1", "2", "3"], 2)
    assert indexes(asked(1, nodes=3)) == (["0", "1", "2", "3"], 1)
    assert indexes(asked(-1)) == (["0", "1", "2", "3"], 4)
    assert indexes(asked(-1, nodes=2))[1] == 2


def test_by_name_these_are_taken_in_their_order() -> None:
    assert indexes(asked(1, "2")) == (["2"], 1)
    assert indexes(asked(1, "3", "pretended-0")) == (["3", "0"], 2)
    assert indexes(asked(2, "0", "1", "2", "3", nodes=2)) == (["0", "1", "2", "3"], 2)


def test_those_that_other_programs_use_come_last() -> None:
    used = [Gpu(str(n), f"GPU-{n}", used_mib=mib) for n, mib in enumerate((40_000, 20, 3, 5))]
    assert indexes(asked(2), used) == (["1", "2", "3", "0"], 2)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (asked(5), r"5 GPUs asked for, this host has 4 \(0, 1, 2, 3\); at most 4 can be asked"),
        (asked(3, nodes=2), "3 GPUs for each of 2 nodes asked for, this host has 4 .* at most 2"),
        (asked(-1, nodes=5), "all GPUs for each of 5 nodes .* gpu_count=0 runs without"),
        (asked(1, "1", "9"), r"no GPU 9; it has 4 \(0, 1, 2, 3\)"),
    ],
)
def test_more_than_the_host_has(wanted: GpuRequest, text: str) -> None:
    with pytest.raises(CapacityError, match=text):
        indexes(wanted)


def test_a_host_without_any() -> None:
    for count in (1, -1):
        with pytest.raises(CapacityError, match="this host has none; gpu_count=0 runs without"):
            indexes(asked(count), [])


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValidationError, match="make them agree"):
        asked(3, "0", "1")
    with pytest.raises(ValidationError, match="make them agree"):
        asked(0, "0", "1")
    with pytest.raises(ValidationError, match="evenly by 2 nodes"):
        asked(1, "0", "1", "2", nodes=2)
    with pytest.raises(ValidationError, match="same GPU twice"):
        indexes(asked(1, "0", "pretended-0"))


def test_a_job_without_gpus() -> None:
    assert not asked(0).any
    assert asked(1, "0").any


@pytest.mark.parametrize(
    ("wanted", "text"), [(asked(2), "2"), (asked(-1), "all"), (asked(1, "0", "1"), "0,1")]
)
def test_as_text(wanted: GpuRequest, text: str) -> None:
    assert str(wanted) == text


def test_the_choice_is_not_made_twice() -> None:
    request = JobRequest("run", env={"CUDA_VISIBLE_DEVICES": Secret("3")})
    refuse_own_choice(request, "NVIDIA_VISIBLE_DEVICES")
    with pytest.raises(ValidationError, match=r"env_vars\.CUDA_VISIBLE_DEVICES.*gpu_ids="):
        refuse_own_choice(request, "CUDA_VISIBLE_DEVICES")
