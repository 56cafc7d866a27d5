"""What `import tao_sdk` loads and offers."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import subprocess
import sys

import pytest

import tao_sdk

REFERENCE = {
    "Job",
    "JobStatus",
    "Checkpoint",
    "CredentialError",
    "JobStore",
    "ArtifactCleanupSDK",
    "PythonScriptSDK",
    "VirtualEnvSDK",
}


def modules_loaded_by(statement: str) -> set[str]:
    program = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())


@pytest.mark.seed("000.1")
def test_importing_loads_exactly_this() -> None:
    assert modules_loaded_by("import tao_sdk") == {"tao_sdk", "tao_sdk._version", "__future__"}


def test_a_platform_loads_little() -> None:
    """Each of these would be a good part of the start of every program."""
    late = {"dataclasses", "inspect", "sqlite3", "subprocess", "logging", "socket", "uuid"}
    assert late.isdisjoint(modules_loaded_by("from tao_sdk import LocalSDK"))


def test_every_public_name_needs_the_standard_library_only() -> None:
    """Third-party packages are for the command line and single features."""
    statement = f"from tao_sdk import {', '.join(n for n in tao_sdk.__all__ if n != '__version__')}"
    packages = {name.partition(".")[0] for name in modules_loaded_by(statement)}
    foreign = {name for name in packages if name not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith("_")} == {"tao_sdk"}


@pytest.mark.seed("000.1")
def test_one_extra_brings_what_every_platform_needs() -> None:
    metadata = importlib.metadata.metadata("tao-sdk")
    needs: dict[str, set[str]] = {extra: set() for extra in metadata.get_all("Provides-Extra", [])}
    for line in metadata.get_all("Requires-Dist", []):
        package, _, condition = line.partition(";")
        if extra := re.search(r"extra == .(\w+)", condition):
            needs[extra[1]].add(package)
    assert set(needs) >= {"local", "docker", "slurm", "kubernetes", "brev", "lepton"}
    del needs["dev"]
    everything = needs.pop("all")
    assert everything == set().union(*needs.values())
    assert everything


def test_all_holds_the_references_names_and_ours() -> None:
    assert set(tao_sdk.__all__) >= REFERENCE
    assert sorted(tao_sdk.__all__) == tao_sdk.__all__
    for name in tao_sdk.__all__:
        assert getattr(tao_sdk, name) is not None
    assert dir(tao_sdk) == sorted(tao_sdk.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tao_sdk.nothing  # noqa: B018 - the access is the test


def test_the_lazy_table_is_the_typed_one() -> None:
    """What a type checker sees under TYPE_CHECKING is what comes at run time."""
    source = inspect.getsource(tao_sdk)
    for name, home in tao_sdk._HOMES.items():
        [line] = [
            line for line in source.splitlines() if line.startswith(f"    from {home} import")
        ]
        assert name in line.partition(" import ")[2].replace(",", " ").split()
    assert set(tao_sdk._HOMES) | {"__version__"} == set(tao_sdk.__all__)
