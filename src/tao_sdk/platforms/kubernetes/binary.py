"""Lists in the API's binary form (protobuf), of which only what is looked at is taken out. Pure.

A thousand Jobs are megabytes of text, a third of it about who has set which field. In this form the
server is done in half the time, and what nobody wants to know is skipped by its length. What comes
out has the shape of the JSON form, less what is not named here. Numbers of fields are part of the
API and never change (`generated.proto` of k8s.io/api).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tao_sdk.platforms.kubernetes import naming

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_NUMBER, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TEXT, _FLAG, _COUNT, _TIME, _PAIRS, _ONE, _MANY = range(7)

Object = dict[str, Any]
Fields = dict[int, tuple[str, int, Any]]
"""By the tag that stands before them: name, kind, and what is in them."""
_Field = tuple[int, int, Any]
"""Number, kind, and what is in it."""


def _message(**fields: _Field) -> Fields:
    known: Fields = {}
    for name, (number, kind, inner) in fields.items():
        known[number << 3 | (_NUMBER if kind in (_FLAG, _COUNT) else _BYTES)] = (name, kind, inner)
    return known


def _text(number: int) -> _Field:
    return number, _TEXT, None


def _flag(number: int) -> _Field:
    return number, _FLAG, None


def _count(number: int) -> _Field:
    return number, _COUNT, None


def _time(number: int) -> _Field:
    return number, _TIME, None


def _pairs(number: int, *keys: str) -> _Field:
    """Of labels or annotations those with such a key."""
    return number, _PAIRS, tuple(map(_key, keys))


def _key(text: str) -> bytes:
    """What a pair with this key begins with: the tag, the length and the text of it."""
    data = text.encode()
    return b"\x0a%c%s" % (len(data), data)


def _one(number: int, inner: Fields) -> _Field:
    return number, _ONE, inner


def _many(number: int, inner: Fields) -> _Field:
    return number, _MANY, inner


_PAIR = _message(key=_text(1), value=_text(2))
_MOMENT = _message(seconds=_count(1))
_METADATA = _message(
    name=_text(1),
    namespace=_text(3),
    uid=_text(5),
    resourceVersion=_text(6),
    creationTimestamp=_time(8),
    deletionTimestamp=_time(9),
    labels=_pairs(
        11,
        naming.LABEL_JOB,
        naming.LABEL_FENCE,
        naming.LABEL_SUBMITTING,
        naming.QUEUE_LABEL,
        naming.JOB_NAME_LABEL,
    ),
    annotations=_pairs(12, naming.INDEX_ANNOTATION),
)
# Of Jobs and of pods.
_CONDITION = _message(
    type=_text(1),
    status=_text(2),
    lastTransitionTime=_time(4),
    reason=_text(5),
    message=_text(6),
)
_JOB_STATUS = _message(
    conditions=_many(1, _CONDITION),
    startTime=_time(2),
    completionTime=_time(3),
    active=_count(4),
    succeeded=_count(5),
    failed=_count(6),
    ready=_count(9),
    failedIndexes=_text(10),
    terminating=_count(11),
)
_CONTAINER_STATE = _message(
    waiting=_one(1, _message(reason=_text(1), message=_text(2))),
    running=_one(2, _message(startedAt=_time(1))),
    terminated=_one(
        3,
        _message(
            exitCode=_count(1),
            reason=_text(3),
            message=_text(4),
            startedAt=_time(5),
            finishedAt=_time(6),
        ),
    ),
)
_CONTAINER = _message(name=_text(1), state=_one(2, _CONTAINER_STATE))
_POD_STATUS = _message(
    phase=_text(1),
    conditions=_many(2, _CONDITION),
    message=_text(3),
    reason=_text(4),
    containerStatuses=_many(8, _CONTAINER),
    initContainerStatuses=_many(10, _CONTAINER),
)


def _object(spec: Fields, status: Fields) -> Fields:
    return _message(metadata=_one(1, _METADATA), spec=_one(2, spec), status=_one(3, status))


JOB = _object(_message(completions=_count(2), suspend=_flag(10)), _JOB_STATUS)
POD = _object(_message(nodeName=_text(10)), _POD_STATUS)
STATUS = _message(
    message=_text(3),
    reason=_text(4),
    details=_one(5, _message(name=_text(1), group=_text(2), kind=_text(3))),
)
"""What a server says that refuses."""
_LIST_METADATA = _message(resourceVersion=_text(2), **{"continue": _text(3)})


def list_of(item: Fields) -> Fields:
    """A list of such objects."""
    return _message(metadata=_one(1, _LIST_METADATA), items=_many(2, item))


def trimmed(one: Mapping[str, Any], fields: Fields) -> Object:
    """An object of the JSON form, less what is not named here either."""
    found: Object = {}
    for name, kind, inner in fields.values():
        if (value := one.get(name)) is None:
            continue
        if kind == _ONE:
            value = trimmed(value, inner)
        elif kind == _MANY:
            value = [trimmed(item, inner) for item in value]
        elif kind == _PAIRS:
            value = {key: text for key, text in value.items() if _key(key) in inner}
        found[name] = value
    return found


def read(data: bytes, fields: Fields) -> Object:
    """One object. Raises `ValueError` where it is none, or damaged."""
    if not data.startswith(_MAGIC):
        raise ValueError("it is not the binary form of Kubernetes")
    try:
        return dict(_read(data, len(_MAGIC), len(data), _message(object=_one(2, fields)))["object"])
    except (IndexError, KeyError):
        raise ValueError("it breaks off") from None


def _read(data: bytes, at: int, end: int, fields: Fields) -> Object:
    # The one loop that everything goes through, a hundred times for each object: hence no calls
    # for numbers of one or two bytes.
    found: Object = {}
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            if data[at] < 128:
                tag += (data[at] << 7) - 128
                at += 1
            else:
                tag, at = _rest(data, at, tag)
        wire = tag & 7
        if wire == _BYTES:
            size = data[at]
            at += 1
            if size > 127:
                if data[at] < 128:
                    size += (data[at] << 7) - 128
                    at += 1
                else:
                    size, at = _rest(data, at, size)
            begin, at = at, at + size
            if at > end:
                break
            if tag in fields:
                name, kind, inner = fields[tag]
                if kind == _TEXT:
                    if size:  # what is not set is left out, as in JSON
                        found[name] = data[begin:at].decode("utf-8", "replace")
                elif kind == _PAIRS:
                    if data.startswith(inner, begin):
                        pair = _read(data, begin, at, _PAIR)
                        found.setdefault(name, {})[pair["key"]] = pair.get("value", "")
                elif kind == _TIME:
                    if size:
                        found[name] = _shown(data[begin:at])
                elif kind == _ONE:
                    found[name] = _read(data, begin, at, inner)
                else:
                    found.setdefault(name, []).append(_read(data, begin, at, inner))
        elif wire == _NUMBER:
            value = data[at]
            at += 1
            if value > 127:
                value, at = _rest(data, at, value)
            if tag in fields:
                name, kind, _ = fields[tag]
                found[name] = bool(value) if kind == _FLAG else _signed(value)
        elif wire == _FIXED64:
            at += 8
        elif wire == _FIXED32:
            at += 4
        else:
            raise ValueError(f"it has a field of the unknown kind {wire}")
    if at != end:
        raise ValueError("it breaks off")
    return found


def _rest(data: bytes, at: int, first: int) -> tuple[int, int]:
    """A number of several bytes, of which the first was read; and where it ends."""
    value, shift = first & 127, 7
    while data[at] > 127:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


@lru_cache(maxsize=4096)
def _shown(moment: bytes) -> str:
    """A moment as the JSON form writes it. Objects that were made together share many."""
    seconds = _read(moment, 0, len(moment), _MOMENT).get("seconds", 0)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
