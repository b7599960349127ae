"""Questions of agents as people see them: list, answer, and take back lasting consents."""

from keryx.core.ids import QuestionId, SessionId
from keryx.core.questions import AskedQuestion
from keryx.core.sessions import Viewer
from keryx.engine.hub.verbs import HubPart, bind_read, bind_write, on_session, read_unit, write_unit
from keryx.engine.units import questions as question_units
from keryx.store import questions, sessions
from keryx.store.db import Transaction


class HubQuestions(HubPart):
    list_open = bind_read("questions", questions.list_open_for_viewer)
    list_consents = bind_read("consents", questions.list_consents)
    # Raises `NotFound` if the session has no such consent; `EVERY` stands for all of them.
    forget_consents = bind_write("consents.forget", on_session(question_units.forget_consents))

    @read_unit("questions.session")
    def list_for_session(self, tx: Transaction, viewer: Viewer, session: SessionId) -> list[AskedQuestion]:
        """Return the last questions of a session in any state, newest first."""
        return questions.list_for_session(tx, sessions.get(tx, session, viewer=viewer).id)

    @read_unit("question")
    def get(self, tx: Transaction, viewer: Viewer, question: QuestionId) -> AskedQuestion:
        return questions.get(tx, question, viewer=viewer)

    @write_unit("question.answer")
    def answer(self, tx: Transaction, viewer: Viewer, question: QuestionId, answer: str) -> AskedQuestion:
        """Answer with an option (its id, number, label or meaning) or, where there are none, in words.

        Raise `Forbidden` for a viewer who may only look on, `Conflict` for a closed question, `Invalid` for a text that
        is not an answer."""
        return question_units.record_answer(tx, questions.get(tx, question, viewer=viewer), viewer, answer)
