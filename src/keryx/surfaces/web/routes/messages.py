"""Routes of messages, of the turns that answer them, and of the questions that turns ask."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec

from keryx.core import codec, ids
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import QuestionId, SessionId, TurnId
from keryx.core.media import Media, clean_name
from keryx.core.messages import Message, Part, Parts, Text, parse_id, text_parts
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.engine.hub.views import MessageRange, UnsentMessage
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest

router = ApiRouter()

SURFACE = "web"


@router.get("/api/sessions/{session}/messages", summary="A window of messages.", etag=True)
async def messages(request: ApiRequest, query: request_schema.WindowQuery) -> schema.MessageWindow:
    window = await request.hub.page(request.viewer, request.session_id, parse_window(query))
    return schema.MessageWindow(
        messages=await request.render(lambda render: present_messages(window.messages, render, window.sizes)),
        earlier=window.earlier,
        later=window.later,
        answers=[presenters.answer(a) for a in window.answers],
        versions=presenters.versions(window.versions),
    )


@router.get("/api/messages/{message}", summary="One message with nothing cut.", etag=True)
async def message(request: ApiRequest) -> schema.MessageSchema:
    value = await request.hub.views.message(request.viewer, *parse_id(request.path_param("message")))
    return await request.render(lambda render: presenters.message(value, full=True, render=render))


@router.post(
    "/api/sessions/{session}/messages",
    summary="Send a message. A slash command is answered in `reply`.",
    status=201,
    idempotent=True,
)
async def send(request: ApiRequest, body: request_schema.SendForm) -> schema.Sent:
    receipt = await request.hub.receive(
        msgspec.structs.replace(
            await build_inbound(request, body.text, body.media, body.names),
            session=request.session_id,
            busy=body.busy,
        )
    )
    if receipt.session and not receipt.duplicate:
        sent = UnsentMessage(text=body.text, media=tuple(body.media), names=tuple(body.names))
        await mark_sent(request, receipt.session, receipt.seq or 0, request.session_id, sent)
    return present_receipt(receipt)


@router.patch("/api/messages/{message}", summary="Change a message whose turn still waits.")
async def rewrite(request: ApiRequest, body: request_schema.RewriteForm) -> schema.MessageSchema:
    await request.hub.rewrite(request.viewer, request.path_param("message"), text_parts(body.text))
    return await message(request)


@router.post(
    "/api/messages/{message}/edit",
    summary="Ask a question in other words, or put other words in the place of an answer: another version, in place.",
    status=201,
)
async def edit(request: ApiRequest, body: request_schema.EditForm) -> schema.Sent:
    parts = await _build_parts(request, body.text, body.media, body.names)
    return present_receipt(
        await request.hub.edit(request.viewer, request.path_param("message"), parts, surface=SURFACE)
    )


@router.delete(
    "/api/messages/{message}", summary="Take one message out of the conversation, or erase its text for good."
)
async def delete_message(request: ApiRequest, query: request_schema.EraseQuery) -> None:
    await request.hub.delete_message(request.viewer, request.path_param("message"), erase=query.erase)


@router.post("/api/messages/{message}/restore", summary="Bring back a message that was deleted alone.")
async def restore_message(request: ApiRequest) -> None:
    await request.hub.restore_message(request.viewer, request.path_param("message"))


@router.get("/api/messages/{message}/why", summary="The whole story of one message.")
async def why(request: ApiRequest) -> schema.Story:
    trace = await request.hub.trace(request.viewer, request.path_param("message"))
    return presenters.message_trace(trace, request.texts)


@router.post("/api/sessions/{session}/stop", summary="Ask the running turn to stop. What was said stays.")
async def stop(request: ApiRequest, body: request_schema.StopForm) -> schema.Stopped:
    turn = await request.hub.stop(request.viewer, request.session_id, queue=body.queue)
    return schema.Stopped(turn=presenters.turn(turn) if turn else None)


@router.get("/api/sessions/{session}/queue", summary="What waits in a conversation.")
async def queue(request: ApiRequest) -> schema.Queue:
    waiting = await request.hub.views.queue(request.viewer, request.session_id)
    return await request.render(
        lambda render: schema.Queue(
            waiting=[presenters.queued_turn(*pair, render=render) for pair in waiting]
        )
    )


@router.delete("/api/turns/{turn}", summary="Take one waiting turn out of the queue.")
async def drop(request: ApiRequest) -> None:
    await request.hub.drop(request.viewer, TurnId(request.path_param("turn")))


@router.get("/api/turns", summary="Every turn that runs or waits.")
async def board(request: ApiRequest) -> schema.Board:
    return schema.Board(
        turns=[
            presenters.board_row(t, request.texts) for t in await request.hub.views.load_board(request.viewer)
        ]
    )


@router.get("/api/questions", summary="What agents ask and nobody has answered.")
async def questions(request: ApiRequest) -> schema.Questions:
    return schema.Questions(
        questions=[presenters.question(q) for q in await request.hub.questions.list_open(request.viewer)]
    )


@router.post("/api/questions/{question}/answer", summary="Answer a question.")
async def answer(request: ApiRequest, body: request_schema.AnswerForm) -> schema.QuestionSchema:
    return presenters.question(
        await request.hub.questions.answer(
            request.viewer, QuestionId(request.path_param("question")), body.answer
        )
    )


def present_messages(
    messages: Sequence[Message], render: presenters.Render, sizes: Mapping[str, int]
) -> list[schema.MessageSchema]:
    """Return messages with their HTML. The last ones are rendered first, because they are seen first. `sizes` are those of
    their files."""
    return [presenters.message(m, render=render, sizes=sizes) for m in reversed(messages)][::-1]


def build_source(request: ApiRequest) -> Source:
    """Return the source of a new conversation on the page."""
    return Source(
        platform=SURFACE,
        chat=ids.new(request.services.clock.now()),
        user=request.viewer.principal,
        profile=request.viewer.profile,
    )


async def build_inbound(
    request: ApiRequest, text: str, media: Sequence[str], names: Sequence[str]
) -> InboundMessage:
    """Build the inbound message of a request. Its source has a new chat id, so without a session it starts one. Its digest
    is of the path, the text and the files, so that a key is not used for two messages."""
    key, viewer = request.idempotency_key, request.viewer
    parts = await _build_parts(request, text, media, names)
    return InboundMessage(
        event=f"{viewer.principal}:{key}",
        source=msgspec.structs.replace(build_source(request), message=key, language=request.language),
        parts=parts,
        surface=SURFACE,
        principal=viewer.principal,
        digest=hashlib.sha256(codec.dumps([request.http.url.path, text, media]).encode()).hexdigest(),
    )


async def _build_parts(request: ApiRequest, text: str, media: Sequence[str], names: Sequence[str]) -> Parts:
    """Build the parts of a message. Raise `NotFound` for an unknown file, `Invalid` if there is nothing."""
    known = await request.hub.media.load_parts(request.viewer, media)
    missing = [id_ for id_ in media if id_ not in known]
    if missing:
        raise NotFound(Phrase("file.unknown", name=repr(missing[0][:80])))
    parts: list[Part] = [Text(text)] if text.strip() else []
    parts += name_files([known[id_] for id_ in media], names)
    if not parts:
        raise Invalid(Phrase("web.nothing_to_send"))
    return tuple(parts)


def name_files(files: Sequence[Part], names: Sequence[str]) -> list[Part]:
    """Return the parts of files with the names that they were attached by. Files with the same bytes are one in the store,
    with the name of the last upload."""
    return [
        msgspec.structs.replace(part, name=clean_name(name)) if name and isinstance(part, Media) else part
        for part, name in zip_longest(files, names[: len(files)], fillvalue="")
        if not isinstance(part, str)
    ]


def present_receipt(receipt: Receipt) -> schema.Sent:
    return schema.Sent(
        duplicate=receipt.duplicate,
        session=receipt.session,
        turn=receipt.turn,
        seq=receipt.seq,
        reply=receipt.reply,
    )


async def mark_sent(
    request: ApiRequest, id_: SessionId, seq: int, composer: str, sent: UnsentMessage
) -> None:
    """Mark the viewer's own message as read, and forget it where it was typed."""
    if seq:
        await request.hub.viewer_state.mark_read(request.viewer, id_, seq)
    await request.hub.viewer_state.forget_sent_text(request.viewer, composer, sent)


def parse_window(query: request_schema.WindowQuery) -> MessageRange:
    if sum(position is not None for position in (query.before, query.after, query.around, query.at)) > 1:
        raise Invalid("give one of before, after, around and at, not several")
    return MessageRange(
        before=query.before, after=query.after, around=query.around, at=query.at, limit=query.limit
    )
