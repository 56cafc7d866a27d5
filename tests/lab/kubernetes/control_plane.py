"""The command lines of the daemons that decide. Nothing is started here."""

from __future__ import annotations

from lab.kubernetes.layout import Endpoints, Layout
from lab.kubernetes.variant import KubeVariant

SERVICES = "10.96.0.0/24"
API_SERVICE = "10.96.0.1"
"""The address of the Service `kubernetes`: how pods reach the API server."""
# Without nodes nothing reaches this address; only loopback would be refused.
_ADVERTISED_WITHOUT_NODES = "10.215.255.1"
# The daemons wait for each other's requests; 20 a second, the default, would be their pace.
_NO_THROTTLE = ("--kube-api-qps=500", "--kube-api-burst=1000")
_A_DAY = 24 * 3600


def etcd(layout: Layout, at: Endpoints) -> list[str]:
    client, peer = (f"http://127.0.0.1:{port}" for port in (at.etcd, at.etcd_peer))
    return [
        *(f"--data-dir={layout.folder}/etcd", "--name=lab", "--log-level=warn"),
        *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
        *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
        *(f"--initial-cluster=lab={peer}", "--unsafe-no-fsync"),
    ]


def apiserver(layout: Layout, at: Endpoints, variant: KubeVariant) -> list[str]:
    advertised = at.host if variant.nodes else _ADVERTISED_WITHOUT_NODES
    stay = variant.eviction_seconds
    return [
        f"--etcd-servers=http://127.0.0.1:{at.etcd}",
        *(f"--bind-address={at.host}", f"--secure-port={at.api}"),
        f"--advertise-address={advertised}",
        *_serving(layout),
        f"--client-ca-file={layout.pki}/ca.crt",
        f"--service-account-key-file={layout.pki}/sa.pub",
        f"--service-account-signing-key-file={layout.pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        # The second one gives a namespace nodes of its own.
        "--enable-admission-plugins=NodeRestriction,PodNodeSelector",
        *(f"--service-cluster-ip-range={SERVICES}", "--allow-privileged=true"),
        f"--kubelet-client-certificate={layout.pki}/apiserver-client.crt",
        f"--kubelet-client-key={layout.pki}/apiserver-client.key",
        f"--kubelet-certificate-authority={layout.pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--default-not-ready-toleration-seconds={stay}",
        f"--default-unreachable-toleration-seconds={stay}",
    ]


def controller_manager(layout: Layout, at: Endpoints, variant: KubeVariant) -> list[str]:
    # Nobody renews the leases of nodes that a test plays.
    grace = variant.node_grace_seconds if variant.nodes else _A_DAY
    return [
        # An account for each controller would take five seconds longer.
        f"--kubeconfig={layout.kubeconfigs}/admin",
        "--use-service-account-credentials=false",
        *_serving(layout),
        *_NO_THROTTLE,
        *("--bind-address=127.0.0.1", f"--secure-port={at.controller_manager}"),
        *("--leader-elect=false", "--allocate-node-cidrs=false"),
        f"--service-account-private-key-file={layout.pki}/sa.key",
        f"--root-ca-file={layout.pki}/ca.crt",
        f"--node-monitor-grace-period={grace}s",
    ]


def scheduler(layout: Layout, at: Endpoints) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfigs}/scheduler",
        *_serving(layout),
        *_NO_THROTTLE,
        *("--bind-address=127.0.0.1", f"--secure-port={at.scheduler}", "--leader-elect=false"),
    ]


def _serving(layout: Layout) -> tuple[str, str]:
    """One certificate for all of them: making their own would take them a second."""
    return (
        f"--tls-cert-file={layout.pki}/apiserver.crt",
        f"--tls-private-key-file={layout.pki}/apiserver.key",
    )
