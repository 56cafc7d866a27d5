"""From a request to the files of a job: pure, and word for word."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.errors import CredentialError, UnknownOptionError, ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.backend import JobIdentity
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.request import JobRequest, build_request
from tao_sdk.platforms.slurm import cluster_settings as clusters
from tao_sdk.platforms.slurm import plan as planning
from tao_sdk.platforms.slurm.options import PROTECTED, SlurmOptions
from tao_sdk.platforms.slurm.probe import Facts, choose_runtime, minutes, parse_facts
from tao_sdk.platforms.slurm.resources import check_wall_time, resources_of

IDENTITY = JobIdentity("0f5e7a0e-1111-4222-8333-444455556666", "a" * 32)
FACTS = Facts(
    version="22.05.8",
    name="lab",
    pyxis=True,
    programs=frozenset({"sbatch", "enroot"}),
    accounting=True,
    partitions={"batch": 2880, "polar": None, "polar3": None, "short": 30},
    base_writable=True,
    mounts=frozenset({"/lustre", "/scratch"}),
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> clusters.ClusterSettings:
    for name in ("SLURM_ACCOUNT", "SLURM_TIME_HOURS", "SLURM_TIMEOUT_HOURS", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_USER", "ada")
    monkeypatch.setenv("SLURM_HOSTNAME", "login1, login2:2222")
    monkeypatch.setenv("SLURM_BASE_RESULTS_DIR", "/lustre/users/ada")
    monkeypatch.setenv("SLURM_PARTITION", "batch")
    monkeypatch.delenv("SSH_KEY_PATH", raising=False)
    monkeypatch.delenv("SLURM_SSH_CONFIG", raising=False)
    return clusters.from_environment()


def ask(command: str = "train", image: str = "", gpu_count: int = 1, **keywords: Any) -> JobRequest:
    env = keywords.pop("env_vars", None)
    return build_request(
        SlurmOptions,
        image=image,
        command=command,
        gpu_count=gpu_count,
        env_vars=env,
        keywords=keywords,
        platform="slurm",
    )


def staged(
    cluster: clusters.ClusterSettings, request: JobRequest, facts: Facts = FACTS
) -> planning.Staged:
    return planning.stage(request, IDENTITY, cluster, facts, "/lustre/users/ada/sqsh")


def script(found: planning.Staged) -> str:
    return found.files[found.job_folder.sbatch]


class TestCluster:
    @pytest.mark.seed("002.1", "002.3")
    def test_names_and_defaults(self, cluster: clusters.ClusterSettings) -> None:
        assert cluster.login.hosts == ("login1", "login2:2222")
        assert (cluster.time_hours, cluster.cpus_per_task, cluster.max_gpus_per_node) == (4, 16, 8)
        assert cluster.mounts == (Mount("/lustre", "/lustre"),)
        assert cluster.requeue

    def test_default_base_names_the_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSH_USER", "bob")
        monkeypatch.setenv("SSH_HOST", "gate")
        for name in ("SLURM_USER", "SLURM_HOSTNAME", "SLURM_BASE_RESULTS_DIR"):
            monkeypatch.delenv(name, raising=False)
        found = clusters.from_environment()
        assert found.base == "/lustre/fsw/portfolios/edgeai/users/bob"
        assert found.login.hosts == ("gate",)
        assert found.partition == "polar,polar3,polar4,grizzly"

    @pytest.mark.seed("002.3", "002.10")
    def test_packaged_partitions_are_data_and_the_same_with_any_bank(
        self, monkeypatch: pytest.MonkeyPatch, cluster: clusters.ClusterSettings, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("SLURM_PARTITION")
        monkeypatch.setenv("TAO_SKILL_BANK_PATH", str(tmp_path / "another"))
        assert clusters.from_environment().partition == "polar,polar3,polar4,grizzly"
        with pytest.raises(ValidationError, match="grants \\(4 h\\)"):
            check_wall_time("grizzly", 241, {"grizzly": 2880})
        code = Path(clusters.__file__).parents[2]
        programs = [path for path in code.rglob("*") if path.suffix in (".py", ".sh")]
        ours = [path for path in programs if "bank" not in path.relative_to(code).parts]
        assert len(ours) > 100
        assert [path for path in ours if re.search("grizzly|polar", path.read_text())] == []

    def test_without_packaged_data_the_cluster_chooses(
        self, monkeypatch: pytest.MonkeyPatch, cluster: clusters.ClusterSettings, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("SLURM_PARTITION")
        monkeypatch.setattr(clusters.resources, "files", lambda _package: tmp_path)
        clusters.packaged_defaults.cache_clear()
        try:
            found = staged(clusters.from_environment(), ask(time_hours=12))
        finally:
            clusters.packaged_defaults.cache_clear()
        assert not [line for line in found.directives if line.startswith("--partition")]

    @pytest.mark.parametrize("text", ["/", "relative", "/a/../b", "/with space", "/a\nb", "/%x"])
    def test_impossible_bases(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        with pytest.raises(ValidationError, match="SLURM_BASE_RESULTS_DIR"):
            clusters.check_base(text)

    @pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;b", "$(x)"])
    def test_hosts_are_hosts(
        self, monkeypatch: pytest.MonkeyPatch, cluster: clusters.ClusterSettings, host: str
    ) -> None:
        monkeypatch.setenv("SLURM_HOSTNAME", host)
        with pytest.raises(ValidationError, match="SLURM_HOSTNAME"):
            clusters.from_environment()

    def test_a_key_that_is_not_there(
        self, monkeypatch: pytest.MonkeyPatch, cluster: clusters.ClusterSettings
    ) -> None:
        monkeypatch.setenv("SSH_KEY_PATH", "/no/such/key")
        with pytest.raises(CredentialError, match="SSH_KEY_PATH"):
            clusters.from_environment()


class TestShape:
    @pytest.mark.parametrize(
        ("gpus", "nodes", "expected"),
        [
            (0, 1, (1, 0, 16, False)),
            (1, 1, (1, 1, 16, False)),
            (4, 1, (1, 4, 64, False)),
            (8, 1, (1, 8, 128, True)),
            (-1, 1, (1, 8, 128, True)),
            (20, 1, (3, 8, 16, True)),
            (2, 3, (3, 2, 16, False)),
            (8, 2, (2, 8, 16, True)),
        ],
    )
    @pytest.mark.seed("002.10", "002.11")
    def test_nodes_gpus_processors(
        self,
        cluster: clusters.ClusterSettings,
        gpus: int,
        nodes: int,
        expected: tuple[int, int, int, bool],
    ) -> None:
        """Lesson W5: 0 is no GPU, -1 all of a node."""
        resources = resources_of(ask(gpu_count=gpus, num_nodes=nodes), cluster)
        found = (
            resources.nodes,
            resources.gpus_per_node,
            resources.cpus_per_task,
            resources.exclusive,
        )
        assert found == expected

    def test_more_than_a_node_has_on_several_nodes(self, cluster: clusters.ClusterSettings) -> None:
        with pytest.raises(ValidationError, match="gpu_count: 9 with num_nodes=2"):
            resources_of(ask(gpu_count=9, num_nodes=2), cluster)

    @pytest.mark.seed("002.10")
    def test_the_warning_comes_before_the_wall_time(
        self, cluster: clusters.ClusterSettings
    ) -> None:
        resources = resources_of(ask(), cluster)
        assert (resources.time_minutes, resources.warn_seconds) == (240, 720)
        short = resources_of(ask(time_hours=0.2), cluster)
        assert (short.time_minutes, short.warn_seconds) == (12, 360)
        chosen = cluster._replace(timeout_hours=3.5)
        assert resources_of(ask(), chosen).warn_seconds == 1800
        assert resources_of(ask(), cluster._replace(warn_before_limit=False)).warn_seconds == 0

    @pytest.mark.seed("002.10")
    def test_wall_times_over_the_limit_are_refused(self) -> None:
        known: dict[str, int | None] = {"polar": None, "short": 30, "long": 600}
        with pytest.raises(ValidationError, match="more than partition polar grants"):
            check_wall_time("polar", 241, known)
        check_wall_time("polar", 240, known)
        with pytest.raises(ValidationError, match=r"0\.5 h"):
            check_wall_time("short", 31, known)
        check_wall_time("short,long", 600, known)
        with pytest.raises(ValidationError, match="this cluster has no nowhere"):
            check_wall_time("nowhere", 10, known)


class TestDirectives:
    @pytest.mark.seed("002.8")
    def test_all_of_them_in_order(self, cluster: clusters.ClusterSettings) -> None:
        request = ask(
            gpu_count=8,
            num_nodes=2,
            account="acct",
            qos="high",
            constraint="a100&ib",
            reservation="res",
            nodelist="n[1-4]",
            exclude="n9",
            dependency="afterok:12",
            memory="64G",
            mail_user="ada@example.org",
            sbatch_extra=["--switches=1", "#SBATCH --spread-job"],
        )
        lines = [line.split("=")[0] for line in staged(cluster, request).directives]
        assert lines == [
            *("--nodes", "--ntasks-per-node", "--gres", "--ntasks", "--cpus-per-task"),
            *("--wait-all-nodes", "--mem", "--exclusive", "--time", "--job-name", "--account"),
            *("--partition", "--qos", "--constraint", "--reservation", "--nodelist", "--exclude"),
            *("--dependency", "--output", "--error", "--open-mode", "--chdir", "--mail-type"),
            *("--mail-user", "--requeue", "--signal", "--switches", "--spread-job"),
        ]

    def test_the_account_of_the_caller_is_used(self, cluster: clusters.ClusterSettings) -> None:
        """Lesson W4: the keyword, else the environment, else the site's own default."""
        assert "--account=mine" in staged(cluster, ask(account="mine")).directives
        site = cluster._replace(account="theirs")
        assert "--account=theirs" in staged(site, ask()).directives
        assert not any("--account" in line for line in staged(cluster, ask()).directives)

    @pytest.mark.seed("002.4")
    def test_backend_details(self, cluster: clusters.ClusterSettings) -> None:
        details = {"backend_type": "slurm", "partition": "short", "cluster_name": "lab"}
        request = ask(backend_details=details, time_hours=0.4)
        assert "--partition=short" in staged(cluster, request).directives
        with pytest.raises(ValidationError, match="slurm_metadata is written by the SDK"):
            ask(backend_details={"slurm_metadata": {"slurm_job_id": 1}})
        with pytest.raises(ValidationError, match="cluster_name"):
            staged(cluster, ask(backend_details={"cluster_name": "other"}))
        with pytest.raises(ValidationError, match="backend_type"):
            ask(backend_details={"backend_type": "docker"})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("partition", "a b"),
            ("account", "x\n#SBATCH --uid=0"),
            ("qos", "$(id)"),
            ("nodelist", "`id`"),
            ("mail_user", "me; rm"),
            ("exclude", ""),
            ("sbatch_extra", ["--wrap=evil"]),
            ("sbatch_extra", ["--output=/x"]),
            ("sbatch_extra", ["--switches=1 --array=0-9"]),
            ("sbatch_extra", ["--job-nam=mine"]),
            ("sbatch_extra", ["--test-only"]),
            ("sbatch_extra", ["--switches=1\n#SBATCH --uid=0"]),
            ("sbatch_extra", ["rm -rf"]),
            ("memory", "1; x"),
        ],
    )
    def test_values_cannot_become_other_directives(self, name: str, value: Any) -> None:
        """Lesson 6.3: nothing of the caller's is pasted into a script."""
        with pytest.raises(ValidationError, match=name):
            ask(**{name: value})

    def test_everything_that_we_set_is_protected(self, cluster: clusters.ClusterSettings) -> None:
        ours = {line.split("=")[0].removeprefix("--") for line in staged(cluster, ask()).directives}
        assert ours <= PROTECTED

    def test_unknown_keywords(self) -> None:
        with pytest.raises(UnknownOptionError, match="did you mean 'partition'"):
            ask(partitions="a")


class TestScripts:
    def test_they_are_valid_shell(self, cluster: clusters.ClusterSettings, tmp_path: Path) -> None:
        request = ask("echo 'a b'", image="nvcr.io/x/y:1", num_nodes=2, env_vars={"A": "it's $x"})
        found = staged(cluster, request)
        for name, text in {**found.files, **found.secret}.items():
            if name.endswith((".sh", ".sbatch")):
                path = tmp_path / "script"
                path.write_text(text)
                subprocess.run(["bash", "-n", str(path)], check=True)

    def test_values_arrive_as_they_are(self, cluster: clusters.ClusterSettings) -> None:
        value = 'it\'s "$HOME" `id`\nsecond line'
        found = staged(cluster, ask(env_vars={"ODD": value}))
        [text] = found.secret.values()
        said = subprocess.run(
            ["bash", "-c", f'{text}\nprintf %s "$ODD"'], capture_output=True, text=True, check=True
        )
        assert said.stdout == value

    @pytest.mark.seed("002.6")
    def test_what_is_shown_holds_no_secret(
        self, cluster: clusters.ClusterSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Lessons E4, E5: secrets are in one private file and nowhere twice."""
        monkeypatch.setenv("HF_TOKEN", "canary-token-1")
        monkeypatch.setenv("SECRET_KEY", "canary-secret-2")
        found = staged(cluster, ask(env_vars={"PLAIN": "canary-plain-3"}, specs={"a": 1}))
        shown = "".join(found.files.values()) + "".join(a.text for a in planning.artefacts(found))
        assert "canary" not in shown + repr(found)
        [(name, text)] = found.secret.items()
        assert name.startswith("env/")
        for canary in ("canary-token-1", "canary-secret-2", "canary-plain-3"):
            assert text.count(canary) == 1
        assert "TAO_RESULTS_ROOT=$2 TAO_API_RESULTS_DIR=$2" in script(found)
        assert "results_root=/lustre/users/ada/results" in script(found)

    @pytest.mark.seed("002.8")
    def test_staged_files_and_their_modes(self, cluster: clusters.ClusterSettings) -> None:
        found = staged(cluster, ask(specs={"train": {"epochs": 3}}))
        with tarfile.open(fileobj=io.BytesIO(found.archive())) as archive:
            modes = {member.name: member.mode for member in archive}
            specs = archive.extractfile(found.job_folder.specs)
            assert specs is not None
            assert json.loads(specs.read()) == {"train": {"epochs": 3}}
        assert {"specs", "env", "meta", "sbatch", "entrypoints", "claims"} <= set(modes)
        for name, mode in modes.items():
            assert mode == (0o600 if "/" in name else 0o700), name

    @pytest.mark.seed("002.8")
    def test_containers_by_pyxis(self, cluster: clusters.ClusterSettings) -> None:
        request = ask(image="nvcr.io/nvidia/tao:5", mounts=["/data:/data:ro", "lustre:///more"])
        text = script(staged(cluster, request))
        assert "image=/lustre/users/ada/sqsh/nvcr.io_nvidia_tao_5-" in text
        assert "image=nvcr.io#nvidia/tao:5'" in text or "image='nvcr.io#nvidia/tao:5'" in text
        mounts = re.search(r"--container-mounts=(\S+)", text)
        assert mounts is not None
        assert mounts[1].strip("'") == "/lustre:/lustre,/data:/data:ro,/more:/more"
        assert '--container-image="$3"' in text

    def test_our_own_folder_is_always_seen(self, cluster: clusters.ClusterSettings) -> None:
        """Lesson 6.2: mounts are added to the site's, and hide nothing of ours."""
        elsewhere = cluster._replace(mounts=(Mount("/scratch", "/scratch"),))
        text = script(staged(elsewhere, ask(image="/images/a.sqsh")))
        assert "/scratch:/scratch,/lustre/users/ada:/lustre/users/ada" in text

    def test_site_mounts_are_there_or_left_out(
        self, cluster: clusters.ClusterSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without = FACTS._replace(mounts=frozenset())
        text = script(staged(cluster, ask(image="/images/a.sqsh"), without))
        assert "--container-mounts=/lustre/users/ada:/lustre/users/ada " in text
        monkeypatch.setenv("SLURM_CONTAINER_MOUNTS", "/lustre")
        with pytest.raises(ValidationError, match="SLURM_CONTAINER_MOUNTS: /lustre is not there"):
            staged(cluster, ask(image="/images/a.sqsh"), without)

    def test_where_the_command_starts(self, cluster: clusters.ClusterSettings) -> None:
        chosen = staged(cluster, ask(image="/images/a.sqsh", container_workdir="/work dir"))
        assert "cd '/work dir' || exit 1" in chosen.files[chosen.job_folder.task]
        assert "\ncd " not in staged(cluster, ask(image="/i.sqsh")).files[chosen.job_folder.task]
        bare = staged(cluster, ask())
        assert f"cd {bare.job_folder.results} || exit 1" in bare.files[bare.job_folder.task]

    def test_other_runtimes(self, cluster: clusters.ClusterSettings) -> None:
        without = FACTS._replace(pyxis=False)
        text = script(staged(cluster, ask(image="/images/a.sqsh"), without))
        assert "program=$(command -v enroot)" in text
        assert '"$4" start --mount' in text
        apptainer = without._replace(programs=frozenset({"sbatch", "apptainer"}))
        text = script(staged(cluster, ask(image="nvcr.io/x:1"), apptainer))
        assert "program=$(command -v apptainer || command -v singularity)" in text
        assert '"$4" exec --nv' in text
        assert "APPTAINERENV_" in text
        assert "docker://nvcr.io/x:1" in text
        with pytest.raises(ValidationError, match="squashfs files only"):
            planning.stage(ask(image="x:1"), IDENTITY, cluster, without, "")
        bare = without._replace(programs=frozenset({"sbatch"}))
        with pytest.raises(ValidationError, match="neither Pyxis nor Enroot nor Apptainer"):
            staged(cluster, ask(image="x:1"), bare)
        assert "--container" not in script(staged(cluster, ask(), bare))

    @pytest.mark.seed("002.17")
    def test_a_runtime_that_is_not_there(self, cluster: clusters.ClusterSettings) -> None:
        with pytest.raises(ValidationError, match="knows no apptainer"):
            choose_runtime("apptainer", FACTS)

    def test_roles_need_several_nodes(self, cluster: clusters.ClusterSettings) -> None:
        with pytest.raises(ValidationError, match="roles"):
            staged(cluster, ask(roles={"policy": 1}))

    @pytest.mark.seed("002.12")
    def test_roles(self, cluster: clusters.ClusterSettings) -> None:
        request = ask(num_nodes=3, network_arch="cosmos_rl", roles={"policy": 2, "rollout": 1})
        found = staged(cluster, request)
        assert "set -- 3 policy policy rollout\n" in found.files[found.job_folder.task]
        assert "--mem=0" in found.directives
        alone = staged(cluster, ask(num_nodes=2, network_arch="cosmos-rl"))
        assert "set -- 2 policy policy\n" in alone.files[alone.job_folder.task]
        plain = staged(cluster, ask(num_nodes=2, network_arch="dino"))
        assert "set -- 2\n" in plain.files[plain.job_folder.task]
        with pytest.raises(ValidationError, match="for 2 nodes, and the job has 3"):
            staged(cluster, ask(num_nodes=3, roles={"policy": 2}))


class TestPaths:
    @pytest.mark.seed("002.5")
    def test_forms(self) -> None:
        for text in ("lustre:///data/x", "slurm:///data/x", "slurm://data/x", "/data/x"):
            assert planning.cluster_path("here", text) == "/data/x"
        with pytest.raises(ValidationError, match=r"here: .*a file of this machine"):
            planning.cluster_path("here", "file:///data/x")
        for text in ("data/x", "s3://b/k", ""):
            with pytest.raises(ValidationError, match="not a path of the cluster"):
                planning.cluster_path("here", text)

    @pytest.mark.seed("002.5")
    def test_addresses_in_variables_become_paths(self, cluster: clusters.ClusterSettings) -> None:
        found = staged(cluster, ask(env_vars={"DATA": "slurm:///data/x"}))
        assert "export DATA=/data/x" in next(iter(found.secret.values()))

    @pytest.mark.seed("002.7")
    def test_inputs_of_s3_are_warned_about(self, cluster: clusters.ClusterSettings) -> None:
        from tao_sdk.script_runner import build_entrypoint

        command = build_entrypoint(
            command="true", inputs={"/in/a": "s3://bucket/big", "/in/b": "lustre:///data/b"}
        )["command"]
        request = ask(command)
        assert list(planning.required_paths(request)) == ["/data/b"]
        [note] = planning.notes(request, staged(cluster, request), FACTS)
        assert "s3://bucket/big" in note
        assert "GPUs idle" in note

    def test_local_inputs_are_refused(self) -> None:
        from tao_sdk.script_runner import build_entrypoint

        command = build_entrypoint(command="true", inputs={"/in/a": "file:///home/me/a"})["command"]
        with pytest.raises(ValidationError, match="a file of this machine"):
            planning.required_paths(ask(command))


class TestFacts:
    def test_the_probe(self) -> None:
        said = {
            "version": "slurm 22.05.8\n",
            "cluster": "lab\n",
            "pyxis": "1\n",
            "programs": "enroot\nsbatch\n",
            "accounting": "1\n",
            "partitions": "PartitionName=a MaxTime=1-02:30:00\nPartitionName=b MaxTime=UNLIMITED\n",
            "base": "writable\n",
            "mounts": "/lustre\n",
        }
        facts = parse_facts(Section(name, "", text.encode()) for name, text in said.items())
        assert facts.partitions == {"a": 1590, "b": None}
        assert (facts.pyxis, facts.accounting, facts.version) == (True, False, "22.05.8")

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("30:00", 30), ("04:00:00", 240), ("2-00:00:00", 2880), ("UNLIMITED", None), ("", None)],
    )
    def test_times(self, text: str, expected: int | None) -> None:
        assert minutes(text) == expected
