"""What a person sees in a chat on a terminal."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.driver import Cli, Terminal
from tests.fakes.endpoint import KEY, MODEL, Endpoint, Stall, answer, finish, says
from tests.untranslated import find_untranslated_words

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 64
LIST = "# Ferries\n\nThere are **two** ferries a day, and they leave at `14:00` from the harbour in Kiel.\n\n- Kiel\n- Copenhagen"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint(answer("Hello."), answer("Hello again.")) as fake:
        yield fake


@pytest.fixture
def connected(tmp_path: Path, endpoint: Endpoint) -> Cli:
    """Two models behind a fake endpoint, with prices."""
    home = tmp_path / "home"
    home.mkdir()
    model = f'base_url = "{endpoint.base_url}"\nid = "{MODEL}"\nkey = "env:TEST_KEY"\ncontext = 1000\ntools = false\ntitles = false\n'
    (home / "keryx.toml").write_text(
        f'zone = "UTC"\n[[models]]\nname = "fast"\n{model}prices = {{ input = 100.0, output = 200.0 }}\n[[models]]\nname = "large"\n{model}'
    )
    return Cli(home, KERYX_AGENT="llm", TEST_KEY=KEY)


def parts(keryx: Cli, title: str) -> list[dict[str, str]]:
    """The parts of the first message of a conversation."""
    found = keryx.json("sessions", "show", title)["messages"]
    return found[0]["parts"]


def leave(terminal: Terminal) -> None:
    terminal.type("\x04")
    assert terminal.exit() == 0


def test_an_answer_is_shown_as_markdown_and_wrapped_between_words(keryx: Cli) -> None:
    with keryx.terminal("chat", LIST, columns=40) as terminal:
        shown = terminal.show("• Copenhagen", "›")
    assert (
        "Ferries\n\nThere are two ferries a day, and they\nleave at 14:00 from the harbour in Kiel.\n\n• Kiel\n• Copenhagen\n"
        in shown
    )
    assert "\x1b[1mtwo\x1b[0m" in terminal.raw


def test_code_is_highlighted(keryx: Cli) -> None:
    with keryx.terminal("chat", "```python\ndef f():\n    return 1\n```") as terminal:
        terminal.show("  def f():\n      return 1\n", "›")
    assert "\x1b[35mdef\x1b[0m" in terminal.raw


def test_a_question_shows_its_command_as_code(keryx: Cli) -> None:
    with keryx.terminal("chat", "!ask rm -r build") as terminal:
        shown = terminal.show("1. Allow", "›")
    assert "! May the echo agent go on?\n\n  rm -r build\n\n1. Allow\n" in shown


def test_marks_and_notices_are_wrapped_between_words(keryx: Cli) -> None:
    keryx("send", "--wait", "!crash")
    with keryx.terminal("chat", "--resume", "!crash", columns=30) as terminal:
        earlier = terminal.show("again.", "›")
        terminal.type("!fail it broke\r")
        terminal.show("! it broke", "›")
        leave(terminal)
        words = " ".join(terminal.screen.split())
    told = " ".join(earlier.split())
    assert "! The agent failed (RuntimeError). The log has the details; /retry asks again." in told
    assert told.count("[failed, without a complete answer]") == 1
    assert words.count("[failed, without a complete answer]") == 2


def test_without_colours_there_are_none(keryx: Cli) -> None:
    with keryx.terminal("chat", "`a` and **b**", NO_COLOR="1") as terminal:
        terminal.show("`a` and b\n", "›")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m|\x1b\[1m", terminal.raw.partition("›")[0])


def test_an_answer_that_grows_stays_in_one_place(keryx: Cli) -> None:
    words = " ".join(f"word{n}" for n in range(60))
    with keryx.terminal("chat", f"slow 0.6 {words}\n\n- one\n- two\n\nThe end.", columns=40) as terminal:
        shown = terminal.show("The end.", "›")
        leave(terminal)
    assert shown.count("word0 ") == shown.count("word59") == shown.count("• one") == 1


def test_an_answer_longer_than_the_screen_is_whole_in_the_end(keryx: Cli) -> None:
    lines = "\n".join(f"line {n}" for n in range(60))
    with keryx.terminal("chat", f"slow 0.3 ```\n{lines}\n```") as terminal:
        shown = terminal.show("›")
        leave(terminal)
    assert [line.strip() for line in shown.splitlines() if "line " in line] == lines.splitlines()


def test_a_sign_is_shown_while_it_works_and_removed_after(connected: Cli, endpoint: Endpoint) -> None:
    endpoint.scripts[:] = [[Stall(), *says("Done."), *finish()]]
    with connected.terminal("chat", "work") as terminal:
        terminal.show("Thinking 1 s · Ctrl-C stops · fast")
        endpoint.release()
        terminal.show("Done.", "›")
        assert "Thinking" not in terminal.screen


def test_the_status_line_shows_model_context_and_cost(connected: Cli) -> None:
    with connected.terminal("chat", "hello") as terminal:
        terminal.show("Hello.", "›", "fast · context 2 % of 1,000 · 0.0020 USD")
        terminal.type("/model large\r")
        terminal.show("large · context 2 % of 1,000")


def test_the_status_line_fits_a_narrow_terminal(connected: Cli) -> None:
    with connected.terminal("chat", "hello", columns=40) as terminal:
        terminal.show("Hello.", "›", "fast · context 2 % of 1,000 · 0.0020 USD")
        leave(terminal)
        assert all(len(line) <= 40 for line in terminal.screen.splitlines())


def test_the_queue_is_in_the_status_line(keryx: Cli) -> None:
    session = keryx.session("first")
    with keryx.terminal("chat", "--resume", session, "slow 5 one two") as terminal:
        terminal.show("Writing")
        keryx.ok("send", "--session", session, "later")
        terminal.show("1 queued")
        terminal.type("\x03")
        terminal.show("[stopped]")


def test_values_and_titles_are_completed(connected: Cli) -> None:
    connected.ok("send", "--wait", "trip to oslo")
    with connected.terminal("chat") as terminal:
        terminal.show("›")
        terminal.type("/model la")
        terminal.show("large")
        terminal.type("\t\r")
        terminal.show("Model: large.")
        terminal.type("/mode re")
        terminal.show("read")
        terminal.type("\t\r")
        terminal.show("Mode: read.")
        terminal.type("/resume os")
        terminal.show("trip to oslo", "cli")
        terminal.type("\t\r")
        terminal.show("Back in “trip to oslo”")


def test_an_unknown_model_is_refused_with_the_list(connected: Cli) -> None:
    connected.ok("send", "--wait", "hello")
    refused = connected("sessions", "model", "hello", "medium")
    assert refused.code != 0 and "fast, large" in refused.err, refused.err
    assert connected.json("sessions", "model", "hello")["model"] is None
    refused = connected("chat", "--model", "medium")
    assert refused.code != 0 and "fast, large" in refused.err and refused.out == "", refused


def test_the_mode_is_set_and_a_withdrawn_message_is_marked(keryx: Cli) -> None:
    session = keryx.session("first")
    keryx.ok("send", "--session", session, "never mind")
    keryx.ok("sessions", "stop", session, "--queue")
    assert "[withdrawn before it was answered]" in keryx.ok("sessions", "show", session).out
    with keryx.terminal("chat", "--resume", session) as terminal:
        terminal.show("never mind", "[withdrawn before it was answered]", "›")
        terminal.type("/mode read\r")
        terminal.show("Mode: read")
        terminal.type("/mode silly\r")
        terminal.show("Unknown mode 'silly'; choose ask, auto, read or default.")
    assert keryx.json("sessions", "show", session)["session"]["settings"]["mode"] == "read"


def test_files_and_sounds_reach_a_model_that_reads_them_and_else_the_operator_is_told_how(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    paper, sound = tmp_path / "paper.pdf", tmp_path / "sound.wav"
    paper.write_bytes(b"%PDF-1.7\n" + bytes(64))
    sound.write_bytes(b"RIFF\x24\0\0\0WAVEfmt " + bytes(64))
    variables = {"KERYX_LLM_BASE_URL": endpoint.base_url, "KERYX_LLM_MODEL": MODEL, "KERYX_LLM_API_KEY": KEY}
    keryx = Cli(tmp_path, KERYX_AGENT="llm", **variables)
    attached = ("chat", "--new", "--attach", str(paper), "--attach", str(sound))
    keryx.ok(*attached, "blind")
    # Its title may be the one of the model by now.
    first = keryx.json("sessions", "list")["sessions"][0]["session"]["id"]
    told = keryx.ok("sessions", "show", first).out
    assert "set `files = true` for it in keryx.toml or KERYX_LLM_FILES=true" in " ".join(told.split()), told
    assert "KERYX_TRANSCRIPTION_MODEL" in told, told
    abilities = {"KERYX_LLM_FILES": "true", "KERYX_LLM_AUDIO": "true"}
    Cli(tmp_path, KERYX_AGENT="llm", **variables, **abilities).ok(*attached, "read")
    ids = [entry["session"]["id"] for entry in keryx.json("sessions", "list")["sessions"]]
    [second] = [id_ for id_ in ids if id_ != first]
    assert "does not" not in keryx.ok("sessions", "show", second).out
    content = [str(request["messages"][-1]["content"]) for request in endpoint.requests]
    [read] = [text for text in content if "'type': 'file'" in text]
    assert "'type': 'input_audio'" in read


def test_help_names_the_keys(keryx: Cli) -> None:
    with keryx.terminal("chat") as terminal:
        terminal.show("›")
        terminal.type("/help\r")
        terminal.show("/attach [file] – Add a file", "Ctrl-V adds the picture", "Alt-Enter starts a new line")


def test_ctrl_c_ends_a_search_of_the_history(keryx: Cli) -> None:
    with keryx.terminal("chat") as terminal:
        terminal.show("›")
        terminal.type("\x12hello")
        terminal.show("(reverse-i-search)")
        terminal.type("\x03good day\r")
        terminal.show("› good day\ngood day")


def test_a_file_goes_with_the_next_message(keryx: Cli, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    with keryx.terminal("chat") as terminal:
        terminal.show("›")
        terminal.type(f"/attach {tmp_path}/no.png\r")
        terminal.show("Cannot read", "directory.")
        terminal.type(f"/attach {tmp_path}/cat.png\r")
        terminal.show("With your next message: cat.png.", "1 file attached")
        terminal.type("a cat\r")
        terminal.show("a cat\na cat")
    assert [part["type"] for part in parts(keryx, "a cat")] == ["text", "image"]


def test_a_file_that_is_dropped_on_the_window_is_attached_and_other_text_is_pasted(
    keryx: Cli, tmp_path: Path
) -> None:
    (tmp_path / "my cat.png").write_bytes(PNG)
    with keryx.terminal("chat") as terminal:
        terminal.show("›")
        terminal.type(f"\x1b[200~'{tmp_path}/my cat.png'\x1b[201~")
        terminal.show("With your next message: my cat.png.")
        terminal.type("/detach\r")
        terminal.show("Took back 1 file.")
        terminal.type("\x1b[200~/etc/hostname and\rmore\x1b[201~")
        terminal.show("/etc/hostname and", "more")
        terminal.type("\r")
        terminal.show("› /etc/hostname and")
        terminal.show("/etc/hostname and\nmore\n\n›")
    assert [part["type"] for part in parts(keryx, "/etc/hostname and")] == ["text"]


def test_a_picture_in_the_clipboard_is_attached(keryx: Cli, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(PNG)
    program = tmp_path / "bin" / "xclip"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec cat {tmp_path}/picture\n")
    program.chmod(0o755)
    with keryx.terminal("chat", PATH=f"{program.parent}:/usr/bin:/bin") as terminal:
        terminal.show("›")
        terminal.type("\x16")
        terminal.show("With your next message: clipboard.png.")
        (tmp_path / "picture").write_bytes(b"")
        terminal.type("/attach\r")
        terminal.show("There is no picture in the clipboard")
        terminal.type("look\r")
        terminal.show("look\nlook")
    assert [part["type"] for part in parts(keryx, "look")] == ["text", "image"]


def test_options_give_a_model_and_files(connected: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("milk")
    with connected.terminal(
        "chat", "--model", "large", "--attach", str(tmp_path / "notes.txt"), "read"
    ) as terminal:
        terminal.show("Hello.", "large · context")
    assert [part["type"] for part in parts(connected, "read")] == ["text", "file"]
    refused = connected("chat", "--model", "huge", "hello")
    assert refused.code == 3 and "there is no model 'huge'; available: fast, large" in refused.err
    missing = connected("chat", "--attach", str(tmp_path / "gone"), "hello")
    assert missing.code == 2 and "gone: no such file or directory" in missing.err


def test_a_model_given_for_an_earlier_conversation_stays(connected: Cli) -> None:
    connected.ok("send", "--wait", "hello")
    connected.ok("chat", "--continue", "--model", "large", "again")
    (entry,) = connected.json("sessions", "list")["sessions"]
    assert entry["session"]["settings"]["model"] == "large"


def test_a_hyphen_takes_the_input_as_one_message(keryx: Cli) -> None:
    assert keryx.ok("chat", "look at this:", "-", stdin="one\ntwo\n").out == "look at this:\n\none\ntwo\n"
    assert keryx.ok("chat", "-", stdin="/help\n\nlast").out == "/help\n\nlast\n"


def test_an_answer_that_is_stopped_before_its_first_word_leaves_its_mark(keryx: Cli) -> None:
    with keryx.terminal("chat", "!silence please") as terminal:
        terminal.show("Thinking")
        terminal.type("\x03")
        terminal.show("[stopped]", "›")
        terminal.type("on we go\r")
        terminal.show("on we go\non we go")
    assert "[stopped]" in keryx.ok("sessions", "show", "!silence please").out


def test_an_agent_that_crashes_shows_a_sentence_and_no_traceback(keryx: Cli) -> None:
    with keryx.terminal("chat", "!crash") as terminal:
        terminal.show("The agent failed (RuntimeError).", "›")
        leave(terminal)
    assert "Traceback" not in terminal.raw
    log = keryx.home / "chat.log"
    assert "Traceback" in log.read_text() and log.stat().st_mode & 0o077 == 0


def test_a_terminal_without_a_cursor_gets_plain_lines(keryx: Cli) -> None:
    with keryx.terminal("chat", "**one**\n\ntwo", TERM="dumb") as terminal:
        terminal.show("one\n\ntwo\n")
    assert "Thinking" not in terminal.raw


def test_the_chat_speaks_german(connected: Cli, endpoint: Endpoint) -> None:
    endpoint.scripts[:] = [[Stall(), *says("Fertig."), *finish()]]
    with connected.terminal("chat", KERYX_LANGUAGE="de", columns=40) as terminal:
        terminal.show("Neues Gespräch mit llm.", "›")
        terminal.type("/help\r")
        terminal.show("Strg-D beendet", "Tab ergänzt Befehle, Modelle und Titel")
        terminal.type("hallo\r")
        terminal.show("Denkt nach", "Strg-C hält an")
        endpoint.release()
        terminal.show("Fertig.", "fast · Kontext 2 % von 1.000")
        leave(terminal)
        assert all(len(line) <= 40 for line in terminal.screen.splitlines())
        said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.raw)
    names = "queue steer collect interrupt ask auto read minimal low medium high end reset llm fast large hallo Fertig Tab Strg default ID Titel Modelle title model effort busy temp Alt Esc Enter"
    foreign = find_untranslated_words(" ".join(said.split()), names)
    assert not foreign, " ".join(foreign)


def test_every_table_fits_forty_columns(keryx: Cli) -> None:
    session = keryx.session("a rather long first message that becomes a title")
    keryx.ok("send", "a message that waits for a node which does not run")
    keryx.ok("jobs", "add", "every day at 8:30", "tell me what is new in the world of ferries")
    keryx.ok("projects", "add", "holidays in the north")
    for words in (
        ("sessions", "list"),
        ("sessions", "show", session),
        ("turns",),
        ("lanes", "list"),
        ("jobs", "list"),
        ("projects", "list"),
        ("usage",),
        ("people", "list"),
        ("deliveries", "list"),
        ("gateway", "status"),
        ("agents", "list"),
        ("tools", "list"),
        ("config",),
    ):
        with keryx.terminal(*words, columns=40) as terminal:
            assert terminal.exit() == 0
        lines = re.sub(r"\x1b\[[0-9;]*m|\r", "", terminal.raw).splitlines()
        assert lines and max(map(len, lines)) <= 40, (words, lines)
