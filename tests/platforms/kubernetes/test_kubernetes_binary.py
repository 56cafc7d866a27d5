"""Lists in the API's binary form: what comes out of them, and what of damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import PODS, ApiServer, Certificates, answer, encoded, kubeconfig, says
from kubernetes_objects import condition, job, pod, terminated, waiting
from kubernetes_sdk import asked, isolate, job_name, opened, pods_of, started

from lab.kubernetes import ALICE, Namespace
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import binary, naming
from tao_sdk.platforms.kubernetes.access import ClusterAccess
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.states import interpret

# -- made by hand


def number(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(place: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return number(place << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(place << 3 | 2) + number(len(data)) + data


def pair(key: str, value: str) -> bytes:
    return field(1, key) + field(2, value)


def answered(found: bytes) -> bytes:
    kind = field(1, "v1") + field(2, "PodList")
    return b"k8s\x00" + field(1, kind) + field(2, found) + field(3, "") + field(4, "")


def a_pod(exit_code: int, message: str = "killed") -> bytes:
    moment = field(1, 1_776_675_600) + field(2, 0)
    metadata = b"".join(
        [
            field(1, "pod-x"),
            field(2, ""),
            field(5, "uid-x"),
            field(6, "12"),
            field(8, moment),
            field(11, pair("job-name", "tao-job-1")),
            field(11, pair("job-named", "no")),
            field(12, pair(naming.INDEX_ANNOTATION, "3")),
            field(17, b"\xff" * 300),  # who set what: not looked into
        ]
    )
    ended = field(1, exit_code) + field(3, "Error") + field(4, message) + field(6, moment)
    container = field(1, "tao") + field(2, field(3, ended)) + field(5, 0)
    status = field(1, "Failed") + field(8, container)
    return field(1, metadata) + field(2, field(10, "node-1")) + field(3, status)


LISTED = answered(field(1, field(2, "77")) + field(2, a_pod(137)) + field(2, a_pod(-1, "ü" * 90)))


def test_what_is_named_comes_out_in_the_shape_of_json() -> None:
    found = binary.read(LISTED, binary.list_of(binary.POD))
    assert found["metadata"] == {"resourceVersion": "77"}
    first, second = found["items"]
    assert first == {
        "metadata": {
            "name": "pod-x",
            "uid": "uid-x",
            "resourceVersion": "12",
            "creationTimestamp": "2026-04-20T09:00:00Z",
            "labels": {"job-name": "tao-job-1"},
            "annotations": {naming.INDEX_ANNOTATION: "3"},
        },
        "spec": {"nodeName": "node-1"},
        "status": {
            "phase": "Failed",
            "containerStatuses": [
                {
                    "name": "tao",
                    "state": {
                        "terminated": {
                            "exitCode": 137,
                            "reason": "Error",
                            "message": "killed",
                            "finishedAt": "2026-04-20T09:00:00Z",
                        }
                    },
                }
            ],
        },
    }
    ended = second["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (-1, "ü" * 90)


def test_an_answer_that_breaks_off_is_noticed_wherever_it_does() -> None:
    whole = binary.list_of(binary.POD)
    # The last two fields are empty and not wanted: without them nothing is missing.
    for end in range(len(LISTED) - 4):
        with pytest.raises(ValueError, match=r"breaks off|not the binary form"):
            binary.read(LISTED[:end], whole)


@pytest.mark.parametrize("data", [b"", b"{}", b"k8s\x00", b"k8s\x00\x0b", answered(b"\x0c")])
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"breaks off|not the binary form|unknown kind"):
        binary.read(data, binary.list_of(binary.JOB))


def test_a_trimmed_object_says_the_same() -> None:
    """What states are made of is all there: it is the JSON form that tests of states use."""
    failed = job(status={"conditions": [condition("Failed", "PodFailurePolicy", "why")]})
    waits = job(status={"active": 1, "ready": 0})
    ended = pod(phase="Failed", rank=0, state=terminated(3))
    stuck = pod(state=waiting("ImagePullBackOff", "no such image"))
    for one, its in ((failed, ended), (waits, stuck)):
        less, its_less = binary.trimmed(one, binary.JOB), binary.trimmed(its, binary.POD)
        assert interpret(less, [its_less]) == interpret(one, [its])


# -- servers


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a server that gives one answer."""
    servers = []

    def answers(told: bytes) -> KubernetesClient:
        certificates = Certificates(tmp_path / "certificates")
        servers.append(ApiServer(certificates, says(told)))
        trusted = {"certificate-authority-data": encoded(certificates.authority)}
        file = kubeconfig(tmp_path / "config", servers[0].url, {"token": "x"}, trusted)
        isolate(monkeypatch, file)
        return KubernetesClient(ClusterAccess.find())

    yield answers
    for server in servers:
        server.close()


def test_a_server_without_that_form_is_understood_as_well(answers: Any) -> None:
    made = pod(phase="Failed", state=terminated(3))
    listed = {"metadata": {"resourceVersion": "7"}, "items": [{**made, "more": 1}]}
    found = answers(answer(listed)).list_all(PODS, binary.POD)
    assert found.resource_version == "7"
    assert found.items == [binary.trimmed(made, binary.POD)]


@pytest.mark.parametrize("packed", [False, True])
def test_a_server_with_that_form(answers: Any, packed: bool) -> None:
    kind = {"Content-Type": binary.MEDIA_TYPE}
    told = answer(LISTED, headers=kind, packed=packed).replace(b"Content-Type: text/plain\r\n", b"")
    found = answers(told).list_all(PODS, binary.POD)
    assert [one["metadata"]["name"] for one in found.items] == ["pod-x", "pod-x"]


# -- the real one


def without_nothing(value: Any) -> Any:
    """Less what is empty or nought: one form leaves it out where the other says so."""
    if isinstance(value, dict):
        less = {key: without_nothing(item) for key, item in value.items()}
        return {key: item for key, item in less.items() if item}
    return [without_nothing(item) for item in value] if isinstance(value, list) else value


def test_both_forms_of_a_real_list_say_the_same(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(played, tmp_path, monkeypatch) as sdk:
        _, running = started(sdk, played)
        stuck, failed, complete = (sdk.create_job(**asked()) for _ in range(3))
        several = sdk.create_job(**asked(num_nodes=2, env_vars={"A": "b"}))
        [one] = pods_of(played, stuck)
        played.nodes.hold(one, "ImagePullBackOff", "no such image")
        for ended, code in ((failed, 3), (complete, 0)):
            [one] = pods_of(played, ended)
            played.nodes.finish(one, code)
            assert ended.wait(timeout=60).status == ("Error" if code else "Complete")
        pods_of(played, several, 2)
        sdk.create_job(**asked(node_selector={"no": "where"}))
        eventually(lambda: sum("Unschedulable" in str(pod) for pod in played.pods()) == 1)
        api = sdk.backend.transport
        assert isinstance(api, KubernetesClient)
        for path, item in ((played.jobs, binary.JOB), (f"{played.path}/pods", binary.POD)):
            # Controllers may be at work between the two.
            eventually(lambda path=path, item=item: _are_equal(api, path, item))  # type: ignore[misc]  # bound now: the loop goes on
        names = {one["metadata"]["name"] for one in api.list_all(played.jobs, binary.JOB).items}
        assert {job_name(stuck), job_name(failed), job_name(complete), job_name(several)} < names
        assert running["metadata"]["uid"]


def _are_equal(api: KubernetesClient, path: str, item: binary.Fields) -> bool:
    short, whole = api.list_all(path, item), api.list_all(path)
    expected = [without_nothing(binary.trimmed(one, item)) for one in whole.items]
    return without_nothing(short.items) == expected and len(expected) >= 6


def test_a_refusal_is_understood_in_that_form_too(
    played: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, played.kubeconfig(ALICE))
    with pytest.raises(ApiError, match='cannot list resource "jobs"') as caught:
        KubernetesClient(ClusterAccess.find()).list_all(naming.jobs_path("kube-system"), binary.JOB)
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
