"""An agent of the protocol as a conversation sees it: answers, tools, permissions, files, and the way back after a restart."""

import asyncio
import json
import sys
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.agents.acp.conversation import Talk, alive, noted, player, said
from tests.builders import until

from keryx.agents.acp import AcpAgent, agent_process
from keryx.agents.agent_config import AgentConfig, AgentKind
from keryx.core.errors import AgentFailed, QuotaReached
from keryx.core.messages import Role
from keryx.core.ports.agent import (
    BindingEvent,
    NoticeEvent,
    TextDelta,
    ToolCallEvent,
    ToolCallUpdateEvent,
    ToolResultEvent,
    UsageEvent,
)
from keryx.core.questions import Consent, Question
from keryx.core.sessions import Binding
from keryx.timing import SystemClock


async def test_the_binding_is_told_before_the_prompt_is_put(tmp_path: Path) -> None:
    async with player(tmp_path) as agent:
        first = await anext(aiter(agent.run(Talk().context("hello"))))
    assert isinstance(first, BindingEvent) and first.binding.id == "own-1"
    assert json.loads((tmp_path / "store" / "own-1").read_text()) == []


async def test_one_process_and_one_session_serve_a_conversation(tmp_path: Path) -> None:
    talk, other = Talk(), Talk()
    async with player(tmp_path) as agent:
        assert await talk.say(agent, "session") == await talk.say(agent, "session")
        assert (await other.say(agent, "session")).split()[0] == "own-2"


async def test_a_shared_process_serves_all_conversations(tmp_path: Path) -> None:
    talks = [Talk(), Talk()]
    async with player(tmp_path, shared=True) as agent:
        (one, first), (two, second) = [(await t.say(agent, "session")).split() for t in talks]
    assert one != two and first == second


def keep_elsewhere(talk: Talk) -> None:
    """From now on the session is one that people use in a terminal, too."""
    talk.bindings["player"] = msgspec.structs.replace(talk.bindings["player"], kept=True)


@pytest.mark.parametrize("can", ["can=resume,close", "can=load,close"])
@pytest.mark.parametrize("question", ["hello", "fail no credit"])
async def test_a_session_that_a_terminal_uses_is_closed_after_each_turn(
    tmp_path: Path, can: str, question: str
) -> None:
    talk, lock = Talk(), tmp_path / "store" / "open-own-1"
    async with player(tmp_path, can) as agent:
        process = (await talk.say(agent, "session")).split()[1]
        assert lock.exists()
        keep_elsewhere(talk)
        with suppress(AgentFailed):
            await talk.events(agent, question)
        assert not lock.exists()
        assert await talk.say(agent, "history") == f"session | {question} | history"
        assert (await talk.say(agent, "session")).split()[1] == process
        assert not lock.exists()


async def test_a_session_that_a_terminal_uses_is_closed_after_a_turn_that_was_cancelled(
    tmp_path: Path,
) -> None:
    talk, lock = Talk(), tmp_path / "store" / "open-own-1"
    async with player(tmp_path, "can=resume,close") as agent:
        await talk.events(agent, "hello")
        keep_elsewhere(talk)
        async with aclosing(agent.run(talk.context("silence"))) as events:
            bound = await anext(events)
            assert isinstance(bound, BindingEvent)
            talk.bindings["player"] = bound.binding
            running = asyncio.ensure_future(anext(events))
            await until(lambda: "silence" in (tmp_path / "store" / "own-1").read_text())
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        await until(lambda: not lock.exists())
        assert await talk.say(agent, "history") == "hello | silence | history"


async def test_an_agent_that_does_not_close_a_session_of_a_terminal_is_stopped(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path, "can=resume,close", "bad=unclosed") as agent:
        process = (await talk.say(agent, "session")).split()[1]
        keep_elsewhere(talk)
        await talk.events(agent, "hello")
        await until(lambda: not alive(process))
        assert await talk.say(agent, "history") == "session | hello | history"


def test_a_conversation_without_a_folder_is_opened_in_that_of_its_session(tmp_path: Path) -> None:
    binding = Binding(agent="player", id="own-1", cwd="")
    assert agent_process.find_folder(binding, str(tmp_path)) == str(tmp_path)


async def test_an_agent_whose_program_locks_its_sessions_is_stopped_after_each_turn(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path, continues="codex") as agent:
        process = (await talk.say(agent, "session")).split()[1]
        assert alive(process)
        keep_elsewhere(talk)
        events = await talk.events(agent, "hello")
        assert said(events) == "Hello." and not noted(events)
        assert not alive(process)
        assert await talk.say(agent, "history") == "session | hello | history"


@pytest.mark.parametrize("can", ["can=resume", "can=load", "can=load,resume"])
@pytest.mark.parametrize("bad", ["", "null", "twice", "replays", "late", "late,nameless", "twice,nameless"])
async def test_after_a_restart_the_session_goes_on_and_nothing_is_told_twice(
    tmp_path: Path, can: str, bad: str
) -> None:
    talk = Talk()
    async with player(tmp_path, can) as agent:
        await talk.events(agent, "remember this")
    async with player(tmp_path, can, f"bad={bad}") as agent:
        events = await talk.events(agent, "history")
    assert said(events) == "remember this | history"
    assert not noted(events) and not [e for e in events if isinstance(e, ToolCallEvent)]


async def test_a_replay_in_the_middle_of_an_answer_is_recognised_by_its_words(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path, "bad=nameless") as agent:
        await talk.events(agent, "remember this")
        assert await talk.say(agent, "replay") == "New."


async def test_a_session_that_cannot_be_found_again_begins_afresh_with_a_warning_and_what_was_said(
    tmp_path: Path,
) -> None:
    talk = Talk()
    async with player(tmp_path) as agent:
        await talk.events(agent, "remember this")
    (tmp_path / "store" / "own-1").unlink()
    async with player(tmp_path) as agent:
        events = await talk.events(agent, "history")
    assert events[0] == NoticeEvent(
        "The agent player has lost this conversation and begins afresh: Resource not found.", "warning"
    )
    assert "Person: remember this" in said(events)


async def test_an_agent_that_can_go_on_with_nothing_says_so(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path, "can=") as agent:
        await talk.events(agent, "hello")
    async with player(tmp_path, "can=") as agent:
        assert "cannot go on" in noted(await talk.events(agent, "hello"))[0]


async def test_what_another_agent_said_meanwhile_is_told(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path) as agent:
        await talk.events(agent, "hello")
        talk.add(Role.USER, "and you?")
        talk.add(Role.ASSISTANT, "I am the other one.")
        heard = (await talk.say(agent, "history")).split(" | ")[-1]
    assert "You: I am the other one." in heard and "Hello." not in heard


async def test_the_model_of_the_session_is_set_and_set_again_after_a_restart(tmp_path: Path) -> None:
    talk = Talk(model="large")
    for _ in range(2):
        async with player(tmp_path) as agent:
            assert await talk.say(agent, "model") == "large"
    assert talk.bindings["player"].model == "large"


async def test_so_are_model_and_mode_of_an_agent_that_knows_the_older_ways_only(tmp_path: Path) -> None:
    talk = Talk(model="large")
    for mode in ("plan", ""):
        async with player(tmp_path, "can=resume,old", mode=mode) as agent:
            assert await talk.say(agent, "model") == "large"
            assert await talk.say(agent, "mode") == "plan"
    assert talk.bindings["player"].mode == "plan"


async def test_a_mode_of_the_settings_that_the_agent_has_not_is_told_once(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path, "can=resume,old", mode="paln") as agent:
        assert noted(await talk.events(agent, "mode")) == [
            "The agent player has no mode 'paln'. It has: code, plan."
        ]
        assert noted(await talk.events(agent, "mode")) == []


async def test_a_model_that_the_agent_has_not_is_told_once(tmp_path: Path) -> None:
    talk = Talk(model="huge")
    async with player(tmp_path) as agent:
        assert noted(await talk.events(agent, "model")) == [
            "The agent player has no model 'huge'. It has: small, large."
        ]
        assert noted(await talk.events(agent, "model")) == []


async def test_a_permission_is_asked_with_the_exact_command_and_the_mildest_first(tmp_path: Path) -> None:
    talk, put = Talk(), list[Question]()

    async def ask(question: Question) -> str | None:
        put.append(question)
        return "allow"

    talk.ask = ask
    async with player(tmp_path) as agent:
        events = await talk.events(agent, "ask rm -rf build")
    assert put[0].title == "player: Run a command" and put[0].detail == "rm -rf build"
    assert put[0].options[0].consent is Consent.ALLOW_ONCE
    assert put[0].tool == "", "a lasting consent is the agent's own affair"
    steps = [e for e in events if isinstance(e, ToolCallEvent | ToolResultEvent | TextDelta)]
    assert [type(e) for e in steps] == [ToolCallEvent, ToolResultEvent, TextDelta]
    assert said(events) == "It was allow."


@pytest.mark.parametrize("bad", ["", "slow"])
async def test_what_an_agent_tells_of_a_call_later_counts_and_empty_fields_do_not(
    tmp_path: Path, bad: str
) -> None:
    talk, put = Talk(), list[Question]()

    async def ask(question: Question) -> str | None:
        put.append(question)
        return "allow"

    talk.ask = ask
    async with player(tmp_path, f"bad={bad}") as agent:
        events = await talk.events(agent, "opencode ls -la")
    steps = [e for e in events if isinstance(e, ToolCallEvent | ToolCallUpdateEvent | ToolResultEvent)]
    begun, known, done = steps
    assert isinstance(begun, ToolCallEvent) and isinstance(known, ToolCallUpdateEvent)
    assert isinstance(done, ToolResultEvent) and (done.result.name, done.result.output) == ("List", "a b")
    assert known.call.name == "List" and json.loads(known.call.input)["command"] == "ls -la"
    if not bad:
        assert json.loads(begun.calls[0].input)["command"] == "ls -la"
        assert put[0].detail == "ls -la", "the empty input of the question does not hide the command"


@pytest.mark.parametrize("answer", [None, "sure"])
async def test_no_answer_is_a_refusal(tmp_path: Path, answer: str | None) -> None:
    talk = Talk()

    async def ask(question: Question) -> str | None:
        return answer

    talk.ask = ask
    async with player(tmp_path) as agent:
        assert await talk.say(agent, "ask") == "It was deny."


async def test_tools_that_run_side_by_side_are_stored_one_step_after_the_other(tmp_path: Path) -> None:
    async with player(tmp_path) as agent:
        events = [
            e for e in await Talk().events(agent, "tools") if isinstance(e, ToolCallEvent | ToolResultEvent)
        ]
    names = [c.name for e in events if isinstance(e, ToolCallEvent) for c in e.calls]
    assert sorted(names) == ["Step a", "Step b", "Step c"]
    assert len([e for e in events if isinstance(e, ToolResultEvent) and not e.result.failed]) == 3


async def test_a_plan_is_a_checklist_and_told_when_it_changes(tmp_path: Path) -> None:
    async with player(tmp_path) as agent:
        plans = [e for e in await Talk().events(agent, "plan") if isinstance(e, NoticeEvent)]
    assert plans == [NoticeEvent("- [x] ! look\n- [ ] leap", "plan")]


async def test_messages_of_one_answer_stand_apart(tmp_path: Path) -> None:
    async with player(tmp_path) as agent:
        assert await Talk().say(agent, "messages") == "First.\n\nSecond."


async def test_each_prompt_is_one_call_with_the_tokens_of_its_turn_and_what_it_added_to_the_cost(
    tmp_path: Path,
) -> None:
    talk = Talk()

    async def used(question: str) -> list[tuple[int, int, int, int | None, int | None, int | None]]:
        usages = [e.usage for e in await talk.events(agent, question) if isinstance(e, UsageEvent)]
        return [(u.input, u.output, u.cache_read, u.cost, u.context_used, u.context_limit) for u in usages]

    async with player(tmp_path) as agent:
        for _ in range(2):
            assert await used("spend") == [(2, 3, 7, 10_000, 30, 100)]
        assert await used("stream") == []
    async with player(tmp_path) as agent:
        # Three turns since the start of the session, of which the third was not counted yet.
        assert await used("spend") == [(2, 3, 7, 20_000, 30, 100)]
        assert await used("spend anew") == [(2, 3, 7, 4_000, 30, 100)], "the agent counts from zero again"
        assert await used("hello") == [(2, 3, 0, None, None, None)]


async def test_files_are_read_and_written_within_the_folder_only(tmp_path: Path) -> None:
    talk, inside, outside = Talk(), tmp_path / "in", tmp_path / "secret"
    inside.mkdir()
    outside.write_text("secret")
    (inside / "link").symlink_to(outside)
    (inside / "notes").write_text("one\ntwo\nthree\n")
    talk.cwd = str(inside)

    async def call(method: str, **params: object) -> dict[str, object]:
        return json.loads(await talk.say(agent, f"call {method} {json.dumps(params)}"))

    async with player(tmp_path) as agent:
        read = await call("fs/read_text_file", path=str(inside / "notes"), line=2, limit=1)
        assert read == {"content": "two\n"}
        assert await call("fs/write_text_file", path=str(inside / "new" / "a"), content="x") == {
            "error": None
        }
        for path in (outside, inside / "link", inside / ".." / "secret", Path("notes")):
            assert "error" in await call("fs/read_text_file", path=str(path))
            assert "error" in await call("fs/write_text_file", path=str(path), content="x")
        assert "error" in await call("terminal/create", command="pwd", cwd="/")
    assert (inside / "new" / "a").read_text() == "x" and outside.read_text() == "secret"


async def test_a_read_only_conversation_changes_nothing(tmp_path: Path) -> None:
    talk = Talk(mode="read")
    talk.cwd = str(tmp_path)
    async with player(tmp_path) as agent:
        given = json.dumps({"path": str(tmp_path / "x"), "content": "x"})
        assert "read only" in await talk.say(agent, f"call fs/write_text_file {given}")
    assert not (tmp_path / "x").exists()


async def test_a_command_runs_in_a_terminal_and_none_outlives_the_turn(tmp_path: Path) -> None:
    talk, mark = Talk(), tmp_path / "pid"
    talk.cwd = str(tmp_path)
    async with player(tmp_path) as agent:
        assert await talk.say(agent, "terminal echo hi; exit 3") == "hi 3"
        assert await talk.say(agent, f"leave echo $$ > {mark}; sleep 600") == "Left."
        assert await talk.say(agent, "hello") == "Hello."
    await until(lambda: not mark.exists() or not alive(mark.read_text()))


async def test_the_agent_gets_its_own_secrets_and_none_of_keryx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERYX_SECRET", "mine")
    monkeypatch.setenv("OWN_KEY", "theirs")
    talk = Talk()
    async with player(tmp_path, env={"KEY": "env:OWN_KEY"}) as agent:
        assert await talk.say(agent, "env KEY") == "theirs"
        assert await talk.say(agent, "env KERYX_SECRET") == "(unset)"


async def test_a_login_that_is_missing_says_how_to_log_in(tmp_path: Path) -> None:
    async with player(tmp_path, "bad=login") as agent:
        with pytest.raises(AgentFailed, match=r"needs a login.*API key.*login = 'key'.*Browser: `.* login`"):
            await Talk().events(agent, "hello")


async def test_a_form_is_asked_field_by_field(tmp_path: Path) -> None:
    talk, put = Talk(), list[Question]()

    async def ask(question: Question) -> str | None:
        put.append(question)
        return {"form-1-name": "Ann", "form-1-age": "7", "form-1-ok": "true"}[question.key]

    talk.ask = ask
    fields = {"name": {"type": "string"}, "age": {"type": "integer"}, "ok": {"type": "boolean"}}
    given = json.dumps({"mode": "form", "message": "Who?", "requestedSchema": {"properties": fields}})
    async with player(tmp_path) as agent:
        answer = json.loads(await talk.say(agent, f"call elicitation/create {given}"))
    assert answer == {"action": "accept", "content": {"name": "Ann", "age": 7, "ok": True}}
    assert [q.title for q in put] == ["player: name", "player: age", "player: ok"]


async def test_an_address_is_shown_with_its_host(tmp_path: Path) -> None:
    talk, put = Talk(), list[Question]()

    async def ask(question: Question) -> str | None:
        put.append(question)
        return None

    talk.ask = ask
    given = json.dumps({"mode": "url", "message": "Log in.", "url": "https://example.org/x?y"})
    async with player(tmp_path) as agent:
        assert await talk.say(agent, f"call elicitation/create {given}") == '{"action": "cancel"}'
    assert "example.org" in put[0].title and "https://example.org/x?y" in put[0].detail


async def test_what_arrives_for_a_running_turn_is_asked_after_it(tmp_path: Path) -> None:
    talk = Talk()
    extra = [talk.context("and this").turn_messages[-1]]

    async def steer() -> list[object]:
        return [extra.pop()] if extra else []

    async with player(tmp_path) as agent:
        text = await talk.say(agent, "hello", fetch_new_messages=steer)
    assert text == "Hello.You said: and this"


async def test_idle_processes_are_ended_when_there_are_too_many(tmp_path: Path) -> None:
    talks = [Talk() for _ in range(3)]
    async with player(tmp_path, processes=2) as agent:
        pids = [(await t.say(agent, "session")).split()[1] for t in talks]
        await until(lambda: not alive(pids[0]))
        assert alive(pids[2])
        assert "own-1" in await talks[0].say(agent, "session")


async def test_an_agent_on_the_python_library_answers(tmp_path: Path) -> None:
    program = Path(__file__).with_name("library_agent.py")
    configured = AgentConfig(kind=AgentKind.ACP, command=(sys.executable, str(program)))
    async with AcpAgent("library", configured, work_folder=tmp_path, clock=SystemClock()) as agent:
        assert await Talk().say(agent, "hello") == "hello"


async def test_a_session_that_a_program_keeps_is_never_replaced_by_a_new_one(tmp_path: Path) -> None:
    talk = Talk()
    talk.bindings["player"] = Binding(agent="player", id="gone", cwd=str(tmp_path), kept=True)
    async with player(tmp_path, "can=load") as agent:
        with pytest.raises(AgentFailed, match="must not begin another one"):
            await talk.events(agent, "hello")
    assert not list((tmp_path / "store").glob("own-*"))


async def test_a_session_that_its_program_has_written_to_is_opened_by_a_new_process(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path, "can=load") as agent:
        await talk.say(agent, "hello")
        talk.bindings["player"] = msgspec.structs.replace(talk.bindings["player"], kept=True)
        same = await talk.say(agent, "session")
        assert same == await talk.say(agent, "session")
        talk.bindings["player"] = msgspec.structs.replace(talk.bindings["player"], turn=None)
        other = await talk.say(agent, "session")
    assert other.split()[0] == same.split()[0] and other != same


@pytest.mark.parametrize(
    "line",
    ["fail You've hit your usage limit. Try again in 3 hours.", "say 5-hour limit reached · resets in 3h"],
)
async def test_a_limit_with_its_reset_says_when_to_go_on(tmp_path: Path, line: str) -> None:
    async with player(tmp_path) as agent:
        with pytest.raises(QuotaReached, match="limit of the agent") as caught:
            await Talk().events(agent, line)
    left = caught.value.until - datetime.now(UTC)
    assert timedelta(hours=2, minutes=58) < left <= timedelta(hours=3)


async def test_an_agent_that_offers_to_resume_and_cannot_is_asked_to_load(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path) as agent:
        await talk.events(agent, "remember this")
    async with player(tmp_path, "can=load,resume", "bad=unknown") as agent:
        events = await talk.events(agent, "history")
    assert said(events) == "remember this | history" and not noted(events)
