"""Your own agent in Keryx: a function that takes the turn's context and yields events.

Keryx stores each event before it goes on, shows the text while it comes, and keeps what was said if the process
dies. Raise `AgentFailed` to end a turn with a sentence for the person. Use it with

    KERYX_AGENT=own_agent:agent PYTHONPATH=examples keryx serve
"""

from collections.abc import AsyncGenerator

from keryx import (
    AgentEvent,
    AgentFailed,
    Role,
    TextDelta,
    ToolCall,
    ToolCallEvent,
    ToolResult,
    ToolResultEvent,
    TurnContext,
)


async def agent(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    """Count the words of the question, as if a tool did it, and say how many there are."""
    question = next((m.text for m in reversed(context.turn_messages) if m.role is Role.USER), "")
    if not question.strip():
        raise AgentFailed("There is nothing to count: send some words.")
    yield TextDelta("Let me count. ")
    call = ToolCall(f"{context.turn}-{context.attempt}", "count", "{}", repeatable=True)
    yield ToolCallEvent((call,))  # stored when this line is passed; run the tool after it, never before
    count = len(question.split())
    yield ToolResultEvent(ToolResult(call.id, call.name, str(count)))
    yield TextDelta("You sent one word." if count == 1 else f"You sent {count} words.")
