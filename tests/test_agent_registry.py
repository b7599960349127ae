"""Who answers: the agents that the settings name, and which of them a conversation has."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders import OPERATORS

from keryx import agent_registry, config
from keryx.agents.acp import AcpAgent
from keryx.agents.agent_config import AgentKind
from keryx.agents.echo import EchoAgent
from keryx.agents.tools import ToolSets
from keryx.core.errors import AgentFailed, Invalid
from keryx.core.ids import ProfileId, SessionId
from keryx.core.sessions import Session, SessionSettings
from keryx.core.source import Source
from keryx.engine.units.place import PlaceFacts
from keryx.engine.units.turn_writes import TurnInput
from keryx.testing import START_TIME
from keryx.timing import SystemClock


def read(home: Path, text: str, **variables: str) -> config.Settings:
    (home / "keryx.toml").write_text(text)
    return config.read({"KERYX_HOME": str(home), **variables})


def build_turn_input(
    *, profile: str = "default", agent: str | None = None, source: Source = Source(platform="web", chat="1")
) -> TurnInput:
    session = Session(
        id=SessionId("s"),
        profile=ProfileId(profile),
        owner=OPERATORS.principal,
        surface="web",
        created_at=START_TIME,
        active_at=START_TIME,
        settings=SessionSettings(agent=agent),
    )
    return TurnInput(session, [], "", PlaceFacts(source=source), False)


THREE = """
agent = "one"
[agents.one]
kind = "echo"
[agents.two]
kind = "acp"
command = ["two"]
idle = "3m"
[profiles.work]
agent = "two"
"""


async def test_the_session_goes_before_its_profile_and_that_before_the_default(tmp_path: Path) -> None:
    settings = read(tmp_path, THREE)
    async with agent_registry.open_agents(settings, ToolSets({}, rules={}), SystemClock()) as agents:
        assert isinstance(agents.choose(build_turn_input()), EchoAgent)
        assert isinstance(agents.choose(build_turn_input(profile="work")), AcpAgent)
        assert isinstance(agents.choose(build_turn_input(profile="work", agent="one")), EchoAgent)
        with pytest.raises(AgentFailed, match="no agent 'gone' any more"):
            agents.choose(build_turn_input(agent="gone"))


async def test_the_place_goes_before_the_profile_and_its_most_specific_rule_counts(tmp_path: Path) -> None:
    rules = """rules = [{ platform = "telegram" }, { platform = "telegram", chat = -42, thread = 7 }]"""
    settings = read(
        tmp_path,
        f'{THREE}[agents.three]\nkind = "echo"\nrules = [{{ chat = -42 }}]\n'.replace('idle = "3m"', rules),
    )

    def at(chat: str, thread: str | None = None) -> Source:
        return Source(platform="telegram", chat=chat, thread=thread)

    async with agent_registry.open_agents(settings, ToolSets({}, rules={}), SystemClock()) as agents:
        two = agents.choose(build_turn_input(agent="two"))
        three = agents.choose(build_turn_input(agent="three"))
        assert agents.choose(build_turn_input(source=at("1"))) is two
        assert agents.choose(build_turn_input(source=at("-42"))) is three
        assert agents.choose(build_turn_input(source=at("-42", "7"))) is two
        assert agents.choose(build_turn_input(source=at("-42"), profile="work")) is three
        assert agents.choose(build_turn_input(source=at("-42"), agent="two")) is two
        assert isinstance(agents.choose(build_turn_input()), EchoAgent)


def test_an_agent_may_be_written_in_place(tmp_path: Path) -> None:
    settings = read(tmp_path, 'agent = { kind = "acp", command = ["gemini", "--acp"], stall = "30s" }')
    assert settings.active_agent == config.INLINE_AGENT
    chosen = settings.agents[config.INLINE_AGENT]
    assert (chosen.kind, chosen.command, chosen.stall) == (
        AgentKind.ACP,
        ("gemini", "--acp"),
        timedelta(seconds=30),
    )


def test_a_variable_goes_before_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, THREE, KERYX_AGENT="two").active_agent == "two"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[agents.x]\nkind = "acp"', "give a command"),
        ('[agents.x]\nkind = "echo"\ncommand = ["x"]', "give a command"),
        ('[agents.x]\nkind = "python"', "give a path"),
        ('[agents.x]\nkind = "acp"\ncommand = ["x"]\nenv = { KEY = "sk-1" }', "not the value itself"),
        ('[agents.x]\nkind = "acp"\ncommand = ["x"]\ncwd = "site"', "not absolute"),
        ('[agents.echo]\nkind = "echo"', "not a name for an agent"),
        ('[agents."A B"]\nkind = "echo"', "not a name for an agent"),
        ('[profiles.work]\nagent = "nobody"', "profiles.work.agent = 'nobody' is not known. Choose local"),
        ('[agents.x]\nkind = "dog"', "dog"),
        ('[agents.x]\nkind = "echo"\nrules = [{}]', "names no place"),
        (
            '[agents.x]\nkind = "echo"\nrules = [{ user = "1" }]',
            r"line 3: Unknown setting agents\.x\.rules\[0\]\.user;",
        ),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        read(tmp_path, text)


async def test_an_agent_that_nobody_knows_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"the name of an \[agents\] table"):
        async with agent_registry.open_agents(
            read(tmp_path, 'agent = "dog"'), ToolSets({}, rules={}), SystemClock()
        ):
            pass
