"""A real node: kubelet and containerd in network, mount, process and name spaces of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lab.kubernetes import cgroups, images
from lab.kubernetes.fabric import Fabric
from lab.kubernetes.layout import Layout
from lab.kubernetes.variant import KubeVariant
from lab.packages import find

CNI = Path("/usr/lib/cni")
_INIT = Path(__file__).parent / "node_init.py"
_SOCKET = "/run/containerd/containerd.sock"
# What a node would see of this machine otherwise, or leave there: paths that are fixed in the
# code of kubelet, containerd's shim and the network plugins.
_EMPTY = ("/run", "/var/lib", "/var/log")
_FOLDERS = ("/run/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/log/containers")
# kubelet sets these for the whole machine, unless it finds them as it wants them. It does.
_SYSTEM_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def prepare(
    layout: Layout,
    name: str,
    number: int,
    fabric: Fabric,
    variant: KubeVariant,
    programs: dict[str, str],
) -> list[str]:
    """Write what the node needs; the command that starts it."""
    folder, group = layout.node(name), f"{layout.tag}/{name}"
    is_new = not folder.exists()
    for part in ("kubelet", "containerd", "podlogs", "cni", "settings"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    cgroups.make(group)
    (folder / "containerd.toml").write_text(_containerd(folder, fabric))
    (folder / "cni" / "lab.conflist").write_text(json.dumps(_network(fabric.pods(number))))
    kubelet = _kubelet(layout, name, group, fabric, number, variant)
    (folder / "kubelet.json").write_text(json.dumps(kubelet))
    binds = [(str(folder / "kubelet"), "/var/lib/kubelet")]
    for setting, value in _SYSTEM_SETTINGS.items():
        shown = folder / "settings" / setting.replace("/", "-")
        shown.write_text(f"{value}\n")
        binds.append((str(shown), f"/proc/sys/{setting}"))
    plan = {
        "name": name,
        "empty": [*_EMPTY, *([str(folder / "containerd")] if _is_overlay(folder) else [])],
        "folders": _FOLDERS,
        "binds": binds,
        "containerd": [find("containerd"), f"--config={folder}/containerd.toml"],
        "ctr": [find("ctr"), f"--address={_SOCKET}", "--namespace=k8s.io"],
        "import": str(images.provide() / "nodes.tar") if is_new or _is_overlay(folder) else "",
        "kubelet": [
            *(programs["kubelet"], f"--config={folder}/kubelet.json"),
            *(f"--kubeconfig={layout.kubeconfigs}/{name}", f"--hostname-override={name}"),
            *(f"--node-ip={fabric.address(number)}", "--root-dir=/var/lib/kubelet"),
        ],
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    return [
        # Not `ip netns exec`, which hides control groups.
        *("nsenter", f"--net={fabric.namespace(number)}"),
        *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--uts"),
        *(sys.executable, "-I", str(_INIT), str(folder / "plan.json")),
    ]


def _is_overlay(folder: Path) -> bool:
    """The layers of images cannot be put on another overlay, as a container's own files are."""
    mounts = [line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [words for words in mounts if folder.is_relative_to(words[1])]
    return max(above, key=lambda words: len(words[1]))[2] == "overlay"


def _containerd(folder: Path, fabric: Fabric) -> str:
    registry = f"{fabric.host}:5000"
    trusted = folder / "registries" / registry / "hosts.toml"
    trusted.parent.mkdir(parents=True, exist_ok=True)
    trusted.write_text(f'[host."http://{registry}"]\ncapabilities = ["pull", "resolve"]\n')
    return f"""
version = 2
root = "{folder}/containerd"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
address = "{_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{images.PAUSE}"
disable_apparmor = true
# Root that may not raise limits (CAP_SYS_RESOURCE) could start no container otherwise.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{folder}/registries"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI}"
conf_dir = "{folder}/cni"
"""


def _network(pods: str) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni",
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    plugins = [bridge, {"type": "loopback"}]
    return {"cniVersion": "0.4.0", "name": "lab", "plugins": plugins}


def _kubelet(
    layout: Layout, name: str, group: str, fabric: Fabric, number: int, variant: KubeVariant
) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": fabric.address(number),
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": f"{layout.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{layout.pki}/{name}-serving.crt",
        "tlsPrivateKeyFile": f"{layout.pki}/{name}-serving.key",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group}",
        "clusterDomain": "cluster.local",
        "clusterDNS": [fabric.host],
        "resolvConf": "",
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "podLogsDir": f"{layout.node(name)}/podlogs",
        "failSwapOn": False,
        # The disk of a machine that tests is often nearly full.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
        # What was imported cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": variant.lease_seconds,
    }
