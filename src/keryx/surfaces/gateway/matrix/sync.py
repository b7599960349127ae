"""The sync loop of one account. The stored position moves only with a stored event, so a crash repeats events and never skips one."""

import hashlib
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from keryx import logs
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Invalid, NotFound, SendError, Unavailable
from keryx.core.ports.adapter import AdapterContext, LinkState
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.matrix import messages
from keryx.surfaces.gateway.matrix.encryption import (
    EncryptionUnavailable,
    RoomKeyMissing,
    UndecryptableMessage,
    UntrustedDevice,
)
from keryx.surfaces.gateway.matrix.event_types import (
    ENCRYPTED,
    ENCRYPTION,
    MEMBER,
    MESSAGE,
    NAME,
    REACTION,
    REDACTION,
    STICKER,
    TOPIC,
    VERIFICATION,
    InvitedRoom,
    JoinedRoom,
    MatrixContent,
    MatrixEvent,
    SyncResponse,
    parse_content,
    parse_event,
    parse_state,
    parse_unsigned,
)
from keryx.surfaces.gateway.matrix.homeserver import Homeserver, HomeserverThrottled, HomeserverUnavailable
from keryx.surfaces.gateway.matrix.messages import MatrixAccount, RelatedEvents
from keryx.surfaces.gateway.matrix.rooms import EncryptedRooms, RoomCache
from keryx.timing import Sleep

if TYPE_CHECKING:
    # It needs an optional extra.
    from keryx.surfaces.gateway.matrix.encryption.olm_machine import OlmMachine

log = logging.getLogger(__name__)


# Of one room, after an interruption.
MAX_GAP_EVENTS = 10_000

ENCRYPTED_NOTICE = Phrase("matrix.encrypted")
UNREAD_NOTICE = Phrase("matrix.key_missing")
PLAIN_REASON = Phrase("matrix.not_encrypted")
ENCRYPTION_STATUS = "encrypted rooms are not served: {reason}"
_ENCRYPTED_NOTICE_KEY = "org.keryx.told_encrypted"
_SYNC_TIMEOUT = timedelta(seconds=30)
# While a key is overdue or a verification goes on.
_SHORT_SYNC_TIMEOUT = timedelta(seconds=2)
_PAGE_SIZE = 100
_MAX_STORED_IDS = 50
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
_TIMELINE_FILTER = {
    "types": [
        MESSAGE,
        STICKER,
        REACTION,
        REDACTION,
        ENCRYPTED,
        MEMBER,
        NAME,
        TOPIC,
        ENCRYPTION,
        f"{VERIFICATION}*",
    ]
}
_EMPTY_FILTER = {"types": list[str]()}


def _build_filter(most: int) -> str:
    return msgspec.json.encode(
        {
            "presence": _EMPTY_FILTER,
            "account_data": _EMPTY_FILTER,
            "room": {
                "timeline": {**_TIMELINE_FILTER, "limit": most},
                "state": {"types": [MEMBER], "lazy_load_members": True},
                "ephemeral": _EMPTY_FILTER,
                "account_data": _EMPTY_FILTER,
            },
        }
    ).decode()


_LIVE_FILTER = _build_filter(50)
_START_FILTER = _build_filter(1)
_GAP_FILTER = msgspec.json.encode(_TIMELINE_FILTER).decode()


class SyncLoop:
    """Receives the events of one account."""

    def __init__(
        self,
        server: Homeserver,
        user: str,
        context: AdapterContext,
        *,
        sleep: Sleep,
        encrypted_rooms: EncryptedRooms,
        machine: "OlmMachine | None" = None,
        no_encryption: str = "",
    ) -> None:
        """`no_encryption` says why there is no machine."""
        self._server = server
        self._context = context
        self._sleep = sleep
        self._account = MatrixAccount(user)
        self._rooms = RoomCache(server, self._account)
        self._commands = frozenset(item.name for item in context.menu)
        self._notified_rooms: set[str] = set()
        self._encrypted_rooms = encrypted_rooms
        self._configured_machine = machine
        # `None` if encryption cannot be used.
        self._machine: OlmMachine | None = None
        self._no_encryption = no_encryption
        self._status_detail = ""
        self._stored_ids: tuple[str, ...] = ()

    async def run(self) -> None:
        """Receive until cancelled, and reconnect after failures. Raise `Forbidden` if the token is refused."""
        since: str | None = None
        failures = 0
        while True:
            try:
                since = await self._start() if since is None else await self._sync_once(since)
            except HomeserverThrottled as exc:
                self._context.report(LinkState.THROTTLED, f"{exc}: {exc.after.total_seconds():g} s")
                await self._sleep(exc.after.total_seconds())
            except HomeserverUnavailable as exc:
                self._context.report(LinkState.CONNECTING, str(exc))
                failures += 1
                await self._sleep(_BACKOFF.seconds(failures))
            else:
                self._context.report(LinkState.CONNECTED, self._describe_state())
                failures = 0

    def _describe_state(self) -> str:
        """Return what the operator should know, as sentences without a last full stop."""
        problems = [problem.removesuffix(".") for problem in self._machine.problems] if self._machine else []
        if self._no_encryption and self._notified_rooms:
            problems.append(ENCRYPTION_STATUS.format(reason=self._no_encryption))
        return ". ".join(filter(None, (self._status_detail, *problems)))

    async def _start(self) -> str:
        """Return the position to sync from: the stored one, or for a new account the current one, which is stored.
        Answer pending invitations again."""
        found = await self._server.whoami()
        if found != self._account.user:
            raise Forbidden(
                f"the access token belongs to {found}, not to {self._account.user}: set `user` in [matrix] to the right one"
            )
        self._account = MatrixAccount(found, await self._server.get_display_name(found))
        await self._open_machine()
        present = await self._server.sync(None, filter=_START_FILTER, wait=timedelta(0))
        if self._machine is not None:
            await self._machine.receive_sync(present)
            await self._machine.finish_sync()
        await self._answer_invitations(present)
        if self._context.cursor is not None:
            since, *stored = self._context.cursor.split(" ")
            self._stored_ids = tuple(stored)
            return since
        await self._context.init_cursor(present.next_batch)
        return present.next_batch

    async def _open_machine(self) -> None:
        if self._configured_machine is None:
            return
        try:
            await self._configured_machine.open()
        except (EncryptionUnavailable, NotFound) as exc:
            # Not found: the homeserver has no encryption at all.
            if str(exc) != self._no_encryption:
                log.warning("encrypted rooms of Matrix are not served: %s", exc)
            self._machine, self._no_encryption = None, str(exc)
        else:
            self._machine, self._no_encryption = self._configured_machine, ""

    async def _sync_once(self, since: str) -> str:
        """Receive one batch and return the next position. The last event of the batch moves the stored position; each one
        before it adds its id to the old position, so that it is skipped when the batch is repeated after a crash."""
        if self._machine is None:
            await self._open_machine()
        short = self._machine is not None and self._machine.busy
        batch = await self._server.sync(
            since, filter=_LIVE_FILTER, wait=_SHORT_SYNC_TIMEOUT if short else _SYNC_TIMEOUT
        )
        self._set_live(True)
        if self._machine is not None:
            # Before the position moves, because the next sync acknowledges the keys.
            await self._machine.receive_sync(batch)
            await self._handle_readable(self._machine)
        # Before the position moves, because a sync reports an invitation only once.
        await self._answer_invitations(batch)
        for room in batch.rooms.leave:
            self._forget_room(room)
        events: list[tuple[str, MatrixEvent]] = []
        for room, joined in batch.rooms.join.items():
            events += [(room, event) for event in await self._read_timeline(room, joined, since)]
        for number, (room, event) in enumerate(events, 1):
            if event.id not in self._stored_ids:
                stored = (*self._stored_ids, event.id)[-_MAX_STORED_IDS:]
                last = number == len(events)
                await self._handle_event(
                    room, event, batch.next_batch if last else " ".join((since, *stored))
                )
                self._stored_ids = stored
        self._stored_ids = ()
        for room, event in {room: event for room, event in events if event.type != MEMBER}.items():
            await self._mark_read(room, event)
        if self._machine is not None:
            await self._report_overdue(self._machine)
            await self._machine.finish_sync()
        return batch.next_batch

    def stop(self) -> None:
        """Nothing is learnt about rooms any more."""
        self._set_live(False)

    def _set_live(self, live: bool) -> None:
        self._encrypted_rooms.live = live
        if self._configured_machine is not None:
            self._configured_machine.live = live

    def _forget_room(self, room: str) -> None:
        self._rooms.forget(room)
        self._encrypted_rooms.forget(room)
        if self._machine is not None:
            self._machine.forget_members(room)

    async def _read_timeline(self, room: str, joined: JoinedRoom, since: str) -> list[MatrixEvent]:
        """Return the events of a room since the last sync, in order, without those before Keryx joined."""
        timeline = joined.timeline
        raws: list[msgspec.Raw] = []
        if timeline.limited and timeline.prev_batch:
            self._forget_room(room)
            try:
                raws = await self._fetch_gap(room, since, timeline.prev_batch)
            except (NotFound, Invalid) as exc:
                log.warning("cannot fetch the missed messages in %s: %s", logs.hash_chat(room), exc)
        events = {event.id: event for event in map(parse_event, (*raws, *timeline.events)) if event}
        if len(events) < len(raws) + len(timeline.events):
            log.info("ignored repeated or malformed events of Matrix")
        ordered = list(events.values())
        return ordered[messages.find_first_visible(ordered, self._account) :]

    async def _fetch_gap(self, room: str, since: str, until: str) -> list[msgspec.Raw]:
        """Return the events between the last sync and the beginning of a limited timeline."""
        found: list[msgspec.Raw] = []
        start = since
        for _ in range(MAX_GAP_EVENTS // _PAGE_SIZE):
            page = await self._server.fetch_history(
                room, start=start, stop=until, filter=_GAP_FILTER, most=_PAGE_SIZE
            )
            found += page.chunk
            if page.end is None or page.end == start:
                return found
            start = page.end
        log.warning(
            "missed more than %d messages in %s: some are left out", MAX_GAP_EVENTS, logs.hash_chat(room)
        )
        return found

    async def _handle_event(self, room: str, event: MatrixEvent, position: str | None) -> None:
        if event.type in (MEMBER, NAME, TOPIC):
            self._rooms.apply_event(room, event)
            if event.type == MEMBER and self._machine is not None:
                self._machine.forget_members(room)
        elif event.type == ENCRYPTION:
            self._encrypted_rooms.forget(room)
        elif event.type == ENCRYPTED:
            await self._receive_encrypted(room, event, position)
        elif event.type in (MESSAGE, STICKER) and await self._is_suspicious(room, event):
            await self._tell(
                room,
                f"{room} {event.sender} {PLAIN_REASON}",
                Phrase("matrix.untrusted", reason=PLAIN_REASON),
                encrypt=False,
            )
        else:
            await self._handle_message(room, event, position)

    async def _is_suspicious(self, room: str, event: MatrixEvent) -> bool:
        """Whether a message of another user in an encrypted room is not encrypted. The homeserver could have written it."""
        if self._machine is None or event.sender == self._account.user:
            return False
        content = parse_content(event)
        if (
            content is None
            or content.msgtype.startswith(VERIFICATION)
            or not messages.is_relevant(event, content, self._account)
        ):
            return False
        return (await self._encrypted_rooms.find(room) or self._machine.find_state(room)) is not None

    async def _handle_message(self, room: str, event: MatrixEvent, position: str | None) -> None:
        """Handle an event that may have been encrypted."""
        if await self._receive_verification(room, event):
            return
        if event.type in (MESSAGE, STICKER, REACTION, REDACTION):
            content = parse_content(event)
            if content is None:
                log.warning("ignored the malformed event %s of Matrix", event.id)
            elif event.type in (REACTION, REDACTION):
                await self._receive_event(room, event, content, position)
            elif messages.is_relevant(event, content, self._account):
                await self._receive(room, event, content, position)

    async def _receive_verification(self, room: str, event: MatrixEvent) -> bool:
        """Handle an event of a verification. Return whether it is one. The device need not be trusted."""
        content = parse_content(event) if event.type == MESSAGE else None
        kind = content.msgtype if content is not None else event.type
        if not kind.startswith(VERIFICATION):
            return False
        if self._machine is not None:
            await self._machine.receive_verification(room, event, kind)
        return True

    async def _receive_encrypted(self, room: str, event: MatrixEvent, position: str | None) -> bool:
        """Handle what is in an encrypted event. If that cannot be read, say so in the room. Return whether it was handled;
        if not, it is kept until its key arrives."""
        machine = self._machine
        if event.sender == self._account.user or parse_unsigned(event).redacted:
            return True
        if machine is None:
            await self._report_encrypted(room, event)
            return True
        try:
            plain = await machine.decrypt(room, event)
        except RoomKeyMissing:
            await machine.add_unread(room, event)
            return False
        except UntrustedDevice as exc:
            if exc.event is not None and await self._receive_verification(room, exc.event):
                return True
            subject = f"{room} {event.sender} {exc}"
            await self._tell(room, subject, Phrase("matrix.untrusted", reason=exc.text), encrypt=False)
        except UndecryptableMessage as exc:
            log.warning("the message %s of Matrix is not readable: %s", event.id, exc)
            await self._tell(room, f"{room} {event.sender} {exc}", Phrase("matrix.unreadable"))
        else:
            if plain.type in (MESSAGE, STICKER, REACTION) or plain.type.startswith(VERIFICATION):
                await self._handle_message(room, plain, position)
        return True

    async def _handle_readable(self, machine: "OlmMachine") -> None:
        """Handle messages whose key has arrived since."""
        for room, event in machine.list_readable():
            current = await self._server.find_event(room, event.id)
            deleted = current is None or parse_unsigned(current).redacted
            if deleted or await self._receive_encrypted(room, event, None):
                await machine.remove_unread(event.id)

    async def _report_overdue(self, machine: "OlmMachine") -> None:
        """Say in the rooms that messages cannot be read yet, once for each key."""
        for unread in machine.list_overdue():
            notice = machine.explain_missing_key(unread)
            reason = "" if notice == UNREAD_NOTICE else f" {notice.key}"
            await self._tell(unread.room, f"{unread.room} {unread.session}{reason}", notice)

    async def _tell(self, room: str, subject: str, text: Phrase, *, encrypt: bool = True) -> None:
        """Say something once in an encrypted room. A notice that untrusted devices shall read is not encrypted."""
        machine = self._machine
        if machine is None or machine.has_notice(subject):
            return
        transaction = f"keryx.notice.{hashlib.sha256(subject.encode()).hexdigest()[:32]}"
        notice = self._build_notice(text)
        try:
            state = await self._encrypted_rooms.find(room) or machine.find_state(room)
            if encrypt and state is not None:
                encrypted = await machine.encrypt(room, state, MESSAGE, notice)
                await self._server.send(room, transaction, encrypted, kind=ENCRYPTED)
            else:
                await self._server.send(room, transaction, notice)
        except (SendError, NotFound, Invalid, EncryptionUnavailable) as exc:
            log.warning("cannot say in %s what is not readable: %s", logs.hash_chat(room), exc)
            return
        await machine.record_notice(subject)

    async def _receive(
        self, room: str, event: MatrixEvent, content: MatrixContent, position: str | None
    ) -> None:
        related = await self._fetch_related(room, event, content)
        if related is None:
            return
        inbound = messages.build_inbound(
            event,
            content,
            room=await self._rooms.get(room),
            me=self._account,
            menu=self._commands,
            related=related,
            cursor=position,
        )
        try:
            await self._context.receive(inbound)
        except Invalid as exc:
            log.warning("ignored the message %s of Matrix: %s", event.id, exc)

    async def _receive_event(
        self, room: str, event: MatrixEvent, content: MatrixContent, position: str | None
    ) -> None:
        """Receive a reaction or a redaction of another user."""
        if event.sender == self._account.user or not event.id:
            return
        inbound = messages.build_event(
            event, content, room=await self._rooms.get(room), me=self._account, cursor=position
        )
        if inbound is None:
            return
        try:
            await self._context.receive(inbound)
        except Invalid as exc:
            log.warning("ignored the event %s of Matrix: %s", event.id, exc)

    async def _fetch_related(
        self, room: str, event: MatrixEvent, content: MatrixContent
    ) -> RelatedEvents | None:
        """Return what the event refers to, or `None` for an edit of a message that does not exist or has another author."""
        edited = messages.find_edited_id(content)
        if edited:
            first = await self._find_event(room, edited)
            return RelatedEvents(edited=first) if first and first.sender == event.sender else None
        replied = messages.find_replied_id(content)
        return RelatedEvents(replied=await self._find_event(room, replied) if replied else None)

    async def _find_event(self, room: str, event: str) -> MatrixEvent | None:
        """Return an event, decrypted if that is possible."""
        found = await self._server.find_event(room, event)
        if found is None or found.type != ENCRYPTED or self._machine is None:
            return found
        try:
            return await self._machine.decrypt(room, found, replay_check=False)
        except (RoomKeyMissing, UntrustedDevice, UndecryptableMessage) as exc:
            log.info("the event %s of Matrix is not readable: %s", event, exc)
            return found

    async def _report_encrypted(self, room: str, event: MatrixEvent) -> None:
        """Say once in a room that encrypted messages are not read. The data of the account records that it was said."""
        if room in self._notified_rooms or event.sender == self._account.user:
            return
        if not await self._server.get_account_data(self._account.user, _ENCRYPTED_NOTICE_KEY, room=room):
            try:
                notice = self._build_notice(ENCRYPTED_NOTICE)
                await self._server.send(room, f"{_ENCRYPTED_NOTICE_KEY}.{room}", notice)
                await self._server.set_account_data(
                    self._account.user, _ENCRYPTED_NOTICE_KEY, {"told": True}, room=room
                )
            except (SendError, NotFound, Invalid) as exc:
                log.warning(
                    "cannot say in %s that encrypted messages stay unread: %s", logs.hash_chat(room), exc
                )
                return
        self._notified_rooms.add(room)

    def _build_notice(self, text: Phrase) -> dict[str, Any]:
        return messages.build_notice(self._context.texts.speak().render(text))

    async def _mark_read(self, room: str, event: MatrixEvent) -> None:
        try:
            await self._server.mark_read(room, event.id)
        except (NotFound, Invalid, Unavailable) as exc:
            log.info("cannot mark %s as read: %s", logs.hash_chat(room), exc)

    async def _answer_invitations(self, batch: SyncResponse) -> None:
        for room, invited in batch.rooms.invite.items():
            await self._answer_invitation(room, invited)

    async def _answer_invitation(self, room: str, invited: InvitedRoom) -> None:
        """Accept an invitation if its sender may talk to Keryx; ignore others."""
        found = [e for e in map(parse_event, invited.invite_state.events) if e and self._is_own_membership(e)]
        if not found:
            return
        invitation = found[-1]
        source = messages.build_invitation_source(
            room, invitation.sender, me=self._account, direct=parse_state(invitation).is_direct
        )
        if await self._context.is_allowed(source):
            await self._join(room)
        else:
            log.warning("an invitation to %s is not followed: its sender may not talk", logs.hash_chat(room))
            self._status_detail = f"an invitation by {invitation.sender} waits: they may not talk to Keryx"
            self._context.report(LinkState.CONNECTED, self._describe_state())

    def _is_own_membership(self, event: MatrixEvent) -> bool:
        return event.type == MEMBER and event.state_key == self._account.user

    async def _join(self, room: str) -> None:
        try:
            await self._server.join(room)
        except HomeserverThrottled:
            raise
        except (NotFound, Invalid, Unavailable) as exc:
            log.warning("cannot join %s: %s", logs.hash_chat(room), exc)
