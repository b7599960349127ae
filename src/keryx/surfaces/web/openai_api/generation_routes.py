"""Routes that ask for an answer and look at it: /v1/chat/completions and /v1/responses.

A request becomes a turn of the session that it continues. Which one that is, the conversation, the previous response, a header of
the client, its user, or what was said before tells, in this order."""

import re
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from keryx.core import codec
from keryx.core.errors import Invalid, NotFound
from keryx.core.media import Attachment
from keryx.core.messages import Part, Role, Text, join_text
from keryx.core.ports.agent import RequestOptions
from keryx.engine.hub.api_turns import ApiTurnRequest, PastMessage
from keryx.surfaces.web import openai_api
from keryx.surfaces.web.openai_api import Json, parse_conversation_id, parse_response_id, request_bodies
from keryx.surfaces.web.openai_api.request_bodies import (
    MAX_BODY_BYTES,
    ChatCompletionForm,
    InputReader,
    ItemQuery,
    LooseQuery,
    ResponseForm,
    ResponseQuery,
)
from keryx.surfaces.web.openai_api.turn_responses import (
    MEDIA_TYPES,
    Encoder,
    TurnResponse,
    build_chat_document,
    build_chat_encoder,
    build_page,
    build_response_document,
    build_response_encoder,
)
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest

router = ApiRouter()

JSON = ("application/json",)
# The headers that name a conversation, the kind of the name, and whether the client sends the whole conversation each time.
_THREAD_HEADERS = (
    ("x-openwebui-chat-id", "open-webui", True),
    ("x-hermes-session-id", "hermes", False),
    ("x-openclaw-session-key", "openclaw", False),
)
_LONGEST_THREAD = 500
# How far into a message these are looked for.
_MAX_TASK_CHARS = 10_000
# What front ends ask a model beside the conversation: titles, tags, follow-up questions, search queries.
_TASK_PROMPTS = re.compile(
    r"""\s*+(?:
      \#\#\#\ Task:\s++(?!Respond\b)(?=[\s\S]*(?:\#\#\#\ Output|\#\#\#\ Guidelines|chat_history>|completion\ type))
      | (?:Please\ )?(?:Provide|Generate|Write|Create)\ a\ (?:concise|short|brief)[^.\n]{0,60}\ title\b
      | Analyze\ this\ conversation\ and\ provide:
      | Based\ on\ the\ chat\ history,\ give\ this\ conversation\ a\ name
      | Your\ task\ is\ to\ reflect\ the\ speaker's\ likely\ facial\ expression
    )""",
    re.VERBOSE | re.IGNORECASE,
)
# A connection of Open WebUI can send what it asks for, which is empty for a message of a person.
_TASK_HEADER = "x-openwebui-task"
_TASK_BEGINNINGS = (
    "### Task:\nSummarize the conversation history that will be compacted",
    "You have been provided with a set of responses from various models",
)
# The instructions with which a front end lets a model choose tools that it calls itself.
_TOOL_CHOICE = "Your task is to choose and return the correct tool(s)"


@router.post(
    "/v1/chat/completions",
    summary="Answer a conversation, as OpenAI's chat completions do.",
    idempotent=True,
    media_types=MEDIA_TYPES,
    body_limit=MAX_BODY_BYTES,
)
async def create_chat_completion(
    request: ApiRequest, query: LooseQuery, body: ChatCompletionForm
) -> TurnResponse:
    parameters = request_bodies.read_chat_parameters(body)
    reader = build_reader(request)
    said = await reader.read(body.messages)
    history, inputs = request_bodies.split_question(said)
    tools, others = request_bodies.read_tools(body.tools)
    thread, keeps_history = _find_thread(request, body.model, body.user, history)
    task = _is_task(request, reader.instructions, history, inputs)
    asked = ApiTurnRequest(
        viewer=request.viewer,
        model=body.model,
        history=history,
        inputs=inputs,
        options=RequestOptions(
            instructions="\n\n".join(reader.instructions), tools=tools, parameters=parameters
        ),
        echo={"model": body.model},
        key=_read_key(request),
        repeated=_is_repeated(request),
        thread=thread,
        keeps_history=keeps_history,
        temporary=task or body.store is False,
        without_tools=task,
        language=request.language,
    )
    usage = bool(body.stream_options and body.stream_options.include_usage)
    encode = build_chat_encoder(include_usage=usage) if body.stream else None
    return await _answer(request, asked, encode, chat=True, others=others)


@router.post(
    "/v1/responses",
    summary="Answer an input, as OpenAI's responses do.",
    idempotent=True,
    media_types=MEDIA_TYPES,
    body_limit=MAX_BODY_BYTES,
)
async def create_response(
    request: ApiRequest, query: LooseQuery, body: ResponseForm
) -> TurnResponse | Response:
    if body.previous_response_id and body.conversation:
        raise Invalid("give `previous_response_id` or `conversation`, not both")
    reader = build_reader(request)
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    said = await reader.read(items)
    conversation = body.conversation
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
        if not isinstance(conversation, str):
            raise Invalid("`conversation` is an id, or an object with an `id`")
    history: tuple[PastMessage, ...] = ()
    if body.previous_response_id or conversation:
        request_bodies.check_question(said)
        inputs = tuple(said)
    else:
        history, inputs = request_bodies.split_question(said)
    tools, others = request_bodies.read_tools(body.tools)
    thread, keeps_history = _find_thread(request, body.model, body.user, history)
    background = bool(body.background)
    if background and body.store is False:
        raise Invalid("`background` needs `store`: the answer is fetched later")
    asked = ApiTurnRequest(
        viewer=request.viewer,
        model=body.model,
        history=history,
        inputs=inputs,
        options=RequestOptions(
            instructions="\n\n".join(filter(None, (body.instructions, *reader.instructions))),
            tools=tools,
            parameters=request_bodies.read_response_parameters(body),
        ),
        echo=_build_echo(body),
        key=_read_key(request),
        repeated=_is_repeated(request),
        thread="" if conversation or body.previous_response_id else thread,
        keeps_history=keeps_history,
        session=parse_conversation_id(conversation) if conversation else None,
        previous=parse_response_id(body.previous_response_id) if body.previous_response_id else None,
        temporary=body.store is False and not conversation,
        language=request.language,
    )
    if background and not body.stream:
        submitted = await request.hub.api_turns.submit(asked)
        view = await request.hub.api_turns.load(request.viewer, submitted.turn)
        return respond(build_response_document(view))
    return await _answer(request, asked, build_response_encoder() if body.stream else None, others=others)


@router.get(
    "/v1/responses/{response}",
    summary="An answer, or with `stream` its events from one on, as long as it is being written.",
    media_types=MEDIA_TYPES,
)
async def get_response(request: ApiRequest, query: ResponseQuery) -> TurnResponse | Response:
    turn = parse_response_id(request.path_param("response"))
    view = await request.hub.api_turns.load(request.viewer, turn)
    if view.asked.temporary:
        raise NotFound("this response is not stored: ask with `store`")
    if not query.stream:
        if view.turn.state.finished and view.asked.taken_at is None:
            await request.hub.api_turns.take(request.viewer, turn)
        return respond(build_response_document(view))
    if request.http.method == "HEAD":
        return Response(media_type=MEDIA_TYPES[1])
    return TurnResponse(
        request.hub,
        request.services.followers,
        request.viewer,
        turn,
        build=build_response_document,
        encode=build_response_encoder(query.starting_after),
        headers={},
    )


@router.delete("/v1/responses/{response}", summary="Forget an answer, and stop its turn.", media_types=JSON)
async def delete_response(request: ApiRequest, query: LooseQuery) -> Response:
    turn = parse_response_id(request.path_param("response"))
    await request.hub.api_turns.remove(request.viewer, turn)
    return respond({"id": openai_api.format_response_id(turn), "object": "response", "deleted": True})


@router.post(
    "/v1/responses/{response}/cancel", summary="Stop an answer. What was said stays.", media_types=JSON
)
async def cancel_response(request: ApiRequest, query: LooseQuery) -> Response:
    turn = parse_response_id(request.path_param("response"))
    view = await request.hub.api_turns.load(request.viewer, turn)
    if not view.turn.state.finished:
        await request.hub.cancel(request.viewer, turn)
        view = await request.hub.api_turns.load(request.viewer, turn)
    document = build_response_document(view)
    if not view.turn.state.finished:
        # The agent ends within moments.
        document["status"] = "cancelled"
    return respond(document)


@router.get("/v1/responses/{response}/input_items", summary="What an answer answers.", media_types=JSON)
async def list_input_items(request: ApiRequest, query: ItemQuery) -> Response:
    view = await request.hub.api_turns.load(request.viewer, parse_response_id(request.path_param("response")))
    asked = [m for m in view.messages if m.role is Role.USER or m.seq == view.turn.input_seq]
    items = [item for message in asked for item, _ in openai_api.list_message_items(message)]
    if query.order == "desc":
        items.reverse()
    if query.after:
        known = [item["id"] for item in items]
        items = items[known.index(query.after) + 1 :] if query.after in known else []
    return respond(build_page(items[: query.limit], more=len(items) > query.limit))


def respond(document: Json) -> Response:
    return Response(codec.dumps(document), headers={"Cache-Control": "no-store"}, media_type=JSON[0])


async def _answer(
    request: ApiRequest,
    asked: ApiTurnRequest,
    encode: Encoder | None,
    *,
    chat: bool = False,
    others: Sequence[str] = (),
) -> TurnResponse:
    submitted = await request.hub.api_turns.submit(asked)
    notes = [submitted.note] if submitted.note else []
    if others:
        notes.append(f"tools of these types were ignored, only functions are known: {', '.join(others)}")
    headers: dict[str, str] = {"X-Keryx-Session": submitted.session, "X-Keryx-Turn": submitted.turn}
    if notes:
        headers["X-Keryx-Note"] = "; ".join(notes).encode("ascii", "replace").decode().replace("\n", " ")
    return TurnResponse(
        request.hub,
        request.services.followers,
        request.viewer,
        submitted.turn,
        build=build_chat_document if chat else build_response_document,
        encode=encode,
        headers=headers,
    )


def build_reader(request: ApiRequest, *, keep_instructions: bool = False) -> InputReader:
    async def save(file: Attachment) -> Part:
        return await request.hub.media.save(request.viewer, file)

    async def find(file: str) -> Part:
        found = await request.hub.media.load_parts(request.viewer, [file])
        if file not in found:
            raise NotFound(f"there is no file {file[:80]!r}, or it is not yours: send it as a data URL")
        return found[file]

    return InputReader(save, find, keep_instructions=keep_instructions)


def _read_key(request: ApiRequest) -> str:
    return request.idempotency_key if "idempotency-key" in request.http.headers else ""


def _is_repeated(request: ApiRequest) -> bool:
    """Whether the client says that it sends a request again."""
    return request.http.headers.get("x-stainless-retry-count", "0").strip() not in ("", "0")


def _find_thread(
    request: ApiRequest, model: str, user: str | None, history: Sequence[PastMessage]
) -> tuple[str, bool]:
    """Return the name that the client gives to the conversation, and whether it sends the whole conversation each time."""
    for header, kind, keeps_history in _THREAD_HEADERS:
        name = request.http.headers.get(header, "").strip()
        if len(name) > _LONGEST_THREAD:
            raise Invalid(f"the header {header} takes up to {_LONGEST_THREAD} characters")
        if name:
            # A front end may ask several models in one chat, each with answers of its own.
            return f"{kind}:{name}:{model}" if keeps_history else f"{kind}:{name}", keeps_history
    if user and not any(past.role is Role.ASSISTANT for past in history):
        return f"user:{user}", False
    return "", True


def _is_task(
    request: ApiRequest,
    instructions: Sequence[str],
    history: Sequence[PastMessage],
    inputs: Sequence[PastMessage],
) -> bool:
    """Whether a front end asks for a title, tags or the like: nothing that belongs to the conversation. It says so in a
    header, or its words show it."""
    if request.http.headers.get(_TASK_HEADER, "").strip():
        return True
    if any(_TOOL_CHOICE in text for text in instructions):
        return True
    if any(join_text(past.parts).startswith(_TASK_BEGINNINGS) for past in inputs):
        return True
    if history or len(inputs) != 1 or not all(isinstance(part, Text) for part in inputs[0].parts):
        return False
    return _TASK_PROMPTS.match(join_text(inputs[0].parts), 0, _MAX_TASK_CHARS) is not None


def _build_echo(body: ResponseForm) -> dict[str, Any]:
    values = {
        "model": body.model,
        "instructions": body.instructions,
        "previous_response_id": body.previous_response_id,
        "background": body.background,
        "metadata": body.metadata,
        # A function without these is not a complete one in an answer.
        "tools": body.tools
        and [
            {"description": None, "strict": None, "parameters": None, **tool}
            if tool.get("type") == "function"
            else tool
            for tool in body.tools
        ],
        "tool_choice": body.tool_choice,
        "parallel_tool_calls": body.parallel_tool_calls,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "max_output_tokens": body.max_output_tokens,
        "text": body.text,
        "reasoning": body.reasoning,
        "user": body.user,
    }
    return {name: value for name, value in values.items() if value is not None}
