"""Previews: the message that shows a running turn where the platform can edit, until the answer takes its place."""

from enum import StrEnum

import msgspec

from keryx.core.deliveries import Target
from keryx.core.ids import LeaseToken, TurnId


class PreviewState(StrEnum):
    """Sending: on its way for the first time. Shown: it has arrived. Lost: nobody knows whether it has."""

    SENDING = "sending"
    SHOWN = "shown"
    LOST = "lost"


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """`receipt` is the platform's id of the message; `revision` counts what was sent of it; `token` fences what
    its sender records."""

    turn: TurnId
    target: Target
    state: PreviewState
    receipt: str
    revision: int
    token: LeaseToken

    @property
    def key(self) -> str:
        """The key of the first send: the same for every attempt, so a platform that knows keys shows it once."""
        return key(self.turn)


def key(turn: TurnId) -> str:
    return f"{turn}.preview"


def progress(tool: str, minutes: int) -> str:
    """What is shown of a long turn that has said nothing yet."""
    doing = f"working: {tool}" if tool else "working"
    return f"still {doing}, {minutes} min" if minutes else f"{doing} …"
