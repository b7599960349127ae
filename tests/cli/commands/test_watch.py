"""`keryx watch`: what it prints, what it refuses, and a node that watches by itself."""

import json
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.importers.samples import write_lines
from tests.watch.test_session_watcher import QUESTION, REPLY, append, claude_talk

from keryx import config
from keryx.agents.agent_config import AgentConfig, AgentKind
from keryx.core.errors import Invalid


@pytest.fixture
def watched(keryx: Cli, tmp_path: Path) -> tuple[Cli, Path]:
    home = tmp_path / "person"
    file = write_lines(home / ".claude/projects/-work/s1.jsonl", claude_talk(0, "", "hello there", "Hello."))
    variables = {"HOME": str(home), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": "", "XDG_DATA_HOME": ""}
    return Cli(keryx.home, **variables), file


def test_it_shows_what_is_there_and_adds_what_is_new(watched: tuple[Cli, Path]) -> None:
    keryx, file = watched
    said = keryx.ok("watch", "--once").out
    assert said == "1 conversation is new or longer, by 2 messages.\n"
    append(file, *claude_talk(10, "w1", QUESTION, REPLY))
    assert keryx.json("watch", "claude-code", "--once")["messages"] == 2
    assert keryx.ok("watch", "--once").out == "Nothing new.\n"
    assert "Nothing of Qwen Code is here. Looked for" in keryx.ok("watch", "qwen", "--once").out
    assert keryx.json("watch", "qwen", "--once")["messages"] == 0
    assert REPLY in keryx.ok("sessions", "show", "s1").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("emacs",), "cannot be watched: choose from claude-code"),
        (("--to", "https://keryx.example.org"), "--to together with --key"),
        (("--to", "http://keryx.example.org", "--key", "env:KEY"), "write https://"),
        (("--to", "https://keryx.example.org", "--key", "the-key-itself"), "env:NAME"),
    ],
)
def test_wrong_words_are_refused_with_what_to_do(
    watched: tuple[Cli, Path], words: tuple[str, ...], said: str
) -> None:
    keryx, _ = watched
    result = Cli(keryx.home, **{**keryx.variables, "KEY": "secret"})("watch", "--once", *words)
    assert result.code != 0 and said in result.err


def test_a_node_watches_if_the_settings_say_so(watched: tuple[Cli, Path]) -> None:
    keryx, file = watched
    with keryx.serving(KERYX_WATCH_ENABLED="true"):
        keryx.until("hello there", "sessions", "list")
        append(file, *claude_talk(10, "w1", QUESTION, REPLY))
        keryx.until(REPLY, "sessions", "show", "s1")


def test_a_remote_without_a_store_pushes_with_the_key_of_a_device(
    watched: tuple[Cli, Path], tmp_path: Path
) -> None:
    keryx, _ = watched
    secret = json.loads(keryx.ok("keys", "add", "laptop", "--json").out)["secret"]
    (tmp_path / "key").write_text(secret)
    laptop = Cli(tmp_path / "laptop", **{k: v for k, v in keryx.variables.items() if k != "KERYX_HOME"})
    with keryx.serving() as node:
        words = ("watch", "--to", node.address, "--key", f"file:{tmp_path / 'key'}", "--once")
        assert "by 2 messages" in laptop.ok(*words).out
        assert laptop.ok(*words).out == "Nothing new.\n"
    assert "Hello." in keryx.ok("sessions", "show", "s1").out
    assert not (tmp_path / "laptop/keryx.db").exists()


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (("claude-agent-acp",), "claude-code"),
        (("npx", "-y", "@agentclientprotocol/claude-agent-acp@0.100.0"), "claude-code"),
        (("/usr/bin/codex-acp",), "codex"),
        (("opencode", "acp"), "opencode"),
        (("goose", "acp"), "goose"),
        (("gemini", "--acp"), ""),
        (("qwen", "--experimental-acp"), "qwen"),
        (("opencode",), ""),
        (("my-agent", "acp"), ""),
    ],
)
def test_the_command_of_an_agent_tells_whose_conversations_it_continues(
    command: tuple[str, ...], program: str
) -> None:
    assert AgentConfig(kind=AgentKind.ACP, command=command).program == program


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[watch]\nprograms = ["emacs"]', "watch.programs: 'emacs' is not known. Choose claude-code"),
        (
            '[agents.x]\nkind = "acp"\ncommand = ["x"]\ncontinues = "emacs"',
            "agents.x.continues = 'emacs' is not known. Choose claude-code",
        ),
    ],
)
def test_settings_with_an_unknown_program_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "keryx.toml").write_text(text)
    with pytest.raises(Invalid, match=said):
        config.read({"KERYX_HOME": str(tmp_path)})
