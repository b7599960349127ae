"""Commands on sessions: new, resume, list, title, fork, pin, archive, project, delete and search."""

from collections.abc import Sequence

from keryx.core import durations
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import is_temporary
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import Session, SessionFilter, TitleBy
from keryx.core.source import ChatType
from keryx.core.text import to_sentence
from keryx.core.texts import Phrase, Texts
from keryx.engine import takeover
from keryx.engine.commands.call import (
    CommandCall,
    CommandResult,
    quote_title,
)
from keryx.engine.commands.command_table import ParsedCommand
from keryx.engine.units import control, revisions
from keryx.store import imports, projects, sessions
from keryx.store import lanes as lane_store
from keryx.store.search import SearchHit

_MAX_LISTED = 10
SEARCH_LIMIT = 5


def start_new(call: CommandCall) -> CommandResult:
    old = control.start_new_session(call.tx, call.current_lane)
    if old is None:
        return CommandResult(call.say("session.new_already"))
    if is_temporary(old.id):
        return CommandResult(call.say("temporary.ended"))
    return CommandResult(call.say("session.new", old=control.quote_name(old)))


def start_temporary(call: CommandCall) -> CommandResult:
    current = call.session is not None and is_temporary(call.session.id)
    if call.text == "end" and current:
        control.start_new_session(call.tx, call.current_lane)
        return CommandResult(call.say("temporary.ended"))
    if call.text == "end":
        raise NotFound(Phrase("temporary.none"))
    if call.text:
        raise Invalid(Phrase("temporary.usage"))
    if current:
        return CommandResult(call.say("temporary.already"), call.session_id)
    session = control.start_temporary(
        call.tx, call.current_lane, surface=call.inbound.surface, origin=call.inbound.source
    )
    span = durations.describe(call.policy.keep.temporary)
    return CommandResult(call.say("temporary.begun", span=span), session)


def resume(call: CommandCall) -> CommandResult:
    if not call.text:
        return list_recent(call)
    session = _find_by_number(call) or sessions.resolve(call.tx, call.viewer, call.text, by_part=True)
    return _switch(call, session, why=Phrase("move.resume"))


def _find_by_number(call: CommandCall) -> Session | None:
    """Return the session with this number in the list of /sessions, unless the number is a title."""
    if len(call.text) > 2 or not (call.text.isascii() and call.text.isdigit()):
        return None
    if sessions.find_by_title(call.tx, call.viewer, call.text):
        return None
    listed, _ = sessions.list_page(call.tx, call.viewer, SessionFilter(limit=_MAX_LISTED))
    number = int(call.text)
    return listed[number - 1].session if 1 <= number <= len(listed) else None


def undo_reset(call: CommandCall) -> CommandResult:
    lane = call.current_lane
    moves = lane_store.list_moves(call.tx, lane.key)
    before = next((m.session for m in moves if m.session and m.session != lane.session), None)
    if before is None:
        raise NotFound(Phrase("session.no_earlier"))
    return _switch(call, sessions.get(call.tx, before), why=Phrase("move.undo_reset"))


def _switch(call: CommandCall, session: Session, *, why: str) -> CommandResult:
    control.switch(call.tx, call.current_lane, session, why=why)
    reply = call.say("session.back", session=quote_title(session), count=session.messages)
    if watched := imports.find_watched(call.tx, session.id):
        about = takeover.find_refusal(call.tx, watched, call.policy.takeovers)
        about = to_sentence(call.texts.render(about or takeover.describe(call.tx, watched)))
        reply = f"{reply} {about}"
    return CommandResult(reply, session.id)


def take_over(call: CommandCall) -> CommandResult:
    taken = takeover.take_over(call.tx, call.current_session, call.policy.takeovers)
    return CommandResult(call.say("watch.taken", program=taken.title), call.current_session.id)


def list_recent(call: CommandCall) -> CommandResult:
    listed, more = sessions.list_page(call.tx, call.viewer, SessionFilter(limit=_MAX_LISTED))
    if not listed:
        return CommandResult(call.say("session.list_empty"))
    lines = [
        call.say("session.list_line", number=n, session=quote_title(s), count=s.messages, id=s.id)
        for n, s in enumerate((entry.session for entry in listed), start=1)
    ]
    if more:
        lines.append("…")
    return CommandResult("\n".join([*lines, "", call.say("session.list_hint")]))


def set_title(call: CommandCall) -> CommandResult:
    if not call.text:
        return CommandResult(
            call.say("session.shown", session=quote_title(call.current_session)), call.current_session.id
        )
    if call.text == "-":
        sessions.rename(call.tx, call.current_session, "", by=TitleBy.PERSON)
        return CommandResult(call.say("session.title_removed"), call.current_session.id)
    if call.session is None:
        sessions.validate_title(call.tx, call.owner, call.text)
    session = call.ensure_session()
    title = sessions.rename(call.tx, session, call.text, by=TitleBy.PERSON)
    return CommandResult(
        call.say("session.renamed", session=Phrase("session.titled", title=title)), session.id
    )


def fork(call: CommandCall) -> CommandResult:
    copy = revisions.fork(call.tx, call.current_session, surface=call.inbound.surface)
    if call.lane:
        control.switch(call.tx, call.lane, copy, why=Phrase("move.fork"))
    refusal = ""
    if call.text:
        try:
            sessions.rename(call.tx, copy, call.text, by=TitleBy.PERSON)
        except Invalid as exc:
            refusal = f" {to_sentence(call.texts.render(exc.text))}"
    key = "session.forked" if call.lane else "session.copied"
    reply = call.say(key, session=quote_title(sessions.get(call.tx, copy.id)))
    return CommandResult(f"{reply}{refusal}", copy.id)


def toggle_pin(call: CommandCall) -> CommandResult:
    sessions.set_pinned(call.tx, call.current_session, not call.current_session.pinned)
    reply = call.say("session.unpinned") if call.current_session.pinned else call.say("session.pinned")
    return CommandResult(reply, call.current_session.id)


def toggle_archive(call: CommandCall) -> CommandResult:
    sessions.set_archived(call.tx, call.current_session, not call.current_session.archived)
    reply = call.say("session.unarchived") if call.current_session.archived else call.say("session.archived")
    return CommandResult(reply, call.current_session.id)


def set_project(call: CommandCall) -> CommandResult:
    if not call.text:
        names = [p.name for p in projects.list_for_viewer(call.tx, call.owner)]
        listed = call.say("project.list", names=", ".join(names)) if names else call.say("project.none_yet")
        return CommandResult(listed, call.session_id)
    project = None if call.text == "none" else projects.find(call.tx, call.owner, call.text)
    session = call.ensure_session()
    sessions.set_project(call.tx, session, project.id if project else None)
    reply = call.say("project.joined", name=project.name) if project else call.say("project.left")
    return CommandResult(reply, session.id)


def delete(call: CommandCall) -> CommandResult:
    session = call.current_session
    control.delete(call.tx, session, grace=call.policy.keep.erase)
    days = call.policy.keep.erase.days
    return CommandResult(call.say("session.deleted", session=quote_title(session), days=days), session.id)


def needs_search(command: ParsedCommand, inbound: InboundMessage) -> bool:
    """Whether the command is a /search, which runs before the transaction."""
    alone = inbound.source.chat_type is ChatType.DM
    return command.name == "search" and bool(command.text) and alone and inbound.edits is None


def render_hits(hits: Sequence[SearchHit], texts: Texts) -> str:
    """Return the reply to /search: the session and the day of each hit, and the passage of a message."""
    lines: list[str] = []
    for n, hit in enumerate(hits, start=1):
        day = hit.message.at if hit.message else hit.session.active_at
        passage = f"\n{hit.snippet.text}" if hit.message else ""
        mark = f" ({texts.say(f'mark.{hit.message.mark}')})" if hit.message and hit.message.mark else ""
        lines.append(f"{n}. {texts.render(quote_title(hit.session))} · {day:%Y-%m-%d}{mark}{passage}")
    return "\n".join(lines)


def search(call: CommandCall) -> CommandResult:
    if not call.text:
        raise NotFound(Phrase("session.search_missing"))
    return CommandResult(call.search_reply or call.say("session.nothing_found"), call.session_id)
