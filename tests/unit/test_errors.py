"""One error tree, drawn in the module's docstring."""

from __future__ import annotations

import inspect
import re

import pytest

from tao_sdk import errors


def test_the_drawing_is_the_tree() -> None:
    drawing = errors.__doc__ or ""
    drawn = re.findall(r"^\s{4}([│├└─ ]*)(\w*Error)\b", drawing, re.MULTILINE)
    parents: list[str] = []
    seen = set()
    for indent, name in drawn:
        depth = len(indent) // 4
        parents = [*parents[:depth], name]
        seen.add(name)
        cls = getattr(errors, name)
        if depth:
            assert issubclass(cls, getattr(errors, parents[depth - 1])), name
    defined = {
        name
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and cls.__module__ == errors.__name__
    }
    assert seen == defined


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.ValidationError, ValueError),
        (errors.UnknownOptionError, TypeError),
        (errors.JobNotFoundError, KeyError),
        (errors.WaitTimeoutError, TimeoutError),
        (errors.UnsupportedError, NotImplementedError),
    ],
)
def test_they_are_caught_by_the_usual_names_too(cls: type[Exception], builtin: type) -> None:
    assert issubclass(cls, builtin)


def test_a_message_is_a_sentence() -> None:
    assert str(errors.JobNotFoundError("no job x")) == "no job x"
    assert str(errors.TaoError()) == ""


def test_credential_error_has_the_contracts_import_paths() -> None:
    import tao_sdk
    import tao_sdk.models

    assert tao_sdk.CredentialError is tao_sdk.models.CredentialError is errors.CredentialError
