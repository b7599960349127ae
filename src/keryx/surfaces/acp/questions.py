"""Questions of the turns of one editor, shown to its user as permission requests or forms. They stay open on every other surface as well."""

import logging

import anyio

from keryx.core.errors import Conflict, KeryxError, Unavailable
from keryx.core.ids import QuestionId, SessionId
from keryx.core.questions import AskedQuestion, Consent, QuestionState, format_question, label_option
from keryx.core.texts import Phrase
from keryx.jsonrpc import CONSENT_KINDS, Json, RpcError, as_object, build_text_block
from keryx.surfaces.acp import session_updates, tool_calls
from keryx.surfaces.acp.context import EditorContext
from keryx.surfaces.acp.session_updates import UpdateBuilder

log = logging.getLogger(__name__)

_ANSWER_FIELD = "answer"
_CANCEL_SECONDS = 0.5


class EditorQuestions:
    """The questions of one session that the editor shows. The first answer counts, here or on another surface."""

    def __init__(self, context: EditorContext, session: SessionId, updates: UpdateBuilder) -> None:
        self._context = context
        self._session = session
        self._updates = updates
        self._open: dict[QuestionId, anyio.CancelScope] = {}
        self._announced: set[QuestionId] = set()

    async def update(self, question: QuestionId, *, is_open: bool) -> None:
        """Show a question that was opened, or withdraw one that was closed."""
        if not is_open:
            self._withdraw(question)
        elif question not in self._open:
            await self.show(await self._context.hub.questions.get(self._context.viewer, question))

    async def show(self, asked: AskedQuestion) -> None:
        """Show a question of a turn of this editor, if the editor is able to. One that no turn waits for is only announced."""
        if asked.left:
            await self._announce(asked, asked.note)
            return
        turn = await self._context.hub.turn(self._context.viewer, asked.turn)
        if turn.pin != self._context.pin or asked.id in self._open:
            return
        if asked.question.options or self._context.capabilities.form:
            scope = self._open[asked.id] = anyio.CancelScope()
            self._context.group.start_soon(self._ask_editor, asked, scope)
        else:
            await self._announce(asked, Phrase("question.not_shown", id=asked.id))

    def close(self) -> None:
        """Withdraw all questions from the editor; they stay open on other surfaces."""
        for question in list(self._open):
            self._withdraw(question)

    async def _announce(self, asked: AskedQuestion, note: str) -> None:
        """Show a question as a notice, once. The user answers with a message, or on another surface."""
        if asked.id not in self._announced:
            self._announced.add(asked.id)
            texts = self._context.hub.texts.speak()
            text = f"{format_question(asked.question, texts)}\n\n{texts.render(note)}"
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
                elif await self._is_still_asked(asked):
                    await self._announce(asked, Phrase("question.still_open", id=asked.id))
            except Conflict:
                log.info("question %s was answered elsewhere first", asked.id)
            except (RpcError, KeryxError) as exc:
                log.warning("question %s waits for another surface: %s", asked.id, exc)
                reason = str(exc).rstrip(".")
                await self._announce(asked, Phrase("question.refused", id=asked.id, reason=reason))
            finally:
                self._open.pop(asked.id, None)

    async def _is_still_asked(self, asked: AskedQuestion) -> bool:
        """Return whether the question waits although its dialog was closed. An editor closes it as well when it cancels the
        turn, which takes a moment."""
        await self._context.clock.sleep(_CANCEL_SECONDS)
        current = await self._context.hub.questions.get(self._context.viewer, asked.id)
        turn = await self._context.hub.turn(self._context.viewer, asked.turn)
        return current.state is QuestionState.OPEN and not turn.state.finished and not turn.cancelling

    async def _request_answer(self, asked: AskedQuestion) -> str | None:
        """Return the choice of the user; `None` if they closed the dialog, so that the question stays open."""
        options = asked.question.options
        # A choice among values is a form, a permission is not.
        is_form = self._context.capabilities.form and all(o.consent is Consent.OTHER for o in options)
        if options and not is_form:
            return await self._request_permission(asked)
        return await self._request_form(asked)

    async def _request_permission(self, asked: AskedQuestion) -> str | None:
        question, texts = asked.question, self._context.hub.texts.speak()
        result = await self._request(
            "session/request_permission",
            asked,
            {
                "toolCall": self._build_tool_call(asked),
                "options": [
                    {
                        "optionId": o.id,
                        "name": label_option(o, texts),
                        "kind": CONSENT_KINDS.get(o.consent, "allow_once"),
                    }
                    for o in question.options
                ],
            },
        )
        chosen = as_object(result.get("outcome")).get("optionId")
        return chosen if isinstance(chosen, str) else None

    async def _request_form(self, asked: AskedQuestion) -> str | None:
        question, texts = asked.question, self._context.hub.texts.speak()
        title = texts.render(question.display_title)
        field: Json = {"type": "string", "title": title}
        if question.options:
            field["oneOf"] = [{"const": o.id, "title": label_option(o, texts)} for o in question.options]
        message = "\n\n".join(filter(None, (title, question.detail)))
        schema = {"type": "object", "properties": {_ANSWER_FIELD: field}, "required": [_ANSWER_FIELD]}
        result = await self._request(
            "elicitation/create", asked, {"mode": "form", "message": message, "requestedSchema": schema}
        )
        answer = as_object(result.get("content")).get(_ANSWER_FIELD)
        return answer if result.get("action") == "accept" and isinstance(answer, str) else None

    async def _request(self, method: str, asked: AskedQuestion, params: Json) -> Json:
        seconds = (asked.expires_at - self._context.now()).total_seconds()
        if seconds <= 0:
            raise Unavailable("the question has run out")
        return await self._context.request(self._session, method, params, seconds=seconds)

    def _build_tool_call(self, asked: AskedQuestion) -> Json:
        """Build the tool call of a permission request, with the exact command or path in its title."""
        question = asked.question
        asks = self._context.hub.texts.speak().render(question.display_title)
        title = asks
        if question.tool and question.detail:
            title = tool_calls.format_title(question.tool, question.detail)
        return {
            "toolCallId": self._updates.find_call_id(question.key),
            "title": title,
            "kind": tool_calls.find_kind(question.tool),
            "status": "pending",
            "rawInput": tool_calls.parse_raw_input(question.detail),
            "content": [
                {"type": "content", "content": build_text_block(text)}
                for text in (asks, question.detail)
                if text
            ],
        }
