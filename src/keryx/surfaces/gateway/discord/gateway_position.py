"""The position of an account on Discord: the session with its last event, and the newest message that was handled. It moves with each stored event, and without one if many events say nothing to the bot."""

from datetime import datetime, timedelta

import msgspec

from keryx.core.ports.adapter import AdapterContext
from keryx.surfaces.gateway.discord.payloads import build_snowflake, read_time

# Events of several channels may arrive in another order than their messages were created.
_OVERLAP = timedelta(minutes=1)
# After this many events that say nothing to the bot the position is stored without an event.
_MAX_UNSTORED_EVENTS = 100
_SCOPE = "position"


class GatewayPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Its encoded form is the cursor of the account."""

    # Empty without a session to resume.
    session: str = ""
    url: str = ""
    # The number of the last event of the session that was handled.
    seq: int = 0
    # When the session began, in milliseconds since the epoch.
    started: int = 0
    # The newest message that was handled. All older ones were, too, back to `first`.
    last: str = ""
    # The id of a message at the time of the first sign-in. Older ones are never fetched.
    first: str = ""

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def decode_position(text: str | None) -> GatewayPosition:
    """Return the position of a cursor; an empty one if there is none, or none that can be read."""
    try:
        return msgspec.json.decode(text or "{}", type=GatewayPosition)
    except msgspec.DecodeError:
        return GatewayPosition()


async def load_position(context: AdapterContext) -> GatewayPosition:
    """Return the position that was stored last, with an event or without."""
    with_event = decode_position(context.cursor)
    without = decode_position(await context.load_state(_SCOPE))
    return max(with_event, without, key=lambda one: (one.started, one.seq, one is without))


class PositionTracker:
    """Keeps the position. While missed messages are fetched, the stored position stays where the last session was lost, so
    that a crash fetches them again."""

    def __init__(self, context: AdapterContext, position: GatewayPosition) -> None:
        self._context = context
        self._live = position
        self._lost_at = ""
        self._unstored = 0
        # The number of the event that is being handled.
        self._current = 0

    @property
    def missed_after(self) -> str:
        """The id after which messages were missed; empty if none were."""
        if not self._lost_at:
            return ""
        overlap = build_snowflake(read_time(self._lost_at) - _OVERLAP)
        return max(overlap, self._live.first or "0", key=int)

    @property
    def first(self) -> str:
        """The id of a message at the time of the first sign-in; empty if it is not known."""
        return self._live.first

    def encode(self, *, complete: bool = True) -> str:
        """Return the position to store. `complete` says that nothing of the current event is left to be stored."""
        position = self._live
        if complete:
            position = msgspec.structs.replace(position, seq=max(position.seq, self._current))
        if self._lost_at:
            position = msgspec.structs.replace(position, session="", url="", last=self._lost_at)
        return position.encode()

    async def begin(self, session: str, url: str, seq: int, *, now: datetime) -> None:
        """A new session has begun. If there was one before, messages were missed until `finish`."""
        # Messages of this very millisecond are later.
        beginning, earlier = str(max(int(build_snowflake(now)) - 1, 0)), self._live
        # A session that was lost while messages were fetched has not changed what was missed.
        self._lost_at = self._lost_at or self._live.last
        self._live = GatewayPosition(
            session=session,
            url=url,
            seq=seq,
            started=int(now.timestamp() * 1000),
            last=earlier.last or beginning,
            first=earlier.first or ("" if earlier.last else beginning),
        )
        self._current = seq
        if not earlier.last:
            await self._context.init_cursor(self.encode())

    def begin_event(self, seq: int) -> None:
        self._current = seq

    def end_event(self) -> None:
        """The current event is handled."""
        self._live = msgspec.structs.replace(self._live, seq=max(self._live.seq, self._current))
        self._unstored += 1

    def note_message(self, message: str) -> None:
        """A message is handled, or is stored with the position."""
        if int(message) > int(self._live.last or "0"):
            self._live = msgspec.structs.replace(self._live, last=message)

    def note_stored(self) -> None:
        self._unstored = 0

    async def finish(self) -> None:
        """Everything that was missed is stored."""
        if self._lost_at:
            self._lost_at = ""
            await self._save()

    async def save_if_due(self) -> None:
        if self._unstored >= _MAX_UNSTORED_EVENTS and not self._lost_at:
            await self._save()

    async def _save(self) -> None:
        await self._context.save_state(_SCOPE, self.encode())
        self._unstored = 0
