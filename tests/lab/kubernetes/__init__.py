"""A real Kubernetes on this machine.

The control plane is real: etcd, API server, controllers, scheduler, with access control. Nodes are
either played by the test (no root, any number of GPUs, every failure on demand), or two real ones
with kubelet and containerd, whose pods run, find each other by name and share volumes.

    with shared_cluster(CONTROL_PLANE) as cluster, KubernetesLab(cluster).namespace() as namespace:
        namespace.nodes.add("big", gpus=8)
        namespace.api.create(namespace.jobs, job)
        [pod] = namespace.nodes.wait_for_pods("job")
        namespace.nodes.finish(pod)

A test that stops daemons or takes nodes away does that to a `private_cluster`. A cluster by hand:
`cd tests; python -m lab.kubernetes up --keep`.

What it costs, on two cores that were busy with other things as well:

* the programs, once: `python -m lab.kubernetes build`, 11 minutes of CPU time, 10 minutes; they
  take 0.4 GB, the Go modules 1 GB, and the build cache of Go a few more
* the controllers of JobSet and TrainJob (`EXTENDED`), once, by the same command: 5 minutes of CPU
  time
* the images, once: 7 s and 170 MB
* a control plane: up in 9 s, down in 0.3 s, 0.5 GB of memory; a namespace in it 0.7 s
* with two real nodes: up in 13 s, down in 4 s, 1.1 GB of memory, 0.8 GB of disk
* a job of one real pod: 3 to 4 s; the job controller looks once a second
"""

from __future__ import annotations

from lab.kubernetes.api import Api, Object, RefusedError
from lab.kubernetes.cluster import ADMIN, ALICE, Cluster
from lab.kubernetes.fake_nodes import FakeNodes
from lab.kubernetes.lab import KubernetesLab
from lab.kubernetes.namespace import Namespace
from lab.kubernetes.sharing import private_cluster, shared_cluster
from lab.kubernetes.variant import (
    CONTROL_PLANE,
    EXTENDED,
    QUICK_TO_GIVE_UP,
    WITH_NODES,
    KubeVariant,
)

__all__ = [
    "ADMIN",
    "ALICE",
    "CONTROL_PLANE",
    "EXTENDED",
    "QUICK_TO_GIVE_UP",
    "WITH_NODES",
    "Api",
    "Cluster",
    "FakeNodes",
    "KubeVariant",
    "KubernetesLab",
    "Namespace",
    "Object",
    "RefusedError",
    "private_cluster",
    "shared_cluster",
]
