"""The shell command that carries the runner.

The bundle is text on file descriptor 3 (a here-document), so that nothing but a short start-up
program is in any process's arguments and nothing is written to disk: modules are loaded from
memory. The start-up program keeps the job's own Python settings, working directory and packages
out of the runner (`-I -S`), and leaves standard input to the command.
"""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Iterable
from typing import Any

from tao_sdk import settings
from tao_sdk.bundle.modules import is_package, travelling
from tao_sdk.bundle.printable import DECODER, decode, encode
from tao_sdk.bundle.recognition import FIRST_LINE, carries_runner
from tao_sdk.bundle.small_modules import START
from tao_sdk.errors import ValidationError

_END = "TAO_END"
_CODECS = ("bz2", "zlib")

# Between the parts of a bundle: the loader, and what it starts with (`tao_sdk.runner.loading`).
_SEPARATOR = "\0"

# Understood by every Python 3, up to the sentence that says which ones will do.
_PROGRAM = """\
import sys
e="tao-runner: error: the image has "
if sys.version_info<(3,8):sys.exit(e+"Python "+sys.version.split()[0]+": 3.8 or newer is needed")
try:from <codec> import decompress
except ImportError:sys.exit(e+"a Python without <codec>: submit with TAO_BUNDLE_CODEC=zlib")
<decoder>
p=decompress(d)[::-1].decode().split("\\0")
exec(p[0])
<start>(*p[1:])"""

# Where there is no python3, python may be Python 2, which knows neither the options nor f-strings.
_COMMAND = """\
{first_line}
_t=python3
command -v $_t >/dev/null 2>&1||{{ _t=python;$_t -ESc 'f""' 2>/dev/null;}}||{{
echo 'tao-runner: error: the image has neither python3 nor python 3: 3.8 or newer is needed' >&2
exit 127
}}
exec $_t -X utf8 -I -S -c {start} 3<<'{end}'
{bundle}
{end}
"""


def pack(payload: dict[str, Any], features: Iterable[str]) -> str:
    """The command that runs `payload`; identical arguments give identical text."""
    codec = settings.get("TAO_BUNDLE_CODEC")
    if codec not in _CODECS:
        raise ValidationError(f"TAO_BUNDLE_CODEC={codec!r} is not one of {', '.join(_CODECS)}")
    # JSON holds no bare NUL, and no source of ours does.
    loader, modules = travelling(features)
    packages = " ".join(filter(is_package, modules))
    parts = [loader, _as_json(payload), packages, " ".join(modules), *modules.values()]
    # bzip2 goes by what stands behind a letter; for programs, what stands before it tells more.
    bundle = _SEPARATOR.join(parts).encode()[::-1]
    program = _PROGRAM.replace("<codec>", codec).replace("<decoder>", DECODER)
    return _COMMAND.format(
        first_line=FIRST_LINE,
        start=shlex.quote(program.replace("<start>", START)),
        end=_END,
        bundle=encode(importlib.import_module(codec).compress(bundle, 9)),
    )


def _as_json(payload: dict[str, Any]) -> str:
    return json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def payload_of(command: str) -> dict[str, Any]:
    """What a packed command will do, for people to read."""
    payload: dict[str, Any] = json.loads(parts_of(command)[1])
    return payload


def parts_of(command: str) -> list[str]:
    """What a packed command consists of: loader, payload, packages, modules, sources."""
    _, opened, rest = command.partition(f"3<<'{_END}'\n")
    encoded, closed, _ = rest.partition(f"\n{_END}")
    codec = next((name for name in _CODECS if f"from {name} import" in command), "")
    if not (carries_runner(command) and opened and closed and codec):
        raise ValidationError("command: not one that build_entrypoint made")
    bundle: bytes = importlib.import_module(codec).decompress(decode(encoded))
    return bundle[::-1].decode().split(_SEPARATOR)
