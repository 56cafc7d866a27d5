"""Whether a checkpoint is whole, or was cut short when its trainer was killed."""

from __future__ import annotations

import json
import os
import re
from typing import Any, BinaryIO

from .checkpoint_files import SHARE, has_checkpoint_extension, own_name

# `tmp-checkpoint-500`, `.metadata.tmp`, `epoch_3.orbax-checkpoint-tmp-17`, `model.pth.part`
_TEMPORARY = re.compile(r"(?:^|.*[._-])tmp(?:[._-].*|\d*)|.*\.(?:temp|part|partial|incomplete)")
_SHARD = re.compile(r"(.*-)(\d+)(-of-)(\d+)(\.\w+)")
_ELEMENT_BYTES = {
    **dict.fromkeys(["Byte", "Char", "Bool", "Untyped", "QInt8", "QUInt8"], 1),
    **dict.fromkeys(["Half", "BFloat16", "Short"], 2),
    **dict.fromkeys(["Float", "Int", "QInt32"], 4),
    **dict.fromkeys(["Double", "Long", "ComplexFloat"], 8),
    "ComplexDouble": 16,
}
# The pickled magic number of what `torch.save` wrote before it wrote zip files.
_LEGACY_TORCH = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")

# Less than this tells no format from another; no checkpoint is so small.
_SMALLEST = 16


def is_whole(path: str) -> bool:
    """Whether a checkpoint is complete, as far as its format tells without reading all of it.

    Certain for zip (what `torch.save` writes), safetensors, pickles and PyTorch's format before
    the zip: no proper beginning of such a file is taken for the whole. HDF5 says how long it is,
    but a writer that was killed between two flushes may have left it inconsistent. A folder must
    have every shard that an index or the shards' own numbers name, and no temporary file. What
    has none of these formats (`.tlt`, other `.bin`) only has to be non-empty. What cannot be read
    is not whole: it could not be loaded either.
    """
    try:
        return _is_whole_folder(path) if os.path.isdir(path) else _is_whole_file(path)
    except (OSError, RecursionError):
        return False


def _is_whole_file(path: str) -> bool:
    size = os.path.getsize(path)
    if size < _SMALLEST or _TEMPORARY.fullmatch(own_name(path)):
        return False
    with open(path, "rb") as file:
        head = file.read(len(_LEGACY_TORCH))
        file.seek(0)
        if path.lower().endswith(".safetensors"):
            return _is_whole_safetensors(file, size)
        if head.startswith(b"PK"):
            return _is_whole_zip(file, size)
        if head[:8] == b"\x89HDF\r\n\x1a\n":
            return _is_whole_hdf5(file, size)
        if head == _LEGACY_TORCH:
            return _is_whole_legacy_torch(file)
        if head[:1] == b"\x80" and head[1:2] <= b"\x05":
            return _is_whole_pickles(file, size)
    return True


def _is_whole_safetensors(file: BinaryIO, size: int) -> bool:
    length = int.from_bytes(file.read(8), "little")
    if length > size - 8:
        return False
    try:
        tensors = json.loads(file.read(length))
        ends = [tensor["data_offsets"][1] for key, tensor in tensors.items() if key[:2] != "__"]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return False
    return 8 + length + max(ends, default=0) == size


def _is_whole_zip(file: BinaryIO, size: int) -> bool:
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            starts = [entry.header_offset for entry in archive.infolist()]
            comment = len(archive.comment)
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return False
    file.seek(size - 22 - comment)
    end = file.read(22)
    if end[:4] != b"PK\5\6" or int.from_bytes(end[20:], "little") != comment:
        return False
    # A zip stored inside the zip ends like one, too; only the outer one begins with the file.
    return min(starts, default=-1) == 0 and all(_reads(file, at, b"PK\3\4") for at in starts)


def _reads(file: BinaryIO, at: int, expected: bytes) -> bool:
    file.seek(at)
    return file.read(len(expected)) == expected


def _is_whole_hdf5(file: BinaryIO, size: int) -> bool:
    block = file.read(64)
    version = block[8] if len(block) == 64 else None
    if version in (0, 1):
        width, end = block[13], 24 + 4 * version + 2 * block[13]
    elif version in (2, 3):
        # Bit 0 of the flags stands while a writer has the file open, and after it was killed.
        if block[11] & 1:
            return False
        width, end = block[9], 12 + 2 * block[9]
    else:
        return False
    return int.from_bytes(block[end : end + width], "little") <= size


def _is_whole_pickles(file: BinaryIO, size: int) -> bool:
    import pickletools

    try:
        while file.tell() < size:
            for _ in pickletools.genops(file):
                pass  # reads up to the STOP, and runs nothing
    except (ValueError, IndexError):
        return False
    return True


def _is_whole_legacy_torch(file: BinaryIO) -> bool:
    """Five pickles (magic number, protocol, system, object, keys), then every storage in turn."""
    import pickle

    element_bytes: dict[str, int] = {}

    class StorageReader(pickle.Unpickler):
        """Notes the storages that an object refers to; finds no class, so nothing is run."""

        def find_class(self, module: str, name: str) -> Any:  # noqa: ARG002 - pickle's signature
            return type(name, (_Inert,), {})

        def persistent_load(self, reference: Any) -> Any:
            if reference[0] == "storage":
                kind = reference[1].__name__.replace("Storage", "")
                element_bytes[reference[2]] = _ELEMENT_BYTES[kind]
            return _Inert

    try:
        *_, keys = [StorageReader(file).load() for _ in range(5)]
        end = file.tell()
        for key in keys:
            file.seek(end)
            count = file.read(8)
            end += 8 + int.from_bytes(count, "little") * element_bytes[key]
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError, AttributeError):
        return False
    return end == file.seek(0, os.SEEK_END)


class _Inert:
    """Stands for any object of a pickle: takes whatever is done to it, and does nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = __init__


def _is_whole_folder(path: str) -> bool:
    if _TEMPORARY.fullmatch(own_name(path)):
        return False
    holds_data = False
    for folder, subfolders, names in os.walk(path, onerror=_raise):
        present = set(names)
        if any(map(_TEMPORARY.fullmatch, [*subfolders, *names])) or _missing(folder, present):
            return False
        for name in names:
            file = os.path.join(folder, name)
            checked = has_checkpoint_extension(name) or SHARE.fullmatch(name)
            if checked and not _is_whole_file(file):
                return False
            holds_data = holds_data or os.path.getsize(file) > 0
    return holds_data


def _missing(folder: str, present: set[str]) -> bool:
    """Whether something that the files of a folder name, or bring along, is not there."""
    needed: set[str] = set()
    for name in present:
        shard = _SHARD.fullmatch(name)
        if shard:
            stem, number, of, count, extension = shard.groups()
            every = range(1, int(count) + 1) if int(count) < 100_000 else ()
            needed.update(f"{stem}{n:0{len(number)}}{of}{count}{extension}" for n in every)
        elif name.endswith(".distcp"):
            needed.add(".metadata")  # written last, and renamed into place
        elif name == "training_args.bin":
            needed.add("trainer_state.json")  # Hugging Face's trainer writes it last
        elif name.endswith(".index.json"):
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    needed.update(json.load(file)["weight_map"].values())
            except (ValueError, KeyError, TypeError, AttributeError):
                return True
    return not needed <= present


def _raise(error: OSError) -> None:
    raise error
