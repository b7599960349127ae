"""Routes of messages: read, send, rewrite and trace them."""

from collections.abc import Sequence

import anyio.to_thread
import msgspec

from keryx.core import ids
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import SessionId
from keryx.core.messages import Message, Part, Text, parse_id, text_parts
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.source import Source
from keryx.engine.hub.views import MessageRange, UnsentMessage
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest

SURFACE = "web"
_THREAD_CHARS = 20_000


async def messages(ask: ApiRequest) -> schema.MessageWindow:
    shown = await ask.hub.views.messages(
        ask.viewer, ask.session_id, parse_window(ask.query(request_schema.WindowQuery))
    )
    return schema.MessageWindow(
        messages=await render_messages(shown.messages), earlier=shown.earlier, later=shown.later
    )


async def message(ask: ApiRequest) -> schema.Message:
    found = await ask.hub.views.message(ask.viewer, *parse_id(ask.path_param("message")))
    return (await render_messages([found], full=True))[0]


async def send(ask: ApiRequest) -> schema.Sent:
    form = ask.body(request_schema.Send)
    receipt = await ask.hub.receive(
        msgspec.structs.replace(
            await build_inbound(ask, form.text, form.media), session=ask.session_id, busy=form.busy
        )
    )
    if receipt.session and not receipt.duplicate:
        await mark_sent(ask, receipt.session, receipt.seq or 0, ask.session_id)
    return present_receipt(receipt)


async def rewrite(ask: ApiRequest) -> schema.Message:
    await ask.hub.rewrite(
        ask.viewer, ask.path_param("message"), text_parts(ask.body(request_schema.Rewrite).text)
    )
    return await message(ask)


async def why(ask: ApiRequest) -> schema.Story:
    return presenters.message_trace(await ask.hub.trace(ask.viewer, ask.path_param("message")))


async def render_messages(found: Sequence[Message], *, full: bool = False) -> list[schema.Message]:
    """Messages with their html; long ones are rendered in a thread, so that others need not wait."""

    def work() -> list[schema.Message]:
        return [presenters.message(m, full=full) for m in found]

    heavy = sum(len(m.text) for m in found) > _THREAD_CHARS
    return await anyio.to_thread.run_sync(work) if heavy else work()


async def build_inbound(ask: ApiRequest, text: str, media: Sequence[str]) -> InboundMessage:
    """What somebody said on the page. A place of its own, unless a session is given."""
    key, viewer = ask.idempotency_key, ask.viewer
    known = await ask.hub.media.load_parts(viewer, media)
    missing = [id_ for id_ in media if id_ not in known]
    if missing:
        raise NotFound(f"there is no file {missing[0][:80]!r}, or it is not yours: upload it again")
    parts: list[Part] = [Text(text)] if text.strip() else []
    parts += [known[id_] for id_ in media]
    if not parts:
        raise Invalid("there is nothing to send: write something, or attach a file")
    return InboundMessage(
        event=f"{viewer.principal}:{key}",
        source=Source(
            platform=SURFACE,
            chat=ids.new(ask.services.clock.now()),
            user=viewer.principal,
            message=key,
            profile=viewer.profile,
        ),
        parts=tuple(parts),
        surface=SURFACE,
        principal=viewer.principal,
    )


def present_receipt(receipt: Receipt) -> schema.Sent:
    return schema.Sent(
        duplicate=receipt.duplicate,
        session=receipt.session,
        turn=receipt.turn,
        seq=receipt.seq,
        reply=receipt.reply,
    )


async def mark_sent(ask: ApiRequest, id_: SessionId, seq: int, place: str) -> None:
    """What one said oneself is read, and is no longer unsent."""
    if seq:
        await ask.hub.viewer_state.mark_read(ask.viewer, id_, seq)
    await ask.hub.viewer_state.save_unsent_text(ask.viewer, place, UnsentMessage())


def parse_window(query: request_schema.WindowQuery) -> MessageRange:
    if sum(place is not None for place in (query.before, query.after, query.around)) > 1:
        raise Invalid("give one of before, after and around, not several")
    return MessageRange(before=query.before, after=query.after, around=query.around, limit=query.limit)
