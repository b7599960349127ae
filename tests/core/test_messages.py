"""The conversation as the model sees it, and the names of messages."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core import codec
from keryx.core.clock import to_micros
from keryx.core.errors import Invalid
from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import (
    INTERRUPTED_OUTPUT,
    Mark,
    Message,
    Notice,
    Part,
    Parts,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    build_model_view,
    merge_parts,
    parse_id,
    read_part,
    text_parts,
)
from keryx.core.texts import Catalogue, Phrase, StoredPhrase
from keryx.testing import START_TIME

A, B = TurnId("a"), TurnId("b")


def conversation(
    *entries: tuple[Role, TurnId | None, Parts] | tuple[Role, TurnId | None, Parts, Mark],
) -> list[Message]:
    return [
        Message(
            session=SessionId("s"),
            seq=seq,
            role=entry[0],
            turn=entry[1],
            parts=entry[2],
            micros=to_micros(START_TIME + timedelta(seconds=seq)),
            mark=entry[3] if len(entry) == 4 else None,
        )
        for seq, entry in enumerate(entries, start=1)
    ]


def seqs(messages: Sequence[Message]) -> list[int]:
    return [m.seq for m in messages]


def said(text: str) -> Parts:
    return (Text(text),)


def called(*names: str) -> Parts:
    return tuple(ToolCall(name, name, "{}") for name in names)


def returned(name: str) -> Parts:
    return (ToolResult(name, name, f"{name} done"),)


def test_turns_stand_one_after_the_other_though_the_second_question_came_early() -> None:
    talk = conversation(
        (Role.USER, A, said("one")),
        (Role.USER, B, said("two")),
        (Role.ASSISTANT, A, said("1")),
        (Role.ASSISTANT, B, said("2")),
    )
    assert seqs(build_model_view(talk)) == [1, 3, 2, 4]


def test_what_still_waits_is_not_seen() -> None:
    talk = conversation((Role.USER, A, said("one")), (Role.USER, B, said("two")))
    assert seqs(build_model_view(talk, aside=frozenset({B}))) == [1]


def test_a_withdrawn_question_is_left_out_with_the_part_of_its_answer_that_a_crash_left() -> None:
    talk = conversation(
        (Role.USER, A, said("one"), Mark.WITHDRAWN),
        (Role.ASSISTANT, A, said("1/2"), Mark.INTERRUPTED),
        (Role.USER, B, said("two"), Mark.WITHDRAWN),
        (Role.USER, B, said("two, more")),
        (Role.ASSISTANT, B, said("2")),
    )
    assert seqs(build_model_view(talk)) == [4, 5]


def test_notices_are_for_people() -> None:
    talk = conversation((Role.USER, A, said("one")), (Role.NOTICE, A, (Notice("failed"),)))
    assert seqs(build_model_view(talk)) == [1]


def test_a_partial_answer_gives_way_to_a_later_attempt() -> None:
    talk = conversation(
        (Role.USER, A, said("one")),
        (Role.ASSISTANT, A, said("1/2"), Mark.INTERRUPTED),
        (Role.ASSISTANT, A, said("1")),
    )
    assert seqs(build_model_view(talk)) == [1, 3]
    assert seqs(build_model_view(talk[:2])) == [1, 2]


def test_a_call_without_a_result_is_closed_as_interrupted() -> None:
    talk = conversation(
        (Role.USER, A, said("one")), (Role.ASSISTANT, A, called("grep")), (Role.USER, B, said("two"))
    )
    closed = build_model_view(talk)
    assert [m.role for m in closed] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER]
    assert closed[2].parts == (ToolResult("grep", "grep", INTERRUPTED_OUTPUT, failed=True),)


def test_what_was_said_while_a_tool_ran_follows_its_result() -> None:
    talk = conversation(
        (Role.USER, A, said("one")),
        (Role.ASSISTANT, A, called("x", "y")),
        (Role.USER, A, said("and mind the gap")),
        (Role.TOOL, A, returned("x")),
        (Role.TOOL, A, returned("y")),
        (Role.ASSISTANT, A, said("1")),
    )
    assert seqs(build_model_view(talk)) == [1, 2, 4, 5, 3, 6]


def test_a_result_that_nobody_asked_for_is_left_out() -> None:
    talk = conversation((Role.USER, A, said("one")), (Role.TOOL, A, returned("x")))
    assert seqs(build_model_view(talk)) == [1]


def test_neighbouring_text_and_reasoning_are_joined_but_opaque_forms_stay() -> None:
    parts = merge_parts(
        [Text("a"), Text("b"), Reasoning("c"), Reasoning("d"), Reasoning("e", '{"signed": 1}')]
    )
    assert parts == (Text("ab"), Reasoning("cd"), Reasoning("e", '{"signed": 1}'))


@pytest.mark.parametrize("text", ["", "x", ".1", "s.", "s.x", "s.-1", "s.1e3", "s." + "9" * 20, "s.٣"])
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_id(text)


TURNS = st.sampled_from([A, B])
ENTRIES = st.one_of(
    st.tuples(st.just(Role.USER), TURNS, st.just(said("?"))),
    st.tuples(
        st.just(Role.ASSISTANT),
        TURNS,
        st.sampled_from([said("!"), called("x"), called("x", "y"), called("y")]),
    ),
    st.tuples(st.just(Role.TOOL), TURNS, st.sampled_from([returned("x"), returned("y")])),
)


@given(st.lists(ENTRIES, max_size=12))
def test_every_call_is_followed_by_its_results_and_nothing_else(
    entries: list[tuple[Role, TurnId, Parts]],
) -> None:
    seen = build_model_view(conversation(*entries))
    waiting: set[str] = set()
    for message in seen:
        if message.role is Role.TOOL:
            for part in message.parts:
                assert isinstance(part, ToolResult)
                waiting.remove(part.id)
        else:
            assert not waiting
            waiting = {c.id for c in message.calls}
    assert not waiting
    questions = [m for m in seen if m.role is Role.USER]
    assert len(questions) == sum(e[0] is Role.USER for e in entries)


GERMAN = Catalogue(language="de").speak()


def test_what_stands_for_a_message_is_stored_in_english_and_read_in_ones_language() -> None:
    forwarded, said = text_parts(Phrase("content.forwarded_from", name="Zoë {x}"), "[sticker]")
    stored = codec.loads(codec.dumps((forwarded, said)), tuple[Part, ...])
    assert stored == (forwarded, said)
    assert isinstance(forwarded, Text) and isinstance(said, Text)
    assert (forwarded.text, read_part(forwarded, GERMAN)) == (
        "Forwarded from Zoë {x}:",
        "Weitergeleitet von Zoë {x}:",
    )
    # A person may write the same.
    assert (said.phrase, read_part(said, GERMAN)) == (None, "[sticker]")


def test_a_text_that_was_stored_without_a_phrase_is_read_as_it_is() -> None:
    [part] = codec.loads('[{"type":"text","text":"Forwarded from Zoe:\\nhi"}]', tuple[Part, ...])
    assert isinstance(part, Text) and part == Text("Forwarded from Zoe:\nhi")
    assert codec.dumps(part) == '{"type":"text","text":"Forwarded from Zoe:\\nhi"}'
    assert read_part(part, GERMAN) == "Forwarded from Zoe:\nhi"


@pytest.mark.parametrize(
    "phrase",
    [
        StoredPhrase("content.of_a_later_version", {"name": "Zoe"}),
        StoredPhrase("content.forwarded_from", {}),
        StoredPhrase("turn.queue_empty", {}),
    ],
)
def test_a_phrase_that_is_not_known_is_read_in_english(phrase: StoredPhrase) -> None:
    assert read_part(Text("Forwarded from Zoe:", phrase), GERMAN) == "Forwarded from Zoe:"
