"""Commands on a conversation: which one this chat has, what it is called and where it is kept."""

from keryx.core.errors import Invalid, NotFound
from keryx.core.sessions import Listing, Session, TitleBy
from keryx.engine import control, revisions
from keryx.engine.commands.call import Call, Done, Run, counted, label, sentence
from keryx.store import lanes as lane_store
from keryx.store import listings, lookup, projects, sessions

_SHOWN = 10


def _new(call: Call) -> Done:
    old = control.begin(call.tx, call.place, now=call.now)
    if old is None:
        return Done("This is a new conversation already. Say something.")
    return Done(f"New conversation. /resume {old.title or old.id} brings the last one back.")


def _resume(call: Call) -> Done:
    if not call.text:
        return _sessions(call)
    wanted = lookup.resolve(call.tx, call.viewer, call.text)
    control.switch(call.tx, call.place, wanted, why="resume", now=call.now)
    return Done(f"Back in {label(wanted)}: {counted(wanted.messages, 'message')}.", wanted.id)


def _undo_reset(call: Call) -> Done:
    lane = call.place
    before = next(
        (m.session for m in lane_store.history(call.tx, lane.key) if m.session and m.session != lane.session),
        None,
    )
    if before is None:
        raise NotFound("this chat had no other conversation before")
    wanted = sessions.get(call.tx, before)
    control.switch(call.tx, lane, wanted, why="undo-reset", now=call.now)
    return Done(f"Back in {label(wanted)}: {counted(wanted.messages, 'message')}.", wanted.id)


def _sessions(call: Call) -> Done:
    listed, more = listings.page(call.tx, call.viewer, Listing(limit=_SHOWN))
    found = [entry.session for entry in listed]
    if not found:
        return Done("You have no conversations yet. Say something.")
    lines = [
        f"{n}. {label(s)} · {counted(s.messages, 'message')} · {s.id}" for n, s in enumerate(found, start=1)
    ]
    if more:
        lines.append("…")
    return Done("\n".join([*lines, "", "/resume <title or id> goes on with one."]))


def _title(call: Call) -> Done:
    if not call.text:
        return Done(f"This is {label(call.current)}.", call.current.id)
    if call.session is None:
        sessions.free_title(call.tx, call.owner, call.text)
    named = call.opened()
    title = sessions.rename(call.tx, named, call.text, by=TitleBy.PERSON, now=call.now)
    return Done(f"Now called “{title}”.", named.id)


def _fork(call: Call) -> Done:
    child = revisions.fork(
        call.tx,
        call.current,
        viewer=call.viewer,
        surface=call.inbound.surface,
        now=call.now,
    )
    if call.lane:
        control.switch(call.tx, call.lane, child, why="fork", now=call.now)
    refusal = _try_title(call, child) if call.text else ""
    return Done(f"You are in a copy now: {label(sessions.get(call.tx, child.id))}.{refusal}", child.id)


def _try_title(call: Call, child: Session) -> str:
    """The copy is made whatever becomes of its title; gives why the title was refused."""
    try:
        sessions.rename(call.tx, child, call.text, by=TitleBy.PERSON, now=call.now)
    except Invalid as exc:
        return f" {sentence(str(exc))}"
    return ""


def _pin(call: Call) -> Done:
    sessions.set_pinned(call.tx, call.current, not call.current.pinned, now=call.now)
    return Done("Unpinned." if call.current.pinned else "Pinned.", call.current.id)


def _archive(call: Call) -> Done:
    sessions.set_archived(call.tx, call.current, not call.current.archived, now=call.now)
    return Done("Back from the archive." if call.current.archived else "Archived.", call.current.id)


def _project(call: Call) -> Done:
    if not call.text:
        names = [p.name for p in projects.every(call.tx, call.owner)]
        return Done(
            f"Projects: {', '.join(names)}."
            if names
            else "There are no projects yet: the page and `keryx projects` make them.",
            call.id,
        )
    chosen = None if call.text == "none" else projects.find(call.tx, call.owner, call.text)
    put = call.opened()
    sessions.set_project(call.tx, put, chosen.id if chosen else None, now=call.now)
    return Done(f"Now in {chosen.name}." if chosen else "In no project now.", put.id)


def _delete(call: Call) -> Done:
    session = call.current
    control.delete(call.tx, session, grace=call.policy.keep.erase, now=call.now)
    return Done(f"Deleted {label(session)}. It is erased in {call.policy.keep.erase.days} days.", session.id)


RUN: dict[str, Run] = {
    "new": _new,
    "resume": _resume,
    "undo-reset": _undo_reset,
    "sessions": _sessions,
    "title": _title,
    "fork": _fork,
    "pin": _pin,
    "archive": _archive,
    "project": _project,
    "delete": _delete,
}
