"""Fakes for tests of Keryx and of what is built on it. They stand at ports and at the wire, nowhere else."""

from keryx.testing.adapters import RecordingAdapter
from keryx.testing.agents import ScriptedAgent
from keryx.testing.clock import START, FakeClock
from keryx.testing.database import CrashingDatabase, Fault, When
from keryx.testing.doors import RecordingDoor

__all__ = [
    "START",
    "CrashingDatabase",
    "FakeClock",
    "Fault",
    "RecordingAdapter",
    "RecordingDoor",
    "ScriptedAgent",
    "When",
]
