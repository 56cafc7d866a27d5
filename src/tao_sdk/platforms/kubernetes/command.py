"""The command line of the container: the result shim, a shell, the command. Pure."""

from __future__ import annotations

import base64
import re
from typing import Any

from tao_sdk.platforms.common.container_command import SHELL
from tao_sdk.result_record import shim_argv

# Longer commands are in a file. The kernel would allow 128 KiB, but every list and every change of
# Jobs and pods contains the command: with the runner, 40 MB for a thousand Jobs, twice with pods.
LONGEST_IN_JOB = 16_384
# A ConfigMap holds at most 1 MiB. A bundle is compressed already, so longer ones are cut.
PART_BYTES = 900_000
COMMAND_FOLDER = "/tao-job"
COMMAND_FILE = f"{COMMAND_FOLDER}/command.sh"
_PARTS = "/tao-job-parts"
VOLUME = "tao-command"
_WHOLE = "tao-command-whole"

# How often this rank has failed, as Kubernetes counts it; set in pods that are retried.
FAILURES = "TAO_FAILURES"
_COUNT = f'export TAO_ATTEMPT=$((${{{FAILURES}:-0}}+1)); exec "$@"'
_JOIN = f"cat {_PARTS}/* > {COMMAND_FILE} || exit 126; "

# Kubernetes expands `$(NAME)` in a Job, and `$$` to a dollar.
_EXPANDED = re.compile(r"\$(?=[$(])")


def escape(text: str) -> str:
    """Quote text so that Kubernetes passes it on unchanged."""
    return _EXPANDED.sub("$$", text)


def container_command(command: str, *, retried: bool = False) -> list[str]:
    """The value of the container's `command`."""
    count = part_count(command)
    if count == 0:
        words = ["/bin/sh", "-c", SHELL, "tao-shell", "-c", command]
    else:
        join = _JOIN if count > 1 else ""
        words = ["/bin/sh", "-c", join + SHELL, "tao-shell", COMMAND_FILE]
    words = shim_argv(words)
    if retried:
        words = ["/bin/sh", "-c", _COUNT, "tao-attempt", *words]
    return [escape(word) for word in words]


def part_count(command: str) -> int:
    """How many ConfigMaps hold the command; 0 if it is short enough for the Job."""
    size = len(command.encode())
    return 0 if size <= LONGEST_IN_JOB else -(-size // PART_BYTES)


def parts(command: str) -> list[str]:
    """The command in pieces that each fit into a ConfigMap, in base64."""
    data = command.encode()
    return [
        base64.b64encode(data[number * PART_BYTES : (number + 1) * PART_BYTES]).decode()
        for number in range(part_count(command))
    ]


def command_volumes(names: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts of these ConfigMaps: the file itself, or parts to be joined."""
    if not names:
        return [], []
    if len(names) == 1:
        items = [{"key": "part", "path": "command.sh"}]
        held = {"name": VOLUME, "configMap": {"name": names[0], "items": items}}
        return [held], [{"name": VOLUME, "mountPath": COMMAND_FOLDER, "readOnly": True}]
    sources = [
        {"configMap": {"name": name, "items": [{"key": "part", "path": f"{number:04}"}]}}
        for number, name in enumerate(names)
    ]
    volumes: list[dict[str, Any]] = [
        {"name": VOLUME, "projected": {"sources": sources}},
        {"name": _WHOLE, "emptyDir": {}},
    ]
    seen: list[dict[str, Any]] = [
        {"name": VOLUME, "mountPath": _PARTS, "readOnly": True},
        {"name": _WHOLE, "mountPath": COMMAND_FOLDER},
    ]
    return volumes, seen
