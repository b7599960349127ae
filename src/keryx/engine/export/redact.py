"""Redaction of exports: addresses, phone numbers, ids and secrets become stable placeholders."""

import re
from collections.abc import Iterable
from typing import assert_never

import msgspec

from keryx.core.ids import OPERATOR, PrincipalId
from keryx.core.messages import Audio, File, Image, Notice, Part, Parts, Reasoning, Text, ToolCall, ToolResult
from keryx.core.records import Entry, MessageRecord, SessionRecord, TurnRecord, UsageRecord
from keryx.core.source import Source

_SHORTEST_ID = 5
_SECRET = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}
    | \b(?:gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|xapp-|npm_|hf_|pypi-|gsk_|shpat_|dop_v1_)[A-Za-z0-9_-]{10,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[0-9A-Za-z_-]{30,}
    | (?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?
    | \b[0-9]{6,12}:[A-Za-z0-9_-]{30,}
    | (?<=://)[^\s/@:"]*:[^\s/@"]+(?=@)
    | (?i:(?<=bearer\ )|(?<=basic\ ))[A-Za-z0-9._~+/=-]{12,}
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMED_SECRET = re.compile(
    r"""(?ix)
    (\b[\w.-]{0,40}(?:passw(?:or)?d|secret|api[_-]?key|access[_-]?key|private[_-]?key|token(?!s))\w{0,20}
    ["']?\s{0,3}[:=]\s{0,3}["']?)
    ([^\s"',;&}\[\]]{6,})
    """
)
_DENSE = re.compile(
    r"(?<![\w/+-])(?=[\w+/-]*[a-z])(?=[\w+/-]*[A-Z])(?=[\w+/-]*[0-9])[A-Za-z0-9_+/-]{32,}={0,2}"
)
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}")
# Stricter than the pattern for prompts: an export must keep numbers that are not telephone numbers.
_PHONE = re.compile(r"(?<![\w.,:/#-])(?:\+|00)?\(?\d(?:[ ./()-]{0,2}\d){7,14}(?![\w-]|[.,:]\d)")
_DATE = re.compile(r"\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{4}")
_HOME = re.compile(r"(?<=/home/)[^/\s\"':]+|(?<=/Users/)[^/\s\"':]+|(?<=\\Users\\)[^\\\s\"':]+")


class Redactor:
    """Replaces a value with the same placeholder each time. Placeholders are numbered in order of first use."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._people: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def text(self, text: str) -> str:
        text = _SECRET.sub(lambda m: self._get_placeholder("secret", m[0]), text)
        text = _NAMED_SECRET.sub(lambda m: m[1] + self._get_placeholder("secret", m[2]), text)
        text = _DENSE.sub(lambda m: self._get_placeholder("secret", m[0]), text)
        if "@" in text:
            text = _EMAIL.sub(lambda m: self._get_placeholder("email", m[0].lower()), text)
        if self._pattern:
            text = self._pattern.sub(lambda m: self._people[m[0]], text)
        text = _HOME.sub(lambda m: self._get_placeholder("person", m[0]), text)
        return _PHONE.sub(self._redact_phone, text)

    def person(self, id_: str) -> str:
        """Return the placeholder of a person's id or name. Texts that follow are searched for it, too."""
        if not id_ or id_.startswith("[person "):
            return id_
        hidden = self._get_placeholder("person", id_)
        if len(id_) >= _SHORTEST_ID and id_ not in self._people:
            self._people[id_] = hidden
            longest_first = sorted(self._people, key=len, reverse=True)
            self._pattern = re.compile("|".join(rf"(?<!\w){re.escape(i)}(?!\w)" for i in longest_first))
        return hidden

    def session(self, record: SessionRecord) -> SessionRecord:
        origin = record.origin and self._redact_source(record.origin)
        settings = record.settings
        return msgspec.structs.replace(
            record,
            owner=self._redact_principal(record.owner),
            origin=origin,
            title=self.text(record.title),
            cwd=self.text(record.cwd),
            aliases=tuple(self.text(alias) for alias in record.aliases),
            settings=msgspec.structs.replace(
                settings, personality=settings.personality and self.text(settings.personality)
            ),
            project=record.project
            and msgspec.structs.replace(record.project, name=self.text(record.project.name)),
            tags=tuple(msgspec.structs.replace(tag, name=self.text(tag.name)) for tag in record.tags),
            epochs=tuple(msgspec.structs.replace(e, summary=self.text(e.summary)) for e in record.epochs),
        )

    def entry(self, record: Entry) -> Entry:
        match record:
            case MessageRecord():
                return msgspec.structs.replace(
                    record,
                    author=self.person(record.author),
                    platform_id="",
                    parts=self.parts(record.parts),
                    exact=None if record.exact is None else self.text(record.exact),
                )
            case TurnRecord():
                return msgspec.structs.replace(
                    record,
                    asker=self._redact_principal(record.asker),
                    reply=None,
                    error=record.error and self.text(record.error),
                )
            case UsageRecord():
                return record
            case _:
                assert_never(record)

    def parts(self, parts: Iterable[Part]) -> Parts:
        return tuple(self._redact_part(part) for part in parts)

    def _redact_part(self, part: Part) -> Part:
        match part:
            case Text():
                # The fields of a phrase may hold a name or a number.
                return Text(self.text(part.text))
            case Notice():
                return msgspec.structs.replace(part, text=self.text(part.text))
            case Image() | File():
                return msgspec.structs.replace(part, name=self.text(part.name))
            case Audio():
                return msgspec.structs.replace(
                    part, name=self.text(part.name), transcript=self.text(part.transcript)
                )
            case ToolCall():
                return msgspec.structs.replace(part, input=self.text(part.input))
            case ToolResult():
                return msgspec.structs.replace(part, output=self.text(part.output))
            case Reasoning():
                # An opaque block cannot be searched for personal data, so it is dropped.
                return msgspec.structs.replace(part, text=self.text(part.text), opaque="")
            case _:
                assert_never(part)

    def _redact_principal(self, principal: PrincipalId) -> PrincipalId:
        return principal if principal == OPERATOR else PrincipalId(self.person(principal))

    def _redact_source(self, source: Source) -> Source:
        names = ("chat", "chat_name", "user", "user_name", "user_alt", "chat_alt", "parent_chat", "thread")
        values = {name: value for name, value in msgspec.structs.asdict(source).items() if name in names}
        hidden = {name: value and self.person(value) for name, value in values.items()}
        return msgspec.structs.replace(
            source, **hidden, topic=source.topic and self.text(source.topic), message=None
        )

    def _redact_phone(self, found: re.Match[str]) -> str:
        text = found[0]
        if _DATE.match(text):
            return text
        return self._get_placeholder("phone", re.sub(r"\D", "", text))

    def _get_placeholder(self, kind: str, value: str) -> str:
        key = kind, value
        if key not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[key] = f"[{kind} {self._counts[kind]}]"
        return self._known[key]
