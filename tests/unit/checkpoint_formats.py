"""Checkpoints as trainers write them, made without the trainers."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from typing import Any


def torch_zip(tensors: int = 3, payload: bytes = b"\0\1\2\3" * 100) -> bytes:
    """What `torch.save` writes: a pickle and the storages, uncompressed, in a zip."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"epoch": 3}, protocol=2))
        archive.writestr("archive/byteorder", "little")
        for number in range(tensors):
            archive.writestr(f"archive/data/{number}", payload)
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


class FloatStorage:
    """Stands for torch's class of that name, in a pickle that torch itself never sees."""


class LongStorage(FloatStorage):
    pass


class Tensor:
    """Pickled as torch does it: a call of a function on a persistent reference."""

    def __init__(self, kind: type, key: str, count: int) -> None:
        self.reference = ("storage", kind, key, "cpu", count, None)


def rebuild(*_: object) -> None:
    """Never called: whoever looks at a checkpoint must not run it."""
    raise AssertionError("a pickle was run")


class Poison:
    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (1, 2), {"state": 1}


class Module:
    """Pickled as torch does it: its class is referred to, along with its source text."""


class LegacyPickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> object:
        if obj is Module:
            return ("module", Poison, "module.py", "class Module: ...")
        return obj.reference if isinstance(obj, Tensor) else None


def torch_legacy(counts: tuple[int, ...] = (10, 1, 0, 300)) -> bytes:
    """What `torch.save` wrote before PyTorch 1.6."""
    kinds = [FloatStorage, LongStorage]
    tensors = [Tensor(kinds[n % 2], f"key{n}", count) for n, count in enumerate(counts)]
    file = io.BytesIO()
    pickle.dump(0x1950A86A20F9469CFC6C, file, protocol=2)
    pickle.dump(1001, file, protocol=2)
    pickle.dump({"little_endian": True}, file, protocol=2)
    model = {
        "model": dict(enumerate(tensors)),
        "optimizer": Poison(),
        "names": {"a"},
        "all": Module(),
    }
    LegacyPickler(file, protocol=2).dump(model)
    pickle.dump([tensor.reference[2] for tensor in tensors], file, protocol=2)
    for tensor in tensors:
        kind, count = tensor.reference[1], int(str(tensor.reference[4]))
        file.write(struct.pack("<q", count) + b"." * count * (8 if kind is LongStorage else 4))
    return file.getvalue()


def safetensors(sizes: tuple[int, ...] = (16, 0, 400)) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for number, size in enumerate(sizes):
        offsets = [at, at + size]
        header[f"layer{number}"] = {"dtype": "U8", "shape": [size], "data_offsets": offsets}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(at)


def plain_pickle() -> bytes:
    return pickle.dumps({"weights": [b"." * 500] * 3, "epoch": 3, "names": ["a."] * 50})
