"""A cluster for work by hand.

python -m lab.slurm up            # until Ctrl-C
python -m lab.slurm up --keep     # until `python -m lab.slurm down`
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from lab import by_hand
from lab.slurm import LoginVariant, SlurmVariant, shared_cluster, slurm_lab


def main() -> None:
    parser = by_hand.parser("slurm", __doc__)
    parser.add_argument("--no-accounting", action="store_true")
    parser.add_argument("--no-pyxis", action="store_true")
    parser.add_argument("--noise", action="store_true", help="a banner and a chatty shell")
    by_hand.run("slurm", parser.parse_args(), _cluster)


@contextlib.contextmanager
def _cluster(asked: argparse.Namespace) -> Iterator[dict[str, str]]:
    variant = SlurmVariant(accounting=not asked.no_accounting, pyxis=not asked.no_pyxis)
    way_in = LoginVariant(noise=asked.noise)
    with shared_cluster(variant, asked.name) as cluster, slurm_lab(cluster, way_in) as lab:
        yield {
            **lab.environment(),
            "SLURM_CONF": str(cluster.layout.slurm_conf),
            "PATH": f"{cluster.layout.programs}:{lab.login.client_path}",
        }


if __name__ == "__main__":
    main()
