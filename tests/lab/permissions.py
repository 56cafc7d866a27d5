"""Root without the right to pass over permissions, so that tests of them run as root as well."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_VERSION_3 = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2


class _Header(ctypes.Structure):
    """Whose capabilities: 0 is the calling thread."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


@contextlib.contextmanager
def permissions_apply() -> Iterator[None]:
    """In this thread, and in the threads that it starts meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    held = (_Capabilities * 2)()
    _call("capget", held)
    before = held[0].effective
    held[0].effective = before & ~(_DAC_OVERRIDE | _DAC_READ_SEARCH)
    _call("capset", held)
    try:
        yield
    finally:
        held[0].effective = before
        _call("capset", held)


def _call(name: str, held: ctypes.Array[_Capabilities]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(ctypes.byref(_Header(_VERSION_3, 0)), held) != 0:
        raise OSError(ctypes.get_errno(), name)
