"""What was asked for: one validated, immutable request.

`build_request` is the single place where the keywords of `create_job` are checked. Whatever can
be found wrong without touching the platform is found here, before anything exists.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_type_hints

from tao_sdk import settings
from tao_sdk.bundle.payload import RunnerPayload
from tao_sdk.bundle.recognition import carries_runner
from tao_sdk.errors import SecretExposureError, UnknownOptionError, ValidationError
from tao_sdk.job_states import validate_job_id
from tao_sdk.secrets import ADDRESS_SECRETS, Secret, find_exposed, seal
from tao_sdk.spec_serialization import normalize_specs

Command = str | Sequence[str] | RunnerPayload
"""A shell command, the words of one, or what the runner of the job does."""

_NONE: Mapping[str, Any] = MappingProxyType({})
MAX_VARIABLE_BYTES = 128 * 1024
"""What the kernel takes for one variable, its name included."""
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# What the SDK itself says about a job cannot be contradicted by the job's environment.
RESERVED_ENV = frozenset({"TAO_JOB_ID", "TAO_RESULTS_ROOT", "TAO_ATTEMPT", "TAO_GROUP_SIGNALS"})


MAX_COUNT = 65_536
"""GPUs or nodes of one job: Slurm numbers no more nodes, and nothing is larger."""


class Option(NamedTuple):
    """A keyword of `create_job`: what it means and how its value is checked.

    `check` returns the value in its final form or raises `ValidationError`.
    """

    name: str
    meaning: str
    check: Callable[[str, Any], Any]
    default: Any = None


class Keyword(NamedTuple):
    """The metadata of a field of a platform's options: `name: Annotated[type, Keyword(...)]`."""

    meaning: str
    check: Callable[[str, Any], Any]


class NoOptions(NamedTuple):
    """The options of a platform that has none of its own."""


_Options = TypeVar("_Options")
_declared: dict[type[Any], tuple[Option, ...]] = {}


def options_of(fields: type[Any]) -> tuple[Option, ...]:
    """The keywords that an options class declares: a NamedTuple whose fields have a `Keyword`."""
    if fields not in _declared:
        hints = get_type_hints(fields, include_extras=True)
        keywords = {name: hints[name].__metadata__[0] for name in hints}
        _declared[fields] = tuple(
            Option(name, keywords[name].meaning, keywords[name].check, default)
            for name, default in fields._field_defaults.items()
        )
    return _declared[fields]


def checked_options(fields: type[_Options], given: Mapping[str, Any]) -> _Options:
    """The options with these keywords checked, and the defaults for all others."""
    table = {option.name: option for option in options_of(fields)}
    checked = {
        name: table[name].check(name, value) for name, value in given.items() if value is not None
    }
    return fields(**checked)


class JobRequest(NamedTuple):
    """One job, as asked for. Environment values are secrets, the rest may be shown and stored."""

    command: str
    image: str = ""
    gpu_count: int = 1
    env: Mapping[str, Secret] = _NONE
    num_nodes: int = 1
    network_arch: str = ""
    action: str = ""
    workspace_id: str = ""
    parent_job_id: str = ""
    base_checkpoint: str = ""
    plan_id: str = ""
    step_id: int = 0
    specs: Mapping[str, Any] = _NONE
    options: Any = NoOptions()
    """The platform's own options, as its options class."""
    payload: RunnerPayload | None = None
    """What the runner does, where the job stages data; `command` is then only a part of it."""

    @property
    def shell_command(self) -> str:
        """The words that a platform runs, with the runner where there is one."""
        return self.payload.packed if self.payload else self.command

    def to_dict(self) -> dict[str, Any]:
        """What the store keeps: environment names, never values."""
        shown = {
            name: as_json(value)
            for name, value in self.options._asdict().items()
            if value not in _UNSET
        }
        staged = {"runner": True, "payload": self.payload.content} if self.payload else {}
        return {
            "command": self.command,
            "image": self.image,
            "gpu_count": self.gpu_count,
            "num_nodes": self.num_nodes,
            "env_names": sorted(self.env),
            "options": shown,
            **staged,
        }


_UNSET: tuple[Any, ...] = (None, "", (), {})


def as_json(value: Any) -> Any:
    """An option's value as JSON has it."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value if isinstance(value, (str, bool, int, float)) else str(value)


def check_text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValidationError(f"{where}: expected text, got {type(value).__name__}")
    if "\x00" in value:
        raise ValidationError(f"{where}: a NUL character cannot be passed to a program")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(
            f"{where}: character {error.start + 1} is not valid UTF-8; such text can neither be "
            "stored nor shown"
        ) from None
    return value


def check_whole_number(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(f"{where}: expected a whole number, got {value!r}")
    return value


def check_positive(where: str, value: Any) -> int:
    number = check_whole_number(where, value)
    if number < 1:
        raise ValidationError(f"{where}: {number} is not at least 1")
    return number


def check_gpu_count(where: str, value: Any) -> int:
    number = check_whole_number(where, value)
    if number < -1:
        raise ValidationError(f"{where}: {number} makes no sense; 0 is none, -1 all, N that many")
    return _check_attainable(where, number, "GPUs")


def check_node_count(where: str, value: Any) -> int:
    return _check_attainable(where, check_positive(where, value), "nodes")


def _check_attainable(where: str, number: int, what: str) -> int:
    if number > MAX_COUNT:
        raise ValidationError(
            f"{where}: {number} {what} are more than any platform has; at most {MAX_COUNT}"
        )
    return number


def check_gpu_ids(where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise ValidationError(f"{where}: expected a list of GPU ids such as [0, 1]")
    ids = tuple(str(gpu).strip() for gpu in value)
    if len(set(ids)) != len(ids) or not all(ids):
        raise ValidationError(f"{where}: {value!r} names a GPU twice or not at all")
    return ids


def one_of(*choices: str) -> Callable[[str, Any], str]:
    """A check that accepts exactly these words."""

    def check(where: str, value: Any) -> str:
        if value not in choices:
            raise ValidationError(f"{where}: {value!r} is not one of {', '.join(choices)}")
        return str(value)

    return check


def _check_parent(where: str, value: Any) -> str:
    return validate_job_id(check_text(where, value)) if value else ""


COMMON_OPTIONS: tuple[Option, ...] = (
    Option("num_nodes", "how many nodes (processes, pods) run the command", check_node_count, 1),
    Option("network_arch", "the model, for your records", check_text, ""),
    Option("action", "train, evaluate, …, for your records", check_text, ""),
    Option("workspace_id", "free text, for your records", check_text, ""),
    Option("parent_job_id", "the job this one builds on", _check_parent, ""),
    Option("base_checkpoint", "the pretrained model it starts from", check_text, ""),
    Option("plan_id", "which plan of several steps this job belongs to", check_text, ""),
    Option("step_id", "which step of that plan", check_whole_number, 0),
    Option("specs", "the training spec, stored with the job", lambda _w, value: value, None),
)


def build_request(
    options_type: type[Any],
    *,
    image: str,
    command: Command,
    gpu_count: int,
    env_vars: Mapping[str, str] | None,
    keywords: Mapping[str, Any],
    platform: str,
) -> JobRequest:
    """Check everything that needs no platform and return the request."""
    table = {option.name: option for option in (*COMMON_OPTIONS, *options_of(options_type))}
    unknown = [name for name in keywords if name not in table]
    if unknown:
        raise _unknown_option(unknown[0], table, platform)
    checked = {
        name: option.default if keywords.get(name) is None else option.check(name, keywords[name])
        for name, option in table.items()
    }
    env = seal(_check_env(env_vars))
    if isinstance(command, str) and carries_runner(command):
        command = RunnerPayload.of_packed(command)
    payload = command if isinstance(command, RunnerPayload) else None
    request = JobRequest(
        command=command.command if isinstance(command, RunnerPayload) else _check_command(command),
        image=check_text("image", image or ""),
        gpu_count=check_gpu_count("gpu_count", gpu_count),
        env=env,
        num_nodes=checked.pop("num_nodes"),
        specs=normalize_specs(checked.pop("specs")),
        **{name: checked.pop(name) for name in _TEXT_FIELDS},
        options=options_type(**checked),
        payload=payload,
    )
    words = () if isinstance(command, (str, RunnerPayload)) else command
    refuse_exposed_secrets(request, words)
    return request


_TEXT_FIELDS = (
    "network_arch",
    "action",
    "workspace_id",
    "parent_job_id",
    "base_checkpoint",
    "plan_id",
    "step_id",
)


def refuse_exposed_secrets(request: JobRequest, words: Iterable[str] = ()) -> None:
    """Refuse a request whose visible parts contain a secret value.

    `words` are the command's as they were given: quoting may hide a value from a plain search.

    Command lines are visible to every user of a machine, and plans and stores are read by many:
    altering them silently would break "what we print is what runs", so we ask for a change.
    """
    known = {**settings.secret_values(), **request.env}
    for where, text in (*(("command", word) for word in words), *_visible_texts(request)):
        name = find_exposed(text, known)
        if name is None:
            continue
        if name in ADDRESS_SECRETS:
            raise SecretExposureError(
                f"{where} contains {name}, a credential that others could read there: pass it as "
                f"env_vars={{'MY_URL': …}} and write \"$MY_URL\" in the command"
            )
        inside = name if name in request.env else settings.INJECTED_CREDENTIALS.get(name, name)
        raise SecretExposureError(
            f"{where} contains the value of {name}, which others could read there: leave it out "
            f'and let the program take "${inside}" from its environment '
            f"(in a spec: ${{env:{inside}}})"
        )


def _visible_texts(request: JobRequest) -> Iterable[tuple[str, str]]:
    yield "command", request.command
    if request.payload:
        yield from _texts_of("command", request.payload.content)
    yield "image", request.image
    for name in _TEXT_FIELDS:
        yield name, str(getattr(request, name))
    for name, value in request.options._asdict().items():
        yield from _texts_of(name, value)
    yield from _texts_of("specs", request.specs)


def _texts_of(where: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"a key of {where}", str(key)  # not by its name, which may be the secret
            yield from _texts_of(f"{where}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _texts_of(f"{where}[{index}]", item)
    elif value is not None:
        yield where, str(value)


def _check_command(command: str | Sequence[str]) -> str:
    if isinstance(command, str):
        text = check_text("command", command)
    else:
        text = shlex.join(check_text(f"command[{i}]", part) for i, part in enumerate(command))
    if not text.strip():
        raise ValidationError("command: nothing to run; give a shell command or a list of words")
    return text


def _check_env(env_vars: Mapping[str, str] | None) -> dict[str, str]:
    checked: dict[str, str] = {}
    for name, value in (env_vars or {}).items():
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            raise ValidationError(f"env_vars: {name!r} is not a name that a shell accepts")
        if name in RESERVED_ENV:
            raise ValidationError(f"env_vars.{name}: set by the SDK for every job; leave it out")
        checked[name] = check_text(f"env_vars.{name}", value)
        size = len(f"{name}={value}".encode()) + 1  # the end of the text counts
        if size > MAX_VARIABLE_BYTES:
            raise ValidationError(
                f"env_vars.{name}: {size:,} bytes with its name, and a program is given at most "
                f"{MAX_VARIABLE_BYTES:,}: put the value in a file, and pass the file's path (or "
                "the file as one of inputs=)"
            )
    return checked


def _unknown_option(name: str, table: Mapping[str, Option], platform: str) -> UnknownOptionError:
    choices = sorted({*table, "image", "command", "gpu_count", "env_vars", "inputs", "outputs"})
    import difflib  # here, because only mistakes need it

    close = difflib.get_close_matches(name, choices, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return UnknownOptionError(
        f"create_job() on {platform} knows no keyword {name!r}{hint}; "
        f"it knows: {', '.join(choices)}"
    )
