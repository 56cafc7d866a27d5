"""How tasks enter their container: pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from tao_sdk.models import Mount
from tao_sdk.platforms.slurm.image_names import Image
from tao_sdk.platforms.slurm.resources import Resources

# Found before the job's own PATH counts. Apptainer has two names.
_PROGRAM = {
    "enroot": "program=$(command -v enroot)\n",
    "apptainer": "program=$(command -v apptainer || command -v singularity)\n",
}


def all_mounts(site: Sequence[Mount], job: Sequence[Mount], base: str) -> list[Mount]:
    """The site's mounts, the job's, and `base` where none of them shows it."""
    mounts = list(site)
    mounts += [mount for mount in job if mount not in mounts]
    if not any(m.source == m.target and _within(base, m.source) for m in mounts):
        mounts.append(Mount(base, base))
    return mounts


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def run_tasks(
    runtime: str,
    image: Image | None,
    cached: str,
    mounts: Iterable[Mount],
    names: Sequence[str],
    resources: Resources,
    *,
    task: str,
) -> str:
    """The shell function that runs the job's tasks and ends with their exit code.

    Without an image they run on the nodes as they are. `cached` is the squashfs file that the image
    is or will be kept as, "" without one; `names` are the variables that win over the image's own.
    """
    srun = [
        "--kill-on-bad-exit=1",
        f"--nodes={resources.nodes}",
        f"--ntasks={resources.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={resources.cpus_per_task}",
        "--export=ALL",
        "--open-mode=append",
    ]
    if resources.nodes > 1:
        srun.append("--label")
    inner = shlex.join(["/bin/sh", task])
    # The words of `run_tasks`: srun itself, the folder of logs, the image, the runtime's program.
    words = f'"$1" {shlex.join(srun)} --output="$2/main.out" --error="$2/main.err"'
    before = exports = ""
    if image is None:
        run = f"{words} {inner}"
    elif runtime == "pyxis":
        options = [
            f"--container-mounts={','.join(_mount(mount) for mount in mounts)}",
            f"--container-env={','.join(names)}",
        ]
        run = f'{words} --container-image="$3" {shlex.join(options)} {inner}'
    elif runtime == "enroot":
        run = f'{words} "$4" {shlex.join(_enroot(mounts, names))} "$3" {inner}'
    else:
        binds = [word for mount in mounts for word in ("--bind", _mount(mount))]
        options = ["exec", "--nv", "--no-home", *binds]
        # What is exported under the prefix wins over the image's own.
        exports = "".join(f'  export APPTAINERENV_{name}="${name}"\n' for name in names)
        run = f'{words} "$4" {shlex.join(options)} "$3" {inner}'
    if image is not None:
        before = _image_lines(runtime, image, cached) + _PROGRAM.get(runtime, "")
    # exec: the shell waits for srun itself, whose exit code is the tasks'.
    return f"{before}run_tasks() {{\n{exports}  exec {run}\n}}\n"


def _image_lines(runtime: str, image: Image, cached: str) -> str:
    direct = image.docker_uri if runtime == "apptainer" and not image.is_path else image.pyxis
    if not cached:
        return f"image={shlex.quote(direct)}\n"
    if runtime == "enroot":  # which starts files only
        return f"image={shlex.quote(cached)}\n"
    return (
        f"image={shlex.quote(cached)}\n"
        f'[ -e "$image" ] || image={shlex.quote(direct)}  # not converted\n'
    )


def _mount(mount: Mount) -> str:
    """A mount as Pyxis and Apptainer write it."""
    return f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")


def _enroot(mounts: Iterable[Mount], names: Sequence[str]) -> list[str]:
    words = ["start"]
    for mount in mounts:
        mode = ",ro" if mount.read_only else ""
        words += ["--mount", f"{mount.source}:{mount.target}:x-create=auto,bind{mode}"]
    for name in names:
        words += ["--env", name]
    return words
