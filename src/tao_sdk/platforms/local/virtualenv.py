"""VirtualEnvSDK: a Python script in a virtual environment, as a job of the local platform."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk import settings
from tao_sdk.errors import UnsupportedError, ValidationError
from tao_sdk.job_store.paths import state_paths
from tao_sdk.platforms.backend import JobIdentity, Plan
from tao_sdk.platforms.local.backend import LocalBackend
from tao_sdk.platforms.local.orders import StagedFiles
from tao_sdk.platforms.local.plan import absolute_path, examine, plan_argv
from tao_sdk.platforms.local.sdk import LocalSDK
from tao_sdk.platforms.request import build_request
from tao_sdk.spec_files import dump_spec
from tao_sdk.spec_serialization import normalize_specs

if TYPE_CHECKING:
    from tao_sdk.models import Job

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class VirtualEnvBackend(LocalBackend):
    platform = "virtualenv"


class VirtualEnvSDK(LocalSDK):
    """Runs Python scripts with the interpreter of a virtual environment."""

    platform = "virtualenv"

    def __init__(
        self,
        venv_path: str | Path | None = None,
        work_dir: str | Path | None = None,
        state_file: str | Path | None = None,
        *,
        poll_interval: float = 30,
        attend: bool = True,
    ) -> None:
        super().__init__(poll_interval, state_file=state_file, work_dir=work_dir, attend=attend)
        self._venv_path = venv_path

    def _make_backend(self) -> LocalBackend:
        return VirtualEnvBackend(self.work_dir)

    @property
    def work_dir(self) -> Path:
        if self._work_dir:
            return settings.expanded(self._work_dir).absolute()
        return Path(state_paths().database).parent / "virtualenv"

    def create_python_job(
        self,
        script: str | Path,
        specs: Mapping[str, Any] | None = None,
        config_format: str = "json",
        script_args: Sequence[str] | None = None,
        env_vars: Mapping[str, str] | None = None,
        inputs: Mapping[str, Any] | Sequence[str] | None = None,
        outputs: Mapping[str, Any] | Sequence[str] | None = None,
        upload_excludes: Sequence[str] | None = None,  # noqa: ARG002 - part of the interface
        cwd: str | Path | None = None,
        network_arch: str = "",
        action: str = "train",
        hooks: Mapping[str, Any] | None = None,
        gpu_count: int = 1,
        gpu_ids: Sequence[int | str] | None = None,
    ) -> Job:
        """Run `script` with `script_args`; `{config_path}`, `{results_dir}` and `{job_id}` in the
        arguments are filled in. Results stay on this machine, so `upload_excludes` has no effect.
        """
        plan = self.plan_python_job(
            script,
            specs,
            config_format,
            script_args,
            env_vars,
            inputs,
            outputs,
            cwd,
            network_arch=network_arch,
            action=action,
            gpu_count=gpu_count,
            gpu_ids=gpu_ids,
        )
        return self.submit(plan, hooks)

    def plan_python_job(
        self,
        script: str | Path,
        specs: Mapping[str, Any] | None = None,
        config_format: str = "json",
        script_args: Sequence[str] | None = None,
        env_vars: Mapping[str, str] | None = None,
        inputs: Mapping[str, Any] | Sequence[str] | None = None,
        outputs: Mapping[str, Any] | Sequence[str] | None = None,
        cwd: str | Path | None = None,
        **options: Any,
    ) -> Plan:
        """Exactly what `create_python_job` would run. Nothing is created."""
        python = self._interpreter()
        place = absolute_path("cwd", str(cwd or "."))
        program = _check_script(script, place)
        identity = JobIdentity.new()
        results_root = self.work_dir / "results"
        results = results_root / identity.job_id
        folder = self.work_dir / "jobs" / identity.job_id
        config_format = config_format.lower()
        config = folder / "spec" / f"spec.{config_format}"

        files: dict[str, str] = {}
        folders = [results]
        known = {"results_dir": str(results), "job_id": identity.job_id}
        if specs is not None:
            written = normalize_specs(dict(specs))
            localise_inputs(written, inputs or ())
            folders += redirect_outputs(written, outputs or (), results)
            files[f"spec/{config.name}"] = dump_spec(written, config_format)
            known["config_path"] = str(config)
        arguments = [fill_placeholders(word, known) for word in script_args or ()]
        argv = [str(python), str(program), *arguments]

        options.setdefault("cwd", str(place))
        request = build_request(
            self.options_type,
            image="",
            command=argv,
            gpu_count=options.pop("gpu_count", 1),
            env_vars=env_vars,
            keywords={"workspace_id": self.default_workspace, "specs": specs, **options},
            platform=self.platform,
        )
        return plan_argv(
            self.platform,
            self.work_dir,
            request,
            identity,
            argv,
            StagedFiles(files, folders),
            results_root,
            _environment(python),
        )

    def list_results(self, job_id: str) -> list[str]:
        """Files below the job's results, relative to them; [] for a job that is not known."""
        root = self._results_folder(job_id)
        if root is None:
            return []
        return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())

    get_results = list_results

    def read_job_result_file(self, job_id: str, relative_path: str) -> str:
        """The text of a result file; "" when there is none; ValueError outside the results."""
        root = self._results_folder(job_id)
        if root is None:
            return ""
        wanted = (root / relative_path).resolve()
        if not wanted.is_relative_to(root):
            raise ValidationError(f"{relative_path!r} is outside the results of job {job_id}")
        return wanted.read_text(encoding="utf-8") if wanted.is_file() else ""

    def _results_folder(self, job_id: str) -> Path | None:
        # Without this an unknown job's folder would be "", which means the current one.
        folder = self.get_job_results_dir(job_id)
        return Path(folder).resolve() if folder else None

    def _interpreter(self) -> Path:
        if self._venv_path is None:
            raise ValidationError("venv_path: name a virtual environment to run scripts with")
        venv = settings.expanded(self._venv_path).absolute()
        python = venv / "bin" / "python"
        if not (venv / "pyvenv.cfg").is_file() or not python.exists():
            raise ValidationError(
                f"venv_path: {venv} is not a virtual environment; make one with "
                f"python3 -m venv {shlex.quote(str(venv))}"
            )
        return python


def fill_placeholders(word: str, known: Mapping[str, str]) -> str:
    """Replace `{name}` for the known names; any other such name is an error."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in known:
            hint = " (there is no spec)" if name == "config_path" else ""
            raise ValidationError(
                f"script_args: {{{name}}} in {word!r} is not known{hint}; "
                f"known are {', '.join(f'{{{n}}}' for n in sorted(known))}"
            )
        return known[name]

    return _PLACEHOLDER.sub(value, word)


def localise_inputs(specs: dict[str, Any], inputs: Mapping[str, Any] | Sequence[str]) -> None:
    """`file://` inputs become paths; other remote ones cannot be staged here."""
    for key in inputs:
        parent, leaf = _parent_of(specs, key, create=False)
        value = parent.get(leaf) if parent else None
        if parent is None or not isinstance(value, str) or not _REMOTE.match(value):
            continue
        if not value.startswith("file://"):
            raise UnsupportedError(
                f"specs.{key}: {value} cannot be staged for a plain script; give a local path"
            )
        parent[leaf] = "/" + value.removeprefix("file://").lstrip("/")


def redirect_outputs(
    specs: dict[str, Any], outputs: Mapping[str, Any] | Sequence[str], results: Path
) -> list[Path]:
    """Outputs go below the results folder unless the spec names an absolute path.

    Returns the folders to make: an output is one unless its declaration has another `type`.
    """
    folders = []
    for key in outputs:
        parent, leaf = _parent_of(specs, key, create=True)
        value = parent.get(leaf) if parent else None
        if isinstance(value, str) and _REMOTE.match(value):
            raise UnsupportedError(
                f"specs.{key}: {value} cannot be delivered for a plain script; give a local path"
            )
        if parent is None or (isinstance(value, str) and value.startswith("/")):
            continue
        place = results / key.replace(".", "_").replace("-", "_")
        parent[leaf] = str(place)
        declared = outputs[key] if isinstance(outputs, Mapping) else None
        if not isinstance(declared, Mapping) or declared.get("type", "folder") == "folder":
            folders.append(place)
    return folders


def _parent_of(
    specs: dict[str, Any], key: str, *, create: bool
) -> tuple[dict[str, Any] | None, str]:
    """The mapping that holds a dotted key, and the key's last part."""
    *path, leaf = key.split(".")
    current: Any = specs
    for part in path:
        if part not in current or current[part] is None:
            if not create:
                return None, leaf
            current[part] = {}
        current = current[part]
        if not isinstance(current, dict):
            raise ValidationError(f"specs.{key}: {part!r} is not a section of the spec")
    return current, leaf


def _check_script(script: str | Path, place: Path) -> Path:
    text = str(script)
    program = absolute_path("script", text if text.startswith("~") else str(place / text))
    if not examine("script", program, program.is_file):
        raise ValidationError(f"script: {program} is not a file")
    return program


def _environment(python: Path) -> dict[str, str]:
    inherited = settings.process_environment().get("PATH", "/usr/bin:/bin")
    return {
        "VIRTUAL_ENV": str(python.parent.parent),
        "PATH": f"{python.parent}:{inherited}",
        "PYTHONUNBUFFERED": "1",
        # An empty PYTHONHOME counts as unset: the environment's own interpreter finds its home.
        "PYTHONHOME": "",
    }
