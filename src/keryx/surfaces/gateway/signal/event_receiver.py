"""Receives what was taken from Signal: reads the spool, learns the ids and names of people, and hands events to the engine one by one."""

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from keryx.core.cache import LruCache
from keryx.core.errors import Invalid
from keryx.core.ports.adapter import (
    AdapterContext,
    InboundDeletion,
    InboundEvent,
    InboundMessage,
    InboundReaction,
)
from keryx.surfaces.gateway.signal.event_parser import (
    ParsedEnvelope,
    SignalIdentity,
    parse_envelope,
)
from keryx.surfaces.gateway.signal.payloads import ReceivedEnvelope, SignalEnvelope
from keryx.surfaces.gateway.signal.spool_file import SpoolFile, SpoolLine, find_next

log = logging.getLogger(__name__)

_SPOOL_SCOPE = "spool"
_MAX_NAMES = 10_000
_MAX_REVISIONS = 50
# What a line of signal-cli begins with.
_LINE_STARTS = (b'{"envelope"', b'{"account"', b'{"exception"')
_UNTRUSTED = "UntrustedIdentityException"
NO_SPOOL = "signal-cli does not write what it receives to {path}: start it with --output=json and its output appended to that file"
OTHER_ACCOUNT = (
    "the spool has messages of another account: give each account a signal-cli and a spool of its own"
)


class EditHistory:
    """The versions of edited messages of a chat: each has an id of its own, and people refer to any of them. Kept as the
    state of a scope."""

    def __init__(self, text: str | None) -> None:
        pairs = (pair.split("=", 1) for pair in (text or "").split())
        self._originals = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}

    def find_original(self, message: str) -> str:
        """Return the id of the first version of a message."""
        return self._originals.get(message, message)

    def find_latest(self, original: str) -> str:
        """Return the id of the newest version of a message."""
        return next((new for new, old in reversed(self._originals.items()) if old == original), original)

    def add(self, revision: str, original: str) -> str:
        """Note a new version and return the state to store."""
        kept = [*self._originals.items(), (revision, original)][-_MAX_REVISIONS:]
        self._originals = dict(kept)
        return " ".join(f"{new}={old}" for new, old in kept)


def name_edits(chat: str) -> str:
    """Return the scope of the versions of what people have edited in a chat."""
    return f"edits {chat}"


def name_own_edits(chat: str) -> str:
    return f"own edits {chat}"


class SignalReceiver:
    def __init__(
        self, context: AdapterContext, me: SignalIdentity, spool: SpoolFile, *, notes_only: bool = False
    ) -> None:
        self._context = context
        self._me = me
        self._spool = spool
        self._notes_only = notes_only
        # By the ids of people.
        self._names = LruCache[str, str](_MAX_NAMES)
        # The spool had lines when it was read last, and lines of another account.
        self._spooled = self._foreign = False
        # What is wrong with the spool, as a sentence; empty if nothing is.
        self.problem = ""
        # The number of lines that could not be read or were refused as invalid.
        self.skipped = 0

    async def receive_spool(self, pulled: Sequence[object] = ()) -> None:
        """Receive everything that is in the spool and not stored yet, and what signal-cli has handed over, which is put there
        first. A shared spool should contain it already."""
        lines = await asyncio.to_thread(self._spool.read)
        # What signal-cli has handed over and is not in the spool, as lines.
        wanted = [json.dumps(item, sort_keys=True) for item in pulled]
        known: set[str] = set()
        for line in lines if wanted else ():
            with suppress(ValueError, RecursionError):
                known.add(json.dumps(json.loads(line.text), sort_keys=True))
        missing = [text.encode() for text in wanted if text not in known]
        if pulled:
            self.problem = NO_SPOOL.format(path=self._spool.path) if missing and self._spool.shared else ""
        if missing:
            await asyncio.to_thread(self._spool.append, missing)
            lines = [*lines, *map(SpoolLine, missing)]
        received = [read_line(line) for line in lines]
        self._spooled = bool(lines)
        self._foreign = any(one is not None and not self._is_mine(one) for one in received)
        if self._foreign:
            self.problem = OTHER_ACCOUNT
        first = find_next(lines, await self._context.load_state(_SPOOL_SCOPE)) if lines else 0
        for line, one in zip(lines[first:], received[first:], strict=True):
            await self.receive_line(line, one)

    async def clear_spool(self) -> None:
        """Remove what `receive_spool` has stored. Not called while signal-cli receives."""
        if self._spooled and not self._foreign:
            await asyncio.to_thread(self._spool.clear)

    async def receive_line(self, line: SpoolLine, received: ReceivedEnvelope | None) -> None:
        """Receive what `read_line` has found in a line. Return only after it is stored."""
        if received is None:
            self._skip("it cannot be read")
        elif self._is_mine(received):
            await self._receive(received, line)

    def _is_mine(self, received: ReceivedEnvelope) -> bool:
        return received.account in ("", self._me.number)

    async def _receive(self, received: ReceivedEnvelope, line: SpoolLine) -> None:
        envelope = received.envelope
        if envelope is not None:
            self._learn_names(envelope)
        if received.exception is not None:
            self._report_exception(received.exception.type or "an error")
        if envelope is None:
            return
        parsed = parse_envelope(envelope, self._me, self._names)
        if parsed is None or (self._notes_only and envelope.sync_message is None):
            return
        try:
            await self._learn_number(parsed)
            inbound = await self._resolve_versions(parsed)
            state = {**inbound.state, _SPOOL_SCOPE: line.digest}
            await self._context.receive(msgspec.structs.replace(inbound, state=state))
        except Invalid as exc:
            self._skip(str(exc))

    async def _resolve_versions(self, parsed: ParsedEnvelope) -> InboundEvent:
        """Return an event that refers to the first version of a message instead of a later one."""
        inbound = parsed.inbound
        chat = inbound.source.chat or ""
        match inbound:
            case InboundMessage() if parsed.revises:
                history = EditHistory(await self._context.load_state(name_edits(chat)))
                original = history.find_original(parsed.revises)
                state = {name_edits(chat): history.add(parsed.revision, original)}
                return msgspec.structs.replace(inbound, edits=original, state=state)
            case InboundDeletion():
                history = EditHistory(await self._context.load_state(name_edits(chat)))
                original = history.find_original(inbound.message_event)
                return msgspec.structs.replace(inbound, message_event=original)
            case InboundReaction():
                history = EditHistory(await self._context.load_state(name_edits(chat)))
                own = EditHistory(await self._context.load_state(name_own_edits(chat)))
                return msgspec.structs.replace(
                    inbound,
                    message=own.find_original(history.find_original(inbound.message)),
                    message_event=history.find_original(inbound.message_event),
                )
            case _:
                return inbound

    async def _learn_number(self, parsed: ParsedEnvelope) -> None:
        """Learn the number of an author who is known by their uuid, once.

        A number may pass to another person, who has another uuid. It is an alias of the person who had it first."""
        person, number = parsed.inbound.source.user or "", parsed.alias
        if not number:
            return
        scope = f"alias {number}"
        owner = await self._context.load_state(scope)
        if owner is None:
            await self._context.add_alias(parsed.inbound.source, number)
            await self._context.save_state(scope, person)
        elif owner != person:
            log.warning("a number of Signal has passed to another person: their conversations stay separate")

    def _learn_names(self, envelope: SignalEnvelope) -> None:
        uuid, number, name = envelope.source_uuid, envelope.source_number, envelope.source_name
        if number == self._me.number and uuid:
            self._me = msgspec.structs.replace(self._me, uuid=uuid.lower())
        for id_ in filter(None, ((uuid or "").lower(), number)):
            if name:
                self._names.put(id_, name)
            else:
                self._names.remove(id_)

    def _report_exception(self, kind: str) -> None:
        if kind == _UNTRUSTED:
            log.warning(
                "signal-cli holds back a message: the safety number of its sender has changed; `signal-cli trust` accepts it"
            )
        else:
            log.warning("signal-cli could not read a message (%s)", kind[:100])

    def _skip(self, why: str) -> None:
        self.skipped += 1
        log.warning("a line of signal-cli is left out, %d so far: %s", self.skipped, why)


def read_line(line: SpoolLine) -> ReceivedEnvelope | None:
    """Return what a line says, `None` if it cannot be read. If signal-cli was killed while it wrote, the next line follows
    on the same one."""
    starts = {0, *(line.text.rfind(start, 1) for start in _LINE_STARTS)}
    for start in sorted(starts - {-1}):
        try:
            return msgspec.convert(json.loads(line.text[start:]), ReceivedEnvelope)
        except (ValueError, RecursionError):
            continue
    return None
