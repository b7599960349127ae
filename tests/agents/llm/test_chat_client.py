"""A streamed answer: what is not shown while it comes has limits of its own."""

import asyncio
import gzip
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import chain
from types import SimpleNamespace

import pytest
from openai.types.chat import ChatCompletionChunk
from tests.agents.conversation import a_model
from tests.fakes.endpoint import Endpoint, Raw, Refusal, Script, says

from keryx.agents.llm import Model
from keryx.agents.llm.chat_client import (
    ChatClient,
    ChatRequest,
    ResponseBody,
    RetryPolicy,
    StreamedAnswer,
    StreamLoad,
    StreamPacer,
)
from keryx.core.errors import AgentFailed
from keryx.timing import SystemClock


def chunk(**delta: object) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return ChatCompletionChunk.model_validate(body)


def call(index: int, arguments: str) -> dict[str, object]:
    function = {"name": "look", "arguments": arguments}
    return {"index": index, "id": f"call-{index}", "type": "function", "function": function}


@pytest.mark.parametrize(
    "pieces",
    [
        [chunk(tool_calls=[call(0, "[" * 50_000)])] * 41,
        [chunk(tool_calls=[call(n, "")]) for n in range(1_001)],
        [chunk(reasoning_details=[{"type": "x", "index": 0, "data": "d" * 50_000}])] * 41,
        [chunk(refusal="no " * 20_000)] * 41,
    ],
    ids=["arguments", "calls", "reasoning", "refusal"],
)
def test_what_is_not_shown_while_it_comes_has_an_end(pieces: list[ChatCompletionChunk]) -> None:
    answer = StreamedAnswer(Model(name="parrot", base_url="http://127.0.0.1/v1", id="m"))
    for piece in pieces[:30]:
        list(answer.feed(piece))
    with pytest.raises(AgentFailed, match="did not come to an end"):
        list(chain.from_iterable(answer.feed(piece) for piece in pieces[30:]))


async def collect(*scripts: Script) -> str:
    """Return the error of a request that plays these scripts."""
    with Endpoint(*scripts) as endpoint:
        client = ChatClient(retry=RetryPolicy(tries=1))
        model = a_model(endpoint)
        request = ChatRequest(model=model, messages=[{"role": "user", "content": "go"}])
        with pytest.raises(AgentFailed) as caught:
            await client.complete(request, SystemClock())
        await client.aclose()
    return str(caught.value)


async def test_an_event_of_any_size_is_not_kept() -> None:
    assert "broke off" in await collect([Raw('data: {"id": "'), *[Raw("x" * 100_000)] * 100])
    assert "broke off" in await collect([*[Raw(f"data: {'x' * 1_000}\n")] * 10_000])


async def test_of_an_error_of_any_size_only_the_beginning_is_read() -> None:
    assert "status 500" in await collect(Refusal(status=500, message="", raw="x" * 20_000_000))


async def test_a_summary_without_an_end_fails() -> None:
    assert "did not come to an end" in await collect(says(*["more and more" * 4_000] * 60))


async def test_compression_that_was_not_asked_for_is_not_undone() -> None:
    bomb = gzip.compress(bytes(1_000_000)).decode("latin-1")
    headers = {"Content-Encoding": "gzip"}
    assert "status 500" in await collect(Refusal(status=500, message="", raw=bomb, headers=headers))


async def test_other_tasks_run_while_a_fast_model_answers() -> None:
    async def arrive() -> AsyncIterator[bytes]:
        yield bytes(1_000_000)

    async def close() -> None:
        pass

    async def count() -> None:
        for turns.value in itertools.count():
            await asyncio.sleep(0)

    turns = SimpleNamespace(value=0)
    counter = asyncio.create_task(count())
    body = [piece async for piece in ResponseBody(arrive(), close, StreamPacer())]
    counter.cancel()
    assert sum(map(len, body)) == 1_000_000
    assert turns.value > len(body) - 3 > 60


async def test_pieces_are_short_again_after_each_event() -> None:
    async def arrive() -> AsyncIterator[bytes]:
        yield bytes(100_000)

    async def close() -> None:
        pass

    body = ResponseBody(arrive(), close, StreamPacer())
    sizes: list[int] = []
    async for piece in body:
        sizes.append(len(piece))
        if len(sizes) in (8, 9):
            body.reset()
    assert sizes[:9] == [1_024, 1_024, 2_048, 4_096, 8_192, 16_384, 16_384, 16_384, 1_024]
    assert sizes[9] == 1_024


async def test_streams_of_models_compute_at_most_half_of_the_time() -> None:
    loop, pacer = asyncio.get_running_loop(), StreamPacer()
    began = loop.time()
    # Each of the three has computed for a millisecond, ten times.
    async with asyncio.TaskGroup() as group:
        for load in (StreamLoad(), StreamLoad(), StreamLoad()):
            group.create_task(repeat(10, partial(pacer.pause, 0.001, load)))
    # A few milliseconds may be computed in advance.
    assert loop.time() - began >= 0.05


async def test_heavy_streams_compute_a_fifth_of_the_time_and_light_ones_do_not_wait_for_them() -> None:
    loop, pacer = asyncio.get_running_loop(), StreamPacer()
    heavy, light = StreamLoad(), StreamLoad()
    # What a stream may compute before it counts as a heavy one.
    assert [heavy.add(0.001, now=loop.time()) for _ in range(49)] == [False] * 49
    began = loop.time()
    await repeat(40, partial(pacer.pause, 0.001, heavy))
    assert loop.time() - began >= 0.17
    queued = asyncio.create_task(repeat(1_000, partial(pacer.pause, 0.001, heavy)))
    await asyncio.sleep(0)
    await pacer.pause(0.001, light)
    assert not queued.done()
    queued.cancel()


def test_a_stream_is_light_again_after_a_while() -> None:
    load = StreamLoad()
    assert [load.add(0.001, now=1.0) for _ in range(60)][-1]
    assert load.add(0.001, now=1.05)
    assert not load.add(0.001, now=1.2)


async def repeat(times: int, work: Callable[[], Awaitable[None]]) -> None:
    for _ in range(times):
        await work()
