"""Streamed chat-completion requests with retries. A request is retried only while nothing of its answer was shown."""

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import cache
from typing import Any, cast

import httpx2
import msgspec
import openai
from openai.types.chat.chat_completion_chunk import ChatCompletionChunk, ChoiceDelta, ChoiceDeltaToolCall

from keryx import metrics
from keryx.agents.llm import (
    LOCAL_BASE_URL,
    Endpoint,
    Model,
    history,
    parse_usage,
    provider_errors,
    resolve_endpoint,
)
from keryx.agents.llm.provider_errors import EmptyAnswer, ProviderFailure, StreamBroken
from keryx.agents.tools import Permission, ToolSpec
from keryx.core import messages
from keryx.core.clock import Clock
from keryx.core.durations import Backoff
from keryx.core.errors import AgentFailed, AgentRefused, KeryxError
from keryx.core.messages import Parts, Reasoning, Text, ToolCall
from keryx.core.ports.agent import WARNING_KIND, AgentEvent, NoticeEvent, ReasoningDelta, TextDelta
from keryx.core.texts import Phrase
from keryx.core.usage import Usage
from keryx.jsonrpc import Json

REASONING_RESTARTED = "\n\n(The connection broke; thinking again.)\n\n"
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_UNKNOWN_TOOL = ToolSpec(name="")
# Providers refuse these without tools.
_TOOL_PARAMETERS = frozenset({"tool_choice", "parallel_tool_calls"})
_APPENDED_FIELDS = ("text", "summary", "data")
log = logging.getLogger(__name__)
# Of one step: tool calls, and characters that are not shown while they come.
_MAX_CALLS = 1_000
_MAX_UNSEEN = 2_000_000
# Of one event of a stream, or of a whole body that is not a stream.
_MAX_EVENT_BYTES = 4_000_000
# What is parsed without a pause, so that a fast model does not keep other chats waiting. Within a long event, which is only
# collected, the slices grow.
_SLICE_BYTES = 1_024
_MAX_SLICE_BYTES = 16_384
# A stream that waits for the store does not compute.
_MAX_SLICE_SECONDS = 0.001
# A shorter sleep would take a millisecond, too.
_MAX_AHEAD_SECONDS = 0.005
# A stream that computes for more than this share of the time is a heavy one, once it is this long ahead of its share. A model
# that writes 300 words a second is not.
_LIGHT_SHARE = 0.1
_LIGHT_SECONDS = 0.05
# Of the time of the event loop: what all streams may compute, and what the heavy ones may.
_ALL_SHARE = 0.5
_HEAVY_SHARE = 0.2
_SILENT_RETRY_SECONDS = 2.0
# For a model that has a fallback.
_HASTY_TRIES = 2
_HASTY_PATIENCE = timedelta(seconds=5)
_CONNECT_SECONDS = 10.0
_WRITE_SECONDS = 60.0


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    # How many calls are made in all.
    tries: int = 5
    # Many turns fail at the same moment, so the delays differ a little.
    backoff: Backoff = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30), jitter=0.25)
    # The longest delay that a provider may ask for.
    patience: timedelta = timedelta(minutes=2)

    def compute_delay(
        self, tries: int, after: timedelta | None, chance: Callable[[], float] = random.random
    ) -> timedelta | None:
        """Return the delay after this many tries; `None` to give up."""
        if tries >= self.tries:
            return None
        if after is not None:
            return after if after <= self.patience else None
        return self.backoff.delay(tries, chance=chance)


class ToolCallFragments:
    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.arguments: list[str] = []


class StreamedAnswer:
    """An answer that grows with each chunk. `has_text` says whether any attempt has shown text to the user."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._shown: list[Text | Reasoning] = []
        self.has_text = False
        self.reset()

    def switch_model(self, model: Model) -> None:
        """Ask another model: only reasoning was shown so far."""
        self._model = model

    def reset(self) -> None:
        """Start a new attempt. The reasoning that was shown is kept."""
        self._calls: list[ToolCallFragments] = []
        self._by_index: dict[int, ToolCallFragments] = {}
        self._details: list[Json] = []
        self._unseen = 0
        self.refusal = ""
        self.finish = ""
        self.usage: Json | None = None
        self._restarted = bool(self._shown)

    def feed(self, chunk: ChatCompletionChunk) -> Iterator[AgentEvent]:
        """Add a chunk and yield the events that it brings."""
        if chunk.usage:
            self.usage = chunk.usage.to_dict()
        # Chunks with the usage have no choices; some providers send null.
        for choice in chunk.choices or ():
            if choice.delta:
                yield from self._add_delta(choice.delta)
            self.finish = choice.finish_reason or self.finish

    def _add_delta(self, delta: ChoiceDelta) -> Iterator[AgentEvent]:
        if delta.model_extra:
            yield from self._add_reasoning(delta.model_extra)
        if delta.content:
            self.has_text = True
            self._shown.append(Text(delta.content))
            yield TextDelta(delta.content)
        self.count_unseen(delta.refusal or "")
        self.refusal += delta.refusal or ""
        for fragment in delta.tool_calls or ():
            self._add_fragment(fragment)

    def _add_reasoning(self, extra: Json) -> Iterator[AgentEvent]:
        for details in cast(list[Any], extra.get("reasoning_details") or ()):
            if isinstance(details, dict):
                self._merge_details(cast(Json, details))
                self.count_unseen("".join(v for v in cast(Json, details).values() if isinstance(v, str)))
        text = next((extra[name] for name in _REASONING_FIELDS if extra.get(name)), "")
        if not isinstance(text, str) or not text:
            return
        if self._restarted:
            text, self._restarted = REASONING_RESTARTED + text, False
        self._shown.append(Reasoning(text))
        yield ReasoningDelta(text)

    def _merge_details(self, new: Json) -> None:
        """Merge a piece of a reasoning block with the last one if both have the same type and index."""
        last = self._details[-1] if self._details else None
        if last is None or (last.get("type"), last.get("index")) != (new.get("type"), new.get("index")):
            self._details.append(dict(new))
            return
        for key, value in new.items():
            old = last.get(key)
            if key in _APPENDED_FIELDS and isinstance(old, str) and isinstance(value, str):
                last[key] = old + value
            elif value is not None:
                last[key] = value

    def _add_fragment(self, fragment: ChoiceDeltaToolCall) -> None:
        call = self._by_index.get(fragment.index)
        # Some providers give every call of a step the same index: a new id starts a new call.
        if call is None or (fragment.id and call.id and fragment.id != call.id):
            call = self._by_index[fragment.index] = ToolCallFragments(fragment.id or "")
            self._calls.append(call)
        call.id = call.id or fragment.id or ""
        if fragment.function:
            call.name = call.name or fragment.function.name or ""
            call.arguments.append(fragment.function.arguments or "")
            self.count_unseen(call.arguments[-1])

    def count_unseen(self, text: str) -> None:
        """Count text that is not shown while it comes, which the limits of the turn do not see. Raise `AgentFailed` if it
        is too long."""
        self._unseen += len(text)
        if self._unseen > _MAX_UNSEEN or len(self._calls) > _MAX_CALLS:
            name = repr(self._model.name)
            raise AgentFailed(Phrase("model.endless", name=name, calls=_MAX_CALLS, characters=_MAX_UNSEEN))

    @property
    def opaque(self) -> str:
        """The reasoning in the format of the provider; empty if it sent none."""
        return history.encode_reasoning(self._details, self._model) if self._details else ""

    @property
    def truncated(self) -> bool:
        """Whether the model reached its maximum output length."""
        return self.finish == "length"

    def check(self, *, allow_empty: bool) -> None:
        """Raise if the stream has ended without a usable answer."""
        name = repr(self._model.name)
        match self.finish:
            case "" if self.refusal:
                raise AgentRefused(Phrase("model.declined", name=name, reason=self.refusal))
            case "":
                raise StreamBroken
            case "content_filter":
                raise AgentRefused(Phrase("model.answer_filtered", name=name))
            case "length" if self._calls or not self.has_text:
                raise AgentFailed(Phrase("model.too_short", name=name))
            case _ if self.refusal and not self.has_text:
                raise AgentRefused(Phrase("model.declined", name=name, reason=self.refusal))
            case _ if not (self.has_text or self._calls or allow_empty):
                raise EmptyAnswer
            case _:
                return

    def build_calls(
        self, specs: Mapping[str, ToolSpec], *, prefix: str, used_ids: set[str]
    ) -> tuple[ToolCall, ...]:
        """Return the tool calls. An id that is missing or was used before is replaced by one that starts with `prefix`."""
        calls: list[ToolCall] = []
        for number, call in enumerate(self._calls, 1):
            id_ = call.id if call.id and call.id not in used_ids else f"{prefix}-{number}"
            used_ids.add(id_)
            spec = specs.get(call.name, _UNKNOWN_TOOL)
            asks = spec.permission is Permission.ASK
            calls.append(ToolCall(id_, call.name, "".join(call.arguments), spec.repeatable, asks))
        return tuple(calls)

    def build_parts(self, calls: tuple[ToolCall, ...]) -> Parts:
        """Return the parts of the message that stores the answer."""
        opaque = (Reasoning(opaque=self.opaque),) if self.opaque else ()
        return messages.merge_parts((*self._shown, *opaque, *calls))


class StreamPacer:
    """Shares the event loop with the streams of models: all of them together compute at most half of the time, and those that
    send far more than a person can read a fifth."""

    def __init__(self) -> None:
        # When the next slice of any stream may be parsed, and that of a heavy one.
        self._free_at = 0.0
        self._heavy_free_at = 0.0

    async def pause(self, seconds: float, load: "StreamLoad") -> None:
        """Yield to other tasks after a stream has computed for this long."""
        now = asyncio.get_running_loop().time()
        seconds = min(seconds, _MAX_SLICE_SECONDS)
        self._free_at = max(self._free_at, now) + seconds / _ALL_SHARE
        ahead = self._free_at - now
        if load.add(seconds, now=now):
            self._heavy_free_at = max(self._heavy_free_at, now) + seconds / _HEAVY_SHARE
            ahead = max(ahead, self._heavy_free_at - now)
        await asyncio.sleep(ahead if ahead > _MAX_AHEAD_SECONDS else 0)


class StreamLoad:
    """How far one stream is ahead of the share of the time that a light one computes."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._updated_at = 0.0

    def add(self, seconds: float, *, now: float) -> bool:
        """Count what the stream has computed. Return whether it is a heavy one now."""
        self._ahead = max(0.0, self._ahead - (now - self._updated_at) * _LIGHT_SHARE) + seconds
        self._updated_at = now
        return self._ahead > _LIGHT_SECONDS


class ResponseBody(httpx2.AsyncByteStream):
    """The body of a response in short pieces, with pauses for other tasks. It ends before more than `_MAX_EVENT_BYTES` come
    without a call of `reset`."""

    def __init__(
        self, source: AsyncIterator[bytes], close: Callable[[], Awaitable[None]], pacer: StreamPacer
    ) -> None:
        self._source = source
        self._close = close
        self._pacer = pacer
        self._load = StreamLoad()
        self._length = 0

    def reset(self) -> None:
        """Begin to count anew: an event is complete."""
        self._length = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        async for chunk in self._source:
            start = 0
            while start < len(chunk):
                size = max(_SLICE_BYTES, min(self._length, _MAX_SLICE_BYTES))
                piece = chunk[start : start + size]
                start += size
                self._length += len(piece)
                if self._length > _MAX_EVENT_BYTES:
                    return
                began = loop.time()
                yield piece
                await self._pacer.pause(loop.time() - began, self._load)

    async def aclose(self) -> None:
        await self._close()


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: Model
    messages: Sequence[Json]
    tools: Sequence[ToolSpec] = ()
    effort: str | None = None
    # Further parameters that the caller wants. Those in the settings of the model take their place.
    parameters: Mapping[str, Any] = {}
    # An empty answer is accepted, because the turn has shown text before.
    allow_empty: bool = False
    # Another model can answer, so a request is retried once at most, and soon.
    replaceable: bool = False

    def build_body(self) -> Json:
        body: Json = {"model": self.model.id, "messages": self.messages, "stream": True}
        if self.model.usage:
            body["stream_options"] = {"include_usage": True}
        if self.tools:
            functions = (
                {"name": s.name, "description": s.description, "parameters": s.parameters} for s in self.tools
            )
            body["tools"] = [{"type": "function", "function": function} for function in functions]
        if self.effort:
            body["reasoning_effort"] = self.effort
        wanted = {
            name: v for name, v in self.parameters.items() if self.tools or name not in _TOOL_PARAMETERS
        }
        return body | wanted | self.model.options


class Completion(msgspec.Struct, frozen=True):
    text: str
    usage: Usage


class ChatClient:
    """Keeps connections to endpoints. `local` starts the model of this process and returns its endpoint."""

    def __init__(
        self,
        *,
        retry: RetryPolicy = RetryPolicy(),
        silence: timedelta = timedelta(minutes=10),
        local: Callable[[], Awaitable[Endpoint]] | None = None,
    ) -> None:
        self._retry = retry
        self._timeout = openai.Timeout(
            silence.total_seconds(), connect=_CONNECT_SECONDS, write=_WRITE_SECONDS
        )
        self._local = local
        self._clients: dict[Endpoint, openai.AsyncOpenAI] = {}
        self._pacer = StreamPacer()

    async def aclose(self) -> None:
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.close()

    async def complete(self, request: ChatRequest, clock: Clock) -> Completion:
        """Return a whole answer, for titles and summaries."""
        answer = StreamedAnswer(request.model)
        texts: list[str] = []
        async with aclosing(self.stream(request, answer, clock)) as events:
            async for event in events:
                if isinstance(event, TextDelta | ReasoningDelta):
                    answer.count_unseen(event.text)
                if isinstance(event, TextDelta):
                    texts.append(event.text)
        return Completion("".join(texts), parse_usage(answer.usage, request.model, request.messages))

    async def stream(
        self, request: ChatRequest, answer: StreamedAnswer, clock: Clock
    ) -> AsyncGenerator[AgentEvent, None]:
        """Fill `answer` and yield its events as they arrive. Raise `AgentFailed` with a sentence for the user."""
        endpoint = await self._endpoint(request.model)
        tries, started_at, notified = 0, clock.monotonic(), False
        while True:
            tries += 1
            answer.reset()
            try:
                async with aclosing(self._attempt(request, answer, endpoint)) as events:
                    async for event in events:
                        yield event
                return
            except (openai.APIError, StreamBroken, EmptyAnswer) as exc:
                metrics.MODEL_ERRORS.add(request.model.name, type(exc).__name__)
                failure = provider_errors.classify(exc, request.model, secret=endpoint.key, now=clock.now())
                wait = self._compute_delay(exc, failure, request, answer, tries, clock.now()).total_seconds()
            if not notified and clock.monotonic() - started_at + wait >= _SILENT_RETRY_SECONDS:
                notified = True
                yield NoticeEvent(Phrase("model.trying_again", what=failure.what), WARNING_KIND)
            await clock.sleep(wait)

    async def _attempt(
        self, request: ChatRequest, answer: StreamedAnswer, endpoint: Endpoint
    ) -> AsyncGenerator[AgentEvent, None]:
        stream = await self._client(endpoint).post(
            "/chat/completions",
            body=request.build_body(),
            cast_to=ChatCompletionChunk,
            stream=True,
            stream_cls=openai.AsyncStream[ChatCompletionChunk],
        )
        body = stream.response.stream
        assert isinstance(body, ResponseBody)
        async with stream:
            try:
                async for chunk in stream:
                    body.reset()
                    for event in answer.feed(chunk):
                        yield event
            except openai.APIError:
                # The answer is complete if the connection breaks after its finish reason.
                if not answer.finish:
                    raise
            except ValueError as exc:
                raise StreamBroken from exc
        answer.check(allow_empty=request.allow_empty)

    def _compute_delay(
        self,
        exc: Exception,
        failure: ProviderFailure,
        request: ChatRequest,
        answer: StreamedAnswer,
        tries: int,
        now: datetime,
    ) -> timedelta:
        """Return the delay before the next attempt; raise if there is to be none."""
        model, retry = request.model, self._retry
        if request.replaceable:
            retry = msgspec.structs.replace(retry, tries=_HASTY_TRIES, patience=_HASTY_PATIENCE)
        if failure.transient and failure.after is not None and failure.after > self._retry.patience:
            # What was shown of the answer stays, and is marked when the turn is put back.
            raise provider_errors.build_quota_error(model, now + failure.after) from exc
        if answer.has_text and failure.transient:
            raise provider_errors.build_interrupted_error(model) from exc
        retryable = failure.transient and (failure.tries is None or tries < failure.tries)
        wait = retry.compute_delay(tries, failure.after) if retryable else None
        if wait is None:
            raise failure.error from exc
        metrics.MODEL_RETRIES.add(model.name)
        log.info("model %s: try %d failed (%s), again in %s", model.name, tries, type(exc).__name__, wait)
        return wait

    async def _endpoint(self, model: Model) -> Endpoint:
        if model.base_url != LOCAL_BASE_URL:
            try:
                if not model.key.startswith("file:"):
                    return resolve_endpoint(model)
                return await asyncio.to_thread(resolve_endpoint, model)
            except KeryxError as exc:
                raise AgentFailed(Phrase("model.no_key", reason=exc.text)) from exc
        if self._local is None:
            raise AgentFailed(Phrase("model.not_here", name=repr(model.name)))
        return await self._local()

    def _client(self, endpoint: Endpoint) -> openai.AsyncOpenAI:
        client = self._clients.get(endpoint)
        if client is None:
            client = self._clients[endpoint] = openai.AsyncOpenAI(
                base_url=endpoint.base_url,
                api_key=endpoint.key or "none",
                max_retries=0,
                timeout=self._timeout,
                default_headers={"Accept-Encoding": "identity"},
                http_client=openai.DefaultAsyncHttpxClient(
                    verify=_load_certificates(), event_hooks={"response": [self._bound_response]}
                ),
            )
            # The SDK reads these from the environment, where they are meant for one provider only.
            client.organization = client.project = None
        return client

    async def _bound_response(self, response: httpx2.Response) -> None:
        body = response.stream
        assert isinstance(body, httpx2.AsyncByteStream)
        # Compression is not asked for: a few bytes could become very many.
        response.headers.pop("content-encoding", None)
        response.stream = ResponseBody(aiter(body), body.aclose, self._pacer)


@cache
def _load_certificates() -> ssl.SSLContext:
    """Return what all connections to models trust. Reading it takes 20 ms, so it is read once."""
    return httpx2.create_ssl_context()
