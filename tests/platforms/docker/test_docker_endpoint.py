"""Which daemon is meant: the same answer as the Docker command line's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.docker.endpoint import DEFAULT_SOCKET, resolve
from tao_sdk.platforms.docker.ssh import ssh_command


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path


def make_context(config: Path, name: str, host: str, *, tls: bool = False) -> None:
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = config / "contexts" / "meta" / digest
    meta.mkdir(parents=True)
    endpoint = {"Host": host, "SkipTLSVerify": False}
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": endpoint}}))
    if tls:
        (config / "contexts" / "tls" / digest / "docker").mkdir(parents=True)


def test_the_default_socket() -> None:
    assert resolve().url == DEFAULT_SOCKET
    assert resolve().local


@pytest.mark.seed("004.1")
def test_order_of_precedence(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_context(config, "chosen", "ssh://me@gpu-box")
    make_context(config, "named", "tcp://10.0.0.1:2376", tls=True)
    (config / "config.json").write_text(json.dumps({"currentContext": "chosen"}))
    assert resolve().url == "ssh://me@gpu-box"
    monkeypatch.setenv("DOCKER_CONTEXT", "named")
    assert resolve().url == "tcp://10.0.0.1:2376"
    assert resolve().tls is not None
    monkeypatch.setenv("DOCKER_HOST", "unix:///elsewhere.sock")
    assert resolve().url == "unix:///elsewhere.sock"
    assert resolve("ssh://other").url == "ssh://other"


def test_tls_from_the_environment(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lesson W22: DOCKER_TLS_VERIFY and DOCKER_CERT_PATH count."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://gpu-box:2376")
    assert resolve().tls is None
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    with pytest.raises(ValidationError, match=r"needs ca\.pem"):
        resolve()
    monkeypatch.setenv("DOCKER_CERT_PATH", str(config))
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (config / name).touch()
    tls = resolve().tls
    assert tls is not None
    assert (tls.folder, tls.verify) == (config, True)


@pytest.mark.parametrize("host", ["gpu-box", "ftp://gpu-box", "ssh://", "ssh://me:pw@gpu-box"])
def test_nonsense_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="docker_host"):
        resolve(host)


def test_unknown_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    with pytest.raises(ValidationError, match="no context 'nowhere'"):
        resolve()


def test_ssh_words() -> None:
    words = ssh_command("ssh://me@gpu-box:2222", "/run/x")
    assert words[-5:] == ["--", "gpu-box", "docker", "system", "dial-stdio"]
    assert words[words.index("-l") + 1] == "me"
    assert words[words.index("-p") + 1] == "2222"
    socket = ssh_command("ssh://gpu-box/run/user/1000/docker.sock", "/run/x")
    assert socket[-4:] == ["--host", "unix:///run/user/1000/docker.sock", "system", "dial-stdio"]
