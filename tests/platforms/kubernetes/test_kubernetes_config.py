"""Which cluster and as whom: kubeconfigs as kubectl reads them, and what is said when one fails."""

from __future__ import annotations

import base64
import json
import logging
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import Certificates, encoded, kubeconfig

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, CredentialError
from tao_sdk.platforms.kubernetes import auth
from tao_sdk.platforms.kubernetes import kubeconfig as kubeconfig_module
from tao_sdk.platforms.kubernetes.auth import ClusterAccess, NoAccessError, pem
from tao_sdk.platforms.kubernetes.kubeconfig import KubeconfigError, read
from tao_sdk.platforms.rest import Proxy
from tao_sdk.secrets import Secret

SERVER = "https://cluster.test:6443"
TOKEN = "canary-token-value"  # noqa: S105 - to be found where it must not be


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ["KUBECONFIG", "TAO_K8S_CONTEXT", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"]
    for name in [*names, "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def use(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))


def write(file: Path, document: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return file


def named(kind: str, **entries: Any) -> list[dict[str, Any]]:
    return [{"name": name, kind: values} for name, values in entries.items()]


@pytest.fixture
def two_files(tmp_path: Path) -> tuple[Path, Path]:
    """Both have a cluster "shared" and a user "me"; each something of its own."""
    first = write(
        tmp_path / "a" / "config",
        {
            "clusters": named(
                "cluster", shared={"server": "https://first:1", "certificate-authority": "ca.crt"}
            ),
            "users": named("user", me={"tokenFile": "token"}),
            "contexts": named(
                "context",
                mixed={"cluster": "other", "user": "me", "namespace": "first"},
                plain={"cluster": "shared", "user": "me"},
            ),
        },
    )
    second = write(
        tmp_path / "b" / "config",
        {
            "clusters": named(
                "cluster",
                shared={"server": "https://second:2"},
                other={"server": "https://other:3", "certificate-authority": "../ca.crt"},
            ),
            "users": named("user", me={"token": "second"}, cert={"client-certificate": "c.crt"}),
            "contexts": named(
                "context",
                mixed={"cluster": "shared", "user": "cert"},
                late={"cluster": "other", "user": "cert"},
            ),
            "current-context": "late",
        },
    )
    for path in ("ca.crt", "a/ca.crt", "a/token", "b/c.crt"):
        (tmp_path / path).write_text(f"content-of-{path}")
    return first, second


class TestMerging:
    def test_the_first_file_that_has_a_name_wins(self, two_files: tuple[Path, Path]) -> None:
        found = read(two_files)
        assert found.clusters["shared"].text("server") == "https://first:1"
        assert found.users["me"].values == {"tokenFile": str(two_files[0].parent / "token")}
        chosen = found.choose("mixed")
        assert (chosen.cluster.text("server"), chosen.namespace) == ("https://other:3", "first")

    def test_the_first_current_context_wins_and_entries_are_whole(
        self, two_files: tuple[Path, Path]
    ) -> None:
        assert read(two_files).choose("").context.name == "late"
        assert read(two_files[:1]).current_context == ""

    def test_relative_paths_belong_to_their_file(self, two_files: tuple[Path, Path]) -> None:
        found = read(two_files)
        first, second = (file.parent for file in two_files)
        assert found.clusters["shared"].text("certificate-authority") == str(first / "ca.crt")
        assert found.clusters["other"].text("certificate-authority") == str(second / "../ca.crt")
        assert found.users["cert"].text("client-certificate") == str(second / "c.crt")

    def test_files_that_do_not_exist_do_not_matter(
        self, two_files: tuple[Path, Path], tmp_path: Path
    ) -> None:
        assert read([tmp_path / "nothing", *two_files]).files == two_files

    @pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
    @pytest.mark.parametrize("context", ["mixed", "plain", "late"])
    def test_kubectl_reads_the_same(
        self, two_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, context: str
    ) -> None:
        use(monkeypatch, *two_files)
        words = ["kubectl", "config", "view", "--minify", "--raw", "--flatten", "-o", "json"]
        ran = subprocess.run(
            [*words, f"--context={context}"], capture_output=True, check=True, timeout=60
        )
        theirs = json.loads(ran.stdout)
        [cluster], [user] = theirs["clusters"], theirs["users"]
        ours = read(two_files).choose(context)
        assert cluster["name"] == ours.cluster.name
        assert cluster["cluster"]["server"] == ours.cluster.text("server")
        authority = pem(ours.cluster, "certificate-authority").encode()
        embedded = cluster["cluster"].get("certificate-authority-data", "")
        assert base64.b64decode(embedded) == authority
        assert user["name"] == ours.user.name
        certificate = pem(ours.user, "client-certificate").encode()
        assert base64.b64decode(user["user"].get("client-certificate-data", "")) == certificate
        assert user["user"].get("token", "") == ours.user.text("token")
        assert theirs["contexts"][0]["context"].get("namespace", "") == ours.namespace

    @pytest.mark.parametrize("context", ["plain", "late"])
    def test_the_official_client_reads_the_same(
        self, two_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, context: str
    ) -> None:
        config = pytest.importorskip("kubernetes.config")
        use(monkeypatch, *two_files)
        joined = os.pathsep.join(map(str, two_files))
        theirs = config.new_client_from_config(joined, context).configuration
        ours = ClusterAccess.find(context)
        assert theirs.host == ours.server
        token = "".join(theirs.api_key.values())  # under a name that depends on the version
        if context == "plain":
            assert token == ours.credential().authorization.reveal()
            assert Path(theirs.ssl_ca_cert).read_text() == "content-of-a/ca.crt"
        else:
            assert not token
            assert Path(theirs.cert_file).read_text() == "content-of-b/c.crt"


class TestMistakes:
    @pytest.mark.parametrize(
        ("document", "complaint"),
        [
            ("clusters: [", r"is not YAML \(line \d\)"),
            ("[" * 100_000, "is not plain YAML"),
            ("just text", "it is not a mapping"),
            ({"clusters": {"a": 1}}, "clusters must be a list"),
            ({"users": [{"user": {}}]}, r"users\[0\] must have a name and a user"),
            ({"contexts": [{"name": "x", "context": "y"}]}, r"contexts\[0\] must have a name"),
        ],
    )
    def test_the_file_is_named(self, tmp_path: Path, document: Any, complaint: str) -> None:
        file = write(tmp_path / "config", document)
        with pytest.raises(KubeconfigError, match=complaint) as caught:
            read([file])
        assert str(file) in str(caught.value)

    def test_a_token_in_broken_yaml_is_not_quoted(self, tmp_path: Path) -> None:
        file = write(tmp_path / "config", f"users:\n- name: u\n  user: {{token: {TOKEN}\n  x: [")
        with pytest.raises(KubeconfigError) as caught:
            read([file])
        assert TOKEN not in str(caught.value)
        assert caught.value.__suppress_context__

    @pytest.mark.parametrize(
        ("context", "complaint"),
        [
            ("nothing", "there is no context 'nothing'; the contexts are no-cluster, no-user"),
            ("", "no current-context is set"),
            ("no-cluster", "context 'no-cluster' names the cluster 'gone', which is not in"),
            ("no-user", "context 'no-user' names the user 'gone', which is not in"),
        ],
    )
    def test_what_is_missing_is_named(self, tmp_path: Path, context: str, complaint: str) -> None:
        document = {
            "clusters": named("cluster", c={"server": SERVER}),
            "contexts": [
                {"name": "no-cluster", "context": {"cluster": "gone", "user": "u"}},
                {"name": "no-user", "context": {"cluster": "c", "user": "gone"}},
            ],
        }
        file = write(tmp_path / "config", document)
        with pytest.raises(KubeconfigError) as caught:
            read([file]).choose(context)
        assert complaint in str(caught.value)
        assert str(file) in str(caught.value)

    @pytest.mark.parametrize(
        ("user", "cluster", "complaint"),
        [
            ({"auth-provider": {"name": "gcp"}}, {}, "gke-gcloud-auth-plugin"),
            ({"auth-provider": {"name": "azure"}}, {}, "kubelogin convert-kubeconfig"),
            ({"auth-provider": {"name": "mine"}}, {}, "use an exec plugin or a token"),
            ({"token": TOKEN, "username": "me"}, {}, "has a token and a password"),
            ({"exec": {"command": "x"}}, {}, "apiVersion ''"),
            ({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, {}, "names no command"),
            ({"token": ["x"]}, {}, "token of 'u' must be text"),
            ({}, {"server": ""}, "cluster 'c' has no server"),
            ({}, {"server": "ftp://x"}, "must be https://host[:port]"),
            ({}, {"server": "https://x:port"}, "must be https://host[:port]"),
            ({}, {"proxy-url": "ftp://user:canary-token-value@proxy"}, "the proxy ('proxy')"),
            (
                {},
                {"insecure-skip-tls-verify": True, "certificate-authority": "ca"},
                "leave out one of them",
            ),
            ({}, {"insecure-skip-tls-verify": "yes"}, "must be true or false"),
        ],
    )
    def test_what_cannot_work_says_what_to_do(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        user: dict[str, Any],
        cluster: dict[str, Any],
        complaint: str,
    ) -> None:
        use(monkeypatch, kubeconfig(tmp_path / "config", SERVER, user, cluster))
        with pytest.raises(CredentialError) as caught:
            ClusterAccess.find()
        assert complaint in str(caught.value)
        assert TOKEN not in str(caught.value)


class TestFinding:
    @pytest.mark.seed("003.1")
    def test_nothing_works(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialError) as caught:
            ClusterAccess.find()
        message = str(caught.value)
        assert message.startswith("Could not authenticate to a Kubernetes cluster")
        assert str(tmp_path / "home" / ".kube" / "config") in message
        assert "KUBERNETES_SERVICE_HOST is not set" in message
        assert "kubectl get nodes" in message
        assert isinstance(caught.value, BackendUnreachableError), "a poll keeps the state"

    @pytest.mark.seed("003.1")
    def test_the_default_file_and_its_namespace(self, tmp_path: Path) -> None:
        (tmp_path / "home" / ".kube").mkdir(parents=True)
        file = tmp_path / "home" / ".kube" / "config"
        kubeconfig(file, f"{SERVER}/", {"token": TOKEN}, context={"namespace": "research"})
        found = ClusterAccess.find()
        assert (found.server, found.context, found.namespace) == (SERVER, "here", "research")
        assert found.source == str(file)

    @pytest.mark.seed("003.1")
    def test_argument_then_setting_then_current_context(
        self, two_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use(monkeypatch, *two_files)
        assert ClusterAccess.find().context == "late"
        monkeypatch.setenv("TAO_K8S_CONTEXT", "plain")
        assert ClusterAccess.find().context == "plain"
        assert ClusterAccess.find("mixed").context == "mixed"

    def test_two_clusters_in_one_process(
        self, two_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The reference kept one configuration for the whole process."""
        use(monkeypatch, *two_files)
        plain, mixed = ClusterAccess.find("plain"), ClusterAccess.find("mixed")
        assert (plain.server, mixed.server) == ("https://first:1", "https://other:3")
        assert plain.credential() is not mixed.credential()

    def test_secrets_are_not_shown(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        use(monkeypatch, kubeconfig(tmp_path / "config", SERVER, {"token": TOKEN}))
        found = ClusterAccess.find()
        shown = f"{found!r} {found} {found.credential()!r} {read([tmp_path / 'config'])!r}"
        shown += repr(read([tmp_path / "config"]).users)
        assert TOKEN not in shown
        assert found.credential().authorization.reveal() == f"Bearer {TOKEN}"


class TestInsideAPod:
    @pytest.fixture
    def pod(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        folder = tmp_path / "serviceaccount"
        folder.mkdir()
        (folder / "token").write_text("first\n")
        (folder / "namespace").write_text("jobs\n")
        monkeypatch.setattr(auth, "SERVICE_ACCOUNT", folder)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        return folder

    @pytest.mark.seed("003.1")
    def test_its_service_account_is_used(self, pod: Path) -> None:
        found = ClusterAccess.find()
        assert (found.server, found.context) == ("https://[fd00::1]:443", "in-cluster")
        assert found.namespace == "jobs"
        assert found.credential().authorization.reveal() == "Bearer first"

    def test_a_kubeconfig_comes_first(
        self, pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use(monkeypatch, kubeconfig(tmp_path / "config", SERVER, {"token": "x"}))
        assert ClusterAccess.find().server == SERVER

    def test_a_chosen_context_is_not_replaced(
        self, pod: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Jobs would go to a cluster that nobody named."""
        monkeypatch.setenv("TAO_K8S_CONTEXT", "training")
        with pytest.raises(CredentialError, match="context 'training'"):
            ClusterAccess.find()

    @pytest.mark.parametrize("named", [False, True], ids=["default file", "KUBECONFIG"])
    def test_a_kubeconfig_with_a_mistake_is_an_error(
        self, pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
    ) -> None:
        """Jobs and their secrets would go to the pod's own cluster instead."""
        if named:
            use(monkeypatch, write(tmp_path / "config", "just text"))
        else:
            write(tmp_path / "home" / ".kube" / "config", "just text")
        with pytest.raises(CredentialError, match="is not a mapping"):
            ClusterAccess.find()

    def test_a_named_file_that_is_not_there_is_an_error(
        self, pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use(monkeypatch, tmp_path / "gone")
        with pytest.raises(CredentialError, match=r"KUBECONFIG: there is no .*gone"):
            ClusterAccess.find()

    def test_without_a_service_account(self, pod: Path) -> None:
        (pod / "token").unlink()
        with pytest.raises(CredentialError, match=r"the pod has none.*service_account_token=True"):
            ClusterAccess.find()


class TestCredentials:
    def find(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path, user: dict[str, Any], **cluster: Any
    ) -> ClusterAccess:
        use(monkeypatch, kubeconfig(folder / "config", SERVER, user, cluster))
        return ClusterAccess.find()

    def test_password(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.find(monkeypatch, tmp_path, {"username": "me", "password": "secret"})
        assert found.credential().authorization.reveal() == "Basic bWU6c2VjcmV0"

    def test_a_token_file_is_read_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "token"
        file.write_text("one\n")
        found = self.find(monkeypatch, tmp_path, {"token": "inline", "tokenFile": "token"})
        first = found.credential()
        assert first.authorization.reveal() == "Bearer one"
        file.write_text("two\n")
        assert found.credential() is first, "not for every request"
        renewed = found.instead_of(first)
        assert renewed is not None
        assert renewed.authorization.reveal() == "Bearer two"
        assert found.instead_of(renewed) is None, "there is no other"
        file.write_text("three\n")
        monkeypatch.setattr(auth.time, "time", lambda: 2e10)
        assert found.credential().authorization.reveal() == "Bearer three"

    @pytest.mark.parametrize("token", ["with space", "line\nline", "ümlaut"])
    def test_a_token_that_is_none_is_not_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
    ) -> None:
        """`http.client` quotes a header that it refuses."""
        found = self.find(monkeypatch, tmp_path, {"token": token})
        with pytest.raises(NoAccessError, match="characters that no token can have") as caught:
            found.credential()
        assert token not in str(caught.value)

    def test_a_missing_file_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.find(monkeypatch, tmp_path, {"tokenFile": "gone"})
        with pytest.raises(NoAccessError, match=r"gone cannot be read \(No such file"):
            found.credential()

    def test_impersonation(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        user = {"token": "x", "as": "jane", "as-groups": ["a", "b"], "as-uid": "7"}
        user |= {"as-user-extra": {"reason": ["one", "two"]}}
        assert self.find(monkeypatch, tmp_path, user).impersonation == [
            ("Impersonate-User", "jane"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-reason", "one"),
            ("Impersonate-Extra-reason", "two"),
        ]

    @pytest.mark.parametrize(
        "user",
        [
            {"as": "jane\nX-Other: 1"},
            {"as": "jürgen"},
            {"as-uid": "7\r\n"},
            {"as": "jane", "as-groups": ["a", "組"]},
            {"as": "jane", "as-user-extra": {"reason": ["one\n"]}},
        ],
        ids=str,
    )
    def test_impersonation_that_no_header_can_have(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: dict[str, object]
    ) -> None:
        with pytest.raises(NoAccessError, match="characters that no header can have"):
            self.find(monkeypatch, tmp_path, {"token": "x", **user})

    def test_extra_keys_of_an_impersonation_are_quoted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user = {"as": "jane", "as-user-extra": {"example.com/ré\nason": ["one"]}}
        found = self.find(monkeypatch, tmp_path, {"token": "x", **user}).impersonation
        assert found[1:] == [("Impersonate-Extra-example.com%2Fr%C3%A9%0Aason", "one")]

    def test_a_certificate_leaves_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificates: Certificates
    ) -> None:
        crt, key = certificates.issue("client")
        user = {"client-certificate-data": encoded(crt), "client-key-data": encoded(key)}
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
        found = self.find(monkeypatch, tmp_path, user)
        made = found.tls(found.credential())
        assert made is not None
        assert found.tls(found.credential()) is made, "made once"
        assert not (tmp_path / "temporary").exists()

    def test_without_memfd_the_file_is_private_and_goes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificates: Certificates
    ) -> None:
        """macOS has none."""
        import ssl

        crt, key = certificates.issue("client")
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        seen: list[int] = []
        load = ssl.SSLContext.load_cert_chain

        def watched(made: ssl.SSLContext, path: str, **rest: Any) -> None:
            seen.append(stat.S_IMODE(Path(path).stat().st_mode))
            load(made, path, **rest)

        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
        user = {"client-certificate": str(crt), "client-key": str(key)}
        found = self.find(monkeypatch, tmp_path, user)
        found.tls(found.credential())
        assert seen == [0o600]
        assert [path.name for path in tmp_path.iterdir()] == ["config"]

    def test_certificate_and_key_of_different_pairs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificates: Certificates
    ) -> None:
        crt, _ = certificates.issue("one")
        _, key = certificates.issue("two")
        user = {"client-certificate": str(crt), "client-key": str(key)}
        found = self.find(monkeypatch, tmp_path, user)
        with pytest.raises(NoAccessError, match="do not belong together"):
            found.tls(found.credential())

    def test_skipping_verification_is_warned_of(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        with caplog.at_level(logging.WARNING, "tao_sdk.kubernetes"):
            self.find(monkeypatch, tmp_path, {}, **{"insecure-skip-tls-verify": True})
        assert "insecure-skip-tls-verify" in caplog.text


PLUGIN = """#!{python}
import json, os, pathlib, sys
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
here = pathlib.Path(__file__).parent
runs = here / "runs"
number = len(runs.read_text().splitlines()) + 1 if runs.exists() else 1
with runs.open("a") as file:
    file.write(json.dumps([asked, sys.argv[1:], os.environ.get("WHO", "")]) + "\\n")
status = json.loads((here / "status").read_text().replace("NUMBER", str(number)))
print(json.dumps(dict(apiVersion=asked["apiVersion"], kind="ExecCredential", status=status)))
"""


class Plugin:
    """A real program that hands out what a file says."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.program = folder / "plugin"
        self.does(PLUGIN.format(python=sys.executable))
        self.hands_out({"token": "token-NUMBER"})

    def does(self, script: str) -> None:
        self.program.write_text(script)
        self.program.chmod(0o755)

    def hands_out(self, status: dict[str, Any]) -> None:
        (self.folder / "status").write_text(json.dumps(status))

    @property
    def runs(self) -> list[Any]:
        return [json.loads(line) for line in (self.folder / "runs").read_text().splitlines()]


class TestExecPlugin:
    @pytest.fixture
    def plugin(self, tmp_path: Path) -> Plugin:
        return Plugin(tmp_path / "plugin")

    def find(
        self, monkeypatch: pytest.MonkeyPatch, plugin: Plugin, cluster: Any = None, **exec_: Any
    ) -> ClusterAccess:
        described = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}
        user = {"exec": {**described, **exec_}}
        use(monkeypatch, kubeconfig(plugin.folder / "config", SERVER, user, cluster))
        return ClusterAccess.find()

    @pytest.mark.parametrize("version", ["v1", "v1beta1"])
    def test_it_is_asked_once(
        self, plugin: Plugin, monkeypatch: pytest.MonkeyPatch, version: str
    ) -> None:
        api = f"client.authentication.k8s.io/{version}"
        env = [{"name": "WHO", "value": "me"}]
        found = self.find(monkeypatch, plugin, apiVersion=api, args=["a b", "--c"], env=env)
        assert not (plugin.folder / "runs").exists(), "only when it is needed"
        for _ in range(2):
            assert found.credential().authorization.reveal() == "Bearer token-1"
        asked = {"apiVersion": api, "kind": "ExecCredential", "spec": {"interactive": False}}
        assert plugin.runs == [[asked, ["a b", "--c"], "me"]]

    def test_it_is_told_about_the_cluster(
        self, plugin: Plugin, monkeypatch: pytest.MonkeyPatch, certificates: Certificates
    ) -> None:
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
        cluster = {
            "certificate-authority": str(certificates.authority),
            "tls-server-name": "name",
            "extensions": [{"name": "other", "extension": 1}, extension],
        }
        self.find(monkeypatch, plugin, cluster, provideClusterInfo=True).credential()
        assert plugin.runs[0][0]["spec"]["cluster"] == {
            "server": SERVER,
            "tls-server-name": "name",
            "certificate-authority-data": encoded(certificates.authority),
            "config": {"audience": "x"},
        }

    def test_a_credential_is_renewed_when_it_expires(
        self, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plugin.hands_out({"token": "t-NUMBER", "expirationTimestamp": "2020-01-01T00:00:00.5Z"})
        found = self.find(monkeypatch, plugin)
        assert found.credential().authorization.reveal() == "Bearer t-1"
        plugin.hands_out({"token": "t-NUMBER", "expirationTimestamp": "2999-01-01T00:00:00Z"})
        assert found.credential().authorization.reveal() == "Bearer t-2"
        assert found.credential().authorization.reveal() == "Bearer t-2"

    def test_a_refused_credential_is_asked_for_anew(
        self, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = self.find(monkeypatch, plugin)
        first = found.credential()
        another = found.instead_of(first)
        assert another is not None
        assert another.authorization.reveal() == "Bearer token-2"
        assert found.instead_of(first) == another, "somebody else has renewed it already"
        assert len(plugin.runs) == 2

    def test_certificates(
        self, plugin: Plugin, monkeypatch: pytest.MonkeyPatch, certificates: Certificates
    ) -> None:
        crt, key = (path.read_text() for path in certificates.issue("plugin"))
        plugin.hands_out({"clientCertificateData": crt, "clientKeyData": key})
        credential = self.find(monkeypatch, plugin).credential()
        assert (credential.certificate, credential.key.reveal()) == (crt, key)
        assert not credential.authorization

    @pytest.mark.parametrize(
        ("script", "complaint"),
        [
            ("#!/bin/sh\necho $WHO is locked out >&2; exit 3", "exit code 3: [secret] is locked"),
            ("#!/bin/sh\necho canary-token-value", "did not print an ExecCredential"),
            ('#!/bin/sh\necho \'{"status": {"token": ""}, "apiVersion": "VERSION"}\'', "neither"),
            ('#!/bin/sh\necho \'{"status": {"token": "t"}}\'', "another version"),
            ("#!/no/such/interpreter", "cannot be started: No such file"),
            ("#!/bin/sh\nexec sleep 600", "did not answer in"),
        ],
    )
    def test_one_that_fails_says_why(
        self, plugin: Plugin, monkeypatch: pytest.MonkeyPatch, script: str, complaint: str
    ) -> None:
        monkeypatch.setattr(kubeconfig_module, "PLUGIN_SECONDS", 1.0)
        plugin.does(script.replace("VERSION", "client.authentication.k8s.io/v1"))
        env = [{"name": "WHO", "value": TOKEN}]
        with pytest.raises(CredentialError) as caught:
            self.find(monkeypatch, plugin, env=env).credential()
        message = str(caught.value)
        assert message.startswith("Could not authenticate to a Kubernetes cluster")
        assert complaint in message
        assert TOKEN not in message

    def test_one_that_is_not_installed(
        self, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hint = "get it at example.test"
        found = self.find(monkeypatch, plugin, command="no-such-plugin", installHint=hint)
        with pytest.raises(CredentialError, match=r"is not installed: get it at example\.test"):
            found.credential()

    def test_one_that_wants_to_talk(self, plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(CredentialError, match="interactiveMode: Always"):
            self.find(monkeypatch, plugin, interactiveMode="Always")


class TestServers:
    def find(self, monkeypatch: pytest.MonkeyPatch, folder: Path, **cluster: Any) -> ClusterAccess:
        use(monkeypatch, kubeconfig(folder / "config", SERVER, {}, cluster))
        return ClusterAccess.find()

    def test_the_environments_proxy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("https_proxy", "http://user:p%40ss@proxy:3128")
        found = self.find(monkeypatch, tmp_path)
        assert found.proxy == Proxy("http", "proxy", 3128, "user", Secret("p@ss"))
        monkeypatch.setenv("NO_PROXY", "cluster.test:6443")
        assert self.find(monkeypatch, tmp_path).proxy is None

    def test_the_kubeconfigs_proxy_wins(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NO_PROXY", "*")
        found = self.find(monkeypatch, tmp_path, **{"proxy-url": "socks5://localhost"})
        assert str(found.proxy) == "socks5://localhost:1080"

    def test_a_path_and_another_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        server = "https://rancher.test/k8s/clusters/c-1/"
        found = self.find(monkeypatch, tmp_path, server=server, **{"tls-server-name": "inner.test"})
        assert (found.server, found.server_name) == (server.rstrip("/"), "inner.test")


def test_the_settings_are_in_the_table() -> None:
    names = {"KUBECONFIG", "TAO_K8S_CONTEXT", "TAO_K8S_NAMESPACE", "HTTPS_PROXY", "NO_PROXY"}
    assert names | {"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} <= set(settings.SETTINGS)
