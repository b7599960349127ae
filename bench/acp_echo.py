"""A bare echo agent on the protocol's own Python library: the floor of the benchmark of `keryx acp`."""

import asyncio
from typing import Any, cast
from uuid import uuid4

import acp
from acp import schema


class Echo:
    """Says every word of a prompt as a piece of its own, and remembers nothing."""

    def __init__(self) -> None:
        self._client: acp.Client | None = None

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=1)

    async def new_session(self, **kwargs: Any) -> schema.NewSessionResponse:
        return schema.NewSessionResponse(session_id=uuid4().hex)

    async def prompt(self, prompt: list[Any], session_id: str, **kwargs: Any) -> schema.PromptResponse:
        assert self._client
        for word in prompt[0].text.split(" ")[2:]:
            await self._client.session_update(
                session_id=session_id, update=acp.update_agent_message_text(f"{word} ")
            )
        return schema.PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(acp.run_agent(cast(acp.Agent, Echo())))
