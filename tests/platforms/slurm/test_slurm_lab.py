"""The lab keeps its promises: what other tests take for granted about the cluster is so."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.processes import wait_until
from lab.slurm import (
    LoginVariant,
    SlurmLab,
    SlurmVariant,
    cgroups,
    private_cluster,
    shared_cluster,
    slurm_lab,
    states,
)
from lab.slurm.login import BANNER, COMPLAINT, NOISE

_TESTS = Path(__file__).parents[2]
_BARE = SlurmVariant(accounting=False, pyxis=False, enroot=False, enforce_part_limits=False)


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    """A cluster for jobs that do badly."""
    with private_cluster() as cluster, slurm_lab(cluster) as lab:
        yield lab


def submit(lab: SlurmLab, script: str, *options: str) -> str:
    """Submit a script as the user; the job's id."""
    words = ("sbatch", "--parsable", "-o", f"{lab.shared}/%j.out", *options)
    return lab.run_as_user(*words, stdin=f"#!/bin/bash\n{script}\n").strip()


def running(lab: SlurmLab, *options: str) -> str:
    """A job that runs; its id."""
    job = submit(lab, "sleep 600", *options)
    states.wait_for_state(lab, job, "RUNNING")
    return job


def srun(lab: SlurmLab, options: str, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a node, over ssh; never waits for ever for one."""
    return lab.ssh(f"srun --immediate=60 {options} -- {command}")


def accounted(lab: SlurmLab, job: str, *states_of_attempts: str) -> bool:
    """Does the accounting, which lags, say so in the end?"""
    wait_until(
        lambda: states.accounted_states_of(lab, job) == list(states_of_attempts),
        f"accounting says {states.accounted_states_of(lab, job)}",
    )
    return True


class TestJobs:
    def test_a_job_submitted_over_ssh_runs_in_an_image_on_two_nodes(
        self, shared_slurm: SlurmLab
    ) -> None:
        lab = shared_slurm
        script = (
            "#!/bin/bash\n#SBATCH -N2 --ntasks-per-node=1 --gres=gpu:4\n"
            f"#SBATCH -o {lab.shared}/out\n"
            f"srun --container-image={lab.images['python']} --container-mounts={lab.shared}:/out "
            'sh -c \'python3 -c "import numpy" && echo node $SLURM_NODEID has '
            "$CUDA_VISIBLE_DEVICES && touch /out/made-by-$SLURM_NODEID'\n"
        )
        done = lab.ssh("sbatch --wait --parsable", stdin=script)
        assert done.returncode == 0, (lab.shared / "out").read_text()
        assert sorted((lab.shared / "out").read_text().splitlines()) == [
            "node 0 has 0,1,2,3",
            "node 1 has 0,1,2,3",
        ]
        made = lab.shared / "made-by-1"
        assert made.owner() == lab.user  # root inside only
        assert accounted(lab, done.stdout.strip(), "COMPLETED")

    def test_without_accounting_only_the_controller_knows(self) -> None:
        with shared_cluster(_BARE) as cluster, slurm_lab(cluster) as lab:
            job = submit(lab, "exit 7")
            states.wait_for_state(lab, job, "FAILED")
            done = lab.ssh(f"sacct -j {job}")
            assert (done.returncode, done.stdout) == (1, "")
            assert "accounting storage is disabled" in done.stderr

    def test_limits_of_partitions_refuse_a_job_or_let_it_wait(self, shared_slurm: SlurmLab) -> None:
        command = "sbatch --parsable -t 100:00:00 --wrap true"
        assert "time limit" in shared_slurm.ssh(command).stderr
        with shared_cluster(_BARE) as cluster, slurm_lab(cluster) as lab:
            job = lab.ssh(command).stdout.strip()
            wait_until(
                lambda: "PartitionTimeLimit" in lab.run_as_root("squeue", "-h", "-o", "%r"),
                "does not say why it waits",
            )
            assert states.state_of(lab, job) == "PENDING"

    def test_a_closed_partition_keeps_jobs_waiting(self, shared_slurm: SlurmLab) -> None:
        job = submit(shared_slurm, "true", "-p", "closed")
        wait_until(
            lambda: "PartitionDown" in shared_slurm.run_as_root("squeue", "-h", "-j", job, "-o%r"),
            "does not say why it waits",
        )

    def test_a_lab_takes_its_jobs_along(self, shared_slurm: SlurmLab) -> None:
        with slurm_lab(shared_slurm.cluster) as short_lived:
            job = running(short_lived)
        states.wait_for_state(shared_slurm, job, "CANCELLED")


class TestContainers:
    def test_a_container_sees_what_it_is_given_and_no_more(self, shared_slurm: SlurmLab) -> None:
        lab = shared_slurm
        (lab.shared / "data").write_text("of the host")
        options = f"--container-image={lab.images['busybox']} --container-workdir=/bin"
        mounts = f"--container-mounts={lab.shared}:/given:ro"
        seen = srun(lab, f"{options} {mounts}", "sh -c 'id -u; pwd; cat /given/data; ls /var'")
        assert seen.stdout == "0\n/bin\nof the hosttmp\n"
        refused = srun(lab, f"{options} {mounts}", "touch /given/more")
        assert "Read-only file system" in refused.stderr
        assert refused.returncode == 1

    def test_the_user_stays_oneself_when_asked(self, shared_slurm: SlurmLab) -> None:
        image = f"--container-image={shared_slurm.images['busybox']}"
        seen = srun(shared_slurm, f"{image} --no-container-remap-root", "id -un")
        assert seen.stdout.strip() == shared_slurm.user

    def test_variables_of_the_image_win_except_for_named_ones(self, shared_slurm: SlurmLab) -> None:
        lab = shared_slurm
        image = f"--container-image={lab.images['trainer']}"
        command = "sh -c 'echo $PYTHONPATH'"
        lab_variable = "PYTHONPATH=/mine"
        for options, expected in (
            (image, "/opt/tao"),
            (f"{image} --container-env=HOME,PYTHONPATH", "/mine"),
        ):
            done = lab.ssh(f"{lab_variable} srun --immediate=60 {options} -- {command}")
            assert done.stdout.strip() == expected, done.stderr

    def test_a_named_container_is_kept(self, shared_slurm: SlurmLab) -> None:
        name = f"--container-name={shared_slurm.shared.name}"
        missing = srun(shared_slurm, name, "true")
        assert "container does not exist" in missing.stderr
        assert missing.returncode == 1
        image = f"--container-image={shared_slurm.images['busybox']}"
        assert srun(shared_slurm, f"{name} {image}", "sh -c 'echo kept > /kept'").returncode == 0
        assert srun(shared_slurm, name, "cat /kept").stdout == "kept\n"

    @pytest.mark.parametrize(
        ("image", "complaint"),
        [
            ("registry.lab#lab/nothing:1", "404 Not Found"),
            ("private.lab#lab/busybox:1", "401 Unauthorized"),
            ("/no/such.sqsh", "No such file"),
            ("/etc/passwd", "Invalid image format"),
        ],
    )
    def test_an_image_that_cannot_be_had_fails_the_step(
        self, shared_slurm: SlurmLab, image: str, complaint: str
    ) -> None:
        done = srun(shared_slurm, f"--container-image={image}", "true")
        assert complaint in done.stderr
        assert done.returncode == 1

    def test_a_mount_that_is_not_there_fails_the_step(self, shared_slurm: SlurmLab) -> None:
        options = f"--container-image={shared_slurm.images['busybox']} --container-mounts=/no:/x"
        done = srun(shared_slurm, options, "true")
        assert "failed to mount: /no at /x" in done.stderr
        assert done.returncode == 1

    def test_a_cluster_can_be_without_containers(self) -> None:
        with shared_cluster(_BARE) as cluster, slurm_lab(cluster) as lab:
            assert "unrecognized option" in srun(lab, "--container-image=x", "true").stderr
            assert lab.ssh("command -v enroot").returncode == 1


class TestEnroot:
    def test_an_image_is_imported_once_to_a_file(self, shared_slurm: SlurmLab) -> None:
        command = "enroot import -o made.sqsh 'docker://registry.lab#lab/busybox:1'"
        assert shared_slurm.ssh(command).returncode == 0
        assert (shared_slurm.home / "made.sqsh").read_bytes()[:4] == b"hsqs"
        assert "File already exists" in shared_slurm.ssh(command).stderr

    def test_a_private_registry_wants_credentials(self, shared_slurm: SlurmLab) -> None:
        command = "enroot import -o made.sqsh 'docker://private.lab#lab/busybox:1'"
        refused = shared_slurm.ssh(command)
        assert "401 Unauthorized" in refused.stderr
        assert refused.returncode == 1
        shared_slurm.sign_in_to_private_registry()
        assert shared_slurm.ssh(command).returncode == 0

    def test_layers_of_a_docker_archive_lie_over_each_other(self, shared_slurm: SlurmLab) -> None:
        lab = shared_slurm
        place = lab.cluster.layout.registry / "archives.lab" / f"{lab.shared.name}:1.tar"
        place.parent.mkdir(exist_ok=True)
        _write_archive(place, {"kept": "1", "gone": "1"}, {".wh.gone": "", "added": "2"})
        assert (
            lab.ssh(f"enroot import -o x.sqsh 'docker://archives.lab#{place.stem}'").returncode == 0
        )
        listed = subprocess.run(
            ["unsquashfs", "-l", str(lab.home / "x.sqsh")],
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        assert {line.partition("/")[2] for line in listed.split()} == {"", "kept", "added"}


def _write_archive(place: Path, *layers: dict[str, str]) -> None:
    """What `docker save` writes, as far as it matters."""

    def packed(files: dict[str, bytes]) -> bytes:
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return held.getvalue()

    inner = {
        f"{number}/layer.tar": packed({name: text.encode() for name, text in layer.items()})
        for number, layer in enumerate(layers)
    }
    manifest = json.dumps([{"Layers": list(inner)}]).encode()
    place.write_bytes(packed({**inner, "manifest.json": manifest}))


class TestLogin:
    def test_noise_is_on_both_outputs_of_every_command(self, shared_slurm: SlurmLab) -> None:
        assert shared_slurm.ssh("echo quiet").stdout == "quiet\n"
        with slurm_lab(shared_slurm.cluster, LoginVariant(noise=True)) as noisy:
            done = noisy.ssh("echo answer")
        assert done.stdout == f"{NOISE}\nanswer\n"
        assert done.stderr == f"{BANNER}\n{COMPLAINT}\n"

    def test_a_stopped_host_is_gone_and_the_other_is_not(self, shared_slurm: SlurmLab) -> None:
        first, second = shared_slurm.hosts
        shared_slurm.stop_sshd(first)
        assert "Connection refused" in shared_slurm.ssh("true").stderr
        assert shared_slurm.ssh("true", host=second).returncode == 0
        shared_slurm.start_sshd(first)
        assert shared_slurm.ssh("true").returncode == 0

    def test_dropped_users_are_thrown_out_and_can_come_back(self, shared_slurm: SlurmLab) -> None:
        words = ["ssh", "-F", str(shared_slurm.ssh_config), shared_slurm.hosts[0]]
        with subprocess.Popen([*words, "echo in; sleep 600"], stdout=subprocess.PIPE) as inside:
            assert inside.stdout is not None
            assert inside.stdout.readline() == b"in\n"
            shared_slurm.drop_connections()
            assert inside.wait(timeout=60) == 255
        assert shared_slurm.ssh("true").returncode == 0

    def test_connections_and_commands_are_counted(
        self, shared_slurm: SlurmLab, tmp_path: Path
    ) -> None:
        lab = shared_slurm
        control = ["-o", "ControlMaster=auto", "-o", f"ControlPath={lab.login.folder}/control"]
        words = ["ssh", "-F", str(lab.ssh_config), *control, "-o", "ControlPersist=60", "login1"]
        for _ in range(3):
            subprocess.run([*words, "true"], check=True, timeout=60, stderr=subprocess.DEVNULL)
        subprocess.run([*words, "-O", "exit"], check=True, timeout=60, stderr=subprocess.DEVNULL)
        assert (lab.command_log.connections, lab.command_log.sessions) == (1, 3)

    def test_one_connection_has_ten_sessions_unless_the_host_allows_more(
        self, shared_slurm: SlurmLab
    ) -> None:
        def refusals(lab: SlurmLab) -> int:
            """How many of eleven sessions at once are refused on one connection."""
            control = f"{lab.login.folder}/control"
            words = ["ssh", "-F", str(lab.ssh_config), "-o", f"ControlPath={control}", "login1"]
            subprocess.run([*words[:-1], "-fNM", "login1"], check=True, timeout=60)
            opened = [
                subprocess.Popen(
                    [*words, "echo in; cat"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                for _ in range(11)
            ]
            for session in opened:
                assert session.stdout is not None
                assert session.stdout.readline() == b"in\n"
            told = [session.communicate(timeout=60)[1] for session in opened]
            return sum(b"Session open refused by peer" in text for text in told)

        assert refusals(shared_slurm) == 1
        with slurm_lab(shared_slurm.cluster, LoginVariant(max_sessions=100)) as roomy:
            assert refusals(roomy) == 0


class TestStates:
    """Every state that a job can have is made for real."""

    @pytest.mark.parametrize(("state", "script"), states.SCRIPTS.items())
    def test_by_a_script(self, lab: SlurmLab, state: str, script: str) -> None:
        job = submit(lab, script)
        states.wait_for_state(lab, job, state)
        assert accounted(lab, job, state)

    def test_out_of_memory(self, lab: SlurmLab) -> None:
        if not cgroups.available():
            pytest.skip("this machine has no control groups that Slurm could use")
        job = submit(lab, states.USE_TOO_MUCH_MEMORY, "--mem=20M")
        states.wait_for_state(lab, job, "OUT_OF_MEMORY")
        assert accounted(lab, job, "OUT_OF_MEMORY")

    @pytest.mark.parametrize(
        ("change", "state"),
        [
            (states.cancel, "CANCELLED"),
            (states.suspend, "SUSPENDED"),
            (states.time_out, "TIMEOUT"),
        ],
    )
    def test_by_the_administrator(
        self, lab: SlurmLab, change: Callable[[SlurmLab, str], None], state: str
    ) -> None:
        job = running(lab)
        change(lab, job)
        assert accounted(lab, job, state)

    def test_a_suspended_job_goes_on(self, lab: SlurmLab) -> None:
        job = running(lab)
        states.suspend(lab, job)
        states.unsuspend(lab, job)
        assert states.state_of(lab, job) == "RUNNING"

    def test_a_failing_node_ends_a_job(self, lab: SlurmLab) -> None:
        job = running(lab, "--no-requeue")
        node = states.fail_node(lab, job)
        assert accounted(lab, job, "NODE_FAIL")
        lab.resume(node)

    @pytest.mark.parametrize(
        ("change", "attempt"),
        [(states.requeue, "REQUEUED"), (states.fail_node, "NODE_FAIL")],
    )
    def test_a_requeued_job_runs_again(
        self, lab: SlurmLab, change: Callable[[SlurmLab, str], object], attempt: str
    ) -> None:
        job = running(lab, "--requeue")
        change(lab, job)
        lab.release_requeued(job)
        assert accounted(lab, job, attempt, "RUNNING")
        for node in lab.nodes:
            lab.resume(node)

    def test_a_preempted_job_runs_again(self, lab: SlurmLab) -> None:
        job = submit(lab, 'echo "start ${SLURM_RESTART_COUNT:-0}"; sleep 600')
        states.wait_for_state(lab, job, "RUNNING")
        winner = states.preempt(lab, job)
        states.cancel(lab, winner)
        lab.release_requeued(job)
        assert accounted(lab, job, "PREEMPTED", "RUNNING")
        out = lab.shared / f"{job}.out"
        wait_until(lambda: "start 1" in out.read_text(), "does not know that it runs again")


class TestDaemons:
    def test_a_stopped_controller_cannot_be_reached_and_comes_back(
        self, private_slurm: SlurmLab
    ) -> None:
        job = running(private_slurm)
        private_slurm.stop_controller()
        assert "Unable to contact slurm controller" in private_slurm.ssh("squeue").stderr
        private_slurm.start_controller()
        assert states.state_of(private_slurm, job) == "RUNNING"

    def test_jobs_outlive_the_daemon_of_their_node(self, private_slurm: SlurmLab) -> None:
        lab = private_slurm
        job = submit(lab, f"until [ -e {lab.shared}/go ]; do sleep 0.1; done")
        states.wait_for_state(lab, job, "RUNNING")
        node = states.node_of(lab, job)
        lab.kill_slurmd(node)
        lab.start_slurmd(node)
        (lab.shared / "go").touch()
        states.wait_for_state(lab, job, "COMPLETED")


class TestSharing:
    def test_a_cluster_ends_with_its_last_user(self) -> None:
        with shared_cluster(name="two-users") as first:
            running_at = first.folder
            with shared_cluster(name="two-users") as second:
                assert second.folder == running_at
            assert first.alive
        assert not running_at.exists()
        assert not _groups_of(first.nodes)

    def test_a_cluster_whose_user_was_killed_is_ended(self) -> None:
        program = (
            "import time\nfrom lab.slurm import *\n"
            "with private_cluster(SlurmVariant(accounting=False)) as cluster:\n"
            "    with slurm_lab(cluster) as lab:\n"
            "        lab.ssh('sbatch --wrap \"sleep 600\"')\n"
            "        print(cluster.folder, flush=True)\n"
            "        time.sleep(600)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program], cwd=_TESTS, stdout=subprocess.PIPE, text=True
        ) as user:
            assert user.stdout is not None
            folder = Path(user.stdout.readline().strip())
            assert folder.is_dir()
            user.kill()
        wait_until(lambda: not folder.exists(), "the cluster goes on")
        assert str(folder) not in Path("/proc/mounts").read_text()


def _groups_of(nodes: tuple[str, ...]) -> list[Path]:
    return [group for node in nodes for group in Path("/sys/fs/cgroup").glob(f"*/slurm_{node}")]
