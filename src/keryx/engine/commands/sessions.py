"""Commands on sessions: new, resume, list, title, fork, pin, archive, project, delete and search."""

from collections.abc import Sequence

from keryx.core.errors import Invalid, NotFound
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import Session, SessionFilter, TitleBy
from keryx.core.source import ChatType
from keryx.engine.commands.call import (
    CommandCall,
    CommandResult,
    format_sentence,
    pluralize,
    quote_title,
)
from keryx.engine.commands.command_table import ParsedCommand
from keryx.engine.units import control, revisions
from keryx.store import lanes as lane_store
from keryx.store import projects, sessions
from keryx.store.search import SearchHit

_MAX_LISTED = 10
SEARCH_LIMIT = 5


def start_new(call: CommandCall) -> CommandResult:
    old = control.start_new_session(call.tx, call.current_lane)
    if old is None:
        return CommandResult("This is a new conversation already. Say something.")
    return CommandResult(f"New conversation. /resume {old.title or old.id} brings the last one back.")


def resume(call: CommandCall) -> CommandResult:
    if not call.text:
        return list_recent(call)
    session = sessions.resolve(call.tx, call.viewer, call.text)
    return _switch(call, session, why="resume")


def undo_reset(call: CommandCall) -> CommandResult:
    lane = call.current_lane
    moves = lane_store.list_moves(call.tx, lane.key)
    before = next((m.session for m in moves if m.session and m.session != lane.session), None)
    if before is None:
        raise NotFound("this chat had no other conversation before")
    return _switch(call, sessions.get(call.tx, before), why="undo-reset")


def _switch(call: CommandCall, session: Session, *, why: str) -> CommandResult:
    control.switch(call.tx, call.current_lane, session, why=why)
    return CommandResult(
        f"Back in {quote_title(session)}: {pluralize(session.messages, 'message')}.", session.id
    )


def list_recent(call: CommandCall) -> CommandResult:
    listed, more = sessions.list_page(call.tx, call.viewer, SessionFilter(limit=_MAX_LISTED))
    if not listed:
        return CommandResult("You have no conversations yet. Say something.")
    lines = [
        f"{n}. {quote_title(s)} · {pluralize(s.messages, 'message')} · {s.id}"
        for n, s in enumerate((entry.session for entry in listed), start=1)
    ]
    if more:
        lines.append("…")
    return CommandResult("\n".join([*lines, "", "/resume <title or id> goes on with one."]))


def set_title(call: CommandCall) -> CommandResult:
    if not call.text:
        return CommandResult(f"This is {quote_title(call.current_session)}.", call.current_session.id)
    if call.session is None:
        sessions.validate_title(call.tx, call.owner, call.text)
    session = call.ensure_session()
    title = sessions.rename(call.tx, session, call.text, by=TitleBy.PERSON)
    return CommandResult(f"Now called “{title}”.", session.id)


def fork(call: CommandCall) -> CommandResult:
    copy = revisions.fork(call.tx, call.current_session, surface=call.inbound.surface)
    if call.lane:
        control.switch(call.tx, call.lane, copy, why="fork")
    refusal = ""
    if call.text:
        try:
            sessions.rename(call.tx, copy, call.text, by=TitleBy.PERSON)
        except Invalid as exc:
            refusal = f" {format_sentence(str(exc))}"
    return CommandResult(
        f"You are in a copy now: {quote_title(sessions.get(call.tx, copy.id))}.{refusal}", copy.id
    )


def toggle_pin(call: CommandCall) -> CommandResult:
    sessions.set_pinned(call.tx, call.current_session, not call.current_session.pinned)
    return CommandResult("Unpinned." if call.current_session.pinned else "Pinned.", call.current_session.id)


def toggle_archive(call: CommandCall) -> CommandResult:
    sessions.set_archived(call.tx, call.current_session, not call.current_session.archived)
    return CommandResult(
        "Back from the archive." if call.current_session.archived else "Archived.", call.current_session.id
    )


def set_project(call: CommandCall) -> CommandResult:
    if not call.text:
        names = [p.name for p in projects.list_for_viewer(call.tx, call.owner)]
        return CommandResult(
            f"Projects: {', '.join(names)}."
            if names
            else "There are no projects yet: the page and `keryx projects` make them.",
            call.session_id,
        )
    project = None if call.text == "none" else projects.find(call.tx, call.owner, call.text)
    session = call.ensure_session()
    sessions.set_project(call.tx, session, project.id if project else None)
    return CommandResult(f"Now in {project.name}." if project else "In no project now.", session.id)


def delete(call: CommandCall) -> CommandResult:
    session = call.current_session
    control.delete(call.tx, session, grace=call.policy.keep.erase)
    return CommandResult(
        f"Deleted {quote_title(session)}. It is erased in {call.policy.keep.erase.days} days.", session.id
    )


def needs_search(command: ParsedCommand, inbound: InboundMessage) -> bool:
    """Whether the command is a /search, which runs before the transaction."""
    alone = inbound.source.chat_type is ChatType.DM
    return command.name == "search" and bool(command.text) and alone and inbound.edits is None


def render_hits(hits: Sequence[SearchHit]) -> str:
    """Return the reply to /search: the session and the day of each hit, and the passage of a message."""
    lines: list[str] = []
    for n, hit in enumerate(hits, start=1):
        day = hit.message.at if hit.message else hit.session.active_at
        passage = f"\n{hit.snippet.text}" if hit.message else ""
        lines.append(f"{n}. {quote_title(hit.session)} · {day:%Y-%m-%d}{passage}")
    return "\n".join(lines)


def search(call: CommandCall) -> CommandResult:
    if not call.text:
        raise NotFound("say what to look for: /search oslo hotel")
    return CommandResult(call.search_reply or "Nothing found.", call.session.id if call.session else None)
