"""Routes of sessions: list, search, open, begin, change, delete, undo and fork them, and keep unsent text."""

from collections.abc import Callable
from datetime import datetime

import msgspec
from msgspec import UNSET

from keryx.core import ids
from keryx.core.errors import Invalid
from keryx.core.ids import PrincipalId, ProjectId, SessionId, TurnId
from keryx.core.messages import Message, Role
from keryx.core.search.snippets import Snippet
from keryx.core.sessions import (
    Activity,
    EndReason,
    PruneRule,
    SessionChange,
    SessionFilter,
    SessionListItem,
    SessionSettings,
    SettingsChange,
)
from keryx.core.texts import Phrase
from keryx.core.turns import BusyMode
from keryx.engine.hub.views import NEW_SESSION, UnsentMessage
from keryx.markdown import html
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.routes import messages
from keryx.surfaces.web.routes.messages import SURFACE

router = ApiRouter()

_MAX_CONTEXT_CHARS = 200
_MAX_PRUNED = 1000
_ARCHIVED_FILTER = {
    request_schema.Archived.NO: False,
    request_schema.Archived.YES: True,
    request_schema.Archived.ANY: None,
}


@router.get(
    "/api/sessions", summary="A page of conversations, pinned first, then by last message.", etag=True
)
async def sessions(request: ApiRequest, query: request_schema.SessionQuery) -> schema.SessionPage:
    listing = SessionFilter(
        query=query.q,
        owner=PrincipalId(query.owner) if query.owner else None,
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
    return presenters.session_page(await request.hub.views.load_page(request.viewer, listing))


@router.get("/api/resolve", summary="Find a conversation by id, unique prefix, title or an old id.")
async def resolve(request: ApiRequest, query: request_schema.NameQuery) -> schema.SessionSchema:
    found = await request.hub.resolve(request.viewer, query.name)
    return await _read_session(request, found.id)


@router.get("/api/search", summary="Messages and titles that fit, best first. Any text is a query.")
async def search(request: ApiRequest, query: request_schema.SearchQuery) -> schema.Found:
    hits = await request.hub.search(request.viewer, query.q, limit=query.limit + 1, offset=query.offset)
    return schema.Found(
        hits=[
            schema.Hit(
                session=presenters.session(SessionListItem(session=hit.session, activity=Activity.IDLE)),
                html=_mark_snippet(hit.message, hit.snippet),
                text=hit.snippet.text,
                seq=hit.message.seq if hit.message else None,
                role=hit.message.role if hit.message else None,
                mark=hit.message.mark if hit.message else None,
                at=hit.message.at if hit.message else None,
                before=hit.before.text[:_MAX_CONTEXT_CHARS] if hit.before else "",
                after=hit.after.text[:_MAX_CONTEXT_CHARS] if hit.after else "",
            )
            for hit in hits[: query.limit]
        ],
        more=len(hits) > query.limit,
    )


def _mark_snippet(message: Message | None, snippet: Snippet) -> str:
    """Return a snippet as HTML. The words of people and agents are shown without markup, what tools said as it is."""
    said = message is not None and message.role in (Role.USER, Role.ASSISTANT)
    return (html.mark_words if said else html.mark_spans)(snippet.text, snippet.spans)


@router.get(
    "/api/sessions/{session}",
    summary="A conversation with a window of messages and all that goes on in it, from one read.",
    etag=True,
)
async def session(request: ApiRequest, query: request_schema.WindowQuery) -> schema.Snapshot:
    return await read_snapshot(request, request.session_id, query)


async def read_snapshot(
    request: ApiRequest, id_: SessionId, query: request_schema.WindowQuery
) -> schema.Snapshot:
    """Return a conversation with a window of messages, from one read."""
    snapshot = await request.hub.open(request.viewer, id_, messages.parse_window(query))
    composer = await present_composer(request, snapshot.unsent)

    def present(render: Callable[[str], str]) -> schema.Snapshot:
        running = snapshot.running
        return schema.Snapshot(
            session=presenters.session(
                SessionListItem(
                    session=snapshot.session,
                    activity=snapshot.activity,
                    tags=snapshot.tags,
                    opening=snapshot.opening,
                ),
                read=snapshot.read,
            ),
            draft=presenters.draft(running, snapshot.draft) if running else None,
            messages=messages.present_messages(snapshot.messages, render, snapshot.sizes),
            cursor=snapshot.cursor,
            earlier=snapshot.earlier,
            later=snapshot.later,
            running=presenters.turn(running) if running else None,
            queue=[
                presenters.queued_turn(*pair, render=render)
                for pair in zip(snapshot.queue, snapshot.inputs, strict=True)
            ],
            deliveries=[presenters.delivery(d, request.texts) for d in snapshot.deliveries],
            epochs=[presenters.epoch(e, render=render) for e in reversed(snapshot.epochs)],
            questions=[presenters.question(q) for q in snapshot.questions],
            composer=composer,
            lanes=[presenters.lane(lane, title=snapshot.session.title) for lane in snapshot.lanes],
            answers=[presenters.answer(a) for a in snapshot.answers],
            versions=presenters.versions(snapshot.versions),
            answering=presenters.answering(
                request.hub.find_answering(messages.build_source(request), snapshot)
            ),
        )

    return await request.render(present)


@router.post(
    "/api/sessions",
    summary="Begin a conversation with a message. A slash command is answered in `reply`.",
    status=201,
    idempotent=True,
)
async def begin(request: ApiRequest, body: request_schema.BeginForm) -> schema.Sent:
    if body.project:
        await request.hub.projects.find(request.viewer, body.project)
    receipt = await request.hub.receive(
        msgspec.structs.replace(
            await messages.build_inbound(request, body.text, body.media, body.names),
            cwd=body.cwd,
            settings=_check_settings(body.settings).apply(SessionSettings()),
            session=ids.new_temporary(request.services.clock.now()) if body.temporary else None,
            begin=body.temporary,
        )
    )
    if receipt.session and receipt.seq and not receipt.duplicate:
        sent = UnsentMessage(text=body.text, media=tuple(body.media), names=tuple(body.names))
        await messages.mark_sent(request, receipt.session, receipt.seq, NEW_SESSION, sent)
        if body.project:
            await request.hub.projects.assign(request.viewer, receipt.session, body.project)
    return messages.present_receipt(receipt)


@router.patch("/api/sessions/{session}", summary="Rename, pin, archive, end, put into a project, or set up.")
async def change(request: ApiRequest, body: request_schema.SessionChangeForm) -> schema.SessionSchema:
    change = SessionChange(
        title=body.title,
        project=body.project,
        settings=body.settings and _check_settings(body.settings),
        cwd=body.cwd,
        pinned=body.pinned,
        archived=body.archived,
        ended=(EndReason.PERSON if body.ended else None) if body.ended is not UNSET else UNSET,
        tags=UNSET if body.tags is UNSET else tuple(body.tags),
    )
    await request.hub.change(request.viewer, request.session_id, change)
    return await _read_session(request, request.session_id)


@router.patch(
    "/api/sessions",
    summary="Pin, archive, move, tag, stop, delete or bring back several conversations at once.",
)
async def change_many(request: ApiRequest, body: request_schema.SessionsChangeForm) -> schema.ChangedSessions:
    hub, viewer = request.hub, request.viewer
    chosen = [SessionId(id_) for id_ in body.sessions]
    if body.erase:
        await hub.erase_many(viewer, chosen)
    else:
        change = SessionChange(
            project=body.project,
            pinned=body.pinned,
            archived=body.archived,
            add_tags=tuple(body.add_tags),
            remove_tags=tuple(body.remove_tags),
        )
        deleted = None if body.deleted is UNSET else body.deleted
        await hub.change_many(viewer, chosen, change, deleted=deleted, stop=body.stop)
    listed = await hub.views.get_many_listed(viewer, chosen)
    return schema.ChangedSessions(sessions=[presenters.session(item, read=seq) for item, seq in listed])


@router.delete("/api/sessions/{session}", summary="Hide a conversation, to be erased after the grace period.")
async def delete(request: ApiRequest, query: request_schema.EraseQuery) -> None:
    await request.hub.delete(request.viewer, request.session_id, erase=query.erase)


@router.post("/api/sessions/{session}/undelete", summary="Bring a deleted conversation back.")
async def undelete(request: ApiRequest) -> schema.SessionSchema:
    await request.hub.undelete(request.viewer, request.session_id)
    return await _read_session(request, request.session_id)


@router.get("/api/prunable", summary="Which old conversations would be archived or deleted, as a preview.")
async def prunable(request: ApiRequest, query: request_schema.PruneQuery) -> schema.PrunePreview:
    if query.before is None and not query.q.strip():
        raise Invalid(Phrase("session.prune_unnamed"))
    before = query.before or request.services.clock.now()
    old = await request.hub.list_prunable(request.viewer, _build_rule(query, before), limit=_MAX_PRUNED)
    return schema.PrunePreview(
        count=len(old),
        before=before,
        sessions=[
            presenters.session(SessionListItem(session=s, activity=Activity.IDLE)) for s in old[: query.limit]
        ],
    )


@router.post("/api/prune", summary="Archive or delete old conversations. Pinned ones and those at work stay.")
async def prune(request: ApiRequest, body: request_schema.PruneForm) -> schema.Pruned:
    rule = _build_rule(body, body.before)
    old = await request.hub.list_prunable(request.viewer, rule, limit=_MAX_PRUNED)
    count = 0
    for session in old:
        count += await request.hub.prune(request.viewer, session.id, rule)
    return schema.Pruned(count=count, more=len(old) == _MAX_PRUNED)


@router.post(
    "/api/sessions/{session}/undo", summary="Take the last turns back, or all from that of a message on."
)
async def undo(request: ApiRequest, body: request_schema.UndoForm) -> schema.Undone:
    undone = await request.hub.undo(request.viewer, request.session_id, body.count, message=body.message)
    return schema.Undone(turns=undone.turns, text=undone.text)


@router.post("/api/sessions/{session}/redo", summary="Bring back what the last undo took.")
async def redo(request: ApiRequest) -> schema.Redone:
    return schema.Redone(messages=await request.hub.redo(request.viewer, request.session_id))


@router.post(
    "/api/sessions/{session}/retry",
    summary="Ask a question again, the last one or that of a message: another version of it, in place.",
    status=201,
)
async def retry(request: ApiRequest, body: request_schema.RetryForm) -> schema.Sent:
    return messages.present_receipt(
        await request.hub.retry(
            request.viewer, request.session_id, surface=SURFACE, message=body.message, model=body.model
        )
    )


@router.post("/api/sessions/{session}/version", summary="Go on with another version of a question.")
async def choose_version(request: ApiRequest, body: request_schema.ChooseVersionForm) -> None:
    await request.hub.choose_version(request.viewer, request.session_id, TurnId(body.turn))


@router.post(
    "/api/sessions/{session}/fork",
    summary="Go on in a copy, from the end or from a message, and say something there if wanted.",
    status=201,
    idempotent=True,
)
async def fork(request: ApiRequest, body: request_schema.ForkForm) -> schema.Forked:
    """Copy a conversation. A message for the copy is sent in the same unit of work."""
    if not body.text and not body.media:
        copy = await request.hub.fork(
            request.viewer, request.session_id, surface=SURFACE, through=body.through, title=body.title
        )
        return schema.Forked(session=await _read_session(request, copy.id))
    message = msgspec.structs.replace(
        await messages.build_inbound(request, body.text, body.media, body.names), commands=False
    )
    receipt = await request.hub.branch(
        request.viewer, request.session_id, message, through=body.through, title=body.title, surface=SURFACE
    )
    assert receipt.session is not None
    return schema.Forked(
        session=await _read_session(request, receipt.session), sent=messages.present_receipt(receipt)
    )


@router.get("/api/sessions/{session}/lineage", summary="The forks, epochs and resets of a conversation.")
async def lineage(request: ApiRequest) -> schema.Lineage:
    branches = await request.hub.views.lineage(request.viewer, request.session_id)
    return await request.render(
        lambda render: schema.Lineage(branches=[presenters.branch(b, render=render) for b in branches])
    )


@router.put("/api/sessions/{session}/read", summary="Say how far the viewer has read.")
async def read(request: ApiRequest, body: request_schema.ReadForm) -> None:
    await request.hub.viewer_state.mark_read(request.viewer, request.session_id, body.seq)


@router.get(
    "/api/composers/{composer}", summary="What was typed and not sent: of a conversation, or of `new`."
)
async def composer(request: ApiRequest) -> schema.Composer:
    return await present_composer(
        request,
        await request.hub.viewer_state.get_unsent_text(request.viewer, request.path_param("composer")),
    )


@router.put(
    "/api/composers/{composer}", summary="Keep what was typed. An empty text forgets it; sending it does too."
)
async def compose(request: ApiRequest, body: request_schema.ComposeForm) -> None:
    composed = UnsentMessage(text=body.text, media=tuple(body.media), names=tuple(body.names))
    await request.hub.viewer_state.save_unsent_text(request.viewer, request.path_param("composer"), composed)


async def present_composer(request: ApiRequest, composed: UnsentMessage) -> schema.Composer:
    known = await request.hub.media.load_parts(request.viewer, composed.media)
    names = (*composed.names, *("" for _ in composed.media))
    named = [(known[id_], name) for id_, name in zip(composed.media, names, strict=False) if id_ in known]
    files = messages.name_files([part for part, _ in named], [name for _, name in named])
    return presenters.composer(composed.text, files)


async def _read_session(request: ApiRequest, id_: SessionId) -> schema.SessionSchema:
    listed, read_seq = await request.hub.views.get_listed(request.viewer, id_)
    return presenters.session(listed, read=read_seq)


def _build_rule(given: request_schema.PruneQuery | request_schema.PruneForm, before: datetime) -> PruneRule:
    owner = PrincipalId(given.owner) if given.owner else None
    return PruneRule(before=before, delete=given.delete, surface=given.surface, owner=owner, query=given.q)


def _check_settings(settings: SettingsChange) -> SettingsChange:
    if isinstance(settings.busy, str) and settings.busy not in set(BusyMode):
        raise Invalid(f"busy is one of {', '.join(BusyMode)}")
    return settings
