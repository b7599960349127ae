"""Sessions by command: every verb changes what the next listing shows."""

import time
from typing import Any

import pytest
from tests.cli.driver import Cli


def list_titles(keryx: Cli, *arguments: str) -> list[str]:
    found = keryx.json("sessions", "list", *arguments)
    return [entry["session"]["title"] for entry in found["sessions"]]


def show_messages(keryx: Cli, ref: str) -> list[dict[str, Any]]:
    return list(keryx.json("sessions", "show", ref, "--all")["messages"])


def test_nothing_yet(keryx: Cli) -> None:
    assert "keryx chat" in keryx.ok("sessions", "list").out
    assert keryx.json("sessions", "list") == {"sessions": [], "next": None}


def test_a_listing_shows_id_title_place_and_state(keryx: Cli) -> None:
    session = keryx.session("trip to oslo")
    keryx.ok("send", "waits for a node")
    lines = keryx.ok("sessions", "list").out.splitlines()
    assert lines[0].split() == ["id", "title", "from", "msgs", "last", "state"]
    assert [session, "trip", "to", "oslo", "cli", "2"] == lines[2].split()[:6]
    assert lines[1].endswith("waiting")


def test_pages_follow_each_other(keryx: Cli) -> None:
    for number in range(5):
        keryx.session(f"talk {number}")
    first = keryx.json("sessions", "list", "--limit", "3")
    second = keryx.json("sessions", "list", "--limit", "3", "--page", first["next"])
    titles = [entry["session"]["title"] for page in (first, second) for entry in page["sessions"]]
    assert titles == [f"talk {n}" for n in (4, 3, 2, 1, 0)]
    assert second["next"] is None


def test_filters(keryx: Cli) -> None:
    pinned, archived, failed = (keryx.session(text) for text in ("pinned", "archived", "third"))
    keryx.ok("sessions", "pin", pinned)
    keryx.ok("sessions", "archive", archived)
    keryx("send", "--wait", "--session", failed, "!fail no")
    assert list_titles(keryx) == ["pinned", "third"]
    assert list_titles(keryx, "--pinned") == ["pinned"]
    assert list_titles(keryx, "--archived") == ["archived"]
    assert sorted(list_titles(keryx, "--all")) == ["archived", "pinned", "third"]
    assert list_titles(keryx, "--state", "failed") == ["third"]
    assert list_titles(keryx, "--surface", "telegram") == []
    assert list_titles(keryx, "--since", "1h") == ["pinned", "third"]
    assert list_titles(keryx, "--since", "2999-01-01") == []
    assert list_titles(keryx, "--cwd", "/nowhere") == []
    keryx.ok("sessions", "unpin", pinned)
    keryx.ok("sessions", "unarchive", archived)
    assert len(list_titles(keryx)) == 3


def test_show_has_every_mark(keryx: Cli) -> None:
    session = keryx.session("!think of the sea")
    keryx("send", "--wait", "--session", session, "!fail it broke")
    keryx.ok("send", "--wait", "--session", session, "!tool grep foo")
    keryx.ok("sessions", "undo", session)
    out = keryx.ok("sessions", "show", session).out
    for words in (
        "They said: of the sea",
        "[failed, without a complete answer]",
        "! it broke",
        "⚙ grep foo",
        "↳ grep was",
        "[taken back]",
        "#1",
    ):
        assert words in out


def test_show_cuts_and_says_so(keryx: Cli) -> None:
    session = keryx.session("one")
    keryx.ok("send", "--wait", "--session", session, "two")
    out = keryx.ok("sessions", "show", session, "--limit", "1").out
    assert "--all shows them" in out
    assert "one" not in out.split("\n", 2)[2]
    assert [
        m["seq"] for m in keryx.json("sessions", "show", session, "--limit", "1", "--all")["messages"]
    ] == [1, 2, 3, 4]


def test_everything_from_a_message_on_is_taken_back(keryx: Cli) -> None:
    session = keryx.session("first")
    for text in ("second", "third"):
        keryx.ok("send", "--wait", "--session", session, text)
    assert "Took back 2" in keryx.ok("sessions", "undo", session, "--message", "3").out
    undone = [m.get("undone", 0) > 0 for m in show_messages(keryx, session)]
    assert undone == [False, False, True, True, True, True]


def test_undo_redo_and_retry(keryx: Cli) -> None:
    session = keryx.session("first")
    keryx.ok("send", "--wait", "--session", session, "second")
    assert "second" in keryx.ok("sessions", "undo", session).out
    assert [m.get("undone", 0) > 0 for m in show_messages(keryx, session)] == [False, False, True, True]
    keryx.ok("sessions", "redo", session)
    assert not any(m.get("undone") for m in show_messages(keryx, session))
    assert keryx("sessions", "redo", session).code == 3
    assert "keryx serve" in keryx.ok("sessions", "retry", session).err
    assert keryx("sessions", "undo", session).code == 4


def test_fork_goes_its_own_way(keryx: Cli) -> None:
    session = keryx.session("trip")
    keryx.ok("send", "--wait", "--session", session, "more")
    keryx.ok("sessions", "fork", session, "--at", "2", "--title", "by train")
    keryx.ok("sessions", "fork", "trip")
    assert sorted(list_titles(keryx)) == ["by train", "trip", "trip #2"]
    assert len(show_messages(keryx, "by train")) == 2
    assert keryx("sessions", "fork", session, "--at", "99").code == 2


def test_rename_keeps_titles_apart(keryx: Cli) -> None:
    one, two = keryx.session("one"), keryx.session("two")
    assert "“Oslo”" in keryx.ok("sessions", "rename", one, "  Oslo\n").out
    assert keryx("sessions", "rename", two, "oslo").code == 2
    assert keryx.json("sessions", "show", "OSLO")["session"]["id"] == one


def test_delete_can_be_taken_back_until_it_is_for_good(keryx: Cli) -> None:
    session = keryx.session()
    asked = keryx("sessions", "delete", session)
    assert (asked.code, list_titles(keryx)) == (2, ["hello"])
    assert "undelete" in keryx.ok("sessions", "delete", session, "--yes").out
    assert list_titles(keryx) == []
    keryx.ok("sessions", "undelete", session)
    assert list_titles(keryx) == ["hello"]
    keryx.ok("sessions", "delete", session, "--now", "--yes")
    assert keryx("sessions", "undelete", session).code == 3


def test_deleting_asks_at_a_terminal(keryx: Cli) -> None:
    session = keryx.session()
    with keryx.terminal("sessions", "delete", session) as terminal:
        terminal.see("[y/N]")
        terminal.type("n\n")
        terminal.see("nothing was done")
        assert terminal.exit() == 4
    with keryx.terminal("sessions", "delete", session) as terminal:
        terminal.see("[y/N]")
        terminal.type("y\n")
        assert terminal.exit() == 0
    assert list_titles(keryx) == []


def test_end_and_reopen(keryx: Cli) -> None:
    session = keryx.session()
    keryx.ok("sessions", "end", session)
    assert "ended (person)" in keryx.ok("sessions", "show", session).out
    keryx.ok("sessions", "reopen", session)
    assert keryx.json("sessions", "show", session)["session"]["ended_at"] is None


def test_the_model_is_kept(keryx: Cli) -> None:
    session = keryx.session()
    assert keryx.json("sessions", "model", session)["model"] is None
    models = ("large", "small")
    (keryx.home / "keryx.toml").write_text(
        "".join(f'[[models]]\nname = "{n}"\nid = "{n}"\nbase_url = "http://127.0.0.1:1/v1"\n' for n in models)
    )
    keryx = Cli(keryx.home, KERYX_AGENT="llm")
    keryx.ok("sessions", "model", session, "small")
    assert keryx.ok("sessions", "model", session).out == "Model: small.\n"
    keryx.ok("sessions", "model", session, "default")
    assert keryx.json("sessions", "model", session)["model"] is None


def test_stop_with_nothing_running_does_nothing(keryx: Cli) -> None:
    session = keryx.session()
    assert keryx.ok("sessions", "stop", session).out == "Nothing is running.\n"


def test_projects(keryx: Cli) -> None:
    session = keryx.session()
    keryx.ok("projects", "add", "travel", "--colour", "teal")
    assert keryx("projects", "add", "travel").code == 4
    keryx.ok("projects", "rename", "travel", "journeys")
    keryx.ok("projects", "colour", "journeys", "#0a7")
    keryx.ok("projects", "assign", session, "journeys")
    assert list_titles(keryx, "--project", "journeys") == ["hello"]
    assert [(p["name"], p["colour"], p["sessions"]) for p in keryx.json("projects", "list")["projects"]] == [
        ("journeys", "#0a7", 1)
    ]
    keryx.ok("sessions", "move-to-project", session, "none")
    assert list_titles(keryx, "--project", "journeys") == []
    assert keryx("projects", "remove", "journeys").code == 2
    keryx.ok("projects", "remove", "journeys", "--yes")
    assert keryx.json("projects", "list") == {"projects": []}


def test_tags_are_put_on_listed_filtered_by_and_pruned(keryx: Cli) -> None:
    session = keryx.session()
    assert keryx.json("sessions", "tag", session, "to do", "later")["tags"] == ["later", "to do"]
    keryx.ok("tags", "add", "blue one", "--colour", "blue")
    assert keryx("tags", "add", "blue one").code == 4
    keryx.ok("tags", "rename", "blue one", "sea")
    keryx.ok("tags", "colour", "sea", "teal")
    assert keryx("tags", "colour", "sea", "chartreuse").code == 2
    found = keryx.json("tags", "list")["tags"]
    assert [(t["name"], t["sessions"]) for t in found] == [("later", 1), ("sea", 0), ("to do", 1)]
    assert found[1]["colour"] == "teal"
    assert list_titles(keryx, "--filter", 'tag:"to do" tag:later') == ["hello"]
    assert list_titles(keryx, "--filter", "tag:sea") == []
    assert "search for words" in keryx("sessions", "list", "--filter", "hello").err
    refused = keryx("sessions", "list", "--filter", "is:runnin")
    assert refused.code == 2 and "is: with running, waiting, failed" in refused.err
    assert keryx.ok("sessions", "untag", session, "later").out == "Tags: to do.\n"
    assert keryx("sessions", "untag", session, "nothing").code == 3
    keryx.ok("tags", "remove", "sea", "--yes")
    preview = keryx.json("sessions", "prune", "--filter", 'tag:"to do"', "--delete", "--dry-run")
    assert preview == {"archive": [], "delete": [session]}
    keryx.ok("sessions", "prune", "--filter", 'tag:"to do"', "--delete", "--yes")
    assert list_titles(keryx, "--filter", "is:deleted") == ["hello"]
    assert list_titles(keryx) == []
    keryx.ok("sessions", "delete", session, "--now", "--yes")
    assert list_titles(keryx, "--filter", "is:deleted") == []
    assert keryx("sessions", "delete", session, "--now", "--yes").code == 3


def test_lanes_are_listed_shown_reset_and_suspended(keryx: Cli) -> None:
    session = keryx.session()
    (lane,) = keryx.json("lanes", "list")["lanes"]
    assert lane["session"] == session
    assert "first message" in keryx.ok("lanes", "show", lane["key"]).out
    keryx.ok("lanes", "suspend", lane["key"])
    assert "suspended" in keryx.ok("lanes", "list", "--since", "30m").out
    keryx.ok("lanes", "free", lane["key"])
    keryx.ok("lanes", "reset", lane["key"])
    assert keryx.json("lanes", "show", lane["key"])["lane"]["session"] is None


def test_the_story_of_a_message(keryx: Cli) -> None:
    session = keryx.session()
    out = keryx.ok("why", f"{session}.1").out
    assert "received via cli" in out
    assert "So: answered in turn" in out
    assert keryx.json("why", f"{session}.1")["outcome"].startswith("answered")


@pytest.mark.parametrize("noun", ["sessions", "lanes", "deliveries", "projects", "config"])
def test_a_noun_alone_shows_what_it_can_do(keryx: Cli, noun: str) -> None:
    assert keryx.ok(noun).out


def test_search_finds_words_in_messages_and_titles(keryx: Cli) -> None:
    session = keryx.session("the night train from Oslo")
    keryx.session("something else")
    hits = keryx.json("sessions", "search", '"night', 'train"')["hits"]
    assert {hit["session"] for hit in hits} == {session}
    assert f"{session}.1" in {hit["message"] for hit in hits}
    assert hits[0]["snippet"][slice(*hits[0]["spans"][0])] == "night train"
    assert session in keryx.ok("sessions", "search", "oslo").out
    assert keryx.ok("sessions", "search", "-oslo", "(", '"').code == 0
    assert keryx.ok("sessions", "search").out == "Nothing found.\n"


def test_foreign_text_cannot_steer_the_terminal(keryx: Cli) -> None:
    sent = keryx.json_of("send", "--wait", "--json", "-", stdin="red \x1b[31malert\x1b]0;owned\x07 end")
    with keryx.terminal("sessions", "list", NO_COLOR="1") as terminal:
        terminal.exit()
        assert "\x1b" not in terminal.raw
    with keryx.terminal("sessions", "show", sent["session"], NO_COLOR="1") as terminal:
        terminal.exit()
        assert "\x1b" not in terminal.raw
        assert "alert" in terminal.raw


def test_the_directory_and_the_title_of_a_conversation_are_changed(keryx: Cli) -> None:
    session = keryx.session("trip to oslo")
    keryx.ok("sessions", "set-directory", session, str(keryx.home))
    assert keryx.json("sessions", "list")["sessions"][0]["session"]["cwd"] == str(keryx.home)
    done = keryx("sessions", "set-directory", session, str(keryx.home / "missing"))
    assert done.code == 2 and "is not a directory" in done.err
    keryx.ok("sessions", "rename", session, "")
    assert not keryx.json("sessions", "list")["sessions"][0]["session"].get("title")
    assert len(keryx.json("sessions", "list", "--owner", "operator")["sessions"]) == 1
    assert keryx("sessions", "list", "--owner", "telegram:4711").code == 3


def test_old_conversations_are_shown_archived_and_deleted(keryx: Cli) -> None:
    old, pinned = keryx.session("old talk"), keryx.session("pinned talk")
    keryx.ok("sessions", "pin", pinned)
    shown = keryx.ok("sessions", "prune", "--older-than", "0s", "--dry-run").out
    assert "Archive 1 conversation:" in shown and "old talk" in shown and "pinned" not in shown
    preview = keryx.json("sessions", "prune", "--older-than", "0s", "--dry-run")
    assert preview == {"archive": [old], "delete": []}
    assert len(list_titles(keryx)) == 2
    assert "--yes" in keryx("sessions", "prune", "--older-than", "0s").err
    assert keryx.json("sessions", "prune", "--older-than", "0s", "--yes") == {"archived": 1, "deleted": 0}
    assert list_titles(keryx) == ["pinned talk"] and list_titles(keryx, "--archived") == ["old talk"]
    keryx.ok("sessions", "prune", "--older-than", "0s", "--surface", "web", "--delete", "--yes")
    assert list_titles(keryx, "--archived") == ["old talk"]
    keryx.ok("sessions", "prune", "--older-than", "0s", "--delete", "--yes")
    assert list_titles(keryx, "--archived") == []
    keryx.ok("sessions", "undelete", old)
    assert "--older-than" in keryx("sessions", "prune").err


def test_the_rules_of_keep_say_what_goes(keryx: Cli) -> None:
    keryx.session("old talk")
    time.sleep(1.1)
    keryx.home.mkdir(exist_ok=True)
    (keryx.home / "keryx.toml").write_text('[keep.sessions]\ncli = "1s"\n[keep.archive]\n"*" = "30d"\n')
    assert "Delete 1 conversation:" in keryx.ok("sessions", "prune", "--dry-run").out
    (keryx.home / "keryx.toml").write_text('[keep.sessions]\nweb = "1s"\n')
    assert keryx.json("sessions", "prune", "--yes") == {"archived": 0, "deleted": 0}
    (keryx.home / "keryx.toml").write_text('[keep.sessions]\nweb = "soon"\n')
    done = keryx("sessions", "prune")
    assert done.code == 2 and "not a duration" in done.err


def test_an_empty_list_says_that_there_are_archived_ones(keryx: Cli) -> None:
    assert "`keryx chat` starts one" in keryx.ok("sessions", "list").out
    session = keryx.session("hello")
    keryx.ok("sessions", "archive", session)
    assert "`--all` shows them" in keryx.ok("sessions", "list").out
    assert "hello" in keryx.ok("sessions", "list", "--all").out
    assert "`keryx chat` starts one" in keryx.ok("sessions", "list", "--filter", "tag:none").out
