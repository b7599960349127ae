"""Fakes and fault injection for tests of Keryx, its adapters and its agents."""

from keryx.testing.fakes import (
    START_TIME,
    FakeClock,
    RecordingAdapter,
    RecordingAdapterContext,
    ScriptedAgent,
)
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming

__all__ = [
    "START_TIME",
    "CrashingDatabase",
    "DatabaseFault",
    "FakeClock",
    "FaultTiming",
    "RecordingAdapter",
    "RecordingAdapterContext",
    "ScriptedAgent",
]
