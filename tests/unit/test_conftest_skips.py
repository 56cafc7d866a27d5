"""Where labs are demanded, a test is skipped only for a reason that is on the list."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from expected_skips import why_expected

TESTS = Path(__file__).parents[1]
SOAK = "full count: run by `make soak` (a sample runs here)"
PROBE = """
import pytest

def test_skipped():
    pytest.skip({reason!r})

@pytest.mark.skipif(True, reason={reason!r})
def test_marked():
    pass

@pytest.mark.xfail(reason="known")
def test_known():
    assert False
"""
MODULE = "import pytest; pytest.skip({reason!r}, allow_module_level=True)"


def suite(folder: Path, probe: str, workers: str, demanded: str) -> tuple[int, str]:
    """Run a suite with our conftest: the exit code and the output."""
    (folder / "conftest.py").write_bytes((TESTS / "conftest.py").read_bytes())
    (folder / "test_probe.py").write_text(probe)
    (folder / "test_another.py").write_text("def test_passes(): pass")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", workers, "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS), "TAO_LAB_REQUIRE": demanded},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize("probe", [PROBE, MODULE], ids=["tests", "module"])
class TestDemandedLabs:
    def test_another_reason_fails_the_run(self, tmp_path: Path, probe: str, workers: str) -> None:
        code, said = suite(tmp_path, probe.format(reason="no such thing"), workers, "bank")
        assert code != 0
        assert "skipped although every lab is demanded: no such thing" in said
        assert "tests/expected_skips.py" in said

    def test_an_expected_reason_is_listed(self, tmp_path: Path, probe: str, workers: str) -> None:
        code, said = suite(tmp_path, probe.format(reason=SOAK), workers, "bank")
        assert code == 0, said
        assert f"{2 if probe == PROBE else 1} x {SOAK}: {why_expected(SOAK)}" in said


def test_without_demanded_labs_any_reason_will_do(tmp_path: Path) -> None:
    code, said = suite(tmp_path, PROBE.format(reason="no such thing"), "0", "")
    assert code == 0, said
    assert "expected skips" not in said
