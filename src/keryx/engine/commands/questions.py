"""Commands that answer questions of the agent, and show or forget lasting consents."""

from collections.abc import Sequence

from keryx.core import questions as core
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import QuestionId
from keryx.core.questions import AskedQuestion
from keryx.engine.commands.call import CommandCall, CommandHandler, CommandResult
from keryx.engine.units.questions import ALL_TOOLS, forget_consents, record_answer
from keryx.store import questions


def answer(call: CommandCall) -> CommandResult:
    first, _, rest = call.text.partition(" ")
    if not first:
        raise Invalid("say what you answer: /answer 1, or /answer <number or id of the question> 1")
    by_id = questions.find_by_id(call.tx, QuestionId(first)) if rest.strip() else None
    if by_id is not None:
        return _record_answer(call, by_id, rest)
    waiting = questions.list_open(call.tx, call.current_session.id)
    named = _find_question(waiting, first) if rest.strip() else None
    if named is not None:
        return _record_answer(call, named, rest)
    return _record_answer(call, _require_one(waiting), call.text)


def build_answer_handler(word: str) -> CommandHandler:
    """Return the handler of a command that is itself the answer, such as /allow."""

    def run(call: CommandCall) -> CommandResult:
        waiting = questions.list_open(call.tx, call.current_session.id)
        if call.text:
            named = _find_question(waiting, call.text)
            if named is None:
                raise NotFound(
                    f"no question {call.text[:40]!r} waits here: /{word} alone answers the only one"
                )
            return _record_answer(call, named, word)
        return _record_answer(call, _require_one(waiting), word)

    return run


def _find_question(waiting: list[AskedQuestion], name: str) -> AskedQuestion | None:
    """Return an open question by its number in the list or by its id."""
    return next((q for n, q in enumerate(waiting, start=1) if name in (str(n), q.id)), None)


def _require_one(waiting: Sequence[AskedQuestion]) -> AskedQuestion:
    if not waiting:
        raise NotFound("nothing is asked here now")
    waiting = core.prefer_waiting(waiting)
    if len(waiting) > 1:
        titles = "\n".join(f"{n}. {q.question.title}" for n, q in enumerate(waiting, start=1))
        raise Conflict(f"several questions wait, so say which: /answer <number> <answer>\n{titles}\n")
    return waiting[0]


def _record_answer(call: CommandCall, question: AskedQuestion, text: str) -> CommandResult:
    closed = record_answer(call.tx, question, call.viewer, text)
    return CommandResult(core.format_confirmation(closed), closed.session)


def manage_consents(call: CommandCall) -> CommandResult:
    verb, _, tool = call.text.partition(" ")
    if not call.text:
        consents = questions.list_consents(call.tx, call.owner, session=call.current_session.id)
        if not consents:
            return CommandResult("Nothing is allowed or denied for good here.", call.session_id)
        lines = [f"{c.tool}: always {c.label}, since {c.given_at:%Y-%m-%d %H:%M} UTC" for c in consents]
        lines += ["", "/permissions forget <name or all> takes it back."]
        return CommandResult("\n".join(lines), call.session_id)
    if verb != "forget" or not tool:
        raise Invalid(f"write /permissions forget and a name, or {ALL_TOOLS}")
    forgotten = forget_consents(call.tx, call.current_session, tool.strip())
    return CommandResult(f"The agent asks again for {', '.join(forgotten)}.", call.session_id)
