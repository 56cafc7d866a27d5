"""Preflight of a real SLURM cluster, over ssh through two login hosts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from launches import (
    Broken,
    Launch,
    assert_names_it,
    assert_passes,
    broken,
    isolate,
    names_in,
    write_data,
)

from lab.slurm import SlurmLab
from lab.sshd import make_key


class SlurmLaunch(Launch):
    """Data in a shared folder of the cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, slurm: SlurmLab) -> None:
        self.slurm = slurm
        self.data = slurm.shared / "data"
        write_data(self.data)
        super().__init__(
            monkeypatch,
            folder,
            platform="slurm",
            paths={
                "train_annotation": f"lustre://{self.data}/coco.json",
                "val_annotation": str(self.data / "eval.jsonl"),
                "train_media": str(self.data / "media"),
            },
            required_fields={"train_annotation": ("bbox",), "val_annotation": ("video_fps",)},
            effective_batch={"train_annotation": (4, 8)},
            model_credentials=("HF_TOKEN",),
        )


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_slurm: SlurmLab) -> SlurmLaunch:
    isolate(monkeypatch, tmp_path)
    for name, value in shared_slurm.environment().items():
        monkeypatch.setenv(name, value)
    return SlurmLaunch(monkeypatch, tmp_path, shared_slurm)


@pytest.mark.seed("001.10")
def test_all_is_well(launch: SlurmLaunch) -> None:
    found = assert_passes(launch.run())
    assert found["ssh"].message == f"{launch.slurm.user}@login1 answers"
    assert found["slurm"].message.startswith("Slurm ")
    assert found["wall_time"].message == "SLURM_TIME_HOURS=4, SLURM_TIMEOUT_HOURS=3.8"
    assert found["partition"].message == "batch (4 h)"
    assert re.fullmatch(r"batch \d GPUs \(h100\) a node", found["gpu.count"].message)
    assert "records=40" in found["path:train_annotation"].message
    assert found["fields:train_annotation"].message == "bbox in 20 of 40 records"
    assert found["fields:val_annotation"].message == "video_fps in 12 of 12 records"
    assert found["path:train_media"].message.endswith("media: a folder")


def test_one_round_trip_and_nothing_remains(launch: SlurmLaunch) -> None:
    assert_passes(launch.run())  # now the connection is warm
    log, slurm = launch.slurm.command_log, launch.slurm
    before = log.sessions, log.connections
    there = names_in(slurm.shared), names_in(slurm.home), names_in(launch.folder)
    found = assert_passes(launch.run())
    assert (log.sessions - before[0], log.connections - before[1]) == (1, 0)
    assert found["ssh"].details["round_trips"] == 1
    assert (names_in(slurm.shared), names_in(slurm.home), names_in(launch.folder)) == there
    assert (
        slurm.run_as_root("squeue", "-h", "-u", slurm.user, "-o", "%Z").count(str(slurm.home)) == 0
    )


@pytest.mark.seed("001.10")
def test_a_dead_login_host_is_passed_over(launch: SlurmLaunch) -> None:
    launch.slurm.stop_sshd("login1")
    found = assert_passes(launch.run())
    assert found["ssh"].status == "warning"
    assert f"{launch.slurm.user}@login2 answers; not so login1: " in found["ssh"].message


def test_wall_time_of_other_partitions_is_up_to_the_cluster(launch: SlurmLaunch) -> None:
    launch.set("SLURM_TIME_HOURS", "12")
    launch.set("SLURM_PARTITION", "mine")
    launch.ask(skip_platform_access=True)
    found = assert_passes(launch.run())
    assert found["wall_time"].status == "warning"
    assert found["ssh"].status == "skipped"
    assert found["path:train_media"].status == "skipped"


def test_a_path_that_no_container_sees_is_told(launch: SlurmLaunch) -> None:
    launch.set("SLURM_CONTAINER_MOUNTS", "/lustre")
    found = assert_passes(launch.run())
    assert found["mount:train_media"].status == "warning"
    assert "SLURM_CONTAINER_MOUNTS=/lustre," in found["mount:train_media"].remedy


def _no_ssh_key(launch: SlurmLaunch) -> None:
    launch.set("SSH_KEY_PATH", None)
    launch.set("SSH_AUTH_SOCK", None)


def _another_key(launch: SlurmLaunch) -> None:
    make_key(launch.folder / "other")
    config = launch.slurm.ssh_config.read_text().replace(
        f"IdentityFile {launch.slurm.key}", f"IdentityFile {launch.folder / 'other'}"
    )
    (launch.folder / "ssh_config").write_text(config)
    launch.set("SLURM_SSH_CONFIG", str(launch.folder / "ssh_config"))
    launch.set("SSH_KEY_PATH", str(launch.folder / "other"))


def _another_host_key(launch: SlurmLaunch) -> None:
    # By a configuration of its own: the session that is already open would be used.
    config = launch.slurm.ssh_config.read_text().replace(
        str(launch.slurm.known_hosts), str(launch.folder / "known_hosts")
    )
    (launch.folder / "ssh_config").write_text(config)
    (launch.folder / "known_hosts").write_text("")
    launch.set("SLURM_SSH_CONFIG", str(launch.folder / "ssh_config"))


def _hide(launch: SlurmLaunch) -> None:
    hidden = launch.data / "hidden"
    hidden.mkdir(mode=0o700)  # of root
    (hidden / "media").mkdir()
    launch.path("train_media", hidden / "media")


def _write(name: str, text: str) -> Callable[[SlurmLaunch], None]:
    def change(launch: SlurmLaunch) -> None:
        (launch.data / name).write_text(text)

    return change


def _set(name: str, value: str | None) -> Callable[[Launch], None]:
    return lambda launch: launch.set(name, value)


def _read_only(launch: SlurmLaunch) -> None:
    folder = launch.slurm.shared / "of-root"
    folder.mkdir(mode=0o755)
    launch.set("SLURM_BASE_RESULTS_DIR", str(folder))


def _too_long(launch: SlurmLaunch) -> None:
    launch.set("SLURM_TIME_HOURS", "12")
    launch.set("SLURM_PARTITION", "polar,grizzly")
    launch.ask(skip_platform_access=True)


@pytest.mark.seed("001.9", "001.10")
@broken(
    Broken("no partition named", _set("SLURM_PARTITION", None), "credentials", "SLURM_PARTITION: "),
    Broken("no key", _no_ssh_key, "credentials", "not set: SSH_KEY_PATH"),
    Broken("key file gone", _set("SSH_KEY_PATH", "/no/key"), "ssh.key", "/no/key"),
    Broken("key not authorised", _another_key, "ssh", "it refuses the login of"),
    Broken("host key not known", _another_host_key, "ssh", "host key is not known"),
    Broken("all login hosts down", lambda it: it.slurm.stop_sshd(), "ssh", "ssh-copy-id"),
    Broken("no such host", _set("SLURM_HOSTNAME", "nowhere.invalid"), "ssh", "no such host"),
    Broken("bad results folder", _set("SLURM_BASE_RESULTS_DIR", "x"), "settings", "absolute"),
    Broken("results not writable", _read_only, "results", "cannot be made or written"),
    Broken("no such partition", _set("SLURM_PARTITION", "nope"), "partition", "no partition nope"),
    Broken("partition closed", _set("SLURM_PARTITION", "closed"), "partition", "takes no jobs"),
    Broken("over the cluster's limit", _set("SLURM_TIME_HOURS", "5"), "partition", "batch 4 h"),
    Broken(
        "more nodes than there are",
        lambda it: it.ask(num_nodes=4096),
        "nodes",
        "nodes needed: 4096; a job gets at most: batch ",
    ),
    Broken("over the bank's limit", _too_long, "wall_time", "allow 4 hours at most"),
    Broken("timeout too late", _set("SLURM_TIMEOUT_HOURS", "4"), "wall_time", "below 4"),
    Broken(
        "media missing",
        lambda it: it.path("train_media", it.data / "nothing"),
        "path:train_media",
        "is not there, seen from the login host",
    ),
    Broken("media not readable", _hide, "path:train_media", "may not be read"),
    Broken(
        "relative path",
        lambda it: it.path("train_media", "data/media"),
        "path:train_media",
        "not an absolute path",
    ),
    Broken(
        "store that cannot be read",
        lambda it: it.path("other", "gs://bucket/x"),
        "path:other",
        "gs:// can be neither staged nor looked at",
    ),
    Broken(
        "field missing",
        _write("coco.json", '{"annotations": [{"bbox": []}, {"id": 2}]}'),
        "fields:train_annotation",
        "1 of 2 records lack a field: record 2 has no bbox",
    ),
    Broken(
        "annotations broken off",
        _write("coco.json", '{"annotations": [{"bbox": []'),
        "fields:train_annotation",
        "neither JSON nor JSON Lines",
    ),
    Broken(
        "a broken line",
        _write("eval.jsonl", '{"video_fps": 1}\n{"video_fps"\n'),
        "fields:val_annotation",
        "line 2",
    ),
    Broken(
        "no records",
        _write("eval.jsonl", "[]"),
        "fields:val_annotation",
        "has no records",
    ),
    Broken(
        "batch larger than a shard",
        lambda it: it.ask(effective_batch={"train_annotation": (6, 8)}),
        "batch:train_annotation",
        "40 records in 8 shards are 5 each, a batch is 6",
    ),
    Broken("model's token not set", _set("HF_TOKEN", None), "model_credentials", "HF_TOKEN"),
    Broken(
        "not an image",
        lambda it: it.ask(container_image="what is this"),
        "image",
        "what is this",
    ),
)
def test_the_one_thing_broken_is_named(launch: SlurmLaunch, variant: Broken) -> None:
    if variant.check.startswith(("fields", "batch")):
        # Otherwise a file with few records would be too small for the batch, too.
        keep = variant.check.startswith("batch")
        launch.ask(effective_batch=launch.asked["effective_batch"] if keep else {})
    assert_names_it(launch, variant)


@pytest.mark.seed("001.10")
def test_the_way_to_a_login_without_a_password_is_shown_in_order(launch: SlurmLaunch) -> None:
    launch.set("SLURM_HOSTNAME", "login.nowhere.invalid")
    [found] = launch.run().failures
    user = launch.slurm.user
    steps = [
        "SSH_KEY_PATH=/path/to/private_key",
        'ssh-keygen -t ed25519 -N "" -f ~/.ssh/id_ed25519',
        f"ssh-copy-id -i ~/.ssh/id_ed25519.pub {user}@login.nowhere.invalid",
        "ssh-keyscan -H login.nowhere.invalid >> ~/.ssh/known_hosts",
        "chmod 600 ~/.ssh/id_ed25519",
        f"ssh -o BatchMode=yes -i ~/.ssh/id_ed25519 {user}@login.nowhere.invalid 'hostname'",
        "SSH_KEY_PATH=~/.ssh/id_ed25519",
    ]
    places = [found.remedy.index(step) for step in steps]
    assert places == sorted(places)


def test_a_controller_that_is_away_is_told_beside_the_data(
    launch: SlurmLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by stopping it, which other tests would notice: scontrol of this user fails."""
    tools = launch.slurm.home / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    (tools / "scontrol").chmod(0o755)
    profile = launch.slurm.home / ".bashrc"
    profile.write_text(f"{profile.read_text()}\nPATH={tools}:$PATH\n")
    for path in (tools, tools / "scontrol"):
        shutil.chown(path, launch.slurm.user)
    report = launch.run()
    assert [check.name for check in report.failures] == ["slurm"]
    assert "does not answer" in report.failures[0].message
    assert {c.name: c.status for c in report.checks}["path:train_media"] == "passed"


def test_names_with_anything_in_them(launch: SlurmLaunch) -> None:
    odd = launch.data / 'it\'s "here" $(touch pwned); é'
    odd.mkdir()
    launch.path("odd", odd)
    found = assert_passes(launch.run())
    assert found["path:odd"].message.endswith("a folder")
    assert not any("pwned" in name for name in names_in(launch.slurm.home))
