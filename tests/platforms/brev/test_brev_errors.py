"""What messages of the brev program mean."""

from __future__ import annotations

import pytest

from tao_sdk.platforms.brev.errors import (
    says_name_taken,
    says_no_capacity,
    says_no_login,
    says_no_such_instance,
)


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
        ("could only create 0/1 instances", False, False, False, False),
        ("duplicate workspace", False, False, False, True),
        ('instance "x" not found', False, False, True, False),
        ("no workspace with that name", False, False, True, False),
        ("1 error occurred:\n\t* instance with id/name x not found", False, False, True, False),
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
