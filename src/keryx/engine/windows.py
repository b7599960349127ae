"""Windows: a stretch of a conversation without a gap, at its end, before, after or around a message."""

import msgspec

from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.store import messages
from keryx.store.database import Transaction

_END = 1 << 60


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to show: below `before`, above `after`, or `around` one; the last ones without any of these."""

    before: int | None = None
    after: int | None = None
    around: int | None = None
    limit: int = 50


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, oldest first, and whether there are more on either side."""

    messages: list[Message]
    earlier: bool
    later: bool


def show(tx: Transaction, session: SessionId, window: Window, *, last: int) -> Shown:
    """The messages of a window; `last` is the number of the session's last message."""
    found = _messages(tx, session, window)
    first = found[0].seq if found else 1
    end = found[-1].seq if found else last
    return Shown(messages=found, earlier=first > 1, later=end < last)


def _messages(tx: Transaction, session: SessionId, window: Window) -> list[Message]:
    limit = window.limit
    if window.around is not None:
        older = messages.latest(tx, session, before=window.around, limit=limit // 2)
        newer = messages.following(tx, session, after=window.around - 1, limit=limit - len(older))
        if len(older) + len(newer) < limit:
            older = messages.latest(tx, session, before=window.around, limit=limit - len(newer))
        return [*older, *newer]
    if window.after is not None:
        return messages.following(tx, session, after=window.after, limit=limit)
    before = window.before if window.before is not None else _END
    return messages.latest(tx, session, before=before, limit=limit)
