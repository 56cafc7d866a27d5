"""What a failure in the middle of ordering instances leaves behind. Without Brev."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tao_sdk.platforms.backend import JobIdentity, Plan
from tao_sdk.platforms.brev.instances import Instances
from tao_sdk.platforms.brev.ledger import Entry, Ledger
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.brev.submit import Submitter


class FullDisk(Ledger):
    """Cannot record one of the orders."""

    def order(self, entry: Entry) -> bool:
        if entry.name == "tao-1":
            raise OSError(28, "No space left on device")
        return super().order(entry)


class Account:
    """Instances that are ready at once."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.ordered: list[str] = []
        self.discarded: list[str] = []

    def order(self, name: str, *_: object) -> None:
        self.ordered.append(name)

    def wait_until_ready(self, *_: object, **__: object) -> None:
        """They are."""

    def discard(self, name: str, *_: object, **__: object) -> bool:
        self.discarded.append(name)
        return True


def plan_for(number: int) -> Plan:
    name, offer = f"tao-{number}", SimpleNamespace(type="a", price=1.0)
    return Plan(
        identity=JobIdentity(f"job-{number}", "token"),
        platform="brev",
        request=cast("Any", SimpleNamespace(options=BrevOptions())),
        artefacts=(),
        intent={"instance": name, "ephemeral": True, "organization": ""},
        payload=([], SimpleNamespace(instance=name, offers=(offer,))),
    )


@pytest.mark.parametrize("count", [2, 12])
def test_an_order_that_cannot_be_recorded_stops_no_other(tmp_path: Path, count: int) -> None:
    account = Account(FullDisk(tmp_path))
    submitter = Submitter(cast("Instances", account), cast("Any", None))
    plans = [plan_for(number) for number in range(count)]
    caller = threading.Thread(target=submitter.provide, args=(plans,), daemon=True)
    caller.start()
    caller.join(20)
    assert not caller.is_alive(), "the caller waits for ever"
    assert len(account.ordered) == count - 1
    with pytest.raises(OSError, match="No space left"):
        submitter.submit(plans[1])
