"""A streamed answer: what is not shown while it comes has limits of its own."""

from itertools import chain

import pytest
from openai.types.chat import ChatCompletionChunk

from keryx.agents.llm import Model
from keryx.agents.llm.chat_client import StreamedAnswer
from keryx.core.errors import AgentFailed


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
