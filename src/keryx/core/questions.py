"""Questions that an agent asks a person during a turn, above all tool permissions, and how answers are read and shown."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

from keryx.core.errors import Invalid
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, QuestionId, SessionId, TurnId
from keryx.core.sessions import Viewer
from keryx.core.text import to_single_line

LONGEST_DETAIL = 3000
"""How many characters of a detail are shown in a chat."""

ASKER_GONE_NOTE = "The editor that asked is gone. The answer counts for the next try."


class Consent(StrEnum):
    """What choosing an option means for a permission. `OTHER` for options that are no permission."""

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
    """A consent that holds for a tool in a session until it is taken back."""

    session: SessionId
    title: str
    tool: str
    consent: Consent
    given_by: PrincipalId
    given_at: datetime

    @property
    def label(self) -> str:
        return "allowed" if self.consent.allows else "denied"


class Option(msgspec.Struct, frozen=True):
    id: str
    label: str
    consent: Consent = Consent.OTHER


PERMISSION_OPTIONS = (
    Option("allow", "Allow", Consent.ALLOW_ONCE),
    Option("always", "Always allow in this conversation", Consent.ALLOW_ALWAYS),
    Option("deny", "Deny", Consent.DENY_ONCE),
)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`key` names it within its turn (for a permission the id of the tool call): asked again under the same key after
    a crash, it gets the answer that was given. `title` is one line; `detail` the exact command or input. With no
    options the answer is free text."""

    key: str
    title: str
    detail: str = ""
    tool: str = ""
    options: tuple[Option, ...] = PERMISSION_OPTIONS


AskPerson: TypeAlias = Callable[[Question], Awaitable[str | None]]


async def ask_nobody(question: Question) -> str | None:
    """For turns that nobody can be asked in: no answer, which is never consent."""
    return None


class QuestionState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class AskedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question as everybody sees it, from the moment it is put. `answer` is the id of an option, or free text.
    `shared`: it was put where several people talk. `taken`: the agent was given the answer, or told that none came.
    `left`: its turn ended because the program that ran it went away; an answer is kept until the same is asked again."""

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
    shared: bool = False
    answer: str | None = None
    answered_by: PrincipalId | None = None
    taken: bool = False
    left: bool = False
    closed_at: datetime | None = None

    @property
    def note(self) -> str:
        """What has to be known to answer, beside the question itself."""
        return ASKER_GONE_NOTE if self.left else ""

    def visible_to(self, viewer: Viewer) -> bool:
        return viewer.sees(self.profile, self.owner) or viewer.sees(self.profile, self.asker)

    def answerable_by(self, viewer: Viewer) -> bool:
        """Who may answer: the operator, who asked for the turn, and where nobody else talks the session's owner."""
        if viewer.profile != self.profile:
            return False
        return viewer.principal in (OPERATOR, self.asker) or (
            viewer.principal == self.owner and not self.shared
        )


class Button(msgspec.Struct, frozen=True):
    """Something to press in a chat. A press is the same as writing what the button `says`."""

    label: str
    says: str


def build_buttons(asked: AskedQuestion) -> tuple[Button, ...]:
    """The options of a question, each of which answers this question and no other."""
    options = enumerate(asked.question.options, start=1)
    return tuple(Button(to_single_line(option.label), f"/answer {asked.id} {n}") for n, option in options)


def parse_answer(question: Question, text: str) -> str:
    """What an answer in words means: the id of an option, or the words themselves where there are no options.

    An option is named by its number, id or label, or by a word for what it means, such as `yes`, `always` or `no`."""
    said = text.strip()
    if not said:
        raise Invalid(f"an answer is missing: {format_hint(question)}")
    if not question.options:
        return said
    chosen = _find_option(question.options, said.casefold())
    if chosen is None:
        raise Invalid(f"{said[:80]!r} is no answer to “{question.title}”: {format_hint(question)}")
    return chosen.id


def prefer_waiting(waiting: Sequence[AskedQuestion]) -> Sequence[AskedQuestion]:
    """The questions that an answer without a name may mean: those that an agent waits for, if there are any."""
    return [asked for asked in waiting if not asked.left] or waiting


def is_same(one: Question, other: Question) -> bool:
    """Whether two questions ask for the very same thing, in whatever turn."""
    return msgspec.structs.replace(one, key=other.key) == other


def format_confirmation(asked: AskedQuestion) -> str:
    """What whoever answered is told."""
    return " ".join(
        filter(
            None, (f"{format_answer(asked.question, asked.answer or '')}: {asked.question.title}", asked.note)
        )
    )


def format_answer(question: Question, answer: str) -> str:
    """An answer as a person reads it."""
    return next((o.label for o in question.options if o.id == answer), answer)


def find_consent(question: Question, answer: str | None) -> Consent:
    """What an answer allows. No answer allows nothing."""
    return next((o.consent for o in question.options if o.id == answer), Consent.OTHER)


def find_remembered_answer(question: Question, given: Consent) -> str | None:
    """The answer that a lasting consent gives to a question; `None` if it has no option of that kind."""
    fitting = (o for o in question.options if o.consent is not Consent.OTHER)
    return next((o.id for o in fitting if o.consent.allows is given.allows), None)


def format_question(question: Question) -> str:
    """A question as it is put in a chat: the title, the exact detail as far as it fits, the options, and how to answer."""
    parts = _format_body(question)
    if left := len(question.detail[LONGEST_DETAIL:]):
        parts.append(
            f"{left:,} more characters are not shown here: `keryx questions list --json` shows them."
        )
    if question.options:
        parts.append("\n".join(f"{n}. {o.label}" for n, o in enumerate(question.options, start=1)))
    return "\n\n".join([*parts, _capitalize(format_hint(question))])


def format_closed(asked: AskedQuestion, *, whole: bool) -> str:
    """A question as it stands in a chat once it does not wait any more: with what became of it, and no options. With
    `whole` the detail stays."""
    became = {
        QuestionState.ANSWERED: to_single_line(format_answer(asked.question, asked.answer or "")),
        QuestionState.EXPIRED: "Nobody answered in time.",
    }.get(asked.state, "This does not wait for an answer any more.")
    return "\n\n".join([*_format_body(asked.question)[: 2 if whole else 1], f"→ {became}"])


def format_hint(question: Question) -> str:
    """How a question is answered, in a few words."""
    numbers = [str(n) for n in range(1, len(question.options) + 1)]
    if not numbers:
        return "answer in your own words."
    listed = " or ".join(filter(None, (", ".join(numbers[:-1]), numbers[-1])))
    commands = [
        f"/{word}" for word, kinds in CONSENT_COMMANDS.items() if _find_by_consent(question.options, kinds)
    ]
    return f"answer {listed}" + (f", or {' '.join(commands)}" if commands else "") + "."


CONSENT_COMMANDS: dict[str, tuple[Consent, ...]] = {
    "allow": (Consent.ALLOW_ONCE, Consent.ALLOW_ALWAYS),
    "always": (Consent.ALLOW_ALWAYS,),
    "deny": (Consent.DENY_ONCE, Consent.DENY_ALWAYS),
}
"""The words that answer a permission, each with what it may mean, the mildest first."""

_CONSENT_WORDS = {
    **{word: word for word in CONSENT_COMMANDS},
    "yes": "allow",
    "y": "allow",
    "no": "deny",
    "n": "deny",
}


def _format_body(question: Question) -> list[str]:
    if not question.detail:
        return [to_single_line(question.title)]
    detail = question.detail[:LONGEST_DETAIL]
    fence = "`" * max(3, _count_backticks(detail) + 1)
    return [to_single_line(question.title), f"{fence}\n{detail}\n{fence}"]


def _find_option(options: Sequence[Option], said: str) -> Option | None:
    for n, option in enumerate(options, start=1):
        if said in (str(n), option.id.casefold(), option.label.casefold()):
            return option
    word = _CONSENT_WORDS.get(said)
    return _find_by_consent(options, CONSENT_COMMANDS[word]) if word else None


def _find_by_consent(options: Sequence[Option], kinds: Sequence[Consent]) -> Option | None:
    found = (o for kind in kinds for o in options if o.consent is kind)
    return next(found, None)


def _count_backticks(text: str) -> int:
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return longest


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
