"""The LLM agent against a strict endpoint: what it sends, what it shows, and how each trouble ends."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import anyio
import msgspec
import pytest
from tests.agents.conversation import (
    TURN,
    Conversation,
    Tools,
    a_context,
    a_model,
    an_agent,
    asked,
    collect,
    spoken,
)
from tests.builders import until
from tests.fakes.endpoint import (
    DOWN,
    KEY,
    MODEL,
    OVERFLOW,
    Cut,
    End,
    Endpoint,
    Raw,
    Refusal,
    Script,
    Stall,
    answer,
    calls,
    delta,
    finish,
    fragments,
    says,
    thinks,
    throttled,
)

from keryx.agents.llm import Models, Prices
from keryx.agents.llm.agent import LlmAgent
from keryx.agents.llm.chat_client import REASONING_RESTARTED, ChatRequest, RetryPolicy
from keryx.agents.llm.history import NO_ANSWER
from keryx.agents.llm.provider_errors import ContextFull
from keryx.agents.tools import ToolOutput
from keryx.core.errors import AgentFailed, NotFound, QuotaReached
from keryx.core.media import Attachment
from keryx.core.messages import (
    Audio,
    File,
    Image,
    Message,
    Reasoning,
    Role,
    ToolCall,
    ToolResult,
    build_model_view,
)
from keryx.core.ports.agent import (
    AgentEvent,
    ClientTool,
    FileEvent,
    NoticeEvent,
    ReasoningDelta,
    RequestOptions,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
    UsageEvent,
)
from keryx.core.sessions import SessionSettings
from keryx.core.usage import Usage
from keryx.testing import FakeClock

ONCE = RetryPolicy(tries=1)


async def failure(script: Script, **fields: Any) -> str:
    with Endpoint(script) as endpoint:
        async with an_agent(endpoint, retry=ONCE, **fields) as agent:
            with pytest.raises(AgentFailed) as caught:
                await collect(agent, a_context())
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_text_is_given_as_it_comes_and_usage_at_the_end() -> None:
    with Endpoint(answer("Hel", "lo.")) as endpoint:
        async with an_agent(endpoint) as agent:
            events = await collect(agent, a_context())
    assert events[:2] == [TextDelta("Hel"), TextDelta("lo.")]
    assert isinstance(events[2], UsageEvent)
    body = endpoint.requests[0]
    assert body["messages"] == [
        {"role": "system", "content": "# Where you are\n\n- a test\n"},
        {"role": "user", "content": "hello"},
    ]
    assert body["stream_options"] == {"include_usage": True}
    assert "tools" not in body


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_is_given_apart_from_the_answer(name: str) -> None:
    with Endpoint([*thinks("Let me ", "see.", name=name), *answer("Yes.")]) as endpoint:
        async with an_agent(endpoint) as agent:
            events = await collect(agent, a_context())
    assert [e for e in events if isinstance(e, ReasoningDelta)] == [
        ReasoningDelta("Let me "),
        ReasoningDelta("see."),
    ]
    assert spoken(events) == "Yes."


async def test_opaque_reasoning_goes_back_to_the_model_it_came_from_only() -> None:
    pieces = [
        delta(reasoning="Hm", reasoning_details=[{"type": "reasoning.text", "text": "H", "index": 0}]),
        delta(reasoning_details=[{"type": "reasoning.text", "text": "m", "signature": "xyz", "index": 0}]),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "abc", "index": 1}]),
    ]
    whole = [
        {"type": "reasoning.text", "text": "Hm", "signature": "xyz", "index": 0},
        {"type": "reasoning.encrypted", "data": "abc", "index": 1},
    ]
    step = [*pieces, *calls(("c1", "look", "{}"))]
    with Endpoint(step, answer("Done."), fields=frozenset({"reasoning_details"})) as endpoint:
        async with an_agent(endpoint, toolbox=Tools()) as agent:
            events = await collect(agent, a_context())
    assert endpoint.requests[1]["messages"][2]["reasoning_details"] == whole
    kept = [e.opaque for e in events if isinstance(e, ReasoningDelta) and e.opaque]
    talk = (
        Conversation().ask("one").add(Role.ASSISTANT, Reasoning(opaque=kept[0]), ToolCall("c1", "look", "{}"))
    )
    talk.result("c1", "out").say("Done.").ask("two", turn=TURN)
    with Endpoint(answer("Yes."), fields=frozenset({"reasoning_details"})) as endpoint:
        async with an_agent(endpoint, toolbox=Tools()) as agent:
            await collect(agent, a_context(talk.messages))
    assert endpoint.requests[0]["messages"][2]["reasoning_details"] == whole
    with Endpoint(answer("Yes.")) as endpoint:
        other = Models([a_model(endpoint, options={"model": MODEL}, id="other-model")])
        async with LlmAgent(other, toolbox=Tools()) as agent:
            await collect(agent, a_context(talk.messages))
    assert "reasoning_details" not in endpoint.requests[0]["messages"][2]


async def test_plain_reasoning_goes_back_beside_tool_calls_where_the_endpoint_wants_it() -> None:
    step = [*thinks("Look first."), *calls(("c1", "look", "{}"))]
    with Endpoint(step, answer("Done."), fields=frozenset({"reasoning_content"})) as endpoint:
        async with an_agent(endpoint, toolbox=Tools(), model={"replay": "reasoning_content"}) as agent:
            await collect(agent, a_context())
    assert endpoint.requests[1]["messages"][2]["reasoning_content"] == "Look first."


async def test_tools_run_at_once_and_answer_when_they_are_done() -> None:
    tools = Tools()
    tools.gate = asyncio.Event()
    step = calls(("c1", "slow", '{"q": "first"}'), ("c2", "look", '{"q": "second"}'))
    with Endpoint([*says("Let me look. "), *step], answer("Both found.")) as endpoint:
        async with an_agent(endpoint, toolbox=tools) as agent:
            events: list[AgentEvent] = []
            running = asyncio.ensure_future(collect(agent, a_context(), events))
            await until(lambda: len(tools.called) == 2)
            await until(lambda: any(isinstance(event, ToolResultEvent) for event in events))
            assert tools.at_once == 1
            tools.gate.set()
            await running
    called = (ToolCall("c1", "slow", '{"q": "first"}'), ToolCall("c2", "look", '{"q": "second"}', True))
    assert [e for e in events if not isinstance(e, UsageEvent)] == [
        TextDelta("Let me look. "),
        ToolCallEvent(called),
        ToolResultEvent(ToolResult("c2", "look", "look found second")),
        ToolResultEvent(ToolResult("c1", "slow", "slow found first")),
        TextDelta("Both found."),
    ]
    assert [m["role"] for m in endpoint.requests[1]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert endpoint.requests[0]["tools"][0]["function"]["name"] == "look"


@pytest.mark.parametrize(
    ("name", "given", "output"),
    [
        ("look", '{"q": ', "not a JSON object"),
        ("look", "[1]", "not a JSON object"),
        ("look", '"\ud800"', "not a JSON object"),
        ("nonsense", "{}", "There is no tool 'nonsense'. The tools are: look, send"),
        ("fail", "{}", "The line is dead."),
        ("crash", "{}", "The tool failed (RuntimeError)."),
    ],
)
async def test_a_call_that_fails_is_told_to_the_model_and_the_turn_goes_on(
    name: str, given: str, output: str
) -> None:
    with Endpoint(calls(("c1", name, given)), answer("I see.")) as endpoint:
        async with an_agent(endpoint, toolbox=Tools()) as agent:
            events = await collect(agent, a_context())
    returned = [e.result for e in events if isinstance(e, ToolResultEvent)]
    assert len(returned) == 1 and returned[0].failed and output in returned[0].output
    assert spoken(events) == "I see."
    sent = endpoint.requests[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert isinstance(json.loads(sent), dict)


async def test_an_empty_input_of_a_call_is_an_empty_object() -> None:
    tools = Tools()
    with Endpoint(calls(("c1", "look", "")), answer("I see.")) as endpoint:
        async with an_agent(endpoint, toolbox=tools) as agent:
            await collect(agent, a_context())
    assert tools.called == [("look", {})]


async def test_ids_that_a_provider_repeats_or_leaves_out_become_unique() -> None:
    one = calls(("call_0", "look", "{}"))
    with Endpoint(one, one, calls(("", "look", "{}")), answer("Done.")) as endpoint:
        async with an_agent(endpoint, toolbox=Tools()) as agent:
            events = await collect(agent, a_context())
    made = [c.id for e in events if isinstance(e, ToolCallEvent) for c in e.calls]
    assert made[0] == "call_0" and len(set(made)) == 3 and all(made)
    assert endpoint.refused == []


async def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    def whole(id: str, q: str) -> dict[str, Any]:
        function = {"name": "look", "arguments": json.dumps({"q": q})}
        return delta(tool_calls=[{"index": 0, "id": id, "type": "function", "function": function}])

    tools = Tools()
    with Endpoint([whole("a", "1"), whole("b", "2"), *finish("tool_calls")], answer("Done.")) as endpoint:
        async with an_agent(endpoint, toolbox=tools) as agent:
            await collect(agent, a_context())
    assert tools.called == [("look", {"q": "1"}), ("look", {"q": "2"})]


async def test_what_tools_have_for_the_person_follows_their_results() -> None:
    picture = FileEvent("x.png", "image/png", b"x")

    class Painter(Tools):
        async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
            given = await super().call(name, arguments, context)
            return ToolOutput(given.text, (picture,)) if name == "look" else given

    with Endpoint(calls(("c1", "look", "{}"), ("c2", "send", "{}")), answer("Done.")) as endpoint:
        async with an_agent(endpoint, toolbox=Painter()) as agent:
            events = await collect(agent, a_context())
    kinds = [
        type(e) for e in events if isinstance(e, ToolCallEvent | ToolResultEvent | FileEvent | TextDelta)
    ]
    assert kinds == [ToolCallEvent, ToolResultEvent, ToolResultEvent, FileEvent, TextDelta]
    assert picture in events


async def test_a_call_that_had_to_ask_and_was_not_answered_had_not_begun() -> None:
    talk = Conversation().ask("send it", turn=TURN)
    talk.call(
        ToolCall("c1", "send", "{}", asks=True),
        ToolCall("c2", "send", "{}", asks=True),
        ToolCall("c3", "send", "{}"),
    )
    tools = Tools()
    context = msgspec.structs.replace(
        a_context(build_model_view(talk.messages), attempt=2), answered_keys=frozenset({"c2"})
    )
    with Endpoint(answer("Done.")) as endpoint:
        async with an_agent(endpoint, toolbox=tools) as agent:
            events = await collect(agent, context)
    assert [e.result.id for e in events if isinstance(e, ToolResultEvent)] == ["c1"]
    told = {m["tool_call_id"]: m["content"] for m in endpoint.requests[0]["messages"] if m["role"] == "tool"}
    assert told["c1"] == "send found nothing"
    assert "effect is unknown" in told["c2"] and "effect is unknown" in told["c3"]


async def test_an_endpoint_that_takes_no_tools_is_told_with_the_way_out() -> None:
    refusal = Refusal(status=400, message="registry.ollama.ai/library/x does not support tools")
    with Endpoint(refusal) as endpoint:
        async with an_agent(endpoint, toolbox=Tools()) as agent:
            with pytest.raises(AgentFailed, match="takes no tools for model 'test': set `tools = false`"):
                await collect(agent, a_context())


async def test_rounds_of_tools_have_a_limit() -> None:
    with Endpoint(*(calls((f"c{n}", "look", "{}")) for n in range(3))) as endpoint:
        async with an_agent(endpoint, toolbox=Tools(), rounds=3) as agent:
            with pytest.raises(AgentFailed, match="used tools 3 times"):
                await collect(agent, a_context())
    assert len(endpoint.requests) == 3


async def test_messages_that_arrive_meanwhile_are_given_between_rounds() -> None:
    waiting = [Conversation().ask("and the weather").messages]

    async def steer() -> Sequence[Message]:
        return waiting.pop() if waiting else ()

    with Endpoint(calls(("c1", "look", "{}")), answer("Sunny.")) as endpoint:
        async with an_agent(endpoint, toolbox=Tools()) as agent:
            await collect(agent, a_context(steer=steer))
    assert endpoint.requests[1]["messages"][-2:] == [
        {"role": "assistant", "content": NO_ANSWER},
        {"role": "user", "content": "and the weather"},
    ]


async def test_after_a_crash_a_finished_step_is_not_run_again_and_a_repeatable_open_one_is() -> None:
    talk = Conversation().ask("look twice", turn=TURN)
    look, more, send = (
        ToolCall("c1", "look", '{"q": "a"}', repeatable=True),
        ToolCall("c2", "look", '{"q": "b"}', repeatable=True),
        ToolCall("c3", "send", "{}"),
    )
    talk.call(look, more, send).result("c1", "found a")
    tools = Tools()
    with Endpoint(answer("Done.")) as endpoint:
        async with an_agent(endpoint, toolbox=tools) as agent:
            events = await collect(agent, a_context(build_model_view(talk.messages), attempt=2))
    assert tools.called == [("look", {"q": "b"})]
    assert events[0] == ToolResultEvent(ToolResult("c2", "look", "look found b"))
    results = {
        m["tool_call_id"]: m["content"] for m in endpoint.requests[0]["messages"] if m["role"] == "tool"
    }
    assert results["c1"] == "found a" and results["c2"] == "look found b"
    assert "effect is unknown" in results["c3"]


async def test_usage_counts_five_classes_once_each_and_costs_by_the_prices() -> None:
    counts = {
        "prompt_tokens": 1000,
        "completion_tokens": 300,
        "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 200},
    }
    prices = Prices(input=2, output=8, cache_read=0.5, cache_write=2.5)
    with Endpoint([*says("Yes."), *finish(usage=counts)]) as endpoint:
        async with an_agent(endpoint, model={"prices": prices}) as agent:
            events = await collect(agent, a_context())
    assert events[-1] == UsageEvent(
        Usage(
            model="test",
            input=300,
            output=100,
            reasoning=200,
            cache_read=600,
            cache_write=100,
            cost=300 * 2 + 300 * 8 + 300 + 250,
            context_used=1300,
            context_limit=8192,
        )
    )


@pytest.mark.parametrize(
    ("extra", "cost", "estimated"), [({"cost": 0.0123}, 12_300, False), ({}, None, True)]
)
async def test_a_cost_is_the_providers_own_or_unknown_without_prices(
    extra: dict[str, float], cost: int | None, estimated: bool
) -> None:
    counts = {"prompt_tokens": 1, "completion_tokens": 1, "prompt_cache_hit_tokens": 1, **extra}
    with Endpoint([*says("Yes."), *finish(usage=counts)]) as endpoint:
        async with an_agent(endpoint) as agent:
            used = (await collect(agent, a_context()))[-1]
    assert isinstance(used, UsageEvent)
    assert (used.usage.cost, used.usage.estimated) == (cost, estimated)
    assert (used.usage.input, used.usage.cache_read) == (0, 1)


async def test_without_counts_the_size_of_the_context_is_estimated() -> None:
    with Endpoint([*says("Yes."), delta("stop")]) as endpoint:
        async with an_agent(endpoint, model={"usage": False}) as agent:
            used = (await collect(agent, a_context(asked("x" * 4000))))[-1]
    assert isinstance(used, UsageEvent) and used.usage.cost is None
    assert 1000 <= (used.usage.context_used or 0) < 1050
    assert "stream_options" not in endpoint.requests[0]


async def test_a_throttled_request_is_sent_again_when_the_provider_says(clock: FakeClock) -> None:
    with Endpoint(throttled("7"), answer("Here.")) as endpoint:
        async with an_agent(endpoint) as agent:
            running = asyncio.ensure_future(collect(agent, a_context(clock=clock)))
            await until(lambda: clock.sleepers == 1)
            clock.advance(6.9)
            await asyncio.sleep(0.02)
            assert len(endpoint.requests) == 1
            clock.advance(0.1)
            events = await running
    assert spoken(events) == "Here."


async def test_a_wait_beyond_patience_fails_at_once_with_its_time() -> None:
    with Endpoint(throttled("3600")) as endpoint:
        async with an_agent(endpoint) as agent:
            with pytest.raises(QuotaReached, match="is reached until 2026-03-01 13:00 UTC"):
                await collect(agent, a_context())
    assert len(endpoint.requests) == 1


BREAKS: list[Script] = [
    DOWN,
    Refusal(status=500, message="", raw="<html>oops</html>"),
    [Cut()],
    [*thinks("Hm"), Cut()],
    [*fragments(("c1", "look", '{"q": 1}')), Cut()],
    [delta(role="assistant", content=""), End()],
    [Raw("data: {nonsense\n\n")],
    [Raw('data: {"error": {"code": 502, "message": "upstream died"}}\n\n')],
    finish(),
]


@pytest.mark.parametrize("script", BREAKS)
async def test_trouble_before_the_first_word_is_tried_again(script: Script, clock: FakeClock) -> None:
    with Endpoint(script, answer("All ", "well.")) as endpoint:
        async with an_agent(endpoint, toolbox=Tools()) as agent:
            running = asyncio.ensure_future(collect(agent, a_context(clock=clock)))
            await until(lambda: clock.sleepers == 1)
            clock.advance(1.3)
            events = await running
    assert spoken(events) == "All well."
    assert not any(isinstance(e, ToolCallEvent) for e in events)
    assert len(endpoint.requests) == 2


async def test_reasoning_that_begins_again_says_so(clock: FakeClock) -> None:
    with Endpoint([*thinks("Hm"), Cut()], [*thinks("Hm, yes"), *answer("Yes.")]) as endpoint:
        async with an_agent(endpoint) as agent:
            running = asyncio.ensure_future(collect(agent, a_context(clock=clock)))
            await until(lambda: clock.sleepers == 1)
            clock.advance(2)
            events = await running
    thoughts = "".join(e.text for e in events if isinstance(e, ReasoningDelta))
    assert thoughts == f"Hm{REASONING_RESTARTED}Hm, yes"


@pytest.mark.parametrize(
    "rest", [[Cut()], [End()], [Raw("data: {nonsense\n\n")], [Raw('data: {"error": {"message": "no"}}\n\n')]]
)
async def test_a_stream_that_breaks_after_a_word_fails_and_says_nothing_twice(rest: list[Any]) -> None:
    events: list[AgentEvent] = []
    with Endpoint([*says("Once "), *rest], answer("Once again.")) as endpoint:
        async with an_agent(endpoint) as agent:
            with pytest.raises(AgentFailed, match="broke in mid-answer"):
                await collect(agent, a_context(), events)
    assert events == [TextDelta("Once ")]
    assert len(endpoint.requests) == 1


async def test_a_connection_that_breaks_after_the_end_takes_nothing_away() -> None:
    with Endpoint([*says("Whole."), delta("stop"), Cut()]) as endpoint:
        async with an_agent(endpoint) as agent:
            assert spoken(await collect(agent, a_context())) == "Whole."


async def test_tries_are_bounded(clock: FakeClock) -> None:
    with Endpoint(DOWN) as endpoint:
        async with an_agent(endpoint, retry=RetryPolicy(tries=3)) as agent:
            running = asyncio.ensure_future(collect(agent, a_context(clock=clock)))
            for _ in range(2):
                await until(lambda: clock.sleepers == 1)
                clock.advance(10)
            with pytest.raises(AgentFailed, match="has trouble: The engine is currently overloaded; /retry"):
                await running
    assert len(endpoint.requests) == 3


FAILURES: list[tuple[Script, str]] = [
    (OVERFLOW, "no longer fits into the context of 8192 tokens of model 'test'; /compact makes room."),
    (
        Refusal(status=429, message="You exceeded your current quota", code="insufficient_quota"),
        "no credit left",
    ),
    (Refusal(status=402, message="Insufficient credits"), "no credit left"),
    (Refusal(status=403, message="Not in your region"), "may not be used for this: Not in your region."),
    (Refusal(status=400, message="", code="content_filter"), "by its content rules."),
    (Refusal(status=400, message="bad\nthing " + KEY), "(status 400): bad thing [key]."),
    (Refusal(status=404, message="", raw="<html>no</html>"), "no endpoint at the base_url"),
    (
        [delta(refusal="I will "), delta(refusal="not."), *finish()],
        "Model 'test' refused to answer: I will not.",
    ),
    ([*says("Wel"), *finish("content_filter")], "filter stopped the answer"),
    (finish(), "was empty; /retry asks again."),
    (finish("length"), "reached the length it may write before it had answered."),
    ([*fragments(("c1", "look", "{")), *finish("length")], "reached the length"),
    (throttled("1"), "asks to wait for 1 second: too many requests"),
]


@pytest.mark.parametrize(("script", "sentence"), FAILURES)
async def test_each_trouble_is_one_clear_sentence(script: Script, sentence: str) -> None:
    assert sentence in await failure(script)


async def test_an_overflow_can_be_told_from_other_failures() -> None:
    with Endpoint(OVERFLOW) as endpoint:
        async with an_agent(endpoint) as agent:
            with pytest.raises(ContextFull):
                await collect(agent, a_context())


async def test_a_wrong_key_is_told_by_its_reference_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("KERYX_TEST_KEY", "wrong-key-987")
    with Endpoint(answer("no")) as endpoint:
        async with an_agent(endpoint) as agent:
            with pytest.raises(
                AgentFailed, match=r"\(env:KERYX_TEST_KEY\) was refused by 127.0.0.1"
            ) as caught:
                await collect(agent, a_context())
    assert "wrong-key" not in str(caught.value) + caplog.text


async def test_an_endpoint_that_wants_a_key_says_how_to_set_one() -> None:
    text = await failure(answer("no"), model={"key": ""})
    assert "wants a key for model 'test'; set its `key`" in text


async def test_an_unknown_model_id_names_the_id_and_the_endpoint() -> None:
    assert "127.0.0.1 does not know the id 'gpt-9' of model 'test'" in await failure(
        answer("no"), model={"id": "gpt-9"}
    )


async def test_an_endpoint_here_where_nothing_listens_is_tried_twice_and_says_what_to_start(
    clock: FakeClock,
) -> None:
    async with an_agent("http://user:secret@localhost:9/v1") as agent:
        running = asyncio.ensure_future(collect(agent, a_context(clock=clock)))
        await until(lambda: clock.sleepers == 1)
        clock.advance(2)
        with pytest.raises(AgentFailed, match=r"Nothing listens at localhost:9.*start its server") as caught:
            await running
    assert "secret" not in str(caught.value)


async def test_an_endpoint_that_speaks_no_tls_is_given_up_at_once() -> None:
    with Endpoint(answer("no")) as endpoint:
        async with an_agent(endpoint.base_url.replace("http:", "https:")) as agent:
            with pytest.raises(AgentFailed, match=r"No safe connection to 127.0.0.1.*http://"):
                await collect(agent, a_context())


async def test_who_waits_is_told_once_that_the_model_is_tried_again(clock: FakeClock) -> None:
    with Endpoint(DOWN, DOWN, DOWN, answer("At last.")) as endpoint:
        async with an_agent(endpoint) as agent:
            running = asyncio.ensure_future(collect(agent, a_context(clock=clock)))
            for wait in (1.3, 2.6, 5.1):
                await until(lambda: clock.sleepers == 1)
                clock.advance(wait)
            events = await running
    told = [e for e in events if isinstance(e, NoticeEvent)]
    assert [(e.kind, e.text.partition(":")[0]) for e in told] == [
        ("warning", "The provider of model 'test' has trouble")
    ]
    assert told[0].text.endswith("Trying again …")
    assert spoken(events) == "At last."


async def test_a_short_trouble_is_not_told(clock: FakeClock) -> None:
    with Endpoint(DOWN, answer("Here.")) as endpoint:
        async with an_agent(endpoint) as agent:
            running = asyncio.ensure_future(collect(agent, a_context(clock=clock)))
            await until(lambda: clock.sleepers == 1)
            clock.advance(1.3)
            assert not [e for e in await running if isinstance(e, NoticeEvent)]


async def test_a_long_wait_that_a_provider_asks_for_is_told_at_once(clock: FakeClock) -> None:
    with Endpoint(throttled("60"), answer("Here.")) as endpoint:
        async with an_agent(endpoint) as agent:
            events: list[AgentEvent] = []
            running = asyncio.ensure_future(collect(agent, a_context(clock=clock), events))
            await until(lambda: clock.sleepers == 1)
            assert [e.text for e in events if isinstance(e, NoticeEvent)] == [
                "The provider of model 'test' asks to wait for 60 seconds: too many requests. Trying again …"
            ]
            clock.advance(60)
            await running


async def test_a_model_that_stands_still_runs_into_the_network_timeout() -> None:
    with Endpoint([Stall()]) as endpoint:
        async with an_agent(endpoint, retry=ONCE, silence=timedelta(milliseconds=100)) as agent:
            with pytest.raises(AgentFailed, match="did not answer in time"):
                await collect(agent, a_context())


@pytest.mark.parametrize("script", [[Stall()], [*says("Hel"), Stall()], [*thinks("Hm"), Stall()]])
async def test_a_cancel_passes_at_once_and_closes_the_connection(script: Script) -> None:
    with Endpoint(script) as endpoint:
        async with an_agent(endpoint) as agent:
            running = asyncio.ensure_future(collect(agent, a_context()))
            await until(lambda: len(endpoint.requests) == 1)
            await asyncio.sleep(0.02)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await until(lambda: endpoint.dropped == 1)


async def test_a_cancelled_scope_closes_the_connection_too() -> None:
    with Endpoint([*says("Hel"), Stall()]) as endpoint:
        async with an_agent(endpoint) as agent:
            seen: list[AgentEvent] = []
            async with anyio.create_task_group() as group:
                group.start_soon(collect, agent, a_context(), seen)
                await until(lambda: bool(seen))
                group.cancel_scope.cancel()
            await until(lambda: endpoint.dropped == 1)


async def test_logs_hold_neither_the_key_nor_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Endpoint(answer("the word is swordfish")) as endpoint:
        async with an_agent(endpoint) as agent:
            await collect(agent, a_context(asked("tell me about halibut")))
    assert KEY not in caplog.text
    assert "swordfish" not in caplog.text
    assert "halibut" not in caplog.text


async def test_an_agent_that_is_closed_between_two_words_closes_the_connection() -> None:
    with Endpoint([*says("Hel"), Stall()]) as endpoint:
        async with an_agent(endpoint) as agent:
            async with aclosing(agent.run(a_context())) as events:
                assert await anext(events) == TextDelta("Hel")
            await until(lambda: endpoint.dropped == 1)


async def test_a_cancel_reaches_the_tools() -> None:
    tools = Tools()
    tools.gate = asyncio.Event()
    with Endpoint(calls(("c1", "slow", "{}"), ("c2", "slow", "{}"))) as endpoint:
        async with an_agent(endpoint, toolbox=tools) as agent:
            running = asyncio.ensure_future(collect(agent, a_context()))
            await until(lambda: tools.at_once == 2)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
    assert len(asyncio.all_tasks()) <= 2


async def test_an_answer_that_reached_its_length_is_kept_as_written_and_a_notice_says_so() -> None:
    with Endpoint([*says("A long"), *finish("length")]) as endpoint:
        async with an_agent(endpoint) as agent:
            events = await collect(agent, a_context())
    assert spoken(events) == "A long"
    assert isinstance(events[-1], NoticeEvent) and events[-1].kind == "max_tokens"


async def test_nothing_more_to_say_after_tools_is_no_failure() -> None:
    step = [*says("I send it now."), *calls(("c1", "send", "{}"))]
    with Endpoint(step, finish()) as endpoint:
        async with an_agent(endpoint, toolbox=Tools()) as agent:
            assert spoken(await collect(agent, a_context())) == "I send it now."


async def test_images_files_and_sound_are_sent_as_the_model_can_take_them() -> None:
    store = {"m1": b"\x89PNG", "m2": b"a,b\n1,2", "m3": b"%PDF", "m4": b"RIFF"}
    loaded: list[str] = []

    async def fetch(name: str) -> Attachment:
        loaded.append(name)
        if name not in store:
            raise NotFound(name)
        return Attachment(name="", mime="", body=store[name])

    history = asked(
        "look",
        Image("m1", "image/png"),
        Image("gone", "image/png", "old.png"),
        File("m2", "text/csv", "a.csv"),
        File("m3", "application/pdf", "b.pdf"),
        Audio("m4", "audio/wav"),
        Audio("m5", "audio/ogg", transcript="Spoken words"),
    )
    with Endpoint(answer("I see.")) as endpoint:
        async with an_agent(endpoint, model={"images": True, "audio": True}) as agent:
            await collect(agent, a_context(history, fetch=fetch))
        async with an_agent(endpoint) as agent:
            await collect(agent, a_context(history, fetch=fetch))
    assert loaded == ["m1", "gone", "m2", "m4", "m2"]
    table = '[file "a.csv"]\na,b\n1,2\n[end of file]'
    assert endpoint.requests[0]["messages"][1]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "text", "text": '[image "old.png": it is no longer there]'},
        {"type": "text", "text": table},
        {"type": "text", "text": '[file "b.pdf": this model cannot read it]'},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "text", "text": "Spoken words"},
    ]
    plain = endpoint.requests[1]["messages"][1]["content"]
    assert plain.startswith('look\n\n[image "image/png": this model cannot read it]') and table in plain


async def test_the_session_chooses_among_the_named_models() -> None:
    with Endpoint(answer("Yes.")) as endpoint:
        models = Models([a_model(endpoint), a_model(endpoint, name="fast", options={"max_tokens": 9})])
        async with LlmAgent(models) as agent:
            await collect(agent, a_context(settings=SessionSettings(model="fast", effort="low")))
            with pytest.raises(AgentFailed, match="no model 'huge': choose one of test, fast with /model"):
                await collect(agent, a_context(settings=SessionSettings(model="huge")))
    assert endpoint.requests[0]["max_tokens"] == 9
    assert endpoint.requests[0]["reasoning_effort"] == "low"


async def test_a_whole_answer_can_be_asked_for_without_a_turn(clock: FakeClock) -> None:
    with Endpoint(answer("A ", "title")) as endpoint:
        async with an_agent(endpoint) as agent:
            request = ChatRequest(
                model=agent.models.pick(None), messages=[{"role": "user", "content": "Title?"}]
            )
            completion = await agent.chat.complete(request, clock)
    assert completion.text == "A title"
    assert completion.usage.input == 10


async def test_a_tool_of_the_program_that_asks_ends_the_turn_after_the_tools_of_the_agent() -> None:
    tools = Tools()
    options = RequestOptions(tools=(ClientTool(name="weather", parameters={"type": "object"}),))
    context = msgspec.structs.replace(a_context(), options=options)
    with Endpoint(calls(("c1", "look", '{"q": "sky"}'), ("c2", "weather", "{}"))) as endpoint:
        async with an_agent(endpoint, toolbox=tools) as agent:
            events = await collect(agent, context)
    assert [call.name for e in events if isinstance(e, ToolCallEvent) for call in e.calls] == [
        "look",
        "weather",
    ]
    assert [e.result.id for e in events if isinstance(e, ToolResultEvent)] == ["c1"]
    assert [name for name, _ in tools.called] == ["look"]
    assert len(endpoint.requests) == 1
    assert {"look", "weather"} <= {tool["function"]["name"] for tool in endpoint.requests[0]["tools"]}


async def test_a_turn_that_was_interrupted_after_such_a_call_ends_without_another_answer() -> None:
    options = RequestOptions(tools=(ClientTool(name="weather", parameters={"type": "object"}),))
    past = Conversation().ask("How is the weather?", turn=TURN).call(ToolCall("c1", "weather", "{}")).messages
    context = msgspec.structs.replace(a_context(build_model_view(past), attempt=2), options=options)
    with Endpoint(answer("never asked for")) as endpoint:
        async with an_agent(endpoint) as agent:
            assert await collect(agent, context) == []
    assert endpoint.requests == []
