"""The folder in which sessions of ssh are kept, where other users have taken its name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms import ssh_control
from tao_sdk.platforms.ssh_control import control_folder

NAME = f"tao-ssh-{os.getuid()}"


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """With short paths; the one in /tmp itself is left out, for it is the machine's."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        names = {"TMPDIR": "a", "XDG_RUNTIME_DIR": "b", "TAO_SDK_STATE_DIR": "c"}
        made = {variable: Path(folder, name) for variable, name in names.items()}
        for variable, place in made.items():
            place.mkdir()
            monkeypatch.setenv(variable, str(place))
        monkeypatch.setattr(tempfile, "tempdir", None)
        real = ssh_control._candidates
        monkeypatch.setattr(
            ssh_control, "_candidates", lambda: (one for one in real() if folder in str(one))
        )
        yield made
    tempfile.tempdir = None


def squat(path: Path, how: str) -> None:
    if how == "file":
        path.touch()
    elif how == "link":
        path.symlink_to("/")
    else:
        path.mkdir(0o700)
        path.chmod(0o755 if how == "mode" else 0o700)
        if how == "owner":
            os.chown(path, 1001, 1001)


@pytest.mark.parametrize(
    "how",
    [
        "file",
        "link",
        "mode",
        pytest.param("owner", marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")),
    ],
)
def test_a_squatted_folder_is_left_for_the_next(places: dict[str, Path], how: str) -> None:
    expected = [
        places["TMPDIR"] / NAME,
        places["XDG_RUNTIME_DIR"] / NAME,
        places["TAO_SDK_STATE_DIR"] / "ssh",
    ]
    for path in expected:
        assert control_folder() == path
        assert path.stat().st_mode & 0o777 == 0o700
        path.rmdir()
        squat(path, how)
    with pytest.raises(BackendUnreachableError, match="Set TMPDIR to a private folder") as raised:
        control_folder()
    assert all(str(path) in str(raised.value) for path in expected)


def test_a_path_too_long_for_a_socket_is_not_used(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = places["TMPDIR"] / ("x" * 60)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert control_folder() == places["XDG_RUNTIME_DIR"] / NAME
