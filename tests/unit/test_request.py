"""Requests are checked whole before anything exists."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import pytest

from tao_sdk.errors import SecretExposureError, UnknownOptionError, ValidationError
from tao_sdk.platforms.request import (
    JobRequest,
    Keyword,
    build_request,
    check_gpu_ids,
    check_text,
    checked_options,
    options_of,
)


class Options(NamedTuple):
    gpu_ids: Annotated[tuple[str, ...], Keyword("these GPUs", check_gpu_ids)] = ()
    cwd: Annotated[str | None, Keyword("working directory", check_text)] = None


def build(**keywords: Any) -> JobRequest:
    fixed = {
        name: keywords.pop(name, default)
        for name, default in (
            ("image", ""),
            ("command", "true"),
            ("gpu_count", 1),
            ("env_vars", None),
        )
    }
    return build_request(Options, keywords=keywords, platform="test", **fixed)


def test_defaults() -> None:
    request = build()
    assert (request.gpu_count, request.num_nodes, request.image) == (1, 1, "")
    assert request.options == Options()


def test_an_options_class_declares_its_keywords() -> None:
    assert [(option.name, option.meaning, option.default) for option in options_of(Options)] == [
        ("gpu_ids", "these GPUs", ()),
        ("cwd", "working directory", None),
    ]
    assert build(gpu_ids=[1], cwd="/tmp").options == Options(("1",), "/tmp")


def test_options_can_be_checked_without_a_request() -> None:
    assert checked_options(Options, {"gpu_ids": "0,1", "cwd": None}) == Options(("0", "1"))
    with pytest.raises(ValidationError, match="cwd"):
        checked_options(Options, {"cwd": 5})


def test_what_is_stored_has_names_of_variables_only() -> None:
    request = build(env_vars={"B": "secret-value-1", "A": "secret-value-2"}, cwd="/tmp")
    stored = request.to_dict()
    assert stored["env_names"] == ["A", "B"]
    assert "secret-value" not in str(stored)
    assert "secret-value" not in repr(request)
    assert stored["options"] == {"cwd": "/tmp"}
    assert build(gpu_ids=[0, 1]).to_dict()["options"] == {"gpu_ids": ["0", "1"]}


def test_a_list_of_words_is_quoted() -> None:
    assert build(command=["echo", "a b", "$x"]).command == "echo 'a b' '$x'"


@pytest.mark.parametrize(
    ("keyword", "hint"), [("gpu_id", "gpu_ids"), ("envvars", "env_vars"), ("comand", "command")]
)
def test_did_you_mean(keyword: str, hint: str) -> None:
    """Lesson F10: an unknown keyword is a TypeError that helps."""
    with pytest.raises(UnknownOptionError, match=f"did you mean '{hint}'") as caught:
        build(**{keyword: 1})
    assert isinstance(caught.value, TypeError)
    with pytest.raises(TypeError, match="it knows: action"):
        build(zzz=1)


@pytest.mark.parametrize(
    ("keywords", "where"),
    [
        ({"command": ["a", 1]}, r"command\[1\]"),
        ({"command": "   "}, "command"),
        ({"command": "printf '\udcff'"}, "command: character 9 is not valid UTF-8"),
        ({"image": 3}, "image"),
        ({"gpu_count": True}, "gpu_count"),
        ({"gpu_count": 1.0}, "gpu_count"),
        ({"num_nodes": -1}, "num_nodes"),
        ({"env_vars": {"A": 1}}, "env_vars.A"),
        ({"env_vars": {"TAO_RESULTS_ROOT": "/x"}}, "env_vars.TAO_RESULTS_ROOT"),
        ({"env_vars": {"A": "x\x00y"}}, "env_vars.A"),
        ({"env_vars": {"A": "x" * 200_000}}, "env_vars.A: 200,003 bytes with its name"),
        ({"env_vars": {"A": "x" * (128 * 1024 - 2)}}, "put the value in a file"),
        ({"gpu_ids": 3}, "gpu_ids"),
        ({"specs": {"a": {"b": {1, 2}}}}, r"specs\['a'\]\['b'\]"),
        ({"specs": {"a": float("nan")}}, r"specs\['a'\]"),
    ],
)
def test_errors_name_the_place(keywords: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        build(**keywords)


def test_known_secrets_of_the_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lesson E1: a spec with a key in it would be readable by everyone."""
    monkeypatch.setenv("NGC_KEY", "nvapi-0123456789")
    with pytest.raises(SecretExposureError) as caught:
        build(specs={"auth": ["x", "key=nvapi-0123456789"]})
    assert str(caught.value).startswith("specs.auth[1] contains the value of NGC_KEY")
    assert '"$NGC_KEY" from its environment' in str(caught.value)
    assert "nvapi" not in str(caught.value)
    with pytest.raises(SecretExposureError, match="cwd"):
        build(cwd="/nvapi-0123456789")


def test_a_secret_is_known_under_each_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "one-secret-0123")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-0123")
    for name, value in (
        ("SECRET_KEY", "one-secret-0123"),
        ("AWS_SECRET_ACCESS_KEY", "another-secret-0123"),
    ):
        with pytest.raises(SecretExposureError, match=f"command contains the value of {name}"):
            build(command=f"aws configure set x {value}")


def test_quoting_hides_no_secret() -> None:
    with pytest.raises(SecretExposureError, match="command contains the value of TOKEN"):
        build(command=["echo", "pa'ss-word-1234"], env_vars={"TOKEN": "pa'ss-word-1234"})


def test_passwords_in_addresses() -> None:
    with pytest.raises(SecretExposureError, match="a password in a URL") as caught:
        build(command="git clone https://user:hunter2secret@host/x")
    assert "hunter2" not in str(caught.value)
    assert build(command="git clone https://user:$TOKEN@host/x")


@pytest.mark.parametrize("keyword", ["command", "cwd"])
def test_tokens_in_addresses(keyword: str) -> None:
    with pytest.raises(SecretExposureError, match=f"{keyword} contains a token in a URL") as caught:
        build(**{keyword: "git+https://ghp_0123456789@host/x"})
    assert "ghp_" not in str(caught.value)
    with pytest.raises(SecretExposureError, match="a token in a URL"):
        build(specs={"source": "HTTPS://ghp_0123456789@host/x"})
    for harmless in ("$TOKEN@host", "${TOKEN}@host", "host/a@b", "host?a@b", "git@host/x"):
        assert build(command=f"git clone https://{harmless}")
    assert build(command="rsync ssh://user@host/x .")


def test_gpu_ids_take_text_and_numbers() -> None:
    assert check_gpu_ids("gpu_ids", "0, 2") == ("0", "2")
    assert check_gpu_ids("gpu_ids", [0, "GPU-x"]) == ("0", "GPU-x")
