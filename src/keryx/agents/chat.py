"""Chat: one request to an OpenAI-compatible endpoint, streamed, and sent again while nothing of its answer was shown."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta

import msgspec
import openai
from openai.types.chat import ChatCompletionChunk

from keryx.agents import failures, usage
from keryx.agents.answer import Answer
from keryx.agents.failures import Broken, Empty, Failure
from keryx.agents.media import Json
from keryx.agents.models import LOCAL, Endpoint, Model, resolve
from keryx.agents.retry import Retry
from keryx.agents.tools import Spec
from keryx.core.errors import AgentFailed, KeryxError
from keryx.core.ports import WARNING, Clock, Event, Noted, Said
from keryx.core.turns import Usage

log = logging.getLogger(__name__)

CUT = " […]"
"""Stands at the end of an answer that reached the length the model may write."""

_UNTOLD_SECONDS = 2.0
_CONNECT_SECONDS = 10.0
_WRITE_SECONDS = 60.0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """`quiet`: saying nothing is an answer too, since something was said before."""

    model: Model
    messages: Sequence[Json]
    tools: Sequence[Spec] = ()
    effort: str | None = None
    quiet: bool = False


class Completion(msgspec.Struct, frozen=True):
    text: str
    usage: Usage


class Chat:
    """Keeps connections to endpoints. `local` starts the model that runs in this process, and tells where it is."""

    def __init__(
        self,
        *,
        retry: Retry = Retry(),
        silence: timedelta = timedelta(minutes=10),
        local: Callable[[], Awaitable[Endpoint]] | None = None,
    ) -> None:
        self._retry = retry
        self._timeout = openai.Timeout(
            silence.total_seconds(), connect=_CONNECT_SECONDS, write=_WRITE_SECONDS
        )
        self._local = local
        self._clients: dict[Endpoint, openai.AsyncOpenAI] = {}

    async def aclose(self) -> None:
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.close()

    async def complete(self, request: Request, clock: Clock) -> Completion:
        """The whole answer at once, for titles and summaries."""
        answer = Answer(request.model)
        said: list[str] = []
        async with aclosing(self.stream(request, answer, clock)) as events:
            async for event in events:
                if isinstance(event, Said):
                    said.append(event.text)
        return Completion("".join(said), usage.of(answer.usage, request.model, request.messages))

    async def stream(self, request: Request, answer: Answer, clock: Clock) -> AsyncGenerator[Event, None]:
        """Fill `answer` and give what it shows as it comes. Raises `AgentFailed` with a sentence for the person."""
        endpoint = await self._endpoint(request.model)
        tries, began, told = 0, clock.monotonic(), False
        while True:
            tries += 1
            answer.begin()
            try:
                async with aclosing(self._attempt(request, answer, endpoint)) as events:
                    async for event in events:
                        yield event
                return
            except (openai.APIError, Broken, Empty) as exc:
                failure = failures.of(exc, request.model, secret=endpoint.key, now=clock.now())
                wait = self._wait(exc, failure, request.model, answer, tries).total_seconds()
            if not told and clock.monotonic() - began + wait >= _UNTOLD_SECONDS:
                told = True
                yield Noted(f"{failure.what}. Trying again …", WARNING)
            await clock.sleep(wait)

    async def _attempt(
        self, request: Request, answer: Answer, endpoint: Endpoint
    ) -> AsyncGenerator[Event, None]:
        stream = await self._client(endpoint).post(
            "/chat/completions",
            body=_body(request),
            cast_to=ChatCompletionChunk,
            stream=True,
            stream_cls=openai.AsyncStream[ChatCompletionChunk],
        )
        async with stream:
            try:
                async for chunk in stream:
                    for event in answer.feed(chunk):
                        yield event
            except openai.APIError:
                # A connection that breaks after the last word has taken nothing away.
                if not answer.finish:
                    raise
            except ValueError as exc:
                raise Broken from exc
        _check(answer, request)
        if answer.cut:
            yield Said(CUT)

    def _wait(self, exc: Exception, failure: Failure, model: Model, answer: Answer, tries: int) -> timedelta:
        """How long to wait before the next try; raises when there is to be none."""
        if answer.said and failure.transient:
            raise failures.broke_off(model) from exc
        worth = failure.transient and (failure.tries is None or tries < failure.tries)
        wait = self._retry.wait(tries, failure.after) if worth else None
        if wait is None:
            raise failure.error from exc
        log.info("model %s: try %d failed (%s), again in %s", model.name, tries, type(exc).__name__, wait)
        return wait

    async def _endpoint(self, model: Model) -> Endpoint:
        if model.base_url != LOCAL:
            try:
                if not model.key.startswith("file:"):
                    return resolve(model)
                return await asyncio.to_thread(resolve, model)
            except KeryxError as exc:
                raise AgentFailed(str(exc)) from exc
        if self._local is None:
            raise AgentFailed(f"Model {model.name!r} runs in this process, and this process has none.")
        return await self._local()

    def _client(self, endpoint: Endpoint) -> openai.AsyncOpenAI:
        found = self._clients.get(endpoint)
        if found is None:
            found = self._clients[endpoint] = openai.AsyncOpenAI(
                base_url=endpoint.base_url,
                api_key=endpoint.key or "none",
                max_retries=0,
                timeout=self._timeout,
            )
            # The SDK takes these from the environment, and they are meant for one provider only.
            found.organization = found.project = None
        return found


def _check(answer: Answer, request: Request) -> None:
    """Raise when what has come is no answer."""
    name = f"Model {request.model.name!r}"
    match answer.finish:
        case "" if answer.refusal:
            raise AgentFailed(f"{name} refused to answer: {answer.refusal}")
        case "":
            raise Broken
        case "content_filter":
            raise AgentFailed(f"The provider's filter stopped the answer of model {request.model.name!r}.")
        case "length" if answer.called or not answer.said:
            raise AgentFailed(f"{name} reached the length it may write before it had answered.")
        case _ if answer.refusal and not answer.said:
            raise AgentFailed(f"{name} refused to answer: {answer.refusal}")
        case _ if not (answer.said or answer.called or request.quiet):
            raise Empty
        case _:
            return


def _body(request: Request) -> Json:
    model = request.model
    body: Json = {"model": model.id, "messages": request.messages, "stream": True}
    if model.usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    if request.effort:
        body["reasoning_effort"] = request.effort
    return body | model.options


def _tool(spec: Spec) -> Json:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}
