"""An agent on the protocol's own Python library: it answers with what it was told."""

import asyncio
from typing import Any, cast

from acp.interfaces import Client

from acp import (
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    run_agent,
    text_block,
    update_agent_message,
)


class Echo:
    _client: Client

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **given: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **given: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id="one")

    async def prompt(self, prompt: list[Any], session_id: str, **given: Any) -> PromptResponse:
        for block in prompt:
            await self._client.session_update(session_id, update_agent_message(text_block(block.text)))
        return PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(run_agent(cast(Any, Echo())))
