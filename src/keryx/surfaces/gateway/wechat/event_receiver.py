"""Receives batches of messages: in order, each once, with the position that is stored with each; and knows the newest context token of each person."""

import json
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from keryx.core.cache import LruCache
from keryx.core.errors import Invalid
from keryx.core.ports.adapter import AdapterContext, InboundEvent
from keryx.surfaces.gateway.wechat.event_parser import (
    WeChatIdentity,
    name_token,
    parse_message,
    read_message,
)
from keryx.surfaces.gateway.wechat.payloads import UpdateBatch, WeChatMessage

log = logging.getLogger(__name__)

_MAX_PEOPLE = 10_000
# Of a longer batch, the first messages are handed over again after a crash, and recognised.
_MAX_DONE = 200
_POSITION_SCOPE = "position"


class UpdatePosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a bot reads on: the opaque position of WeChat before a batch, and the messages of the batch that are stored
    already."""

    buf: str = ""
    done: tuple[str, ...] = ()


def format_position(me: WeChatIdentity, position: UpdatePosition) -> str:
    """Return a position as text. It belongs to one bot: after a new login it means nothing."""
    return json.dumps([me.bot, position.buf, position.done])


def parse_position(cursor: str | None, me: WeChatIdentity) -> UpdatePosition:
    """Return what `format_position` wrote, or the beginning if it is the position of another bot."""
    if not cursor:
        return UpdatePosition()
    bot, buf, done = json.loads(cursor)
    return UpdatePosition(buf=buf, done=tuple(done)) if bot == me.bot else UpdatePosition()


class ContextTokens:
    """The newest context token of each person, without which WeChat does not accept answers. Stored with the messages that
    bring them, and kept in memory for the people who wrote last."""

    def __init__(self, me: WeChatIdentity) -> None:
        self._me = me
        self._context: AdapterContext | None = None
        self._newest = LruCache[str, str](_MAX_PEOPLE)

    def attach(self, context: AdapterContext | None) -> None:
        """Read from this store from now on. Without one nothing is known: another process listens."""
        self._context = context
        self._newest = LruCache[str, str](_MAX_PEOPLE)

    async def find(self, person: str) -> str:
        """Return the newest token of a person, or an empty text."""
        newest = self._newest
        known = newest.get(person)
        if known is None and self._context is not None:
            stored = await self._context.load_state(name_token(self._me, person)) or ""
            # A message that arrived meanwhile is newer.
            known = newest.get(person)
            if known is None:
                known = stored
                newest.put(person, known)
        return known or ""

    def learn(self, event: InboundEvent) -> None:
        """Note the token of a message that is stored."""
        person = event.source.user or ""
        token = event.state.get(name_token(self._me, person))
        if token:
            self._newest.put(person, token)


class WeChatReceiver:
    def __init__(self, context: AdapterContext, me: WeChatIdentity, tokens: ContextTokens) -> None:
        self._context = context
        self._me = me
        self._tokens = tokens
        # The cursor that is stored.
        self._stored = context.cursor or ""
        # The number of messages that could not be read or were refused as invalid.
        self.skipped = 0

    async def load_position(self) -> UpdatePosition:
        """Return where to read on: where the last message was stored, or further if batches without one followed."""
        noted = await self._context.load_state(_POSITION_SCOPE)
        if noted:
            stored, further = json.loads(noted)
            if stored == self._stored:
                return parse_position(further, self._me)
        return parse_position(self._stored, self._me)

    async def receive_batch(self, batch: UpdateBatch, position: UpdatePosition) -> UpdatePosition:
        """Receive what a batch says, and return the position after it. Return only after everything is stored."""
        after = UpdatePosition(buf=batch.get_updates_buf or position.buf)
        done = position.done
        events = [event for event in self._parse(batch.msgs) if event.event not in done]
        for number, event in enumerate(events, 1):
            done = (*done, event.event)[-_MAX_DONE:]
            # The position of the whole batch moves with its last message only.
            here = after if number == len(events) else UpdatePosition(buf=position.buf, done=done)
            await self._receive(event, format_position(self._me, here))
        reached = format_position(self._me, after)
        if reached != self._stored and after != position:
            await self._context.save_state(_POSITION_SCOPE, json.dumps([self._stored, reached]))
        return after

    def _parse(self, raw: Sequence[Any]) -> list[InboundEvent]:
        """Return the events of a batch in order, each once."""
        messages: list[WeChatMessage] = []
        for item in raw:
            try:
                messages.append(read_message(item))
            except Invalid as exc:
                self._skip(str(exc))
        events: dict[str, InboundEvent] = {}
        for message in sorted(messages, key=lambda m: (m.create_time_ms, m.seq)):
            try:
                event = parse_message(message, self._me)
            except Invalid as exc:
                self._skip(str(exc))
                continue
            if event is not None:
                events.setdefault(event.event, event)
        return list(events.values())

    async def _receive(self, event: InboundEvent, cursor: str) -> None:
        try:
            await self._context.receive(msgspec.structs.replace(event, cursor=cursor))
        except Invalid as exc:
            self._skip(str(exc))
            return
        self._stored = cursor
        self._tokens.learn(event)

    def _skip(self, why: str) -> None:
        self.skipped += 1
        log.warning("a message of WeChat is left out, %d so far: %s", self.skipped, why)
