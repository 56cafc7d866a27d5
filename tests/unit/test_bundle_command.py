"""The packed command: how large it is, where it runs, and what it leaves alone."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.bundle.command import payload_of
from tao_sdk.bundle.recognition import carries_runner
from tao_sdk.errors import ValidationError
from tao_sdk.script_runner import build_entrypoint

KIB = 1024
LONGEST_ARGUMENT = 131_071
"""Linux takes no longer word in a command line."""

S3_CONFIG: dict[str, Any] = {
    "command": "train -e {config_path}",
    "specs": {"train": {"data": "s3://bucket/key/", "lr": 0.1}, "results_dir": ""},
    "inputs": {"train.data": {"type": "folder"}},
    "outputs": {"results_dir": {"type": "folder"}},
    "config_format": "yaml",
    "upload_excludes": ["inputs/"],
}
SHELLS = [
    ["bash", "-c"],
    ["bash", "--posix", "-euc"],
    ["dash", "-c"],
    ["busybox", "sh", "-c"],
]


class Place:
    """Where a command runs: nothing in the folder, nothing but PATH in the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.cwd = folder / "cwd"
        self.env = {"PATH": str(self.programs), "TAO_JOB_ID": "job", "TMPDIR": str(folder / "tmp")}
        for made in (self.programs, self.cwd, folder / "tmp"):
            made.mkdir()
        # The runner starts the command with a shell of its own choice.
        for name in ("sh", "bash", "cat"):
            self.add_program(name, shutil.which(name) or f"/bin/{name}")
        self.add_program("python3", sys.executable)

    def add_program(self, name: str, path: str) -> None:
        (self.programs / name).unlink(missing_ok=True)
        # The executable of a virtual environment finds its library by its own place.
        (self.programs / name).symlink_to(Path(path).resolve())

    def run(
        self, command: str, *, in_shell: list[str] | None = None, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        environment: Mapping[str, str] = {**self.env, **more.pop("env", {})}
        return subprocess.run(
            [*(in_shell or ["/bin/bash", "-c"]), command],
            **{"cwd": self.cwd, "stdin": subprocess.DEVNULL, **more},
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def work_in(self, name: str) -> Path:
        """From now on jobs have a folder below this one."""
        root = self.folder / name
        self.env["TAO_RESULTS_ROOT"] = str(root)
        return root / "job"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def packed(command: str, **asked: Any) -> str:
    return build_entrypoint(command=command, **asked)["command"]


# ------------------------------------------------------------------ size


RESUME = {"resume_training_checkpoint_path": ""}
BENCHMARK = Path(__file__).parents[2] / "bench" / "programs" / "pack_command.py"
SIZES: dict[str, tuple[dict[str, Any], int]] = {
    "a bare passthrough": ({"command": "true"}, 16 * KIB),
    "a config job with S3 data": (S3_CONFIG, 48 * KIB),
    "the one that is measured": (runpy.run_path(str(BENCHMARK))["JOBS"]["config"], 48 * KIB),
    "one that may go on from a checkpoint": (
        {**S3_CONFIG, "specs": {**S3_CONFIG["specs"], **RESUME}},
        48 * KIB,
    ),
    "one that may, and has an archive": (
        {
            **S3_CONFIG,
            "specs": {"train": {"data": "s3://bucket/images.tar.gz"}, "results_dir": "", **RESUME},
            "inputs": {"train.data": {"type": "file"}},
        },
        48 * KIB,
    ),
    "one that may, and has no archive": (
        {
            **S3_CONFIG,
            "specs": {"train": {"data": "s3://bucket/labels.json"}, "results_dir": "", **RESUME},
            "inputs": {"train.data": {"type": "file"}},
        },
        38 * KIB,
    ),
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes(case: str, record_property: Callable[[str, object], None]) -> None:
    """Lesson B1: the runner itself leaves room for the spec."""
    asked, limit = SIZES[case]
    size = len(packed(**asked).encode())
    record_property(case, size)
    print(f"{case}: {size:,} bytes of {limit:,}")
    assert size <= limit


@pytest.mark.parametrize(
    "names",
    [
        [f"class_{number:05d}" for number in range(4_000)],
        ["'" * 9_900],
        [f"the {number}th class, which has quite a 'long' name" for number in range(4_000)],
    ],
    ids=["class names", "quotes", "long names"],
)
def test_a_large_spec_fits_into_one_argument(place: Place, names: list[str]) -> None:
    """Lesson B1: 4,000 class names, or 9,802 quotes, were too much."""
    place.work_in("results")
    specs = {**S3_CONFIG["specs"], "names": names}
    assert len(packed(**{**S3_CONFIG, "specs": specs}).encode()) < LONGEST_ARGUMENT
    command = packed("cat {config_path}", specs={"names": names}, config_format="json")
    done = place.run(command)
    assert json.loads(done.stdout) == {"names": names}, done.stderr


# ------------------------------------------------------------------ the same text


def test_identical_arguments_make_identical_commands() -> None:
    """In any process: a command can be compared, cached and recognised."""
    program = (
        "import json, sys; from tao_sdk.script_runner import build_entrypoint; "
        "sys.stdout.write(build_entrypoint(**json.loads(sys.argv[1]))['command'])"
    )
    made = [
        subprocess.run(
            [sys.executable, "-c", program, json.dumps(S3_CONFIG)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert made[0] == made[1] == packed(**S3_CONFIG)


@pytest.mark.parametrize("codec", ["bz2", "zlib"])
def test_what_it_will_do_can_be_read(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    monkeypatch.setenv("TAO_BUNDLE_CODEC", codec)
    command = packed(**S3_CONFIG)
    assert carries_runner(command)
    payload = payload_of(command)
    assert payload["mode"] == "config"
    assert payload["command"] == "train -e \0spec"
    assert payload["values"] == S3_CONFIG["specs"]
    (task,) = payload["inputs"]
    assert task["uri"] == "s3://bucket/key/"


def test_other_commands_are_not_taken_for_packed_ones() -> None:
    for command in ("true", "", packed("true").partition("3<<")[0]):
        with pytest.raises(ValidationError, match="not one that build_entrypoint made"):
            payload_of(command)


def test_an_unknown_codec_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_BUNDLE_CODEC", "lzma")
    with pytest.raises(ValidationError, match="TAO_BUNDLE_CODEC='lzma' is not one of bz2, zlib"):
        packed("true")


# ------------------------------------------------------------------ where it runs


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_in_every_shell(place: Place, shell: list[str]) -> None:
    program = shutil.which(shell[0])
    if program is None:
        pytest.skip(f"{shell[0]} is not installed: apt-get install {shell[0]}")
    command = packed("""printf '%s|' "it's" "$TAO_JOB_ID" '{x}'; exit 3""")
    done = place.run(command, in_shell=[program, *shell[1:]])
    assert (done.stdout, done.returncode) == ("it's|job|{x}|", 3), done.stderr


def test_zlib_where_bz2_is_missing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path(sys.executable).resolve()
    wrapper = f"""#!/bin/sh
for last; do :; done
exec {real} -X utf8 -I -S -c "import sys; sys.modules['bz2'] = None; exec(sys.argv[1])" "$last"
"""
    (place.programs / "python3").unlink()
    (place.programs / "python3").write_text(wrapper)
    (place.programs / "python3").chmod(0o755)
    done = place.run(packed("echo ran"))
    assert done.returncode == 1
    assert "a Python without bz2: submit with TAO_BUNDLE_CODEC=zlib" in done.stderr
    monkeypatch.setenv("TAO_BUNDLE_CODEC", "zlib")
    assert place.run(packed("echo ran")).stdout == "ran\n"


def test_python_may_be_called_python(place: Place) -> None:
    """Lesson B9: neither name has to exist as long as the other one does."""
    (place.programs / "python3").rename(place.programs / "python")
    assert place.run(packed("echo ran")).stdout == "ran\n"


def test_without_python(place: Place) -> None:
    (place.programs / "python3").unlink()
    for shell in ("bash", "dash", "busybox"):
        if not shutil.which(shell):
            continue
        applet = ["sh"] if shell == "busybox" else []
        done = place.run(packed("echo ran"), in_shell=[str(shutil.which(shell)), *applet, "-c"])
        assert (done.stdout, done.returncode) == ("", 127)
        assert done.stderr.startswith("tao-runner: error: the image has neither python3 nor python")


def _pythons(pattern: str) -> list[Path]:
    return sorted(Path.home().glob(f".pyenv/versions/{pattern}/bin/python"))


def test_with_nothing_but_python_2(place: Place) -> None:
    """It does not know the options, and would print its manual."""
    found = _pythons("2.7.*")
    if not found:
        pytest.skip("there is no Python 2 here: pyenv install 2.7")
    (place.programs / "python3").unlink()
    place.add_program("python", str(found[-1]))
    done = place.run(packed("echo ran"))
    assert (done.stdout, done.returncode) == ("", 127)
    assert done.stderr.startswith("tao-runner: error: the image has neither python3 nor python")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_with_a_python_that_is_too_old(place: Place, version: str) -> None:
    found = _pythons(f"{version}.*")
    if not found:
        pytest.skip(f"there is no Python {version} here: pyenv install {version}")
    place.add_program("python3", str(found[-1]))
    done = place.run(packed("echo ran"))
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.startswith(f"tao-runner: error: the image has Python {version}.")
    assert done.stderr.endswith(": 3.8 or newer is needed\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "python", [*_pythons("3.[89].*"), *_pythons("3.1[0-9].*")], ids=lambda path: path.parts[-3]
)
def test_with_every_python_that_is_new_enough(place: Place, python: Path) -> None:
    place.add_program("python3", str(python))
    assert place.run(packed("echo ran")).stdout == "ran\n"
    work = place.work_in("results")
    spec = {"train": {"lr": 1e-5, "names": ["a b", "é"]}, "results_dir": "", "key": "${env:KEY}"}
    for config_format in ("json", "yaml", "toml"):
        command = packed(
            "cat {config_path}",
            specs=spec,
            outputs={"results_dir": {"type": "folder"}},
            config_format=config_format,
        )
        done = place.run(command, env={"KEY": "hidden", "LC_ALL": "C"})
        assert done.returncode == 0, done.stderr
        assert "hidden" in done.stdout
        assert str(work / "results_dir") in done.stdout
    command = packed("echo", args={"name": "it's {x}", "out": ""}, outputs=["out"], flags=["fast"])
    assert place.run(command).stdout == f"--name it's {{x}} --out {work}/out --fast\n"


# ------------------------------------------------------------------ what it leaves alone


def test_the_job_s_own_python_settings_are_not_the_runner_s(place: Place) -> None:
    """Lesson B8: nothing in the image is needed, and nothing in it disturbs."""
    trap = "raise SystemExit('the wrong module')"
    for name in ("json.py", "select.py", "base64.py", "sitecustomize.py", "tao_runner.py"):
        (place.cwd / name).write_text(trap)
    (place.folder / "start.py").write_text(trap)
    settings = {
        "PYTHONPATH": str(place.cwd),
        "PYTHONSTARTUP": str(place.folder / "start.py"),
        "PYTHONHOME": str(place.folder),
        "PYTHONIOENCODING": "ascii",
        "PYTHONINSPECT": "1",
        "PYTHONWARNINGS": "error",
    }
    done = place.run(packed('echo "$PYTHONPATH"'), env=settings)
    assert (done.stdout, done.returncode) == (f"{place.cwd}\n", 0), done.stderr
    assert "wrong module" not in done.stderr


def test_the_job_s_variables_are_the_command_s(place: Place) -> None:
    done = place.run(packed('echo "$p $python"'), env={"p": "one", "python": "two"})
    assert done.stdout == "one two\n"


def test_no_other_program_is_called(place: Place) -> None:
    """Lesson B8: no pip, no base64, no network: PATH has a shell, cat and Python."""
    place.work_in("results")
    command = packed("cat {config_path}", specs={"a": 1}, config_format="yaml")
    assert place.run(command).stdout == "a: 1\n"


def test_standard_input_is_the_command_s(place: Place) -> None:
    done = place.run(packed("cat; cat <&3"), stdin=None, input="for the command")
    assert done.stdout == "for the command"
    assert "3: Bad file descriptor" in done.stderr, "the bundle is not the command's"


def test_a_bare_command_writes_nothing_to_disk(place: Place) -> None:
    """Lesson B9: no file, so none that another job could meet."""
    before = sorted(place.folder.rglob("*"))
    done = place.run(packed("echo ran"))
    assert done.stdout == "ran\n"
    assert sorted(place.folder.rglob("*")) == before
    assert not Path("/results/job").exists()


def test_jobs_with_a_common_folder_for_temporary_files_do_not_meet(place: Place) -> None:
    """Lesson B9: the runner has no fixed path."""
    running = [
        subprocess.Popen(
            ["/bin/bash", "-c", packed(f"read line; echo {number} $line")],
            env=place.env,
            cwd=place.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for number in range(3)
    ]
    # All of them run before any of them may end.
    said = [process.communicate(f"for {index}\n", 60)[0] for index, process in enumerate(running)]
    assert said == ["0 for 0\n", "1 for 1\n", "2 for 2\n"]


def test_neither_spec_nor_values_are_in_process_arguments(place: Place) -> None:
    """Lesson E1: other users of the machine can read every process's arguments."""
    place.work_in("results")
    program = """
import os
pid, words = os.getpid(), []
while "-I" not in words:
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    words = open(f"/proc/{pid}/cmdline").read().split("\\0")
    print(len(" ".join(words)), words)
"""
    (place.cwd / "ancestors.py").write_text(program)
    command = packed(
        "python3 ancestors.py {config_path}; cat {config_path}",
        specs={"visible": "in-the-spec", "key": "${env:KEY}"},
        config_format="yaml",
    )
    done = place.run(command, env={"KEY": "in-the-environment"})
    ancestors, _, written = done.stdout.partition("visible: ")
    assert "key: in-the-environment" in written, done.stderr
    assert "in-the-spec" not in ancestors
    assert "in-the-environment" not in ancestors
    runner = ancestors.splitlines()[-1]
    assert int(runner.split()[0]) < 1000, runner
    assert oct((place.folder / "results/job/spec.yaml").stat().st_mode & 0o777) == "0o600"


# ------------------------------------------------------------------ the place of the spec


@pytest.mark.parametrize("root", ["a b", "it's", '$HOME "`x`"', "é", "new\nline"])
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_the_spec_can_be_named_wherever_it_lies(place: Place, root: str, quote: str) -> None:
    """In or out of quotes, whatever characters the job's folder has."""
    work = place.work_in(root)
    command = packed(
        f"cat {quote}{{config_path}}{quote}; printf '%s' '{{config_path}}' > named; exit 4",
        specs={"here": ""},
        outputs={"here": {"type": "folder"}},
        config_format="json",
    )
    done = place.run(command)
    assert json.loads(done.stdout) == {"here": str(work / "here")}
    assert done.returncode == 4
    named = Path((place.cwd / "named").read_text())
    assert named.name == "spec.json"
    assert not named.parent.exists(), "nothing is left of the way to it"


def test_a_spec_in_a_plain_place_is_named_as_it_is(place: Place) -> None:
    work = place.work_in("results-1/a.b")
    command = packed("echo {config_path} {config-path}", specs={}, config_format="toml")
    assert place.run(command).stdout == f"{work}/spec.toml {work}/spec.toml\n"
