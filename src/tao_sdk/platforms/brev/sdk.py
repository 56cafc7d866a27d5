"""BrevSDK: jobs on instances of NVIDIA Brev."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk.job_states import JobState
from tao_sdk.job_store import decode
from tao_sdk.platforms.brev.ledger import IN_USE, KEPT, Ledger
from tao_sdk.platforms.brev.options import BrevOptions, check_word
from tao_sdk.platforms.brev.parse import cost
from tao_sdk.platforms.capabilities import Leftovers
from tao_sdk.platforms.sdk import PlatformSDK

# Loaded by the first call that needs them.
if TYPE_CHECKING:
    from tao_sdk.job_store import JobStore
    from tao_sdk.platforms.brev.backend import BrevBackend
    from tao_sdk.platforms.brev.instances import InstanceProgress, Listener

_log = logging.getLogger("tao_sdk.brev")


class BrevSDK(PlatformSDK):
    """Launch, watch, explain and stop jobs on instances of Brev.

    Needs the program `brev`, logged in (`brev login`) or given an API key (BREV_API_TOKEN).
    `on_progress` is called while an instance is being made.
    """

    platform = "brev"
    options_type = BrevOptions
    backend: BrevBackend

    def __init__(
        self,
        poll_interval: float = 30,
        epoch_milestone_interval: int = 10,
        state_file: str | Path | None = None,
        *,
        on_progress: Listener | None = None,
        store: JobStore | None = None,
        attend: bool = True,
    ) -> None:
        super().__init__(
            poll_interval, epoch_milestone_interval, state_file, store=store, attend=attend
        )
        self._on_progress = on_progress or _log_progress

    def reconcile(self) -> list[str]:
        """Settle what killed clients left: half-submitted jobs, and instances without a job."""
        settled = super().reconcile()
        self.backend.tend(self._unwatched())
        return settled

    def leftovers(self) -> Leftovers:
        """Instances that no job needs: those to be given back now, and those that are kept."""
        unwatched = self._unwatched()
        due, kept = [], []
        for entry in self._ledger.entries():
            price = cost(entry.price)
            if entry.needs_attention or entry.name in unwatched:
                why = entry.overdue or entry.why or "its job is over"
                due.append(f"instance {entry.name} ({price}) is to be given back: {why}")
            elif entry.state == KEPT:
                kept.append(f"instance {entry.name} is kept ({price}): {entry.why}")
        return Leftovers(due, kept)

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.store.folder("brev") / "instances")

    def _unwatched(self) -> list[str]:
        """Instances whose jobs are over without any process having seen how they ended."""
        ledger = self._ledger
        in_use = [entry.name for entry in ledger.entries() if entry.state == IN_USE]
        if not in_use:
            return []
        open_states = [state.value for state in JobState if not state.terminal]
        rows = self.store.list_jobs(open_states, backend_type=self.platform, narrow=True)
        rows += self.store.jobs_to_clean(self.platform)
        used = {str(decode(row, "native").get("instance")) for row in rows}
        # The ledger again, and last: a job is cleaned up after only when its entry has changed.
        left = [ledger.get(name) for name in in_use if name not in used]
        return [entry.name for entry in left if entry is not None and entry.state == IN_USE]

    # ------------------------------------------------------------------ instances

    def list_instances(self) -> list[dict[str, Any]]:
        """Every instance of the account, with what this store knows of those that it ordered."""
        ledger = self.backend.instances.ledger
        found = []
        for instance in self.backend.instances.listed().values():
            entry = ledger.get(instance.name)
            found.append(
                {
                    "name": instance.name,
                    "id": instance.id,
                    "status": instance.status,
                    "type": instance.type,
                    "gpu": instance.gpu,
                    "job_id": entry.job_id if entry else "",
                    "price_per_hour": entry.price if entry else None,
                    "hours": round(entry.age_hours, 2) if entry else None,
                    "state": entry.state if entry else "",
                }
            )
        return found

    def delete_instance(self, instance_id: str) -> bool:
        """Delete an instance with everything on it; True also if there is none."""
        name = self._name_of(instance_id)
        if self.backend.instances.ledger.get(name) is not None:
            return self.backend.instances.discard(name, "deleted on request")
        self.backend.instances.delete(name)
        return True

    def stop_instance(self, instance_id: str) -> None:
        """Stop an instance: its jobs end, and its disk stays, which costs less."""
        self._change("stop", instance_id)

    def start_instance(self, instance_id: str) -> None:
        """Start an instance that was stopped. Returns before it runs."""
        self._change("start", instance_id)

    def _change(self, verb: str, asked: str) -> None:
        # The program makes a new instance of a name that it does not know, or says nothing.
        found = self.backend.instances.find(check_word("instance_id", asked), fresh=True)
        self.backend.transport.change(verb, found.name)

    def _name_of(self, asked: str) -> str:
        asked = check_word("instance_id", asked)
        for instance in self.backend.instances.listed().values():
            if asked in (instance.name, instance.id):
                return instance.name
        return asked

    # ------------------------------------------------------------------ inner workings

    def _make_backend(self) -> BrevBackend:
        from tao_sdk.platforms.brev.backend import BrevBackend

        return BrevBackend(self.store.folder("brev"), self._on_progress)


def _log_progress(progress: InstanceProgress) -> None:
    _log.info("%s", progress)
