"""Questions of the turns of one editor, shown to its user as permission requests or forms. They stay open on every other surface as well."""

import logging

import anyio

from keryx.core.errors import Conflict, KeryxError, Unavailable
from keryx.core.ids import QuestionId, SessionId
from keryx.core.questions import AskedQuestion, Consent, Option, format_question
from keryx.jsonrpc.errors import RpcError
from keryx.jsonrpc.values import Json
from keryx.surfaces.acp import session_updates, tool_calls
from keryx.surfaces.acp.context import EditorContext
from keryx.surfaces.acp.session_updates import UpdateBuilder

log = logging.getLogger(__name__)

_OPTION_KINDS = {
    Consent.ALLOW_ONCE: "allow_once",
    Consent.ALLOW_ALWAYS: "allow_always",
    Consent.DENY_ONCE: "reject_once",
    Consent.DENY_ALWAYS: "reject_always",
    Consent.OTHER: "allow_once",
}
_ANSWER_FIELD = "answer"


class EditorQuestions:
    """The questions of one session that the editor shows now. Whoever answers first, here or elsewhere, has answered."""

    def __init__(self, desk: EditorContext, session: SessionId, shown: UpdateBuilder) -> None:
        self._context = desk
        self._session = session
        self._updates = shown
        self._open: dict[QuestionId, anyio.CancelScope] = {}
        self._announced: set[QuestionId] = set()

    async def update(self, question: QuestionId, *, waits: bool) -> None:
        """A question was put, or it does not wait any more."""
        if not waits:
            self._withdraw(question)
        elif question not in self._open:
            await self.show(await self._context.hub.questions.get(self._context.viewer, question))

    async def show(self, asked: AskedQuestion) -> None:
        """Show a question, if a turn of this editor asks it and the editor can show it. One that was left is told."""
        if asked.left:
            await self._announce(asked)
            return
        turn = await self._context.hub.turn(self._context.viewer, asked.turn)
        if turn.pin != self._context.pin or asked.id in self._open:
            return
        if asked.question.options or self._context.capabilities.form:
            scope = self._open[asked.id] = anyio.CancelScope()
            self._context.group.start_soon(self._ask_editor, asked, scope)

    def close(self) -> None:
        """The editor has left the session; the questions stay open for others."""
        for question in list(self._open):
            self._withdraw(question)

    async def _announce(self, asked: AskedQuestion) -> None:
        """No turn waits for this, so it is no request: it is answered in words, here or elsewhere."""
        if asked.id not in self._announced:
            self._announced.add(asked.id)
            text = f"{format_question(asked.question)}\n\n{asked.note}"
            notice = session_updates.build_person_notice(
                text, asked.id, notices=self._context.capabilities.notices
            )
            await self._context.send_updates(self._session, notice)

    def _withdraw(self, question: QuestionId) -> None:
        scope = self._open.pop(question, None)
        if scope:
            scope.cancel()

    async def _ask_editor(self, asked: AskedQuestion, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                answer = await self._request_answer(asked)
                if answer is not None:
                    await self._context.hub.questions.answer(self._context.viewer, asked.id, answer)
            except Conflict:
                log.info("question %s was answered elsewhere first", asked.id)
            except (RpcError, KeryxError) as exc:
                log.warning("question %s waits for another surface: %s", asked.id, exc)
            finally:
                self._open.pop(asked.id, None)

    async def _request_answer(self, asked: AskedQuestion) -> str | None:
        """What the person chose; `None` if they closed it without a choice, so that it stays open."""
        options = asked.question.options
        if options and not (self._context.capabilities.form and _is_choice(options)):
            return await self._request_permission(asked)
        return await self._request_form(asked)

    async def _request_permission(self, asked: AskedQuestion) -> str | None:
        question = asked.question
        result = await self._request(
            "session/request_permission",
            asked,
            {
                "toolCall": self._build_tool_call(asked),
                "options": [
                    {"optionId": o.id, "name": o.label, "kind": _OPTION_KINDS[o.consent]}
                    for o in question.options
                ],
            },
        )
        outcome = result.get("outcome")
        chosen: object = outcome.get("optionId") if isinstance(outcome, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return chosen if isinstance(chosen, str) else None

    async def _request_form(self, asked: AskedQuestion) -> str | None:
        field: Json = {"type": "string", "title": asked.question.title}
        if asked.question.options:
            field["oneOf"] = [{"const": o.id, "title": o.label} for o in asked.question.options]
        message = "\n\n".join(filter(None, (asked.question.title, asked.question.detail)))
        schema = {"type": "object", "properties": {_ANSWER_FIELD: field}, "required": [_ANSWER_FIELD]}
        result = await self._request(
            "elicitation/create", asked, {"mode": "form", "message": message, "requestedSchema": schema}
        )
        content = result.get("content")
        given: object = content.get(_ANSWER_FIELD) if isinstance(content, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return given if result.get("action") == "accept" and isinstance(given, str) else None

    async def _request(self, method: str, asked: AskedQuestion, params: Json) -> Json:
        left = (asked.expires_at - self._context.now()).total_seconds()
        if left <= 0:
            raise Unavailable("the question has run out")
        return await self._context.request(self._session, method, params, seconds=left)

    def _build_tool_call(self, asked: AskedQuestion) -> Json:
        """The call that needs permission, with the exact command or path in its title."""
        question = asked.question
        given = tool_calls.format_title(question.tool, question.detail) if question.tool else question.title
        return {
            "toolCallId": self._updates.find_call_id(question.key),
            "title": given if question.detail else question.title,
            "kind": tool_calls.find_kind(question.tool),
            "status": "pending",
            "rawInput": tool_calls.parse_raw_input(question.detail),
            "content": [
                {"type": "content", "content": tool_calls.build_text_block(text)}
                for text in (question.title, question.detail)
                if text
            ],
        }


def _is_choice(options: tuple[Option, ...]) -> bool:
    """Whether a question is a choice among things rather than a permission."""
    return all(o.consent is Consent.OTHER for o in options)
