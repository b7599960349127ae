"""What is shown live and what is replayed agree, whatever an agent says and wherever one begins to look."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.acp.driver import Json, story

from keryx.core import compaction, messages
from keryx.core.changes import DraftChunk
from keryx.core.clock import to_micros
from keryx.core.ids import PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.messages import (
    Mark,
    Message,
    Notice,
    Part,
    PlanPriority,
    PlanStep,
    PlanStepState,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    merge_parts,
    text_parts,
)
from keryx.core.sessions import Session
from keryx.core.text import to_single_line
from keryx.core.texts import Catalogue, Phrase
from keryx.surfaces.acp import tool_calls
from keryx.surfaces.acp.protocol import EditorCapabilities
from keryx.surfaces.acp.session_options import ModelChoices
from keryx.surfaces.acp.session_updates import EditorSessionInfo, UpdateBuilder, build_info_updates

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SESSION, TURN = SessionId("s1"), TurnId("t1")

pieces = st.lists(st.tuples(st.text(max_size=5), st.booleans()), max_size=8)
answers = st.lists(st.tuples(pieces, st.integers(0, 2)), min_size=1, max_size=4)


def a_message(
    seq: int, role: Role, *parts: Part, turn: TurnId | None = TURN, mark: Mark | None = None
) -> Message:
    return Message(
        session=SESSION, seq=seq, role=role, parts=parts, micros=to_micros(NOW), turn=turn, mark=mark
    )


def part(text: str, thought: bool) -> Text | Reasoning:
    return Reasoning(text) if thought else Text(text)


def said(steps: Sequence[tuple[list[tuple[str, bool]], int]]) -> list[tuple[list[DraftChunk], list[Message]]]:
    """A turn of several answers, each with the pieces of its draft and the messages that follow it."""
    out: list[tuple[list[DraftChunk], list[Message]]] = []
    seq = 1
    for number, (draft, calls) in enumerate(steps):
        made = [ToolCall(f"c{number}-{n}", "look", "{}") for n in range(calls)]
        parts = (*merge_parts(part(*p) for p in draft), *made)
        messages: list[Message] = []
        if parts:
            seq += 1
            messages.append(a_message(seq, Role.ASSISTANT, *parts))
        for call in made:
            seq += 1
            messages.append(a_message(seq, Role.TOOL, ToolResult(call.id, call.name, "found")))
        out.append(([DraftChunk(n, *p) for n, p in enumerate(draft, start=1)], messages))
    return out


@given(answers, st.integers(0, 40))
def test_a_replay_tells_the_same_story_as_the_live_view(
    steps: list[tuple[list[tuple[str, bool]], int]], unseen: int
) -> None:
    """`unseen` pieces of drafts are never seen as such, as when a follower was slow: their text comes with the message."""
    live, updates, turn = UpdateBuilder(), list[Json](), said(steps)
    for draft, stored in turn:
        shown = draft if not stored else draft[: max(0, len(draft) - unseen)]
        updates += live.build_draft(TURN, shown)
        for message in stored:
            updates += live.build_message(message)
    every = [m for _, messages in turn for m in messages]
    drafted = [p for draft, messages in turn if not messages for p in draft]
    again = UpdateBuilder()
    replayed = [*again.replay(every, None), *again.build_draft(TURN, drafted)]
    assert story(replayed) == story(updates)


@given(answers, st.integers(0, 8))
def test_whoever_begins_in_the_middle_goes_on_with_the_same_ids(
    steps: list[tuple[list[tuple[str, bool]], int]], middle: int
) -> None:
    turn = said(steps)
    every = [m for _, messages in turn for m in messages]
    whole = story([*UpdateBuilder().replay(every, None)])
    late = UpdateBuilder()
    first = [*late.replay(every[:middle], TURN)]
    rest = [u for m in every[middle:] for u in late.build_message(m)]
    assert [(k, i) for k, i, _ in story([*first, *rest])] == [(k, i) for k, i, _ in whole]


def test_a_call_without_an_answer_has_failed_unless_its_turn_runs() -> None:
    call = a_message(1, Role.ASSISTANT, ToolCall("c", "run", '{"command": "ls"}'))
    (over,) = UpdateBuilder().replay([call], None)
    (running,) = UpdateBuilder().replay([call], TURN)
    assert (over["status"], running["status"]) == ("failed", "in_progress")
    assert over["content"][0]["content"]["text"] == "The tool was interrupted before it answered."


def test_ids_of_calls_that_are_used_twice_stay_apart() -> None:
    def step(seq: int) -> list[Message]:
        call = a_message(seq, Role.ASSISTANT, ToolCall("call_0", "look", "{}"))
        return [call, a_message(seq + 1, Role.TOOL, ToolResult("call_0", "look", f"found {seq}"))]

    messages = [*step(1), *step(3)]
    replayed = [*UpdateBuilder().replay(messages, None)]
    assert [u["rawOutput"]["output"] for u in replayed] == ["found 1", "found 3"]
    live = UpdateBuilder()
    updates = [u for m in messages for u in live.build_message(m)]
    assert [i for _, i, _ in story(updates)] == [u["toolCallId"] for u in replayed] == ["call_0", "call_0.3"]


def test_what_was_undone_is_left_out_and_only_the_last_plan_is_replayed() -> None:
    gone = Message(
        session=SESSION, seq=1, role=Role.USER, parts=text_parts("gone"), micros=to_micros(NOW), undone=1
    )
    plan = [
        a_message(
            seq, Role.NOTICE, Notice(messages.format_plan([PlanStep("build", state)]), messages.PLAN_KIND)
        )
        for seq, state in enumerate((PlanStepState.PENDING, PlanStepState.COMPLETED), start=2)
    ]
    (shown,) = UpdateBuilder(EditorCapabilities(notices=True)).replay([gone, *plan], None)
    assert shown["entries"] == [{"content": "build", "priority": "medium", "status": "completed"}]


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (Mark.WITHDRAWN, "withdrawn before it was answered"),
        (Mark.DELETED, "deleted afterwards"),
        (Mark.EDITED, "edited afterwards"),
    ],
)
def test_a_message_that_was_withdrawn_or_changed_says_so_in_words(mark: Mark, words: str) -> None:
    message = Message(
        session=SESSION,
        seq=1,
        role=Role.USER,
        parts=text_parts("never mind"),
        micros=to_micros(NOW),
        mark=mark,
    )
    shown = [u["content"]["text"] for u in UpdateBuilder().replay([message], None)]
    assert "".join(shown) == f"never mind\n\n({words})"


def test_a_late_answer_does_not_take_the_id_of_the_one_that_is_being_written() -> None:
    shown = UpdateBuilder()
    (first,) = shown.build_draft(TURN, [DraftChunk(1, "one ")])
    late, _ = shown.build_message(a_message(2, Role.ASSISTANT, Text("late"), mark=Mark.LATE))
    (second,) = shown.build_draft(TURN, [DraftChunk(2, "two")])
    assert first["messageId"] == second["messageId"] != late["messageId"]


contents = st.text(max_size=20).map(to_single_line).filter(lambda text: text != "" and text[0] not in "! ")
steps = st.builds(PlanStep, contents, st.sampled_from(PlanStepState), st.sampled_from(PlanPriority))


@given(st.lists(steps))
def test_a_plan_is_read_back_as_it_was_written(planned: list[PlanStep]) -> None:
    assert messages.parse_plan(messages.format_plan(planned)) == planned


def test_a_title_shows_the_command_without_what_could_hide_it() -> None:
    assert tool_calls.format_title("run", '{"command": "ls\\u202e -la\\n rm"}') == "run: ls -la rm"
    assert tool_calls.format_title("look", "not json") == "look: not json"
    assert tool_calls.format_title("look", "{}") == "look"
    assert (
        len(tool_calls.format_title("run", f'{{"command": "{"x" * 5000}"}}')) <= tool_calls.MAX_TITLE_LENGTH
    )
    assert tool_calls.find_kind("files_read_text") == "read"
    assert tool_calls.find_kind("mystery") == "other"


def test_a_call_that_is_known_better_later_is_updated_under_the_id_it_was_sent_with() -> None:
    updates = UpdateBuilder()
    first = a_message(2, Role.ASSISTANT, ToolCall("c", "bash", "{}"))
    again = a_message(4, Role.ASSISTANT, ToolCall("c", "bash", "{}"))
    list(updates.build_message(first))
    (sent,) = updates.build_message(again)
    later = a_message(4, Role.ASSISTANT, ToolCall("c", "List", '{"command": "ls"}'))
    (update,) = updates.build_call_updates(later)
    assert update["sessionUpdate"] == "tool_call_update" and update["toolCallId"] == sent["toolCallId"]
    assert update["title"] == "List: ls" and update["rawInput"] == {"command": "ls"}
    assert "status" not in update


def test_an_answer_that_did_not_end_well_says_so_in_words_live_and_in_a_replay() -> None:
    for mark, words in ((Mark.CANCELLED, "(stopped)"), (Mark.INTERRUPTED, "(interrupted: ")):
        message = a_message(2, Role.ASSISTANT, Text("A begin"), mark=mark)
        for updates in (UpdateBuilder().build_message(message), UpdateBuilder().replay([message], None)):
            text, sign = updates
            assert text["content"]["text"] == "A begin"
            assert sign["content"]["text"].startswith(words)
            assert sign["sessionUpdate"] == "agent_thought_chunk"


def test_what_keryx_says_is_in_the_language_of_the_settings() -> None:
    german = UpdateBuilder(texts=Catalogue(language="de").speak())
    stopped = a_message(2, Role.ASSISTANT, Text("half"), mark=Mark.CANCELLED)
    assert [u["content"]["text"] for u in german.replay([stopped], None)] == ["half", "(angehalten)"]
    compacted = a_message(3, Role.NOTICE, Notice("Kurz.", kind=compaction.DONE_KIND))
    (marker,) = german.replay([compacted], None)
    assert marker["content"]["text"].startswith("Ältere Nachrichten wurden zusammengefasst")
    call = a_message(4, Role.ASSISTANT, ToolCall("c", "run", "{}"))
    (over,) = german.replay([call], None)
    assert over["content"][0]["content"]["text"].startswith("Das Werkzeug wurde unterbrochen")


def test_what_stands_for_a_message_is_in_the_language_of_the_settings() -> None:
    german = UpdateBuilder(texts=Catalogue(language="de").speak())
    forward = a_message(1, Role.USER, *text_parts(Phrase("content.forwarded_from", name="Zoe"), "the moon"))
    assert [u["content"]["text"] for u in german.replay([forward], None)] == [
        "Weitergeleitet von Zoe:",
        "the moon",
    ]


def test_the_cost_has_the_currency_of_the_settings() -> None:
    session = Session(
        id=SESSION,
        profile=ProfileId("default"),
        owner=PrincipalId("ann"),
        surface="acp",
        created_at=NOW,
        active_at=NOW,
    )
    used = EditorSessionInfo(context_used=10, context_limit=100, cost=2_500_000)
    (update,) = build_info_updates(EditorSessionInfo(), used, session, ModelChoices(), "EUR")
    assert (update["used"], update["size"]) == (10, 100)
    assert update["cost"] == {"amount": 2.5, "currency": "EUR"}


def test_the_terminal_that_runs_a_command_is_shown_in_its_call_whichever_comes_first() -> None:
    call = a_message(2, Role.ASSISTANT, ToolCall("c", "run_in_terminal", '{"command": "make"}'))
    done = a_message(3, Role.TOOL, ToolResult("c", "run_in_terminal", "made"))
    shown = [{"type": "terminal", "terminalId": "t1"}]
    late = UpdateBuilder()
    (sent,) = late.build_message(call)
    (update,) = late.show_terminal("make", "t1")
    assert "content" not in sent and (update["toolCallId"], update["content"]) == ("c", shown)
    early = UpdateBuilder()
    assert list(early.show_terminal("make", "t1")) == []
    (sent,) = early.build_message(call)
    assert sent["content"] == shown
    for updates in (late, early):
        (result,) = updates.build_message(done)
        assert result["content"] == shown and result["rawOutput"] == {"output": "made"}
    (replayed,) = UpdateBuilder().replay([call, done], None)
    assert replayed["content"][0]["content"]["text"] == "made", "a terminal does not outlive its connection"
