"""What happens when the engine itself is killed, lacks GPUs, or is reached over TLS."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from common_lab import isolate
from docker_lab import DockerLab

from lab.docker import Engine, private_engine
from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.platforms.conformance import eventually

LONG = 120
LIVE = "--live-restore"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerLab]:
    with private_engine(LIVE) as engine:
        lab = DockerLab(tmp_path, engine)
        isolate(monkeypatch, lab)
        yield lab
        lab.proxy.close()


@pytest.mark.timeout(300)
def test_killed_and_restarted_while_jobs_run(lab: DockerLab) -> None:
    """Every final state is right: of jobs that end before, while nobody is there, and after."""
    sdk = lab.sdk()
    until = 'while [ ! -e "/starts/{0}" ]; do sleep 0.1; done; exit {1}'
    phases = ["before", "during", "after", "after"]
    asked = [
        lab.job(until.format(phases[number % 4], number // 4 if number % 2 else 0))
        for number in range(20)
    ]
    jobs = sdk.create_jobs(asked)
    ids = [job.id for job in jobs]
    eventually(lambda: {s.status for s in sdk.get_statuses(ids).values()} == {"Running"}, LONG)
    (lab.starts / "before").touch()
    followed = sdk.stream_logs(ids[0])
    lab.engine.kill()
    status = sdk.get_job_status(ids[2])
    assert status.status == "Running"
    assert "cannot reach" in status.message
    (lab.starts / "during").touch()
    records = [lab.results / job_id / "tao_result.json" for job_id in ids[1::4]]
    eventually(lambda: all(record.exists() for record in records), LONG)
    lab.engine.start(LIVE)
    (lab.starts / "after").touch()
    statuses = sdk.wait_all(ids, timeout=LONG)
    expected = [
        "Error" if number % 2 and number // 4 else "Complete" for number in range(len(asked))
    ]
    assert [statuses[job_id].status for job_id in ids] == expected
    codes = {job_id: sdk.store.get_job(job_id)["exit_code"] for job_id in ids}  # type: ignore[index]  # None would fail here as well
    assert [codes[job_id] for job_id in ids[1::2]] == [n // 4 for n in range(20) if n % 2]
    assert list(followed) == []


@contextmanager
def without_its_disk(engine: Engine) -> Iterator[None]:
    """The engine as it comes up when what it keeps is on a disk that was not mounted."""
    data, away = engine.folder / "data", engine.folder / "data.away"
    engine.stop()
    data.rename(away)
    engine.start(LIVE)
    yield
    engine.stop()
    shutil.rmtree(data)
    away.rename(data)
    engine.start(LIVE)


@pytest.mark.timeout(300)
def test_an_engine_that_comes_up_without_its_disk(
    lab: DockerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its jobs is gone; all are judged rightly when the disk is back."""
    monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
    until = "while [ ! -e /starts/go ]; do sleep 0.1; done; exit 3"
    sdk = lab.sdk()
    without_results = {**lab.job(until), "mounts": [f"{lab.starts}:/starts"]}
    job, recorded = sdk.create_job(**without_results), sdk.create_job(**lab.job(until))
    half = lab.start_python(
        lab.submission_steps()["before the start"]
        + "\nimport json, sys\nsdk.create_job(**json.loads(sys.argv[1]))",
        json.dumps(without_results),
    )
    half.communicate(timeout=LONG)
    ids = [job.id, recorded.id]
    eventually(lambda: {s.status for s in sdk.get_statuses(ids).values()} == {"Running"}, LONG)
    (lab.starts / "go").touch()
    for job_id in ids:
        lab.engine.docker("wait", f"tao-job-{job_id}")
    with without_its_disk(lab.engine):
        meanwhile = lab.sdk()
        for asked in (sdk, meanwhile):
            for _ in range(2):
                status = asked.get_job_status(job.id)
                assert status.status == "Running"
                assert "cannot reach" in status.message
                assert "data-root" in status.message
            assert asked.cancel_job(job.id) is False
            assert asked.reconcile() == [], "whether it was submitted is not known here"
        assert meanwhile.get_job_status(recorded.id).status == "Error", "its record is on the mount"
    for asked in (sdk, meanwhile, lab.sdk()):
        assert asked.get_job_status(job.id).status == "Error"
    assert sdk.store.get_job(job.id)["exit_code"] == 3  # type: ignore[index]  # None would fail here as well
    [left] = [one for one in sdk.list_jobs() if one.id not in ids]
    assert "never submitted" in left.refresh().message, "now it is known"


@pytest.mark.seed("004.2")
def test_the_first_job_of_an_engine_makes_the_default_network(lab: DockerLab) -> None:
    form = "{{.Name}}"
    assert "tao_default" not in lab.engine.docker("network", "ls", "--format", form).split()
    job = lab.sdk().create_job(**lab.job("true"))
    assert job.wait(timeout=LONG).status == "Complete"
    networks = "{{json .NetworkSettings.Networks}}"
    found = lab.engine.docker("inspect", "-f", networks, f"tao-job-{job.id}")
    assert list(json.loads(found)) == ["tao_default"]
    assert "tao_default" in lab.engine.docker("network", "ls", "--format", form).split()


def test_without_the_toolkit_the_reason_is_told(lab: DockerLab) -> None:
    lab.engine.stop()
    lab.engine.start(LIVE, stub=False)
    sdk = lab.sdk()
    with pytest.raises(SubmissionRejectedError, match="could not select device driver"):
        sdk.create_job(**{**lab.job("true"), "gpu_count": 1})
    [job] = sdk.list_jobs()
    analysis = job.explain()
    assert analysis is not None
    assert "NVIDIA container toolkit" in analysis["cause"]


def make_certificates(folder: Path) -> None:
    """A certificate authority, a server at 127.0.0.1 and a client."""
    folder.mkdir()

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=lab")
    (folder / "server.ext").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    (folder / "client.ext").write_text("extendedKeyUsage=clientAuth\n")
    names = {"server": ("server-key.pem", "server.pem"), "client": ("key.pem", "cert.pem")}
    for name, (private, public) in names.items():
        openssl("req", *key, "-keyout", private, "-out", f"{name}.csr", "-subj", f"/CN={name}")
        authority = ["-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial"]
        openssl(
            "x509", "-req", "-in", f"{name}.csr", *authority, "-out", public,
            "-extfile", f"{name}.ext",
        )  # fmt: skip


@pytest.mark.seed("004.1")
def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: DockerLab) -> None:
    """Lesson W22: DOCKER_TLS_VERIFY and DOCKER_CERT_PATH were ignored."""
    certificates = tmp_path / "certificates"
    make_certificates(certificates)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    lab.engine.stop()
    lab.engine.start(
        *("-H", f"tcp://127.0.0.1:{port}", "--tlsverify", "--tlscacert", f"{certificates}/ca.pem"),
        *("--tlscert", f"{certificates}/server.pem", "--tlskey", f"{certificates}/server-key.pem"),
    )
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates))
    job = lab.sdk().create_job(**lab.job("echo over TLS"))
    assert list(job.logs(follow=True)) == ["over TLS"]
    assert job.wait(timeout=LONG).status == "Complete"
    assert job.results_dir.startswith("docker-bind://"), "a remote host's folder"
