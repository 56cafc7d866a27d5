"""The suite that every platform must pass, for our platforms and for yours.

In a test module of your platform::

    from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes

    @pytest.fixture
    def lab(tmp_path):
        with MyLab(tmp_path) as lab:
            yield lab

`Lab` says what a lab must be able to do. Needs pytest; nothing else of the SDK imports this.
"""

from tao_sdk.platforms.conformance.crashes import TestKilledClient
from tao_sdk.platforms.conformance.durability import TestDurability, TestTruth
from tao_sdk.platforms.conformance.lab import Lab, eventually
from tao_sdk.platforms.conformance.lifecycle import (
    TestCancel,
    TestData,
    TestEnvironment,
    TestLogs,
    TestOutcomes,
    TestPlan,
)
from tao_sdk.platforms.conformance.looking import TestLooking
from tao_sdk.platforms.conformance.secrecy import TestHostileInput, TestSecrets

__all__ = [
    "Lab",
    "TestCancel",
    "TestData",
    "TestDurability",
    "TestEnvironment",
    "TestHostileInput",
    "TestKilledClient",
    "TestLogs",
    "TestLooking",
    "TestOutcomes",
    "TestPlan",
    "TestSecrets",
    "TestTruth",
    "eventually",
]
