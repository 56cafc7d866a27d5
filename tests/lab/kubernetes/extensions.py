"""Kinds of jobs that others add to Kubernetes: JobSet, Kubeflow's TrainJob, Volcano's PodGroup.

Their definitions come from pinned public Go modules. The controllers of JobSet and TrainJob are
built and run, with their webhooks. Volcano's scheduler cannot be built from modules (it replaces
some of them), so a test plays it: it puts pods on nodes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

import yaml

from lab import unavailable
from lab.kubernetes.api import Api, Object, name_of
from lab.kubernetes.layout import Layout
from lab.kubernetes.programs import BUILD, build_tools, go_output
from lab.packages import cache, locked
from lab.ports import free_port
from lab.processes import wait_until

_MODULE = Path(__file__).parent / "controllers"
_VOLCANO = "volcano.sh/volcano@v1.10.0"
_VOLCANO_SUM = "h1:+GzQinGgeV0j58WpWpxByOXgF+YfUPW55zghM8GqjF0="
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_TO_EDIT = "rbac.authorization.k8s.io/aggregate-to-edit"
_WEBHOOK_FOLDER = "k8s-webhook-server/serving-certs"
Start = Callable[..., None]


class Controller(NamedTuple):
    """A program and what it needs."""

    program: str
    module: str
    definitions: str
    """The folder with the definitions of its kinds, in the module."""
    webhooks: str
    config: str
    """The API version of its configuration."""
    certificates: str
    """The key of the configuration that has it make its own certificates."""


CONTROLLERS = (
    Controller(
        "jobset",
        "sigs.k8s.io/jobset",
        "config/components/crd/bases",
        "config/components/webhook/manifests.yaml",
        "config.jobset.x-k8s.io/v1alpha1",
        "internalCertManagement",
    ),
    Controller(
        "trainer-controller-manager",
        "github.com/kubeflow/trainer/v2",
        "manifests/base/crds",
        "manifests/base/webhook/manifests.yaml",
        "config.trainer.kubeflow.org/v1alpha1",
        "certManagement",
    ),
)


def provide() -> Path:
    """The folder with the programs and manifests, or skip with what would help."""
    if not _built().exists():
        unavailable("kubernetes", "the controllers of JobSet and TrainJob are not built", BUILD)
    return _built()


def build() -> Path:
    """Have the programs and manifests in the cache; the folder."""
    built = _built()
    with locked(built.parent / "build.lock"):
        if not built.exists():
            partial_folder = built.with_suffix(".partial")
            shutil.rmtree(partial_folder, ignore_errors=True)
            partial_folder.mkdir(parents=True)
            build_tools(_MODULE, partial_folder, "-s -w")
            for controller in CONTROLLERS:
                _copy_manifests(controller, partial_folder)
            _copy_volcano(partial_folder / "volcano")
            partial_folder.replace(built)
    return built


def _built() -> Path:
    parts = [(_MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    pinned = hashlib.sha256(b"".join([*parts, Path(__file__).read_bytes()])).hexdigest()
    return cache() / "kubernetes" / f"controllers-{pinned[:12]}"


def _copy_manifests(controller: Controller, target: Path) -> None:
    folder = Path(go_output(_MODULE, "list", "-m", "-f", "{{.Dir}}", controller.module))
    manifests = target / f"{controller.program}.manifests"
    manifests.mkdir()
    sources = [*(folder / controller.definitions).glob("*_*.yaml"), folder / controller.webhooks]
    for source in sources:
        shutil.copyfile(source, manifests / source.name)


def _copy_volcano(target: Path) -> None:
    told = json.loads(go_output(_MODULE, "mod", "download", "-json", _VOLCANO))
    assert told["Sum"] == _VOLCANO_SUM, f"{_VOLCANO} is not the one that was pinned"
    target.mkdir()
    for source in (Path(told["Dir"]) / "config/crd/volcano/bases").glob("scheduling.*.yaml"):
        shutil.copyfile(source, target / source.name)


# --- in a cluster


def install(layout: Layout, api: Api, start: Start) -> None:
    """Define the kinds, and start the controllers."""
    built = provide()
    for folder in (built / "volcano", *(built / f"{c.program}.manifests" for c in CONTROLLERS)):
        for thing in _objects(folder, "CustomResourceDefinition"):
            api.create(_DEFINITIONS, thing)
            path = f"{_DEFINITIONS}/{name_of(thing)}"
            wait_until(partial(_is_established, api, path), f"{path} is not established")
            _let_users(api, thing)
    for controller in CONTROLLERS:
        _start(controller, built, layout, api, start)


def _start(controller: Controller, built: Path, layout: Layout, api: Api, start: Start) -> None:
    webhook, health = free_port(), free_port()
    folder = layout.state / controller.program
    certificates = folder / _WEBHOOK_FOLDER
    certificates.mkdir(parents=True)
    for source, target in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copyfile(layout.pki / source, certificates / target)
    config = {
        "apiVersion": controller.config,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        controller.certificates: {"enable": False},
        "webhook": {"port": webhook, "host": "127.0.0.1"},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    words = [str(built / controller.program), f"--config={folder / 'config.json'}"]
    kubeconfig = str(layout.kubeconfigs / "admin")
    start(controller.program, words, KUBECONFIG=kubeconfig, TMPDIR=str(folder))
    wait_until(partial(_is_ready, health), f"{controller.program} does not get ready", 120)
    authority = base64.b64encode((layout.pki / "ca.crt").read_bytes()).decode()
    for thing in _objects(built / f"{controller.program}.manifests", "WebhookConfiguration"):
        for hook in thing["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            url = f"https://127.0.0.1:{webhook}{path}"
            hook["clientConfig"] = {"url": url, "caBundle": authority}
        thing["metadata"]["name"] = f"{controller.program}-{name_of(thing)}"
        api.create(f"{_ADMISSION}/{thing['kind'].lower()}s", thing)


def _objects(folder: Path, kind: str) -> Iterator[Object]:
    for path in sorted(folder.glob("*.yaml")):
        for thing in yaml.safe_load_all(path.read_text()):
            if thing and thing["kind"].endswith(kind):
                yield thing


def _let_users(api: Api, definition: Object) -> None:
    """What administrators do: users of a namespace may use the kind."""
    spec = definition["spec"]
    role = {
        "kind": "ClusterRole",
        "metadata": {"name": f"edit-{name_of(definition)}", "labels": {_TO_EDIT: "true"}},
        "rules": [
            {"apiGroups": [spec["group"]], "resources": [spec["names"]["plural"]], "verbs": ["*"]}
        ],
    }
    api.create(_ROLES, role)


def _is_established(api: Api, path: str) -> bool:
    conditions = api.get(path).get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
