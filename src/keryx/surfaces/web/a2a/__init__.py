"""The A2A protocol, version 1.0: a task is a turn, a context is a conversation. Here are tasks, artifacts and the events of their streams in the shapes of that protocol, and its errors."""

from datetime import datetime
from enum import Enum
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

from keryx.core.errors import Conflict, Forbidden, Invalid, KeryxError, NotFound
from keryx.core.messages import Audio, File, Image, Message, Role, Text
from keryx.core.questions import AskedQuestion, format_question, label_option
from keryx.core.texts import Texts
from keryx.core.turns import Turn, TurnState
from keryx.engine.hub.api_turns import ApiTurnView
from keryx.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from keryx.surfaces.web.openai_api import ItemKind, OutputItem, list_output
from keryx.surfaces.web.responses import find_status

Json: TypeAlias = dict[str, Any]

VERSION = "1.0"
MEDIA_TYPE = "application/a2a+json"
CONTEXT, MESSAGE_ID, METADATA = "context", "message", "metadata"
"""What the stored request keeps for the task: the name of its context, if the client chose one, the id of its message, and the
metadata of the message."""
_ERROR_DOMAIN = "a2a-protocol.org"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class ErrorCode(NamedTuple):
    # In the JSON-RPC binding.
    code: int
    # In the HTTP+JSON binding.
    http: HTTPStatus
    status: str


class ErrorKind(Enum):
    """The errors of the protocol. A name is the reason that clients read."""

    TASK_NOT_FOUND = ErrorCode(-32001, HTTPStatus.NOT_FOUND, "NOT_FOUND")
    TASK_NOT_CANCELABLE = ErrorCode(-32002, HTTPStatus.BAD_REQUEST, "FAILED_PRECONDITION")
    PUSH_NOTIFICATION_NOT_SUPPORTED = ErrorCode(-32003, HTTPStatus.BAD_REQUEST, "FAILED_PRECONDITION")
    UNSUPPORTED_OPERATION = ErrorCode(-32004, HTTPStatus.BAD_REQUEST, "FAILED_PRECONDITION")
    CONTENT_TYPE_NOT_SUPPORTED = ErrorCode(-32005, HTTPStatus.BAD_REQUEST, "INVALID_ARGUMENT")
    VERSION_NOT_SUPPORTED = ErrorCode(-32009, HTTPStatus.BAD_REQUEST, "FAILED_PRECONDITION")
    INVALID_PARAMS = ErrorCode(INVALID_PARAMS, HTTPStatus.BAD_REQUEST, "INVALID_ARGUMENT")
    INVALID_REQUEST = ErrorCode(INVALID_REQUEST, HTTPStatus.BAD_REQUEST, "INVALID_ARGUMENT")
    METHOD_NOT_FOUND = ErrorCode(METHOD_NOT_FOUND, HTTPStatus.NOT_FOUND, "NOT_FOUND")
    INTERNAL_ERROR = ErrorCode(INTERNAL_ERROR, HTTPStatus.INTERNAL_SERVER_ERROR, "INTERNAL")


class TaskError(KeryxError):
    """An error of the protocol."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


# The first match wins.
_KINDS: tuple[tuple[type[KeryxError], ErrorKind], ...] = (
    (Invalid, ErrorKind.INVALID_PARAMS),
    (NotFound, ErrorKind.TASK_NOT_FOUND),
    (Conflict, ErrorKind.INVALID_PARAMS),
    (Forbidden, ErrorKind.UNSUPPORTED_OPERATION),
)


def find_kind(error: KeryxError) -> ErrorKind:
    if isinstance(error, TaskError):
        return error.kind
    return next((kind for type_, kind in _KINDS if isinstance(error, type_)), ErrorKind.INTERNAL_ERROR)


def build_details(kind: ErrorKind) -> list[Json]:
    return [{"@type": _ERROR_INFO, "reason": kind.name, "domain": _ERROR_DOMAIN, "metadata": {}}]


def build_http_error(error: KeryxError) -> tuple[HTTPStatus, Json]:
    """Return the status and the body of an error in the HTTP+JSON binding."""
    kind = find_kind(error)
    status = find_status(error) if kind is ErrorKind.INTERNAL_ERROR else kind.value.http
    body = {
        "code": status.value,
        "status": kind.value.status,
        "message": str(error),
        "details": build_details(kind),
    }
    return status, {"error": body}


class TaskState(Enum):
    """The states of a task, with those of the turns that it stands for."""

    TASK_STATE_SUBMITTED = frozenset({TurnState.QUEUED})
    TASK_STATE_WORKING = frozenset({TurnState.RUNNING})
    # A running turn whose agent waits for an answer.
    TASK_STATE_INPUT_REQUIRED = frozenset[TurnState]()
    TASK_STATE_COMPLETED = frozenset({TurnState.DONE})
    TASK_STATE_FAILED = frozenset({TurnState.FAILED, TurnState.PARKED, TurnState.MERGED, TurnState.EXPIRED})
    TASK_STATE_CANCELED = frozenset({TurnState.CANCELLED})


def find_state(view: ApiTurnView) -> TaskState:
    if view.question is not None:
        return TaskState.TASK_STATE_INPUT_REQUIRED
    return next(state for state in TaskState if view.turn.state in state.value)


def is_settled(view: ApiTurnView) -> bool:
    """Whether nothing more comes until the client does something."""
    return view.turn.state.finished or view.question is not None


def find_context(view: ApiTurnView) -> str:
    chosen = view.asked.echo.get(CONTEXT)
    return chosen if isinstance(chosen, str) and chosen else view.turn.session


class TaskBuilder:
    """Builds tasks and their parts for one client: in its language, with addresses under which it reaches this server."""

    def __init__(self, texts: Texts, base_url: str) -> None:
        self._texts = texts
        self._base_url = base_url

    def build_task(
        self, view: ApiTurnView, *, history: int | None = None, with_artifacts: bool = True
    ) -> Json:
        """Build a task with the last messages of its history, all of them without a number."""
        task: Json = {
            "id": view.turn.id,
            "contextId": find_context(view),
            "status": self.build_status(view),
        }
        if with_artifacts:
            task["artifacts"] = [self.build_artifact(item) for item in list_results(view)]
        if history != 0:
            said = [m for m in view.messages if m.role is Role.USER]
            task["history"] = [self._build_input(view, m) for m in said[-history if history else 0 :]]
        return task

    def build_status(self, view: ApiTurnView) -> Json:
        state = find_state(view)
        status: Json = {"state": state.name, "timestamp": format_time(find_change_time(view.turn))}
        if state is TaskState.TASK_STATE_FAILED:
            error = view.turn.error or "the agent failed: look at the conversation"
            status["message"] = self._build_note(view, [{"text": error}])
        elif view.question is not None:
            status["message"] = self._build_note(view, self._build_question(view.question))
        return status

    def build_artifact(self, item: OutputItem) -> Json:
        if item.file is None:
            return {"artifactId": item.id, "parts": [{"text": item.text, "mediaType": "text/markdown"}]}
        return {"artifactId": item.id, "parts": [self._build_file(item.file)]}

    def _build_file(self, file: Image | File | Audio) -> Json:
        part: Json = {"url": f"{self._base_url}/media/{file.media}"}
        if file.name:
            part["filename"] = file.name
        if file.mime:
            part["mediaType"] = file.mime
        return part

    def _build_input(self, view: ApiTurnView, message: Message) -> Json:
        parts: list[Json] = []
        for part in message.parts:
            match part:
                case Text(text):
                    parts.append({"text": text})
                case Image() | File() | Audio():
                    parts.append(self._build_file(part))
                case _:
                    pass
        first = message.seq == view.turn.input_seq
        sent = view.asked.echo.get(MESSAGE_ID) if first else None
        built = self._build_message(view, "ROLE_USER", sent if isinstance(sent, str) else message.id, parts)
        metadata = view.asked.echo.get(METADATA) if first else None
        return {**built, "metadata": metadata} if metadata else built

    def _build_note(self, view: ApiTurnView, parts: list[Json]) -> Json:
        suffix = view.question.id if view.question else view.turn.state.value
        return self._build_message(view, "ROLE_AGENT", f"{view.turn.id}.{suffix}", parts)

    def _build_message(self, view: ApiTurnView, role: str, id_: str, parts: list[Json]) -> Json:
        return {
            "messageId": id_,
            "contextId": find_context(view),
            "taskId": view.turn.id,
            "role": role,
            "parts": parts,
        }

    def _build_question(self, asked: AskedQuestion) -> list[Json]:
        """Return a question in words and, for programs, its options."""
        options = [
            {"id": option.id, "label": label_option(option, self._texts)} for option in asked.question.options
        ]
        return [
            {"text": format_question(asked.question, self._texts)},
            {"data": {"question": asked.id, "options": options}, "mediaType": "application/json"},
        ]


def list_results(view: ApiTurnView) -> list[OutputItem]:
    """Return the texts and files of a turn. Text that a crash cut off is left out once the agent has begun again."""
    items = list_output(view)
    return [
        item
        for n, item in enumerate(items)
        if item.kind is ItemKind.MESSAGE and not (item.interrupted and n < len(items) - 1)
    ]


def find_change_time(turn: Turn) -> datetime:
    return turn.finished_at or turn.started_at or turn.created_at


def format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


class TaskEvents:
    """Turns the states of a turn into the events of its task: first the task as it is, then what is new."""

    def __init__(self, builder: TaskBuilder, *, history: int | None = None) -> None:
        self._builder = builder
        self._history = history
        self._state: TaskState | None = None
        # How much of each artifact was sent, and whether it was complete.
        self._sent: dict[str, tuple[int, bool]] = {}

    def advance(self, view: ApiTurnView) -> list[Json]:
        """Return the events that a new state adds."""
        state, results = find_state(view), list_results(view)
        if self._state is None:
            self._state = state
            self._sent = {item.id: (len(item.text), item.done) for item in results}
            return [{"task": self._builder.build_task(view, history=self._history)}]
        at = {"taskId": view.turn.id, "contextId": find_context(view)}
        events: list[Json] = []
        if state is not self._state and not is_settled(view):
            events.append(self._build_status(view, at, state))
        events += [{"artifactUpdate": {**at, **update}} for item in results if (update := self._update(item))]
        if state is not self._state:
            events.append(self._build_status(view, at, state))
        return events

    def _build_status(self, view: ApiTurnView, at: Json, state: TaskState) -> Json:
        self._state = state
        return {"statusUpdate": {**at, "status": self._builder.build_status(view)}}

    def _update(self, item: OutputItem) -> Json | None:
        sent, complete = self._sent.get(item.id, (0, False))
        if complete or (len(item.text) == sent and not item.done):
            return None
        known = item.id in self._sent
        self._sent[item.id] = len(item.text), item.done
        artifact = self._builder.build_artifact(item)
        if known:
            artifact["parts"] = [{"text": item.text[sent:], "mediaType": "text/markdown"}]
        return {"artifact": artifact, "append": known, "lastChunk": item.done}
