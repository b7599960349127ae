"""Questions of agents as people see them: list, answer, and take back lasting consents."""

from keryx.core.clock import Clock
from keryx.core.ids import QuestionId, SessionId
from keryx.core.questions import AskedQuestion, ToolConsent
from keryx.core.sessions import Viewer
from keryx.engine.units import questions as answered
from keryx.store import questions as store
from keryx.store import sessions
from keryx.store.db.database import Database, Transaction


class HubQuestions:
    """`hub.questions`: what waits for an answer, and the answering of it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def list_open(self, viewer: Viewer) -> list[AskedQuestion]:
        """Everything that waits for an answer and that the viewer may see, oldest first."""
        return await self._database.read("questions", lambda tx: store.list_open_for_viewer(tx, viewer))

    async def list_for_session(self, viewer: Viewer, session: SessionId) -> list[AskedQuestion]:
        """The last questions of a session, whatever became of them, newest first."""

        def work(tx: Transaction) -> list[AskedQuestion]:
            return store.list_for_session(tx, sessions.get(tx, session, viewer=viewer).id)

        return await self._database.read("questions.session", work)

    async def get(self, viewer: Viewer, question: QuestionId) -> AskedQuestion:
        return await self._database.read("question", lambda tx: store.get(tx, question, viewer=viewer))

    async def answer(self, viewer: Viewer, question: QuestionId, answer: str) -> AskedQuestion:
        """Answer with an option (its id, number, label or meaning) or, where there are none, in words.

        `Forbidden` for who may only look on, `Conflict` if it does not wait any more, `Invalid` if it is no answer."""

        def work(tx: Transaction) -> AskedQuestion:
            return answered.record_answer(tx, store.get(tx, question, viewer=viewer), viewer, answer)

        return await self._database.write("question.answer", work)

    async def list_consents(self, viewer: Viewer, session: SessionId | None = None) -> list[ToolConsent]:
        """What was allowed or denied for good, in one session or in all that the viewer may see, the newest first."""
        return await self._database.read(
            "consents", lambda tx: store.list_consents(tx, viewer, session=session)
        )

    async def forget_consents(self, viewer: Viewer, session: SessionId, tool: str) -> list[str]:
        """Take back what was allowed or denied for good, `EVERY` for all of it; gives the tools. `NotFound` if there is none."""

        def work(tx: Transaction) -> list[str]:
            return answered.forget_consents(tx, sessions.get(tx, session, viewer=viewer), tool)

        return await self._database.write("consents.forget", work)
