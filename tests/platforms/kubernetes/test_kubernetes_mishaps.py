"""What goes wrong beside the beaten track: few rights, lost answers, words of the machinery."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from api_server import (
    ApiServer,
    Certificates,
    Handler,
    HangUpError,
    Request,
    answer,
    encoded,
    failure,
    kubeconfig,
    says,
)
from kubernetes_objects import JOB_ID, TOKEN, job, objects, pod, request
from kubernetes_sdk import asked, isolate, message_of, pods_of, started

from lab.kubernetes import ADMIN, Namespace
from lab.kubernetes.fake_nodes import SELECTOR
from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    SubmissionRejectedError,
    ValidationError,
)
from tao_sdk.job_states import JobState
from tao_sdk.models import Job
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK, plan
from tao_sdk.platforms.kubernetes import cleanup as cleanup_module
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.cleanup import Cleanup
from tao_sdk.platforms.kubernetes.client import KubernetesClient
from tao_sdk.platforms.kubernetes.log_lines import START, Position, TimedLines
from tao_sdk.platforms.kubernetes.logs import JobLogs, RankLog
from tao_sdk.platforms.kubernetes.status import interpret, needs_running_pods
from tao_sdk.platforms.kubernetes.submit import Submitter
from tao_sdk.platforms.logs import LogStream

_RIGHTS = "/apis/rbac.authorization.k8s.io/v1/namespaces"
# As a careful administrator gives them: jobs, and the logs of their pods.
_FEW = {
    ("batch", "jobs"): ["create", "get", "list", "watch", "delete"],
    ("", "pods/log"): ["get"],
}


def with_rights(namespace: Namespace, rights: dict[tuple[str, str], list[str]]) -> Path:
    """The kubeconfig of somebody who may do nothing but this."""
    metadata = {"name": "few"}
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        for (group, resource), verbs in rights.items()
    ]
    role = {"kind": "Role", "metadata": metadata, "rules": rules}
    config = namespace.service_account("few", role="")
    namespace.api.create(f"{_RIGHTS}/{namespace.name}/roles", role)
    binding = {
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "few"},
        "subjects": [{"kind": "ServiceAccount", "name": "few", "namespace": namespace.name}],
    }
    namespace.api.create(f"{_RIGHTS}/{namespace.name}/rolebindings", binding)
    return config


@pytest.fixture
def of_few_rights(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    isolate(monkeypatch, with_rights(played, _FEW))
    with KubernetesSDK(state_file=tmp_path / "state.json") as sdk:
        yield sdk


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Played:
    """An API server that says what a test wants."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.certificates = certificates
        self._folder = folder
        self.server: ApiServer | None = None
        self.api: KubernetesClient | None = None

    def answers(self, handler: Handler, monkeypatch: pytest.MonkeyPatch) -> KubernetesClient:
        self.server = ApiServer(self.certificates, handler)
        authority = {"certificate-authority-data": encoded(self.certificates.authority)}
        path = self._folder / "config"
        kubeconfig(path, self.server.url, {"token": "canary"}, authority)
        isolate(monkeypatch, path)
        self.api = KubernetesClient(ClusterAccess.find())
        return self.api

    def close(self) -> None:
        if self.api is not None:
            self.api.close()
        if self.server is not None:
            self.server.close()


@pytest.fixture
def server(tmp_path: Path, certificates: Certificates) -> Iterator[Played]:
    made = Played(tmp_path, certificates)
    yield made
    made.close()


def submitted(sdk: KubernetesSDK, **keywords: Any) -> Job:
    """Roles take a moment to be in force."""
    found: list[Job] = []

    def attempt() -> bool:
        try:
            found.append(sdk.create_job(**asked(**keywords)))
        except SubmissionRejectedError as error:
            if "cannot create resource" not in str(error):
                raise
        return bool(found)

    eventually(attempt)
    return found[0]


class TestFewRights:
    """Who may make Jobs and read logs, and see neither pods nor events."""

    def test_the_end_of_a_job_is_told(
        self, of_few_rights: KubernetesSDK, played: Namespace
    ) -> None:
        played.nodes.add("one")
        job = submitted(of_few_rights)
        [pod] = pods_of(played, job)
        assert job.refresh().status == "Pending"
        assert "you may not list pods" in message_of(job)
        played.nodes.start(pod)
        eventually(lambda: job.refresh().status == "Running")
        played.nodes.finish(pod, 3)
        eventually(lambda: job.refresh().status == "Error")

    def test_a_job_can_be_cancelled(self, of_few_rights: KubernetesSDK, played: Namespace) -> None:
        job = submitted(of_few_rights)
        assert job.cancel()
        assert job.refresh().status == "Canceled"
        eventually(lambda: not played.api.get(played.jobs)["items"])


def test_a_refusal_is_told_also_where_its_job_cannot_be_removed(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to make Secrets, and to delete Jobs."""
    isolate(monkeypatch, with_rights(played, {("batch", "jobs"): ["create", "get", "list"]}))
    with KubernetesSDK(state_file=tmp_path / "state.json") as sdk:
        submitted(sdk)  # the role is in force
        with pytest.raises(SubmissionRejectedError, match=r"secrets.*kubectl delete job") as told:
            sdk.create_job(**asked(env_vars={"A": "canary-value-1"}))
        assert "canary-value-1" not in str(told.value)
        assert [row["status"] for row in sdk.store.list_jobs(status="Error")] == ["Error"]
    waiting = [one for one in played.api.get(played.jobs)["items"] if one["spec"]["suspend"]]
    assert len(waiting) == 1  # nobody lets it start


class TestOverlay:
    def test_the_guard_looks_at_the_pod_as_it_will_be(
        self, played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        played.nodes.add("big", gpus=8)
        isolate(monkeypatch, played.kubeconfig(ADMIN))
        named: dict[str, Any] = {"image": "trainer:1", "command": "true", "gpu_count": 8}
        with KubernetesSDK(state_file=tmp_path / "state.json") as sdk:
            elsewhere = {"spec": {"template": {"spec": {"nodeSelector": {"no": "where"}}}}}
            with pytest.raises(CapacityError, match="no=where"):
                sdk.plan(**named, overlay=elsewhere)
            here = {"spec": {"template": {"spec": {"nodeSelector": {"no": None}}}}}
            selector = {SELECTOR: played.name, "no": "where"}
            assert sdk.plan(**named, node_selector=selector, overlay=here)


RUNNING = pod(phase="Running", state={"running": {"startedAt": "2026-04-20T09:00:01Z"}})


class TestBeingStopped:
    """The counts of a Job that is being deleted are not updated any more: its pods show it."""

    @pytest.mark.parametrize(
        ("counts", "pods", "state"),
        [
            ({"active": 1, "ready": 1}, [], JobState.RUNNING),
            ({"active": 1, "ready": 0}, [RUNNING], JobState.RUNNING),
            ({"terminating": 1}, [RUNNING], JobState.RUNNING),
            ({"active": 2, "ready": 0}, [RUNNING, pod()], JobState.RUNNING),
            ({"active": 1, "ready": 0}, [pod()], JobState.PENDING),
            ({"active": 1, "ready": 0}, [], JobState.PENDING),
            ({"terminating": 1}, None, JobState.RUNNING),
            ({}, [], JobState.PENDING),
        ],
    )
    def test_it_runs_as_long_as_a_pod_does(
        self, counts: dict[str, int], pods: list[Any] | None, state: JobState
    ) -> None:
        going = job(status=counts, deletionTimestamp="2026-04-20T09:05:00Z")
        assert interpret(going, pods).state is state
        assert needs_running_pods(going) == (bool(counts) and not counts.get("ready"))


def environment(**keywords: Any) -> dict[str, str]:
    container = objects(**keywords).job["spec"]["template"]["spec"]["containers"][0]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_parts_of_gpus_are_not_hidden() -> None:
    """A pod's own variables win over those that a device plugin sets for what it hands out."""
    assert environment()["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert environment(resources={"rdma/hca": 1})["NVIDIA_VISIBLE_DEVICES"] == "void"
    for part in ("nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"):
        assert "NVIDIA_VISIBLE_DEVICES" not in environment(resources={part: 1})


def test_a_value_that_no_program_can_be_given() -> None:
    """The kernel takes at most 128 KiB for one variable."""
    plan.refuse_impossible(request(env_vars={"A": "x" * (131_072 - len("A=") - 1)}))
    with pytest.raises(ValidationError, match=r"env_vars\.A.*131,072"):
        plan.refuse_impossible(request(env_vars={"A": "x" * (131_072 - len("A="))}))


@pytest.mark.parametrize("keywords", [{"labels": {"a": "é"}}, {"node_selector": {"aéa": "b"}}])
def test_letters_that_no_label_can_have(keywords: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="é"):
        request(**keywords)


class TestWordsOfTheNode:
    """In the midst of a log, kubelets complain without a time: a log file is gone, say."""

    COMPLAINT = "unable to retrieve container logs for containerd://0a1b"

    def test_they_are_shown_whole(self) -> None:
        [line] = TimedLines(START, 1000).feed(f"{self.COMPLAINT}\n".encode())
        assert line.text == self.COMPLAINT

    def test_reading_goes_on_behind_them(self) -> None:
        first, second = "2026-04-20T09:00:01.500000000Z", "2026-04-20T09:00:01.600000000Z"
        log = f"{first} one\n{self.COMPLAINT}\n"
        place = START
        for line in TimedLines(place, 1000).feed(log.encode()):
            place = place.after(line.time)
        again = Position.parse(str(Position("p", place))).place
        found = TimedLines(again, 1000).feed(f"{log}{second} two\n".encode())
        assert "two" in [line.text for line in found]
        assert "one" not in [line.text for line in found]

    def test_a_follower_gets_them_at_the_end(
        self, server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = {"terminated": {"startedAt": "2026-04-20T09:00:00Z"}}
        listed = answer({"items": [pod(phase="Failed", state=state)]})

        def node(seen: Request, connection: ssl.SSLSocket) -> None:
            found = answer(f"{self.COMPLAINT}\n".encode())
            connection.sendall(found if "/log" in seen.target else listed)

        api = server.answers(node, monkeypatch)
        logs = JobLogs(api, JobFiles(tmp_path / "kept"), ended(JOB_ID))
        stream = LogStream([RankLog(logs, 0)], has_ended=lambda: True)
        assert list(stream) == [self.COMPLAINT]

    def test_a_long_line_is_cut_behind_its_time(self) -> None:
        time = "2026-04-20T09:00:01.500000000Z"
        found = TimedLines(START, 100).feed(f"{time} {'x' * 250}\n".encode())
        assert "".join(line.text for line in found) == "x" * 250


BUSY_QUOTA = failure(
    409,
    "Conflict",
    'Operation cannot be fulfilled on resourcequotas "limit": the object has been modified',
)


class TestManyAtOnceUnderAQuota:
    """A quota that many count against at once answers 409, and nothing was made."""

    def test_the_job_is_asked_for_again(
        self, server: Played, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = objects().job
        api = server.answers(says(BUSY_QUOTA, BUSY_QUOTA, answer(made)), monkeypatch)
        assert Submitter(api).create_job(made) == made

    def test_what_belongs_to_it_as_well(
        self, server: Played, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked_for = objects(env_vars={"A": "b"})
        job = {**asked_for.job, "metadata": {**asked_for.job["metadata"], "uid": "u"}}
        api = server.answers(says(BUSY_QUOTA, answer({"kind": "Secret"})), monkeypatch)
        Submitter(api).create_companion(job, *asked_for.companions[0])
        assert server.server is not None
        assert len(server.server.targets("/secrets")) == 2

    def test_a_quota_that_stays_busy_is_called_that(
        self, server: Played, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        api = server.answers(says(BUSY_QUOTA), monkeypatch)
        with pytest.raises(SubmissionRejectedError, match="resourcequotas"):
            Submitter(api).create_job(objects().job)

    def test_a_name_that_is_taken_is_asked_for_once(
        self, server: Played, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = failure(409, "AlreadyExists", 'jobs.batch "x" already exists')
        api = server.answers(says(taken, answer(objects().job)), monkeypatch)
        with pytest.raises(BackendUnreachableError, match="is taken"):
            Submitter(api).create_job(objects().job)
        assert server.server is not None
        assert [seen.method for seen in server.server.requests] == ["POST", "GET"]


TIME = "2026-04-20T09:00:01.500000000Z"
ENDED = pod(
    phase="Succeeded",
    state={"terminated": {"startedAt": TIME, "finishedAt": TIME, "exitCode": 0}},
)


def ended(job_id: str) -> JobRef:
    return JobRef(JobIdentity(job_id, TOKEN), {"namespace": "lab", "results": ""}, "")


class TestCleanup:
    """An attending process saves the logs of ended jobs and sweeps their namespace."""

    @pytest.fixture
    def files(self, tmp_path: Path) -> JobFiles:
        return JobFiles(tmp_path / "files")

    def cleanup(
        self,
        server: Played,
        files: JobFiles,
        monkeypatch: pytest.MonkeyPatch,
        log: bytes,
        **listed: bytes,
    ) -> Cleanup:
        """In a cluster with one ended pod, which answers with this log."""

        def node(seen: Request, connection: ssl.SSLSocket) -> None:
            if "/log" in seen.target:
                connection.sendall(log)
                return
            resource = seen.target.partition("?")[0].rpartition("/")[2]
            answers = {
                "pods": answer({"items": [ENDED]}),
                **listed,
            }
            connection.sendall(answers.get(resource, answer({"items": []})))

        api = server.answers(node, monkeypatch)
        return Cleanup(api, files)

    @pytest.mark.parametrize(("lines", "is_all"), [(2, True), (3, False)])
    def test_a_log_that_is_not_saved_whole_says_so(
        self,
        server: Played,
        files: JobFiles,
        monkeypatch: pytest.MonkeyPatch,
        lines: int,
        is_all: bool,
    ) -> None:
        monkeypatch.setattr(cleanup_module, "_LINES", 3)
        written = "".join(f"{TIME} line {n}\n" for n in range(lines))
        cleanup = self.cleanup(server, files, monkeypatch, answer(written.encode()))
        assert cleanup.advance([ended(JOB_ID)]) == [JOB_ID]
        [text] = [path.read_text() for path in files.named(JOB_ID, ".log").values()]
        assert text.startswith(written)
        assert ("its last 3 lines" not in text) == is_all
        assert server.server is not None
        assert "tailLines=3" in server.server.targets("/log")[0]

    def test_a_log_that_breaks_off_is_saved_by_a_later_attempt(
        self, server: Played, files: JobFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = answer(f"{TIME} line 0\n{TIME} line 1\n".encode())
        logs = [whole[:-7], whole]

        def node(seen: Request, connection: ssl.SSLSocket) -> None:
            if "/log" in seen.target:
                log = logs.pop(0)
                connection.sendall(log)
                if log is not whole:
                    raise HangUpError
                return
            is_pods = seen.target.partition("?")[0].endswith("/pods")
            connection.sendall(answer({"items": [ENDED] if is_pods else []}))

        cleanup = Cleanup(server.answers(node, monkeypatch), files)
        assert cleanup.advance([ended(JOB_ID)]) == [], "there is still something to do"
        assert not files.named(JOB_ID, ".log"), "the cluster still has the whole log"
        assert cleanup.advance([ended(JOB_ID)]) == [JOB_ID]
        [text] = [path.read_text() for path in files.named(JOB_ID, ".log").values()]
        assert text.endswith("line 1\n")

    def test_last_lines_of_many_pods_share_one_limit_of_time(
        self, server: Played, files: JobFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = [100.0]
        joined = []

        class Follower:
            """A thread that does not end."""

            def join(self, seconds: float) -> None:
                joined.append(seconds)
                clock[0] += seconds

        cleanup = self.cleanup(server, files, monkeypatch, answer(b""))
        cleanup._following[JOB_ID] = [cast("threading.Thread", Follower()) for _ in range(9)]
        watch = SimpleNamespace(monotonic=lambda: clock[0])
        monkeypatch.setattr(cleanup_module, "time", watch)
        cleanup.advance([ended(JOB_ID)])
        assert joined == [cleanup_module._LAST_LINES_SECONDS, *[0.0] * 8]

    def test_a_saved_log_is_not_read_again(
        self, server: Played, files: JobFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cleanup = self.cleanup(server, files, monkeypatch, answer(b""))
        assert cleanup.advance([ended(JOB_ID)]) == cleanup.advance([ended(JOB_ID)]) == [JOB_ID]
        assert server.server is not None
        assert len(server.server.targets("/log")) == 1

    @pytest.mark.parametrize(
        "refusal",
        [
            failure(403, "Forbidden", "cannot get resource pods/log"),
            failure(500, "InternalError", "dial tcp 10.0.0.7:10250: no route to host"),
        ],
    )
    def test_a_log_that_the_cluster_cannot_serve_is_given_up(
        self, server: Played, files: JobFiles, monkeypatch: pytest.MonkeyPatch, refusal: bytes
    ) -> None:
        cleanup = self.cleanup(server, files, monkeypatch, refusal)
        assert cleanup.advance([ended(JOB_ID)]) == [JOB_ID]
        assert not files.named(JOB_ID, ".log")

    def test_a_cluster_that_is_away_is_asked_again(
        self, server: Played, files: JobFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        away = failure(503, "ServiceUnavailable", "the server is starting")
        cleanup = self.cleanup(server, files, monkeypatch, answer(b""), pods=away)
        assert cleanup.advance([ended(JOB_ID)]) == []

    @pytest.mark.parametrize(
        ("ended_at", "is_removed"),
        [("2026-04-20T09:00:00Z", True), ("2099-01-01T00:00:00Z", False), ("", False)],
    )
    def test_an_ended_train_job_goes_after_its_time(
        self,
        server: Played,
        files: JobFiles,
        monkeypatch: pytest.MonkeyPatch,
        ended_at: str,
        is_removed: bool,
    ) -> None:
        """Kubernetes has no time to live for it, and its Secret goes with it."""
        root = objects(kind="trainjob").root
        root["metadata"] |= {"uid": "u", "resourceVersion": "7"}
        if ended_at:
            condition = {"type": "Complete", "status": "True", "lastTransitionTime": ended_at}
            root["status"] = {"conditions": [condition]}
        del root["metadata"]["labels"]["tao-sdk-submitting"]
        trainjobs = answer({"items": [root]})
        self.cleanup(server, files, monkeypatch, answer(b""), trainjobs=trainjobs).advance(
            [ended(JOB_ID)]
        )
        assert server.server is not None
        removed = [seen.target for seen in server.server.requests if seen.method == "DELETE"]
        assert len(removed) == is_removed
        assert all(f"/trainjobs/tao-job-{JOB_ID}" in target for target in removed)

    def test_logs_are_open_before_their_pods_are_stopped(
        self, server: Played, files: JobFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the cluster may remove a pod before its log is asked for."""
        order = []

        def node(_: Request, connection: ssl.SSLSocket) -> None:
            order.append("open")
            connection.sendall(answer(f"{TIME} saved\n".encode()))

        api = server.answers(node, monkeypatch)
        cleanup = Cleanup(api, files)
        cleanup.follow(ended(JOB_ID), [RUNNING])
        order.append("stopped")
        eventually(lambda: files.named(JOB_ID, ".log"))
        assert order == ["open", "stopped"]

    @pytest.mark.parametrize("resource", ["jobs", "jobsets", "trainingruntimes", "trainjobs"])
    @pytest.mark.parametrize(
        ("created_at", "is_removed"),
        [("2026-04-20T09:00:00Z", True), ("2099-01-01T00:00:00Z", False)],
    )
    def test_a_submission_that_was_never_completed_goes(
        self,
        server: Played,
        files: JobFiles,
        monkeypatch: pytest.MonkeyPatch,
        resource: str,
        created_at: str,
        is_removed: bool,
    ) -> None:
        """Its client was killed, and the store that knew of it is lost."""
        labels = {"tao-toolkit": "true", "tao-sdk-submitting": "true"}
        half = job(labels=labels, creationTimestamp=created_at, resourceVersion="7")
        listed = {resource: answer({"items": [half]})}
        self.cleanup(server, files, monkeypatch, answer(b""), **listed).advance([ended(JOB_ID)])
        assert server.server is not None
        removed = [seen.target for seen in server.server.requests if seen.method == "DELETE"]
        assert len(removed) == is_removed
        assert all(target.endswith(f"/{resource}/tao-job-{JOB_ID}") for target in removed)


def test_looking_at_an_end_saves_and_removes_nothing(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tao-sdk status` only looks, and no thread keeps its process alive."""
    isolate(monkeypatch, played.kubeconfig())
    with KubernetesSDK(state_file=tmp_path / "state.json", attend=False) as sdk:
        job, pod = started(sdk, played)
        played.nodes.finish(pod)
        calls = len(sdk.backend.transport.calls)
        others = set(threading.enumerate())
        eventually(lambda: job.refresh().status == "Complete")
        asked_for = list(sdk.backend.transport.calls)[calls:]
        assert all(call.startswith("GET") and not call.endswith("/log") for call in asked_for)
        assert set(threading.enumerate()) <= others
        assert [row["job_id"] for row in sdk.store.jobs_to_clean("kubernetes")] == [job.id]
