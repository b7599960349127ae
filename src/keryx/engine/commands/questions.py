"""Commands that answer questions of the agent, and show or forget lasting consents."""

from collections.abc import Sequence

from keryx.core import questions as core
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import QuestionId
from keryx.core.questions import AskedQuestion
from keryx.engine.commands.call import CommandCall, CommandHandler, CommandResult
from keryx.engine.units.questions import ALL_TOOLS, forget_consents, record_answer
from keryx.store import questions


def _answer(call: CommandCall) -> CommandResult:
    first, _, rest = call.text.partition(" ")
    if not first:
        raise Invalid("say what you answer: /answer 1, or /answer <number or id of the question> 1")
    by_id = questions.find_by_id(call.tx, QuestionId(first)) if rest.strip() else None
    if by_id is not None:
        return _record_answer(call, by_id, rest)
    found = questions.list_open(call.tx, call.current_session.id)
    named = _find_question(found, first) if rest.strip() else None
    if named is not None:
        return _record_answer(call, named, rest)
    return _record_answer(call, _require_one(found), call.text)


def _build_handler(word: str) -> CommandHandler:
    def run(call: CommandCall) -> CommandResult:
        found = questions.list_open(call.tx, call.current_session.id)
        if call.text:
            named = _find_question(found, call.text)
            if named is None:
                raise NotFound(
                    f"no question {call.text[:40]!r} waits here: /{word} alone answers the only one"
                )
            return _record_answer(call, named, word)
        return _record_answer(call, _require_one(found), word)

    return run


def _find_question(found: list[AskedQuestion], name: str) -> AskedQuestion | None:
    """A waiting question by its place among them, or by its id."""
    return next((a for n, a in enumerate(found, start=1) if name in (str(n), a.id)), None)


def _require_one(found: Sequence[AskedQuestion]) -> AskedQuestion:
    if not found:
        raise NotFound("nothing is asked here now")
    found = core.prefer_waiting(found)
    if len(found) > 1:
        titles = "\n".join(f"{n}. {a.question.title}" for n, a in enumerate(found, start=1))
        raise Conflict(f"several questions wait, so say which: /answer <number> <answer>\n{titles}\n")
    return found[0]


def _record_answer(call: CommandCall, asked: AskedQuestion, text: str) -> CommandResult:
    closed = record_answer(call.tx, asked, call.viewer, text)
    return CommandResult(core.format_confirmation(closed), closed.session)


def _permissions(call: CommandCall) -> CommandResult:
    verb, _, tool = call.text.partition(" ")
    if not call.text:
        kept = questions.list_consents(call.tx, call.owner, session=call.current_session.id)
        lines = [f"{p.tool}: always {p.label}, since {p.given_at:%Y-%m-%d %H:%M} UTC" for p in kept]
        told = "\n".join([*lines, "", "/permissions forget <name or all> takes it back."])
        return CommandResult(
            told if lines else "Nothing is allowed or denied for good here.", call.session_id
        )
    if verb != "forget" or not tool:
        raise Invalid(f"write /permissions forget and a name, or {ALL_TOOLS}")
    gone = forget_consents(call.tx, call.current_session, tool.strip())
    return CommandResult(f"The agent asks again for {', '.join(gone)}.", call.session_id)


HANDLERS: dict[str, CommandHandler] = {
    "answer": _answer,
    "allow": _build_handler("allow"),
    "always": _build_handler("always"),
    "deny": _build_handler("deny"),
    "permissions": _permissions,
}
