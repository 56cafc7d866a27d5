"""VirtualEnvSDK: Python scripts with the interpreter of a virtual environment."""

from __future__ import annotations

import json
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tao_sdk import ArtifactCleanupSDK, PythonScriptSDK, VirtualEnvSDK
from tao_sdk.errors import UnsupportedError, ValidationError
from tao_sdk.platforms.local.virtualenv import fill_placeholders, localise_inputs, redirect_outputs

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = None

LONG = 60


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    return folder


@pytest.fixture
def sdk(environment: Path, tmp_path: Path) -> Iterator[VirtualEnvSDK]:
    sdk = VirtualEnvSDK(environment, work_dir=tmp_path / "work", state_file=tmp_path / "s.json")
    yield sdk
    sdk.close()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "my script.py"
    path.write_text(
        "import json, os, sys\n"
        "print(json.dumps({'argv': sys.argv[1:], 'prefix': sys.prefix, 'cwd': os.getcwd(),\n"
        "  'root': os.environ['TAO_RESULTS_ROOT'], 'id': os.environ['TAO_JOB_ID'],\n"
        "  'venv': os.environ['VIRTUAL_ENV'], 'gpus': os.environ['CUDA_VISIBLE_DEVICES']}))\n"
        "config = sys.argv[1] if len(sys.argv) > 1 else ''\n"
        "print(open(config).read() if os.path.exists(config) else '')\n"
    )
    return path


def test_it_is_what_the_protocols_say(sdk: VirtualEnvSDK) -> None:
    assert isinstance(sdk, PythonScriptSDK)
    assert isinstance(sdk, ArtifactCleanupSDK)


def test_script_runs_in_the_environment(
    sdk: VirtualEnvSDK, script: Path, environment: Path, tmp_path: Path
) -> None:
    job = sdk.create_python_job(
        script,
        script_args=["--x", "a b; $(id)", "{job_id}", "{results_dir}/out"],
        cwd=tmp_path,
        gpu_count=0,
        network_arch="net",
    )
    assert job.wait(timeout=LONG).status == "Complete"
    said = json.loads(sdk.get_job_logs(job.id).splitlines()[0])
    assert said["argv"] == ["--x", "a b; $(id)", job.id, f"{job.results_dir}/out"]
    assert said["prefix"] == said["venv"] == str(environment)
    assert said["cwd"] == str(tmp_path)
    assert (said["id"], said["gpus"]) == (job.id, "")
    assert f"{said['root']}/{job.id}" == job.results_dir
    assert (job.backend_type, job.workspace_id, job.action) == ("virtualenv", "local", "train")


@pytest.mark.parametrize("config_format", ["json", "yaml", "toml", "JSON"])
def test_spec_file(sdk: VirtualEnvSDK, script: Path, config_format: str) -> None:
    specs = {"train": {"lr": 1e-05, "name": "x: y"}, "data": ["a", "b"], "out": {"dir": ""}}
    job = sdk.create_python_job(
        script,
        specs,
        config_format,
        ["{config_path}"],
        outputs={"out.dir": {"type": "folder"}},
        gpu_count=0,
    )
    assert job.wait(timeout=LONG).status == "Complete"
    _, text = sdk.get_job_logs(job.id).split("\n", 1)
    expected = {**specs, "out": {"dir": f"{job.results_dir}/out_dir"}}
    if config_format == "yaml":
        assert yaml.safe_load(text) == expected
    elif config_format != "toml":
        assert json.loads(text) == expected
    elif tomllib is not None:
        assert tomllib.loads(text) == expected
    assert specs["out"] == {"dir": ""}, "the caller's spec is not touched"


def test_results(sdk: VirtualEnvSDK, tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("import sys; open(sys.argv[1] + '/metrics.json', 'w').write('{}')")
    job = sdk.create_python_job(script, script_args=["{results_dir}"], gpu_count=0)
    job.wait(timeout=LONG)
    assert sdk.list_results(job.id) == ["metrics.json", "tao_result.json"]
    assert sdk.read_job_result_file(job.id, "metrics.json") == "{}"
    assert sdk.read_job_result_file(job.id, "nothing") == ""
    with pytest.raises(ValueError, match="outside"):
        sdk.read_job_result_file(job.id, "../../s.json")
    assert sdk.cancel_job(job.id) is True, "as on every other platform"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"script": "/no/such/script.py"}, "script: /no/such/script.py"),
        ({"script": "/" + "x" * 300}, "script: cannot inspect"),
        ({"script": "~nosuchuser/train.py"}, "script: ~nosuchuser/train.py: "),
        ({"cwd": "~nosuchuser"}, "cwd: ~nosuchuser: "),
        ({"script_args": ["{nothing}"]}, "{nothing}"),
        ({"script_args": ["{config_path}"]}, "there is no spec"),
        ({"specs": {}, "config_format": "ini"}, "json, yaml"),
        ({"cwd": "/no/such/folder"}, "no/such/folder"),
    ],
)
def test_errors_come_before_anything_exists(
    sdk: VirtualEnvSDK, script: Path, arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        sdk.create_python_job(**{"script": str(script), "gpu_count": 0, **arguments})  # type: ignore[arg-type]  # keywords of several types
    assert sdk.list_jobs() == []


@pytest.mark.parametrize("path", [None, "/no/such/venv"])
def test_not_an_environment(tmp_path: Path, script: Path, path: str | None) -> None:
    sdk = VirtualEnvSDK(path, work_dir=tmp_path / "w", state_file=tmp_path / "t.json")
    with pytest.raises(ValidationError, match="venv_path"):
        sdk.create_python_job(script)


def test_placeholders_leave_other_braces_alone() -> None:
    """Lesson B3: braces that are not ours stay."""
    known = {"job_id": "j"}
    assert fill_placeholders('{"a": {job_id}, "b": {}}', known) == '{"a": j, "b": {}}'


def test_inputs() -> None:
    specs = {"data": {"train": "file:///data/x", "val": "/data/y", "none": None}}
    localise_inputs(specs, ["data.train", "data.val", "data.none", "data.missing", "no.section"])
    assert specs["data"] == {"train": "/data/x", "val": "/data/y", "none": None}
    with pytest.raises(UnsupportedError, match=r"specs.data.train: s3://b/k"):
        localise_inputs({"data": {"train": "s3://b/k"}}, ["data.train"])


def test_outputs() -> None:
    specs = {"a": {"out": "relative"}, "b": "/absolute", "c": None}
    declared = {
        "a.out": None,
        "b": {},
        "c": {"type": "file"},
        "new-section.dir": {"type": "folder"},
    }
    folders = redirect_outputs(specs, declared, Path("/r"))
    assert folders == [Path("/r/a_out"), Path("/r/new_section_dir")]
    assert specs == {
        "a": {"out": "/r/a_out"},
        "b": "/absolute",
        "c": "/r/c",
        "new-section": {"dir": "/r/new_section_dir"},
    }
    with pytest.raises(UnsupportedError, match="s3://b/k"):
        redirect_outputs({"a": "s3://b/k"}, ["a"], Path("/r"))
    with pytest.raises(ValidationError, match="not a section"):
        redirect_outputs({"a": "text"}, ["a.b"], Path("/r"))
