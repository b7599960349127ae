"""Histories as requests: whatever happened before, no provider can refuse them, and their beginnings stay the same."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.conversation import SESSION, TURN, Conversation, Tools, a_context, an_agent
from tests.builders import ODD_TEXTS, until
from tests.fakes import strict
from tests.fakes.endpoint import Endpoint, Stall, answer, calls, says, thinks

from keryx.agents.llm import Model, history
from keryx.agents.llm.history import CONTINUE_REQUEST, EMPTY_MESSAGE, NO_ANSWER, NO_OUTPUT, PromptContext
from keryx.core import messages as core_messages
from keryx.core.clock import to_micros
from keryx.core.ids import TurnId
from keryx.core.messages import (
    INTERRUPTED_OUTPUT,
    Audio,
    File,
    Image,
    Mark,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    build_model_view,
)
from keryx.core.ports.agent import AgentEvent, ReasoningDelta, TextDelta, ToolCallEvent, ToolResultEvent
from keryx.testing import START_TIME

MODEL = Model(name="m", base_url="http://x/v1", id="m", images=True, files=True, audio=True)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def build(messages: Sequence[Message], **scene: Any) -> list[dict[str, Any]]:
    """The messages of a request, which the strictest provider takes."""
    made = history.build(messages, PromptContext(model=MODEL, turn=TURN, **scene))
    tools = {"tools": [TOOL]} if scene.get("tools", True) else {}
    strict.check({"model": "m", "messages": made, **tools})
    for message in made:
        str(message).encode()
    return made


def test_neighbours_of_one_role_are_joined() -> None:
    talk = Conversation().ask("one").ask("two").say("a").say("b").ask("three")
    assert [m["content"] for m in build(talk.messages)] == ["one\n\ntwo", "a\n\nb", "three"]


def test_the_place_comes_first_and_the_summary_of_what_was_left_out_is_no_system_text() -> None:
    made = build(Conversation().ask("go on").messages, system="Be kind.", summary="Ann likes tea.")
    assert made[0] == {"role": "system", "content": "Be kind."}
    assert made[1]["role"] == "user"
    assert made[1]["content"].endswith("Ann likes tea.\n\ngo on")


def test_people_are_named_where_several_speak() -> None:
    talk = Conversation().ask("hi", author="Ann [admin]").say("hello").ask("hey", author="Bob")
    assert [m["content"] for m in build(talk.messages, shared=True)] == [
        "[Ann (admin)] hi",
        "hello",
        "[Bob] hey",
    ]
    assert build(talk.messages)[0]["content"] == "hi"


def test_the_exact_text_is_sent_where_it_differs_from_what_was_shown() -> None:
    talk = Conversation().ask("hi", author="Ann", exact="[Ann, 12:00] hi")
    assert build(talk.messages, shared=True)[0]["content"] == "[Ann, 12:00] hi"


def test_an_open_call_is_closed_and_a_result_without_a_call_is_left_out() -> None:
    talk = Conversation().ask("go").call(ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    talk.result("b", "found b").result("b", "again").result("z", "whose?").ask("next").result("y", "odd")
    assert [(m["role"], m["content"]) for m in build(talk.messages)] == [
        ("user", "go"),
        ("assistant", None),
        ("tool", INTERRUPTED_OUTPUT),
        ("tool", "found b"),
        ("assistant", NO_ANSWER),
        ("user", "next"),
    ]


def test_words_that_an_interrupted_attempt_had_begun_are_not_sent_again() -> None:
    talk = Conversation().ask("go", turn=TURN).say("I beg", mark=Mark.INTERRUPTED)
    assert build(talk.messages) == [{"role": "user", "content": "go"}]
    older = Conversation().ask("go", turn="t1").say("I beg", mark=Mark.INTERRUPTED).ask("again", turn=TURN)
    assert [m["content"] for m in build(older.messages)] == ["go", "I beg", "again"]


def test_nothing_empty_is_sent() -> None:
    talk = Conversation().ask(" \n").add(Role.ASSISTANT, Reasoning("hm")).ask("", Image("gone", "image/png"))
    talk.call(ToolCall("a", "look", "")).result("a", " ").say("").ask("end")
    made = build(talk.messages)
    assert made[0]["content"] == f"{EMPTY_MESSAGE}\n\n" + '[image "image/png": it is no longer there]'
    assert made[2]["content"] == NO_OUTPUT
    assert build([]) == [{"role": "user", "content": CONTINUE_REQUEST}]


def test_a_conversation_that_begins_or_ends_with_the_model_is_opened_and_closed() -> None:
    made = build(Conversation().say("Welcome.").messages)
    assert [m["content"] for m in made] == [CONTINUE_REQUEST, "Welcome.", CONTINUE_REQUEST]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ('{"q": 1}', '{"q": 1}'),
        ("", "{}"),
        ('{"q": ', '{"input": "{\\"q\\": "}'),
        ("[1]", '{"input": "[1]"}'),
        ("NaN", '{"input": "NaN"}'),
        ('{"q": NaN}', '{"input": "{\\"q\\": NaN}"}'),
        ("[" * 100_000, None),
    ],
)
def test_input_that_is_no_object_is_sent_inside_one(given: str, sent: str | None) -> None:
    made = history.format_arguments(ToolCall("a", "look", given))
    assert sent is None or made == sent
    build(Conversation().ask("go").call(ToolCall("a", "look", given)).messages)


def test_ids_and_names_that_providers_refuse_are_made_over() -> None:
    talk = Conversation().ask("go")
    talk.call(ToolCall("a", "look", "{}"), ToolCall("a", "my tool/1", "{}"), ToolCall("x" * 99, "", "{}"))
    talk.result("a", "one").result("a", "two").result("x" * 99, "three").call(ToolCall("a", "look", "{}"))
    made = build(talk.messages)
    assert [c["function"]["name"] for c in made[1]["tool_calls"]] == ["look", "my_tool_1", "tool"]
    assert [m["content"] for m in made[2:5]] == ["one", "two", "three"]
    assert made == build(talk.messages)


def test_without_tools_past_calls_are_told_in_words() -> None:
    talk = Conversation().ask("go").add(Role.ASSISTANT, Text("Look."), ToolCall("a", "look", "{}"))
    talk.result("a", "found").say("There.").ask("thanks")
    made = build(talk.messages, tools=False)
    assert [m["content"] for m in made] == ["go", "Look.\n\n[tool look {}: found]\n\nThere.", "thanks"]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_any_text_can_be_sent(text: str) -> None:
    talk = (
        Conversation().ask(text, author=text).call(ToolCall(text, text, text)).result(text, text, name=text)
    )
    build(talk.messages, system=text, summary=text, shared=True)
    build(talk.messages, tools=False)


TEXTS = st.one_of(st.sampled_from(["", " ", "hi", "{}", '{"q": 1}', *ODD_TEXTS]), st.text(max_size=8))
IDS = st.sampled_from(["", "a", "b", "c", "x" * 50])
MIMES = st.sampled_from(["", "image/png", "text/plain", "audio/wav"])
NAMES = st.sampled_from(["m1", "gone"])
MEDIA: st.SearchStrategy[Part] = st.one_of(
    st.builds(Image, NAMES, MIMES), st.builds(File, NAMES, MIMES), st.builds(Audio, NAMES, MIMES)
)
SAYINGS: st.SearchStrategy[Part] = st.one_of(st.builds(Text, TEXTS), st.builds(Reasoning, TEXTS, TEXTS))
CALLS: st.SearchStrategy[Part] = st.builds(ToolCall, IDS, TEXTS, TEXTS, st.booleans())
RESULTS: st.SearchStrategy[Part] = st.builds(ToolResult, IDS, TEXTS, TEXTS)
PARTS = {
    Role.USER: st.lists(st.one_of(st.builds(Text, TEXTS), MEDIA), max_size=3),
    Role.ASSISTANT: st.lists(st.one_of(SAYINGS, CALLS), max_size=4),
    Role.TOOL: st.lists(RESULTS, max_size=3),
    Role.NOTICE: st.just(list[Part]()),
}
ENTRIES = st.sampled_from(list(Role)).flatmap(
    lambda role: st.tuples(
        st.just(role),
        PARTS[role],
        st.sampled_from([None, *Mark] if role is Role.ASSISTANT else [None, Mark.EDITED]),
        st.sampled_from(["t1", "t2", TURN]),
        st.one_of(st.none(), TEXTS),
    )
)


@given(
    entries=st.lists(ENTRIES, max_size=12), viewed=st.booleans(), tools=st.booleans(), shared=st.booleans()
)
def test_no_history_whatever_makes_a_request_that_is_refused(
    entries: list[tuple[Role, list[Part], Mark | None, str, str | None]],
    viewed: bool,
    tools: bool,
    shared: bool,
) -> None:
    made = [
        Message(
            session=SESSION,
            seq=n,
            role=role,
            parts=tuple(parts),
            micros=to_micros(START_TIME),
            mark=mark,
            turn=TurnId(turn),
            exact=exact,
        )
        for n, (role, parts, mark, turn, exact) in enumerate(entries, 1)
    ]
    build(
        build_model_view(made) if viewed else made,
        tools=tools,
        shared=shared,
        data={"m1": b"1"},
        summary="s" * viewed,
    )


def recorded(talk: Conversation, events: Sequence[AgentEvent]) -> None:
    """Store events as the runner does."""
    fresh: list[Part] = []
    for event in events:
        match event:
            case TextDelta(text):
                fresh.append(Text(text))
            case ReasoningDelta(text, opaque):
                fresh.append(Reasoning(text, opaque))
            case ToolCallEvent(made):
                talk.add(Role.ASSISTANT, *core_messages.merge_parts(fresh), *made)
                fresh.clear()
            case ToolResultEvent(result):
                talk.add(Role.TOOL, result)
            case _:
                pass
    if fresh:
        talk.add(Role.ASSISTANT, *core_messages.merge_parts(fresh))


STEP = [*says("First "), *thinks("hm"), *says("I look."), *calls(("c1", "look", '{"q":'), ("c2", "look", ""))]


async def test_each_request_of_a_lane_begins_with_the_bytes_of_the_one_before() -> None:
    talk = Conversation()
    with Endpoint(STEP, answer("One."), answer("Two. "), STEP, answer("Three.")) as endpoint:
        async with an_agent(endpoint, toolbox=Tools()) as agent:
            for question in ("one", "two", "three", "four"):
                talk.ask(question, turn=TURN)
                events: list[AgentEvent] = []
                async with aclosing(agent.run(a_context(build_model_view(talk.messages)))) as running:
                    async for event in running:
                        events.append(event)
                recorded(talk, events)
    sent = [r["messages"] for r in endpoint.requests]
    assert len(sent) == 6
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    assert all(r["tools"] == endpoint.requests[0]["tools"] for r in endpoint.requests)


@settings(max_examples=30)
@given(data=st.data())
def test_a_turn_that_dies_anywhere_leaves_a_history_that_can_be_sent(data: st.DataObject) -> None:
    """Runs of the agent against the strict endpoint, each killed after some event, then taken up again."""

    async def live() -> None:
        talk = Conversation()
        step = calls(("c", "look", "{}"), ("c", "send", '{"q'), ("", "nonsense", "[]"))
        scripts = [
            [*says("I "), *step],
            step,
            [*says("Well"), Stall()],
            [*thinks("Hm"), Stall()],
            answer("Yes."),
        ]
        script = data.draw(st.lists(st.sampled_from(scripts), min_size=1, max_size=4))
        with Endpoint(*script, answer("Enough.")) as endpoint:
            async with an_agent(endpoint, toolbox=Tools()) as agent:
                for attempt in range(1, 4):
                    if attempt == 1 or data.draw(st.booleans()):
                        talk.ask("go", turn=TURN)
                    await killed(agent, talk, attempt, data.draw(st.integers(0, 9)))
        assert endpoint.refused == []

    asyncio.run(live())


async def killed(agent: Any, talk: Conversation, attempt: int, after: int) -> None:
    events: list[AgentEvent] = []
    done = asyncio.Event()

    async def run() -> None:
        async with aclosing(
            agent.run(a_context(build_model_view(talk.messages), attempt=attempt))
        ) as running:
            async for event in running:
                events.append(event)
                if len(events) > after or event == TextDelta("Well") or event == ReasoningDelta("Hm"):
                    done.set()
                    await asyncio.Event().wait()
        done.set()

    task = asyncio.ensure_future(run())
    await until(done.is_set)
    task.cancel()
    await asyncio.wait([task])
    before = len(talk.messages)
    recorded(talk, events)
    last = talk.messages[-1]
    if len(talk.messages) > before and last.role is Role.ASSISTANT and not last.calls:
        talk.messages.pop()
        talk.add(Role.ASSISTANT, *last.parts, mark=Mark.INTERRUPTED)
