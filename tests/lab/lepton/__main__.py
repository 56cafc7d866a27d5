"""`python -m lab.lepton FOLDER`: a played workspace until it is interrupted."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from lab.lepton.server import LeptonServer

if __name__ == "__main__":
    with LeptonServer(Path(sys.argv[1])) as server:
        for name, value in server.variables().items():
            print(f"export {name}={value}", flush=True)
        threading.Event().wait()
