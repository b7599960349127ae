"""Tools that every agent has: search and read conversations, send messages, manage jobs. They never reach further than the rights of the owner of the session."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from keryx.agents.tools import Permission, ToolFailed, ToolOutput, ToolSpec
from keryx.core.errors import Forbidden, KeryxError, NotFound
from keryx.core.ids import OPERATOR, SessionId
from keryx.core.messages import Mark, Message, Role
from keryx.core.ports.agent import TurnContext
from keryx.core.sessions import Viewer
from keryx.core.texts import ENGLISH
from keryx.engine.hub import Hub
from keryx.engine.hub.views import MessageRange
from keryx.engine.units import jobs
from keryx.store.search import SearchHit

T = TypeVar("T", bound=msgspec.Struct)
_MAX_LIMIT = 100
_MAX_PAGES = 5


class NoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class SearchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: str
    limit: int = 10


class ReadArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    conversation: str
    after: int = 0
    limit: int = 50


class SendArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    text: str


class AddJobArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schedule: str
    prompt: str
    name: str = ""
    to: str = ""
    zone: str = ""


class JobAction(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    RUN = "run"
    REMOVE = "remove"


class ChangeJobArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    job: str
    action: JobAction


def _build_schema(required: Sequence[str], **properties: tuple[str, str]) -> dict[str, Any]:
    fields = {name: {"type": kind, "description": about} for name, (kind, about) in properties.items()}
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


SPECS = (
    ToolSpec(
        name="search_conversations",
        description="Search this person's past conversations. Gives passages, each with the id of its conversation and message.",
        parameters=_build_schema(
            ["query"],
            query=("string", 'Words, "a phrase", prefix*, -without; also from: tool: before: after:'),
            limit=("integer", "How many passages at most; 10 unless told."),
        ),
        repeatable=True,
    ),
    ToolSpec(
        name="read_conversation",
        description="Read messages of one past conversation, oldest first.",
        parameters=_build_schema(
            ["conversation"],
            conversation=("string", "The id or title of a conversation."),
            after=("integer", "Begin after the message of this number."),
            limit=("integer", "How many messages at most; 50 unless told."),
        ),
        repeatable=True,
    ),
    ToolSpec(
        name="send_message",
        description="Send a text to another place where this person talks. The answer to the conversation itself needs no tool.",
        parameters=_build_schema(
            ["target", "text"],
            target=(
                "string",
                "origin, <platform> for its home channel, or <platform>:<chat>[:<thread>] of a place this person talks in.",
            ),
            text=("string", "What to send."),
        ),
        permission=Permission.ASK,
    ),
    ToolSpec(
        name="list_jobs",
        description="List this person's scheduled jobs, each with its schedule and what became of its last run.",
        parameters=_build_schema([]),
        repeatable=True,
    ),
    ToolSpec(
        name="add_job",
        description="Schedule a prompt: at its time it is answered in a conversation of its own, and the answer is sent.",
        parameters=_build_schema(
            ["schedule", "prompt"],
            schedule=(
                "string",
                "30m or in two hours (once), tomorrow at nine, on friday at 14:00, next monday at noon, every 2h, every weekday"
                " at 8:30, cron such as 0 9 * * mon-fri, @daily, or 2030-01-31T09:00.",
            ),
            prompt=("string", "What is to be done then. Nothing else of this conversation is known there."),
            name=("string", "A short name; without one it is made from the prompt."),
            to=("string", "Where the answer is sent: origin unless told, or places as in send_message."),
            zone=("string", "The time zone, such as Europe/Berlin; that of the person unless told."),
        ),
        permission=Permission.ASK,
    ),
    ToolSpec(
        name="change_job",
        description="Pause, resume, run at once or remove one of this person's scheduled jobs.",
        parameters=_build_schema(
            ["job", "action"],
            job=("string", "The name or id of a job."),
            action=("string", "pause, resume, run or remove."),
        ),
        permission=Permission.ASK,
    ),
)


class BuiltinTools:
    """Calls the hub with the rights of the owner of the session."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._run: dict[str, Callable[[Mapping[str, Any], TurnContext], Awaitable[str]]] = {
            "search_conversations": self._search,
            "read_conversation": self._read,
            "send_message": self._send,
            "list_jobs": self._list_jobs,
            "add_job": self._add_job,
            "change_job": self._change_job,
        }

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        return SPECS

    def warnings(self, context: TurnContext) -> Sequence[str]:
        return ()

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
        try:
            return ToolOutput(await self._run[name](arguments, context))
        except KeryxError as exc:
            raise ToolFailed(str(exc)) from exc

    async def _search(self, arguments: Mapping[str, Any], context: TurnContext) -> str:
        return await search_conversations(
            self._hub, _build_viewer(context), arguments, within=_find_only_session(context)
        )

    async def _read(self, arguments: Mapping[str, Any], context: TurnContext) -> str:
        return await read_conversation(
            self._hub, _build_viewer(context), arguments, within=_find_only_session(context)
        )

    async def _send(self, arguments: Mapping[str, Any], context: TurnContext) -> str:
        parsed = _parse_arguments(arguments, SendArguments)
        targets = await self._hub.deliveries.post(
            _build_viewer(context),
            context.turn,
            parsed.target,
            parsed.text,
            alone=_find_only_session(context) is None,
        )
        return f"It is on its way to {', '.join(map(str, targets))}."

    async def _list_jobs(self, arguments: Mapping[str, Any], context: TurnContext) -> str:
        _parse_arguments(arguments, NoArguments)
        _check_owner(context)
        listed = await self._hub.jobs.list_with_last_run(_build_viewer(context))
        return "\n".join(jobs.render_line(job, last, ENGLISH) for job, last in listed) or "There are no jobs."

    async def _add_job(self, arguments: Mapping[str, Any], context: TurnContext) -> str:
        request = msgspec.convert(
            _parse_arguments(arguments, AddJobArguments), jobs.JobRequest, from_attributes=True
        )
        _check_owner(context)
        job = await self._hub.jobs.add_from_turn(
            _build_viewer(context), context.turn, request, alone=_find_only_session(context) is None
        )
        return f"Made. {jobs.render_line(job, (), ENGLISH)}"

    async def _change_job(self, arguments: Mapping[str, Any], context: TurnContext) -> str:
        parsed = _parse_arguments(arguments, ChangeJobArguments)
        _check_owner(context)
        hub_jobs = self._hub.jobs
        by_action = {
            JobAction.PAUSE: hub_jobs.pause,
            JobAction.RESUME: hub_jobs.resume,
            JobAction.RUN: hub_jobs.run,
            JobAction.REMOVE: hub_jobs.remove,
        }
        await by_action[parsed.action](_build_viewer(context), parsed.job)
        return f"Done: {parsed.action.value} {parsed.job}."


def _check_owner(context: TurnContext) -> None:
    """Raise `Forbidden` unless the owner asks: jobs run with the rights of the owner."""
    if context.asker not in (context.owner, OPERATOR):
        raise Forbidden("only whoever began this conversation can have jobs here")


async def search_conversations(
    hub: Hub, viewer: Viewer, arguments: Mapping[str, Any], *, within: SessionId | None = None
) -> str:
    """Run the tool `search_conversations`; `within` limits it to one conversation."""
    parsed = _parse_arguments(arguments, SearchArguments)
    limit = max(1, min(parsed.limit, _MAX_LIMIT))
    hits: list[SearchHit] = []
    if within is None:
        found = await hub.search(viewer, parsed.query, limit=limit)
        hits = [h for h in found if _is_visible(h.message)]
    else:
        for page in range(_MAX_PAGES):
            found = await hub.search(viewer, parsed.query, limit=_MAX_LIMIT, offset=page * _MAX_LIMIT)
            hits += [h for h in found if h.session.id == within and _is_visible(h.message)]
            if len(hits) >= limit or len(found) < _MAX_LIMIT:
                break
    return "\n\n".join(map(_render_hit, hits[:limit])) or "Nothing was found."


async def read_conversation(
    hub: Hub, viewer: Viewer, arguments: Mapping[str, Any], *, within: SessionId | None = None
) -> str:
    """Run the tool `read_conversation`; `within` limits it to one conversation."""
    parsed = _parse_arguments(arguments, ReadArguments)
    session = await hub.resolve(viewer, parsed.conversation)
    if within is not None and session.id != within:
        raise Forbidden("others listen in here, so only this conversation can be read")
    limit = max(1, min(parsed.limit, _MAX_LIMIT))
    window = MessageRange(after=max(0, parsed.after), limit=limit)
    messages = (await hub.page(viewer, session.id, window)).messages
    lines = [f"{session.title or 'untitled'}: conversation {session.id}, {session.last_seq} messages"]
    for message in messages:
        if _is_visible(message) and message.role is not Role.TOOL and message.text.strip():
            author = message.author or message.role.value
            mark = f" ({ENGLISH.say(f'mark.{message.mark.value}')})" if message.mark else ""
            lines.append(f"#{message.seq} {author}, {message.at:%Y-%m-%d %H:%M}{mark}: {message.text}")
    if not messages or messages[-1].seq >= session.last_seq:
        lines.append("That is the end.")
    else:
        lines.append(f"There is more: read on with after={messages[-1].seq}.")
    return "\n\n".join(lines)


_READ_TOOLS: dict[str, Callable[[Hub, Viewer, Mapping[str, Any]], Awaitable[str]]] = {
    "search_conversations": search_conversations,
    "read_conversation": read_conversation,
}
READ_SPECS = tuple(spec for spec in SPECS if spec.name in _READ_TOOLS)
"""The tools that other agents have over MCP. They only read."""


async def call_read_tool(hub: Hub, viewer: Viewer, name: str, arguments: Mapping[str, Any]) -> str:
    """Run a tool of `READ_SPECS`. Raise `NotFound` if there is none with this name."""
    if name not in _READ_TOOLS:
        raise NotFound(f"there is no tool {name[:80]!r}: the tools are {', '.join(_READ_TOOLS)}")
    text = await _READ_TOOLS[name](hub, viewer, arguments)
    # Stored text may contain lone surrogates, which not every reader of JSON accepts.
    return text.encode("utf-8", "replace").decode()


def _is_visible(message: Message | None) -> bool:
    """Whether the model may read a message that was found; `None` is a title."""
    return message is None or not (message.undone or message.mark is Mark.WITHDRAWN)


def _parse_arguments(arguments: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(dict(arguments), kind, strict=False)
    except msgspec.ValidationError as exc:
        raise ToolFailed(f"The arguments are wrong: {exc}. Nothing was done.") from exc


def _build_viewer(context: TurnContext) -> Viewer:
    return Viewer(context.profile, context.owner)


def _find_only_session(context: TurnContext) -> SessionId | None:
    """Return the session of the turn if people other than the owner read the answer, so that they see no other session."""
    others = context.shared or context.asker not in (context.owner, OPERATOR)
    return context.session if others else None


def _render_hit(hit: SearchHit) -> str:
    name = hit.session.title or "untitled"
    if hit.message is None:
        return f"{name} (conversation {hit.session.id}, {hit.session.active_at:%Y-%m-%d})"
    return f"{name} (conversation {hit.session.id}, message {hit.message.seq}, {hit.message.at:%Y-%m-%d %H:%M})\n{hit.snippet.text}"
