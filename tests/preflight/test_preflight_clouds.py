"""Preflight of Brev and Lepton: a program, and a server on loopback, that behave like theirs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from launches import CANARIES, Broken, Launch, assert_names_it, assert_passes, broken, isolate

from lab import skill_bank
from tao_sdk.errors import CredentialError
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.preflight import PreflightRequest, run_preflight
from tao_sdk.skills import SkillBank

INSTANCES = [{"name": "gpu-1", "status": "RUNNING"}, {"name": "gpu-2", "status": "STOPPED"}]


class BrevLaunch(Launch):
    """With a program `brev` that writes down how it was called."""

    def install(self, program: str) -> None:
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        said = f'#!/bin/sh\necho "$*" >> {self.folder}/calls\n{program}\n'
        (tools / "brev").write_text(said)
        (tools / "brev").chmod(0o755)
        self.set("PATH", f"{tools}:/usr/bin:/bin")

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def brev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrevLaunch:
    isolate(monkeypatch, tmp_path)
    launch = BrevLaunch(monkeypatch, tmp_path, platform="brev")
    launch.install(f"echo '{json.dumps(INSTANCES)}'")
    return launch


@pytest.mark.seed("001.11")
@pytest.mark.parametrize("token", [None, CANARIES["BREV_API_TOKEN"]], ids=["no token", "token"])
@pytest.mark.parametrize("told", [INSTANCES, {"workspaces": INSTANCES}], ids=["list", "object"])
def test_brev_answers(brev: BrevLaunch, told: object, token: str | None) -> None:
    brev.install(f"echo '{json.dumps(told)}'")
    brev.set("BREV_API_TOKEN", token)
    found = assert_passes(brev.run())
    assert found["brev.access"].message.endswith("gpu-1 (RUNNING), gpu-2 (STOPPED)")
    assert sorted(brev.calls) == ["--version", "create --help", "ls --json"], "nothing else"


@pytest.mark.seed("001.9", "001.11")
@broken(
    Broken("no program", lambda it: it.set("PATH", str(it.folder)), "brev.program", "Install it"),
    Broken(
        "not logged in",
        lambda it: it.install("echo 'unauthorized: run brev login' >&2; exit 1"),
        "brev.access",
        "brev login",
    ),
    Broken("not JSON", lambda it: it.install("echo hello"), "brev.access", "hello"),
    Broken(
        "too old",
        lambda it: it.install(f"[ $1 = ls ] && echo '{json.dumps(INSTANCES)}' || echo v0.5.1"),
        "brev.version",
        "0.5.1",
    ),
    Broken(
        "no such instance",
        lambda it: it.ask(options={"instance_id": "gpu-3"}),
        "brev.instance",
        "there are: gpu-1, gpu-2",
    ),
    Broken(
        "a stopped instance",
        lambda it: it.ask(options={"instance_id": "gpu-2"}),
        "brev.instance",
        "brev start gpu-2",
    ),
    Broken(
        "no instance at all",
        lambda it: it.ask(options={"instance_id": "--all"}),
        "brev.instance",
        "cannot be a name",
    ),
    Broken(
        "mounted path", lambda it: it.path("train", "/data/train"), "path:train", "--confirm-mounts"
    ),
    Broken(
        "model's token",
        lambda it: it.ask(model_credentials=("MY_OWN_TOKEN",)),
        "model_credentials",
        "MY_OWN_TOKEN",
    ),
    Broken(
        "too little memory",
        lambda it: it.ask(
            target_gpu_count=2, target_gpu_memory_gb=(80.0, 40.0), min_gpu_memory_gb=48
        ),
        "gpu.memory",
        "40.0 GB",
    ),
    Broken(
        "memory not known",
        lambda it: it.ask(min_gpu_memory_gb=48),
        "gpu.memory",
        "--target-gpu-memory-gb",
    ),
)
def test_what_is_broken_on_brev_is_named(brev: BrevLaunch, variant: Broken) -> None:
    assert_names_it(brev, variant)


@pytest.mark.parametrize(
    ("token", "status"), [(CANARIES["BREV_API_TOKEN"], "warning"), ("bak-0123456789", None)]
)
def test_a_token_that_is_not_used_is_named(
    brev: BrevLaunch, token: str, status: str | None
) -> None:
    brev.set("BREV_API_TOKEN", token)
    found = assert_passes(brev.run()).get("brev.token")
    assert (found.status if found else None) == status
    assert found is None or "is no API key" in found.message


@pytest.mark.seed("001.11")
def test_an_instance_that_is_there_is_taken(brev: BrevLaunch) -> None:
    brev.ask(options={"instance_id": "gpu-1", "keep": False}, gpu_count=1, target_gpu_count=1)
    assert assert_passes(brev.run())["brev.instance"].message == "gpu-1 (RUNNING)"
    assert not any(call.startswith("search") for call in brev.calls)


def test_a_bank_that_requires_the_token_gets_it_checked(brev: BrevLaunch) -> None:
    request = PreflightRequest(platform="brev")
    real = SkillBank(skill_bank())
    assert [check.name for check in run_preflight(request, real).failures] == ["credentials"]
    brev.set("BREV_API_TOKEN", CANARIES["BREV_API_TOKEN"])
    assert run_preflight(request, real).ok


class Gateway:
    """Answers every request alike, and remembers what it was asked."""

    def __init__(self, status: int, location: str = "") -> None:
        asked: list[tuple[str, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, dict(self.headers.items())))
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"[]")

            def log_message(self, *_: object) -> None:
                pass

        self.asked = asked
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class LeptonLaunch(Launch):
    """A gateway on loopback."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder, platform="dgx-cloud")
        self.gateways: list[Gateway] = []

    def gateway(self, status: int, location: str = "") -> Gateway:
        made = Gateway(status, location)
        self.gateways.append(made)
        self.set("LEPTON_API_BASE_URL", made.url)
        return made


@pytest.fixture
def lepton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeptonLaunch]:
    isolate(monkeypatch, tmp_path)
    launch = LeptonLaunch(monkeypatch, tmp_path)
    launch.set("LEPTON_WORKSPACE_ID", "my-space")
    launch.set("LEPTON_AUTH_TOKEN", CANARIES["LEPTON_AUTH_TOKEN"])
    launch.gateway(200)
    yield launch
    for made in launch.gateways:
        made.close()


@pytest.mark.seed("001.11")
def test_lepton_answers(lepton: LeptonLaunch) -> None:
    found = assert_passes(lepton.run())
    assert found["lepton.access"].status == "passed"
    [(path, headers)] = lepton.gateways[0].asked
    assert path == "/api/v2/workspaces/my-space/imagepullsecrets"
    assert headers["Authorization"] == f"Bearer {CANARIES['LEPTON_AUTH_TOKEN']}"
    assert CANARIES["LEPTON_AUTH_TOKEN"] not in path


@pytest.mark.seed("001.9", "001.11")
@broken(
    Broken(
        "no token", lambda it: it.set("LEPTON_AUTH_TOKEN", None), "credentials", "LEPTON_AUTH_TOKEN"
    ),
    Broken("token refused", lambda it: it.gateway(401), "lepton.access", "Settings > Tokens"),
    Broken("no such workspace", lambda it: it.gateway(404), "lepton.access", "LEPTON_WORKSPACE_ID"),
    Broken("gateway in trouble", lambda it: it.gateway(503), "lepton.access", "HTTP 503"),
    Broken(
        "nobody answers",
        lambda it: it.set("LEPTON_API_BASE_URL", "http://127.0.0.1:1"),
        "lepton.access",
        "HTTPS_PROXY",
    ),
    Broken(
        "token in clear text",
        lambda it: it.set("LEPTON_API_BASE_URL", "http://lepton.example"),
        "lepton.access",
        "in clear text",
    ),
    Broken(
        "mounted path", lambda it: it.path("x", "file:///data/x"), "path:x", "is a mounted path"
    ),
)
def test_what_is_broken_on_lepton_is_named(lepton: LeptonLaunch, variant: Broken) -> None:
    assert_names_it(lepton, variant)


def test_the_token_does_not_follow_a_redirection(lepton: LeptonLaunch) -> None:
    elsewhere = lepton.gateway(200)
    lepton.gateway(302, elsewhere.url)
    [found] = lepton.run().failures
    assert (found.name, "HTTP 302" in found.message) == ("lepton.access", True)
    assert elsewhere.asked == []


def test_a_token_beside_the_workspace_is_refused_as_by_the_platform(lepton: LeptonLaunch) -> None:
    """Lepton's own client takes `id:token` in that variable, which nobody would take for secret."""
    token = f"{CANARIES['LEPTON_AUTH_TOKEN']}-2"
    lepton.set("LEPTON_WORKSPACE_ID", f"space:{token}")
    [found] = lepton.run().failures
    assert (found.name, "LEPTON_AUTH_TOKEN" in found.message) == ("lepton.access", True)
    assert token not in str(found)
    with pytest.raises(CredentialError) as refused:
        WorkspaceAccess.find()
    assert found.message == str(refused.value)
    assert "Correct LEPTON_WORKSPACE_ID" in found.remedy
    assert lepton.gateways[0].asked == []
