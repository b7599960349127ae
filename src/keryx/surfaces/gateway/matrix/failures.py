"""Failures: how a homeserver says no, in the words of Keryx. Refusals are translated here and nowhere else."""

from datetime import timedelta

import httpx
import msgspec

from keryx.core.errors import (
    Forbidden,
    Gone,
    Invalid,
    KeryxError,
    NotFound,
    NotSent,
    Refused,
    Retryable,
    SendError,
    Throttled,
    Unavailable,
    Uncertain,
)

TOKEN_REFUSED = "the homeserver refuses the access token: log in again with `keryx gateway setup matrix`, then restart Keryx"
_PAUSE = timedelta(seconds=5)
_LONGEST_ERROR = 200
_TOKEN_ERRORS = {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"}
_UNKNOWN_PARENT = "unknown event"


class Paused(Retryable):
    """The homeserver takes no more requests for a while."""


class Away(Unavailable):
    """The homeserver cannot be reached, or does not work now."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """How a homeserver says no."""

    code: str = msgspec.field(name="errcode", default="")
    error: str = ""
    retry_after_ms: float = 0
    status: int = 0
    retry_after: float = 0

    def __str__(self) -> str:
        said = " ".join(self.error[:_LONGEST_ERROR].split()) or "no reason given"
        return f"{self.status} {self.code}: {said}" if self.code else f"HTTP {self.status}"

    @property
    def throttled(self) -> bool:
        return self.status == 429 or self.code == "M_LIMIT_EXCEEDED"

    @property
    def token_refused(self) -> bool:
        return self.code in _TOKEN_ERRORS or self.status == 401

    @property
    def after(self) -> timedelta:
        if self.retry_after_ms > 0:
            return timedelta(milliseconds=self.retry_after_ms)
        return timedelta(seconds=self.retry_after) if self.retry_after > 0 else _PAUSE


def failure(answer: httpx.Response) -> KeryxError:
    """What a refused request means to one who asked."""
    said = problem(answer)
    if said.throttled:
        return Paused("the homeserver asks for a pause", after=said.after)
    if said.token_refused:
        return Forbidden(TOKEN_REFUSED)
    if said.status in (403, 404):
        return NotFound(f"the homeserver does not give it out ({said})")
    if said.status >= 500:
        return Away(f"the homeserver has a problem ({said})")
    return Invalid(f"the homeserver refuses the request ({said})")


def send_failure(answer: httpx.Response) -> SendError:
    """What a refused request means to one who sent a message."""
    said = problem(answer)
    if said.throttled:
        return Throttled("the homeserver asks for a pause", after=said.after, account=True)
    if said.token_refused:
        return NotSent(TOKEN_REFUSED)
    if said.status >= 500:
        return Uncertain(f"the homeserver has a problem ({said})")
    if said.status == 400 and _UNKNOWN_PARENT in said.error.lower():
        return Gone("the message to edit is not there")
    if said.status == 403:
        return Refused(f"Keryx is not in this room, or may not write there: invite it again ({said})")
    return Refused(f"the homeserver does not take this message ({said})")


def problem(answer: httpx.Response) -> Problem:
    try:
        said = msgspec.json.decode(answer.content, type=Problem, strict=False)
    except (msgspec.DecodeError, UnicodeError):
        said = Problem()
    wait = answer.headers.get("retry-after", "")
    return msgspec.structs.replace(
        said, status=answer.status_code, retry_after=float(wait) if wait.isdigit() else 0
    )
