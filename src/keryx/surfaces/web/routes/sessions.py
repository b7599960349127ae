"""Routes of sessions: list, open, begin, change, delete, undo, fork, and the text that was typed and not sent."""

import msgspec
from msgspec import UNSET

from keryx.core.errors import Invalid
from keryx.core.ids import ProjectId, SessionId
from keryx.core.sessions import EndReason, SessionFilter, SessionListItem, SessionSettings
from keryx.core.turns import BusyMode
from keryx.engine.hub.viewer_state import NEW_SESSION
from keryx.engine.hub.views import UnsentMessage
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest, Handler
from keryx.surfaces.web.routes import messages, turns
from keryx.surfaces.web.routes.messages import SURFACE

_ARCHIVED_FILTER = {
    request_schema.Archived.NO: False,
    request_schema.Archived.YES: True,
    request_schema.Archived.ANY: None,
}


async def sessions(ask: ApiRequest) -> schema.SessionPage:
    query = ask.query(request_schema.SessionQuery)
    listing = SessionFilter(
        surface=query.surface,
        project=ProjectId(query.project) if query.project else None,
        pinned=query.pinned,
        archived=_ARCHIVED_FILTER[query.archived],
        activity=query.activity,
        cwd=query.cwd,
        since=query.since,
        jobs=query.jobs,
        after=query.after,
        limit=query.limit,
    )
    return presenters.session_page(await ask.hub.views.list_sessions(ask.viewer, listing))


async def resolve(ask: ApiRequest) -> schema.Session:
    found = await ask.hub.resolve(ask.viewer, ask.query(request_schema.NameQuery).name)
    return await _read_session(ask, found.id)


async def session(ask: ApiRequest) -> schema.Snapshot:
    return await read_snapshot(ask, ask.session_id, ask.query(request_schema.WindowQuery))


async def read_snapshot(
    ask: ApiRequest, id_: SessionId, query: request_schema.WindowQuery
) -> schema.Snapshot:
    """A conversation as it is now."""
    opening = await ask.hub.views.open(ask.viewer, id_, messages.parse_window(query))
    taken, shown = opening.snapshot, opening.window
    return schema.Snapshot(
        session=presenters.session(
            SessionListItem(session=taken.session, activity=taken.activity), read=opening.read
        ),
        messages=await messages.render_messages(shown.messages),
        cursor=taken.cursor,
        earlier=shown.earlier,
        later=shown.later,
        running=presenters.turn(taken.running) if taken.running else None,
        draft=presenters.draft(taken.running, taken.draft) if taken.running else None,
        queue=[presenters.queued_turn(*pair) for pair in zip(taken.queue, opening.inputs, strict=True)],
        deliveries=[presenters.delivery(d) for d in taken.deliveries],
        epochs=[presenters.epoch(e) for e in reversed(taken.epochs)],
        questions=[presenters.question(q) for q in taken.questions],
        composer=await present_composer(ask, opening.composed),
        lanes=[presenters.lane(lane, title=taken.session.title) for lane in opening.lanes],
    )


async def begin(ask: ApiRequest) -> schema.Sent:
    form = ask.body(request_schema.Begin)
    if form.project:
        await ask.hub.projects.find(ask.viewer, form.project)
    receipt = await ask.hub.receive(
        msgspec.structs.replace(
            await messages.build_inbound(ask, form.text, form.media),
            cwd=form.cwd,
            settings=_check_settings(form.settings),
        )
    )
    if receipt.session and receipt.seq and not receipt.duplicate:
        await messages.mark_sent(ask, receipt.session, receipt.seq, NEW_SESSION)
        if form.project:
            await ask.hub.projects.assign(ask.viewer, receipt.session, form.project)
    return messages.present_receipt(receipt)


async def change(ask: ApiRequest) -> schema.Session:
    form, viewer, id_ = ask.body(request_schema.SessionChange), ask.viewer, ask.session_id
    if form.title is not UNSET:
        await ask.hub.rename(viewer, id_, form.title)
    if form.project is not UNSET:
        await ask.hub.projects.assign(viewer, id_, form.project)
    if form.settings is not UNSET:
        await ask.hub.configure(viewer, id_, _check_settings(form.settings))
    if form.pinned is not UNSET:
        await ask.hub.pin(viewer, id_, form.pinned)
    if form.archived is not UNSET:
        await ask.hub.archive(viewer, id_, form.archived)
    if form.ended is not UNSET:
        await ask.hub.end(viewer, id_, EndReason.PERSON if form.ended else None)
    return await _read_session(ask, id_)


async def delete(ask: ApiRequest) -> None:
    await ask.hub.delete(ask.viewer, ask.session_id, erase=ask.query(request_schema.EraseQuery).erase)


async def undelete(ask: ApiRequest) -> schema.Session:
    await ask.hub.undelete(ask.viewer, ask.session_id)
    return await _read_session(ask, ask.session_id)


async def undo(ask: ApiRequest) -> schema.Undone:
    return schema.Undone(
        text=await ask.hub.undo(ask.viewer, ask.session_id, ask.body(request_schema.Undo).count)
    )


async def redo(ask: ApiRequest) -> schema.Redone:
    return schema.Redone(messages=await ask.hub.redo(ask.viewer, ask.session_id))


async def retry(ask: ApiRequest) -> schema.Sent:
    return messages.present_receipt(await ask.hub.retry(ask.viewer, ask.session_id, surface=SURFACE))


async def fork(ask: ApiRequest) -> schema.Forked:
    """A copy alone, or with something said to it in the same unit of work."""
    form = ask.body(request_schema.Fork)
    if not form.text and not form.media:
        made = await ask.hub.fork(
            ask.viewer, ask.session_id, surface=SURFACE, through=form.through, title=form.title
        )
        return schema.Forked(session=await _read_session(ask, made.id))
    said = msgspec.structs.replace(await messages.build_inbound(ask, form.text, form.media), commands=False)
    receipt = await ask.hub.branch(
        ask.viewer, ask.session_id, said, through=form.through, title=form.title, surface=SURFACE
    )
    assert receipt.session is not None
    return schema.Forked(
        session=await _read_session(ask, receipt.session), sent=messages.present_receipt(receipt)
    )


async def lineage(ask: ApiRequest) -> schema.Lineage:
    branches = await ask.hub.views.lineage(ask.viewer, ask.session_id)
    return schema.Lineage(branches=[presenters.branch(b) for b in branches])


async def read(ask: ApiRequest) -> None:
    await ask.hub.viewer_state.mark_read(ask.viewer, ask.session_id, ask.body(request_schema.Read).seq)


async def composer(ask: ApiRequest) -> schema.Composer:
    return await present_composer(
        ask, await ask.hub.viewer_state.get_unsent_text(ask.viewer, ask.path_param("composer"))
    )


async def compose(ask: ApiRequest) -> None:
    form = ask.body(request_schema.Compose)
    composed = UnsentMessage(text=form.text, media=tuple(form.media))
    await ask.hub.viewer_state.save_unsent_text(ask.viewer, ask.path_param("composer"), composed)


async def present_composer(ask: ApiRequest, composed: UnsentMessage) -> schema.Composer:
    return presenters.composer(composed, await ask.hub.media.load_parts(ask.viewer, composed.media))


async def _read_session(ask: ApiRequest, id_: SessionId) -> schema.Session:
    listed, seen = await ask.hub.views.get_listed(ask.viewer, id_)
    return presenters.session(listed, read=seen)


def _check_settings(settings: SessionSettings) -> SessionSettings:
    if settings.busy is not None and settings.busy not in set(BusyMode):
        raise Invalid(f"busy is one of {', '.join(BusyMode)}")
    return settings


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        sessions,
        resolve,
        session,
        messages.messages,
        messages.message,
        begin,
        messages.send,
        change,
        delete,
        undelete,
        messages.rewrite,
        messages.why,
        turns.stop,
        turns.queue,
        turns.drop,
        undo,
        redo,
        retry,
        fork,
        lineage,
        read,
        composer,
        compose,
    )
}
