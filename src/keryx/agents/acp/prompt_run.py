"""One prompt to an agent: builds its content blocks, sends it, yields the events until the response, and cancels it."""

import asyncio
import base64
import hashlib
import logging
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from urllib.parse import quote

import anyio

from keryx.agents import quota_resets
from keryx.agents.acp import agent_process
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
from keryx.core import messages, prompt
from keryx.core.clock import Clock
from keryx.core.errors import AgentFailed, NotFound
from keryx.core.messages import Audio, File, Image, Message, Role
from keryx.core.ports.agent import (
    WARNING_KIND,
    AgentEvent,
    NoticeEvent,
    ReasoningDelta,
    TextDelta,
    TurnContext,
    UsageEvent,
)
from keryx.core.sessions import Binding
from keryx.core.text import to_single_line
from keryx.core.texts import Phrase
from keryx.core.turns import STOP_REASONS
from keryx.jsonrpc import Json, as_object, as_text, build_text_block
from keryx.jsonrpc.peer import IncomingRequest

MISSED_HEADING = "What was said in this conversation before, which you have not seen:"
INTERRUPTED_NOTE = (
    "You were interrupted while you worked on the message below, and may have seen it already. "
    "Go on where you stopped, and do not repeat what is done."
)
EMPTY_MESSAGE = "(empty message)"
_COMMAND_CHARACTERS = ("/", "!", "#")
_MAX_MISSED_LENGTH = 40_000
_LONGEST_NOTICE = 1_000
log = logging.getLogger(__name__)
_STOP_REASON_PHRASES = {
    "max_tokens": "agent.tokens_reached",
    "max_turn_requests": "agent.steps_reached",
    "cancelled": "agent.stopped",
}


async def build_prompt(
    context: TurnContext,
    history: Sequence[Message],
    capabilities: AgentCapabilities,
    binding: Binding | None,
    *,
    place_digest: str,
) -> list[Json]:
    """Build the content blocks of a turn. `binding` says up to where the agent knows the conversation, `None` if it does
    not; `place_digest` is the digest of the place that it was sent last."""
    preamble: list[str] = []
    if digest_place(context.place) != place_digest and context.place.strip():
        preamble.append(context.place)
    unseen = [m for m in history if m.turn != context.turn and m.role in (Role.USER, Role.ASSISTANT)]
    if binding:
        unseen = [m for m in unseen if m.seq > binding.seq and m.turn != binding.turn]
    lines = [context.summary] if context.summary and binding is None else []
    for m in unseen:
        author = "You" if m.role is Role.ASSISTANT else to_single_line(m.author) or "Person"
        if text := m.text.strip():
            lines.append(f"{author}: {text}")
    if missed := "\n\n".join(lines):
        if len(missed) > _MAX_MISSED_LENGTH:
            missed = f"… {missed[-_MAX_MISSED_LENGTH:]}"
        preamble.append(f"{MISSED_HEADING}\n\n{missed}")
    if binding and binding.turn == context.turn:
        preamble.append(INTERRUPTED_NOTE)
    own = [m for m in context.turn_messages if m.role is Role.USER]
    # Many agents join the blocks of a prompt as they are.
    return [
        *(build_text_block(f"{part}\n\n") for part in preamble),
        *await build_blocks(context, capabilities, own),
    ]


async def build_blocks(
    context: TurnContext, capabilities: AgentCapabilities, sent: Sequence[Message]
) -> list[Json]:
    """Build the content blocks of messages, with the attachments that the agent accepts."""
    blocks: list[Json] = []
    for message in sent:
        text = message.exact
        if text is None:
            speaker = prompt.format_speaker(message.author) if context.shared else ""
            text = speaker + messages.join_text(message.parts)
        # A command of the agent must be at the beginning.
        if not text.lstrip().startswith(_COMMAND_CHARACTERS):
            message_id = message.platform_id if context.show_ids else ""
            text = prompt.format_stamp(message.at, zone=context.zone, message_id=message_id) + text
        if text.strip():
            blocks.append(build_text_block(text))
        for part in message.parts:
            if isinstance(part, Image | File | Audio):
                blocks.append(await _build_attachment(context, capabilities, part))
    return blocks or [build_text_block(EMPTY_MESSAGE)]


def digest_place(place: str) -> str:
    return hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:16]


async def _build_attachment(
    context: TurnContext, capabilities: AgentCapabilities, part: Image | File | Audio
) -> Json:
    if isinstance(part, Audio) and part.transcript:
        return build_text_block(f"(spoken) {part.transcript}")
    name = to_single_line(part.name) or "file"
    try:
        attachment = await context.fetch(part.media)
    except NotFound:
        return build_text_block(f"({name}: it is no longer there)")
    data = {"mimeType": attachment.mime, "data": base64.b64encode(attachment.body).decode()}
    match part:
        case Image() if capabilities.images:
            return {"type": "image", **data}
        case Audio() if capabilities.audio:
            return {"type": "audio", **data}
        case File() if capabilities.embedded:
            uri = f"keryx://files/{part.media}/{quote(name)}"
            if attachment.mime.startswith("text/"):
                body = {"text": attachment.body.decode("utf-8", "replace"), "mimeType": attachment.mime}
            else:
                body = {"blob": data["data"], "mimeType": attachment.mime}
            return {"type": "resource", "resource": {"uri": uri, **body}}
        case _:
            return build_text_block(f"({name}, {attachment.mime}: you cannot take it)")


class PromptRun:
    """Sends one prompt. `events` may be left at any time; then `cancel` must follow, else `close`."""

    def __init__(
        self,
        connection: AgentConnection,
        session: str,
        *,
        translator: UpdateTranslator,
        services: ClientServices,
        clock: Clock,
        stall_after: timedelta,
    ) -> None:
        self._connection = connection
        self._session = session
        self._translator = translator
        self._services = services
        self._clock = clock
        self._stall_after = stall_after
        self._queue = MessageQueue()
        self._message_count = 0
        self._has_events = False
        # The text of the answer, as long as it is short and there is nothing else.
        self._short_text: str | None = ""
        self.open = False
        connection.listeners[session] = self._queue.put

    async def events(self, prompt: list[Json]) -> AsyncGenerator[AgentEvent, None]:
        """Send the prompt and yield events until its response. Raise `AgentUnavailable`, `RpcError`, and `AgentFailed` if the
        agent declines to answer."""
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
            yield NoticeEvent(Phrase("agent.left_out", count=left_out))

    async def close(self) -> None:
        """Stop listening after the response."""
        self._unsubscribe()
        await self._services.close()

    async def cancel(self, seconds: float) -> bool:
        """Cancel the open prompt and wait for its response. Return `False` if the agent does not react."""
        ended = asyncio.Event()

        async def handle(item: AgentMessage) -> None:
            if isinstance(item, IncomingRequest):
                await respond_cancelled(self._connection, item)
            elif isinstance(item, PromptResponse):
                self._translator.keep_usage(as_object(item.result.get("usage")))
                ended.set()
            elif isinstance(item, ConnectionClosed):
                ended.set()

        left = self._queue.close()
        self._connection.listeners[self._session] = handle
        try:
            with anyio.move_on_after(seconds):
                await self._connection.notify("session/cancel", {"sessionId": self._session})
                for item in left:
                    await handle(item)
                await self._services.close()
                await ended.wait()
        except AgentUnavailable as exc:
            log.info("%s: %s", self._connection.name, exc)
        finally:
            self._unsubscribe()
        return ended.is_set() and not self._connection.closed.is_set()

    def _unsubscribe(self) -> None:
        self._queue.close()
        self._connection.listeners.pop(self._session, None)

    async def _next_events(self) -> list[AgentEvent]:
        item = await self._queue.get()
        match item:
            case SessionUpdate(fields):
                self._message_count += 1
                events = self._translator.translate(fields)
                self._note_text(events)
                return events
            case IncomingRequest():
                self._message_count += 1
                return await self._handle_request(item)
            case StallWarning():
                minutes = self._stall_after.total_seconds() / 60
                warning = Phrase("agent.stalled", name=self._connection.name, minutes=minutes)
                return [NoticeEvent(warning, WARNING_KIND)]
            case PromptResponse(result, error):
                self.open = False
                if error:
                    raise error
                return self._finish(result)
            case ConnectionClosed(reason):
                self.open = False
                raise AgentUnavailable(reason)

    def _note_text(self, events: list[AgentEvent]) -> None:
        for event in events:
            if isinstance(event, TextDelta) and self._short_text is not None:
                self._short_text = (self._short_text + event.text)[:_LONGEST_NOTICE]
            elif not isinstance(event, ReasoningDelta | UsageEvent):
                self._short_text = None

    async def _handle_request(self, item: IncomingRequest) -> list[AgentEvent]:
        """Serve a request. The tool call of a permission request is announced before the user is asked."""
        events: list[AgentEvent] = []
        if item.method == "session/request_permission":
            events = self._translator.tool_calls.update(as_object(item.params.get("toolCall")), asks=True)
        await self._services.handle(item)
        return events

    def _finish(self, result: Json) -> list[AgentEvent]:
        events = [
            *self._translator.tool_calls.finish_all(),
            *self._translator.finish_usage(as_object(result.get("usage"))),
        ]
        if self._short_text:
            # Some agents say in the place of an answer that their limit is reached.
            now = self._clock.now().astimezone()
            if until := quota_resets.find_limit_notice(self._short_text, now=now):
                raise agent_process.build_limit_error(self._connection.name, until)
        reason = as_text(result.get("stopReason"))
        if reason == "refusal":
            declined = Phrase("agent.declined", name=self._connection.name)
            if not self._has_events:
                raise AgentFailed(declined)
            return [*events, NoticeEvent(declined)]
        kind = reason if reason in STOP_REASONS else ""
        return (
            [*events, NoticeEvent(Phrase(_STOP_REASON_PHRASES[reason]), kind)]
            if reason in _STOP_REASON_PHRASES
            else events
        )

    async def _watch_for_stall(self) -> None:
        """Warn once for each silence, but not while the agent waits for the user."""
        warned_at = -1
        while True:
            seen = self._message_count
            await self._clock.sleep(self._stall_after.total_seconds())
            if seen == self._message_count and seen != warned_at and not self._services.waiting_for_person:
                warned_at = seen
                await self._queue.put(StallWarning())
