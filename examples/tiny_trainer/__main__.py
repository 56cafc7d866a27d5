"""Start by `python -m tiny_trainer <action> -e <spec>` or `python path/to/tiny_trainer ...`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path


def start() -> int:
    # The matrices are so small that a second BLAS thread costs more than it brings. The
    # libraries read these variables when NumPy is first imported, hence before the import below.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    folder = Path(__file__).resolve().parent
    if not __package__:
        # Started as a folder: Python put the folder itself on the path, the package needs
        # its parent there instead.
        sys.path[0] = str(folder.parent)
    cli = importlib.import_module(f"{__package__ or folder.name}.cli")
    return int(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(start())
