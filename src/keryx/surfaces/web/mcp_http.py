"""An MCP server at /mcp, by streamable HTTP: the tools of `keryx mcp`, and one that says something in a conversation.

It has no sessions of its own, so that any node answers any request. A tool call that waits for a turn is a stream; the ids of its
events name the turn, and a cut stream is continued from the store."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.responses import Response

from keryx.core import codec
from keryx.core.errors import Invalid, KeryxError, NotFound
from keryx.core.ids import TurnId
from keryx.core.messages import Role, Text
from keryx.core.ports.agent import RequestOptions
from keryx.core.turns import TurnState
from keryx.engine import builtin_tools
from keryx.engine.hub.api_turns import DEFAULT_MODEL, ApiTurnRequest, ApiTurnView, PastMessage
from keryx.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcError,
    as_object,
    as_text,
)
from keryx.surfaces.web.json_rpc import (
    CallId,
    Json,
    RpcCall,
    RpcFailure,
    build_error,
    build_result,
    parse_call,
)
from keryx.surfaces.web.openai_api import build_completion
from keryx.surfaces.web.openai_api.request_bodies import LooseQuery
from keryx.surfaces.web.openai_api.turn_responses import (
    MEDIA_TYPES,
    ErrorFormat,
    TurnResponse,
    encode_event,
)
from keryx.surfaces.web.operations import MAX_BODY_BYTES, ApiRouter
from keryx.surfaces.web.request import ApiRequest, read_body
from keryx.surfaces.web.request_schema import MAX_TEXT_CHARS

router = ApiRouter()

PATH = "/mcp"
SAY_TOOL = "say_in_conversation"
# The versions that begin with a handshake, and the one whose requests are complete by themselves.
_HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_STATELESS_VERSION = "2026-07-28"
# From this version on, a stream begins with an event that has an id and nothing else.
_PRIMING_VERSION = "2025-11-25"
_RETRY_MILLIS = 1000
_HEADER_MISMATCH, _UNSUPPORTED_VERSION = -32020, -32022
_META = "io.modelcontextprotocol/"
_ERROR_STATUS = {METHOD_NOT_FOUND: HTTPStatus.NOT_FOUND, INTERNAL_ERROR: HTTPStatus.INTERNAL_SERVER_ERROR}
_INSTRUCTIONS = (
    "Conversations of one person with their agent: search and read them, and say something in one."
)
_JSON = "application/json"


class SayArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_CHARS)]
    conversation: Annotated[str, Meta(max_length=500)] = ""
    message_id: Annotated[str, Meta(max_length=200)] = ""


_SAY_SCHEMA = {
    "name": SAY_TOOL,
    "description": "Say something in a conversation, in the name of the person, and return what their agent answers. The person may be"
    " asked first, so that the answer can take minutes. The conversation is seen by the person everywhere.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to say."},
            "conversation": {
                "type": "string",
                "description": "The id or title of a conversation; without it, a new one begins.",
            },
            "message_id": {
                "type": "string",
                "description": "An id of your own for this message. A repeated call with it returns the first answer.",
            },
        },
        "required": ["text"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": True},
}


@router.post(
    PATH,
    summary="Call a method of MCP.",
    media_types=MEDIA_TYPES,
    error_media_types=(_JSON,),
    body_media_type=_JSON,
)
async def call_mcp(request: ApiRequest, query: LooseQuery) -> TurnResponse | Response:
    stateless = _find_version(request) == _STATELESS_VERSION
    try:
        call = parse_call(await read_body(request.http, MAX_BODY_BYTES))
    except RpcFailure as exc:
        return _respond(build_error(exc.id, exc.code, str(exc)), HTTPStatus.BAD_REQUEST)
    try:
        _check_version(request, call)
        if call.notification:
            return Response(status_code=HTTPStatus.ACCEPTED)
        if call.method == "tools/call" and call.params.get("name") == SAY_TOOL:
            return await _say(request, call)
        result = await _run(request, call)
    except RpcError as exc:
        status = _ERROR_STATUS.get(exc.code, HTTPStatus.BAD_REQUEST)
        strict = stateless or exc.code in (_UNSUPPORTED_VERSION, INVALID_REQUEST)
        body = build_error(call.id, exc.code, str(exc), exc.data)
        return _respond(body, status if strict else HTTPStatus.OK)
    return _respond(build_result(call.id, _complete(request, result)))


@router.get(PATH, summary="Continue a cut stream of MCP after Last-Event-ID.", media_types=MEDIA_TYPES[1:])
async def resume_mcp(request: ApiRequest, query: LooseQuery) -> TurnResponse:
    last = request.http.headers.get("last-event-id", "")
    if not last:
        # The server has nothing to say of its own accord.
        raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "POST"})
    turn_text, _, call_text = last.partition(".")
    try:
        found = codec.loads_foreign(codec.decode_base64url(call_text), object)
    except (ValueError, Invalid) as exc:
        raise NotFound("there is no stream with this Last-Event-ID: call again") from exc
    turn, call = TurnId(turn_text), found if isinstance(found, str | int) else None
    await request.hub.api_turns.load(request.viewer, turn)
    return _follow(request, turn, call, CallEvents(turn, call, primes=False))


def _respond(body: Json, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(codec.dumps(body), status, {"Cache-Control": "no-store"}, media_type=_JSON)


def _find_version(request: ApiRequest) -> str:
    return request.http.headers.get("mcp-protocol-version", "")


def _check_version(request: ApiRequest, call: RpcCall) -> None:
    """Raise `RpcError` for an unknown version, and for a request of the newest one that contradicts its headers."""
    version = _find_version(request)
    if version and version not in (*_HANDSHAKE_VERSIONS, _STATELESS_VERSION):
        data = {"supported": [*_HANDSHAKE_VERSIONS, _STATELESS_VERSION], "requested": version[:80]}
        raise RpcError(_UNSUPPORTED_VERSION, f"version {version[:80]!r} of MCP is not supported", data)
    if version != _STATELESS_VERSION or call.notification:
        return
    meta = as_object(call.params.get("_meta"))
    missing = [key for key in ("protocolVersion", "clientCapabilities") if f"{_META}{key}" not in meta]
    if missing:
        raise RpcError(
            INVALID_PARAMS, f"`_meta` lacks {', '.join(f'{_META}{key}' for key in missing)}: send both"
        )
    expected = {"mcp-protocol-version": meta[f"{_META}protocolVersion"], "mcp-method": call.method}
    if call.method == "tools/call":
        expected["mcp-name"] = call.params.get("name")
    for header, value in expected.items():
        if request.http.headers.get(header) != value:
            raise RpcError(_HEADER_MISMATCH, f"the header {header} does not match the body: send both alike")


async def _run(request: ApiRequest, call: RpcCall) -> Json:
    """Return the result of a method. Raise `RpcError` for an unknown one."""
    match call.method:
        case "initialize":
            wanted = as_text(call.params.get("protocolVersion"))
            known = wanted if wanted in _HANDSHAKE_VERSIONS else _HANDSHAKE_VERSIONS[-1]
            return {
                "protocolVersion": known,
                "capabilities": {"tools": {}},
                "serverInfo": _build_server_info(request),
                "instructions": _INSTRUCTIONS,
            }
        case "server/discover":
            return {
                "supportedVersions": [_STATELESS_VERSION],
                "capabilities": {"tools": {}},
                "instructions": _INSTRUCTIONS,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": _list_tools(), "ttlMs": 0, "cacheScope": "private"}
        case "tools/call":
            name = as_text(call.params.get("name"))
            if name not in (spec.name for spec in builtin_tools.READ_SPECS):
                names = ", ".join(tool["name"] for tool in _list_tools())
                raise RpcError(INVALID_PARAMS, f"there is no tool {name[:80]!r}: the tools are {names}")
            arguments = as_object(call.params.get("arguments"))
            try:
                return _build_text(
                    await builtin_tools.call_read_tool(request.hub, request.viewer, name, arguments)
                )
            except KeryxError as exc:
                return _build_text(str(exc), failed=True)
        case _:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {call.method[:80]!r}")


def _build_server_info(request: ApiRequest) -> Json:
    return {"name": "keryx", "title": "Keryx", "version": request.services.installation.version or "0"}


def _complete(request: ApiRequest, result: Json) -> Json:
    """Add what every result of the newest version has."""
    if _find_version(request) != _STATELESS_VERSION:
        return result
    return {
        **result,
        "resultType": "complete",
        "_meta": {f"{_META}serverInfo": _build_server_info(request)},
    }


def _list_tools() -> list[Json]:
    reads = [
        {
            "name": spec.name,
            "description": spec.description,
            "inputSchema": dict(spec.parameters),
            "annotations": {"readOnlyHint": True},
        }
        for spec in builtin_tools.READ_SPECS
    ]
    return [*reads, _SAY_SCHEMA]


def _build_text(text: str, *, failed: bool = False) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": failed}


async def _say(request: ApiRequest, call: RpcCall) -> TurnResponse | Response:
    """Say something in a conversation, and follow the turn that answers it."""
    try:
        try:
            said = msgspec.convert(as_object(call.params.get("arguments")), SayArguments)
        except msgspec.ValidationError as exc:
            raise Invalid(f"the arguments of {SAY_TOOL} are wrong: {exc}") from exc
        if not said.text.strip():
            raise Invalid("`text` is empty: say something")
        session = None
        if said.conversation:
            session = (await request.hub.resolve(request.viewer, said.conversation)).id
        key = request.caller.key
        submitted = await request.hub.api_turns.submit(
            ApiTurnRequest(
                viewer=request.viewer,
                protocol="mcp",
                model=DEFAULT_MODEL,
                inputs=(PastMessage(Role.USER, (Text(said.text),)),),
                options=RequestOptions(ask_first=key.name if key and not key.may_speak else ""),
                echo={"model": DEFAULT_MODEL},
                key=f"mcp:{said.message_id}" if said.message_id else "",
                session=session,
                language=request.language,
            )
        )
    except KeryxError as exc:
        result = _complete(request, _build_text(str(exc), failed=True))
        return _respond(build_result(call.id, result))
    accepts_stream = MEDIA_TYPES[1] in request.http.headers.get("accept", "")
    meta = as_object(call.params.get("_meta"))
    primes = _PRIMING_VERSION <= _find_version(request) < _STATELESS_VERSION
    events = CallEvents(submitted.turn, call.id, primes=primes, progress_token=meta.get("progressToken"))
    return _follow(request, submitted.turn, call.id, events if accepts_stream else None)


def _follow(request: ApiRequest, turn: TurnId, call: CallId, events: "CallEvents | None") -> TurnResponse:
    def build(view: ApiTurnView) -> Json:
        return build_result(call, _complete(request, build_answer(view)))

    def describe(error: KeryxError) -> Json:
        return build_error(call, INTERNAL_ERROR, str(error))

    def respond_error(error: KeryxError) -> Response:
        return _respond(describe(error))

    def encode_error(error: KeryxError) -> bytes:
        return encode_event(describe(error), "message")

    return TurnResponse(
        request.hub,
        request.services.followers,
        request.viewer,
        turn,
        build=build,
        encode=events.build_encoder(build) if events else None,
        headers={},
        errors=ErrorFormat(respond_error, encode_error),
        end=b"",
    )


def build_answer(view: ApiTurnView) -> Json:
    """Build the result of a call that said something, from a turn that has ended."""
    place = {"conversation": view.turn.session, "turn": view.turn.id}
    if view.turn.state is TurnState.DONE:
        text = build_completion(view)["choices"][0]["message"]["content"] or ""
        return {**_build_text(text), "structuredContent": {**place, "answer": text}}
    reason = "the turn was stopped" if view.turn.state is TurnState.CANCELLED else "the agent failed"
    return {**_build_text(view.turn.error or reason, failed=True), "structuredContent": place}


class CallEvents:
    """The events of a tool call that follows a turn: its progress, if the client wants that, then its result."""

    def __init__(self, turn: TurnId, call: CallId, *, primes: bool, progress_token: object = None) -> None:
        self._id = f"{turn}.{codec.encode_base64url(codec.dumps(call).encode())}"
        self._primes = primes
        self._token = progress_token
        self._progress = 0

    def build_encoder(self, build: Callable[[ApiTurnView], Json]) -> Callable[[ApiTurnView], bytes]:
        def encode(view: ApiTurnView) -> bytes:
            body = b""
            if self._primes:
                self._primes = False
                body += f"id: {self._id}\nretry: {_RETRY_MILLIS}\ndata: \n\n".encode()
            body += self._encode_progress(view)
            if view.turn.state.finished:
                body += encode_event(build(view), "message", id_=self._id)
            return body

        return encode

    def _encode_progress(self, view: ApiTurnView) -> bytes:
        if self._token is None or isinstance(self._token, bool) or not isinstance(self._token, str | int):
            return b""
        said = sum(len(piece.text) for piece in view.draft) + sum(
            len(m.text) for m in view.messages if m.role is Role.ASSISTANT
        )
        if said <= self._progress:
            return b""
        self._progress = said
        params: dict[str, Any] = {
            "progressToken": self._token,
            "progress": said,
            "message": f"{said} characters",
        }
        notification = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        return encode_event(notification, "message", id_=self._id)
