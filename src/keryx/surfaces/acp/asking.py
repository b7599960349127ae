"""Asking: questions of a turn of this editor, put to its person. They stay open for every other surface as well."""

import logging

import anyio

from keryx.core.errors import Conflict, KeryxError, Unavailable
from keryx.core.ids import QuestionId, SessionId
from keryx.core.questions import Asked, Consent, Option, told
from keryx.surfaces.acp import about, toolcalls
from keryx.surfaces.acp.desk import Desk
from keryx.surfaces.acp.faults import Fault
from keryx.surfaces.acp.peer import Json
from keryx.surfaces.acp.shown import Shown

log = logging.getLogger(__name__)

_KINDS = {
    Consent.ALLOW_ONCE: "allow_once",
    Consent.ALLOW_ALWAYS: "allow_always",
    Consent.DENY_ONCE: "reject_once",
    Consent.DENY_ALWAYS: "reject_always",
    Consent.OTHER: "allow_once",
}
_FIELD = "answer"


class Asking:
    """The questions of one session that the editor shows now. Whoever answers first, here or elsewhere, has answered."""

    def __init__(self, desk: Desk, session: SessionId, shown: Shown) -> None:
        self._desk = desk
        self._session = session
        self._shown = shown
        self._open: dict[QuestionId, anyio.CancelScope] = {}
        self._told: set[QuestionId] = set()

    async def changed(self, question: QuestionId, *, waits: bool) -> None:
        """A question was put, or it does not wait any more."""
        if not waits:
            self._withdraw(question)
        elif question not in self._open:
            await self.put(await self._desk.hub.questions.get(self._desk.viewer, question))

    async def put(self, asked: Asked) -> None:
        """Show a question, if a turn of this editor asks it and the editor can show it. One that was left is told."""
        if asked.left:
            await self._tell(asked)
            return
        turn = await self._desk.hub.turn(self._desk.viewer, asked.turn)
        if turn.pin != self._desk.pin or asked.id in self._open:
            return
        if asked.question.options or self._desk.client.form:
            scope = self._open[asked.id] = anyio.CancelScope()
            self._desk.group.start_soon(self._ask, asked, scope)

    def close(self) -> None:
        """The editor has left the session; the questions stay open for others."""
        for question in list(self._open):
            self._withdraw(question)

    async def _tell(self, asked: Asked) -> None:
        """No turn waits for this, so it is no request: it is answered in words, here or elsewhere."""
        if asked.id not in self._told:
            self._told.add(asked.id)
            text = f"{told(asked.question)}\n\n{asked.note}"
            notice = about.notice(text, asked.id, notices=self._desk.client.notices)
            await self._desk.update(self._session, notice)

    def _withdraw(self, question: QuestionId) -> None:
        scope = self._open.pop(question, None)
        if scope:
            scope.cancel()

    async def _ask(self, asked: Asked, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                answer = await self._answer(asked)
                if answer is not None:
                    await self._desk.hub.questions.answer(self._desk.viewer, asked.id, answer)
            except Conflict:
                log.info("question %s was answered elsewhere first", asked.id)
            except (Fault, KeryxError) as exc:
                log.warning("question %s waits for another surface: %s", asked.id, exc)
            finally:
                self._open.pop(asked.id, None)

    async def _answer(self, asked: Asked) -> str | None:
        """What the person chose; `None` if they closed it without a choice, so that it stays open."""
        options = asked.question.options
        if options and not (self._desk.client.form and _choice(options)):
            return await self._permission(asked)
        return await self._form(asked)

    async def _permission(self, asked: Asked) -> str | None:
        question = asked.question
        result = await self._request(
            "session/request_permission",
            asked,
            {
                "toolCall": self._call(asked),
                "options": [
                    {"optionId": o.id, "name": o.label, "kind": _KINDS[o.consent]} for o in question.options
                ],
            },
        )
        outcome = result.get("outcome")
        chosen: object = outcome.get("optionId") if isinstance(outcome, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return chosen if isinstance(chosen, str) else None

    async def _form(self, asked: Asked) -> str | None:
        field: Json = {"type": "string", "title": asked.question.title}
        if asked.question.options:
            field["oneOf"] = [{"const": o.id, "title": o.label} for o in asked.question.options]
        message = "\n\n".join(filter(None, (asked.question.title, asked.question.detail)))
        schema = {"type": "object", "properties": {_FIELD: field}, "required": [_FIELD]}
        result = await self._request(
            "elicitation/create", asked, {"mode": "form", "message": message, "requestedSchema": schema}
        )
        content = result.get("content")
        given: object = content.get(_FIELD) if isinstance(content, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return given if result.get("action") == "accept" and isinstance(given, str) else None

    async def _request(self, method: str, asked: Asked, params: Json) -> Json:
        left = (asked.expires_at - self._desk.now()).total_seconds()
        if left <= 0:
            raise Unavailable("the question has run out")
        return await self._desk.peer.request(method, {"sessionId": self._session, **params}, seconds=left)

    def _call(self, asked: Asked) -> Json:
        """The call that needs permission, with the exact command or path in its title."""
        question = asked.question
        given = toolcalls.title(question.tool, question.detail) if question.tool else question.title
        return {
            "toolCallId": self._shown.call_id(question.key),
            "title": given if question.detail else question.title,
            "kind": toolcalls.kind(question.tool),
            "status": "pending",
            "rawInput": toolcalls.raw(question.detail),
            "content": [
                {"type": "content", "content": toolcalls.text_block(text)}
                for text in (question.title, question.detail)
                if text
            ],
        }


def _choice(options: tuple[Option, ...]) -> bool:
    """Whether a question is a choice among things rather than a permission."""
    return all(o.consent is Consent.OTHER for o in options)
