"""Listening: the sync loop. The stored position moves only with a stored event, so a crash repeats and never skips."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

import msgspec

from keryx.core.errors import Forbidden, Invalid, NotFound, SendError, Unavailable
from keryx.core.messages import Part, Text
from keryx.core.ports import Attachment, Door, Link
from keryx.surfaces.gateway.matrix import content, parse
from keryx.surfaces.gateway.matrix.api import Homeserver
from keryx.surfaces.gateway.matrix.events import (
    ENCRYPTED,
    MEMBER,
    MESSAGE,
    NAME,
    STICKER,
    TOPIC,
    Batch,
    Content,
    Event,
    Invited,
    Joined,
    content_of,
    event_of,
    state_of,
)
from keryx.surfaces.gateway.matrix.failures import Away, Paused
from keryx.surfaces.gateway.matrix.parse import PLATFORM, Around, Me
from keryx.surfaces.gateway.matrix.rooms import Rooms

log = logging.getLogger(__name__)

Sleep: TypeAlias = Callable[[float], Awaitable[None]]

LONGEST_GAP = 10_000
"""Events of one room that are fetched after a time away. What is beyond is told in the log."""

CANNOT_READ = "I cannot read encrypted messages. Please write to me in a room without encryption."
_TOLD = "org.keryx.told_encrypted"
_WAIT = timedelta(seconds=30)
_PAGE = 100
_MOST_STORED = 50
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_TIMELINE = {"types": [MESSAGE, STICKER, ENCRYPTED, MEMBER, NAME, TOPIC]}
_NOTHING = {"types": list[str]()}


def _filter(most: int) -> str:
    return msgspec.json.encode(
        {
            "presence": _NOTHING,
            "account_data": _NOTHING,
            "room": {
                "timeline": {**_TIMELINE, "limit": most},
                "state": {"types": [MEMBER], "lazy_load_members": True},
                "ephemeral": _NOTHING,
                "account_data": _NOTHING,
            },
        }
    ).decode()


_LIVE = _filter(50)
_START = _filter(1)
_GAP = msgspec.json.encode(_TIMELINE).decode()


class Listener:
    """Hears one account for as long as it runs. `limit` is in bytes of one file."""

    def __init__(self, server: Homeserver, user: str, door: Door, *, limit: int, sleep: Sleep) -> None:
        self._server = server
        self._door = door
        self._limit = limit
        self._sleep = sleep
        self._me = Me(user)
        self._rooms = Rooms(server, self._me)
        self._menu = frozenset(item.name for item in door.menu)
        self._told: set[str] = set()
        self._link: Link | None = None
        self._waiting = ""
        self._stored: tuple[str, ...] = ()

    async def run(self) -> None:
        """Listen until cancelled, however often the homeserver goes away. `Forbidden` if it refuses the token."""
        since: str | None = None
        pause = _FIRST_PAUSE
        while True:
            try:
                since = await self._begin() if since is None else await self._step(since)
            except Paused as exc:
                self._report(Link.THROTTLED, f"{exc}: {exc.after.total_seconds():g} s")
                await self._sleep(exc.after.total_seconds())
            except Away as exc:
                self._report(Link.CONNECTING, str(exc))
                await self._sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._report(Link.CONNECTED, self._waiting)
                pause = _FIRST_PAUSE

    def _report(self, link: Link, detail: str) -> None:
        if link is not self._link:
            self._link = link
            self._door.report(link, detail)

    async def _begin(self) -> str:
        """Where to go on: the stored position, or for an account that never listened the present, which is stored.
        Invitations that nobody answered yet are looked at again."""
        found = await self._server.whoami()
        if found != self._me.user:
            raise Forbidden(
                f"the access token belongs to {found}, not to {self._me.user}: set `user` in [matrix] to the right one"
            )
        self._me = Me(found, await self._server.display_name(found))
        present = await self._server.sync(None, filter=_START, wait=timedelta(0))
        await self._answer_invitations(present)
        if self._door.cursor is not None:
            since, *stored = self._door.cursor.split(" ")
            self._stored = tuple(stored)
            return since
        await self._door.begin(present.next_batch)
        return present.next_batch

    async def _step(self, since: str) -> str:
        """Take in what one sync brings. Its last event moves the position; those before it add themselves to the old
        one, so that after a crash the batch comes again without them."""
        batch = await self._server.sync(since, filter=_LIVE, wait=_WAIT)
        # Before the position moves: an invitation is told once only.
        await self._answer_invitations(batch)
        for room in batch.rooms.leave:
            self._rooms.forget(room)
        heard: list[tuple[str, Event]] = []
        for room, joined in batch.rooms.join.items():
            heard += [(room, event) for event in await self._timeline(room, joined, since)]
        for number, (room, event) in enumerate(heard, 1):
            if event.id not in self._stored:
                stored = (*self._stored, event.id)[-_MOST_STORED:]
                last = number == len(heard)
                await self._hear(room, event, batch.next_batch if last else " ".join((since, *stored)))
                self._stored = stored
        self._stored = ()
        for room, event in {room: event for room, event in heard if event.type != MEMBER}.items():
            await self._mark_read(room, event)
        return batch.next_batch

    async def _timeline(self, room: str, joined: Joined, since: str) -> list[Event]:
        """What happened in a room since the last sync, in order, without what was said before Keryx was there."""
        timeline = joined.timeline
        raws: list[msgspec.Raw] = []
        if timeline.limited and timeline.prev_batch:
            self._rooms.forget(room)
            try:
                raws = await self._gap(room, since, timeline.prev_batch)
            except (NotFound, Invalid) as exc:
                log.warning("what was said in %s meanwhile cannot be had: %s", room, exc)
        events = {event.id: event for event in map(event_of, (*raws, *timeline.events)) if event}
        if len(events) < len(raws) + len(timeline.events):
            log.info("some events in a room of Matrix are repeated or malformed, and are passed over")
        ordered = list(events.values())
        return ordered[parse.opened(ordered, self._me) :]

    async def _gap(self, room: str, since: str, until: str) -> list[msgspec.Raw]:
        """The events between the last sync and the beginning of a timeline that was cut."""
        found: list[msgspec.Raw] = []
        start = since
        for _ in range(LONGEST_GAP // _PAGE):
            page = await self._server.history(room, start=start, stop=until, filter=_GAP, most=_PAGE)
            found += page.chunk
            if page.end is None or page.end == start:
                return found
            start = page.end
        log.warning("more than %d messages came in %s meanwhile: some are passed over", LONGEST_GAP, room)
        return found

    async def _hear(self, room: str, event: Event, position: str) -> None:
        if event.type in (MEMBER, NAME, TOPIC):
            self._rooms.follow(room, event)
        elif event.type == ENCRYPTED:
            await self._cannot_read(room, event)
        elif event.type in (MESSAGE, STICKER):
            said = content_of(event)
            if said is None:
                log.warning("the message %s of Matrix is malformed and passed over", event.id)
            elif parse.heeded(event, said, self._me):
                await self._receive(room, event, said, position)

    async def _receive(self, room: str, event: Event, said: Content, position: str) -> None:
        around = await self._around(room, event, said)
        if around is None:
            return
        inbound = parse.inbound(
            event,
            said,
            room=await self._rooms.get(room),
            me=self._me,
            menu=self._menu,
            around=around,
            cursor=(f"{PLATFORM}:{self._me.user}", position),
        )
        try:
            await self._door.receive(inbound)
        except Invalid as exc:
            log.warning("the message %s of Matrix is passed over: %s", event.id, exc)

    async def _around(self, room: str, event: Event, said: Content) -> Around | None:
        """What the event refers to; `None` for an edit of what is not there, or not the author's own."""
        edited = parse.edits(said)
        if edited:
            first = await self._server.event(room, edited)
            return Around(edited=first) if first and first.sender == event.sender else None
        replied = parse.replies(said)
        return Around(
            replied=await self._server.event(room, replied) if replied else None,
            files=await self._files(said) if said.msgtype in parse.MEDIA else (),
        )

    async def _files(self, said: Content) -> tuple[Part, ...]:
        """The file that came with a message; a sentence in its place if it cannot be had."""
        name = said.filename or said.body or "file"
        try:
            if said.info.size > self._limit:
                raise Invalid(f"it is larger than {self._limit} bytes")
            body = await self._server.download(said.url, limit=self._limit)
            return (await self._door.keep(Attachment(name=name, mime=said.info.mimetype, body=body)),)
        except (Invalid, Unavailable) as exc:
            log.info("a file of Matrix could not be fetched: %s", exc)
            return (Text(f"(A file came with this message, {name!r}, but could not be fetched: {exc}.)"),)

    async def _cannot_read(self, room: str, event: Event) -> None:
        """Say once in a room that what is encrypted stays unread. The account remembers on its server that it did."""
        if room in self._told or event.sender == self._me.user:
            return
        if not await self._server.account_data(self._me.user, _TOLD, room=room):
            try:
                await self._server.send(room, f"{_TOLD}.{room}", content.notice(CANNOT_READ))
                await self._server.keep_account_data(self._me.user, _TOLD, {"told": True}, room=room)
            except (SendError, NotFound, Invalid) as exc:
                log.warning("cannot say in %s that encrypted messages stay unread: %s", room, exc)
                return
        self._told.add(room)

    async def _mark_read(self, room: str, event: Event) -> None:
        try:
            await self._server.mark_read(room, event.id)
        except (NotFound, Invalid, Unavailable) as exc:
            log.info("cannot mark %s as read: %s", room, exc)

    async def _answer_invitations(self, batch: Batch) -> None:
        for room, invited in batch.rooms.invite.items():
            await self._invited(room, invited)

    async def _invited(self, room: str, invited: Invited) -> None:
        """Join where somebody who may talk to Keryx asks it to; leave other invitations as they are."""
        found = [e for e in map(event_of, invited.invite_state.events) if e and self._is_mine(e)]
        if not found:
            return
        asked = found[-1]
        source = parse.invitation(room, asked.sender, me=self._me, direct=state_of(asked).is_direct)
        if await self._door.allowed(source):
            await self._join(room)
        else:
            log.warning("%s invites Keryx to %s and may not talk to it: not joined", asked.sender, room)
            self._waiting = f"an invitation by {asked.sender} waits: they may not talk to Keryx"
            self._link = Link.CONNECTED
            self._door.report(Link.CONNECTED, self._waiting)

    def _is_mine(self, event: Event) -> bool:
        return event.type == MEMBER and event.state_key == self._me.user

    async def _join(self, room: str) -> None:
        try:
            await self._server.join(room)
        except Paused:
            raise
        except (NotFound, Invalid, Unavailable) as exc:
            log.warning("cannot join %s: %s", room, exc)
