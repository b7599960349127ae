"""Modes: how much an agent may do in a session without asking."""

from enum import StrEnum


class Mode(StrEnum):
    """`ASK` puts every question to a person, `AUTO` allows what is asked for, `READ` denies it."""

    ASK = "ask"
    AUTO = "auto"
    READ = "read"


TITLES = {Mode.ASK: "Ask", Mode.AUTO: "Allow all", Mode.READ: "Read only"}
MEANINGS = {
    Mode.ASK: "Ask before a tool does what needs permission.",
    Mode.AUTO: "Let tools do what needs permission without asking.",
    Mode.READ: "Deny whatever needs permission.",
}


def of(setting: str | None) -> Mode:
    """The mode that a session's setting names; anything unknown asks."""
    return Mode(setting) if setting in {m.value for m in Mode} else Mode.ASK
