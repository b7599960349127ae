"""Questions that an agent asks a person during a turn, above all tool permissions, and how answers are read and shown."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

from keryx.core.errors import Invalid
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, QuestionId, SessionId, TurnId
from keryx.core.sessions import Viewer
from keryx.core.text import to_single_line, truncate

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


class Option(msgspec.Struct, frozen=True):
    id: str
    label: str
    consent: Consent = Consent.OTHER


def build_permission_options(what: str = "") -> tuple[Option, ...]:
    """Return the options of a permission; `what` names what "always" covers."""
    always = " ".join(filter(None, ("Always allow", what, "in this conversation")))
    return (
        Option("allow", "Allow", Consent.ALLOW_ONCE),
        Option("always", always, Consent.ALLOW_ALWAYS),
        Option("deny", "Deny", Consent.DENY_ONCE),
    )


PERMISSION_OPTIONS = build_permission_options()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    # Unique within the turn (for a permission the id of the tool call). A question that is asked again under the same
    # key after a crash gets the answer that was given before.
    key: str
    # One line.
    title: str
    # The exact command or input.
    detail: str = ""
    tool: str = ""
    # The rules under which a lasting consent answers the question; one to the question stores the first. Without any, the
    # name of the tool.
    rules: tuple[str, ...] = ()
    # Without options the answer is free text.
    options: tuple[Option, ...] = PERMISSION_OPTIONS


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


def build_buttons(asked: AskedQuestion, *, max_label: int = 0) -> tuple[Button, ...]:
    """Return a button for each option. A press answers this question only. Labels are cut to `max_label` characters, if
    that is not 0."""
    options = enumerate(asked.question.options, start=1)
    return tuple(
        Button(
            truncate(to_single_line(option.label), max_label or len(option.label)), f"/answer {asked.id} {n}"
        )
        for n, option in options
    )


def parse_answer(question: Question, text: str) -> str:
    """Return the id of the option that a text names, or the text itself for a question without options.

    The text may be the number, id or label of an option, or a word such as `yes`, `always` or `no`."""
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
    """Return the questions that an agent still waits for, or all if there are none."""
    return [asked for asked in waiting if not asked.left] or waiting


def is_same(one: Question, other: Question) -> bool:
    """Whether two questions differ in their key only."""
    return msgspec.structs.replace(one, key=other.key) == other


def format_confirmation(asked: AskedQuestion) -> str:
    """Return the reply to the person who answered."""
    text = f"{format_answer(asked.question, asked.answer or '')}: {asked.question.title}"
    return f"{text} {asked.note}" if asked.note else text


def format_answer(question: Question, answer: str) -> str:
    """Return the label of the chosen option, or the free text."""
    return next((o.label for o in question.options if o.id == answer), answer)


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


def format_question(question: Question) -> str:
    """Return a question for a chat: title, detail (truncated), options, and how to answer."""
    parts = _format_body(question)
    if left := len(question.detail[LONGEST_DETAIL:]):
        parts.append(
            f"{left:,} more characters are not shown here: `keryx questions list --json` shows them."
        )
    if question.options:
        parts.append("\n".join(f"{n}. {o.label}" for n, o in enumerate(question.options, start=1)))
    hint = format_hint(question)
    return "\n\n".join([*parts, hint[:1].upper() + hint[1:]])


def format_closed(asked: AskedQuestion, *, whole: bool) -> str:
    """Return a closed question for a chat, with its outcome instead of the options; `whole` keeps the detail."""
    outcome = {
        QuestionState.ANSWERED: to_single_line(format_answer(asked.question, asked.answer or "")),
        QuestionState.EXPIRED: "Nobody answered in time.",
    }.get(asked.state, "This does not wait for an answer any more.")
    return "\n\n".join([*_format_body(asked.question)[: 2 if whole else 1], f"→ {outcome}"])


def format_hint(question: Question) -> str:
    """Return how to answer a question, in a few words."""
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
"""The commands that answer a permission, each with the consents it may mean, the weakest first."""

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
