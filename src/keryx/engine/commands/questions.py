"""Commands that answer what the agent asks."""

from collections.abc import Sequence

from keryx.core import questions as core
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import QuestionId
from keryx.core.questions import Asked
from keryx.engine.commands.call import Call, Done, Run
from keryx.engine.questions import EVERY, answered, forgotten
from keryx.store import consents, questions


def _answer(call: Call) -> Done:
    first, _, rest = call.text.partition(" ")
    if not first:
        raise Invalid("say what you answer: /answer 1, or /answer <number or id of the question> 1")
    by_id = questions.known(call.tx, QuestionId(first)) if rest.strip() else None
    if by_id is not None:
        return _give(call, by_id, rest)
    found = questions.waiting(call.tx, call.current.id)
    named = _named(found, first) if rest.strip() else None
    if named is not None:
        return _give(call, named, rest)
    return _give(call, _only(found), call.text)


def _word(word: str) -> Run:
    def run(call: Call) -> Done:
        found = questions.waiting(call.tx, call.current.id)
        if call.text:
            named = _named(found, call.text)
            if named is None:
                raise NotFound(
                    f"no question {call.text[:40]!r} waits here: /{word} alone answers the only one"
                )
            return _give(call, named, word)
        return _give(call, _only(found), word)

    return run


def _named(found: list[Asked], name: str) -> Asked | None:
    """A waiting question by its place among them, or by its id."""
    return next((a for n, a in enumerate(found, start=1) if name in (str(n), a.id)), None)


def _only(found: Sequence[Asked]) -> Asked:
    if not found:
        raise NotFound("nothing is asked here now")
    found = core.foremost(found)
    if len(found) > 1:
        titles = "\n".join(f"{n}. {a.question.title}" for n, a in enumerate(found, start=1))
        raise Conflict(f"several questions wait, so say which: /answer <number> <answer>\n{titles}\n")
    return found[0]


def _give(call: Call, asked: Asked, text: str) -> Done:
    closed = answered(call.tx, asked, call.viewer, text, now=call.now)
    return Done(core.confirmed(closed), closed.session)


def _permissions(call: Call) -> Done:
    verb, _, tool = call.text.partition(" ")
    if not call.text:
        kept = consents.page(call.tx, call.owner, session=call.current.id)
        lines = [f"{p.tool}: always {p.word}, since {p.given_at:%Y-%m-%d %H:%M} UTC" for p in kept]
        told = "\n".join([*lines, "", "/permissions forget <name or all> takes it back."])
        return Done(told if lines else "Nothing is allowed or denied for good here.", call.id)
    if verb != "forget" or not tool:
        raise Invalid(f"write /permissions forget and a name, or {EVERY}")
    gone = forgotten(call.tx, call.current, tool.strip())
    return Done(f"The agent asks again for {', '.join(gone)}.", call.id)


RUN: dict[str, Run] = {
    "answer": _answer,
    "allow": _word("allow"),
    "always": _word("always"),
    "deny": _word("deny"),
    "permissions": _permissions,
}
