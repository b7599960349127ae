"""One prompt to an agent: builds its content blocks, sends it, yields the events until the response, and cancels it."""

import asyncio
import base64
import hashlib
import logging
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta

import anyio

from keryx.agents.acp.capabilities import AgentCapabilities
from keryx.agents.acp.client_services import ClientServices, respond_cancelled
from keryx.agents.acp.connection import (
    AgentConnection,
    AgentMessage,
    AgentUnavailable,
    ConnectionClosed,
    MessageQueue,
    PromptResponse,
    SessionUpdate,
    StallWarning,
)
from keryx.agents.acp.update_translator import UpdateTranslator
from keryx.core import prompt
from keryx.core.clock import Clock
from keryx.core.errors import AgentFailed, NotFound
from keryx.core.media import Attachment
from keryx.core.messages import Audio, File, Image, Message, Role, Text
from keryx.core.ports.agent import WARNING_KIND, AgentEvent, NoticeEvent, TurnContext
from keryx.core.sessions import Binding
from keryx.core.text import to_single_line
from keryx.core.turns import STOP_REASONS
from keryx.jsonrpc.peer import IncomingRequest
from keryx.jsonrpc.values import Json, as_object, as_text

MISSED_HEADING = "What was said in this conversation before, which you have not seen:"
INTERRUPTED_NOTE = (
    "You were interrupted while you worked on the message below, and may have seen it already. "
    "Go on where you stopped, and do not repeat what is done."
)
EMPTY_MESSAGE = "(empty message)"
_MAX_MISSED_LENGTH = 40_000
log = logging.getLogger(__name__)
_STOP_REASON_TEXTS = {
    "max_tokens": "The answer ends here: the agent has reached its limit of tokens.",
    "max_turn_requests": "The answer ends here: the agent has reached its limit of steps.",
    "cancelled": "The agent stopped before it was done.",
}


async def build_prompt(
    context: TurnContext,
    past: Sequence[Message],
    abilities: AgentCapabilities,
    binding: Binding | None,
    *,
    place: str,
) -> list[Json]:
    """The blocks that put a turn to an agent. `past` is the conversation, `binding` what the agent knows of it, `None`
    for nothing; `place` the digest of what it was told about its place."""
    told: list[str] = []
    if digest_place(context.place) != place and context.place.strip():
        told.append(context.place)
    if missed := _format_missed(context, past, binding):
        told.append(f"{MISSED_HEADING}\n\n{missed}")
    if binding and binding.turn == context.turn:
        told.append(INTERRUPTED_NOTE)
    own = [m for m in context.turn_messages if m.role is Role.USER]
    # Many agents join the blocks of a prompt as they are.
    return [
        *(_build_text_block(f"{part}\n\n") for part in told),
        *await build_blocks(context, abilities, own),
    ]


async def build_blocks(
    context: TurnContext, abilities: AgentCapabilities, messages: Sequence[Message]
) -> list[Json]:
    """What people said, with the pictures and files that the agent can take."""
    blocks: list[Json] = []
    for message in messages:
        text = message.exact
        if text is None:
            spoken = "\n\n".join(p.text for p in message.parts if isinstance(p, Text))
            text = (prompt.format_speaker(message.author) if context.shared else "") + spoken
        if text.strip():
            blocks.append(_build_text_block(text))
        for part in message.parts:
            if isinstance(part, Image | File | Audio):
                blocks.append(await _build_attachment(context, abilities, part))
    return blocks or [_build_text_block(EMPTY_MESSAGE)]


def digest_place(place: str) -> str:
    return hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _format_missed(context: TurnContext, past: Sequence[Message], binding: Binding | None) -> str:
    said = [m for m in past if m.turn != context.turn and m.role in (Role.USER, Role.ASSISTANT)]
    if binding:
        said = [m for m in said if m.seq > binding.seq and m.turn != binding.turn]
    lines = [context.summary] if context.summary and binding is None else []
    lines += [f"{_format_author(m)}: {text}" for m in said if (text := m.text.strip())]
    told = "\n\n".join(lines)
    return told if len(told) <= _MAX_MISSED_LENGTH else f"… {told[-_MAX_MISSED_LENGTH:]}"


def _format_author(message: Message) -> str:
    return "You" if message.role is Role.ASSISTANT else to_single_line(message.author) or "Person"


async def _build_attachment(
    context: TurnContext, abilities: AgentCapabilities, part: Image | File | Audio
) -> Json:
    if isinstance(part, Audio) and part.transcript:
        return _build_text_block(f"(spoken) {part.transcript}")
    name = to_single_line(part.name) or "file"
    try:
        found = await context.fetch(part.media)
    except NotFound:
        return _build_text_block(f"({name}: it is no longer there)")
    return _encode_attachment(found, abilities, part) or _build_text_block(
        f"({name}, {found.mime}: you cannot take it)"
    )


def _encode_attachment(
    found: Attachment, abilities: AgentCapabilities, part: Image | File | Audio
) -> Json | None:
    data = {"mimeType": found.mime, "data": base64.b64encode(found.body).decode()}
    match part:
        case Image() if abilities.images:
            return {"type": "image", **data}
        case Audio() if abilities.audio:
            return {"type": "audio", **data}
        case File() if abilities.embedded:
            uri = f"keryx://files/{part.media}"
            if found.mime.startswith("text/"):
                body = {"text": found.body.decode("utf-8", "replace"), "mimeType": found.mime}
            else:
                body = {"blob": data["data"], "mimeType": found.mime}
            return {"type": "resource", "resource": {"uri": uri, **body}}
        case _:
            return None


def _build_text_block(text: str) -> Json:
    return {"type": "text", "text": text}


class PromptRun:
    """`events` puts a prompt and gives what comes of it; it may be left at any time, and then `settle` must follow."""

    def __init__(
        self,
        connection: AgentConnection,
        session: str,
        *,
        telling: UpdateTranslator,
        desk: ClientServices,
        clock: Clock,
        stall: timedelta,
    ) -> None:
        self._connection = connection
        self._session = session
        self._translator = telling
        self._services = desk
        self._clock = clock
        self._stall_after = stall
        self._queue = MessageQueue()
        self._message_count = 0
        self._has_events = False
        self.open = False
        connection.listeners[session] = self._queue.put

    async def events(self, prompt: list[Json]) -> AsyncGenerator[AgentEvent, None]:
        """Everything up to the end of the answer. Raises `Gone`, `Fault`, and `AgentFailed` for a refusal to answer."""
        watch = asyncio.create_task(self._watch_for_stall())
        dropped = self._connection.dropped_lines
        self.open = True
        try:
            await self._connection.send_prompt(
                self._session, "session/prompt", {"sessionId": self._session, "prompt": prompt}
            )
            while self.open:
                for event in await self._next_events():
                    self._has_events = True
                    yield event
        finally:
            watch.cancel()
        if left_out := self._connection.dropped_lines - dropped:
            yield NoticeEvent(f"{left_out} messages of the agent were too long and are left out.")

    async def close(self) -> None:
        """The answer is complete: nothing more is listened to."""
        self._unsubscribe()
        await self._services.close()

    async def cancel(self, seconds: float) -> bool:
        """Cancel a prompt that is still open and wait for its end; `False` if the agent does not react."""
        over = asyncio.Event()

        async def take(item: AgentMessage) -> None:
            if isinstance(item, IncomingRequest):
                await respond_cancelled(self._connection, item)
            elif isinstance(item, PromptResponse | ConnectionClosed):
                over.set()

        left = self._queue.close()
        self._connection.listeners[self._session] = take
        try:
            with anyio.move_on_after(seconds):
                await self._connection.notify("session/cancel", {"sessionId": self._session})
                for item in left:
                    await take(item)
                await self._services.close()
                await over.wait()
        except AgentUnavailable as exc:
            log.info("%s: %s", self._connection.name, exc)
        finally:
            self._unsubscribe()
        return over.is_set() and not self._connection.closed.is_set()

    def _unsubscribe(self) -> None:
        self._queue.close()
        self._connection.listeners.pop(self._session, None)

    async def _next_events(self) -> list[AgentEvent]:
        item = await self._queue.get()
        match item:
            case SessionUpdate(body):
                self._message_count += 1
                return self._translator.translate(body)
            case IncomingRequest():
                self._message_count += 1
                return await self._handle_request(item)
            case StallWarning():
                minutes = self._stall_after.total_seconds() / 60
                told = f"The agent {self._connection.name} has said nothing for {minutes:g} minutes. /stop ends the turn."
                return [NoticeEvent(told, WARNING_KIND)]
            case PromptResponse(result, fault):
                self.open = False
                if fault:
                    raise fault
                return self._finish(result)
            case ConnectionClosed(why):
                self.open = False
                raise AgentUnavailable(why)

    async def _handle_request(self, item: IncomingRequest) -> list[AgentEvent]:
        """A tool that a person is asked about is stored before the question is put."""
        events: list[AgentEvent] = []
        if item.method == "session/request_permission":
            events = self._translator.tool_calls.update(as_object(item.params.get("toolCall")), asks=True)
        await self._services.handle(item)
        return events

    def _finish(self, result: Json) -> list[AgentEvent]:
        events = [
            *self._translator.tool_calls.finish_all(),
            *self._translator.translate_usage(as_object(result.get("usage"))),
        ]
        reason = as_text(result.get("stopReason"))
        if reason == "refusal":
            told = f"The agent {self._connection.name} declined to answer this."
            if not self._has_events:
                raise AgentFailed(told)
            return [*events, NoticeEvent(told)]
        kind = reason if reason in STOP_REASONS else ""
        return (
            [*events, NoticeEvent(_STOP_REASON_TEXTS[reason], kind)]
            if reason in _STOP_REASON_TEXTS
            else events
        )

    async def _watch_for_stall(self) -> None:
        """Tell once for each silence; while a person is asked something, silence is to be expected."""
        told = -1
        while True:
            seen = self._message_count
            await self._clock.sleep(self._stall_after.total_seconds())
            if seen == self._message_count and seen != told and not self._services.waiting_for_person:
                told = seen
                await self._queue.put(StallWarning())
