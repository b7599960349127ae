"""Translates the errors of model providers to `AgentFailed`, and decides which are worth a retry."""

import re
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import openai

from keryx.agents.llm import Model
from keryx.core import durations
from keryx.core.durations import parse_retry_after
from keryx.core.errors import AgentFailed, AgentRefused
from keryx.core.text import to_single_line, truncate
from keryx.jsonrpc import Json

LONGEST_DETAIL = 240
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
    name = f"model {model.name!r}"
    match exc:
        case openai.APITimeoutError():
            return _build_transient(f"The endpoint of {name} ({model.host}) did not answer in time")
        case openai.APIConnectionError():
            return _classify_connection(exc, model)
        case openai.APIStatusError():
            after = parse_retry_after(exc.response.headers, now=now or datetime.now(UTC))
            body = isinstance(cast(Any, exc.body), dict)
            detail = _read_detail(exc, secret)
            return _classify_response(exc.status_code, exc.code or "", model, detail, after, body=body)
        case openai.APIError():
            # An error inside a stream. Some providers send a status as its code.
            code = exc.code or ""
            status = int(code) if re.fullmatch(r"[45]\d\d", code) else 0
            return _classify_response(status, code, model, _read_detail(exc, secret), None, body=True)
        case EmptyAnswer():
            return _build_transient(f"The answer of {name} was empty", tries=_FEW_TRIES)
        case StreamBroken():
            return _build_transient(f"The answer of {name} broke off before it was complete")
        case _:
            raise exc


def build_interrupted_error(model: Model) -> AgentFailed:
    """Return the error for an answer that broke off after a part was shown: a retry would show it twice."""
    return AgentFailed(f"The connection to model {model.name!r} broke in mid-answer; /retry asks again.")


def _classify_connection(exc: openai.APIConnectionError, model: Model) -> ProviderFailure:
    """Classify a failed connection. Errors that the user has to fix are not retried."""
    name = f"model {model.name!r}"
    if not model.base_url.startswith(("http://", "https://")):
        return _build_permanent(
            f"The base_url of {name} is no web address: it begins with http:// or https://."
        )
    for cause in _iterate_causes(exc):
        match cause:
            case ssl.SSLCertVerificationError():
                return _build_permanent(
                    f"The certificate of {model.host}, the endpoint of {name}, cannot be trusted: {cause.verify_message.rstrip('.')}."
                )
            case ssl.SSLError() if not isinstance(cause, ssl.SSLEOFError):
                return _build_permanent(
                    f"No safe connection to {model.host}, the endpoint of {name}, is possible; is its base_url meant to begin with http://?"
                )
            case socket.gaierror() if cause.errno in _UNKNOWN_HOST:
                return _build_permanent(
                    f"There is no host {model.host!r}, the endpoint of {name}; check its base_url and the network, then /retry."
                )
            case ConnectionRefusedError() if model.is_local:
                start = "Ollama with `ollama serve`" if model.port == _OLLAMA_PORT else "its server"
                advice = f"start {start}, or check its base_url, then /retry"
                return _build_transient(
                    f"Nothing listens at {model.host}:{model.port}, the endpoint of {name}",
                    advice,
                    tries=_FEW_TRIES,
                )
            case _:
                pass
    return _build_transient(
        f"The endpoint of {name} ({model.host}) cannot be reached", "check its base_url and the network"
    )


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
    name, reason = f"model {model.name!r}", f": {detail}" if detail else ""
    text = f"{code} {detail}"
    if status in (401, 403) and not _FILTERED.search(text):
        if status == 403:
            return _build_permanent(f"The key of {name} may not be used for this{reason}.")
        if not model.key:
            return _build_permanent(
                f"The endpoint {model.host} wants a key for {name}; set its `key` in keryx.toml to env:NAME or file:PATH."
            )
        return _build_permanent(f"The key of {name} ({model.key}) was refused by {model.host}; check it.")
    if status == 402 or _NO_CREDIT.search(text):
        return _build_permanent(
            f"The account for {name} has no credit left; its provider {model.host} can tell more."
        )
    if status < 500 and status != 429 and _CONTEXT_OVERFLOW.search(text):
        size = f" of {model.context} tokens" if model.context else ""
        error = ContextFull(
            f"The conversation no longer fits into the context{size} of {name}; /compact makes room."
        )
        return ProviderFailure(error=error)
    if status == 429:
        wait = f" for {durations.describe(after)}" if after else ""
        return _build_transient(f"The provider of {name} asks to wait{wait}: too many requests", after=after)
    if status == 0 or status >= 500 or status in (408, 409, 425):
        return _build_transient(
            f"The provider of {name} has trouble{reason or f' (status {status})'}", after=after
        )
    if _NO_TOOLS.search(text):
        return _build_permanent(
            f"The endpoint takes no tools for {name}: set `tools = false` for it in keryx.toml, or switch them off with /tools off."
        )
    if _FILTERED.search(text):
        return ProviderFailure(
            error=AgentRefused(f"The provider of {name} refused the request by its content rules{reason}.")
        )
    if status == 404 and not body:
        return _build_permanent(
            f"There is no endpoint at the base_url of {name} ({model.host}); many end in /v1."
        )
    if status == 404 or _UNKNOWN_MODEL.search(text):
        return _build_permanent(
            f"The endpoint {model.host} does not know the id {model.id!r} of {name}; check `id` in keryx.toml, or KERYX_LLM_MODEL."
        )
    return ProviderFailure(
        error=AgentRefused(f"The provider of {name} refused the request (status {status}){reason}.")
    )


def _read_detail(exc: openai.APIError, secret: str) -> str:
    """Return the message of the provider on one line, shortened, and without the key."""
    body, message = cast(Any, exc.body), exc.message
    if isinstance(body, dict):
        body = cast(Json, body)
        message = str(body.get("message") or body.get("detail") or body.get("error") or "")
    elif isinstance(exc, openai.APIStatusError):
        message = ""  # Probably an HTML page.
    text = to_single_line(message)
    if secret:
        text = text.replace(secret, "[key]")
    return truncate(text, LONGEST_DETAIL).rstrip(". ")


def _build_transient(
    what: str,
    advice: str = "/retry asks again",
    *,
    after: timedelta | None = None,
    tries: int | None = None,
) -> ProviderFailure:
    return ProviderFailure(
        error=AgentFailed(f"{what}; {advice}."), transient=True, after=after, tries=tries, what=what
    )


def _build_permanent(text: str) -> ProviderFailure:
    return ProviderFailure(error=AgentFailed(text))
