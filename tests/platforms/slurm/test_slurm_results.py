"""Results on a real cluster come here through its login hosts, by the rules of every pull."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_lab import SlurmPlatformLab

from lab.slurm import LoginVariant
from lab.transfers import tree
from tao_sdk.errors import BackendUnreachableError, PlatformError, ValidationError
from tao_sdk.platforms.remote.results import RemoteResults
from tao_sdk.platforms.results import results_of
from tao_sdk.platforms.slurm import SlurmSDK
from tao_sdk.platforms.slurm.client import SshTransport
from tao_sdk.platforms.slurm.cluster_settings import from_environment
from tao_sdk.results import ResultSource, Selection, State, copy_results, plan_pull

MIB = 1024 * 1024
HOSTILE = [
    "new\nline",
    " spaces at both ends ",
    "-rf",
    "--checkpoint-action=exec=touch x",
    "back\\nslash\\",
    "*?[a]",
    "quotes'\"`id`$HOME",
    "ünïcödé 图",
    os.fsdecode(b"not-utf-8-\xff\xfe"),
    "tab\tand\rreturn",
    "/".join(["deep" * 10] * 8),
]


@pytest.fixture
def results(lab: SlurmPlatformLab) -> Path:
    folder = lab.slurm.shared / "results" / "some job"
    (folder / "train" / "empty").mkdir(parents=True)
    (folder / "status.json").write_text("{}\n", encoding="utf-8")
    (folder / "train" / "model.pth").write_bytes(os.urandom(300_000))
    (folder / "train" / "nothing").touch()
    (folder / "train" / "run.sh").write_text("echo hi\n", encoding="utf-8")
    (folder / "train" / "run.sh").chmod(0o750)
    shutil.chown(folder / "train" / "run.sh", lab.slurm.user)
    os.utime(folder / "train" / "model.pth", ns=(1_700_000_000_123_456_789,) * 2)
    return folder


@pytest.fixture
def transport(lab: SlurmPlatformLab) -> SshTransport:
    del lab  # which the environment names
    return SshTransport(from_environment().login)


def results_in(transport: SshTransport, folder: Path) -> RemoteResults:
    """As the backend makes them."""
    user = transport.login.user
    return RemoteResults(transport, f"lustre://{folder}", str(folder), user, "on the cluster")


@pytest.fixture
def source(transport: SshTransport, results: Path) -> RemoteResults:
    return results_in(transport, results)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def pull(
    source: ResultSource,
    destination: Path,
    selection: Selection | None = None,
    *,
    verify: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> dict[str, State]:
    plan = plan_pull(source, destination, selection, verify=verify)
    return {outcome.path: outcome.state for outcome in copy_results(source, plan, advance)}


def large_file(path: Path, size: int = 80 * MIB) -> None:
    """Every part of it differs, so that a wrong offset shows."""
    with path.open("wb") as file:
        for number in range(size // MIB):
            file.write(number.to_bytes(4, "big") * (MIB // 4))


# ---------------------------------------------------------------- the whole tree


def test_everything_comes_and_once_only(
    transport: SshTransport, source: RemoteResults, results: Path, copy: Path
) -> None:
    (results / "latest").symlink_to("train/model.pth")
    os.link(results / "status.json", results / "train" / "same file")
    assert set(pull(source, copy).values()) == {State.COPIED}
    assert tree(copy) == tree(results)
    kept = (copy / "train" / "model.pth").stat().st_ino
    fetched = list(transport.calls)
    assert fetched == ["results", "results_tar", "results_look"]
    assert set(pull(source, copy).values()) == {State.PRESENT}
    assert list(transport.calls) == [*fetched, "results"], "nothing is fetched twice"
    assert (copy / "train" / "model.pth").stat().st_ino == kept
    assert not (copy / ".tao-pull").exists()


@pytest.mark.parametrize("way_in", [LoginVariant(noise=True)], indirect=True)
def test_chatter_of_login_scripts_is_left_out(
    source: RemoteResults, results: Path, copy: Path
) -> None:
    large_file(results / "large")
    assert set(pull(source, copy, verify=True).values()) == {State.COPIED}
    assert tree(copy) == tree(results)


def test_hostile_names(source: RemoteResults, results: Path, copy: Path) -> None:
    for name in HOSTILE:
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_bytes(os.fsencode(name))
    (results / "folder\n-x").mkdir()
    (results / "link\n").symlink_to("-rf")
    assert set(pull(source, copy, verify=True).values()) == {State.COPIED}
    assert tree(copy) == tree(results)
    assert set(pull(source, copy, verify=True).values()) == {State.PRESENT}


def test_hostile_names_of_large_files(source: RemoteResults, results: Path, copy: Path) -> None:
    for name in ("-n 1\n", os.fsdecode(b"--version\xff")):
        large_file(results / name, 33 * MIB)
    assert set(pull(source, copy, verify=True).values()) == {State.COPIED}
    assert tree(copy) == tree(results)


def test_many_files_in_few_round_trips(
    transport: SshTransport, source: RemoteResults, results: Path, copy: Path
) -> None:
    for number in range(1500):
        folder = results / str(number // 100)
        folder.mkdir(exist_ok=True)
        (folder / str(number)).write_text(str(number), encoding="utf-8")
    counted: list[int] = []
    plan = plan_pull(source, copy)
    outcomes = list(copy_results(source, plan, counted.append))
    assert len(outcomes) == len(plan.to_copy) == 1504
    assert sum(counted) == plan.bytes_to_copy
    assert tree(copy) == tree(results)
    assert list(transport.calls).count("results_tar") == 2
    assert len(list(transport.calls)) == 5


def test_a_choice_of_files(source: RemoteResults, results: Path, copy: Path) -> None:
    chosen = Selection(include=("*.pth", "*.sh"), exclude=("run*",))
    assert pull(source, copy, chosen) == {"train/model.pth": State.COPIED}
    assert [path.name for path in copy.rglob("*")] == ["train", "model.pth"]


# ---------------------------------------------------------------- what is not followed or read


def test_links_inside_are_kept_and_others_are_not_followed(
    source: RemoteResults, results: Path, copy: Path
) -> None:
    outside = results.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("of another job", encoding="utf-8")
    (results / "out").symlink_to(outside / "secret")
    (results / "out-folder").symlink_to("../outside")
    (results / "chain").symlink_to("out-folder/secret")
    (results / "absolute").symlink_to(results / "train")
    (results / "round").symlink_to("../some job/status.json")
    (results / "loop").symlink_to("loop")
    outcome = pull(source, copy)
    skipped = {path for path, state in outcome.items() if state is State.SKIPPED}
    assert skipped == {"out", "out-folder", "chain"}
    links = {path.name: str(path.readlink()) for path in copy.rglob("*") if path.is_symlink()}
    assert links == {"absolute": "train", "round": "status.json", "loop": "loop"}
    assert "of another job" not in "".join(map(str, tree(copy).values()))
    assert set(pull(source, copy).values()) == {State.PRESENT, State.SKIPPED}


def test_a_folder_that_became_a_link_out_is_not_followed(
    source: RemoteResults, results: Path, copy: Path
) -> None:
    """Between listing and fetching; even if what is behind it looks just like what was listed."""
    plan = plan_pull(source, copy)
    outside = results.parent / "outside"
    (results / "train").rename(outside)
    (results / "train").symlink_to(outside)
    outcome = {each.path: each.state for each in copy_results(source, plan)}
    assert outcome["train/model.pth"] is State.GONE
    assert outcome["status.json"] is State.COPIED
    assert not (copy / "train" / "model.pth").exists()


def test_pipes_are_skipped(source: RemoteResults, results: Path, copy: Path) -> None:
    os.mkfifo(results / "pipe")
    assert pull(source, copy)["pipe"] is State.SKIPPED


@pytest.mark.parametrize("name", ["train", "train/model.pth", "large"])
def test_what_the_user_may_not_read_is_reported(
    source: RemoteResults, results: Path, copy: Path, name: str
) -> None:
    large_file(results / "large", 33 * MIB)
    (results / name).chmod(0)
    plan = plan_pull(source, copy)
    outcome = {each.path: each for each in copy_results(source, plan)}
    assert outcome[name].state is State.FAILED
    assert "Permission denied" in outcome[name].message
    assert outcome["status.json"].state is State.COPIED


def test_no_results_and_no_right_to_see_them(
    lab: SlurmPlatformLab, transport: SshTransport, copy: Path
) -> None:
    nowhere = results_in(transport, Path("/no/such"))
    with pytest.raises(ValidationError, match="not there: lustre:///no/such"):
        pull(nowhere, copy)
    locked = lab.slurm.shared / "locked"
    locked.mkdir(mode=0)
    with pytest.raises(PlatformError, match=f"Permission denied for {lab.slurm.user}"):
        pull(results_in(transport, locked), copy)
    assert not copy.exists()


def test_a_destination_in_the_results_themselves(source: RemoteResults, results: Path) -> None:
    with pytest.raises(ValidationError, match="lies in the results"):
        pull(source, results / "copy")


# ---------------------------------------------------------------- a job that goes on meanwhile


@pytest.mark.parametrize("name", ["status.json", "large"])
def test_a_file_that_changes_while_it_is_fetched(
    source: RemoteResults, results: Path, copy: Path, name: str
) -> None:
    large_file(results / "large", 33 * MIB)
    left = [1]

    def append(_: int) -> None:
        if left and left.pop():
            with (results / name).open("ab") as file:
                file.write(b"more")

    chosen = Selection(include=(name,))
    assert pull(source, copy, chosen, advance=append) == {name: State.COPIED}
    assert (copy / name).read_bytes() == (results / name).read_bytes()


def test_a_small_file_that_becomes_a_large_one(
    source: RemoteResults, results: Path, copy: Path
) -> None:
    plan = plan_pull(source, copy)
    large_file(results / "status.json", 33 * MIB)
    (results / "train" / "run.sh").write_text("echo changed, too\n", encoding="utf-8")
    assert {each.state for each in copy_results(source, plan)} == {State.COPIED}
    assert (copy / "status.json").read_bytes() == (results / "status.json").read_bytes()
    assert (copy / "train" / "run.sh").read_text(encoding="utf-8") == "echo changed, too\n"


def test_a_file_that_never_rests_is_reported_and_not_left_half(
    source: RemoteResults, results: Path, copy: Path
) -> None:
    counted: list[int] = []

    def append(count: int) -> None:
        counted.append(count)
        with (results / "status.json").open("ab") as file:
            file.write(b"more")

    outcome = pull(source, copy, advance=append)
    assert outcome["status.json"] is State.CHANGED
    assert outcome["train/model.pth"] is State.COPIED
    assert not (copy / "status.json").exists()
    assert sum(counted) == 300_000 + len("echo hi\n"), "bytes that have to come again are not kept"


def test_a_file_that_goes_away_is_not_missed(
    source: RemoteResults, results: Path, copy: Path
) -> None:
    plan = plan_pull(source, copy)
    (results / "status.json").unlink()
    outcome = {each.path: each.state for each in copy_results(source, plan)}
    assert outcome["status.json"] is State.GONE
    assert outcome["train/model.pth"] is State.COPIED


def test_verify_finds_content_that_size_and_time_hide(
    source: RemoteResults, results: Path, copy: Path
) -> None:
    pull(source, copy)
    damaged = copy / "train" / "run.sh"
    times = damaged.stat()
    damaged.write_text("echo ho\n", encoding="utf-8")
    os.utime(damaged, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert pull(source, copy)["train/run.sh"] is State.PRESENT
    outcome = pull(source, copy, verify=True)
    assert outcome.pop("train/run.sh") is State.COPIED
    assert set(outcome.values()) == {State.PRESENT}
    assert tree(copy) == tree(results)


# ---------------------------------------------------------------- cut off, killed, unreachable


def test_a_large_file_goes_on_where_the_connection_was_lost(
    lab: SlurmPlatformLab, source: RemoteResults, results: Path, copy: Path
) -> None:
    large_file(results / "large")
    came = 0

    def cut(count: int) -> None:
        nonlocal came
        came += count
        if came > 40 * MIB:
            lab.slurm.drop_connections()

    with pytest.raises(BackendUnreachableError, match="cut off"):
        pull(source, copy, advance=cut)
    assert (copy / "train" / "model.pth").exists(), "small files come before large ones"
    assert not (copy / "large").exists()
    resumed: list[int] = []
    outcome = pull(source, copy, advance=resumed.append)
    assert outcome.pop("large") is State.COPIED
    assert set(outcome.values()) == {State.PRESENT}
    assert max(resumed) > 39 * MIB, "what is here already counts at once"
    assert sum(resumed) == 80 * MIB
    assert tree(copy) == tree(results)


def test_small_files_that_came_before_the_connection_was_lost_are_kept(
    lab: SlurmPlatformLab, source: RemoteResults, results: Path, copy: Path
) -> None:
    for number in range(30):
        (results / f"{number:02}").write_bytes(os.urandom(MIB))
    came = 0

    def cut(count: int) -> None:
        nonlocal came
        came += count
        if came > 10 * MIB:
            lab.slurm.drop_connections()

    with pytest.raises(BackendUnreachableError, match="cut off"):
        pull(source, copy, advance=cut)
    assert not (copy / "00").exists(), "nothing has its name before it is known to be right"
    resumed: list[int] = []
    assert set(pull(source, copy, advance=resumed.append).values()) == {State.COPIED}
    assert resumed[0] >= 10 * MIB
    assert tree(copy) == tree(results)


_SLOW_PULL = """
import sys, time
from pathlib import Path
from tao_sdk.platforms.slurm import SlurmSDK
from tao_sdk.platforms.remote.results import RemoteResults
from tao_sdk.results import copy_results, plan_pull

transport, folder = SlurmSDK().backend.transport, sys.argv[1]
source = RemoteResults(transport, "lustre://" + folder, folder, "ada", "on the cluster")
came = 0

def stop(count):
    global came
    came += count
    if came > 40 * 2**20:
        print("half", flush=True)
        time.sleep(600)

list(copy_results(source, plan_pull(source, Path(sys.argv[2])), stop))
"""


def test_a_killed_pull_is_finished_by_the_next(
    lab: SlurmPlatformLab, source: RemoteResults, results: Path, copy: Path
) -> None:
    large_file(results / "large")
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW_PULL, str(results), str(copy)],
        env=dict(lab.environment()),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    resumed: list[int] = []
    outcome = pull(source, copy, advance=resumed.append)
    assert outcome.pop("large") is State.COPIED
    assert set(outcome.values()) == {State.PRESENT}
    assert max(resumed) > 30 * MIB
    assert sum(resumed) == 80 * MIB
    assert tree(copy) == tree(results)
    assert not (copy / ".tao-pull").exists()


def test_the_next_host_is_used_and_none_is_said(
    lab: SlurmPlatformLab, source: RemoteResults, results: Path, copy: Path
) -> None:
    plan = plan_pull(source, copy)
    lab.slurm.stop_sshd(lab.slurm.hosts[0])
    assert {each.state for each in copy_results(source, plan)} == {State.COPIED}
    assert tree(copy) == tree(results)
    lab.slurm.stop_sshd(lab.slurm.hosts[1])
    with pytest.raises(BackendUnreachableError, match="no ssh server listens"):
        pull(source, copy)
    lab.slurm.start_sshd()


_MEASURED_PULL = """
import resource, sys
from pathlib import Path
from tao_sdk.platforms.slurm import SlurmSDK
from tao_sdk.platforms.remote.results import RemoteResults
from tao_sdk.results import copy_results, plan_pull

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

transport, folder = SlurmSDK().backend.transport, sys.argv[1]
source = RemoteResults(transport, "lustre://" + folder, folder, "ada", "on the cluster")
plan = plan_pull(source, Path(sys.argv[2]))
before = peak()
assert all(outcome.state == "copied" for outcome in copy_results(source, plan))
print(peak() - before)
"""


def test_large_results_take_little_memory(lab: SlurmPlatformLab, results: Path, copy: Path) -> None:
    large_file(results / "large", 200 * MIB)
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED_PULL, str(results), str(copy)],
        env=dict(lab.environment()),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert int(done.stdout) < 20_000, "kilobytes more than before"
    assert (copy / "large").read_bytes() == (results / "large").read_bytes()


# ---------------------------------------------------------------- of real jobs


def cli(lab: SlurmPlatformLab, *words: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tao_sdk.cli", *words],
        cwd=lab.folder,
        env=dict(lab.environment()),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def test_the_results_of_a_job_by_hand_and_in_python(lab: SlurmPlatformLab, copy: Path) -> None:
    script = (
        'cd "$TAO_RESULTS_ROOT/$TAO_JOB_ID"; mkdir train; echo weights > train/model.pth; '
        'ln -s "$PWD/train/model.pth" latest; ln -s /etc/hosts out'
    )
    words = ("run", "-p", "slurm", "-d", "--no-watch", "--gpus", "0", "-c", script)
    job = cli(lab, *words)[0].strip()
    cli(lab, "wait", job)
    out, err = cli(lab, "--json", "pull", job)
    *files, last = (json.loads(line) for line in out.splitlines())
    states = {file["path"]: file["state"] for file in files}
    assert states == {
        "out": "skipped",
        "latest": "copied",
        "tao_result.json": "copied",
        "train/model.pth": "copied",
    }
    assert last["source"] == f"lustre://{lab.slurm.shared}/results/{job}"
    assert (last["complete"], last["counts"]["copied"]) == (True, 3)
    assert "a link out of the results, to /etc/hosts" in err
    mine = lab.folder / job[:8]
    assert (mine / "train" / "model.pth").read_text() == "weights\n"
    assert (mine / "latest").readlink() == Path("train/model.pth")
    out, err = cli(lab, "pull", job)
    assert out == ""
    assert "no files copied (0 B), 3 there already, 1 skipped" in err
    sdk = SlurmSDK()
    assert set(pull(results_of(sdk, job), copy).values()) == {State.COPIED, State.SKIPPED}
    lab.slurm.stop_sshd()
    _, err = cli(lab, "pull", job, code=125)
    assert "no ssh server listens on its port" in err
    lab.slurm.start_sshd()
    shutil.rmtree(lab.slurm.shared / "results" / job)
    _, err = cli(lab, "pull", job, code=125)
    assert "the results folder is not there: lustre://" in err
