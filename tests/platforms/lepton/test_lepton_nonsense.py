"""Answers that make no sense: nothing raises out of a poll, and no state changes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from lepton_lab import LeptonLab

from lab.lepton import LeptonServer
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.lepton import LeptonSDK


class TestNonsense:
    """What something on the way may answer instead of the server."""

    @pytest.mark.parametrize("word", ["GET /logs", "GET /jobs", "replicas", "events", "analysis"])
    @pytest.mark.parametrize(
        "told",
        [
            [],
            "x",
            {"data": 5},
            {"data": {"result": [5]}},
            {"data": {"result": [{"values": [["x", "y"]]}]}},
            {"data": {"result": [{"values": [[]]}]}},
            {"jobs": [{"metadata": 5, "status": []}]},
            [{"metadata": [], "status": "x"}],
            {"err_class": 5, "job_failure_by_node_event": 7},
        ],
    )
    def test_nothing_raises_out_of_a_poll(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer, word: str, told: Any
    ) -> None:
        jobs = sdk.create_jobs([lab.job("true")] * 3)
        for job in jobs:
            played.job_of(job.id).turn("Failed")
        real = sdk.backend.transport.get
        sdk.backend.transport.get = (  # type: ignore[method-assign]  # plays the wire
            lambda path, /, **query: told if word in f"GET {path}" else real(path, **query)
        )
        sdk.get_statuses([job.id for job in jobs])
        for call in (sdk.get_job_logs, sdk.get_failure_analysis, sdk.get_job_replicas):
            with contextlib.suppress(BackendUnreachableError):
                call(jobs[0].id)

    @pytest.mark.parametrize("told", [5, "x", ["y"], {"z": 1}, None])
    def test_of_places(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer, told: Any
    ) -> None:
        played.state.shapes[0]["spec"]["cpu"] = told
        played.state.groups[0]["spec"]["volumes"] = [told]
        assert sdk.plan(**lab.job("true")).results_dir == ""
        assert sdk.list_resource_shapes()
