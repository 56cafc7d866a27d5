"""Where results go: the table of destinations, and every declared output's place in it.

| Environment | Results | Delivered by |
|---|---|---|
| `TAO_RESULTS_ROOT` | `<root>/<job>/<key>` | being on the mount |
| else `S3_BUCKET_NAME` | `s3://<bucket>/results/<job>/<key>` | uploading |
| neither | `/results/<job>/<key>` | nothing: lost with the container |

An absolute path or a URI that a spec gives for an output wins. Anything else there (nothing, a
relative path, `???`) is filled in. A file output keeps the base name of its value if that has an
extension; otherwise its key says which, because exporters go by it: `export.onnx_file` becomes
`export_onnx_file/model.onnx`, a key that says nothing becomes `<key>/<its last part>`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tao_sdk.planning.spec_paths import declarations, declared_places, folder_name, get_value
from tao_sdk.planning.uris import mount_target, unsupported
from tao_sdk.runner.destinations import Destination
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.place_names import render
from tao_sdk.runner.tasks import OutputTask
from tao_sdk.runner.uris import IN_PLACE_SCHEMES, local_path, scheme_of

if TYPE_CHECKING:
    from tao_sdk.runner.places import SpecPath

_NAMES_BY_WORD = {
    "onnx": "model.onnx",
    "engine": "model.engine",
    "pth": "model.pth",
    "pruned": "model.pth",
    "cache": "calibration.cache",
}
_NAME_WITH_EXTENSION = re.compile(r"\w[\w +-]*(\.[\w+-]+)+")
_ALLOWED = "use an s3:// URI or an absolute path"


def plan_outputs(
    mode: str, values: Mapping[str, Any], declared: Any, to: Destination, mount_path: str = ""
) -> tuple[OutputTask, ...]:
    """Every declared output of specs (`mode` config), arguments (args) or a passthrough."""
    if mode == "passthrough":
        return _plan_passthrough(declared, to)
    planned: dict[str, OutputTask] = {}
    names: dict[str, SpecPath] = {}
    for key, options in declarations(declared, "outputs"):
        for place in declared_places(mode, values, key, missing=True):
            value = get_value(values, place)
            want = "folder" if options.get("type") in (None, "", "folder") else "file"
            if scheme_of(value) in IN_PLACE_SCHEMES or _is_absolute(value):
                task = OutputTask(local_path(value), "", want, (place,))
            else:
                name = folder_name(place).replace("-", "_")
                other = names.setdefault(name, place)
                if other != place:
                    raise RunnerError(
                        f"outputs: {render(other)} and {render(place)} would both be put into "
                        f"{name}: give one of them an absolute path"
                    )
                below = posixpath.join(name, _file_name(place, value)) if want == "file" else name
                task = _routed(mode, value, place, want, below, to, mount_path)
            # Outputs with one destination are one folder: two would overwrite each other there.
            same = task.uri.rstrip("/") or task.local
            first = planned.setdefault(same, task)
            if first is not task:
                planned[same] = first._replace(keys=(*first.keys, place))
    return tuple(planned.values())


def _is_absolute(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/")


def _routed(
    mode: str, value: Any, place: SpecPath, want: str, below: str, to: Destination, mount_path: str
) -> OutputTask:
    """An output whose value is a URI of a store, or is filled in."""
    scheme = scheme_of(value)
    if scheme and scheme != "s3":
        raise unsupported(value, f"outputs: {render(place)}", _ALLOWED)
    if scheme:
        to_folder = want == "file" and value.endswith("/")
        uri = value + posixpath.basename(below) if to_folder else value
    elif to.kind == "s3":
        uri = f"{to.root}/{below}"
    else:
        return OutputTask(posixpath.join(to.root, below), "", want, (place,))
    local = posixpath.join(to.work, "outputs" if mode == "args" else "", below)
    if mount_path:
        local = mount_target(mount_path, uri)
    return OutputTask(local, uri, want, (place,))


def _file_name(place: SpecPath, value: Any) -> str:
    """The base name of a file output."""
    given = posixpath.basename(value) if isinstance(value, str) else ""
    if _NAME_WITH_EXTENSION.fullmatch(given):
        return given
    last = next(part for part in reversed(place) if isinstance(part, str))
    for word, name in _NAMES_BY_WORD.items():
        if word in last.lower():
            return name
    return folder_name((last,))


def _plan_passthrough(declared: Any, to: Destination) -> tuple[OutputTask, ...]:
    """Paths that the command writes to; as a mapping each may have a URI of its own."""
    if not isinstance(declared or {}, (dict, list, tuple)):
        raise RunnerError(f"outputs must be a list of container paths: {declared!r}")
    entries = declared if isinstance(declared, dict) else dict.fromkeys(declared or ())
    planned: dict[str, OutputTask] = {}
    for path, given in entries.items():
        if isinstance(given, dict) and given.get("type") == "text":
            continue  # what the command prints: the log has it
        if not _is_absolute(path):
            raise RunnerError(f"outputs: {path!r} must be an absolute path in the container")
        if not isinstance(given or "", (str, dict)):
            raise RunnerError(f"outputs: {path}: {given!r} is not an s3:// URI")
        uri = given if isinstance(given, str) else ""
        if uri and scheme_of(uri) != "s3":
            raise unsupported(uri, f"outputs: {path}", "use an s3:// URI, or none")
        local = posixpath.normpath("/" + path.lstrip("/"))
        if not uri and to.kind == "s3":
            uri = f"{to.root}/{posixpath.basename(local)}"
        first = planned.setdefault(uri.rstrip("/") or local, OutputTask(local, uri, ""))
        if first.local != local:
            raise RunnerError(
                f"outputs: {first.local} and {path} would both be uploaded to {uri}: "
                "write outputs as a mapping and give one of them another URI"
            )
    return tuple(planned.values())
