"""A server with data on it, and single transfers from and to it, measured and looked after."""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from bench.child import Cost, run_process
from bench.isolation import clean_environment
from bench.place import GIB, KIB, MIB, Place
from bench.transfer_servers import BUCKET, Server, at_a_distance, rclone_server
from bench.transfer_tools import Call, Tool

_FOLDERS = 10
_BLOCK = MIB


@dataclass(frozen=True)
class Data:
    """So many files of so many bytes each, in folders of a hundred or so."""

    count: int
    size: int

    def __str__(self) -> str:
        unit, name = next(
            (unit, name)
            for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "bytes"))
            if self.size >= unit
        )
        return f"{self.count:,} x {self.size / unit:g} {name}"

    @property
    def label(self) -> str:
        """As the name of a folder."""
        return f"data-{self.count}x{self.size}"

    def write(self, folder: Path) -> None:
        """Random bytes: no file system may save itself the work."""
        for number in range(self.count):
            path = folder / f"part-{number % _FOLDERS}" / f"{number:06}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                for start in range(0, self.size, _BLOCK):
                    file.write(os.urandom(min(_BLOCK, self.size - start)))

    def check(self, folder: Path) -> None:
        """Everything must be there; that it is right is for the tests of the runner."""
        sizes = [path.stat().st_size for path in folder.rglob("*.bin")]
        if sizes != [self.size] * self.count:
            raise AssertionError(f"{len(sizes)} files, {sum(sizes)} bytes instead of {self}")


class Moved(NamedTuple):
    """What a transfer cost on both sides."""

    client: Cost
    server_seconds: float


class Store:
    """An object store in the folder of a case, filled and started by the first transfer.

    Filled first: the server remembers what was in a folder.
    """

    def __init__(self, place: Place, *data: Data, distance: float = 0.0) -> None:
        self._place, self._data, self._distance = place, data, distance
        self._stack = ExitStack()
        self._running: Server | None = None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def absent(self) -> str:
        """Why there can be none."""
        return self._place.peers["rclone"].absent

    def down(self, tool: Tool, data: Data, watches_memory: bool = False) -> Moved:
        """Bring the data to an empty folder."""
        server = self._server()
        home = self._home()
        target = home / "down"
        call = tool.down(f"{data.label}/", target)
        moved = self._measure(server, call, home, watches_memory)
        data.check(target)
        self._clear(home, data)
        return moved

    def up(self, tool: Tool, data: Data, watches_memory: bool = False) -> Moved:
        """Bring the data to a prefix where nothing is."""
        server = self._server()
        source = server.bucket / data.label
        home = self._home()
        prefix = f"results/{uuid.uuid4().hex}"
        call = tool.up(source, f"{prefix}/")
        moved = self._measure(server, call, home, watches_memory)
        data.check(server.bucket / prefix / source.name)
        self._clear(server.bucket / prefix, data)
        self._clear(home, data)
        return moved

    def _server(self) -> Server:
        if self._running is None:
            folder, rclone = self._place.folder, self._place.peers["rclone"]
            store = folder / "store"
            for data in self._data:
                data.write(store / BUCKET / data.label)
            self._running = self._stack.enter_context(rclone_server(rclone, store, folder))
            if self._distance:
                self._running = self._stack.enter_context(
                    at_a_distance(self._running, self._distance, folder)
                )
        return self._running

    def _clear(self, folder: Path, data: Data) -> None:
        """One large file at once; many small ones when nobody is measured any more.

        For some seconds ext4 passes over the inodes of removed files, one by one: whoever makes a
        thousand files after somebody removed a thousand pays half a second for it.
        """
        if data.count == 1:
            shutil.rmtree(folder)
        else:
            self._stack.callback(shutil.rmtree, folder)

    def _home(self) -> Path:
        """Where one child works."""
        home = self._place.folder / f"child-{uuid.uuid4().hex}"
        home.mkdir()
        return home

    def _measure(self, server: Server, call: Call, home: Path, watches_memory: bool) -> Moved:
        variables = {**clean_environment(home, **server.variables()), **call.variables}
        before = server.processor_seconds()
        cost = run_process(call.command, home, variables, watches_memory=watches_memory)
        return Moved(cost, server.processor_seconds() - before)
