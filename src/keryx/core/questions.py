"""Questions that an agent asks a person during a turn, above all tool permissions, and how answers are read and shown."""

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

from keryx.core.errors import Invalid
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, QuestionId, SessionId, TurnId
from keryx.core.sessions import Viewer
from keryx.core.text import to_sentence, to_single_line, truncate
from keryx.core.texts import LANGUAGES, NO_CHANGES, Phrase, StoredPhrase, Texts

LONGEST_DETAIL = 3000
"""How many characters of a detail are shown in a chat."""

ASKER_GONE_NOTE = Phrase("question.asker_gone")


class Consent(StrEnum):
    """What choosing an option means for a permission. `OTHER` for other options."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    DENY_ONCE = "deny_once"
    DENY_ALWAYS = "deny_always"
    OTHER = "other"

    @property
    def allows(self) -> bool:
        return self in (Consent.ALLOW_ONCE, Consent.ALLOW_ALWAYS)

    @property
    def lasts(self) -> bool:
        return self in (Consent.ALLOW_ALWAYS, Consent.DENY_ALWAYS)


class ToolConsent(msgspec.Struct, frozen=True, kw_only=True):
    """A lasting consent in a session. `tool` is a rule: the name of a tool, or a part of what it can do."""

    session: SessionId
    title: str
    tool: str
    consent: Consent
    given_by: PrincipalId
    given_at: datetime

    @property
    def label(self) -> str:
        return "allowed" if self.consent.allows else "denied"


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    label: str
    consent: Consent = Consent.OTHER
    # The label in other languages.
    phrase: StoredPhrase | None = None

    @property
    def display_label(self) -> str:
        """The label, as a phrase if it has one in other languages."""
        return Phrase(self.phrase.key, **self.phrase.fields) if self.phrase else self.label


def build_option(id_: str, label: Phrase, consent: Consent = Consent.OTHER) -> Option:
    """Return an option whose label is in the language of the person."""
    return Option(id_, str(label), consent, label.store())


def build_permission_options(always: Phrase | None = None) -> tuple[Option, ...]:
    """Return the options of a permission; `always` says what a lasting consent covers."""
    always = always or Phrase("question.always")
    return (
        build_option("allow", Phrase("question.allow"), Consent.ALLOW_ONCE),
        build_option("always", always, Consent.ALLOW_ALWAYS),
        build_option("deny", Phrase("question.deny"), Consent.DENY_ONCE),
    )


PERMISSION_OPTIONS = build_permission_options()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    # Unique within the turn (for a permission the id of the tool call). A question that is asked again under the same
    # key after a crash gets the answer that was given before.
    key: str
    # One line.
    title: str
    # The title in other languages.
    phrase: StoredPhrase | None = None
    # The exact command or input.
    detail: str = ""
    tool: str = ""
    # The rules under which a lasting consent answers the question; one to the question stores the first. Without any, the
    # name of the tool.
    rules: tuple[str, ...] = ()
    # Without options the answer is free text.
    options: tuple[Option, ...] = PERMISSION_OPTIONS
    # It is asked in every permission mode, for the mode is about what the agent does.
    about_program: bool = False

    @property
    def display_title(self) -> str:
        """The title, as a phrase if it has one in other languages."""
        return Phrase(self.phrase.key, **self.phrase.fields) if self.phrase else self.title


def build_speak_question(program: str, text: str) -> Question:
    """Return the question whether a program may say something in a conversation."""
    name = to_single_line(program)
    title, always = Phrase("question.may_speak", program=name), Phrase("question.always_speak", program=name)
    return Question(
        key="speak",
        title=str(title),
        phrase=title.store(),
        detail=text,
        tool=f"speak({name})",
        options=build_permission_options(always),
        about_program=True,
    )


AskPerson: TypeAlias = Callable[[Question], Awaitable[str | None]]


async def ask_nobody(question: Question) -> str | None:
    """Return no answer, which is never consent: for turns that cannot ask a person."""
    return None


class QuestionState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class AskedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    id: QuestionId
    profile: ProfileId
    owner: PrincipalId
    session: SessionId
    turn: TurnId
    asker: PrincipalId
    question: Question
    state: QuestionState
    created_at: datetime
    expires_at: datetime
    # It was asked where several people write.
    shared: bool = False
    # The id of an option, or free text.
    answer: str | None = None
    answered_by: PrincipalId | None = None
    # The agent received the answer, or was told that there is none.
    taken: bool = False
    # The process that ran the turn is gone. An answer is kept until the same question is asked again.
    left: bool = False
    closed_at: datetime | None = None

    @property
    def note(self) -> str:
        """A hint for the person who answers."""
        return ASKER_GONE_NOTE if self.left else ""

    def visible_to(self, viewer: Viewer) -> bool:
        return viewer.sees(self.profile, self.owner) or viewer.sees(self.profile, self.asker)

    def answerable_by(self, viewer: Viewer) -> bool:
        """Whether the viewer may answer: the operator, the asker of the turn, and in an unshared chat the owner."""
        if viewer.profile != self.profile:
            return False
        return viewer.principal in (OPERATOR, self.asker) or (
            viewer.principal == self.owner and not self.shared
        )


class Button(msgspec.Struct, frozen=True):
    label: str
    # A press is the same as writing this text.
    says: str


def build_buttons(asked: AskedQuestion, texts: Texts, *, max_label: int = 0) -> tuple[Button, ...]:
    """Return a button for each option. A press answers this question only. Labels are cut to `max_label` characters, if
    that is not 0."""
    labels = [to_single_line(label_option(option, texts)) for option in asked.question.options]
    return tuple(
        Button(truncate(label, max_label or len(label)), f"/answer {asked.id} {n}")
        for n, label in enumerate(labels, start=1)
    )


def label_option(option: Option, texts: Texts) -> str:
    """Return the label of an option. Those of Keryx are in the language of the person."""
    return texts.render(option.phrase or option.label)


def parse_answer(question: Question, text: str) -> str:
    """Return the id of the option that a text names, or the text itself for a question without options.

    The text may be the number, id or label of an option, or a word such as `yes`, `always` or `no`."""
    said = text.strip()
    if not said:
        raise Invalid(Phrase("question.missing", hint=format_hint(question)))
    if not question.options:
        return said
    chosen = _find_option(question.options, said.casefold())
    if chosen is None:
        raise Invalid(
            Phrase(
                "question.no_option",
                answer=repr(said[:80]),
                title=question.display_title,
                hint=format_hint(question),
            )
        )
    return chosen.id


def prefer_waiting(waiting: Sequence[AskedQuestion]) -> Sequence[AskedQuestion]:
    """Return the questions that an agent still waits for, or all if there are none."""
    return [asked for asked in waiting if not asked.left] or waiting


def is_same(one: Question, other: Question) -> bool:
    """Whether two questions differ in their key only."""
    return msgspec.structs.replace(one, key=other.key) == other


def format_confirmation(asked: AskedQuestion, texts: Texts) -> str:
    """Return the reply to the person who answered."""
    question, answer = asked.question, asked.answer or ""
    key = _CONFIRMATIONS.get(find_consent(question, answer))
    # A tool of Keryx is asked for by name; any other question has its own title.
    title = question.tool if question.phrase and question.tool else question.display_title
    text = (
        to_sentence(texts.say(key, title=title))
        if key
        else texts.say("question.answered", answer=format_answer(question, answer, texts), title=title)
    )
    return f"{text} {texts.render(asked.note)}" if asked.note else text


_CONFIRMATIONS = {
    Consent.ALLOW_ONCE: "question.allowed_once",
    Consent.ALLOW_ALWAYS: "question.allowed_always",
    Consent.DENY_ONCE: "question.denied_once",
    Consent.DENY_ALWAYS: "question.denied_always",
}


def format_answer(question: Question, answer: str, texts: Texts) -> str:
    """Return the label of the chosen option, or the free text."""
    return next((label_option(o, texts) for o in question.options if o.id == answer), answer)


def find_consent(question: Question, answer: str | None) -> Consent:
    """Return the consent of an answer; `OTHER` for no answer."""
    return next((o.consent for o in question.options if o.id == answer), Consent.OTHER)


def is_about(rule: str, tool: str) -> bool:
    """Return whether a stored rule, such as `run_in_terminal(git *)`, is about a tool; `tool` may be the whole rule too."""
    return rule == tool or rule.startswith(f"{tool}(")


def find_remembered_answer(question: Question, given: Consent) -> str | None:
    """Return the option that matches a lasting consent, `None` if there is none."""
    fitting = (o for o in question.options if o.consent is not Consent.OTHER)
    return next((o.id for o in fitting if o.consent.allows is given.allows), None)


def format_question(question: Question, texts: Texts) -> str:
    """Return a question for a chat: title, detail (truncated), options, and how to answer."""
    parts = _format_body(question, texts)
    if left := len(question.detail[LONGEST_DETAIL:]):
        parts.append(texts.say("question.more", count=left))
    if question.options:
        labels = [label_option(option, texts) for option in question.options]
        parts.append("\n".join(f"{n}. {label}" for n, label in enumerate(labels, start=1)))
    return "\n\n".join([*parts, to_sentence(texts.render(format_hint(question)))])


def format_closed(asked: AskedQuestion, texts: Texts, *, whole: bool) -> str:
    """Return a closed question for a chat, with its outcome instead of the options; `whole` keeps the detail."""
    outcome = {
        QuestionState.ANSWERED: to_single_line(format_answer(asked.question, asked.answer or "", texts)),
        QuestionState.EXPIRED: texts.say("question.expired"),
    }.get(asked.state, texts.say("question.closed"))
    return "\n\n".join([*_format_body(asked.question, texts)[: 2 if whole else 1], f"→ {outcome}"])


def format_hint(question: Question) -> Phrase:
    """Return how to answer a question, in a few words."""
    numbers = [str(n) for n in range(1, len(question.options) + 1)]
    if not numbers:
        return Phrase("question.hint_free")
    listed = Phrase("setting.or", first=", ".join(numbers[:-1]), last=numbers[-1]) if numbers[1:] else "1"
    commands = [
        f"/{word}" for word, kinds in CONSENT_COMMANDS.items() if _find_by_consent(question.options, kinds)
    ]
    if not commands:
        return Phrase("question.hint", numbers=listed)
    return Phrase("question.hint_commands", numbers=listed, commands=" ".join(commands))


CONSENT_COMMANDS: dict[str, tuple[Consent, ...]] = {
    "allow": (Consent.ALLOW_ONCE, Consent.ALLOW_ALWAYS),
    "always": (Consent.ALLOW_ALWAYS,),
    "deny": (Consent.DENY_ONCE, Consent.DENY_ALWAYS),
}
"""The commands that answer a permission, each with the consents it may mean, the weakest first."""

_CONSENT_WORDS = {
    **{word: word for word in CONSENT_COMMANDS},
    "yes": "allow",
    "y": "allow",
    "no": "deny",
    "n": "deny",
    "ja": "allow",
    "immer": "always",
    "nein": "deny",
}


_ALLOWING_REACTIONS = frozenset({"👍", "✅", "✔", "+1", "thumbsup", "thumbs_up", "white_check_mark"})
_DENYING_REACTIONS = frozenset({"👎", "❌", "✖", "-1", "thumbsdown", "thumbs_down", "x"})
# Skin tones, and the request for a coloured picture.
_EMOJI_MODIFIERS = {*range(0x1F3FB, 0x1F400), 0xFE0F}


def find_reaction_answer(reaction: str) -> str | None:
    """Return what a reaction to a question says, `allow` or `deny`; `None` for any other reaction. It is an emoji or
    a name of one, in any skin tone."""
    plain = reaction.strip(":").partition("::")[0].translate(dict.fromkeys(_EMOJI_MODIFIERS))
    if plain in _ALLOWING_REACTIONS:
        return "allow"
    return "deny" if plain in _DENYING_REACTIONS else None


def _format_body(question: Question, texts: Texts) -> list[str]:
    title = texts.render(question.phrase or question.title)
    if not question.detail:
        return [to_single_line(title)]
    detail = question.detail[:LONGEST_DETAIL]
    longest = max(map(len, re.findall("`+", detail)), default=0)
    fence = "`" * max(3, longest + 1)
    return [to_single_line(title), f"{fence}\n{detail}\n{fence}"]


def _find_option(options: Sequence[Option], said: str) -> Option | None:
    for n, option in enumerate(options, start=1):
        labels = {label_option(option, NO_CHANGES.speak(name)).casefold() for name in LANGUAGES}
        if said in (str(n), option.id.casefold(), option.label.casefold(), *labels):
            return option
    word = _CONSENT_WORDS.get(said)
    return _find_by_consent(options, CONSENT_COMMANDS[word]) if word else None


def _find_by_consent(options: Sequence[Option], kinds: Sequence[Consent]) -> Option | None:
    found = (o for kind in kinds for o in options if o.consent is kind)
    return next(found, None)
