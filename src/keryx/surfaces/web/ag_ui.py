"""The AG-UI protocol at /ag-ui: a run is a turn, a thread is a conversation. A request has the whole conversation and the answer is a stream of events.

What the client has already, it names by the ids of its messages, so that a run that was cut is continued where it was."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from msgspec import Meta
from starlette.responses import Response
from starlette.types import ASGIApp

from keryx.core.errors import Conflict, Invalid, KeryxError
from keryx.core.ids import QuestionId, TurnId
from keryx.core.ports.agent import RequestOptions
from keryx.core.questions import AskedQuestion, Consent, format_question
from keryx.core.texts import Texts
from keryx.core.turns import TurnState
from keryx.engine.hub.api_turns import DEFAULT_MODEL, ApiTurnRequest, ApiTurnView
from keryx.jsonrpc import as_object, as_objects, as_text
from keryx.surfaces.web.openai_api import ItemKind, Json, OutputItem, list_output, request_bodies
from keryx.surfaces.web.openai_api.generation_routes import build_reader
from keryx.surfaces.web.openai_api.request_bodies import MAX_BODY_BYTES, LooseQuery
from keryx.surfaces.web.openai_api.turn_responses import (
    MEDIA_TYPES,
    ErrorFormat,
    TurnResponse,
    encode_event,
)
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.request_schema import RequestForm
from keryx.surfaces.web.responses import respond_to_error

router = ApiRouter()

PATH = "/ag-ui"
VERSION = "1.0"
# The ids of messages that were sent to a client.
_OWN_ID = re.compile(r"(?P<kind>msg|rs|mcp|fc)_(?P<turn>[0-9A-Za-z]+)_\d+(?:_\d+|_result)?\Z")
_RUN_ID = Annotated[str, Meta(min_length=1, max_length=200)]
_FILE_PARTS = frozenset({"image", "audio", "video", "document"})


class AgentRunForm(RequestForm, frozen=True, kw_only=True, forbid_unknown_fields=False, rename="camel"):
    """As in AG-UI. `threadId` is the id of a conversation, or a name that the client chooses; a repeated `runId` is the same run.
    With `model` in `forwardedProps` another model or agent answers."""

    thread_id: _RUN_ID
    run_id: _RUN_ID
    messages: Annotated[list[Json], Meta(max_length=request_bodies.MAX_ITEMS)]
    tools: Annotated[list[Json], Meta(max_length=512)] | None = None
    context: Annotated[list[Json], Meta(max_length=request_bodies.MAX_ITEMS)] | None = None
    forwarded_props: Any = None
    resume: Annotated[list[Json], Meta(max_length=100)] | None = None


@router.post(
    PATH,
    summary="Run the agent, and stream events of AG-UI.",
    media_types=(MEDIA_TYPES[1],),
    body_limit=MAX_BODY_BYTES,
)
async def run_agent(request: ApiRequest, query: LooseQuery, body: AgentRunForm) -> ASGIApp:
    turn = await _find_turn(request, body)
    if turn is None:
        submitted = await request.hub.api_turns.submit(await _build_request(request, body))
        turn = submitted.turn
    events = RunEvents(body.thread_id, body.run_id, body.messages, request.texts)

    def encode(view: ApiTurnView) -> bytes:
        return b"".join(map(encode_event, events.advance(view)))

    def respond_error(error: KeryxError) -> Response:
        return respond_to_error(error, PATH)

    def encode_error(error: KeryxError) -> bytes:
        return encode_event({"type": "RUN_ERROR", "message": str(error), "code": type(error).__name__})

    return TurnResponse(
        request.hub,
        request.services.followers,
        request.viewer,
        turn,
        build=lambda view: {"turn": view.turn.id},
        encode=encode,
        headers={"X-Keryx-Turn": turn},
        errors=ErrorFormat(respond_error, encode_error),
        until=lambda view: events.ended,
        end=b"",
    )


async def _find_turn(request: ApiRequest, body: AgentRunForm) -> TurnId | None:
    """Return the turn that a run continues: the one whose question it answers, or the one whose answer it has in part."""
    if body.resume:
        turns = [await _resume(request, entry) for entry in body.resume]
        return turns[-1]
    last = as_object(body.messages[-1]) if body.messages else {}
    found = _OWN_ID.match(as_text(last.get("id")))
    if found is None or last.get("role") == "user":
        return None
    view = await request.hub.api_turns.load(request.viewer, TurnId(found["turn"]))
    return view.turn.id


async def _resume(request: ApiRequest, entry: Json) -> TurnId:
    """Answer the question that interrupted a run, unless it was answered before, and return its turn."""
    asked = await request.hub.questions.get(request.viewer, QuestionId(as_text(entry.get("interruptId"))))
    view = await request.hub.api_turns.load(request.viewer, asked.turn)
    try:
        payload: object = entry.get("payload")
        if isinstance(payload, dict):
            fields = cast(Json, payload)
            payload = next(
                (fields[name] for name in ("answer", "option", "approved") if name in fields), None
            )
        if entry.get("status") == "cancelled":
            payload = False
        if isinstance(payload, bool):
            allows = (Consent.ALLOW_ONCE, Consent.ALLOW_ALWAYS) if payload else (Consent.DENY_ONCE,)
            payload = next((o.id for o in asked.question.options if o.consent in allows), None)
        if not isinstance(payload, str):
            raise Invalid("`payload` of `resume` is the answer: a text, true or false")
        await request.hub.questions.answer(request.viewer, asked.id, payload)
    except Conflict:
        # The run is repeated, or somebody was faster.
        pass
    return view.turn.id


async def _build_request(request: ApiRequest, body: AgentRunForm) -> ApiTurnRequest:
    reader = build_reader(request)
    said = await reader.read([item for m in body.messages if (item := _convert_message(m)) is not None])
    history, inputs = request_bodies.split_question(said)
    tools, _ = request_bodies.read_tools(
        [{"type": "function", "function": tool} for tool in body.tools or ()]
    )
    notes = [
        f"{as_text(entry.get('description'))}: {as_text(entry.get('value'))}"
        for entry in as_objects(body.context)
    ]
    model = as_text(as_object(body.forwarded_props).get("model")) or DEFAULT_MODEL
    session = await request.hub.api_turns.find_context(request.viewer, body.thread_id)
    return ApiTurnRequest(
        viewer=request.viewer,
        protocol="ag-ui",
        model=model,
        history=() if session else history,
        inputs=inputs,
        options=RequestOptions(instructions="\n\n".join([*reader.instructions, *notes]), tools=tools),
        echo={"model": model},
        key=f"ag-ui:{body.thread_id}:{body.run_id}",
        rejoins=True,
        thread="" if session else f"ag-ui:{body.thread_id}",
        keeps_history=True,
        session=session,
        language=request.language,
    )


def _convert_message(message: Json) -> Json | None:
    """Return a message in the shape of a chat completion; `None` for one that only shows what the agent did."""
    role = message.get("role")
    own = _OWN_ID.match(as_text(message.get("id")))
    if role in ("reasoning", "activity") or (own and own["kind"] in ("mcp", "rs")):
        return None
    content = message.get("content")
    if role == "tool":
        return {"role": "tool", "tool_call_id": message.get("toolCallId"), "content": content}
    if role == "assistant":
        return {"role": role, "content": content, "tool_calls": message.get("toolCalls")}
    if isinstance(content, list):
        content = [_convert_part(part) for part in as_objects(cast(object, content))]
    return {"role": role, "content": content}


def _convert_part(part: Json) -> Json:
    kind = part.get("type")
    if kind == "binary":
        part = {**part, "source": {"value": part.get("data"), "mimeType": part.get("mimeType")}}
    elif kind not in _FILE_PARTS:
        return part
    source = as_object(part.get("source"))
    if source.get("type") not in ("data", None):
        raise Invalid("files are not fetched from other places: send them as `data`")
    mime = as_text(source.get("mimeType")) or "application/octet-stream"
    return {
        "type": "input_file",
        "filename": as_text(part.get("filename")) or str(kind),
        "file_data": f"data:{mime};base64,{as_text(source.get('value'))}",
    }


class RunEvents:
    """Turns the states of a turn into the events of a run, each once, without what the client has already."""

    def __init__(self, thread: str, run: str, messages: Sequence[Json], texts: Texts) -> None:
        self._run = {"threadId": thread, "runId": run}
        self._texts = texts
        # The texts that the client has, by the ids of their messages.
        self._known = {as_text(m.get("id")): as_text(m.get("content")) for m in messages if m.get("id")}
        self._calls = {as_text(c.get("id")) for m in messages for c in as_objects(m.get("toolCalls"))}
        self._results = {as_text(m.get("toolCallId")) for m in messages if m.get("role") == "tool"}
        self._begun = False
        self.ended = False
        # How many items are complete, how much of the text of the next one was sent, and as which message.
        self._items = 0
        self._chars = 0
        self._message = ""

    def advance(self, view: ApiTurnView) -> list[Json]:
        """Return the events that a new state adds."""
        events: list[Json] = []
        items = list_output(view)
        if not self._begun:
            self._begun = True
            events.append({"type": "RUN_STARTED", **self._run, "protocolVersion": VERSION})
        for item in items[self._items :]:
            # What a crash cut off is not shown to a client that has nothing of it.
            skips = item.interrupted and item is not items[-1] and not self._message
            if not (skips and item.id not in self._known):
                events += self._advance_item(item, done=item.done or view.question is not None)
            if not item.done:
                break
            self._items, self._chars = self._items + 1, 0
        if view.turn.state.finished or view.question is not None:
            self.ended = True
            events.append(self._build_end(view, items))
        return events

    def _advance_item(self, item: OutputItem, *, done: bool) -> list[Json]:
        match item.kind:
            case ItemKind.MESSAGE:
                return self._advance_text(item, _TEXT_EVENTS, done=done)
            case ItemKind.REASONING:
                return self._advance_text(item, _REASONING_EVENTS, done=done)
            case ItemKind.FUNCTION_CALL | ItemKind.MCP_CALL:
                return self._advance_call(item)

    def _advance_text(self, item: OutputItem, types: "TextEventTypes", *, done: bool) -> list[Json]:
        events: list[Json] = []
        if not self._message:
            self._chars, next_id = self._find_known(item)
        else:
            next_id = self._message
        if text := item.text[self._chars :]:
            if not self._message:
                self._message = next_id
                events += [{"type": name, "messageId": next_id, **more} for name, more in types.begin]
            events.append({"type": types.content, "messageId": self._message, "delta": text})
            self._chars = len(item.text)
        if done and self._message:
            events += [{"type": name, "messageId": self._message} for name in types.end]
            self._message = ""
        return events

    def _find_known(self, item: OutputItem) -> tuple[int, str]:
        """Return how much of an item the client has, and the id of the message that continues it."""
        chars, id_ = 0, item.id
        while id_ in self._known and (known := self._known[id_]):
            chars += len(known)
            id_ = f"{item.id}_{chars}"
        return min(chars, len(item.text)), id_

    def _advance_call(self, item: OutputItem) -> list[Json]:
        assert item.call is not None
        call, events = item.call, list[Json]()
        if call.id not in self._calls:
            self._calls.add(call.id)
            start = {"toolCallId": call.id, "toolCallName": call.name, "parentMessageId": item.id}
            events.append({"type": "TOOL_CALL_START", **start})
            if call.input:
                events.append({"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": call.input})
            events.append({"type": "TOOL_CALL_END", "toolCallId": call.id})
        if item.result is not None and call.id not in self._results:
            self._results.add(call.id)
            result = {"messageId": f"{item.id}_result", "toolCallId": call.id, "content": item.result.output}
            events.append({"type": "TOOL_CALL_RESULT", **result, "role": "tool"})
        return events

    def _build_end(self, view: ApiTurnView, items: Sequence[OutputItem]) -> Json:
        outcome: Json
        if view.question is not None:
            outcome = {"type": "interrupt", "interrupts": [self._build_interrupt(view.question)]}
        elif view.turn.state is TurnState.DONE:
            pending = [item.call.id for item in items if item.kind is ItemKind.FUNCTION_CALL and item.call]
            outcome = {"type": "success", **({"pendingToolCallIds": pending} if pending else {})}
        elif view.turn.state is TurnState.CANCELLED:
            outcome = {"type": "cancelled"}
        else:
            error = view.turn.error or "the agent failed: look at the conversation"
            return {"type": "RUN_ERROR", "message": error, "code": view.turn.state.value}
        return {"type": "RUN_FINISHED", **self._run, "outcome": outcome}

    def _build_interrupt(self, asked: AskedQuestion) -> Json:
        options = [option.id for option in asked.question.options]
        return {
            "id": asked.id,
            "reason": "permission" if options else "input",
            "message": format_question(asked.question, self._texts),
            "responseSchema": {"type": "string", **({"enum": options} if options else {})},
            "expiresAt": asked.expires_at.isoformat(),
        }


class TextEventTypes:
    """The events of a text: those at its beginning with their fields, the one of its parts, and those at its end."""

    def __init__(
        self, begin: Sequence[tuple[str, Mapping[str, str]]], content: str, end: Sequence[str]
    ) -> None:
        self.begin = begin
        self.content = content
        self.end = end


_TEXT_EVENTS = TextEventTypes(
    [("TEXT_MESSAGE_START", {"role": "assistant"})], "TEXT_MESSAGE_CONTENT", ["TEXT_MESSAGE_END"]
)
_REASONING_EVENTS = TextEventTypes(
    [("REASONING_START", {}), ("REASONING_MESSAGE_START", {"role": "reasoning"})],
    "REASONING_MESSAGE_CONTENT",
    ["REASONING_MESSAGE_END", "REASONING_END"],
)
