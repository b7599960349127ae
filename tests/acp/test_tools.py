"""What an editor lends to the agent: its files, its terminal, and the tool servers that it names."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.acp.driver import Editor, Json, Refused, editor
from tests.acp.scripted_model import thinking
from tests.fakes.endpoint import Endpoint, answer, calls

from keryx.agents.editor_tools import resolve_within
from keryx.agents.tools import ToolFailed

SERVER = str(Path(__file__).parents[1] / "agents" / "tool_server.py")
ALL: dict[str, object] = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def offered(endpoint: Endpoint) -> set[str]:
    return {t["function"]["name"] for t in endpoint.requests[0].get("tools", [])}


def results(endpoint: Endpoint) -> list[str]:
    """What the model was told that its tools gave. It may be asked for a title after that."""
    told = ([m["content"] for m in r["messages"] if m["role"] == "tool"] for r in endpoint.requests)
    return max(told, key=len)


def methods(zed: Editor) -> list[str]:
    return [m["method"] for m in zed.asked]


def new(zed: Editor, folder: Path, servers: Sequence[Json] = ()) -> str:
    return str(zed.call("session/new", cwd=str(folder), mcpServers=list(servers))["sessionId"])


def test_files_are_read_and_written_through_the_editor(home: Path, folder: Path) -> None:
    path = str(folder / "a.txt")
    script = (
        calls(("c1", "read_text_file", json.dumps({"path": "a.txt", "line": 2, "limit": 1}))),
        calls(("c2", "write_text_file", json.dumps({"path": path, "content": "new"}))),
        answer("Done."),
    )
    with thinking(home, *script, capabilities=ALL) as (zed, endpoint):
        zed.answers["fs/read_text_file"] = lambda _: {"content": "the second line"}
        zed.answers["fs/write_text_file"] = lambda _: {}
        session = new(zed, folder)
        assert zed.prompt(session, "change it") == "end_turn"
        assert methods(zed) == ["fs/read_text_file", "session/request_permission", "fs/write_text_file"]
        reading, asking, writing = (m["params"] for m in zed.asked)
        assert reading == {"sessionId": session, "path": path, "line": 2, "limit": 1}
        assert writing == {"sessionId": session, "path": path, "content": "new"}
        shown = {u["toolCallId"]: u for u in zed.updates(session) if u["sessionUpdate"] == "tool_call"}
        call = shown[asking["toolCall"]["toolCallId"]]
        assert call["title"] == asking["toolCall"]["title"] == f"write_text_file: {path}"
        assert call["content"] == [{"type": "diff", "path": path, "oldText": None, "newText": "new"}]
        assert results(endpoint) == ["the second line", "Wrote 3 characters."]


def test_a_command_runs_in_the_editors_terminal_and_gives_it_back(home: Path, folder: Path) -> None:
    script = (calls(("c1", "run_in_terminal", '{"command": "make test"}')), answer("It failed."))
    with thinking(home, *script, capabilities=ALL) as (zed, endpoint):
        zed.answers["terminal/create"] = lambda _: {"terminalId": "t1"}
        zed.answers["terminal/wait_for_exit"] = lambda _: {"exitCode": 2}
        zed.answers["terminal/output"] = lambda _: {
            "output": "1 failed",
            "truncated": False,
            "exitStatus": {"exitCode": 2},
        }
        zed.answers["terminal/release"] = lambda _: {}
        session = new(zed, folder)
        assert zed.prompt(session, "test it") == "end_turn"
        assert methods(zed) == [
            "session/request_permission",
            *(f"terminal/{verb}" for verb in ("create", "wait_for_exit", "output", "release")),
        ]
        asked, made = zed.asked[0]["params"], zed.asked[1]["params"]
        assert asked["toolCall"]["title"] == "run_in_terminal: make test"
        assert (made["command"], made["args"], made["cwd"]) == ("/bin/sh", ["-c", "make test"], str(folder))
        assert results(endpoint) == ["1 failed\n[Ended with 2.]"]
        mark = zed.mark()
        zed.load(session, folder)
        replayed = json.dumps(zed.updates(session, since=mark))
        assert "1 failed" in replayed and '"t1"' not in replayed


def test_a_cancel_gives_the_terminal_back(home: Path, folder: Path) -> None:
    script = (calls(("c1", "run_in_terminal", '{"command": "sleep 600"}')), answer("Never."))
    with thinking(home, *script, capabilities=ALL) as (zed, _):
        zed.answers["terminal/create"] = lambda _: {"terminalId": "t1"}
        zed.answers["terminal/release"] = lambda _: {}
        session = new(zed, folder)
        id_ = zed.say(session, "sleep")
        zed.wait(lambda m: m.get("method") == "terminal/wait_for_exit")
        zed.notify("session/cancel", sessionId=session)
        assert zed.result(id_) == {"stopReason": "cancelled"}
        zed.wait(lambda m: m.get("method") == "terminal/release")


def test_nothing_is_asked_of_an_editor_that_did_not_offer_it(home: Path, folder: Path) -> None:
    with thinking(home, answer("Hello."), capabilities={"fs": {"readTextFile": True}}) as (zed, endpoint):
        zed.prompt(new(zed, folder), "hello")
        found = offered(endpoint)
    assert "read_text_file" in found
    assert not found & {"write_text_file", "run_in_terminal"}


def test_a_denied_write_and_an_error_of_the_editor_are_told_to_the_model(home: Path, folder: Path) -> None:
    script = (
        calls(("c1", "write_text_file", '{"path": "a.txt", "content": "x"}')),
        calls(("c2", "read_text_file", '{"path": "../../etc/passwd"}')),
        calls(("c3", "read_text_file", '{"path": "a.txt"}')),
        answer("I could not."),
    )
    with thinking(home, *script, capabilities=ALL) as (zed, endpoint):
        zed.answers["session/request_permission"] = lambda _: {
            "outcome": {"outcome": "selected", "optionId": "deny"}
        }
        zed.answers["fs/read_text_file"] = lambda _: {"content": None}
        session = new(zed, folder)
        assert zed.prompt(session, "change it") == "end_turn"
        denied, outside, broken = results(endpoint)
    assert "did not allow" in denied
    assert "outside of" in outside
    assert "the editor gave no text" in broken
    assert "fs/write_text_file" not in methods(zed)


def test_the_tool_servers_of_the_editor_are_used_and_end_with_the_session(
    home: Path, folder: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    server: Json = {"name": "My Tools!", "command": sys.executable, "args": [SERVER, str(runs)], "env": []}
    broken: Json = {"name": "gone", "command": "/does/not/exist", "args": [], "env": []}
    script = (calls(("c1", "my-tools_look", '{"q": "the pump"}')), answer("Found."))
    with thinking(home, *script) as (zed, endpoint):
        session = new(zed, folder, [server, broken])
        assert zed.prompt(session, "look") == "end_turn"
        assert results(endpoint) == ["found the pump"]
        assert runs.read_text() == "look the pump\n"
        assert "gone" in zed.texts(session, "agent_thought_chunk")
        before = len(endpoint.requests)
        zed.prompt(new(zed, folder), "hello")
        names = {t["function"]["name"] for r in endpoint.requests[before:] for t in r.get("tools", [])}
        assert names and "my-tools_look" not in names
        zed.call("session/close", sessionId=session)
    assert "does/not/exist" not in zed.texts(session)


def test_a_tool_server_of_an_unknown_kind_is_refused(home: Path, folder: Path) -> None:
    with editor(home) as zed:
        zed.initialize()
        for wrong in ({"name": "a", "type": "sse", "url": "http://x"}, {"name": "b"}, {"command": "x"}):
            with pytest.raises(Refused) as refused:
                new(zed, folder, [wrong])
            assert refused.value.code == -32602


def test_the_folder_of_the_editor_is_where_a_turn_works(home: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "where.py").write_text(
        "from keryx.core.ports.agent import TextDelta\nasync def agent(context):\n    yield TextDelta(context.cwd)\n"
    )
    with editor(home, KERYX_AGENT="where:agent", PYTHONPATH=str(tmp_path)) as zed:
        zed.initialize()
        session = new(zed, folder)
        zed.prompt(session, "where")
        other = tmp_path / "other"
        other.mkdir()
        zed.load(session, other)
        zed.prompt(session, "and now")
        assert zed.texts(session).endswith(f"{folder}{other}")
        assert [s["cwd"] for s in zed.call("session/list")["sessions"]] == [str(folder)]


def test_a_path_out_of_the_folder_is_refused_by_dots_and_by_links(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(tmp_path)
    (folder / "inside").symlink_to(folder / "a")
    assert resolve_within([str(folder)], "a/./b/../c") == str(folder / "a" / "c")
    assert resolve_within([str(folder)], str(folder / "inside")) == str(folder / "inside")
    for path in ("..", "/etc/passwd", "a/../../x", "link/secret"):
        with pytest.raises(ToolFailed, match="outside"):
            resolve_within([str(folder)], path)


def test_the_other_folders_of_a_session_can_be_used_too(home: Path, folder: Path, tmp_path: Path) -> None:
    other, third = tmp_path / "other", tmp_path / "third"
    script = (
        calls(("c1", "read_text_file", json.dumps({"path": str(other / "b.txt")}))),
        calls(("c2", "read_text_file", json.dumps({"path": str(third / "c.txt")}))),
        answer("Done."),
    )
    with thinking(home, *script, capabilities=ALL) as (zed, endpoint):
        zed.answers["fs/read_text_file"] = lambda _: {"content": "what is in b"}
        more = {"additionalDirectories": [str(other)]}
        with pytest.raises(Refused, match="absolute"):
            zed.call("session/new", cwd=str(folder), mcpServers=[], additionalDirectories=["other"])
        session = zed.call("session/new", cwd=str(folder), mcpServers=[], **more)["sessionId"]
        assert zed.prompt(session, "look around") == "end_turn"
        read, refused = results(endpoint)
        assert read == "what is in b" and "outside of" in refused
        called = next(u for u in zed.updates(session) if u["sessionUpdate"] == "tool_call")
        assert called["name"] == "read_text_file"
