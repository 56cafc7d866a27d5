"""The records of a JSON or JSON Lines file: how many there are, and what the first ones lack.

This file is also sent to login hosts, where whatever `python3` there is runs it: Python 3.6, and
nothing but the standard library.
"""

import json
import os
import sys
from typing import Any, BinaryIO, Dict, List, Sequence, Tuple

LISTS = ("annotations", "data", "samples", "items")
LARGEST = 1 << 30
"""Bytes. More than this is not read, because it would all be held in memory."""
SHOWN = 5


def examine(file: BinaryIO, fields: Sequence[str], limit: int) -> Dict[str, Any]:
    """Look at the first records, and count all."""
    if os.fstat(file.fileno()).st_size > LARGEST:
        return {"too_large": True}
    return examine_text(file.read(), fields, limit)


def examine_text(data: bytes, fields: Sequence[str], limit: int) -> Dict[str, Any]:
    """The same, for what has been read already."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return {"error": f"it is not UTF-8 text: {error}"}
    try:
        first, total, form = _records(text, max(1, limit))
    except ValueError as error:
        return {"error": f"it is neither JSON nor JSON Lines: {error}"}
    problems: List[str] = []
    bad = 0
    for number, record in first:
        lacking = _lacking(record, fields)
        bad += bool(lacking)
        if lacking and len(problems) < SHOWN:
            problems.append(f"record {number} {lacking}")
    looked = len(first)
    return {"records": total, "form": form, "looked": looked, "bad": bad, "problems": problems}


def _records(text: str, limit: int) -> Tuple[List[Tuple[int, Any]], int, str]:
    """The first records with their numbers, how many there are in all, and the form of the file."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not _is_record(lines[0]):
            raise
        first = [(number, _line(number, lines[number - 1])) for number in _first(lines, limit)]
        return first, len(lines), "jsonl"
    if isinstance(document, dict):
        named = [document[name] for name in LISTS if isinstance(document.get(name), list)]
        document = named[0] if named else [document]
    elif not isinstance(document, list):
        document = [document]
    first = [(number, document[number - 1]) for number in _first(document, limit)]
    return first, len(document), "json"


def _first(records: Sequence[Any], limit: int) -> range:
    return range(1, min(limit, len(records)) + 1)


def _line(number: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number}: {error}") from None


def _is_record(line: str) -> bool:
    """Or the beginning of a document that is broken off?"""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _lacking(record: Any, fields: Sequence[str]) -> str:
    if not fields:
        return ""
    if not isinstance(record, dict):
        return "is not an object"
    missing = [field for field in fields if record.get(field) is None]
    return "has no " + ", ".join(missing) if missing else ""


def main(path: str, limit: str, fields: str) -> None:
    """Print what was found as one line of JSON."""
    try:
        with open(path, "rb") as file:
            found = examine(file, [field for field in fields.split(",") if field], int(limit))
    except OSError as error:
        found = {"error": f"it cannot be read: {error.strerror}"}
    except MemoryError:
        found = {"too_large": True}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
