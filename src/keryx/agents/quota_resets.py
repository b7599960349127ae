"""Finds in the error of a model provider or an agent when its limit resets: in headers, in fields of the body, or in its words."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, cast

from keryx.core import clock
from keryx.core.durations import parse_retry_after
from keryx.core.errors import Invalid

_MAX_DEPTH = 6
_MAX_TEXT = 4_000
# The values of a body that are looked at, and the characters of one that may be a time.
_MAX_VALUES = 2_000
_MAX_TIME_CHARS = 100
# Further ahead than any real limit: the number was something else.
_MAX_WAIT = timedelta(days=60)
_NO_HEADERS: Mapping[str, str] = {}

_MOMENT_FIELDS = frozenset({"resets_at", "reset_at", "resetsat", "resetat", "reset_time", "resettime"})
_SPAN_FIELDS = frozenset(
    {"resets_in_seconds", "resetsinseconds", "retry_after", "retryafter", "retrydelay", "retry_delay"}
)
# A provider behind a router: its headers are repeated in the body.
_HEADER_FIELDS = frozenset({"x-ratelimit-reset", "retry-after"})
_UNIFIED_RESET = "anthropic-ratelimit-unified-reset"
# The kinds of limits that headers tell about, with the names of what is left and when it resets.
_HEADER_PAIRS = tuple(
    (f"{prefix}{left}", f"{prefix}{reset}")
    for prefix, left, reset in (
        ("x-ratelimit-", "remaining-requests", "reset-requests"),
        ("x-ratelimit-", "remaining-tokens", "reset-tokens"),
        ("x-ratelimit-", "remaining", "reset"),
        ("anthropic-ratelimit-", "requests-remaining", "requests-reset"),
        ("anthropic-ratelimit-", "tokens-remaining", "tokens-reset"),
        ("anthropic-ratelimit-", "input-tokens-remaining", "input-tokens-reset"),
        ("anthropic-ratelimit-", "output-tokens-remaining", "output-tokens-reset"),
    )
)
_UNIT_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_SPAN_PIECE = r"\d+(?:\.\d+)?\s*(?:days?|d|hours?|hrs?|hr|h|minutes?|mins?|min|milliseconds?|ms|m|seconds?|secs?|sec|s)(?![a-z])"
_SPAN = re.compile(rf"{_SPAN_PIECE}(?:(?:\s*,?\s*(?:and\s+)?)?{_SPAN_PIECE})*", re.I)
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.I)
_COMPACT = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])", re.I)
_WORD_BEFORE_SPAN = re.compile(
    r"(?:(?:try|retry|available|ask)(?:ing)?(?:\s+(?:again|your request))?\s+(?:in|after)|wait(?:\s+for)?|resets?\s+(?:in|after))[\s:]*(?:about\s+|at least\s+)?",
    re.I,
)
_EPOCH = re.compile(r"limit reached\|(\d{10})(?:\d{3})?\b", re.I)
_ISO = re.compile(
    r"\b(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2})?)(?:\.\d+)?\s*(Z|UTC|GMT|[+-]\d{2}:?\d{2})?", re.I
)
_MONTHS = {
    m: n
    for n, m in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_WALL = re.compile(
    r"(?:resets?|(?:try|ask) again|available again|until)(?:\s+(?:on|at|by))?\s*:?\s*"
    r"(?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s*(?:(?P<year>\d{4}),?\s*)?(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap]\.?m\.?)?(?:\s*\(?(?P<zone>[A-Za-z]+/[A-Za-z_/+-]+|UTC|GMT)\)?)?",
    re.I,
)
# How agents begin the notice that they give in the place of an answer.
_NOTICE = re.compile(
    r"(?:claude(?: ai| code)? usage limit reached|(?:\d+-hour|weekly|session|usage) limit reached|you(?:'|’)ve (?:hit|reached) your (?:\w+ ){0,2}limit)",
    re.I,
)
_MAX_NOTICE = 400
_LIMIT_WORDS = re.compile(r"\b(limit|quota|rate.?limit|too many requests|resource.?exhausted)", re.I)


def find_limit_notice(text: str, *, now: datetime) -> datetime | None:
    """Return when a limit resets if a whole answer is the notice of an agent that its limit is reached."""
    return (
        find_reset(now=now, text=text) if len(text) <= _MAX_NOTICE and _NOTICE.match(text.strip()) else None
    )


def find_reset(
    *, now: datetime, headers: Mapping[str, str] = _NO_HEADERS, body: object = None, text: str = ""
) -> datetime | None:
    """Return when a limit resets according to an error, `None` if it does not say. A time without a zone is one of the zone
    of `now`."""
    values = [(name, value) for name, value in islice(_iterate_values(body, _MAX_DEPTH), _MAX_VALUES) if name]
    body_texts = (v[:_MAX_TEXT] for name, v in values if isinstance(v, str) and name in ("message", "detail"))
    # The beginning, with single spaces: the patterns go back over longer ones.
    words = " ".join("\n".join((text[:_MAX_TEXT], *body_texts))[:_MAX_TEXT].split())
    delay = parse_retry_after(headers, now=now)
    found = (
        next(filter(None, (_read_field(name, value, now) for name, value in values)), None)
        or (now + delay if delay else None)
        or _read_moment(headers.get(_UNIFIED_RESET, ""), now)
        or _read_words(words, now)
        or _read_exhausted(headers, now)
    )
    return found if found is not None and now < found <= now + _MAX_WAIT else None


def is_limit(text: str) -> bool:
    """Whether the words of an error are about a limit of use."""
    return _LIMIT_WORDS.search(text) is not None


def _iterate_values(value: object, depth: int) -> Iterator[tuple[str, object]]:
    """Yield all values in a body: fields with their name in lower case, items of lists without one."""
    if depth == 0:
        return
    if isinstance(value, dict):
        named = ((str(name).lower(), item) for name, item in cast(dict[str, Any], value).items())
    elif isinstance(value, list):
        named = (("", item) for item in cast(list[Any], value))
    else:
        return
    for name, item in named:
        yield name, item
        yield from _iterate_values(item, depth - 1)


def _read_field(name: str, value: object, now: datetime) -> datetime | None:
    if name in _MOMENT_FIELDS:
        return _read_moment(value, now)
    if name in _SPAN_FIELDS:
        return _read_span(value, now)
    if name in _HEADER_FIELDS:
        return _read_moment(value, now) or _read_span(value, now)
    return None


def _read_moment(value: object, now: datetime) -> datetime | None:
    """Read a moment: seconds or milliseconds since 1970, or a date with a time."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _MAX_TIME_CHARS:
            return None
        try:
            number = float(text)
        except ValueError:
            return _read_iso(text, UTC)
    elif isinstance(value, int | float):
        number = value
    else:
        return None
    if 1e11 < number < 1e14:
        number /= 1000
    # Less than that is a span, not a moment.
    return datetime.fromtimestamp(number, UTC) if 1e9 < number < 1e10 else None


def _read_span(value: object, now: datetime) -> datetime | None:
    """Read a span: seconds, or `6m0s`."""
    if isinstance(value, int | float):
        seconds = value
    elif isinstance(value, str) and len(value) <= _MAX_TIME_CHARS:
        pieces = _COMPACT.findall(value)
        try:
            seconds = sum(float(n) * _UNIT_SECONDS[unit.lower()] for n, unit in pieces) or float(value)
        except ValueError:
            return None
    else:
        return None
    return _add_seconds(now, seconds)


def _add_seconds(now: datetime, seconds: float) -> datetime | None:
    return now + timedelta(seconds=seconds) if 0 < seconds < _MAX_WAIT.total_seconds() else None


def _read_exhausted(headers: Mapping[str, str], now: datetime) -> datetime | None:
    """Return the latest reset of those limits of which nothing is left."""
    moments = [
        _read_moment(headers[reset], now) or _read_span(headers[reset], now)
        for left, reset in _HEADER_PAIRS
        if headers.get(left, "").strip() == "0" and reset in headers
    ]
    return max((m for m in moments if m), default=None)


def _read_words(text: str, now: datetime) -> datetime | None:
    if epoch := _EPOCH.search(text):
        return datetime.fromtimestamp(int(epoch[1]), UTC)
    for word in _WORD_BEFORE_SPAN.finditer(text):
        if span := _SPAN.match(text, word.end()):
            seconds = sum(float(n) * _get_unit(unit) for n, unit in _PIECE.findall(span[0]))
            return _add_seconds(now, seconds)
    if iso := _read_iso(text, now.tzinfo or UTC):
        return iso
    for wall in _WALL.finditer(text):
        if moment := _read_wall_time(wall, now):
            return moment
    return None


def _get_unit(name: str) -> float:
    name = name.lower()
    return 0.001 if name.startswith(("ms", "milli")) else _UNIT_SECONDS[name[0]]


def _read_iso(text: str, zone: Any) -> datetime | None:
    found = _ISO.search(text)
    if found is None:
        return None
    offset = (found[3] or "").upper().replace("Z", "+00:00").replace("UTC", "+00:00").replace("GMT", "+00:00")
    try:
        moment = datetime.fromisoformat(f"{found[1]}T{found[2]}{offset}")
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _read_wall_time(found: re.Match[str], now: datetime) -> datetime | None:
    """Read a time of the day, perhaps with a date: `3pm`, `5:10pm (Europe/Paris)`, `Nov 20th, 2026 2:06 PM`."""
    if not (found["half"] or found["minute"]):
        return None
    try:
        zone = clock.find_zone(found["zone"]) if found["zone"] else now.tzinfo or UTC
        local = now.astimezone(zone)
        hour = int(found["hour"])
        if half := (found["half"] or "").lower():
            hour = hour % 12 + (12 if half.startswith("p") else 0)
        moment = local.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"]:
            year = int(found["year"] or local.year)
            moment = moment.replace(year=year, month=_MONTHS[found["month"].lower()], day=int(found["day"]))
            if moment < local and not found["year"]:
                moment = moment.replace(year=year + 1)
        elif moment <= local:
            moment += timedelta(days=1)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError, Invalid):
        return None
