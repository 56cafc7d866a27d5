"""A cluster for work by hand.

python -m lab.kubernetes build                    # have the programs; minutes
python -m lab.kubernetes up                       # two real nodes, until Ctrl-C
python -m lab.kubernetes up --control-plane       # none
python -m lab.kubernetes up --keep                # until `python -m lab.kubernetes down`
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from lab import by_hand
from lab.kubernetes import (
    CONTROL_PLANE,
    WITH_NODES,
    KubernetesLab,
    extensions,
    programs,
    shared_cluster,
)


def main() -> None:
    parser = by_hand.parser("kubernetes", __doc__, "build")
    parser.add_argument("--control-plane", action="store_true", help="without real nodes")
    asked = parser.parse_args()
    if asked.action == "build":
        print(programs.build())
        print(extensions.build())
    else:
        by_hand.run("kubernetes", asked, _cluster)


@contextlib.contextmanager
def _cluster(asked: argparse.Namespace) -> Iterator[dict[str, str]]:
    variant = CONTROL_PLANE if asked.control_plane else WITH_NODES
    with (
        shared_cluster(variant, asked.name) as cluster,
        KubernetesLab(cluster).namespace() as namespace,
    ):
        yield {
            "KUBECONFIG": str(namespace.kubeconfig()),
            "TAO_LAB_ADMIN_KUBECONFIG": str(namespace.kubeconfig("admin")),
            "TAO_LAB_NAMESPACE": namespace.name,
            "TAO_LAB_CLUSTER_FOLDER": str(cluster.folder),
            "PATH": f"{Path(cluster.programs['kubectl']).parent}:{os.environ['PATH']}",
        }


if __name__ == "__main__":
    main()
