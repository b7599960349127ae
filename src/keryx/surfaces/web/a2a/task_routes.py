"""Routes of A2A: one operation each for both bindings, JSON-RPC at /a2a and HTTP+JSON below it.

The id of a message is its idempotency key: a repeated one returns the first task."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response

from keryx.core import codec
from keryx.core.clock import from_micros, to_micros
from keryx.core.errors import Conflict, Invalid, KeryxError, NotFound
from keryx.core.ids import TurnId
from keryx.core.messages import join_text
from keryx.engine.hub.api_turns import (
    DEFAULT_MODEL,
    ApiTurnFilter,
    ApiTurnRequest,
    ApiTurnView,
    ChangePosition,
    PastMessage,
)
from keryx.surfaces.web import a2a
from keryx.surfaces.web.a2a import ErrorKind, Json, TaskBuilder, TaskError, TaskEvents, TaskState
from keryx.surfaces.web.a2a.agent_card import ENDPOINT, find_base_url
from keryx.surfaces.web.json_rpc import CallId, RpcFailure, build_error, build_result, parse_call
from keryx.surfaces.web.openai_api.generation_routes import build_reader
from keryx.surfaces.web.openai_api.request_bodies import MAX_BODY_BYTES, LooseQuery
from keryx.surfaces.web.openai_api.turn_responses import (
    MEDIA_TYPES,
    ErrorFormat,
    TurnResponse,
    encode_event,
    has_finished,
)
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest, read_body

router = ApiRouter()
T = TypeVar("T", bound=msgspec.Struct)

_ID = Annotated[str, Meta(max_length=200)]
_HISTORY = Annotated[int, Meta(ge=0)] | None
_PAGE_SIZE, _MAX_PAGE_SIZE = 50, 100
_TEXT_MODES = ("text/", "*/*", "text/*")
_JSON = "application/json"
_VERSION_NAME = "a2a-version"


class PartForm(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    # Base64.
    raw: str | None = None
    url: str | None = None
    data: Any = None
    filename: str = ""
    media_type: str = ""


class MessageForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    message_id: Annotated[str, Meta(min_length=1, max_length=200)]
    role: str
    parts: Annotated[list[PartForm], Meta(min_length=1, max_length=100)]
    context_id: _ID | None = None
    task_id: _ID | None = None
    metadata: dict[str, Any] | None = None


class SendOptions(msgspec.Struct, frozen=True, rename="camel"):
    accepted_output_modes: list[str] | None = None
    history_length: _HISTORY = None
    return_immediately: bool | None = None
    task_push_notification_config: dict[str, Any] | None = None


class SendMessageForm(msgspec.Struct, frozen=True, kw_only=True):
    message: MessageForm
    configuration: SendOptions | None = None
    metadata: dict[str, Any] | None = None


class TaskForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: _ID
    history_length: _HISTORY = None


class ListForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    context_id: _ID | None = None
    status: str | None = None
    page_size: int | None = None
    page_token: str | None = None
    history_length: _HISTORY = None
    status_timestamp_after: datetime | None = None
    include_artifacts: bool | None = None


class ProtocolBinding(msgspec.Struct, frozen=True, kw_only=True):
    """How a binding of the protocol carries a result and an error."""

    wrap: Callable[[Json], Json]
    errors: ErrorFormat
    media_type: str

    def respond(self, result: Json) -> Response:
        headers = {"Cache-Control": "no-store"}
        return Response(codec.dumps(self.wrap(result)), headers=headers, media_type=self.media_type)


def _bind_call(id_: CallId) -> ProtocolBinding:
    def describe(error: KeryxError) -> Json:
        kind = a2a.find_kind(error)
        return build_error(id_, kind.value.code, str(error), a2a.build_details(kind))

    def respond(error: KeryxError) -> Response:
        return Response(codec.dumps(describe(error)), media_type=_JSON)

    def encode(error: KeryxError) -> bytes:
        return encode_event(describe(error))

    return ProtocolBinding(
        wrap=partial(build_result, id_), errors=ErrorFormat(respond, encode), media_type=_JSON
    )


def _respond_http_error(error: KeryxError) -> Response:
    status, body = a2a.build_http_error(error)
    return Response(codec.dumps(body), status.value, media_type=a2a.MEDIA_TYPE)


def _encode_http_error(error: KeryxError) -> bytes:
    return encode_event(a2a.build_http_error(error)[1], "error")


_HTTP = ProtocolBinding(
    wrap=lambda result: result,
    errors=ErrorFormat(_respond_http_error, _encode_http_error),
    media_type=a2a.MEDIA_TYPE,
)


@router.post(
    ENDPOINT,
    summary="Call a method of A2A 1.0 by JSON-RPC.",
    media_types=MEDIA_TYPES,
    body_media_type=_JSON,
)
async def call_a2a(request: ApiRequest, query: LooseQuery) -> TurnResponse | Response:
    try:
        call = parse_call(await read_body(request.http, MAX_BODY_BYTES))
    except RpcFailure as exc:
        return Response(codec.dumps(build_error(exc.id, exc.code, str(exc))), media_type=_JSON)
    return await _run(request, call.method, call.params, _bind_call(call.id))


def _declare(method: str, path: str, operation: str, summary: str) -> None:
    """Declare an operation of the HTTP+JSON binding. Its parameters are those in the path, the query and the body."""

    async def handle(request: ApiRequest, query: LooseQuery) -> TurnResponse | Response:
        params: Json = dict(request.http.query_params)
        if method == "POST":
            raw = await read_body(request.http, MAX_BODY_BYTES)
            try:
                params |= codec.loads_foreign(raw if raw.strip() else b"{}", dict[str, Any])
            except Invalid as exc:
                return _respond_http_error(exc)
        if "task" in request.http.path_params:
            params["id"] = request.path_param("task")
        return await _run(request, operation, params, _HTTP, strict=method == "POST")

    handle.__name__ = f"a2a_{method.lower()}_{operation}"
    declare = {"GET": router.get, "POST": router.post, "DELETE": router.delete}[method]
    body = a2a.MEDIA_TYPE if method == "POST" else ""
    declare(
        f"{ENDPOINT}{path}",
        summary=f"A2A: {summary}",
        media_types=(a2a.MEDIA_TYPE, MEDIA_TYPES[1]),
        error_media_types=(a2a.MEDIA_TYPE,),
        body_media_type=body,
    )(handle)


_PUSH_PATH = "/tasks/{task}/pushNotificationConfigs"
for _route in (
    ("POST", "/message:send", "SendMessage", "send a message, and wait for the task that answers it."),
    ("POST", "/message:stream", "SendStreamingMessage", "send a message, and follow its task."),
    ("GET", "/tasks", "ListTasks", "the tasks, the one that changed last first."),
    ("POST", "/tasks/{task}:cancel", "CancelTask", "stop a task. What was said stays."),
    ("POST", "/tasks/{task}:subscribe", "SubscribeToTask", "follow a task from where it is."),
    ("GET", "/tasks/{task}:subscribe", "SubscribeToTask", "follow a task from where it is."),
    ("GET", "/tasks/{task}", "GetTask", "a task."),
    ("POST", _PUSH_PATH, "CreateTaskPushNotificationConfig", "not supported."),
    ("GET", _PUSH_PATH, "ListTaskPushNotificationConfigs", "not supported."),
    ("GET", f"{_PUSH_PATH}/{{config}}", "GetTaskPushNotificationConfig", "not supported."),
    ("DELETE", f"{_PUSH_PATH}/{{config}}", "DeleteTaskPushNotificationConfig", "not supported."),
    ("GET", "/extendedAgentCard", "GetExtendedAgentCard", "not supported."),
):
    _declare(*_route)


async def _run(
    request: ApiRequest, method: str, params: Json, binding: ProtocolBinding, *, strict: bool = True
) -> TurnResponse | Response:
    """Run an operation by its name in the JSON-RPC binding."""

    def read(kind: type[T]) -> T:
        try:
            return msgspec.convert(params, kind, strict=strict)
        except msgspec.ValidationError as exc:
            raise Invalid(f"the parameters are wrong: {exc}") from exc

    try:
        _check_version(request)
        match method:
            case "SendMessage":
                return await _send(request, read(SendMessageForm), binding, stream=False)
            case "SendStreamingMessage":
                return await _send(request, read(SendMessageForm), binding, stream=True)
            case "GetTask":
                form = read(TaskForm)
                view = await _load(request, form)
                return binding.respond(_build(request).build_task(view, history=form.history_length))
            case "ListTasks":
                return binding.respond(await _list(request, read(ListForm)))
            case "CancelTask":
                return await _cancel(request, read(TaskForm), binding)
            case "SubscribeToTask":
                return await _subscribe(request, read(TaskForm), binding)
            case "GetExtendedAgentCard":
                raise TaskError(
                    ErrorKind.UNSUPPORTED_OPERATION, "there is no extended agent card: the public one is all"
                )
            case name if name.endswith(("TaskPushNotificationConfig", "TaskPushNotificationConfigs")):
                raise TaskError(
                    ErrorKind.PUSH_NOTIFICATION_NOT_SUPPORTED,
                    "push notifications are not supported: follow the task with SubscribeToTask",
                )
            case _:
                raise TaskError(
                    ErrorKind.METHOD_NOT_FOUND, f"there is no method {method[:80]!r} in A2A {a2a.VERSION}"
                )
    except KeryxError as exc:
        return binding.errors.respond(exc)


def _check_version(request: ApiRequest) -> None:
    """Raise `TaskError` for another version of the protocol. A request without one is of version 0.3."""
    given = request.http.headers.get(_VERSION_NAME, "")
    for name, value in request.http.query_params.items():
        given = given or (value if name.lower() == _VERSION_NAME else "")
    if given.strip().split(".")[:2] != a2a.VERSION.split("."):
        raise TaskError(
            ErrorKind.VERSION_NOT_SUPPORTED,
            f"version {given[:20] or '0.3'!r} of A2A is not supported: send the header A2A-Version: {a2a.VERSION}",
        )


def _build(request: ApiRequest) -> TaskBuilder:
    return TaskBuilder(request.texts, find_base_url(request.http, secure=request.services.secure_cookies))


async def _load(request: ApiRequest, form: TaskForm) -> ApiTurnView:
    view = await request.hub.api_turns.load(request.viewer, TurnId(form.id))
    if view.asked.temporary:
        raise TaskError(ErrorKind.TASK_NOT_FOUND, "this answer is not stored")
    return view


async def _send(
    request: ApiRequest, form: SendMessageForm, binding: ProtocolBinding, *, stream: bool
) -> TurnResponse | Response:
    options = form.configuration or SendOptions()
    if options.task_push_notification_config:
        raise TaskError(
            ErrorKind.PUSH_NOTIFICATION_NOT_SUPPORTED,
            "push notifications are not supported: follow the task with SubscribeToTask",
        )
    modes = options.accepted_output_modes
    if modes and not any(mode.startswith(_TEXT_MODES) for mode in modes):
        raise TaskError(
            ErrorKind.CONTENT_TYPE_NOT_SUPPORTED, "answers are text: accept text/markdown or text/plain"
        )
    said = await _read_message(request, form.message)
    if form.message.task_id:
        turn = await _answer(request, form.message, said)
    else:
        turn = await _submit(request, form, said)
    history = options.history_length
    if stream:
        return _follow(request, turn, binding, TaskEvents(_build(request), history=history), a2a.is_settled)
    builder = _build(request)
    if options.return_immediately:
        view = await request.hub.api_turns.load(request.viewer, turn)
        return binding.respond({"task": builder.build_task(view, history=history)})
    return _wait(request, turn, binding, lambda view: {"task": builder.build_task(view, history=history)})


async def _read_message(request: ApiRequest, message: MessageForm) -> PastMessage:
    if message.role != "ROLE_USER":
        raise Invalid("`role` of a message that is sent is ROLE_USER")
    content: list[Json] = []
    for number, part in enumerate(message.parts):
        given = [v for v in (part.text, part.raw, part.url, part.data) if v is not None]
        if len(given) != 1:
            raise Invalid(f"part {number} has one of `text`, `raw`, `url` and `data`")
        if part.url is not None:
            raise TaskError(
                ErrorKind.CONTENT_TYPE_NOT_SUPPORTED,
                "files are not fetched from other places: send the bytes as `raw`",
            )
        if part.raw is not None:
            mime = part.media_type or "application/octet-stream"
            # The encoding of protocol buffers in JSON allows both alphabets, and no padding.
            data = part.raw.replace("-", "+").replace("_", "/").rstrip("=")
            data += "=" * (-len(data) % 4)
            file = {"file_data": f"data:{mime};base64,{data}", "filename": part.filename or "file"}
            content.append({"type": "input_file", **file})
        else:
            text = part.text if part.text is not None else codec.dumps(part.data)
            content.append({"type": "text", "text": text})
    [said] = await build_reader(request).read([{"role": "user", "content": content}])
    return said


async def _submit(request: ApiRequest, form: SendMessageForm, said: PastMessage) -> TurnId:
    message, context = form.message, form.message.context_id or ""
    session = await request.hub.api_turns.find_context(request.viewer, context) if context else None
    model = (form.metadata or {}).get("model")
    echo: Json = {"model": model or DEFAULT_MODEL, a2a.MESSAGE_ID: message.message_id}
    if context and session is None:
        echo[a2a.CONTEXT] = context
    if message.metadata:
        echo[a2a.METADATA] = message.metadata
    asked = ApiTurnRequest(
        viewer=request.viewer,
        protocol="a2a",
        model=str(model or DEFAULT_MODEL),
        inputs=(said,),
        echo=echo,
        key=f"a2a:{message.message_id}",
        thread=_name_thread(context) if context and session is None else "",
        session=session,
        language=request.language,
    )
    try:
        return (await request.hub.api_turns.submit(asked)).turn
    except NotFound as exc:
        # It is a model that is not found, and not a task.
        raise Invalid(str(exc)) from exc


def _name_thread(context: str) -> str:
    return f"a2a:{context}"


async def _answer(request: ApiRequest, message: MessageForm, said: PastMessage) -> TurnId:
    """Answer what a task waits for."""
    view = await _load(request, TaskForm(id=message.task_id or ""))
    if message.context_id and message.context_id not in (a2a.find_context(view), view.turn.session):
        raise Invalid("`contextId` is not the one of the task")
    try:
        await request.hub.api_turns.answer_question(
            request.viewer, view.turn.id, join_text(said.parts), key=f"a2a:{message.message_id}"
        )
    except Conflict as exc:
        state = a2a.find_state(view).name
        raise TaskError(
            ErrorKind.UNSUPPORTED_OPERATION,
            f"the task is {state} and takes no message: send it with the `contextId` alone",
        ) from exc
    return view.turn.id


async def _list(request: ApiRequest, form: ListForm) -> Json:
    size = _PAGE_SIZE if form.page_size is None else form.page_size
    if not 1 <= size <= _MAX_PAGE_SIZE:
        raise Invalid(f"`pageSize` is between 1 and {_MAX_PAGE_SIZE}")
    empty: Json = {"tasks": [], "nextPageToken": "", "pageSize": size, "totalSize": 0}
    states = _read_status(form.status)
    session = None
    if form.context_id:
        thread = _name_thread(form.context_id)
        session = await request.hub.api_turns.find_context(request.viewer, form.context_id, thread)
        if session is None:
            return empty
    if form.status_timestamp_after and form.status_timestamp_after.tzinfo is None:
        raise Invalid("`statusTimestampAfter` has no zone: end it with Z")
    wanted = ApiTurnFilter(session=session, states=states, since=form.status_timestamp_after)
    before = _read_token(form.page_token) if form.page_token else None
    page = await request.hub.api_turns.list_page(request.viewer, wanted, before=before, limit=size)
    builder, artifacts = _build(request), bool(form.include_artifacts)
    tasks = [
        builder.build_task(view, history=form.history_length, with_artifacts=artifacts) for view in page.views
    ]
    token = ""
    if page.next:
        token = codec.encode_base64url(f"{to_micros(page.next.changed_at)}.{page.next.position}".encode())
    return {**empty, "tasks": tasks, "nextPageToken": token, "totalSize": page.total}


def _read_status(name: str | None) -> frozenset[Any]:
    if not name or name == "TASK_STATE_UNSPECIFIED":
        return ApiTurnFilter().states
    if name in ("TASK_STATE_REJECTED", "TASK_STATE_AUTH_REQUIRED"):
        return frozenset()
    if name not in TaskState.__members__:
        raise Invalid(f"`status` is one of {', '.join(TaskState.__members__)}")
    if TaskState[name] is TaskState.TASK_STATE_INPUT_REQUIRED:
        return TaskState.TASK_STATE_WORKING.value
    return TaskState[name].value


def _read_token(token: str) -> ChangePosition:
    try:
        text = codec.decode_base64url(token).decode("ascii")
        micros, position = map(int, text.split("."))
        return ChangePosition(from_micros(micros), position)
    except (ValueError, OverflowError) as exc:
        raise Invalid("`pageToken` is not one of this list: begin again without it") from exc


async def _cancel(request: ApiRequest, form: TaskForm, binding: ProtocolBinding) -> TurnResponse:
    view = await _load(request, form)
    if view.turn.state.finished:
        raise TaskError(
            ErrorKind.TASK_NOT_CANCELABLE, f"the task has ended: it is {a2a.find_state(view).name}"
        )
    await request.hub.cancel(request.viewer, view.turn.id)
    # The agent ends within moments.
    builder = _build(request)
    return _wait(request, view.turn.id, binding, builder.build_task, until=has_finished)


async def _subscribe(request: ApiRequest, form: TaskForm, binding: ProtocolBinding) -> TurnResponse:
    view = await _load(request, form)
    if view.turn.state.finished:
        raise TaskError(
            ErrorKind.UNSUPPORTED_OPERATION,
            f"the task has ended, it is {a2a.find_state(view).name}: read it with GetTask",
        )
    return _follow(request, view.turn.id, binding, TaskEvents(_build(request)), has_finished)


def _follow(
    request: ApiRequest,
    turn: TurnId,
    binding: ProtocolBinding,
    events: TaskEvents,
    until: Callable[[ApiTurnView], bool],
) -> TurnResponse:
    return TurnResponse(
        request.hub,
        request.services.followers,
        request.viewer,
        turn,
        build=_build(request).build_task,
        encode=lambda view: b"".join(encode_event(binding.wrap(event)) for event in events.advance(view)),
        headers={},
        errors=binding.errors,
        until=until,
        end=b"",
    )


def _wait(
    request: ApiRequest,
    turn: TurnId,
    binding: ProtocolBinding,
    build: Callable[[ApiTurnView], Json],
    *,
    until: Callable[[ApiTurnView], bool] = a2a.is_settled,
) -> TurnResponse:
    return TurnResponse(
        request.hub,
        request.services.followers,
        request.viewer,
        turn,
        build=lambda view: binding.wrap(build(view)),
        encode=None,
        headers={},
        errors=binding.errors,
        until=until,
        media_type=binding.media_type,
    )
