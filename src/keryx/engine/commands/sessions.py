"""Commands on sessions: new, resume, list, title, fork, pin, archive, project, delete and search."""

from collections.abc import Sequence

from keryx.core.errors import Invalid, NotFound
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import Session, SessionFilter, TitleBy
from keryx.core.source import ChatType
from keryx.engine.commands.call import (
    CommandCall,
    CommandHandler,
    CommandResult,
    format_sentence,
    pluralize,
    quote_title,
)
from keryx.engine.commands.command_table import ParsedCommand
from keryx.engine.units import control, revisions
from keryx.store import lanes as lane_store
from keryx.store import projects, sessions
from keryx.store.search.index import SearchHit

_MAX_LISTED = 10
SEARCH_LIMIT = 5


def _new(call: CommandCall) -> CommandResult:
    old = control.start_new_session(call.tx, call.current_lane)
    if old is None:
        return CommandResult("This is a new conversation already. Say something.")
    return CommandResult(f"New conversation. /resume {old.title or old.id} brings the last one back.")


def _resume(call: CommandCall) -> CommandResult:
    if not call.text:
        return _sessions(call)
    wanted = sessions.resolve(call.tx, call.viewer, call.text)
    control.switch(call.tx, call.current_lane, wanted, why="resume")
    return CommandResult(
        f"Back in {quote_title(wanted)}: {pluralize(wanted.messages, 'message')}.", wanted.id
    )


def _undo_reset(call: CommandCall) -> CommandResult:
    lane = call.current_lane
    before = next(
        (
            m.session
            for m in lane_store.list_moves(call.tx, lane.key)
            if m.session and m.session != lane.session
        ),
        None,
    )
    if before is None:
        raise NotFound("this chat had no other conversation before")
    wanted = sessions.get(call.tx, before)
    control.switch(call.tx, lane, wanted, why="undo-reset")
    return CommandResult(
        f"Back in {quote_title(wanted)}: {pluralize(wanted.messages, 'message')}.", wanted.id
    )


def _sessions(call: CommandCall) -> CommandResult:
    listed, more = sessions.list_page(call.tx, call.viewer, SessionFilter(limit=_MAX_LISTED))
    found = [entry.session for entry in listed]
    if not found:
        return CommandResult("You have no conversations yet. Say something.")
    lines = [
        f"{n}. {quote_title(s)} · {pluralize(s.messages, 'message')} · {s.id}"
        for n, s in enumerate(found, start=1)
    ]
    if more:
        lines.append("…")
    return CommandResult("\n".join([*lines, "", "/resume <title or id> goes on with one."]))


def _title(call: CommandCall) -> CommandResult:
    if not call.text:
        return CommandResult(f"This is {quote_title(call.current_session)}.", call.current_session.id)
    if call.session is None:
        sessions.validate_title(call.tx, call.owner, call.text)
    named = call.ensure_session()
    title = sessions.rename(call.tx, named, call.text, by=TitleBy.PERSON)
    return CommandResult(f"Now called “{title}”.", named.id)


def _fork(call: CommandCall) -> CommandResult:
    child = revisions.fork(
        call.tx,
        call.current_session,
        surface=call.inbound.surface,
    )
    if call.lane:
        control.switch(call.tx, call.lane, child, why="fork")
    refusal = _try_title(call, child) if call.text else ""
    return CommandResult(
        f"You are in a copy now: {quote_title(sessions.get(call.tx, child.id))}.{refusal}", child.id
    )


def _try_title(call: CommandCall, child: Session) -> str:
    """The copy is made whatever becomes of its title; gives why the title was refused."""
    try:
        sessions.rename(call.tx, child, call.text, by=TitleBy.PERSON)
    except Invalid as exc:
        return f" {format_sentence(str(exc))}"
    return ""


def _pin(call: CommandCall) -> CommandResult:
    sessions.set_pinned(call.tx, call.current_session, not call.current_session.pinned)
    return CommandResult("Unpinned." if call.current_session.pinned else "Pinned.", call.current_session.id)


def _archive(call: CommandCall) -> CommandResult:
    sessions.set_archived(call.tx, call.current_session, not call.current_session.archived)
    return CommandResult(
        "Back from the archive." if call.current_session.archived else "Archived.", call.current_session.id
    )


def _project(call: CommandCall) -> CommandResult:
    if not call.text:
        names = [p.name for p in projects.list_for_viewer(call.tx, call.owner)]
        return CommandResult(
            f"Projects: {', '.join(names)}."
            if names
            else "There are no projects yet: the page and `keryx projects` make them.",
            call.session_id,
        )
    chosen = None if call.text == "none" else projects.find(call.tx, call.owner, call.text)
    put = call.ensure_session()
    sessions.set_project(call.tx, put, chosen.id if chosen else None)
    return CommandResult(f"Now in {chosen.name}." if chosen else "In no project now.", put.id)


def _delete(call: CommandCall) -> CommandResult:
    session = call.current_session
    control.delete(call.tx, session, grace=call.policy.keep.erase)
    return CommandResult(
        f"Deleted {quote_title(session)}. It is erased in {call.policy.keep.erase.days} days.", session.id
    )


SESSION_HANDLERS: dict[str, CommandHandler] = {
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


def needs_search(command: ParsedCommand, inbound: InboundMessage) -> bool:
    """Whether the command is a /search, which runs before the transaction."""
    alone = inbound.source.chat_type is ChatType.DM
    return command.name == "search" and bool(command.text) and alone and inbound.edits is None


def render_hits(hits: Sequence[SearchHit]) -> str:
    """What /search replies: each hit with its conversation, its day and, of a message, the passage."""
    return "\n".join(f"{n}. {_render_hit(hit)}" for n, hit in enumerate(hits, start=1))


def _search(call: CommandCall) -> CommandResult:
    if not call.text:
        raise NotFound("say what to look for: /search oslo hotel")
    return CommandResult(call.search_reply or "Nothing found.", call.session.id if call.session else None)


def _render_hit(hit: SearchHit) -> str:
    if hit.message is None:
        return f"{quote_title(hit.session)} · {hit.session.active_at:%Y-%m-%d}"
    return f"{quote_title(hit.session)} · {hit.message.at:%Y-%m-%d}\n{hit.snippet.text}"


SEARCH_HANDLERS: dict[str, CommandHandler] = {
    "search": _search,
}
