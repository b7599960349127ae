"""The protocol's own Python library as the editor."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from tests.acp.driver import command, variables

import acp
from acp import schema

SECONDS = 60


class Desk:
    """An editor that allows everything and keeps what it is shown."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[str] = []

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self,
        options: list[schema.PermissionOption],
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        **kwargs: Any,
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call.title or "")
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        )

    def text(self) -> str:
        chunks = [u for u in self.updates if isinstance(u, schema.AgentMessageChunk)]
        return "".join(c.content.text for c in chunks if isinstance(c.content, schema.TextContentBlock))


@pytest.mark.filterwarnings("default")
async def test_the_python_library_speaks_with_it(tmp_path: Path) -> None:
    desk = Desk()
    program, *arguments = command()
    async with asyncio.timeout(SECONDS):
        async with acp.spawn_agent_process(
            cast(acp.Client, desk),
            program,
            *arguments,
            env=variables(tmp_path / "home"),
            use_unstable_protocol=True,
        ) as (agent, _):
            ready = await agent.initialize(protocol_version=1)
            assert ready.agent_info is not None and ready.agent_info.name == "keryx"
            made = await agent.new_session(cwd="/tmp", mcp_servers=[])
            session = made.session_id
            answer = await agent.prompt(session_id=session, prompt=[acp.text_block("hello")])
            assert (answer.stop_reason, desk.text()) == ("end_turn", "hello")
            await agent.prompt(session_id=session, prompt=[acp.text_block("!ask rm -rf build")])
            assert desk.asked == ["ask: rm -rf build"]
            await agent.set_config_option(session_id=session, config_id="effort", value="low")
            await agent.set_session_mode(session_id=session, mode_id="read")
            running = asyncio.create_task(
                agent.prompt(session_id=session, prompt=[acp.text_block("slow 60 one two")])
            )
            while "one" not in desk.text():  # noqa: ASYNC110 the library tells of updates by no event
                await asyncio.sleep(0.01)
            await agent.cancel(session_id=session)
            assert (await running).stop_reason == "cancelled"
            desk.updates.clear()
            loaded = await agent.load_session(session_id=session, cwd="/tmp", mcp_servers=[])
            assert loaded.modes is not None and loaded.modes.current_mode_id == "read"
            listed = await agent.list_sessions()
            assert [s.session_id for s in listed.sessions] == [session]
            forked = await agent.fork_session(session_id=session, cwd="/tmp", mcp_servers=[])
            assert forked.session_id != session
            await agent.close_session(session_id=session)
            with pytest.raises(acp.RequestError) as refused:
                await agent.prompt(session_id=session, prompt=[acp.text_block("hello")])
            assert refused.value.code == -32002
