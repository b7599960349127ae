"""Commands that answer questions of the agent, and show or forget lasting consents."""

from collections.abc import Sequence

from keryx.core import questions as core
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import QuestionId
from keryx.core.questions import AskedQuestion
from keryx.core.texts import Phrase, Texts
from keryx.engine.commands.call import CommandCall, CommandHandler, CommandResult
from keryx.engine.units.questions import forget_consents, record_answer
from keryx.store import questions


def answer(call: CommandCall) -> CommandResult:
    first, _, rest = call.text.partition(" ")
    if not first:
        raise Invalid(Phrase("question.answer_missing"))
    by_id = questions.find_by_id(call.tx, QuestionId(first)) if rest.strip() else None
    if by_id is not None:
        return _record_answer(call, by_id, rest)
    waiting = questions.list_open(call.tx, call.current_session.id)
    named = _find_question(waiting, first) if rest.strip() else None
    if named is not None:
        return _record_answer(call, named, rest)
    return _record_answer(call, _require_one(waiting, call.texts), call.text)


def build_answer_handler(word: str) -> CommandHandler:
    """Return the handler of a command that is itself the answer, such as /allow."""

    def run(call: CommandCall) -> CommandResult:
        waiting = questions.list_open(call.tx, call.current_session.id)
        if call.text:
            named = _find_question(waiting, call.text)
            if named is None:
                raise NotFound(Phrase("question.unknown", name=repr(call.text[:40]), word=word))
            return _record_answer(call, named, word)
        return _record_answer(call, _require_one(waiting, call.texts), word)

    return run


def _find_question(waiting: list[AskedQuestion], name: str) -> AskedQuestion | None:
    """Return an open question by its number in the list or by its id."""
    return next((q for n, q in enumerate(waiting, start=1) if name in (str(n), q.id)), None)


def _require_one(waiting: Sequence[AskedQuestion], texts: Texts) -> AskedQuestion:
    if not waiting:
        raise NotFound(Phrase("question.none"))
    waiting = core.prefer_waiting(waiting)
    if len(waiting) > 1:
        shown = [texts.render(q.question.display_title) for q in waiting]
        titles = "\n".join(f"{n}. {title}" for n, title in enumerate(shown, start=1))
        raise Conflict(Phrase("question.several", titles=titles))
    return waiting[0]


def _record_answer(call: CommandCall, question: AskedQuestion, text: str) -> CommandResult:
    closed = record_answer(call.tx, question, call.viewer, text)
    return CommandResult(core.format_confirmation(closed, call.texts), closed.session)


def manage_consents(call: CommandCall) -> CommandResult:
    verb, _, tool = call.text.partition(" ")
    if not call.text:
        consents = questions.list_consents(call.tx, call.owner, session=call.current_session.id)
        if not consents:
            return CommandResult(call.say("consent.none"), call.session_id)
        lines = [
            call.say("consent.allowed", tool=c.tool, at=c.given_at)
            if c.consent.allows
            else call.say("consent.denied", tool=c.tool, at=c.given_at)
            for c in consents
        ]
        lines += ["", call.say("consent.hint")]
        return CommandResult("\n".join(lines), call.session_id)
    if verb != "forget" or not tool:
        raise Invalid(Phrase("consent.syntax"))
    forgotten = forget_consents(call.tx, call.current_session, tool.strip())
    return CommandResult(call.say("consent.forgotten", tools=", ".join(forgotten)), call.session_id)
