"""`build_entrypoint`: one small shell command that stages, runs and delivers.

The command carries the runner and a payload (`tao_sdk.bundle`); what the runner does with them is
in `tao_sdk.runner`. Everything that can be found wrong without touching a store is found here,
before anything is submitted.
"""

from __future__ import annotations

import copy
import posixpath
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tao_sdk import settings
from tao_sdk.bundle.command import pack
from tao_sdk.bundle.payload import RunnerPayload
from tao_sdk.errors import SecretExposureError, ValidationError
from tao_sdk.planning.excludes import compile_excludes
from tao_sdk.planning.input_plan import InputPlan, plan_inputs, undeclared_note
from tao_sdk.planning.output_plan import plan_outputs
from tao_sdk.planning.placeholders import env_names, mark_config_path
from tao_sdk.planning.spec_paths import check_places, refuse_flat_keys
from tao_sdk.runner.arguments import build_args_command
from tao_sdk.runner.destinations import BUCKET, JOB, SPEC, WORK, Destination
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.places import set_value
from tao_sdk.runner.resume import RESUME_KEY
from tao_sdk.runner.tasks import StagingTask, write_paths
from tao_sdk.runner.uris import is_archive, scheme_of
from tao_sdk.secrets import ADDRESS_SECRETS, find_exposed
from tao_sdk.spec_files import dump_spec
from tao_sdk.spec_serialization import SpecTypeError, normalize_config_format, normalize_data

__all__ = ["build_entrypoint"]

# The kernel takes 128 KiB for one word of a command, and 4 KiB for a path.
_CERTAINLY_SHORT = 100_000
_LONGEST_PATH = 4096

Declared = Mapping[str, Any] | Sequence[str] | None


def build_entrypoint(
    *,
    command: str,
    inputs: Declared = None,
    outputs: Declared = None,
    specs: Mapping[str, Any] | None = None,
    args: Mapping[str, Any] | None = None,
    config_format: str = "toml",
    upload_excludes: Sequence[str] | None = None,
    mount_path: str | None = None,
    flags: Sequence[str] | None = None,
) -> dict[str, str]:
    """The entrypoint of a job that stages data in and delivers results.

    With `specs` the runner writes them to a file, whose path replaces `{config_path}` in the
    command; `inputs` and `outputs` are paths into them (`train.data[0].path`). With `args` they
    become the command's arguments, and `inputs` and `outputs` are among their names. With neither,
    `inputs` maps paths in the container to URIs, and `outputs` lists paths. `${env:NAME}` in a
    spec or a URI is replaced in the container: the way for secrets. In an argument it is refused.
    """
    payload = runner_payload(
        command=command,
        inputs=inputs,
        outputs=outputs,
        specs=specs,
        args=args,
        config_format=config_format,
        upload_excludes=upload_excludes,
        mount_path=mount_path,
        flags=flags,
    )
    if note := payload.content["note"]:
        warnings.warn(note, stacklevel=2)
    return {"command": payload.packed, "args_template": ""}


def runner_payload(
    *,
    command: str,
    inputs: Declared = None,
    outputs: Declared = None,
    specs: Mapping[str, Any] | None = None,
    args: Mapping[str, Any] | None = None,
    config_format: str = "toml",
    upload_excludes: Sequence[str] | None = None,
    mount_path: str | None = None,
    flags: Sequence[str] | None = None,
) -> RunnerPayload:
    """What `build_entrypoint` packs, from the same arguments; its note is not warned of."""
    if specs is not None and args is not None:
        raise ValidationError("give specs (config mode) or args (args mode), not both")
    mode = "config" if specs is not None else "args" if args is not None else "passthrough"
    payload: dict[str, Any] = {
        "mode": mode,
        "command": _command(command),
        "inputs": _plain(inputs, "inputs", {}),
        "outputs": _plain(outputs, "outputs", [] if mode == "passthrough" else {}),
        "upload_excludes": _words(upload_excludes, "upload_excludes"),
        "mount_path": _mount_path(mount_path),
    }
    if mode == "config":
        payload["specs"] = _mapping(specs, "specs")
        payload["config_format"] = normalize_config_format(config_format)
    elif mode == "args":
        payload["args"] = _mapping(args, "args")
        payload["flags"] = _words(flags, "flags")
    elif flags:
        raise ValidationError("flags: only with args; in other modes write them in the command")
    _refuse_nul(payload)
    _refuse_secrets(payload)
    try:
        planned = _plan(payload)
    except RunnerError as error:
        raise ValidationError(str(error)) from None
    return RunnerPayload(planned, lambda: pack(planned, _features(planned)))


def _command(command: object) -> str:
    if not isinstance(command, str) or not command.strip():
        raise ValidationError(f"command: expected a shell command, got {command!r}")
    return command


def _mount_path(value: object) -> str:
    path = _plain(value, "mount_path", "")
    if not isinstance(path, str):
        raise SpecTypeError(f"mount_path must be a text, not {value!r}")
    if path and (not path.startswith("/") or ".." in path.split("/")):
        raise ValidationError(
            f"mount_path: {path!r} must be an absolute path in the container without .."
        )
    return posixpath.normpath("/" + path.lstrip("/")) if path else ""


def _plain(value: object, root: str, default: Any) -> Any:
    return default if value is None else normalize_data(value, root=root)


def _mapping(value: object, root: str) -> dict[str, Any]:
    plain = normalize_data(value, root=root)
    if not isinstance(plain, dict):
        raise SpecTypeError(f"{root} must be a dict, not {type(value).__name__}")
    return plain


def _words(value: object, root: str) -> list[str]:
    words = _plain(value, root, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise SpecTypeError(f"{root} must be a list of texts, not {value!r}")
    return words


def _refuse_nul(payload: Mapping[str, Any]) -> None:
    """No program or file name can have one, and the runner marks its own places with it."""
    for where, text in _texts(payload):
        if "\x00" in text:
            raise ValidationError(f"{where}: a NUL character cannot be passed to a program")


def _refuse_secrets(payload: Mapping[str, Any]) -> None:
    """A payload is in a command line, a plan and a store: many can read it."""
    known = settings.secret_values()
    for where, text in _texts(payload):
        name = find_exposed(text, known)
        if name in ADDRESS_SECRETS:
            raise SecretExposureError(
                f"{where} contains {name}, a credential that others could read there: pass it "
                "as env_vars={'MY_URL': …} and write ${env:MY_URL} in its place"
            )
        if name is not None:
            inside = settings.INJECTED_CREDENTIALS.get(name, name)
            raise SecretExposureError(
                f"{where} contains the value of {name}, which others could read there: let the "
                f"program take {inside} from its environment, or write ${{env:{inside}}} in its "
                "place in a spec or an address; it is filled in inside the job"
            )


def _refuse_variables(values: Mapping[str, Any]) -> None:
    """The arguments of a program can be read by every user of its machine."""
    for where, text in _texts(values):
        for name in env_names(text):
            raise SecretExposureError(
                f"{where}: ${{env:{name}}} would be among the program's arguments, which every "
                f"user of its machine can read: let the program take {name} from its environment, "
                "or give it in a spec (config mode)"
            )


def _texts(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            place = f"{where}.{key}" if where else str(key)
            # Not by its name, which may be the secret.
            yield f"a key of {where}", str(key)
            yield from _texts(item, place)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{where}[{index}]")
    elif isinstance(value, str):
        yield where, value


# ------------------------------------------------------------------ what will happen

_MOUNT = Destination("mount", WORK, WORK)
_STORE = Destination("s3", f"s3://{BUCKET}/results/{JOB}", WORK)


def _plan(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the runner has to do, as far as it can be known before the job runs."""
    mode, mount_path = asked["mode"], asked["mount_path"]
    values = asked.get("specs", asked.get("args", {}))
    if mode == "config":
        refuse_flat_keys(values)
    inputs = plan_inputs(
        mode, values, asked["inputs"], work=WORK, mount_path=mount_path, outputs=asked["outputs"]
    )
    for place, path in inputs.in_place.items():
        set_value(values, place, path)
    outputs = {
        "here": plan_outputs(mode, values, asked["outputs"], _MOUNT, mount_path),
        "s3": plan_outputs(mode, values, asked["outputs"], _STORE, mount_path),
    }
    command = mark_config_path(asked["command"]) if mode == "config" else asked["command"]
    tasks = [task._replace(extract=_can_be_unpacked(task)) for task in inputs.tasks]
    data = {
        "inputs": [_staging_record(task) for task in tasks],
        "links": inputs.links,
        "outputs": {kind: [task._asdict() for task in tasks] for kind, tasks in outputs.items()},
    }
    planned = {
        "mode": mode,
        "command": command,
        "values": values,
        **data,
        "upload_excludes": compile_excludes(asked["upload_excludes"]),
        "mount_path": mount_path,
        "names_variables": bool(env_names([values, data])),
        "resumes": mode == "config" and _may_resume(values),
        "note": _note(mode, command, inputs),
    }
    keys = [task.keys for task in inputs.tasks] + [task.keys for task in outputs["here"]]
    check_places(values, chain.from_iterable(keys))
    written = copy.deepcopy(values)
    write_paths(written, [(task, task.target) for task in inputs.tasks], outputs["here"])
    if mode == "config":
        planned["config_format"] = asked["config_format"]
        dump_spec(written, asked["config_format"])
    elif mode == "args":
        planned["flags"] = asked["flags"]
        _refuse_variables({"args": written, "flags": asked["flags"]})
        build_args_command(asked["command"], written, asked["flags"])
    return planned


def _staging_record(task: StagingTask) -> dict[str, Any]:
    """What the runner cannot know by itself."""
    record = {**task._asdict(), "selective": [each._asdict() for each in task.selective]}
    usual = StagingTask._field_defaults
    return {name: value for name, value in record.items() if value != usual.get(name)}


def _can_be_unpacked(task: StagingTask) -> bool:
    """Unless it is one file whose name says that it is no archive."""
    is_one_file = task.want == "file" and scheme_of(task.uri) == "s3" and not env_names(task.uri)
    return task.extract and (is_archive(task.uri) or not is_one_file)


def _note(mode: str, command: str, inputs: InputPlan) -> str:
    notes = [undeclared_note(inputs.undeclared)]
    if mode == "config" and SPEC not in command:
        notes.append("the command does not mention {config_path}: it will not find its spec")
    return "; ".join(filter(None, notes))


def _features(planned: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules that this payload needs beyond what every payload does."""
    mode, tasks, outputs = planned["mode"], planned["inputs"], planned["outputs"]
    features = set()
    if mode != "passthrough" or tasks or planned["links"] or outputs["s3"]:
        features.add("prepare")
    if _can_be_long(planned):
        features.add("long_command")
    if planned["names_variables"]:
        features.add("variables")
    if mode == "args":
        features.add("arguments")
    if mode == "config":
        features.add("spec_writer")
        if planned["config_format"] != "json":
            features.add(f"{planned['config_format']}_writer")
    schemes = {scheme_of(task["uri"]) for task in tasks}
    if planned["resumes"]:
        features.add("resuming")
        schemes.add("s3")
    if tasks or planned["links"]:
        features.add("stage")
    if planned["links"] or any(task.get("links") for task in tasks):
        features.add("links")
    if tasks:
        features.update(("staging_lock", "parallel"))
    if tasks and planned["mount_path"]:
        features.add("mirror")
    if schemes:
        features.update(("stage", "download"))
    if any(task.get("extract") for task in tasks):
        features.add("archives")
    if any(task.get("selective") for task in tasks):
        features.add("selective")
    if schemes & {"hf_model", "hf_dataset"}:
        features.update(("hub", "pretrained"))
    if "ngc" in schemes:
        features.update(("ngc", "pretrained"))
    if outputs["s3"]:
        schemes.add("s3")
        features.update(("deliver", "excludes", "uploads", "s3.upload"))
        if mode == "passthrough":  # where there is a mount, they are copied to it
            features.add("copies")
    if "s3" in schemes:
        features.update(("s3", "s3.temporary"))
    return tuple(sorted(features))


def _can_be_long(planned: Mapping[str, Any]) -> bool:
    """Whether the command could be too long for the kernel, once its spec's path is in it."""
    command: str = planned["command"]
    longest = len(command.encode()) + command.count(SPEC) * _LONGEST_PATH
    return planned["mode"] == "args" or longest > _CERTAINLY_SHORT


def _may_resume(value: Any) -> bool:
    """Is there a place for a checkpoint that is empty, or may be so in the container?"""
    if isinstance(value, dict):
        checkpoint = value.get(RESUME_KEY, "given")
        is_open = not checkpoint or bool(env_names(checkpoint))
        return is_open or any(map(_may_resume, value.values()))
    return isinstance(value, list) and any(map(_may_resume, value))
