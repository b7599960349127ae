"""Texts for people, one catalogue per language. A template has named fields and plural forms: `{count:one message|# messages}`."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, lru_cache
from string import Formatter
from typing import Any

import msgspec

from keryx.core.errors import Invalid, KeryxError
from keryx.core.texts import delivery_texts, english, german, page, setup_texts

# The texts of these modules are pairs of English and German.
_PAIRS = {**delivery_texts.TEXTS, **setup_texts.TEXTS}
DEFAULT_LANGUAGE = "en"
COMMAND_SIGN = "/"
LANGUAGES: Mapping[str, Mapping[str, str]] = {
    "en": {
        **english.TEXTS,
        **{f"page.{text}": text for text in page.TEXTS},
        **{key: pair[0] for key, pair in _PAIRS.items()},
    },
    "de": {
        **german.TEXTS,
        **{f"page.{text}": own for text, own in page.TEXTS.items()},
        **{key: pair[1] for key, pair in _PAIRS.items()},
    },
}
# How a language separates thousands and decimals.
_SEPARATORS = {"en": (",", "."), "de": (".", ",")}
# The areas of the errors that are stored with turns, deliveries and jobs.
ERROR_AREAS = (
    "access",
    "agent",
    "attachment",
    "connect",
    "delivery",
    "file",
    "gone",
    "job",
    "model",
    "platform",
    "reason",
    "secret",
    "system",
    "target",
    "tools",
    "turn",
)
# The texts that stand for messages without a text, stored with the message.
CONTENT_AREA = "content"
_SYSTEM_ERRORS: Sequence[tuple[type[OSError], str]] = (
    (FileNotFoundError, "system.no_file"),
    (PermissionError, "system.forbidden"),
    (IsADirectoryError, "system.folder"),
)
# The commands of Keryx in a text, by the texts of their help.
_COMMAND_NAMES = sorted(
    (key.removeprefix("help.") for key in english.TEXTS if key.startswith("help.")), key=len
)
_COMMAND = re.compile(rf"(?<![\w/.:-])/(?=(?:{'|'.join(reversed(_COMMAND_NAMES))})(?![\w/-])|\Z)")
# Of the errors that are stored in English: a longer one is that of a program, with its output.
_LONGEST_STORED = 500
# As much of an Accept-Language header is looked at. Browsers send less.
_MAX_ACCEPTED = 1_000
_WEIGHTED = re.compile(r"\s*([A-Za-z*][A-Za-z0-9-]*)\s*(?:;\s*q\s*=\s*([01](?:\.\d*)?)\s*)?\Z")

_FORMATTER = Formatter()


class Reader(StrEnum):
    """Readers for whom some texts differ from those for the people of a chat."""

    OPERATOR = "operator"
    PAGE = "page"


class Phrase(str):
    """A text in English that can be rendered in another language."""

    __slots__ = ("fields", "key")

    key: str
    fields: Mapping[str, Any]

    def __new__(cls, key: str, /, **fields: Any) -> "Phrase":
        text = super().__new__(cls, ENGLISH.say(key, **fields))
        text.key = key
        text.fields = fields
        return text

    def store(self) -> "StoredPhrase":
        return StoredPhrase(self.key, self.fields)


class StoredPhrase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A phrase in the database, to be rendered in the language of the reader."""

    key: str
    fields: Mapping[str, str] = {}


class WrongText(Invalid):
    """A changed text is wrong. `name` is where it stands in the table, such as `de.turn.stopping`."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"texts.{name}: {reason}")
        self.name = name


class Texts:
    """The texts of one language. `sign` is what people put before the name of a command where they read them.

    A text has another wording for some `readers` where there is one under its key with their name: `tag.unknown_operator`
    names a command of the terminal, and `tag.unknown` does not. A changed text holds for all readers, unless that other
    wording is changed too."""

    def __init__(
        self,
        language: str,
        changed: Mapping[str, str] | None = None,
        *,
        sign: str = COMMAND_SIGN,
        readers: Sequence[Reader] = (),
    ) -> None:
        self.language = language
        self.sign = sign
        self.readers = readers
        self._changed = changed or {}
        self._templates = {**LANGUAGES[language], **self._changed}
        self._formatter = _TemplateFormatter(self)

    def say(self, key: str, /, **fields: Any) -> str:
        """Return the text of a key with its fields filled in."""
        known = self._changed if key in self._changed else self._templates
        own = (f"{key}_{reader.value}" for reader in self.readers)
        chosen = next((name for name in own if name in known), key)
        text = ""
        for literal, field, spec, conversion in _parse_template(self._templates[chosen]):
            text += literal if self.sign == COMMAND_SIGN else _replace_signs(literal, text[-1:], self.sign)
            if field is not None:
                value = (
                    fields[field]
                    if conversion is None
                    else _FORMATTER.convert_field(fields[field], conversion)
                )
                text += self._formatter.format_field(value, spec or "")
        return text

    def has(self, key: str) -> bool:
        return key in self._templates

    def render(self, text: str | StoredPhrase) -> str:
        """Return a phrase in this language, and any other text unchanged."""
        return (
            text
            if isinstance(text, str) and not isinstance(text, Phrase)
            else self.say(text.key, **text.fields)
        )

    def render_stored(self, text: str, *areas: str) -> str:
        """Return an English text of some areas, as errors are stored, in this language, and any other text unchanged."""
        return self.render(find_phrase(text, *areas))

    def render_content(self, phrase: StoredPhrase, text: str) -> str:
        """Return what stands for a message without a text, such as `[sticker]`, in this language. `text` is the same in
        English, and is returned for a phrase of another version."""
        area, template = phrase.key.partition(".")[0], self._templates.get(phrase.key)
        if area != CONTENT_AREA or template is None or not list_fields(template) <= phrase.fields.keys():
            return text
        return self.say(phrase.key, **phrase.fields)

    def list_area(self, area: str) -> dict[str, str]:
        """Return the templates of one area, such as `page`, by the rest of their key."""
        prefix = f"{area}."
        return {k.removeprefix(prefix): v for k, v in self._templates.items() if k.startswith(prefix)}


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of an installation: the language of the settings, and the texts that an operator has changed."""

    # Empty: the language of each person, as their platform tells it.
    language: str = ""
    # By language and key.
    changes: Mapping[str, Mapping[str, str]] = {}
    # By platform, what people put before the name of a command where it is not a slash.
    signs: Mapping[str, str] = {}

    def speak(self, language: str | None = None, platform: str = "", *readers: Reader) -> Texts:
        """Return the texts in the language of the settings, or else in a person's language, or else in English. They name
        commands as people write them on a platform, and those of the terminal and settings to operators only."""
        chosen = self.language or find_language(language or "") or DEFAULT_LANGUAGE
        changed, sign = self.changes.get(chosen), self.signs.get(platform, COMMAND_SIGN)
        return (
            Texts(chosen, changed, sign=sign, readers=readers) if changed else _build(chosen, sign, readers)
        )


def explain(error: KeryxError, key: str, /, **fields: Any) -> Phrase:
    """Return an error as a phrase for people: its own, or that of a key whose field `reason` is the message in English."""
    return error.text if isinstance(error.text, Phrase) else Phrase(key, **fields, reason=error.text)


@lru_cache(1000)
def find_phrase(text: str, *areas: str) -> str:
    """Return an English text of some areas of the catalogue, such as `delivery`, as a phrase, and any other text unchanged.
    So errors that are stored in English are shown in the language of the reader."""
    if not isinstance(text, Phrase) and len(text) <= _LONGEST_STORED:
        for key, plurals, pattern, worded in _list_patterns(areas):
            if match := pattern.fullmatch(text):
                fields = {name: find_phrase(value, *areas) for name, value in match.groupdict().items()}
                if not (worded or any(isinstance(value, Phrase) for value in fields.values())):
                    continue
                # The form for one may have no number.
                found = {name: re.search(r"\d[\d,]*", fields[name]) for name in plurals}
                counts = {
                    name: int(count[0].replace(",", "")) if count else 1 for name, count in found.items()
                }
                return Phrase(key, **fields | counts)
    return text


def explain_os_error(error: OSError) -> str:
    """Return why the system refused a file or a program: a phrase for what is common, else the words of the system."""
    for kind, key in _SYSTEM_ERRORS:
        if isinstance(error, kind):
            return Phrase(key)
    return (error.strerror or type(error).__name__).lower()


def find_language(tag: str) -> str | None:
    """Return the catalogue for a language tag such as `de-AT`, `de_DE.UTF-8` or `en`, `None` if there is none."""
    name = re.split(r"[-_.@]", tag.strip().lower(), maxsplit=1)[0]
    return name if name in LANGUAGES else None


def choose_language(accepted: str) -> str | None:
    """Return the catalogue that an Accept-Language header prefers, `None` if it names none."""
    weighted: list[tuple[float, str]] = []
    for item in accepted[:_MAX_ACCEPTED].split(","):
        match = _WEIGHTED.match(item)
        name = find_language(match[1]) if match else None
        if match and name:
            weighted.append((float(match[2] or 1), name))
    weight, name = max(weighted, key=lambda w: w[0], default=(0.0, None))
    return name if weight else None


def parse_changes(table: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Parse the `[texts]` table of the settings: keys for all languages, and a table for each language.

    Raise `WrongText` for an unknown key or language, and for fields that the text does not have."""
    changes: dict[str, dict[str, str]] = {}
    for name, value in table.items():
        languages: Sequence[str] = (name,) if name in LANGUAGES else tuple(LANGUAGES)
        prefix = f"{name}." if name in LANGUAGES else ""
        if prefix and not isinstance(value, Mapping):
            raise WrongText(name, f"write [texts.{name}] and its texts below it")
        entries = _flatten(value if prefix else {name: value})
        for key, template in entries.items():
            _check_change(prefix, key, template)
            for language in languages:
                changes.setdefault(language, {})[key] = template
    return changes


def list_fields(template: str) -> frozenset[str]:
    """Return the names of the fields of a template. Raise `ValueError` if it is malformed."""
    return frozenset(name for _, name, _, _ in _FORMATTER.parse(template) if name is not None)


def _check_change(prefix: str, key: str, template: Any) -> None:
    """Check the text of a key. `prefix` is the language of its table, with a dot."""
    texts = LANGUAGES[DEFAULT_LANGUAGE]
    name, known = prefix + key, texts.get(key)
    if known is None:
        first, _, rest = key.partition(".")
        if not prefix and rest in texts:
            raise WrongText(name, f"there is no language {first}; available: {', '.join(LANGUAGES)}")
        near = get_close_matches(key, texts, n=1)
        hint = f"; did you mean texts.{prefix}{near[0]}?" if near else ": the reference of texts lists all"
        raise WrongText(name, f"there is no such text{hint}")
    if not isinstance(template, str):
        raise WrongText(name, "write a text in quotes")
    try:
        fields = list_fields(template)
    except ValueError as exc:
        raise WrongText(name, f"{exc}; write {{{{ and }}}} for braces") from exc
    for field in sorted(fields - list_fields(known)):
        near = get_close_matches(field, list_fields(known), n=1)
        names = ", ".join(f"{{{name}}}" for name in sorted(list_fields(known))) or "none"
        hint = f"did you mean {{{near[0]}}}?" if near else f"it has {names}"
        raise WrongText(name, f"this text has no field {{{field}}}; {hint}")


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix.rstrip("."): value}
    flat: dict[str, Any] = {}
    for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
        flat |= _flatten(item, f"{prefix}{key}.")
    return flat


@cache
def _list_patterns(areas: Sequence[str]) -> list[tuple[str, list[str], re.Pattern[str], bool]]:
    """Return how the English texts of some areas look, each with its key, its fields with plural forms, and whether it has words
    beside its fields. Those with more characters of their own come first."""
    found: list[tuple[int, str, list[str], re.Pattern[str], bool]] = []
    texts = LANGUAGES[DEFAULT_LANGUAGE]
    for name, template in texts.items():
        # What operators read cannot be built from a text that has fewer fields.
        twin = texts.get(f"{name}_{Reader.OPERATOR.value}", "")
        if name.partition(".")[0] not in areas or list_fields(twin) - list_fields(template):
            continue
        pattern, own, fields = "", "", dict[str, bool]()
        for literal, field, spec, _ in _parse_template(template):
            own += literal
            pattern += re.escape(literal)
            if field is not None:
                plural = "|" in (spec or "")
                forms = "|".join(
                    re.escape(form).replace(r"\#", r"[\d,]+") for form in (spec or "").split("|")
                )
                if field not in fields:
                    pattern += f"(?P<{field}>{forms if plural else '.+?'})"
                else:
                    pattern += f"(?:{forms})" if plural else f"(?P={field})"
                fields[field] = plural
        key = name.removesuffix(f"_{Reader.OPERATOR.value}")
        plurals = [field for field, plural in fields.items() if plural]
        worded = bool(plurals) or any(map(str.isalpha, own))
        found.append((len(own), key, plurals, re.compile(pattern, re.DOTALL), worded))
    return [entry[1:] for entry in sorted(found, key=lambda entry: -entry[0])]


@cache
def _parse_template(template: str) -> tuple[tuple[str, str | None, str | None, str | None], ...]:
    """Return the pieces of a template: a text, and the name, the format and the conversion of the field after it."""
    return tuple(_FORMATTER.parse(template))


class _TemplateFormatter:
    """Formats fields for a language: phrases, plural forms, and numbers with separators."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Exception):
            value = value.text if isinstance(value, KeryxError) else str(value)
            return self._texts.render_stored(value, *ERROR_AREAS)
        if isinstance(value, str):
            return self._texts.render(value)
        if "|" in format_spec:
            one, many = format_spec.split("|", 1)
            return (one if value == 1 else many).replace("#", self.format_field(value, ","))
        text = format(value, format_spec)
        if isinstance(value, datetime):
            return text
        thousands, decimals = _SEPARATORS[self._texts.language]
        return text.translate({ord(","): thousands, ord("."): decimals})


NO_CHANGES = Catalogue()
# For programs and operators: the API, commands of the terminal, exports.
ENGLISH = Texts(DEFAULT_LANGUAGE, readers=(Reader.OPERATOR,))


@cache
def _build(language: str, sign: str, readers: Sequence[Reader]) -> Texts:
    return Texts(language, sign=sign, readers=readers)


def _replace_signs(literal: str, before: str, sign: str) -> str:
    """Return a piece of a template with another sign before the names of commands. `before` is the character before it."""
    return _COMMAND.sub(sign, before + literal)[len(before) :]
