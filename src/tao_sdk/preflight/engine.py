"""Runs every check of a launch, side by side, and reports as they come."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import TaoError
from tao_sdk.preflight.checks import FAILED, Check, Task, failed, presentable, skipped
from tao_sdk.preflight.credentials import model_credential_checks
from tao_sdk.preflight.data import unknown_labels
from tao_sdk.preflight.flags import with_flag
from tao_sdk.preflight.request import PreflightRequest
from tao_sdk.preflight.stores import store_tasks
from tao_sdk.secrets import Secret
from tao_sdk.skills.platform_manifest import describe_platform, find_platform, platform_manifest
from tao_sdk.skills.skill_bank import SkillBank

_AT_ONCE = 12
Listener = Callable[[Check], None]


@dataclass(frozen=True)
class PreflightReport:
    """All findings, in an order that does not depend on what came first."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status == FAILED)

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "checks": [check.as_json() for check in self.checks]}


def run_preflight(
    request: PreflightRequest, bank: SkillBank, on_check: Listener | None = None
) -> PreflightReport:
    """Look at everything that a launch needs; nothing that is made for it remains.

    `on_check` hears of each finding as it comes, in this thread. Raises `MissingNameError` for a
    platform that the bank does not have; whatever else goes wrong is a finding.
    """
    record = find_platform(platform_manifest(bank), request.platform)
    described = describe_platform(bank, request.platform)
    tasks = [
        *platform_tasks(request, record, described),
        Task("model_credentials", partial(model_credential_checks, request.model_credentials)),
        *store_tasks(request),
        Task("labels", partial(unknown_labels, request)),
    ]
    secrets = [*settings.known_secrets(), *_values(request.model_credentials)]
    return PreflightReport(tuple(_run(tasks, secrets, on_check or (lambda _: None))))


def _values(names: Iterable[str]) -> list[Secret]:
    """Values of variables: only its skill knows the names of a model's credentials."""
    environment = settings.process_environment()
    return [Secret(environment[name]) for name in names if environment.get(name)]


def platform_tasks(
    request: PreflightRequest, record: Mapping[str, Any], described: Mapping[str, Any]
) -> list[Task]:
    """What is looked at on the platform of this record."""
    # A platform is loaded when it is looked at: some need packages that others do without.
    kind = str(record.get("backend_type") or record["name"])
    if kind == "slurm":
        from tao_sdk.preflight.slurm import slurm_tasks

        return slurm_tasks(request, described)
    if kind in ("local-docker", "docker"):
        from tao_sdk.preflight.docker import docker_tasks

        needed = {entry["name"] for entry in described["required_credentials"]}
        return docker_tasks(request, described, must_be_remote="DOCKER_HOST" in needed)
    if kind == "kubernetes":
        from tao_sdk.preflight.kubernetes import kubernetes_tasks

        return kubernetes_tasks(request, described)
    if kind == "brev":
        from tao_sdk.preflight.brev import brev_tasks

        return brev_tasks(request, described)
    if kind == "lepton":
        from tao_sdk.preflight.lepton import lepton_tasks

        return lepton_tasks(request, described)
    if kind == "local":
        from tao_sdk.preflight.local import local_tasks

        return local_tasks(request, described)
    return _other_tasks(request, described, kind)


def _other_tasks(request: PreflightRequest, described: Mapping[str, Any], kind: str) -> list[Task]:
    """A platform of the bank that the SDK does not know: its access cannot be proven."""
    from tao_sdk.preflight.credentials import credential_checks
    from tao_sdk.preflight.gpus import gpu_checks
    from tao_sdk.preflight.paths import mount_tasks, unsupported_tasks

    name = described["platform"]
    unproven = (
        skipped("access", "not asked: platform access is skipped")
        if request.skip_platform_access
        else failed(
            "access",
            f"the SDK does not know how to reach a platform of the kind {kind!r}",
            "Prove the access by hand"
            + (
                with_flag("; {} then leaves it out.", request.flags.skip_platform_access)
                or ", and use tao-sdk run: a launch needs access that it can see."
            ),
        )
    )
    return [
        Task("credentials", partial(credential_checks, described)),
        Task("access", lambda: [unproven]),
        Task("gpu", partial(gpu_checks, request, None)),
        *mount_tasks(request, name),
        *unsupported_tasks(request),
    ]


def _failure(task: Task, error: Exception) -> Check:
    """A task that could not go on."""
    if isinstance(error, TaoError):  # its message says what to do
        return failed(task.name, str(error), "See to that, then run this again.")
    return failed(
        task.name,
        f"the check itself failed: {type(error).__name__}: {error}",
        "This may be a mistake in the SDK: please report it.",
    )


def _run(tasks: list[Task], secrets: list[Secret], on_check: Listener) -> Iterator[Check]:
    """The findings of all tasks in the order of the tasks, once all are there."""
    told: queue.SimpleQueue[tuple[int, Check | None]] = queue.SimpleQueue()
    found: list[list[Check]] = [[] for _ in tasks]

    def work(number: int, task: Task) -> None:
        try:
            for check in task.run():
                told.put((number, presentable(check, secrets)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the launch is not proven
            told.put((number, presentable(_failure(task, error), secrets)))
        finally:
            told.put((number, None))

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tao-preflight") as pool:
        for number, task in enumerate(tasks):
            pool.submit(work, number, task)
        running = len(tasks)
        try:
            while running:
                number, check = told.get()
                if check is None:
                    running -= 1
                    continue
                found[number].append(check)
                on_check(check)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # those that have begun clean up
            raise
    return (check for checks in found for check in checks)
