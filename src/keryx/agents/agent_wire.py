"""How a turn of a Python agent crosses the border of its process: the context, the events, the calls of the context and the errors as JSON."""

import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, cast, get_args

import msgspec

from keryx.core.clock import Clock
from keryx.core.errors import (
    AgentFailed,
    AgentRefused,
    Conflict,
    Forbidden,
    Invalid,
    KeryxError,
    NotFound,
    QuotaReached,
    Unavailable,
)
from keryx.core.media import Attachment
from keryx.core.messages import Message
from keryx.core.ports.agent import AgentEvent, TurnContext
from keryx.core.questions import Question
from keryx.core.texts import Phrase
from keryx.jsonrpc import Json, as_object
from keryx.plugin_thread import PluginExit, name_error

# Requests of the hub.
LOAD, RUN, PING = "load", "run", "ping"
# Requests of the process of the agent. The answer to `EVENT` comes when the next event is wanted.
EVENT, HISTORY, NEW_MESSAGES, ASK, FETCH = "event", "history", "new_messages", "ask", "fetch"
# A notification of it: a record for the log.
LOG = "log"
# The longest message of the hub in bytes, such as a long conversation.
MAX_HUB_FRAME_BYTES = 1 << 28
# The longest message of the process of the agent, if files may not be longer. A file of an answer is sent in one, as base64.
_MIN_FRAME_BYTES = 32_000_000
_FRAME_MARGIN = 100_000

_EVENT_TYPES: dict[str, type[AgentEvent]] = {kind.__name__: kind for kind in get_args(AgentEvent)}
_ERROR_TYPES: dict[str, type[KeryxError]] = {
    kind.__name__: kind
    for kind in (AgentFailed, AgentRefused, Conflict, Forbidden, Invalid, NotFound, Unavailable)
}
# What the context has besides values.
_CALLS = ("history", "fetch_new_messages", "ask", "fetch", "clock")
_FIELD_TYPES = {
    field.name: field.type for field in msgspec.structs.fields(TurnContext) if field.name not in _CALLS
}

Call: TypeAlias = Callable[[str, Json], Awaitable[Json]]


class AgentCrashed(PluginExit):
    """An agent in its own process raised an exception that is not meant for people, or its process ended."""

    def __init__(self, name: str, details: str) -> None:
        super().__init__(name)
        self.details = details

    def __str__(self) -> str:
        return self.details


def compute_frame_limit(file_bytes: int) -> int:
    """Return how long a message of the process of the agent may be in bytes, where files may have `file_bytes`."""
    return max(_MIN_FRAME_BYTES, 4 * file_bytes // 3 + _FRAME_MARGIN)


def decode(value: object, kind: Any) -> Any:
    """Convert a value from the other process to the type `kind`. Raise `AgentCrashed` if it does not fit."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as exc:
        raise AgentCrashed(
            type(exc).__name__, f"the process of the agent sent what cannot be read: {exc}"
        ) from exc


def encode_context(context: TurnContext) -> Json:
    fields = msgspec.structs.asdict(context)
    return {name: fields[name] for name in _FIELD_TYPES}


def decode_context(values: Mapping[str, Any], call: Call, clock: Clock) -> TurnContext:
    """Return the context for the agent. What it calls is a request to the hub."""

    async def load_history() -> Sequence[Message]:
        return await _request(HISTORY, {}, tuple[Message, ...])

    async def fetch_new_messages() -> Sequence[Message]:
        return await _request(NEW_MESSAGES, {}, tuple[Message, ...])

    async def ask(question: Question) -> str | None:
        return await _request(ASK, {"question": question}, str | None)

    async def fetch(media: str) -> Attachment:
        return await _request(FETCH, {"media": media}, Attachment)

    async def _request(method: str, params: Json, kind: Any) -> Any:
        return decode(unwrap(await call(method, params)), kind)

    fields: dict[str, Any] = {
        name: decode(values[name], kind) for name, kind in _FIELD_TYPES.items() if name in values
    }
    return TurnContext(
        **fields,
        history=load_history,
        fetch_new_messages=fetch_new_messages,
        ask=ask,
        fetch=fetch,
        clock=clock,
    )


async def answer_call(context: TurnContext, method: str, params: Json) -> Json:
    """Do what the agent has asked of its context."""
    match method:
        case "history":
            work = context.history()
        case "new_messages":
            work = context.fetch_new_messages()
        case "ask":
            work = context.ask(decode(params.get("question"), Question))
        case "fetch":
            work = context.fetch(decode(params.get("media"), str))
        case _:
            raise Invalid(f"there is no {method!r} in the context of a turn")
    return await wrap(cast(Awaitable[object], work))


def encode_event(event: AgentEvent) -> Json:
    return {"kind": type(event).__name__, "event": event}


def decode_event(values: Json) -> AgentEvent:
    kind = _EVENT_TYPES.get(str(values.get("kind")))
    if kind is None:
        raise AgentCrashed(
            "unknown event", f"the process of the agent sent an unknown event: {values.get('kind')!r}"
        )
    return decode(values.get("event"), kind)


async def wrap(work: Awaitable[object]) -> Json:
    """Await something and return its value, or its error as values: the errors of JSON-RPC are texts only."""
    try:
        return {"value": await work}
    except KeryxError as exc:
        kinds = [kind.__name__ for kind in type(exc).__mro__]
        outcome: Json = {"kinds": kinds, "message": str(exc), "text": _encode_text(exc.text)}
        if isinstance(exc, QuotaReached):
            outcome |= {"until": exc.until, "model": exc.model}
        return outcome
    except Exception as exc:  # noqa: BLE001 it is raised on the other side
        stack = "".join(traceback.format_exception(exc))
        return {"kinds": [name_error(exc)], "message": f"{name_error(exc)}: {exc}\n{stack}"}


def unwrap(outcome: Json) -> Any:
    """Return the value of `wrap`, or raise its error."""
    if "kinds" not in outcome:
        return outcome.get("value")
    kinds, message = decode(outcome["kinds"], list[str]), str(outcome.get("message"))
    if QuotaReached.__name__ in kinds:
        until = decode(outcome.get("until"), datetime)
        raise QuotaReached(
            message, _decode_text(outcome.get("text")), until=until, model=str(outcome.get("model"))
        )
    known = next((_ERROR_TYPES[kind] for kind in kinds if kind in _ERROR_TYPES), None)
    if known is None:
        raise AgentCrashed(kinds[0], message)
    raise known(message, _decode_text(outcome.get("text")))


def _encode_text(text: object) -> object:
    """Return a text, or the key and the fields of a phrase, which may be phrases too."""
    if isinstance(text, Phrase):
        return {"key": text.key, "fields": {name: _encode_text(value) for name, value in text.fields.items()}}
    return text if isinstance(text, int | float | None) else str(text)


def _decode_text(value: Any) -> Any:
    phrase = as_object(value)
    if not phrase:
        return value
    fields = {name: _decode_text(field) for name, field in as_object(phrase.get("fields")).items()}
    return Phrase(str(phrase.get("key")), **fields)
