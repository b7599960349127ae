"""Blame: which of the turns that ran when a process died may have killed it.

A process dies for reasons of its own, too. A turn is suspect once two processes have died under it; a process runs one
suspect at a time, so that a death tells something. Only a turn that ran alone, or was the suspect, is blamed. One that got
further before the process died, by an answer of a tool, is blamed for nothing that went before; its tries still count.
"""

from collections.abc import Iterable

from keryx.core.ids import TurnId
from keryx.core.turns import Turn

TRIES = 3
MOST_TRIES = 12
_CERTAIN = 2


def blamed(ran: Iterable[Turn]) -> frozenset[TurnId]:
    """Whom to blame for the death of the one process that ran these turns. Empty when several are as likely."""
    turns = list(ran)
    suspects = [t for t in turns if t.attempts >= TRIES]
    guilty = suspects or (turns if len(turns) == 1 else [])
    return frozenset(t.id for t in guilty)


def poisonous(attempts: int, blame: int) -> bool:
    """Whether a turn is to be set aside: tried three times and blamed at least twice, or tried far too often."""
    return (attempts >= TRIES and blame >= _CERTAIN) or attempts >= MOST_TRIES
