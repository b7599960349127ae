"""Conversations: the operations on sessions and their messages."""

from collections.abc import Sequence

import anyio.to_thread
import msgspec
from msgspec import UNSET

from keryx.core import ids
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import ProjectId, SessionId, TurnId
from keryx.core.messages import Message, Part, Text, split_id, words
from keryx.core.ports import Inbound, Receipt
from keryx.core.sessions import EndReason, Listed, Listing, Settings
from keryx.core.source import Source
from keryx.core.turns import BusyMode
from keryx.engine.desk import NEW
from keryx.engine.views import Composed
from keryx.engine.windows import Window
from keryx.surfaces.web import forms, show, talk, wire
from keryx.surfaces.web.ask import Ask, Handler

SURFACE = "web"
_HEAVY = 20_000
_ARCHIVED = {forms.Archived.NO: False, forms.Archived.YES: True, forms.Archived.ANY: None}


async def sessions(ask: Ask) -> talk.SessionPage:
    query = ask.query(forms.SessionQuery)
    listing = Listing(
        surface=query.surface,
        project=ProjectId(query.project) if query.project else None,
        pinned=query.pinned,
        archived=_ARCHIVED[query.archived],
        activity=query.activity,
        cwd=query.cwd,
        since=query.since,
        jobs=query.jobs,
        after=query.after,
        limit=query.limit,
    )
    return show.page(await ask.hub.views.page(ask.viewer, listing))


async def resolve(ask: Ask) -> talk.Session:
    found = await ask.hub.resolve(ask.viewer, ask.query(forms.NameQuery).name)
    return await _listed(ask, found.id)


async def session(ask: Ask) -> wire.Snapshot:
    return await snapshot(ask, ask.session, ask.query(forms.WindowQuery))


async def snapshot(ask: Ask, id_: SessionId, query: forms.WindowQuery) -> wire.Snapshot:
    """A conversation as it is now."""
    opening = await ask.hub.views.open(ask.viewer, id_, _window(query))
    taken, shown = opening.snapshot, opening.shown
    return wire.Snapshot(
        session=show.session(Listed(session=taken.session, activity=taken.activity), read=opening.read),
        messages=await rendered(shown.messages),
        cursor=taken.cursor,
        earlier=shown.earlier,
        later=shown.later,
        running=show.turn(taken.running) if taken.running else None,
        draft=show.draft(taken.running, taken.draft) if taken.running else None,
        queue=[show.waiting(*pair) for pair in zip(taken.queue, opening.inputs, strict=True)],
        deliveries=[show.delivery(d) for d in taken.deliveries],
        epochs=[show.epoch(e) for e in reversed(taken.epochs)],
        questions=[show.question(q) for q in taken.questions],
        composer=await shown_composer(ask, opening.composed),
        lanes=[show.lane(lane, title=taken.session.title) for lane in opening.lanes],
    )


async def messages(ask: Ask) -> talk.MessageWindow:
    shown = await ask.hub.views.messages(ask.viewer, ask.session, _window(ask.query(forms.WindowQuery)))
    return talk.MessageWindow(
        messages=await rendered(shown.messages), earlier=shown.earlier, later=shown.later
    )


async def message(ask: Ask) -> talk.Message:
    found = await ask.hub.views.message(ask.viewer, *split_id(ask.path("message")))
    return (await rendered([found], full=True))[0]


async def begin(ask: Ask) -> talk.Sent:
    form = ask.body(forms.Begin)
    if form.project:
        await ask.hub.projects.find(ask.viewer, form.project)
    receipt = await ask.hub.receive(
        msgspec.structs.replace(
            await inbound(ask, form.text, form.media), cwd=form.cwd, settings=_checked(form.settings)
        )
    )
    if receipt.session and receipt.seq and not receipt.duplicate:
        await _said(ask, receipt.session, receipt.seq, NEW)
        if form.project:
            await ask.hub.projects.assign(ask.viewer, receipt.session, form.project)
    return sent(receipt)


async def send(ask: Ask) -> talk.Sent:
    form = ask.body(forms.Send)
    receipt = await ask.hub.receive(
        msgspec.structs.replace(
            await inbound(ask, form.text, form.media), session=ask.session, busy=form.busy
        )
    )
    if receipt.session and not receipt.duplicate:
        await _said(ask, receipt.session, receipt.seq or 0, ask.session)
    return sent(receipt)


async def change(ask: Ask) -> talk.Session:
    form, viewer, id_ = ask.body(forms.SessionChange), ask.viewer, ask.session
    if form.title is not UNSET:
        await ask.hub.rename(viewer, id_, form.title)
    if form.project is not UNSET:
        await ask.hub.projects.assign(viewer, id_, form.project)
    if form.settings is not UNSET:
        await ask.hub.configure(viewer, id_, _checked(form.settings))
    if form.pinned is not UNSET:
        await ask.hub.pin(viewer, id_, form.pinned)
    if form.archived is not UNSET:
        await ask.hub.archive(viewer, id_, form.archived)
    if form.ended is not UNSET:
        await ask.hub.end(viewer, id_, EndReason.PERSON if form.ended else None)
    return await _listed(ask, id_)


async def delete(ask: Ask) -> None:
    await ask.hub.delete(ask.viewer, ask.session, erase=ask.query(forms.EraseQuery).erase)


async def undelete(ask: Ask) -> talk.Session:
    await ask.hub.undelete(ask.viewer, ask.session)
    return await _listed(ask, ask.session)


async def rewrite(ask: Ask) -> talk.Message:
    await ask.hub.rewrite(ask.viewer, ask.path("message"), words(ask.body(forms.Rewrite).text))
    return await message(ask)


async def why(ask: Ask) -> talk.Story:
    return show.story(await ask.hub.why(ask.viewer, ask.path("message")))


async def stop(ask: Ask) -> talk.Stopped:
    turn = await ask.hub.stop(ask.viewer, ask.session, queue=ask.body(forms.Stop).queue)
    return talk.Stopped(turn=show.turn(turn) if turn else None)


async def queue(ask: Ask) -> talk.Queue:
    waiting = await ask.hub.views.queue(ask.viewer, ask.session)
    return talk.Queue(waiting=[show.waiting(*pair) for pair in waiting])


async def drop(ask: Ask) -> None:
    await ask.hub.drop(ask.viewer, TurnId(ask.path("turn")))


async def undo(ask: Ask) -> talk.Undone:
    return talk.Undone(text=await ask.hub.undo(ask.viewer, ask.session, ask.body(forms.Undo).count))


async def redo(ask: Ask) -> talk.Redone:
    return talk.Redone(messages=await ask.hub.redo(ask.viewer, ask.session))


async def retry(ask: Ask) -> talk.Sent:
    return sent(await ask.hub.retry(ask.viewer, ask.session, surface=SURFACE))


async def fork(ask: Ask) -> talk.Forked:
    """A copy alone, or with something said to it in the same unit of work."""
    form = ask.body(forms.Fork)
    if not form.text and not form.media:
        made = await ask.hub.fork(
            ask.viewer, ask.session, surface=SURFACE, through=form.through, title=form.title
        )
        return talk.Forked(session=await _listed(ask, made.id))
    said = msgspec.structs.replace(await inbound(ask, form.text, form.media), commands=False)
    receipt = await ask.hub.branch(
        ask.viewer, ask.session, said, through=form.through, title=form.title, surface=SURFACE
    )
    assert receipt.session is not None
    return talk.Forked(session=await _listed(ask, receipt.session), sent=sent(receipt))


async def lineage(ask: Ask) -> talk.Lineage:
    branches = await ask.hub.views.lineage(ask.viewer, ask.session)
    return talk.Lineage(branches=[show.branch(b) for b in branches])


async def read(ask: Ask) -> None:
    await ask.hub.desk.read(ask.viewer, ask.session, ask.body(forms.Read).seq)


async def composer(ask: Ask) -> talk.Composer:
    return await shown_composer(ask, await ask.hub.desk.composed(ask.viewer, ask.path("composer")))


async def compose(ask: Ask) -> None:
    form = ask.body(forms.Compose)
    composed = Composed(text=form.text, media=tuple(form.media))
    await ask.hub.desk.compose(ask.viewer, ask.path("composer"), composed)


async def shown_composer(ask: Ask, composed: Composed) -> talk.Composer:
    return show.composer(composed, await ask.hub.media.parts(ask.viewer, composed.media))


async def rendered(found: Sequence[Message], *, full: bool = False) -> list[talk.Message]:
    """Messages with their html; long ones are rendered in a thread, so that others need not wait."""

    def work() -> list[talk.Message]:
        return [show.message(m, full=full) for m in found]

    heavy = sum(len(m.text) for m in found) > _HEAVY
    return await anyio.to_thread.run_sync(work) if heavy else work()


async def inbound(ask: Ask, text: str, media: Sequence[str]) -> Inbound:
    """What somebody said on the page. A place of its own, unless a session is given."""
    key, viewer = ask.key, ask.viewer
    known = await ask.hub.media.parts(viewer, media)
    missing = [id_ for id_ in media if id_ not in known]
    if missing:
        raise NotFound(f"there is no file {missing[0][:80]!r}, or it is not yours: upload it again")
    parts: list[Part] = [Text(text)] if text.strip() else []
    parts += [known[id_] for id_ in media]
    if not parts:
        raise Invalid("there is nothing to send: write something, or attach a file")
    return Inbound(
        event=f"{viewer.principal}:{key}",
        source=Source(
            platform=SURFACE,
            chat=ids.new(ask.place.clock.now()),
            user=viewer.principal,
            message=key,
            profile=viewer.profile,
        ),
        parts=tuple(parts),
        surface=SURFACE,
        principal=viewer.principal,
    )


def sent(receipt: Receipt) -> talk.Sent:
    return talk.Sent(
        duplicate=receipt.duplicate,
        session=receipt.session,
        turn=receipt.turn,
        seq=receipt.seq,
        reply=receipt.reply,
    )


async def _said(ask: Ask, id_: SessionId, seq: int, place: str) -> None:
    """What one said oneself is read, and is no longer unsent."""
    if seq:
        await ask.hub.desk.read(ask.viewer, id_, seq)
    await ask.hub.desk.compose(ask.viewer, place, Composed())


async def _listed(ask: Ask, id_: SessionId) -> talk.Session:
    listed, seen = await ask.hub.views.listed(ask.viewer, id_)
    return show.session(listed, read=seen)


def _window(query: forms.WindowQuery) -> Window:
    if sum(place is not None for place in (query.before, query.after, query.around)) > 1:
        raise Invalid("give one of before, after and around, not several")
    return Window(before=query.before, after=query.after, around=query.around, limit=query.limit)


def _checked(settings: Settings) -> Settings:
    if settings.busy is not None and settings.busy not in set(BusyMode):
        raise Invalid(f"busy is one of {', '.join(BusyMode)}")
    return settings


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        sessions,
        resolve,
        session,
        messages,
        message,
        begin,
        send,
        change,
        delete,
        undelete,
        rewrite,
        why,
        stop,
        queue,
        drop,
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
