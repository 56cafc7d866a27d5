"""The way to the login hosts: verified, shared, failing over, and honest about what it knows."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from slurm_lab import SlurmPlatformLab

from lab.slurm import LoginVariant
from tao_sdk.errors import (
    BackendUnreachableError,
    CredentialError,
    PlatformError,
    SubmissionRejectedError,
    SubmissionUncertainError,
)
from tao_sdk.platforms.conformance.crashes import check_exactly_once
from tao_sdk.platforms.slurm import SlurmSDK
from tao_sdk.platforms.slurm.client import Login, ssh_command


class TestConnections:
    @pytest.mark.seed("002.1")
    def test_one_connection_serves_every_process(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 600"))
        for _ in range(3):
            lab.run_python("import sys\nsdk.get_job_status(sys.argv[1])", job.id)
        assert lab.slurm.command_log.connections == 1
        assert lab.slurm.command_log.sessions >= 5

    def test_a_submission_is_two_round_trips_and_a_refresh_one(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        sdk.create_job(**lab.job("true"))
        assert list(sdk.backend.transport.calls) == ["probe", "submit"]
        before = lab.slurm.command_log.sessions
        jobs = [sdk.create_job(**lab.job("sleep 60")) for _ in range(3)]
        assert lab.slurm.command_log.sessions - before == 3, "what a cluster has is known by now"
        before = lab.slurm.command_log.sessions
        sdk.get_statuses([job.id for job in jobs])
        assert lab.slurm.command_log.sessions - before == 1

    @pytest.mark.parametrize("way_in", [LoginVariant(max_sessions=2)], indirect=True)
    def test_more_at_once_than_the_server_allows_per_connection(
        self, lab: SlurmPlatformLab
    ) -> None:
        sdk = lab.sdk()
        sdk.check_path("/")
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(sdk.check_path, ["/"] * 32))
        assert found == [True] * 32

    @pytest.mark.parametrize("way_in", [LoginVariant(noise=True)], indirect=True)
    def test_chatter_of_login_scripts_is_left_out(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo said by the job; exit 4"))
        assert job.wait(timeout=60).status == "Error"
        assert sdk.get_job_logs(job.id) == "said by the job\n"
        assert sdk.list_path(f"lustre://{lab.slurm.shared}") == sorted(
            path.name for path in lab.slurm.shared.iterdir()
        )

    def test_a_host_behind_another_one(
        self, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The user's own ssh configuration holds: here, a jump host."""
        inner, outer = lab.slurm.hosts
        config = lab.folder / "ssh_config"
        jump = f"Host {inner}\n  ProxyJump {outer}\n"
        config.write_text(jump + lab.slurm.ssh_config.read_text())
        monkeypatch.setenv("SLURM_SSH_CONFIG", str(config))
        monkeypatch.setenv("SLURM_HOSTNAME", inner)
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo over there"))
        assert job.wait(timeout=60).status == "Complete"
        assert sdk.get_job_logs(job.id) == "over there\n"
        jumped = lab.slurm.login.hosts[1].log.read_text()
        assert "Accepted publickey" in jumped

    def test_a_long_temporary_folder_is_no_place_for_sessions(
        self, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """A unix socket's path is short."""
        long = tmp_path / ("a" * 80)
        long.mkdir()
        monkeypatch.setenv("TMPDIR", str(long))
        monkeypatch.setattr(tempfile, "tempdir", None)
        assert lab.sdk().check_path("/")
        assert list(long.iterdir()) == []

    def test_a_login_that_says_permission_denied_was_reached(
        self, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Words of login scripts do not mean that nothing ran."""
        with (lab.slurm.home / ".bashrc").open("a") as file:
            file.write("echo \"mkdir: cannot create '/scratch': Permission denied\" >&2\n")
        monkeypatch.setenv("SLURM_HOSTNAME", lab.slurm.hosts[0])
        real = shutil.which("ssh")
        ssh = lab.folder / "bin" / "ssh"
        ssh.parent.mkdir()
        cut = lab.folder / "cut"
        # The program runs, and its answer is lost on the way.
        ssh.write_text(
            f'#!/bin/bash\nif [ -e {cut} ] && [[ "$*" == *head* ]]; then rm {cut}; '
            f'{real} "$@" >/dev/null; exit 255; fi\nexec {real} "$@"\n'
        )
        ssh.chmod(0o755)
        sdk = lab.sdk()
        plan = sdk.plan(**lab.counted_job("true"))
        cut.touch()
        monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
        job = sdk.submit(plan)
        assert job.wait(timeout=60).status == "Complete"
        assert lab.starts_of(job.id) == 1


class TestFailover:
    @pytest.mark.seed("002.1")
    def test_the_next_host_is_used_and_the_dead_one_remembered(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 60"))
        lab.slurm.stop_sshd(lab.slurm.hosts[0])
        assert sdk.get_job_status(job.id).status in ("Pending", "Running")
        log = lab.slurm.login.hosts[1].log
        assert log.read_text().count("Starting session") == 1
        # Another process asks the living host at once: no attempt at the dead one is needed.
        order = lab.run_python(
            "from tao_sdk.platforms.ssh_control import control_folder\n"
            "print(sdk.backend.transport.in_order(control_folder()))"
        )
        assert order.strip() == str(list(reversed(lab.slurm.hosts)))

    def test_no_host_at_all_changes_nothing_and_says_why(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 60"))
        lab.slurm.stop_sshd()
        status = sdk.get_job_status(job.id)
        assert status.status == "Pending"
        for host in lab.slurm.hosts:
            assert host in status.message
        with pytest.raises(SubmissionRejectedError, match="not reached"):
            sdk.create_job(**lab.job("true"))
        lab.slurm.start_sshd()
        assert sdk.get_job_status(job.id).status in ("Pending", "Running")


class TestTrust:
    def test_an_unknown_host_key_is_refused(self, lab: SlurmPlatformLab) -> None:
        lab.slurm.known_hosts.write_text("")
        with pytest.raises(BackendUnreachableError, match="host key is not known"):
            lab.sdk().create_job(**lab.job("true"))
        assert lab.slurm.known_hosts.read_text() == "", "never accepted silently"
        assert lab.slurm.command_log.sessions == 0

    def test_a_changed_host_key_is_refused(self, lab: SlurmPlatformLab, tmp_path: Path) -> None:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")],
            check=True,
        )
        kind, key, *_ = (tmp_path / "other.pub").read_text().split()
        lines = [line.split() for line in lab.slurm.known_hosts.read_text().splitlines()]
        lab.slurm.known_hosts.write_text("".join(f"{line[0]} {kind} {key}\n" for line in lines))
        with pytest.raises(BackendUnreachableError, match="has changed"):
            lab.sdk().check_path("/")

    @pytest.mark.seed("002.17")
    def test_a_refused_key_says_what_to_do(
        self, lab: SlurmPlatformLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tmp_path / "wrong"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True
        )
        lines = lab.slurm.ssh_config.read_text().splitlines(keepends=True)
        without_key = "".join(line for line in lines if "IdentityFile" not in line)
        lab.slurm.ssh_config.write_text(without_key)
        monkeypatch.setenv("SSH_KEY_PATH", str(other))
        with pytest.raises(BackendUnreachableError, match="SSH_KEY_PATH") as caught:
            lab.sdk().check_path("/")
        assert "BatchMode=yes" in str(caught.value)

    def test_the_modes_of_a_key_are_the_users_own_affair(self, lab: SlurmPlatformLab) -> None:
        """Lesson 6.3: a private key's mode is not changed behind its owner's back."""
        lab.slurm.key.chmod(0o644)
        with pytest.raises(BackendUnreachableError, match="chmod 600"):
            lab.sdk().check_path("/")
        assert lab.slurm.key.stat().st_mode & 0o777 == 0o644

    @pytest.mark.seed("002.3")
    def test_missing_names_are_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Lesson F14: making an SDK asks for nothing; its first use names what is missing."""
        for name in ("SLURM_USER", "SLURM_HOSTNAME", "SSH_USER", "SSH_HOST"):
            monkeypatch.delenv(name, raising=False)
        sdk = SlurmSDK(state_file=tmp_path / "state.json")
        with pytest.raises(CredentialError, match="SLURM_USER and SLURM_HOSTNAME"):
            sdk.check_path("/")

    def test_reuse_only_never_opens_a_connection(
        self, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        config = tmp_path / "ssh_config"
        control = tmp_path / "by-hand"
        config.write_text(f"ControlPath {control}-%h\n{lab.slurm.ssh_config.read_text()}")
        monkeypatch.setenv("SLURM_SSH_CONFIG", str(config))
        monkeypatch.setenv("SLURM_SSH_REUSE_ONLY", "true")
        with pytest.raises(BackendUnreachableError, match="log in by hand"):
            lab.sdk().check_path("/")
        assert lab.slurm.command_log.connections == 0
        host = lab.slurm.hosts[0]
        base = ["ssh", "-F", str(config), "-o", "BatchMode=yes"]
        subprocess.run([*base, "-fNM", "-l", lab.slurm.user, host], check=True, timeout=60)
        try:
            assert lab.sdk().check_path("/")
            assert lab.slurm.command_log.connections == 1
        finally:
            subprocess.run([*base, "-O", "exit", host], check=True, timeout=60)


class TestCommandLine:
    def test_hosts_are_verified_and_nothing_is_asked(self) -> None:
        """Lesson 6.3: host keys are verified before any secret travels."""
        words = ssh_command(Login("me", ("login",), key="/k", config="/c"), "login:2222", "/tmp/x")
        text = " ".join(words)
        for option in ("StrictHostKeyChecking=yes", "BatchMode=yes", "ForwardAgent=no"):
            assert option in text
        assert "UserKnownHostsFile" not in text
        assert words[-4:] == ["-l", "me", "--", "login"]
        assert ("-p", "2222") in itertools.pairwise(words)


class TestCuts:
    """The connection is lost at a moment of a submission: never two jobs, never a lost one."""

    def test_at_random_moments(self, lab: SlurmPlatformLab) -> None:
        cut_at_random(lab, times=10, seed=10)

    @pytest.mark.soak
    def test_at_many_random_moments(self, lab: SlurmPlatformLab) -> None:
        print(cut_at_random(lab, times=100, seed=100))


def cut_at_random(lab: SlurmPlatformLab, *, times: int, seed: int) -> dict[str, int]:
    """Lose the connection while jobs are submitted; afterwards everything must add up."""
    moments = random.Random(seed)
    sdk = lab.sdk()
    sdk.create_job(**lab.counted_job("true"))  # the connection stands
    began = time.monotonic()
    sdk.create_job(**lab.counted_job("true"))
    longest = (time.monotonic() - began) * 1.2
    counts = {"submitted": 0, "refused": 0, "uncertain": 0}
    with ThreadPoolExecutor(1) as pool:
        for number in range(times):
            cut = lab.slurm.drop_connections if number % 2 else _outage(lab)
            delay = moments.uniform(0, longest)
            cutting = pool.submit(_after, delay, cut)
            counts[_submit(lab, sdk)] += 1
            cutting.result(timeout=60)
    check_exactly_once(lab)
    return counts


def _after(delay: float, cut: Callable[[], None]) -> None:
    time.sleep(delay)  # the fault to inject, not a wait
    cut()


def _submit(lab: SlurmPlatformLab, sdk: SlurmSDK) -> str:
    try:
        sdk.create_job(**lab.counted_job("true"))
    except SubmissionUncertainError:
        return "uncertain"
    except PlatformError:
        return "refused"
    return "submitted"


def _outage(lab: SlurmPlatformLab) -> Callable[[], None]:
    """The login hosts go away and come back."""

    def cut() -> None:
        lab.slurm.stop_sshd()
        lab.slurm.start_sshd()

    return cut
