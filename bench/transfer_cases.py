"""The runner's transfers beside s5cmd, boto3 and the reference, on the same server.

Processor time is reported beside the time: the client's by the kernel's account of the child, the
server's by what its process used meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from bench.harness import Case, Contender, Measurement, Result, Sample
from bench.place import Place
from bench.transfer_store import Data, Store
from bench.transfer_tools import Tool, everybody, packed_command, reference, s5cmd

DISTANCE_SECONDS = 0.020
CLIENT_CPU, SERVER_CPU = "client CPU (s)", "server CPU (s)"
OBJECTS = "objects"
LARGEST, TOGETHER = "largest process (MiB)", "all processes (MiB)"


def many_down(place: Place) -> AbstractContextManager[Case]:
    return _race(place, "down", Data(place.sizes.many, place.sizes.small))


def many_up(place: Place) -> AbstractContextManager[Case]:
    return _race(place, "up", Data(place.sizes.many, place.sizes.small))


def large_down(place: Place) -> AbstractContextManager[Case]:
    return _race(place, "down", Data(1, place.sizes.large))


def large_up(place: Place) -> AbstractContextManager[Case]:
    return _race(place, "up", Data(1, place.sizes.large))


def distant_down(place: Place) -> AbstractContextManager[Case]:
    return _distant_race(place, "down")


def distant_up(place: Place) -> AbstractContextManager[Case]:
    return _distant_race(place, "up")


def memory_of_many(place: Place) -> AbstractContextManager[Case]:
    return _memory(place, Data(place.sizes.very_many, place.sizes.tiny))


def memory_of_large(place: Place) -> AbstractContextManager[Case]:
    return _memory(place, Data(1, place.sizes.huge))


@contextmanager
def _race(place: Place, direction: str, data: Data) -> Iterator[Case]:
    with Store(place, data) as store:
        yield Case(
            f"{data} {direction}",
            "From the start of the process to its end. Everybody talks to the same rclone server.",
            [_contender(store, tool, direction, data) for tool in everybody(place)],
            rounds=place.sizes.rounds,
        )


@contextmanager
def _distant_race(place: Place, direction: str) -> Iterator[Case]:
    sizes = place.sizes
    data, few = Data(sizes.many, sizes.small), Data(sizes.few, sizes.small)
    away = f"{DISTANCE_SECONDS * 1000:.0f} ms"
    with Store(place, data, few, distance=DISTANCE_SECONDS) as store:
        yield Case(
            f"{data} {direction}, {away} away",
            f"As before, with {away} added to each request. The reference moves {few.count:,} of "
            "the objects; the target compares the times for one.",
            [
                _contender(store, packed_command(), direction, data),
                _contender(store, s5cmd(place.peers["s5cmd"]), direction, data),
                _contender(store, reference(place.peers["reference-runner"]), direction, few),
            ],
            rounds=sizes.rounds,
        )


@contextmanager
def _memory(place: Place, data: Data) -> Iterator[Case]:
    tools = [packed_command(), s5cmd(place.peers["s5cmd"])]
    with Store(place, data) as store:
        yield Case(
            f"memory: {data}",
            "The most memory at any moment: of the largest process (ru_maxrss), and of all "
            "processes of the tool together (looked up every 20 ms, shared pages counted once). "
            "The first time is longer by what the server takes to hash everything once.",
            [
                replace(
                    _contender(store, tool, direction, data, watches_memory=True),
                    name=f"{tool.name}, {direction}",
                )
                for tool in tools
                for direction in ("down", "up")
            ],
            rounds=1,
            warm_ups=0,
        )


def _contender(
    store: Store, tool: Tool, direction: str, data: Data, watches_memory: bool = False
) -> Contender:
    transfer = store.down if direction == "down" else store.up

    def run() -> Sample:
        moved = transfer(tool, data, watches_memory)
        facts = {CLIENT_CPU: moved.client.processor_seconds, SERVER_CPU: moved.server_seconds}
        if watches_memory:
            facts = {LARGEST: moved.client.largest_mib, TOGETHER: moved.client.together_mib}
        return Sample(moved.client.seconds, {OBJECTS: data.count, **facts})

    return Contender(
        tool.name,
        run,
        tool.includes,
        tool.environment.peer,
        tool.environment.absent or store.absent,
    )


def limits(result: Result) -> list[str]:
    """Where the server, not the client, decided the time."""
    return [
        f"{one.name}: server-bound; {share:.0%} of all processor time there was went to the server"
        for one in result.measurements
        if (share := server_share(one)) > 0.5
    ]


def server_share(one: Measurement) -> float:
    """The part of the machine's processors that the server kept busy; 0 where there is none.

    Of the shortest run: there the least was taken by others.
    """
    processors = os.cpu_count() or 1
    return one.facts.get(SERVER_CPU, 0.0) / (one.minimum * processors)
