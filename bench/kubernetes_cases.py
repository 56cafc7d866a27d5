"""Jobs of the Kubernetes platform beside the reference's KubernetesSDK and the bare client.

On a cluster of the test lab that nobody else uses, over loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.child import run_process
from bench.driver import Driver
from bench.harness import Case, Contender, Sample
from bench.isolation import ISOLATED, clean_environment
from bench.kubernetes_bed import Bed, kubernetes_bed
from bench.peers import OURS, Environment
from bench.place import QUICK, Place

MANY, QUICK_MANY = 1000, 100
FEW, QUICK_FEW = 50, 10
"""So many are asked about one by one where all of them would take too long."""
QUIET_SECONDS, QUICK_QUIET_SECONDS = 20.0, 5.0
"""For how long those who wait are watched; they have waited for half of it before."""
DISTANCE_SECONDS = 0.02
CALLS, AT_SERVER, JOBS = "API calls", "at the server", "jobs"
_NO_CLUSTER = """
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: none}}]
"""


class _Process:
    """A process that makes calls of one SDK or client, and counts what it sends."""

    def __init__(
        self, place: Place, bed: Bed, environment: Environment, module: str, ending: ExitStack
    ) -> None:
        self.peer = environment.peer
        self.absent = bed.absent or environment.absent
        self.folder = place.folder / (environment.peer or "ours")
        self._driver = ending.enter_context(
            Driver(environment, module, self.folder, **bed.variables)
        )

    def prepare(self, call: str, **arguments: object) -> Any:
        """An answer, if it takes part."""
        return None if self.absent else self._driver.ask(call, **arguments)

    def sample(self, call: str, **arguments: object) -> Sample:
        told = self._driver.ask(call, **arguments)
        return Sample(told["seconds"], {CALLS: told["requests"]})

    def sample_of(self, jobs: int, call: str, **arguments: object) -> Sample:
        taken = self.sample(call, **arguments)
        return Sample(taken.seconds, {**taken.facts, JOBS: jobs})


class _Contenders:
    """Ours, the reference and the bare client, in the same namespace."""

    def __init__(self, place: Place, bed: Bed, ending: ExitStack) -> None:
        sdk, client = "with_kubernetes_sdk", "with_kubernetes_client"
        peers = place.peers
        self.ours = _Process(place, bed, OURS, sdk, ending)
        self.reference = _Process(place, bed, peers["reference-kubernetes"], sdk, ending)
        self.bare = _Process(place, bed, peers["kubernetes"], client, ending)


@contextmanager
def kubernetes_import(place: Place) -> Iterator[Case]:
    """Until a program could make its first request."""
    kubeconfig = place.folder / "kubeconfig"
    kubeconfig.write_text(_NO_CLUSTER, encoding="utf-8")
    kubeconfig.chmod(0o600)
    variables = clean_environment(place.folder, KUBECONFIG=str(kubeconfig))
    reference, client = place.peers["reference-kubernetes"], place.peers["kubernetes"]

    def program(environment: Environment, name: str, code: str) -> Contender:
        def run() -> Sample:
            command = [str(environment.python), ISOLATED, "-c", code]
            return Sample(run_process(command, place.folder, variables).seconds)

        return Contender(name, run, peer=environment.peer, absent=environment.absent)

    sdk = "from tao_sdk.platforms.kubernetes import KubernetesSDK"
    connect = "from kubernetes import client, config; config.load_kube_config()"
    yield Case(
        "Kubernetes: import",
        "A new interpreter that imports the package, makes a client where that is said, and ends. "
        "No cluster is asked.",
        [
            program(OURS, "KubernetesSDK", sdk),
            program(OURS, "KubernetesSDK, first client", f"{sdk}; KubernetesSDK().backend"),
            program(reference, "KubernetesSDK (the reference)", sdk),
            program(client, "import kubernetes.client", "import kubernetes.client"),
            program(client, "kubernetes.client, first client", f"{connect}; client.BatchV1Api()"),
        ],
        floor=program(OURS, "python -c pass", "pass"),
        rounds=3 if _is_quick(place) else 15,
    )


@contextmanager
def kubernetes_submit(place: Place) -> Iterator[Case]:
    """Until the call that submits one job returns."""
    with kubernetes_bed() as bed, ExitStack() as ending:
        here = _Contenders(place, bed, ending)
        if not bed.absent:
            bed.leave_jobs_alone()
        job = here.ours.prepare("planned_job")
        yield Case(
            "Kubernetes: submit",
            "Until the call that submits one job returns; connections are open. The controllers "
            "are stopped, so that nobody acts on the Jobs meanwhile.",
            [
                Contender(
                    "KubernetesSDK.create_job",
                    lambda: here.ours.sample("submit"),
                    includes="a row on disk before, and its confirmation after",
                    absent=here.ours.absent,
                ),
                Contender(
                    "KubernetesSDK.create_job (the reference)",
                    lambda: here.reference.sample("submit"),
                    peer=here.reference.peer,
                    absent=here.reference.absent,
                ),
                Contender(
                    "create_namespaced_job (the bare client)",
                    lambda: here.bare.sample("submit", job=job),
                    includes="a Job equal to ours",
                    peer=here.bare.peer,
                    absent=here.bare.absent,
                ),
            ],
            rounds=10 if _is_quick(place) else 60,
            warm_ups=3,
        )


@contextmanager
def kubernetes_refresh(place: Place) -> Iterator[Case]:
    """The states of many jobs that wait for a node: why, only their pods tell."""
    many, few = _many_and_few(place)
    with kubernetes_bed() as bed, ExitStack() as ending:
        here = _Contenders(place, bed, ending)
        made = _make_jobs(here, many, few)
        if not bed.absent:
            bed.wait_until_refused(made)
        yield _status_of(here, many, few, "wait for a node", pods=True, quick=_is_quick(place))


@contextmanager
def kubernetes_distant(place: Place) -> Iterator[Case]:
    """The same as `kubernetes_refresh`, where every request takes a while to get there."""
    many, few = _many_and_few(place)
    with kubernetes_bed() as near, ExitStack() as ending:
        bed = ending.enter_context(near.from_afar(DISTANCE_SECONDS, place.folder))
        here = _Contenders(place, bed, ending)
        made = _make_jobs(here, many, few)
        if not bed.absent:
            bed.wait_until_refused(made)
        what = f"wait for a node, {DISTANCE_SECONDS * 1000:.0f} ms away"
        yield _status_of(here, many, few, what, pods=True, quick=_is_quick(place))


@contextmanager
def kubernetes_running(place: Place) -> Iterator[Case]:
    """The states of many jobs that run."""
    many, few = _many_and_few(place)
    with kubernetes_bed() as bed, ExitStack() as ending:
        here = _Contenders(place, bed, ending)
        if not bed.absent:
            bed.add_nodes(many + few)
        made = _make_jobs(here, many, few)
        if not bed.absent:
            bed.start_pods(made)
        yield _status_of(here, many, few, "run", pods=False, quick=_is_quick(place))


@contextmanager
def kubernetes_watch(place: Place) -> Iterator[Case]:
    """What it costs to wait for many jobs while nothing happens to them."""
    quick = _is_quick(place)
    many, _ = _many_and_few(place)
    quiet = QUICK_QUIET_SECONDS if quick else QUIET_SECONDS
    with kubernetes_bed() as bed, ExitStack() as ending:
        ours = _Process(place, bed, OURS, "with_kubernetes_sdk", ending)
        ours.prepare("make_together", count=many)
        if not bed.absent:
            bed.wait_until_refused(many)

        def wait() -> Sample:
            ours.prepare("wait", settling=quiet / 2, quiet=quiet)
            before = bed.reads()
            taken = ours.sample_of(many, "be_quiet", quiet=quiet)
            at_server = bed.reads() - before
            ours.prepare("give_up")
            return Sample(taken.seconds, {**taken.facts, AT_SERVER: at_server})

        yield Case(
            f"Kubernetes: waiting for {many:,} jobs",
            f"Processor time that `wait_all` of {many:,} jobs takes in {quiet:.0f} s in which "
            "nothing happens, and what it asks the server for meanwhile, watches aside.",
            [Contender(f"wait_all of {many:,}", wait, absent=ours.absent)],
            rounds=1 if quick else 3,
            warm_ups=0,
        )


def _make_jobs(here: _Contenders, many: int, few: int) -> int:
    """For those who take part; how many there are."""
    here.ours.prepare("make_together", count=many)
    here.reference.prepare("make_each", count=few)
    return many if here.reference.absent else many + few


def _status_of(
    here: _Contenders, many: int, few: int, do_what: str, *, pods: bool, quick: bool
) -> Case:
    ours, reference, bare = here.ours, here.reference, here.bare
    lists = "Jobs and pods" if pods else "Jobs"
    floor = Contender(
        f"the lists of {lists}, not looked at", lambda: bare.sample("list_raw", pods=pods)
    )
    return Case(
        f"Kubernetes: status of {many:,} jobs that {do_what}",
        f"The reference, which asks about one job at a time, does it for {few} among them; the "
        "target compares the times for one.",
        [
            Contender(
                f"get_statuses of {many:,}",
                lambda: ours.sample_of(many, "ask_together"),
                includes="the cluster told of changes before, as it does of whoever asks often",
                absent=ours.absent,
            ),
            Contender(
                f"get_statuses of {many:,}, first call",
                lambda: ours.sample_of(many, "ask_anew"),
                includes="a client that knows nothing yet: configuration, connection, lists",
                absent=ours.absent,
            ),
            Contender(
                f"{few} x get_job_status (the reference)",
                lambda: reference.sample_of(few, "ask_each"),
                peer=reference.peer,
                absent=reference.absent,
            ),
            Contender(
                f"the lists of {lists} as objects (the bare client)",
                lambda: bare.sample_of(many, "list_parsed", pods=pods),
                peer=bare.peer,
                absent=bare.absent,
            ),
        ],
        floor=None if bare.absent else floor,
        rounds=3 if quick else 7,
        warm_ups=2,  # who asks for the second time begins to be told
    )


def _many_and_few(place: Place) -> tuple[int, int]:
    return (QUICK_MANY, QUICK_FEW) if _is_quick(place) else (MANY, FEW)


def _is_quick(place: Place) -> bool:
    return place.sizes == QUICK
