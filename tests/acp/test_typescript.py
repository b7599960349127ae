"""The real TypeScript library as the editor, over whole scenarios: one with kills, one with all that an editor lends."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests import left_out
from tests.acp.driver import command, story, variables
from tests.acp.scripted_model import settings
from tests.agents.http_tool_server import Far
from tests.builders import limit
from tests.fakes.endpoint import MODEL, Endpoint, answer, calls
from tests.node_libraries import Library

Told = dict[str, Any]
Check = Callable[[str, object], None]


@pytest.fixture(scope="module")
def sdk() -> Path:
    return left_out.use_library(Library.ACP, "tests with the TypeScript library")


@pytest.fixture(scope="module")
def check(sdk: Path) -> Check:
    """Whether something is what the published schema calls by a name."""
    defined = json.loads((sdk / "schema" / "v1" / "schema.json").read_text())["$defs"]

    @cache
    def validator(kind: str) -> Draft202012Validator:
        return Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": defined})

    def fits(kind: str, value: object) -> None:
        validator(kind).validate(value)  # pyright: ignore[reportUnknownMemberType]

    return fits


def played(sdk: Path, script: str, *arguments: str, env: dict[str, str]) -> Told:
    entry = sdk / "dist" / "v1" / "unstable" / "acp.js"
    done = subprocess.run(
        ["node", str(Path(__file__).with_name(script)), str(entry), *arguments, *command()],
        env=env,
        capture_output=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def told(sdk: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return played(sdk, "client.mjs", "/tmp", env=variables(tmp_path_factory.mktemp("home")))


def chat(told: Told, phase: str) -> list[tuple[str, str, str]]:
    session = told["made"]["sessionId"]
    return story([u["update"] for u in told[phase] if u["sessionId"] == session])


def of_kind(told: Told, phase: str, kind: str) -> list[dict[str, Any]]:
    return [u["update"] for u in told[phase] if u["update"]["sessionUpdate"] == kind]


def test_every_request_is_answered_as_the_library_expects(told: Told) -> None:
    assert told["initialize"]["protocolVersion"] == 1
    assert {o["id"]: o["currentValue"] for o in told["option"]["configOptions"]}["effort"] == "high"
    for name in ("first", "tool", "plan", "asked", "idle", "after"):
        assert told[name] == {"stopReason": "end_turn"}, name
    assert told["big"] == {"stopReason": "max_tokens"}
    assert told["queued"] == [{"stopReason": "end_turn"}] * 2
    assert (told["unknown"], told["relative"], told["method"]) == (-32002, -32602, -32601)
    assert (told["cursor"], told["failed"]) == (-32602, -32603)
    assert told["permissions"] == 1


def test_a_cancel_ends_what_runs_and_what_waits_in_time_even_if_it_is_ignored(told: Told) -> None:
    assert told["cancelled"] == [{"stopReason": "cancelled"}] * 2
    assert told["deaf"] == told["aborted"] == {"stopReason": "cancelled"}
    assert max(told["cancelMillis"], told["deafMillis"]) < limit(2) * 1000


def test_it_ends_with_the_stream_in_mid_answer(told: Told) -> None:
    assert told["code"] == 0
    assert told["endMillis"] < limit(5) * 1000


def test_titles_commands_and_plans_are_told_as_they_change(told: Told) -> None:
    assert [u["title"] for u in of_kind(told, "firstUpdates", "session_info_update")] == ["!think hello"]
    (offered,) = of_kind(told, "firstUpdates", "available_commands_update")
    assert "title" in {c["name"] for c in offered["availableCommands"]}
    plans = [[e["status"] for e in u["entries"]] for u in of_kind(told, "live", "plan")]
    assert plans == [["in_progress", "in_progress"], ["completed", "completed"]]
    (last,) = of_kind(told, "replayed", "plan")
    assert [e["status"] for e in last["entries"]] == ["completed", "completed"]


def test_after_a_kill_between_prompts_everything_is_there(told: Told) -> None:
    assert chat(told, "replayedBetween")[1:] == chat(told, "firstUpdates")
    assert chat(told, "replayedBetween")[0][2] == "!think hello"


def test_after_a_kill_the_replay_shows_what_was_seen_in_order_and_once(told: Told) -> None:
    live, replayed = chat(told, "live"), chat(told, "replayed")
    known = {id_: text for _, id_, text in live}
    again = [(kind, id_, text) for kind, id_, text in replayed if id_ in known]
    assert [(k, i) for k, i, _ in again] == [(k, i) for k, i, _ in live]
    assert all(text.startswith(known[id_]) for _, id_, text in again)
    assert [text for kind, _, text in replayed if kind == "user_message_chunk"] == [
        "!think hello",
        '!tool ls {"path": "/tmp"}',
        "!plan a; b",
        "!ask rm -rf build",
        "after an idle cancel",
        "slow 60 one two three",
        "this waits\n\n(withdrawn before it was answered)",
        "!deaf 60",
        "slow 60 first second",
        "slow 0.3 un deux",
        "trois",
        "!fail the disk is full",
        "slow 60 alpha beta gamma" + " more" * 200,
    ]


def test_every_update_and_answer_fits_the_published_schema(told: Told, check: Check) -> None:
    for update in (*told["live"], *told["replayed"]):
        check("SessionNotification", update)
    kinds = {
        "initialize": "InitializeResponse",
        "made": "NewSessionResponse",
        "option": "SetSessionConfigOptionResponse",
        "first": "PromptResponse",
        "loaded": "LoadSessionResponse",
        "listed": "ListSessionsResponse",
        "resumed": "ResumeSessionResponse",
        "closed": "CloseSessionResponse",
        "deleted": "DeleteSessionResponse",
    }
    for name, kind in kinds.items():
        check(kind, told[name])


def test_settings_lists_forks_and_deletes_hold(told: Told) -> None:
    for name in ("between", "loaded", "resumed", "forked"):
        assert {o["id"]: o["currentValue"] for o in told[name]["configOptions"]}["effort"] == "high", name
    assert [s["sessionId"] for s in told["listed"]["sessions"]] == [told["made"]["sessionId"]]
    assert told["left"] == [told["forked"]["sessionId"]]


ASKER = """
from keryx.core.ports.agent import TextDelta
from keryx.core.questions import Question
async def agent(context):
    yield TextDelta("It is " + await context.ask(Question(key="q", title="Which colour?", options=())))
"""


@pytest.fixture(scope="module")
def lent(sdk: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the editor saw, with the requests that the model got under `model`."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")
    (home / "asker.py").write_text(ASKER)
    (folder / "a.txt").write_text("what was there")
    far, path = Far(home / "runs"), str(folder / "a.txt")
    script = (
        calls(("c1", "far_look", '{"q": "the pump"}')),
        answer("Found."),
        calls(("c2", "read_text_file", json.dumps({"path": path}))),
        calls(("c3", "write_text_file", json.dumps({"path": path, "content": "what is new"}))),
        answer("Changed."),
        calls(("c4", "run_in_terminal", '{"command": "cat a.txt; exit 3"}')),
        answer("It failed."),
        answer("In short."),
        answer("Again."),
    )
    with Endpoint(*script) as endpoint:
        env = settings(home, endpoint, titles=False, context=32_000)
        with (home / "keryx.toml").open("a") as file:
            file.write(f'[[models]]\nname = "second"\nid = "{MODEL}"\nbase_url = "{endpoint.base_url}"\n')
            file.write(
                'key = "env:TEST_KEY"\ntitles = false\ncontext = 16000\noptions = { temperature = 0.5 }\n'
                "prices = { input = 1, output = 2 }\n"
            )
            file.write('[agents.asker]\nkind = "python"\npath = "asker:agent"\n')
            file.write(f"[acp]\nlogin = {json.dumps([sys.executable, '-c', ''])}\n")
        far.start()
        try:
            more = {**variables(home, **env), "PYTHONPATH": str(home)}
            found = played(sdk, "capabilities.mjs", str(folder), far.url, env=more)
        finally:
            far.kill()
        runs = (home / "runs").read_text()
        return {**found, "model": endpoint.requests, "runs": runs, "file": (folder / "a.txt").read_text()}


def test_nothing_works_before_the_login_and_everything_after_it(lent: Told, check: Check) -> None:
    assert lent["locked"] == -32000
    assert lent["login"] == {}
    for name in ("looked", "changed", "ran", "agent", "painted", "back", "compacted", "again"):
        assert lent[name] == {"stopReason": "end_turn"}, name
    assert lent["code"] == 0
    check("AuthenticateResponse", lent["login"])


def test_a_model_is_chosen_by_option_and_by_the_older_method(lent: Told, check: Check) -> None:
    assert [request.get("temperature") for request in lent["model"][:3]] == [0.5, 0.5, None]
    told = [
        {o["id"]: o["currentValue"] for o in u["configOptions"]}["model"]
        for u in of_kind(lent, "live", "config_option_update")
    ]
    assert told[-1] == MODEL
    assert lent["mode"] == {}
    check("SetSessionModeResponse", lent["mode"])


def test_the_tools_of_a_server_over_http_outlive_a_change_of_the_model(lent: Told) -> None:
    assert lent["runs"] == "look the pump\n"
    results = {m["tool_call_id"]: m["content"] for m in lent["model"][1]["messages"] if m["role"] == "tool"}
    assert results == {"c1": "found the pump"}
    for asked in (lent["model"][0], lent["model"][2], lent["model"][-1]):
        assert "far_look" in {t["function"]["name"] for t in asked["tools"]}


def test_files_and_a_command_go_through_the_editor(lent: Told, check: Check) -> None:
    asked = [r["method"] for r in lent["requests"]]
    assert asked == [
        "fs/read_text_file",
        "session/request_permission",
        "fs/write_text_file",
        "session/request_permission",
        *(f"terminal/{verb}" for verb in ("create", "wait_for_exit", "output", "release")),
        "elicitation/create",
    ]
    assert lent["file"] == "what is new"
    shown = {u["toolCallId"]: u for u in of_kind(lent, "live", "tool_call_update")}
    assert shown["c2"]["rawOutput"] == {"output": "what was there"}
    assert shown["c4"]["rawOutput"] == {"output": "what is new\n[Ended with 3.]"}
    for request in lent["requests"]:
        check(_REQUESTS[request["method"]], request["params"])


_REQUESTS = {
    "session/request_permission": "RequestPermissionRequest",
    "fs/read_text_file": "ReadTextFileRequest",
    "fs/write_text_file": "WriteTextFileRequest",
    "terminal/create": "CreateTerminalRequest",
    "terminal/wait_for_exit": "WaitForTerminalExitRequest",
    "terminal/output": "TerminalOutputRequest",
    "terminal/release": "ReleaseTerminalRequest",
    "elicitation/create": "CreateElicitationRequest",
}


def test_a_form_is_answered_and_a_compaction_marked_once_live_and_once_in_a_replay(lent: Told) -> None:
    assert lent["requests"][-1]["params"]["message"] == "Which colour?"
    assert "It is red" in [text for _, _, text in chat(lent, "live")]
    (live,), (replayed,) = (of_kind(lent, p, "compaction_update") for p in ("live", "replayed"))
    assert live == replayed
    assert (live["status"], live["summary"][0]["text"]) == ("completed", "In short.")


def test_the_use_of_the_context_is_told_and_every_update_fits_the_schema(lent: Told, check: Check) -> None:
    used = of_kind(lent, "live", "usage_update")
    assert {u["size"] for u in used} == {16_000, 32_000}
    assert all(0 < u["used"] < u["size"] for u in used)
    assert 0 < used[0]["cost"]["amount"] <= used[-1]["cost"]["amount"]
    assert used[-1]["cost"]["currency"] == "USD"
    for update in (*lent["live"], *lent["replayed"]):
        check("SessionNotification", update)
