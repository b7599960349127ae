"""Fakes and fault injection for tests of Keryx, its adapters and its agents.

`keryx.testing.contracts` has the contract suites (with pytest), and `keryx.testing.wire` what fakes of platforms are built on.
"""

from keryx.testing.fakes import (
    ODD_TEXTS,
    START_TIME,
    FakeClock,
    RecordingAdapter,
    RecordingAdapterContext,
    ScriptedAgent,
)
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming, PlatformFaults

__all__ = [
    "ODD_TEXTS",
    "START_TIME",
    "CrashingDatabase",
    "DatabaseFault",
    "FakeClock",
    "FaultTiming",
    "PlatformFaults",
    "RecordingAdapter",
    "RecordingAdapterContext",
    "ScriptedAgent",
]
