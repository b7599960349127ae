"""Consent: an agent's request for permission as a question for a person, and the answer as the agent wants it."""

import hashlib

from keryx.agents.acp.rpc import Json, table, tables, text
from keryx.agents.acp.steps import exact, title
from keryx.core.questions import Ask, Consent, Option, Question
from keryx.core.titles import capped, line

CANCELLED: Json = {"outcome": {"outcome": "cancelled"}}
_LONGEST_DETAIL = 2900
_KINDS = {
    "allow_once": Consent.ALLOW_ONCE,
    "allow_always": Consent.ALLOW_ALWAYS,
    "reject_once": Consent.DENY_ONCE,
    "reject_always": Consent.DENY_ALWAYS,
}
_ORDER = list(Consent)


def question(agent: str, call: Json, options: list[Json], *, number: int) -> Question | None:
    """The question that a request puts, with exactly what is to be done; `None` if nothing can be chosen. The mildest
    option comes first, so that nothing is allowed for good that nobody chose."""
    choices = sorted(
        (o for o in map(_option, options) if o.id and o.label), key=lambda o: _ORDER.index(o.consent)
    )
    if not choices:
        return None
    shown = title(call)
    whole = exact(call)
    # The same id may stand for something else after a restart: an answer counts for exactly what was asked.
    digest = hashlib.sha256(f"{shown}\n{whole}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    detail = capped(whole, _LONGEST_DETAIL)
    if detail != whole:
        detail += f"\n[Cut: {len(whole):,} characters in all, {digest}]"
    return Question(
        key=f"{text(call.get('toolCallId'))[:80]}-{digest}-{number}",
        title=f"{agent}: {shown}",
        detail=detail,
        options=tuple(choices),
    )


async def ask(put: Ask, asked: Question) -> Json:
    """Put the question. No answer is a refusal."""
    chosen = await put(asked)
    known = {o.id for o in asked.options}
    if chosen not in known:
        refusing = (o.id for o in asked.options if o.consent is Consent.DENY_ONCE)
        chosen = next(refusing, None)
    return CANCELLED if chosen is None else {"outcome": {"outcome": "selected", "optionId": chosen}}


def _option(told: Json) -> Option:
    id_ = text(told.get("optionId"))
    return Option(
        id_,
        capped(line(text(told.get("name"))) or line(id_), 80),
        _KINDS.get(text(told.get("kind")), Consent.OTHER),
    )


def parts(params: Json) -> tuple[Json, list[Json]]:
    """The tool call and the options of a request."""
    return table(params.get("toolCall")), tables(params.get("options"))
