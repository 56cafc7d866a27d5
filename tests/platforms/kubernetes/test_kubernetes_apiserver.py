"""The client against a real API server: who gets in, what is refused, and what interrupts."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import Certificates, encoded

from lab.kubernetes import CONTROL_PLANE, KubernetesLab, Namespace, private_cluster
from tao_sdk.errors import BackendUnreachableError, CredentialError
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.watch import Watch

WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
LONG = 60.0


@pytest.fixture
def namespace(played: Namespace) -> Namespace:
    return played


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAO_K8S_CONTEXT", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


Connect = Callable[[Path], KubernetesClient]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def connect(file: Path) -> KubernetesClient:
        monkeypatch.setenv("KUBECONFIG", str(file))
        return KubernetesClient(ClusterAccess.find())

    return connect


def name_at(api: KubernetesClient) -> str:
    """Whom the server takes us for."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return str(api.create(WHO_AM_I, body)["status"]["userInfo"]["username"])


def changed(file: Path, target: Path, user: Any = None, cluster: Any = None) -> Path:
    """A copy of a kubeconfig with another user, or with changes to its cluster."""
    document = yaml.safe_load(file.read_text())
    if user is not None:
        document["users"][0]["user"] = user
    document["clusters"][0]["cluster"].update(cluster or {})
    target.write_text(yaml.safe_dump(document))
    return target


def token_of(file: Path) -> str:
    return str(yaml.safe_load(file.read_text())["users"][0]["user"]["token"])


def settings_map(name: str, **data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class TestGettingIn:
    @pytest.mark.parametrize("kind", ["certificate", "token"])
    def test_we_are_who_kubectl_and_the_official_client_are(
        self, namespace: Namespace, connect: Connect, kind: str
    ) -> None:
        client = pytest.importorskip("kubernetes.client")
        from kubernetes import config

        is_token = kind == "token"
        file = namespace.service_account("robot") if is_token else namespace.kubeconfig("alice")
        api = connect(file)
        expected = f"system:serviceaccount:{namespace.name}:robot" if is_token else "alice"
        assert name_at(api) == expected
        assert api.access.namespace == namespace.name
        theirs = config.new_client_from_config(str(file))
        assert theirs.configuration.host == api.access.server
        review = client.AuthenticationV1Api(theirs).create_self_subject_review({})
        assert review.status.user_info.username == expected
        words = [namespace.cluster.programs["kubectl"], f"--kubeconfig={file}", "auth", "whoami"]
        told = subprocess.run([*words, "-o", "json"], capture_output=True, check=True, timeout=60)
        assert json.loads(told.stdout)["status"]["userInfo"]["username"] == expected

    def test_two_users_in_one_process(self, namespace: Namespace, connect: Connect) -> None:
        alice, admin = (
            connect(namespace.kubeconfig("alice")),
            connect(namespace.kubeconfig("admin")),
        )
        assert [name_at(api) for api in (alice, admin, alice)] == ["alice", "admin", "alice"]

    def test_a_wrong_token(self, namespace: Namespace, connect: Connect, tmp_path: Path) -> None:
        file = changed(namespace.kubeconfig(), tmp_path / "config", {"token": "canary-wrong"})
        with pytest.raises(CredentialError, match="does not accept the credential") as caught:
            connect(file).get(f"{namespace.path}/pods")
        assert isinstance(caught.value, BackendUnreachableError)
        assert "canary" not in str(caught.value)

    def test_a_token_file_that_is_renewed(
        self, namespace: Namespace, connect: Connect, tmp_path: Path
    ) -> None:
        robot = namespace.service_account("robot")
        token = tmp_path / "token"
        token.write_text("expired-long-ago")
        api = connect(changed(robot, tmp_path / "config", {"tokenFile": str(token)}))
        with pytest.raises(CredentialError):
            name_at(api)
        token.write_text(token_of(robot))
        assert name_at(api).endswith(":robot")

    def test_a_program_whose_token_is_refused_is_asked_again(
        self, namespace: Namespace, connect: Connect, tmp_path: Path
    ) -> None:
        robot = namespace.service_account("robot")
        (tmp_path / "tokens").write_text(f"expired-long-ago\n{token_of(robot)}\n")
        program = tmp_path / "plugin"
        program.write_text(
            f"#!{sys.executable}\nimport json, pathlib\n"
            "tokens = pathlib.Path(__file__).with_name('tokens')\n"
            "first, *rest = tokens.read_text().split()\n"
            "tokens.write_text(' '.join(rest))\n"
            "print(json.dumps(dict(apiVersion='client.authentication.k8s.io/v1',"
            " kind='ExecCredential', status=dict(token=first))))\n"
        )
        program.chmod(0o755)
        version = "client.authentication.k8s.io/v1"
        user = {"exec": {"apiVersion": version, "command": "./plugin", "interactiveMode": "Never"}}
        api = connect(changed(robot, tmp_path / "config", user))
        assert name_at(api).endswith(":robot")
        assert (tmp_path / "tokens").read_text() == ""

    def test_acting_as_somebody_else(
        self, namespace: Namespace, connect: Connect, tmp_path: Path
    ) -> None:
        admin = namespace.kubeconfig("admin")
        user = yaml.safe_load(admin.read_text())["users"][0]["user"]
        api = connect(changed(admin, tmp_path / "config", {**user, "as": "jane"}))
        assert name_at(api) == "jane"

    def test_another_authority(
        self, namespace: Namespace, connect: Connect, tmp_path: Path
    ) -> None:
        other = encoded(Certificates(tmp_path / "other").authority)
        cluster = {"certificate-authority-data": other, "certificate-authority": None}
        api = connect(changed(namespace.kubeconfig(), tmp_path / "config", cluster=cluster))
        with pytest.raises(BackendUnreachableError, match="certificate is not trusted"):
            api.get("/version")


class TestRequests:
    def test_what_is_not_allowed(self, namespace: Namespace, connect: Connect) -> None:
        api = connect(namespace.kubeconfig("alice"))
        with pytest.raises(ApiError, match='User "alice" cannot list resource "nodes"') as caught:
            api.get("/api/v1/nodes")
        assert caught.value.forbidden
        assert caught.value.reason == "Forbidden"
        assert not isinstance(caught.value, BackendUnreachableError)
        assert not api.review("list", "nodes").allowed
        assert api.review("create", "jobs", group="batch", namespace=namespace.name).allowed

    def test_an_object_from_its_beginning_to_its_end(
        self, namespace: Namespace, connect: Connect
    ) -> None:
        api = connect(namespace.kubeconfig("alice"))
        maps = f"{namespace.path}/configmaps"
        uid = api.create(maps, settings_map("x", a="1"))["metadata"]["uid"]
        with pytest.raises(ApiError, match="already exists") as twice:
            api.create(maps, settings_map("x"))
        assert (twice.value.conflict, twice.value.reason) == (True, "AlreadyExists")
        api.patch(f"{maps}/x", {"data": {"b": "2"}})
        assert api.get(f"{maps}/x")["data"] == {"a": "1", "b": "2"}
        with pytest.raises(ApiError, match="UID in the precondition") as other:
            api.delete(f"{maps}/x", {"preconditions": {"uid": "another"}})
        assert other.value.conflict
        api.delete(f"{maps}/x", {"preconditions": {"uid": uid}})
        with pytest.raises(ApiError) as gone:
            api.get(f"{maps}/x")
        assert gone.value.missing

    def test_a_body_that_cannot_be_right(self, namespace: Namespace, connect: Connect) -> None:
        api = connect(namespace.kubeconfig("alice"))
        with pytest.raises(ApiError) as caught:
            api.create(f"{namespace.path}/configmaps", settings_map("Not A Name"))
        assert (caught.value.status, caught.value.reason) == (422, "Invalid")
        assert "metadata.name" in caught.value.message

    def test_lists_in_pieces_and_packed(self, namespace: Namespace, connect: Connect) -> None:
        api = connect(namespace.kubeconfig("alice"))
        maps = f"{namespace.path}/configmaps"
        for number in range(7):
            api.create(maps, settings_map(f"big-{number}", text="x" * 50_000))
        mine = [f"big-{number}" for number in range(7)]
        for query in ({}, {"limit": "3"}):
            found = api.list_all(maps, fieldSelector="metadata.name!=kube-root-ca.crt", **query)
            assert [item["metadata"]["name"] for item in found.items] == mine
            assert found.resource_version
        assert api._request("GET", maps, {}).headers["Content-Encoding"] == "gzip"

    def test_one_connection_serves_many_requests(
        self, namespace: Namespace, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What comes unasked (tickets of TLS 1.3) is not taken for a goodbye."""
        made: list[object] = []
        original = ssl.SSLContext.wrap_socket

        def noting(context: ssl.SSLContext, *rest: Any, **more: Any) -> ssl.SSLSocket:
            made.append(context)
            return original(context, *rest, **more)

        monkeypatch.setattr(ssl.SSLContext, "wrap_socket", noting)
        api = connect(namespace.kubeconfig("alice"))
        for _ in range(20):
            api.get(f"{namespace.path}/pods")
        assert len(made) == 1


def names(watch: Watch) -> set[str]:
    found = {item["metadata"]["name"] for item in watch.snapshot().values()}
    return {name for name in found if name != "kube-root-ca.crt"}


def until(watch: Watch, wanted: set[str]) -> None:
    deadline = time.monotonic() + LONG
    while True:
        try:
            if names(watch) == wanted:
                return
        except BackendUnreachableError:
            pass  # being away is what the test is about
        except ApiError as error:
            # A server that has just started does not know its roles yet, and forbids everything.
            if not error.forbidden:
                raise
        assert time.monotonic() < deadline
        watch.wait(watch.changes, 1)


class TestWatching:
    def test_changes_are_told(self, namespace: Namespace, connect: Connect) -> None:
        api = connect(namespace.kubeconfig("alice"))
        maps = f"{namespace.path}/configmaps"
        api.create(maps, settings_map("first"))
        with closing(Watch(api, maps)) as watch:
            until(watch, {"first"})
            api.create(maps, settings_map("second"))
            until(watch, {"first", "second"})
            api.delete(f"{maps}/first")
            until(watch, {"second"})
        assert [call for call in api.calls if call.startswith(("WATCH", f"GET {maps}"))] == [
            f"GET {maps}",
            f"WATCH {maps}",
        ]

    def test_no_right_to_look(self, namespace: Namespace, connect: Connect) -> None:
        api = connect(namespace.kubeconfig("alice"))
        with closing(Watch(api, "/api/v1/nodes")) as watch, pytest.raises(ApiError) as caught:
            watch.snapshot()
        assert caught.value.forbidden

    def test_it_survives_a_restart_of_the_server(self, connect: Connect) -> None:
        with (
            private_cluster(CONTROL_PLANE) as cluster,
            KubernetesLab(cluster).namespace() as namespace,
        ):
            api = connect(namespace.kubeconfig("alice"))
            maps = f"{namespace.path}/configmaps"
            api.create(maps, settings_map("before"))
            with closing(Watch(api, maps)) as watch:
                until(watch, {"before"})
                changes = watch.changes
                cluster.stop_apiserver()
                assert watch.wait(changes, LONG)
                with pytest.raises(BackendUnreachableError, match="the Kubernetes API at"):
                    watch.snapshot()
                cluster.start_apiserver()
                namespace.api.create(
                    maps, settings_map("after")
                )  # nobody forbids the administrator
                until(watch, {"before", "after"})
