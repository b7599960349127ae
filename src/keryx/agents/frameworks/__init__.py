"""Agents written with a framework: recognised by what they offer, and given the conversation in their own form. A framework is imported only for an agent that uses it."""

import base64
from collections.abc import AsyncGenerator, Callable, Iterable
from importlib import import_module
from typing import Any, TypeAlias, cast

import msgspec

from keryx.core import prompt
from keryx.core.errors import NotFound
from keryx.core.messages import Audio, File, Image, Message, Role, ToolCall, ToolResult, join_text
from keryx.core.ports.agent import AgentEvent, TurnContext
from keryx.jsonrpc import as_object

RunFunction: TypeAlias = Callable[[TurnContext], AsyncGenerator[AgentEvent, None]]

# What the agents of each framework offer, with the module that runs them.
_FRAMEWORKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("openai_agents", ("handoffs", "model_settings", "get_system_prompt", "input_guardrails")),
    ("compiled_graph", ("astream", "aget_state", "channels", "checkpointer")),
    ("adk_agent", ("run_async", "sub_agents", "find_agent", "parent_agent")),
)


class Picture(msgspec.Struct, frozen=True):
    mime: str
    body: bytes

    @property
    def url(self) -> str:
        return f"data:{self.mime};base64,{base64.b64encode(self.body).decode()}"


class HistoryStep(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the conversation, in what all frameworks have in common."""

    id: str
    role: Role
    text: str = ""
    pictures: tuple[Picture, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


def find_run(target: object) -> RunFunction | None:
    """Return the function that runs an agent of a framework, `None` if it is none."""
    for module, names in _FRAMEWORKS:
        if all(hasattr(target, name) for name in names):
            adapter: Any = import_module(f"{__name__}.{module}")
            return adapter.build_run(target)
    return None


async def load_steps(context: TurnContext) -> list[HistoryStep]:
    """Return the conversation as the model sees it. It ends with what is to be answered."""
    return await convert_messages(context, await context.history())


async def convert_messages(context: TurnContext, messages: Iterable[Message]) -> list[HistoryStep]:
    return [
        await _convert_message(context, message)
        for message in messages
        if message.role in (Role.USER, Role.ASSISTANT, Role.TOOL)
    ]


def describe_context(context: TurnContext) -> str:
    """Return what the agent is told before the conversation: where it speaks, and what was said long ago."""
    summary = f"What was said before:\n\n{context.summary}" if context.summary else ""
    return "\n\n".join(
        text for text in (context.place.strip(), summary, context.options.instructions) if text
    )


async def _convert_message(context: TurnContext, message: Message) -> HistoryStep:
    texts = [_render_text(context, message)]
    pictures: list[Picture] = []
    for part in message.parts:
        match part:
            case Image():
                picture = await _fetch_picture(context, part)
                pictures += [picture] if picture else []
                texts += [] if picture else [f"[picture {part.name or part.media}, which was deleted]"]
            case Audio() if part.transcript:
                texts.append(part.transcript)
            case File() | Audio():
                texts.append(f"[file {part.name or part.media}, {part.mime}]")
            case _:
                pass
    return HistoryStep(
        id=f"keryx-{message.session}.{message.seq}",
        role=message.role,
        text="\n".join(filter(None, texts)),
        pictures=tuple(pictures),
        calls=tuple(part for part in message.parts if isinstance(part, ToolCall)),
        results=tuple(part for part in message.parts if isinstance(part, ToolResult)),
    )


def _render_text(context: TurnContext, message: Message) -> str:
    """Return the text of a message as a model of Keryx itself is shown it: that of a person with its time and its author."""
    text = message.exact
    if message.role is not Role.USER:
        return join_text(message.parts) if text is None else text
    if text is None:
        text = (prompt.format_speaker(message.author) if context.shared else "") + join_text(message.parts)
    message_id = message.platform_id if context.show_ids else ""
    return (prompt.format_stamp(message.at, zone=context.zone, message_id=message_id) + text).rstrip()


async def _fetch_picture(context: TurnContext, part: Image) -> Picture | None:
    try:
        found = await context.fetch(part.media)
    except NotFound:
        return None
    return Picture(found.mime, found.body)


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call. Arguments that are not an object are passed on as text."""
    try:
        return msgspec.json.decode(call.input or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return {"input": call.input}


def join_texts(contents: Any) -> str:
    """Return the text of a content that is a text or a list of blocks."""
    if isinstance(contents, str):
        return contents
    return "".join(block if isinstance(block, str) else _read_block(block) for block in as_list(contents))


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged, `None` as an empty list, and any other value as a list of it."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [] if value is None else [value]


def _read_block(block: Any) -> str:
    found = as_object(block)
    return str(found.get("text") or "") if found.get("type") in ("text", "output_text") else ""
