"""Log lines as text or JSON, with the fields of the running turn or delivery. They contain no message text, no secrets and no raw id of a chat."""

import errno
import json
import logging
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

from keryx.core import prompt

# Every field that a line may have beside its time, level, logger and message.
FIELDS = {
    "session": "The session.",
    "turn": "The turn. `keryx why` and traces name it too.",
    "delivery": "The delivery.",
    "platform": "The platform or surface of the message.",
    "chat": "A hash of the chat, stable for one store. A prompt that hides ids has the same hash.",
    "model": "The model that answered last.",
    "outcome": "How the step ended, in the words of the metrics.",
    "attempt": "Which attempt it was.",
    "wait": "Seconds from the receipt of the message to the beginning of its turn.",
    "first_token": "Seconds from the receipt to the first output of the agent.",
    "seconds": "How long it took: to store the message, from its receipt to the end of the turn, or from the end of the turn to the send.",
}
FieldValue = str | int | float | None
# Their own levels: other libraries do not know what may not be logged, so only their warnings are.
_OWN_LOGGERS = ("keryx", "uvicorn")
_REPEAT_SECONDS = 60.0
_NOISY_LOGGERS = (
    "asyncio",
    "keryx.surfaces.web.http_server",
    "keryx.surfaces.web.request",
    "keryx.surfaces.web.sign_in_limits",
    "keryx.markdown.html",
    "keryx.surfaces.gateway.relay.connector",
    "uvicorn.error",
    "websockets.server",
)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN)
_FIELDS_ATTRIBUTE = "keryx_fields"
_REPEATS_ATTRIBUTE = "keryx_repeats"
REPEATS: Mapping[str, object] = {_REPEATS_ATTRIBUTE: True}
"""The `extra` of a line that comes again until something outside is mended: it is logged once a minute."""
_bound: ContextVar[dict[str, FieldValue]] = ContextVar("keryx_log_fields")
_salts: list[bytes] = []


def configure(level: int, *, as_json: bool, file: Path | None = None) -> None:
    """Log to stderr or to a file, all libraries in one format."""
    handler = (
        logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
        if file
        else logging.StreamHandler(sys.stderr)
    )
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(level)


def set_salt(salt: bytes) -> None:
    """Set the key of the hashes of chats, which each store has its own of. Until then lines name no chat."""
    _salts[:] = [salt]


def hash_chat(chat: str | None) -> str | None:
    """Return the hash of a chat for a log line; `None` if there is no chat, or no key yet."""
    return prompt.hash_id(chat, _salts[0], kind="chat") if chat and _salts else None


def bind(**fields: FieldValue) -> None:
    """Add fields to all further lines of the running task and of the tasks that it starts."""
    _bound.set({**_bound.get({}), **fields})


def update(**fields: FieldValue) -> None:
    """Change bound fields, also for tasks that were started meanwhile."""
    _bound.get({}).update(fields)


def fields(**values: FieldValue) -> dict[str, Mapping[str, FieldValue]]:
    """Return the `extra` of one line."""
    return {_FIELDS_ATTRIBUTE: values}


def _collect_fields(record: logging.LogRecord) -> dict[str, FieldValue]:
    own: Mapping[str, FieldValue] = record.__dict__.get(_FIELDS_ATTRIBUTE, {})
    return {name: value for name, value in {**_bound.get({}), **own}.items() if value is not None}


def _format_time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class JsonFormatter(logging.Formatter):
    """One JSON object on each line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, FieldValue] = {
            "time": _format_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_collect_fields(record),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class TextFormatter(logging.Formatter):
    """One line, with the fields at its end; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().replace("\r", r"\r").replace("\n", r"\n")
        pairs = " ".join(f"{name}={value}" for name, value in _collect_fields(record).items())
        line = f"{_format_time(record)} {record.levelname} {record.name}: {message}"
        line = f"{line} {pairs}" if pairs else line
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class RepeatFilter(logging.Filter):
    """Lets the same complaint through once a minute: about a lack of descriptors or memory, what strangers can cause at
    will by connections and messages, and what is tried again soon (`REPEATS`). The next line of the same cause has the number
    of those that were left out."""

    def __init__(self) -> None:
        super().__init__()
        # When each was logged last, and how often it was left out since.
        self._logged: dict[tuple[str, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        repeats = record.name in _NOISY_LOGGERS or _REPEATS_ATTRIBUTE in record.__dict__
        if not (repeats or _finds_exhaustion(record)):
            return True
        # Further lines of asyncio name the objects of one connection.
        first = record.msg.partition("\n")[0] if isinstance(record.msg, str) else type(record.msg).__name__
        causes = (*(record.args if isinstance(record.args, tuple) else ()), *(record.exc_info or ())[1:2])
        kinds = {type(cause).__name__ for cause in causes if isinstance(cause, BaseException)}
        key = record.name, first, *sorted(kinds)
        now = time.monotonic()
        logged_at, left_out = self._logged.get(key, (-_REPEAT_SECONDS, 0))
        if now - logged_at < _REPEAT_SECONDS:
            self._logged[key] = logged_at, left_out + 1
            return False
        self._logged[key] = now, 0
        if left_out and isinstance(record.msg, str):
            record.msg = f"{record.msg} ({left_out} times more since this was last logged)"
        return True


def _finds_exhaustion(record: logging.LogRecord) -> bool:
    """Whether a log record is about a lack of descriptors, memory or threads."""
    args = record.args if isinstance(record.args, tuple) else ()
    causes: list[object] = [*args, record.exc_info[1] if record.exc_info else None]
    # The cause of an error is often its context too, and a chain may end where it began.
    seen: set[int] = set()
    while causes:
        cause = causes.pop()
        if isinstance(cause, OSError) and cause.errno in _EXHAUSTED:
            return True
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            causes += (cause.__cause__, cause.__context__)
    return False
