"""Translates the errors of model providers to `AgentFailed`, and decides which are worth a retry."""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import openai

from keryx.agents import quota_resets
from keryx.agents.llm import Model
from keryx.core import durations
from keryx.core.errors import AgentFailed, AgentRefused, ModelUnavailable, QuotaReached
from keryx.core.text import to_short_line, truncate
from keryx.core.texts import Phrase
from keryx.jsonrpc import Json

LONGEST_DETAIL = 240
# What is looked at of a message, which may hold the key.
_LONGEST_MESSAGE = 4_000
_FEW_TRIES = 2
_OLLAMA_PORT = 11434
_UNKNOWN_HOST = (socket.EAI_NONAME, socket.EAI_NODATA)
_CONTEXT_OVERFLOW = re.compile(
    r"context[ _](length|size|window)|maximum context|too many (input )?tokens|prompt is too long"
    r"|exceed_context_size|input (length|token count).{0,80}exceed|reduce the length of the messages",
    re.I,
)
_NO_TOOLS = re.compile(
    r"(does not|doesn't|not) support (tool|function)|tools? (is|are|use is) not supported", re.I
)
_FILTERED = re.compile(r"content[ _]?(filter|policy|management)|moderation|safety system|flagged", re.I)
_NO_CREDIT = re.compile(r"insufficient[ _](quota|credit|balance|funds)|exceeded your current quota", re.I)
_UNKNOWN_MODEL = re.compile(
    r"model.{0,120}(not found|does ?n[o']t exist|not exist|unknown|invalid)|model_not_found", re.I
)


class ContextFull(AgentRefused):
    """The conversation does not fit into the context of the model."""


class ProviderFailure(msgspec.Struct, frozen=True, kw_only=True):
    error: AgentFailed
    # The same request may succeed later.
    transient: bool = False
    # Not before this delay.
    after: timedelta | None = None
    # At most this many attempts.
    tries: int | None = None
    # What went wrong, without advice, to be shown while the request is retried.
    what: str = ""


class StreamBroken(Exception):
    """A stream ended before the answer did, or was not valid."""


class EmptyAnswer(Exception):
    """The model returned no text and no tool call."""


def classify(
    exc: Exception, model: Model, *, secret: str = "", now: datetime | None = None
) -> ProviderFailure:
    """Describe the failure of a request to this model. `secret` is removed from the text."""
    name = repr(model.name)
    match exc:
        case openai.APITimeoutError():
            return _build_transient(Phrase("model.timeout", name=name, host=model.host))
        case openai.APIConnectionError():
            return _classify_connection(exc, model)
        case openai.APIStatusError():
            after = _find_delay(exc, exc.response.headers, now=now or datetime.now(UTC))
            body = isinstance(cast(Any, exc.body), dict)
            detail = _read_detail(exc, secret)
            return _classify_response(exc.status_code, _read_code(exc), model, detail, after, body=body)
        case openai.APIError():
            # An error inside a stream. Some providers send a status as its code.
            code = _read_code(exc)
            status = int(code) if re.fullmatch(r"[45]\d\d", code) else 0
            after = _find_delay(exc, {}, now=now or datetime.now(UTC))
            return _classify_response(status, code, model, _read_detail(exc, secret), after, body=True)
        case EmptyAnswer():
            return _build_transient(Phrase("model.empty", name=name), tries=_FEW_TRIES)
        case StreamBroken():
            return _build_transient(Phrase("model.broken_off", name=name))
        case _:
            raise exc


def build_quota_error(model: Model, until: datetime) -> QuotaReached:
    """Return the error for a limit that resets later than a request may wait."""
    text = Phrase("model.quota", name=repr(model.name), time=f"{until:%Y-%m-%d %H:%M} UTC")
    return QuotaReached(text, until=until, model=model.name)


def _find_delay(exc: openai.APIError, headers: Mapping[str, str], *, now: datetime) -> timedelta | None:
    """Return how long the provider asks to wait."""
    reset = quota_resets.find_reset(now=now, headers=headers, body=cast(object, exc.body), text=exc.message)
    return reset - now if reset else durations.parse_retry_after(headers, now=now)


def build_interrupted_error(model: Model) -> AgentFailed:
    """Return the error for an answer that broke off after a part was shown: a retry would show it twice."""
    return AgentFailed(Phrase("model.interrupted", name=repr(model.name)))


def _classify_connection(exc: openai.APIConnectionError, model: Model) -> ProviderFailure:
    """Classify a failed connection. Errors that the user has to fix are not retried."""
    name, host = repr(model.name), model.host
    if not model.base_url.startswith(("http://", "https://")):
        return _build_permanent(Phrase("model.no_address", name=name))
    for cause in _iterate_causes(exc):
        match cause:
            case ssl.SSLCertVerificationError():
                reason = cause.verify_message.rstrip(".")
                return _build_permanent(Phrase("model.certificate", name=name, host=host, reason=reason))
            case ssl.SSLError() if not isinstance(cause, ssl.SSLEOFError):
                return _build_permanent(Phrase("model.not_safe", name=name, host=host))
            case socket.gaierror() if cause.errno in _UNKNOWN_HOST:
                return _build_down(Phrase("model.no_host", name=name, host=repr(host)))
            case ConnectionRefusedError() if model.is_local:
                start = "model.start_ollama" if model.port == _OLLAMA_PORT else "model.start_server"
                what = Phrase("model.not_listening", name=name, address=f"{host}:{model.port}")
                return _build_transient(what, Phrase(start), tries=_FEW_TRIES)
            case _:
                pass
    what = Phrase("model.unreachable", name=name, host=host)
    return _build_transient(what, Phrase("model.check_network"))


def _iterate_causes(exc: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, including those in exception groups."""
    yield exc
    if isinstance(exc, BaseExceptionGroup):
        for member in cast(BaseExceptionGroup[BaseException], exc).exceptions:
            yield from _iterate_causes(member)
    cause = exc.__cause__ or exc.__context__
    if cause is not None:
        yield from _iterate_causes(cause)


def _classify_response(
    status: int, code: str, model: Model, detail: str, after: timedelta | None, *, body: bool
) -> ProviderFailure:
    name, host, reason = repr(model.name), model.host, f": {detail}" if detail else ""
    text = f"{code} {detail}"
    if status in (401, 403) and not _FILTERED.search(text):
        if status == 403:
            return _build_permanent(Phrase("model.key_forbidden", name=name, reason=reason))
        if not model.key:
            return _build_permanent(Phrase("model.key_missing", name=name, host=host))
        return _build_permanent(Phrase("model.key_refused", name=name, reference=model.key, host=host))
    if status == 402 or (_NO_CREDIT.search(text) and not after):
        return _build_down(Phrase("model.no_credit", name=name, host=host))
    if status < 500 and status != 429 and _CONTEXT_OVERFLOW.search(text):
        full = (
            Phrase("model.context_full_size", name=name, size=str(model.context))
            if model.context
            else Phrase("model.context_full", name=name)
        )
        return ProviderFailure(error=ContextFull(full))
    if status == 429:
        wait = (
            Phrase("model.wait_span", name=name, span=durations.describe(after))
            if after
            else Phrase("model.wait", name=name)
        )
        return _build_transient(wait, after=after)
    if status == 0 or status >= 500 or status in (408, 409, 425):
        trouble = (
            Phrase("model.trouble", name=name, reason=reason)
            if reason
            else Phrase("model.trouble_status", name=name, status=str(status))
        )
        return _build_transient(trouble, after=after)
    if _NO_TOOLS.search(text):
        return _build_permanent(Phrase("model.no_tools", name=name))
    if _FILTERED.search(text):
        return ProviderFailure(error=AgentRefused(Phrase("model.filtered", name=name, reason=reason)))
    if status == 404 and not body:
        return _build_permanent(Phrase("model.no_endpoint", name=name, host=host))
    if status == 404 or _UNKNOWN_MODEL.search(text):
        return _build_permanent(Phrase("model.unknown_id", name=name, host=host, id=repr(model.id)))
    return ProviderFailure(
        error=AgentRefused(Phrase("model.refused", name=name, status=str(status), reason=reason))
    )


def _read_code(exc: openai.APIError) -> str:
    """Return the code that the provider gave, shortened. It need not be a text."""
    return str(cast(object, exc.code) or "")[:LONGEST_DETAIL]


def _read_detail(exc: openai.APIError, secret: str) -> str:
    """Return the message of the provider on one line, shortened, and without the key."""
    body, message = cast(Any, exc.body), exc.message
    if isinstance(body, dict):
        body = cast(Json, body)
        message = str(body.get("message") or body.get("detail") or body.get("error") or "")
    elif isinstance(exc, openai.APIStatusError):
        message = ""  # Probably an HTML page.
    text = to_short_line(message, _LONGEST_MESSAGE)
    if secret:
        text = text.replace(secret, "[key]")
    return truncate(text, LONGEST_DETAIL).rstrip(". ")


def _build_transient(
    what: Phrase,
    advice: Phrase | None = None,
    *,
    after: timedelta | None = None,
    tries: int | None = None,
) -> ProviderFailure:
    error = ModelUnavailable(Phrase("model.failed", what=what, advice=advice or Phrase("model.retry")))
    return ProviderFailure(error=error, transient=True, after=after, tries=tries, what=what)


def _build_down(text: Phrase) -> ProviderFailure:
    """Describe a failure that no retry mends, but another model may."""
    return ProviderFailure(error=ModelUnavailable(text))


def _build_permanent(text: Phrase) -> ProviderFailure:
    return ProviderFailure(error=AgentFailed(text))
