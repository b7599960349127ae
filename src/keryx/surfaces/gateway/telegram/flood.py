"""Flood: Telegram does not say whether a pause is meant for one chat or for the whole bot. Several at once mean the bot."""

import time
from collections.abc import Callable

from keryx.core.errors import Throttled

CHATS = 3


class Flood:
    """Knows which chats wait now. When `CHATS` of them do at the same time, the pause is the account's."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until: dict[str, float] = {}

    def judged(self, error: Throttled, chat: str) -> Throttled:
        now = self._now()
        self._until = {name: until for name, until in self._until.items() if until > now}
        self._until[chat] = now + error.after.total_seconds()
        return Throttled(str(error), after=error.after, account=len(self._until) >= CHATS)
