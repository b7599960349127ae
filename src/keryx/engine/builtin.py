"""Built-in tools: an agent's own reach into past conversations and to other places, never further than its asker's."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from keryx.agents.tools import Output, Permission, Spec, ToolFailed
from keryx.core.errors import Forbidden, KeryxError
from keryx.core.ids import OPERATOR, SessionId
from keryx.core.messages import Message, Role
from keryx.core.ports import TurnContext
from keryx.core.sessions import Session, Viewer
from keryx.engine.hub import Hub
from keryx.store.search import Hit

T = TypeVar("T", bound=msgspec.Struct)
_PAGE = 100
_PAGES = 5


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: str
    limit: int = 10


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    conversation: str
    after: int = 0
    limit: int = 50


class Send(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    text: str


def _schema(required: Sequence[str], **properties: tuple[str, str]) -> dict[str, Any]:
    shown = {name: {"type": kind, "description": about} for name, (kind, about) in properties.items()}
    return {
        "type": "object",
        "properties": shown,
        "required": list(required),
        "additionalProperties": False,
    }


SPECS = (
    Spec(
        name="search_conversations",
        description="Search this person's past conversations. Gives passages, each with the id of its conversation and message.",
        parameters=_schema(
            ["query"],
            query=("string", 'Words, "a phrase", prefix*, -without; also from: tool: before: after:'),
            limit=("integer", "How many passages at most; 10 unless told."),
        ),
        repeatable=True,
    ),
    Spec(
        name="read_conversation",
        description="Read messages of one past conversation, oldest first.",
        parameters=_schema(
            ["conversation"],
            conversation=("string", "The id or title of a conversation."),
            after=("integer", "Begin after the message of this number."),
            limit=("integer", "How many messages at most; 50 unless told."),
        ),
        repeatable=True,
    ),
    Spec(
        name="send_message",
        description="Send a text to another place where this person talks. The answer to the conversation itself needs no tool.",
        parameters=_schema(
            ["target", "text"],
            target=("string", "origin, or <platform>:<chat>[:<thread>] of a place this person talks in."),
            text=("string", "What to send."),
        ),
        permission=Permission.ASK,
    ),
)


class BuiltinTools:
    """Asks the hub in the name of whoever asked for the turn."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._run: dict[str, Callable[[Mapping[str, Any], TurnContext], Awaitable[str]]] = {
            "search_conversations": self._search,
            "read_conversation": self._read,
            "send_message": self._send,
        }

    async def specs(self, context: TurnContext) -> Sequence[Spec]:
        return SPECS

    def troubles(self, context: TurnContext) -> Sequence[str]:
        return ()

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> Output:
        try:
            return Output(await self._run[name](arguments, context))
        except KeryxError as exc:
            raise ToolFailed(str(exc)) from exc

    async def _search(self, arguments: Mapping[str, Any], context: TurnContext) -> str:
        return await search(self._hub, _viewer(context), arguments, within=_confines(context))

    async def _read(self, arguments: Mapping[str, Any], context: TurnContext) -> str:
        return await read(self._hub, _viewer(context), arguments, within=_confines(context))

    async def _send(self, arguments: Mapping[str, Any], context: TurnContext) -> str:
        asked = _given(arguments, Send)
        sent = await self._hub.post(
            _viewer(context), context.turn, asked.target, asked.text, alone=_confines(context) is None
        )
        return f"It is on its way to {', '.join(map(str, sent))}."


async def search(
    hub: Hub, viewer: Viewer, arguments: Mapping[str, Any], *, within: SessionId | None = None
) -> str:
    """What `search_conversations` answers; `within` limits it to one conversation."""
    asked = _given(arguments, Search)
    hits = await _hits(hub, viewer, asked.query, max(1, min(asked.limit, _PAGE)), within)
    return "\n\n".join(map(_passage, hits)) or "Nothing was found."


async def read(
    hub: Hub, viewer: Viewer, arguments: Mapping[str, Any], *, within: SessionId | None = None
) -> str:
    """What `read_conversation` answers; `within` limits it to one conversation."""
    asked = _given(arguments, Read)
    session = await hub.resolve(viewer, asked.conversation)
    if within is not None and session.id != within:
        raise Forbidden("others listen in here, so only this conversation can be read")
    limit = max(1, min(asked.limit, _PAGE))
    messages = await hub.messages(viewer, session.id, after=max(0, asked.after), limit=limit)
    return "\n\n".join([_heading(session), *filter(None, map(_line, messages)), _more(session, messages)])


async def _hits(hub: Hub, viewer: Viewer, query: str, limit: int, within: SessionId | None) -> list[Hit]:
    if within is None:
        return await hub.search(viewer, query, limit=limit)
    found: list[Hit] = []
    for page in range(_PAGES):
        hits = await hub.search(viewer, query, limit=_PAGE, offset=page * _PAGE)
        found += [h for h in hits if h.session.id == within]
        if len(found) >= limit or len(hits) < _PAGE:
            break
    return found[:limit]


def _given(arguments: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(dict(arguments), kind, strict=False)
    except msgspec.ValidationError as exc:
        raise ToolFailed(f"The arguments are wrong: {exc}. Nothing was done.") from exc


def _viewer(context: TurnContext) -> Viewer:
    """In whose name the tools ask: the owner of the session, whose place this is."""
    return Viewer(context.profile, context.owner)


def _confines(context: TurnContext) -> SessionId | None:
    """The conversation of the turn, where somebody else than the owner would learn what is found in others."""
    others = context.shared or context.asker not in (context.owner, OPERATOR)
    return context.session if others else None


def _passage(hit: Hit) -> str:
    name = hit.session.title or "untitled"
    if hit.message is None:
        return f"{name} (conversation {hit.session.id}, {hit.session.active_at:%Y-%m-%d})"
    return f"{name} (conversation {hit.session.id}, message {hit.message.seq}, {hit.message.at:%Y-%m-%d %H:%M})\n{hit.snippet.text}"


def _heading(session: Session) -> str:
    return f"{session.title or 'untitled'}: conversation {session.id}, {session.last_seq} messages"


def _line(message: Message) -> str:
    if message.undone or message.role is Role.TOOL or not message.text.strip():
        return ""
    who = message.author or message.role.value
    return f"#{message.seq} {who}, {message.at:%Y-%m-%d %H:%M}: {message.text}"


def _more(session: Session, messages: Sequence[Message]) -> str:
    if not messages or messages[-1].seq >= session.last_seq:
        return "That is the end."
    return f"There is more: read on with after={messages[-1].seq}."
