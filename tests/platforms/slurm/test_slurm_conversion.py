"""Images as squashfs files, and passwords of registries, on a real cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from common_lab import isolated
from slurm_lab import SlurmPlatformLab

from lab.slurm import Cluster, slurm_lab
from lab.slurm.images import REGISTRY_PASSWORD, REGISTRY_USER
from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.models import Job, JobState
from tao_sdk.platforms.backend import Plan
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import visible_command_lines
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.platforms.slurm import SlurmSDK
from tao_sdk.platforms.slurm.image_conversion import ConversionProgress, job_name
from tao_sdk.platforms.slurm.image_names import parse_image

_BUSYBOX = "registry.lab/lab/busybox:1"
_PRIVATE = "private.lab/lab/busybox:1"
_OLD = 100 * 86_400


@pytest.fixture
def lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> Iterator[ConversionLab]:
    with (
        slurm_lab(cluster) as slurm,
        isolated(monkeypatch, ConversionLab(tmp_path, slurm)) as lab,
    ):
        yield lab


class ConversionLab(SlurmPlatformLab):
    """A cluster whose images are converted."""

    others: Mapping[str, str] = {}
    """What other processes find set beside the rest."""

    def variables(self) -> dict[str, str]:
        return {**super().variables(), "SLURM_CONVERSION_MEMORY_GB": "1", **self.others}

    @property
    def cache(self) -> Path:
        return self.slurm.shared / "sqsh"

    def file_of(self, image: str) -> Path:
        return self.cache / parse_image(image).cache_name

    @property
    def credentials(self) -> Path:
        return self.slurm.home / ".config" / "enroot" / ".credentials"

    def conversions(self) -> list[str]:
        """Slurm's ids of every conversion that has begun here."""
        return [path.suffixes[-2].strip(".") for path in self.cache.glob(".converting/*.log")]

    def queued_conversion(self, image: str = _BUSYBOX) -> str:
        name = job_name(str(self.file_of(image)))
        return self.slurm.run_as_root("squeue", "-h", "-n", name, "-o", "%i").strip()

    def let_start(self, job: str) -> None:
        """A job of the partition that starts none goes to one that does."""
        self.slurm.run_as_root("scontrol", "update", f"jobid={job}", "partition=cpu")

    def offer_image(self, tag: str, *, kind: str = "busybox") -> tuple[str, Path]:
        """An image that no other test knows, and its file in the registry."""
        name = f"lab/{uuid.uuid4().hex}:{tag}"
        place = self.slurm.cluster.layout.registry / "registry.lab" / f"{name}.sqsh"
        shutil.copy(self.slurm.images[kind], place)
        return f"registry.lab/{name}", place

    def block_enroot(self) -> Path:
        """`enroot` waits for its passwords until `unblock_enroot`."""
        self.credentials.parent.mkdir(parents=True)
        os.mkfifo(self.credentials)
        for path in (self.credentials.parent.parent, self.credentials.parent, self.credentials):
            shutil.chown(path, self.slurm.user)
        return self.credentials

    def run(self, sdk: PlatformSDK, image: str, script: str = "echo hello") -> Job:
        job = sdk.create_job(image=image, command=script, gpu_count=0)
        assert job.wait(timeout=60).status == JobState.COMPLETE.value, "\n".join(job.logs())
        return job

    def end_all(self) -> None:
        super().end_all()
        for path in self.cache.glob(".converting/*.sqsh"):
            name = job_name(str(self.cache / path.name))
            self.slurm.run_as_root("scancel", "-n", name, check=False)


def _let_enroot_read(fifo: Path) -> None:
    """Once: whoever reads the file finds it empty."""
    with fifo.open("wb"):
        pass


# ---------------------------------------------------------------------- converting


@pytest.mark.seed("002.8", "002.9")
def test_an_image_is_converted_once_and_jobs_run_from_the_file(lab: ConversionLab) -> None:
    """Lesson: create_job blocked for many minutes without a word."""
    image, in_registry = lab.offer_image("1")
    heard: list[ConversionProgress] = []
    with SlurmSDK(state_file=lab.state_file, on_convert=heard.append) as sdk:
        first = lab.run(sdk, image, "echo from the file")
        assert list(first.logs()) == ["from the file"]
        assert lab.file_of(image).read_bytes()[:4] == b"hsqs"
        assert [heard[0].stage, heard[-1].stage] == ["queued", "done"]
        assert str(heard[0]).startswith(f"converting {image}: queued")
        assert heard[0].slurm_job_id in lab.conversions()

        # Nothing but the file can be what the next ones run from, however they name it.
        in_registry.unlink()
        heard.clear()
        for form in (image.replace("/", "#", 1), "docker://" + image.replace("/", "#", 1)):
            lab.run(sdk, form)
    assert heard == []
    with lab.sdk() as another:
        another.create_job(image=image, command="true", gpu_count=0)
        assert list(another.backend.transport.calls) == ["probe+convert_look", "submit"]
    assert len(lab.conversions()) == 1
    assert list(lab.cache.glob("*.partial.*")) == []
    assert list((lab.cache / ".enroot-tmp").glob("tao-sqsh-[0-9]*")) == []


@pytest.mark.seed("002.9")
def test_an_image_that_is_a_file_is_never_converted(lab: ConversionLab) -> None:
    with lab.sdk() as sdk:
        lab.run(sdk, str(lab.slurm.images["busybox"]))
        assert list(sdk.backend.transport.calls)[:2] == ["probe+paths", "submit"]
        assert "convert" not in list(sdk.backend.transport.calls)
    assert not lab.cache.exists()


def test_without_squashfs_files_jobs_pull_themselves(
    lab: ConversionLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_USE_SQSH", "false")
    with lab.sdk() as sdk:
        assert sdk.plan(image=_BUSYBOX, command="true", gpu_count=0).warnings == ()
        lab.run(sdk, _BUSYBOX)
    assert not lab.cache.exists()


def test_two_processes_convert_once(lab: ConversionLab) -> None:
    program = (
        "def say(progress):\n    print(progress.stage, flush=True)\n"
        f"sdk = type(sdk)(state_file={str(lab.folder / 'other.json')!r}, on_convert=say)\n"
        f"job = sdk.create_job(image={_BUSYBOX!r}, command='true', gpu_count=0)\n"
        "print('submitted', job.id)\n"
    )
    with _waiting_conversions(lab, program, "login1", "login2") as processes:
        lab.let_start(lab.queued_conversion())
        outputs = [process.communicate(timeout=90) for process in processes]
    for process, (out, err) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, err
        assert "done\nsubmitted" in out
    assert len(lab.conversions()) == 1


@contextlib.contextmanager
def _waiting_conversions(
    lab: ConversionLab, program: str, *hosts: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that all wait for a conversion that does not start, each at its login host."""
    processes = []
    for host in hosts:
        lab.others = {"SLURM_HOSTNAME": host, "SLURM_CONVERSION_PARTITION": "closed"}
        processes.append(lab.start_python(program))
    lab.others = {}
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() in ("queued\n", "starting\n"), process.communicate()
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_killed_client_leaves_its_conversion_to_the_next(lab: ConversionLab) -> None:
    program = (
        "def say(progress):\n    print(progress.stage, flush=True)\n"
        f"sdk = type(sdk)(state_file={str(lab.state_file)!r}, on_convert=say)\n"
        f"sdk.create_job(image={_BUSYBOX!r}, command='true', gpu_count=0)\n"
    )
    with _waiting_conversions(lab, program, "login1"):
        pass  # killed
    begun = lab.queued_conversion()
    heard: list[ConversionProgress] = []

    def listen(progress: ConversionProgress) -> None:
        if not heard:
            lab.let_start(begun)
        heard.append(progress)

    with SlurmSDK(state_file=lab.state_file, on_convert=listen) as sdk:
        assert "is being converted by Slurm job" in _notes(sdk, _BUSYBOX)
        lab.run(sdk, _BUSYBOX)
    assert {one.slurm_job_id for one in heard} == {begun, ""}  # the last tells that it is done
    assert lab.conversions() == [begun]


def test_a_lost_connection_ends_nothing(lab: ConversionLab) -> None:
    fifo = lab.block_enroot()
    heard: list[ConversionProgress] = []

    def listen(progress: ConversionProgress) -> None:
        heard.append(progress)
        stages = [one.stage for one in heard]
        if progress.stage == "running" and stages.count("running") == 1:
            lab.slurm.stop_sshd()
        elif progress.stage == "unreachable" and stages.count("unreachable") == 1:
            lab.slurm.start_sshd()
            _let_enroot_read(fifo)

    with SlurmSDK(state_file=lab.state_file, on_convert=listen) as sdk:
        lab.run(sdk, _BUSYBOX)
    assert "unreachable" in [one.stage for one in heard]
    assert len(lab.conversions()) == 1


def test_a_conversion_that_was_killed_is_taken_over(lab: ConversionLab) -> None:
    fifo = lab.block_enroot()
    with lab.sdk() as sdk:
        plan = sdk.plan(image=_BUSYBOX, command="true", gpu_count=0)
        conversion = _in_background(lambda: sdk.submit(plan))
        killed = eventually(lambda: lab.queued_conversion())
        eventually(lambda: killed in lab.conversions())
        lab.slurm.run_as_root("scancel", "--signal=KILL", "--full", killed)
        conversion.join(60)
        assert not lab.file_of(_BUSYBOX).exists()
        fifo.unlink()
        lab.run(sdk, _BUSYBOX)
    assert len(lab.conversions()) == 2


def _in_background(what: object) -> threading.Thread:
    assert callable(what)

    def run() -> None:
        with contextlib.suppress(SubmissionRejectedError):
            what()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _record_of_a_dead_submitter(lab: ConversionLab) -> Path:
    """It made the record, and was gone before it had submitted anything."""
    record = lab.cache / ".converting" / lab.file_of(_BUSYBOX).name
    record.mkdir(parents=True)
    with subprocess.Popen(["true"]) as gone:
        pass
    (record / "owner").write_text(f"{os.uname().nodename} {gone.pid} 1 deadbeef\n")
    for path in (lab.cache, record.parent, record, record / "owner"):
        shutil.chown(path, lab.slurm.user)
    return record


def test_a_submitter_that_ends_while_it_is_looked_at_is_not_taken_over(lab: ConversionLab) -> None:
    """Its conversion was submitted, and over, between two looks: nothing is converted twice."""
    record = _record_of_a_dead_submitter(lab)
    with lab.sdk() as sdk, ThreadPoolExecutor(1) as pool:
        plan = sdk.plan(image=_BUSYBOX, command="true", gpu_count=0)
        os.mkfifo(record / "job")
        shutil.chown(record / "job", lab.slurm.user)
        had = pool.submit(sdk.backend.images.ensure_image, plan)
        # It is read now, and says nothing yet.
        with open(record / "job", "w", encoding="utf-8"):
            lab.file_of(_BUSYBOX).write_bytes(b"hsqs, and so on")
        assert had.result(60) == ""
    assert lab.conversions() == []


def test_a_submitter_that_died_is_taken_over_by_one_of_many(lab: ConversionLab) -> None:
    record = _record_of_a_dead_submitter(lab)
    with lab.sdk() as sdk:
        images = sdk.backend.images
        plans = [sdk.plan(image=_BUSYBOX, command="true", gpu_count=0) for _ in range(5)]
        together = threading.Barrier(len(plans))

        def have(plan: Plan) -> str:
            together.wait(60)
            return images.ensure_image(plan)

        with ThreadPoolExecutor(len(plans)) as pool:
            assert set(pool.map(have, plans)) == {""}
    assert (record / "job").read_text().split() == lab.conversions()


@pytest.mark.parametrize("content", [b"", b"hs", b"not a file system"])
def test_a_damaged_file_is_replaced(lab: ConversionLab, content: bytes) -> None:
    lab.cache.mkdir()
    damaged = lab.file_of(_BUSYBOX)
    damaged.write_bytes(content)
    for path in (lab.cache, damaged):
        shutil.chown(path, lab.slurm.user)
    with lab.sdk() as sdk:
        lab.run(sdk, _BUSYBOX)
    assert damaged.read_bytes()[:4] == b"hsqs"


@pytest.mark.seed("002.9")
def test_latest_is_converted_again_only_when_asked(
    lab: ConversionLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, _ = lab.offer_image("latest")
    with lab.sdk() as sdk:
        lab.run(sdk, image)
    with lab.sdk() as sdk:
        lab.run(sdk, image)
    assert len(lab.conversions()) == 1
    first = lab.file_of(image).stat().st_ino

    monkeypatch.setenv("SLURM_FORCE_RECONVERT_LATEST", "true")
    with lab.sdk() as sdk:
        assert "is converted again" in _notes(sdk, image)
        lab.run(sdk, image)
        lab.run(sdk, _BUSYBOX)
        lab.run(sdk, _BUSYBOX)  # not :latest
    assert len(lab.conversions()) == 3
    # A job that runs from the older file keeps it.
    [replaced] = lab.cache.glob("*.replaced.*")
    assert replaced.stat().st_ino == first != lab.file_of(image).stat().st_ino


def test_many_jobs_of_an_image_wait_for_one_conversion(lab: ConversionLab) -> None:
    with lab.sdk() as sdk:
        jobs = sdk.create_jobs([{"image": _BUSYBOX, "command": "true", "gpu_count": 0}] * 5)
        for job in jobs:
            assert job.wait(timeout=60).status == JobState.COMPLETE.value
    assert len(lab.conversions()) == 1


# ---------------------------------------------------------------------- failures


def _message(sdk: PlatformSDK, job: Job) -> str:
    row = sdk.store.get_job(job.id)
    assert row is not None
    return str(row["message"])


def test_an_unknown_image_is_left_to_the_job(lab: ConversionLab) -> None:
    with lab.sdk() as sdk:
        requests = [{"image": "registry.lab/lab/nothing:1", "command": "true", "gpu_count": 0}] * 3
        for job in sdk.create_jobs(requests):
            message = _message(sdk, job)
            assert "404 Not Found" in message
            assert "the job pulls it itself" in message
    assert len(lab.conversions()) == 1


def test_an_unknown_image_is_refused_where_files_are_required(
    lab: ConversionLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_REQUIRE_SQSH", "true")
    with lab.sdk() as sdk:
        with pytest.raises(SubmissionRejectedError, match="404 Not Found; check the name"):
            lab.run(sdk, "registry.lab/lab/nothing:1")
        requests = [{"image": "registry.lab/lab/nothing:1", "command": "true", "gpu_count": 0}] * 3
        for job in sdk.create_jobs(requests):
            assert job.status == JobState.ERROR.value
            assert "404 Not Found" in _message(sdk, job)
    assert not (lab.slurm.shared / "jobs").exists()
    assert len(lab.conversions()) == 2


@pytest.mark.seed("002.17")
def test_a_conversion_that_takes_too_long_is_cancelled(
    lab: ConversionLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_REQUIRE_SQSH", "true")
    monkeypatch.setenv("SLURM_CONVERSION_PARTITION", "closed")
    monkeypatch.setenv("SLURM_CONVERSION_TIMEOUT_MINUTES", "0.03")
    with lab.sdk() as sdk, pytest.raises(SubmissionRejectedError) as caught:
        lab.run(sdk, _BUSYBOX)
    assert "not done within 0.03 min, so cancelled" in str(caught.value)
    assert "SLURM_CONVERSION_TIMEOUT_MINUTES" in str(caught.value)
    eventually(lambda: not lab.queued_conversion())


def test_a_partition_that_is_not_there(lab: ConversionLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_REQUIRE_SQSH", "true")
    monkeypatch.setenv("SLURM_CONVERSION_PARTITION", "nowhere")
    with lab.sdk() as sdk:
        assert "SLURM_CONVERSION_PARTITION=nowhere: this cluster has batch" in _notes(sdk, _BUSYBOX)
        with pytest.raises(SubmissionRejectedError, match=r"Invalid partition.*set SLURM_CONV"):
            lab.run(sdk, _BUSYBOX)


def test_a_cache_that_cannot_be_written(
    lab: ConversionLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_REQUIRE_SQSH", "true")
    monkeypatch.setenv("SLURM_SQSH_CACHE_DIR", "/proc/sqsh")
    with (
        lab.sdk() as sdk,
        pytest.raises(SubmissionRejectedError, match=r"/proc/sqsh.*set SLURM_SQSH_CACHE_DIR"),
    ):
        lab.run(sdk, _BUSYBOX)


# ---------------------------------------------------------------------- planning


def _notes(sdk: PlatformSDK, image: str) -> str:
    return "\n".join(sdk.plan(image=image, command="true", gpu_count=0).warnings)


@pytest.mark.seed("002.2")
def test_a_plan_says_what_will_happen_and_creates_nothing(
    lab: ConversionLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = "nvcr.io/nvidia/tao/tao-toolkit:6.0.0-pyt"
    with lab.sdk() as sdk:
        told = _notes(sdk, image)
        assert f"image {image} is converted first, to {lab.file_of(image)}" in told
        assert "the cluster has no password for nvcr.io" in told
        assert "cat >> ~/.config/enroot/.credentials" in told
        assert not lab.cache.exists()

        monkeypatch.setenv("NGC_KEY", "nvapi-0123456789")
        sdk.install_registry_credentials()
        assert "no password" not in _notes(sdk, image)


def test_a_plan_tells_when_a_tag_may_have_moved(lab: ConversionLab) -> None:
    """Lesson: the file of an image whose tag has moved was used for ever, without a word."""
    with lab.sdk() as sdk:
        lab.run(sdk, _BUSYBOX)
    with lab.sdk() as sdk:
        assert _notes(sdk, _BUSYBOX) == ""
    _age(lab.file_of(_BUSYBOX))
    with lab.sdk() as sdk:
        assert "was converted 100 days ago" in _notes(sdk, _BUSYBOX)


def _age(path: Path) -> None:
    then = path.stat().st_mtime - _OLD
    os.utime(path, (then, then))


# ---------------------------------------------------------------------- passwords


@pytest.mark.seed("002.2")
def test_a_private_image_wants_a_password(
    lab: ConversionLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_REQUIRE_SQSH", "true")
    with lab.sdk() as sdk:
        with pytest.raises(SubmissionRejectedError) as caught:
            lab.run(sdk, _PRIVATE)
        assert "401 Unauthorized" in str(caught.value)
        assert "~/.config/enroot/.credentials" in str(caught.value)
        assert "printf 'machine private.lab login %s password %s" in str(caught.value)

        sdk.install_registry_credentials(
            "private.lab", username=REGISTRY_USER, password=REGISTRY_PASSWORD
        )
        lab.run(sdk, _PRIVATE)


@pytest.mark.seed("002.2")
def test_a_password_is_shown_to_nobody(
    lab: ConversionLab,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    key = f"nvapi-{uuid.uuid4().hex}"
    monkeypatch.setenv("NGC_KEY", key)
    with lab.sdk() as sdk:
        # The program on the cluster holds the key, and waits for the older file.
        fifo = lab.block_enroot()
        installing = threading.Thread(target=sdk.install_registry_credentials)
        installing.start()
        eventually(lambda: str(fifo) in visible_command_lines())
        seen = visible_command_lines()
        fifo.write_text(
            "machine nvcr.io login $oauthtoken password older\n"
            "machine other.io login me\n  password kept\n"
        )
        installing.join(60)
        sdk.install_registry_credentials()
    assert "credentials" in seen
    assert key not in seen
    assert lab.credentials.read_text() == (
        "machine other.io login me\n  password kept\n"
        f"machine nvcr.io login $oauthtoken password {key}\n"
        f"machine authn.nvidia.com login $oauthtoken password {key}\n"
    )
    assert stat.S_IMODE(lab.credentials.stat().st_mode) == 0o600
    assert [path.name for path in lab.credentials.parent.iterdir()] == [".credentials"]
    assert key not in "".join(capfd.readouterr()) + caplog.text
    for name, data in lab.readable_artefacts():
        assert key.encode() not in data or name == str(lab.credentials), name


# ---------------------------------------------------------------------- an end


def test_files_that_nobody_uses_are_removed(lab: ConversionLab) -> None:
    """Lesson: nothing ever removed a converted image."""
    idle, _ = lab.offer_image("1")
    used, _ = lab.offer_image("2")
    together, _ = lab.offer_image("3")
    fresh, _ = lab.offer_image("4")
    with lab.sdk() as sdk:
        assert sdk.prune_images() == ((), 0)
        for image in (idle, fresh):
            lab.run(sdk, image)
        waiting = {"command": "true", "gpu_count": 0, "partition": "closed"}
        sdk.create_job(image=used, **waiting)
        sdk.create_jobs([{"image": together, **waiting}] * 2)
        for image in (idle, used, together):
            _age(lab.file_of(image))
        left = lab.cache / f"{lab.file_of(idle).name}.partial.4294967294"
        foreign = lab.cache / "of-somebody.sqsh"
        for path in (left, foreign):
            path.touch()
            shutil.chown(path, lab.slurm.user)
            _age(path)
        size = lab.file_of(idle).stat().st_size

        pruned = sdk.prune_images(keep_days=30)
        assert sorted(pruned.files) == sorted([str(lab.file_of(idle)), str(left)])
        assert pruned.freed_bytes == size
        for image in (used, together, fresh):
            assert lab.file_of(image).exists()
        assert foreign.exists()

        # What was submitted is used, though no job has read it yet.
        _age(lab.file_of(fresh))
        sdk.backend.images.forget()
        sdk.create_job(image=fresh, **waiting).cancel()
        assert sdk.prune_images(keep_days=30).files == ()
        eventually(lambda: sdk.prune_images(keep_days=0).files == (str(lab.file_of(fresh)),))
