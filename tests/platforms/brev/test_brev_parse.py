"""The output of the brev program, in every shape that it has had."""

from __future__ import annotations

import json

import pytest

from tao_sdk.platforms.brev.parse import (
    Instance,
    NotUnderstoodError,
    Offer,
    parse_flags,
    parse_instances,
    parse_offers,
    parse_version,
    says_name_taken,
    says_no_capacity,
    says_no_login,
    says_no_such_instance,
)

ROWS = [
    {"name": "a", "id": "i1", "status": "RUNNING", "instance_type": "g5.xlarge"},
    {"name": "b", "id": "i2", "status": "STOPPED"},
]


class TestInstances:
    @pytest.mark.parametrize(
        "text",
        [
            json.dumps(ROWS),
            json.dumps({"workspaces": ROWS}),
            "A new version is available: v9.9.9\n" + json.dumps({"workspaces": ROWS}, indent=2),
            json.dumps(ROWS, indent=2) + "\nWelcome! Try:\n[1] brev open {name}\n",
        ],
    )
    def test_both_shapes(self, text: str) -> None:
        """Lesson W17: an object with `workspaces` is a list of instances as well."""
        first, second = parse_instances(text)
        assert first == Instance("a", "RUNNING", "i1", "g5.xlarge")
        assert (first.running, second.running, second.stopped) == (True, False, True)

    def test_what_is_not_said(self) -> None:
        [one] = parse_instances('[{"name": "a", "status": null, "id": null}]')
        assert one == Instance("a", "")

    @pytest.mark.parametrize("text", ["null", "[]", '{"workspaces": null}', '{"workspaces": []}'])
    def test_none(self, text: str) -> None:
        assert parse_instances(text) == []

    @pytest.mark.parametrize("text", ["", "no instances", '{"other": []}', '{"workspaces": 3}'])
    def test_what_nobody_understands_is_not_none(self, text: str) -> None:
        """An account whose list cannot be read is not an account without instances."""
        with pytest.raises(NotUnderstoodError):
            parse_instances(text)

    @pytest.mark.parametrize(
        ("status", "running", "going", "failed", "stopped"),
        [
            ("RUNNING", True, False, False, False),
            ("ready", True, False, False, False),
            ("DEPLOYING", False, False, False, False),
            ("STARTING", False, False, False, False),
            ("STOPPED", False, False, False, True),
            ("STOPPING", False, False, False, True),
            ("DELETING", False, True, False, False),
            ("FAILURE", False, False, True, False),
            ("UNHEALTHY", False, False, False, False),
            ("", False, False, False, False),
        ],
    )
    def test_statuses(
        self, status: str, running: bool, going: bool, failed: bool, stopped: bool
    ) -> None:
        one = Instance("x", status)
        found = (one.running, one.going, one.failed, one.stopped)
        assert found == (running, going, failed, stopped)


class TestOffers:
    def test_both_shapes(self) -> None:
        new = [{"type": "t", "gpu_name": "L40S", "gpu_count": 2, "price_per_hour": 3.5}]
        arm = [{**new[0], "arch": "arm64", "provider": None}]
        assert parse_offers(json.dumps(arm)) == [Offer("t", "L40S", 2, 3.5, arch="arm64")]
        old = [{"type": "t", "gpu": "L40S", "gpuCount": 2}]
        assert parse_offers(json.dumps(new)) == [Offer("t", "L40S", 2, 3.5)]
        placed = [{**new[0], "provider": "aws", "location": "us-east-1"}]
        assert parse_offers(json.dumps(placed)) == [
            Offer("t", "L40S", 2, 3.5, provider="aws", region="us-east-1")
        ]
        assert parse_offers(json.dumps(old)) == [Offer("t", "L40S", 2, None)]


def test_version_and_flags() -> None:
    assert parse_version("Current version: v0.6.322") == (0, 6, 322)
    assert parse_version("dev") is None
    assert parse_flags("  -t, --type string\n --detached") == {"type", "detached"}


@pytest.mark.parametrize(
    ("said", "no_login", "no_capacity", "no_such", "taken"),
    [
        ("Error: 401 Unauthorized", True, False, False, False),
        (
            "You are currently logged out, would you like to log in? [y/n]: ",
            True,
            False,
            False,
            False,
        ),
        ("[error] EOF", False, False, False, False),
        ("rpc failed: EOF", True, False, False, False),
        ("insufficient capacity for g5.xlarge in us-east", False, True, False, False),
        ("rpc error: code = Unavailable desc = try again", False, False, False, False),
        ("could only create 0/1 instances", False, False, False, False),
        ("duplicate workspace", False, False, False, True),
        ('instance "x" not found', False, False, True, False),
        ("no workspace with that name", False, False, True, False),
        ("1 error occurred:\n\t* instance with id/name x not found", False, False, True, False),
        ("workspace tao-1234 does not exist", False, False, True, False),
        ("could not find any workspace named x", False, False, True, False),
        ("workspace: not found", False, False, True, False),
        ("org not found", False, False, False, False),
        ("cannot delete instance tao-1: org not found", False, False, False, False),
        ("could not find an organization for this instance", False, False, False, False),
        ("user does not exist", False, False, False, False),
        ("instance tao-1234 already exists", False, False, False, True),
        ("dial tcp: i/o timeout", False, False, False, False),
    ],
)
def test_complaints(
    said: str, no_login: bool, no_capacity: bool, no_such: bool, taken: bool
) -> None:
    found = (
        says_no_login(said),
        says_no_capacity(said),
        says_no_such_instance(said),
        says_name_taken(said),
    )
    assert found == (no_login, no_capacity, no_such, taken)
