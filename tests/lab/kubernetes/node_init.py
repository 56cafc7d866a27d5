"""The first process of a node: gives it a machine's look, starts its daemons, buries the dead.

`python node_init.py PLAN`, in namespaces of its own. It needs nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main(plan: dict[str, Any]) -> None:
    socket.sethostname(plan["name"])
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    for place in plan["empty"]:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    for place in plan["folders"]:
        Path(place).mkdir(parents=True, exist_ok=True)
    for source, target in plan["binds"]:
        subprocess.run(["mount", "--bind", source, target], check=True)
    subprocess.Popen(plan["containerd"])
    deadline = time.monotonic() + 60
    while subprocess.run([*plan["ctr"], "version"], capture_output=True).returncode:
        assert time.monotonic() < deadline, "containerd does not answer"
        time.sleep(0.05)
    # A node that is ready has its images.
    if plan["import"]:
        subprocess.run([*plan["ctr"], "images", "import", plan["import"]], check=True)
    subprocess.Popen(plan["kubelet"])
    while True:
        os.wait()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
