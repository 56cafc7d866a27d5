"""Which input goes where: from specs, arguments or passthrough inputs to things to be staged.

Nothing is listed or fetched here, so the client can plan, and refuse, before it submits.

* A declared input that is not set is simply not set; local paths stay as they are.
* `lustre://`, `slurm://`, `file://` become the path they stand for. The first two do so anywhere
  in a spec, because they can mean nothing else. Where they are declared, and neither optional nor
  a pattern, the runner looks whether there is anything at that path.
* `hf_model://`, `hf_dataset://`, `ngc://` are staged below `ptm/`, declared or not.
* `s3://` is staged below `inputs/` where it is declared; elsewhere it is reported as undeclared.
* `type` is a preference for the case that a store knows a file and a folder of one name:
  metadata says `file` for image folders that usually come as an archive.
* A missing object is an error, unless the input is `optional`: then its key is taken out of the
  spec (its item out of a list), so that the command's own default applies.
* With `type: local_glob` the value is a pattern that the command expands; a remote one stages what
  matches below its fixed part, and the command gets the same pattern on local files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tao_sdk.planning.spec_paths import (
    declarations,
    declared_places,
    folder_name,
    get_value,
    parse,
    texts,
)
from tao_sdk.planning.uris import (
    OTHER_STORE_SCHEMES,
    PRETRAINED_SCHEMES,
    mount_target,
    unsupported,
)
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.place_names import EVERY, render
from tao_sdk.runner.tasks import Selective, StagingTask
from tao_sdk.runner.uris import IN_PLACE_SCHEMES, local_path, scheme_of

if TYPE_CHECKING:
    from tao_sdk.runner.places import SpecPath


_GLOB = re.compile(r"[*?\[]")


class InputPlan(NamedTuple):
    tasks: tuple[StagingTask, ...]
    in_place: Mapping[SpecPath, str]
    """Places whose URI is replaced by the path it stands for."""
    links: tuple[tuple[str, str, str], ...]
    """Inputs that must be on a mount: the path wanted, where the data is, and how a message names
    it. Passthrough inputs are linked there; in a spec both paths are the same."""
    undeclared: tuple[tuple[SpecPath, str], ...]
    """URIs of object stores that the command will get as they are."""


def plan_inputs(
    mode: str,
    values: Mapping[str, Any],
    declared: Any,
    *,
    work: str,
    mount_path: str = "",
    outputs: Any = None,
) -> InputPlan:
    """The plan for specs (`mode` config), arguments (args) or passthrough inputs.

    `work` is the job's folder; `outputs` are the declared ones, whose places are not inputs.
    """
    planner = _Planner(mode, values, work, mount_path)
    if mode == "passthrough":
        planner.add_passthrough(declared)
    else:
        # Some metadata declares a file that is written as an input, too: it is an output.
        written = {
            place
            for key, _ in declarations(outputs, "outputs")
            for place in declared_places(mode, values, key)
        }
        planner.add_declared(declared, written)
        planner.add_rest(written)
    return planner.plan()


class _Planner:
    def __init__(self, mode: str, values: Mapping[str, Any], work: str, mount_path: str) -> None:
        self._mode = mode
        self._values = values
        self._work = work
        self._mount_path = mount_path
        self._tasks: dict[Any, StagingTask] = {}
        self._in_place: dict[SpecPath, str] = {}
        self._links: list[tuple[str, str, str]] = []
        self._undeclared: list[tuple[SpecPath, str]] = []

    def plan(self) -> InputPlan:
        tasks = tuple(self._tasks.values())
        _refuse_collisions(tasks)
        return InputPlan(tasks, self._in_place, tuple(self._links), tuple(self._undeclared))

    def add_declared(self, declared: Any, written: set[SpecPath]) -> None:
        found: dict[SpecPath, Mapping[str, Any]] = {}
        # What is declared for one item counts more than what is declared for every item.
        for key, options in sorted(declarations(declared, "inputs"), key=lambda d: "[*]" in d[0]):
            for place in declared_places(self._mode, self._values, key):
                if place not in written:
                    found.setdefault(place, options)
        for place, options in found.items():
            value = get_value(self._values, place)
            if isinstance(value, str):
                self._add(place, value, options, place)
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    # An item with a declaration of its own, such as key[0], is not ours.
                    if isinstance(item, str) and (*place, index) not in found:
                        self._add((*place, index), item, options, place)

    def add_rest(self, written: set[SpecPath]) -> None:
        """What no declaration mentions."""
        seen = written.union(self._in_place, *(task.keys for task in self._tasks.values()))
        for place, text in texts(self._values):
            scheme = scheme_of(text)
            if place in seen or not scheme:
                continue
            if scheme in PRETRAINED_SCHEMES or scheme in ("lustre", "slurm"):
                # What nobody declared may as well be a place that the command writes to.
                self._add(place, text, {"optional": scheme in IN_PLACE_SCHEMES}, place)
            elif scheme == "s3" or scheme in OTHER_STORE_SCHEMES:
                self._undeclared.append((place, text))

    def add_passthrough(self, declared: Any) -> None:
        if not isinstance(declared or {}, dict):
            raise RunnerError(f"inputs must be a mapping of container paths to URIs: {declared!r}")
        for path, uri in (declared or {}).items():
            if not uri:
                continue
            if not isinstance(uri, str):
                raise RunnerError(f"inputs: {path}: {uri!r} is not a URI")
            target = _absolute(path, "inputs")
            if uri.startswith("/") or scheme_of(uri) in IN_PLACE_SCHEMES:
                self._links.append((target, local_path(uri), f"inputs: {path}: {uri}"))
                continue
            _require_staged(uri, f"inputs: {path}")
            task = StagingTask(uri, target, want=_want(uri, ""), exact=True, extract=True)
            if self._mount_path and scheme_of(uri) == "s3":
                task = task._replace(target=mount_target(self._mount_path, uri), links=(target,))
            self._put(task, task.target)

    def _add(
        self, place: SpecPath, uri: str, options: Mapping[str, Any], declared_at: SpecPath
    ) -> None:
        scheme = scheme_of(uri)
        if not scheme:
            return
        if scheme in IN_PLACE_SCHEMES:
            path = self._in_place[place] = local_path(uri)
            if not (options.get("optional") or _GLOB.search(path)):
                self._links.append((path, path, f"inputs: {render(place)}: {uri}"))
            return
        _require_staged(uri, render(place))
        kind = str(options.get("type") or "")
        pattern = ""
        if kind == "local_glob":
            uri, pattern = _split_pattern(uri)
        pretrained = scheme in PRETRAINED_SCHEMES
        folder = folder_name(declared_at)
        if self._mode == "args":
            folder = folder.replace("-", "_")
        target = posixpath.join(self._work, "ptm" if pretrained else "inputs", folder)
        chosen, exact = bool(options.get("container_path")), False
        if chosen:
            target = _absolute(options["container_path"], f"inputs: {render(declared_at)}")
        elif self._mount_path and not pretrained:
            target, chosen, exact = mount_target(self._mount_path, uri), True, True
        if len(place) > len(declared_at) and not exact:
            target = posixpath.join(target, *map(str, place[len(declared_at) :]))
        self._put(
            StagingTask(
                uri,
                target,
                (place,),
                want=_want(uri, kind),
                exact=exact,
                optional=bool(options.get("optional")),
                extract=self._mode != "args",
                extract_to_parent=bool(options.get("extract_to_parent")),
                selective=self._selective(options.get("selective"), place),
                pattern=pattern,
                pretrained=pretrained,
            ),
            target if chosen else "",
        )

    def _put(self, task: StagingTask, chosen: str) -> None:
        """Add a task; the same URI, wanted in the same way by several keys, is staged once.

        A target of our own choosing may be shared; one that somebody chose is what it is.
        """
        want = task.want if task.pretrained else ""
        how = (task.uri.rstrip("/"), chosen, want, task.extract_to_parent, task.pattern)
        first = self._tasks.setdefault(how, task)
        if first is not task:
            both = first.selective and task.selective
            self._tasks[how] = first._replace(
                keys=first.keys + task.keys,
                want=first.want or task.want,
                optional=first.optional and task.optional,
                selective=tuple(dict.fromkeys(first.selective + task.selective)) if both else (),
                links=first.links + task.links,
            )

    def _selective(self, options: Any, place: SpecPath) -> tuple[Selective, ...]:
        """By which annotation files to select; by none when the spec sets none."""
        if not options:
            return ()
        keys = options.get("keys") if isinstance(options, dict) else None
        if isinstance(keys, str):
            keys = [keys]
        if not keys or not isinstance(options.get("annotation"), str):
            raise RunnerError(
                f"inputs: {render(place)}: selective: {options!r} needs `annotation`, the key of "
                "an annotation file, and `keys`, the fields that hold file names"
            )
        indices = iter([part for part in place if isinstance(part, int)])
        # [*] means the same item as that of the folder.
        annotation = tuple(
            next(indices, EVERY) if part == EVERY else part for part in parse(options["annotation"])
        )
        places: list[SpecPath] = []
        for found in declared_places("config", self._values, render(annotation)):
            value = get_value(self._values, found)
            if isinstance(value, list):
                places += [(*found, index) for index, item in enumerate(value) if item]
            elif value:
                places.append(found)
        file_format = str(options.get("format") or "")
        return tuple(Selective(found, file_format, tuple(keys)) for found in places)


def _require_staged(uri: str, where: str) -> None:
    if scheme_of(uri) not in ("s3", *PRETRAINED_SCHEMES):
        raise unsupported(uri, where)


def _want(uri: str, kind: str) -> str:
    if uri.endswith("/") or kind == "local_glob":
        return "folder"
    return kind if kind in ("file", "folder") else ""


def _absolute(path: Any, what: str) -> str:
    if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/"):
        raise RunnerError(f"{what}: {path!r} must be an absolute path in the container without ..")
    return posixpath.normpath("/" + path.lstrip("/"))


def _split_pattern(uri: str) -> tuple[str, str]:
    """`s3://b/videos/*/a.mp4` is the folder `s3://b/videos/` and the pattern `*/a.mp4`."""
    scheme, _, rest = uri.partition("://")
    parts = rest.split("/")
    fixed = next((i for i, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    if fixed == len(parts):
        return uri, ""
    return f"{scheme}://{'/'.join(parts[:fixed])}/", "/".join(parts[fixed:])


def _refuse_collisions(tasks: Sequence[StagingTask]) -> None:
    places: dict[str, StagingTask] = {}
    for task in tasks:
        # Single files may share a folder that metadata names.
        single = task.want == "file" and not task.exact
        place = posixpath.join(task.target, posixpath.basename(task.uri)) if single else task.target
        other = places.setdefault(place, task)
        if other is not task:
            raise RunnerError(
                f"inputs: {_origin(other)} ({other.uri}) and {_origin(task)} ({task.uri}) would "
                f"both be put into {place}: give one of them another container_path"
            )


def _origin(task: StagingTask) -> str:
    return render(task.keys[0]) if task.keys else task.target


def undeclared_note(undeclared: Sequence[tuple[SpecPath, str]]) -> str:
    """The warning that some URIs reach the command as they are; "" if there are none."""
    if not undeclared:
        return ""
    found = ", ".join(f"{render(place)} = {uri}" for place, uri in undeclared)
    first = tuple(EVERY if isinstance(part, int) else part for part in undeclared[0][0])
    return (
        f"not declared as inputs, so the command gets them as they are: {found}. To have them "
        f'downloaded, declare them, for example inputs={{"{render(first)}": {{}}}}'
    )
