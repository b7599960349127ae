"""Commands: defined once, as data, for every surface; run inside the transaction of the message that gave them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from keryx.core.errors import Conflict, Forbidden, Invalid, KeryxError, NotFound
from keryx.core.ids import OPERATOR, SessionId, TurnId
from keryx.core.messages import Parts, Text
from keryx.core.ports import Inbound
from keryx.core.sessions import Listing, Session, TitleBy, Viewer
from keryx.core.source import ChatType
from keryx.core.turns import BusyMode
from keryx.engine import control, revisions
from keryx.engine.asking import Question, ask
from keryx.engine.policy import Policy
from keryx.store import lanes as lane_store
from keryx.store import messages, principals, projects, sessions, turns
from keryx.store.database import Transaction
from keryx.store.lanes import Lane
from keryx.store.search import Hit

_COMMAND = re.compile(r"/([a-z][a-z-]{0,31})(?:@\S+)?(?:\s+(.*))?\Z", re.S | re.I)
_SHOWN = 10
FOUND = 5


class Who(StrEnum):
    EVERYONE = "everyone"
    OPERATOR = "operator"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """`busy`: may be given while a turn runs. `session`: has a meaning only within a conversation."""

    name: str
    help: str
    usage: str = ""
    aliases: tuple[str, ...] = ()
    busy: bool = True
    session: bool = True
    who: Who = Who.EVERYONE


class Asked(msgspec.Struct, frozen=True):
    """A command as it was written. `command` is `None` for one that does not exist."""

    name: str
    command: Command | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a command may know and touch."""

    tx: Transaction
    inbound: Inbound
    lane: Lane | None
    session: Session | None
    viewer: Viewer
    policy: Policy
    now: datetime
    text: str
    found: str | None = None

    @property
    def current(self) -> Session:
        if self.session is None:
            raise NotFound("there is no conversation here yet: say something first")
        return self.session

    @property
    def place(self) -> Lane:
        if self.lane is None:
            raise NotFound("this works in a chat only: here, open the session you want")
        return self.lane


class Done(msgspec.Struct, frozen=True):
    reply: str
    session: SessionId | None = None
    turn: TurnId | None = None
    seq: int | None = None


COMMANDS = (
    Command(name="new", aliases=("reset",), help="Start a new conversation here.", session=False),
    Command(name="resume", usage="[title or id]", help="Go on with an earlier conversation.", session=False),
    Command(name="undo-reset", help="Go back to the conversation before the last reset.", session=False),
    Command(name="sessions", help="List your last conversations.", session=False),
    Command(name="title", usage="[text]", help="Show or set the title."),
    Command(name="fork", usage="[title]", help="Go on in a copy of this conversation."),
    Command(name="undo", usage="[n]", help="Take back the last turns.", busy=False),
    Command(name="redo", help="Bring back what the last undo took.", busy=False),
    Command(name="retry", help="Ask the last question again.", busy=False),
    Command(name="stop", help="Stop the running answer; what was said so far stays."),
    Command(name="queue", usage="[clear | text]", help="Show what waits, clear it, or add to it."),
    Command(name="steer", usage="text", help="Give the running turn something to consider."),
    Command(
        name="busy",
        usage="[queue | steer | collect | interrupt]",
        help="What a message does while a turn runs.",
    ),
    Command(name="pin", help="Pin or unpin this conversation."),
    Command(name="archive", help="Archive or unarchive this conversation."),
    Command(name="project", usage="[name | none]", help="Put this conversation into a project."),
    Command(name="delete", help="Delete this conversation; it is erased after a grace period.", busy=False),
    Command(name="model", usage="[name | default]", help="Show or set the model of this conversation."),
    Command(name="status", help="What this conversation is and does.", session=False),
    Command(name="usage", help="Tokens and cost of this conversation."),
    Command(name="search", usage="words", help="Search your conversations.", session=False),
    Command(name="whoami", help="How Keryx knows you.", session=False),
    Command(name="help", help="List the commands.", session=False),
)
_BY_NAME = {name: c for c in COMMANDS for name in (c.name, *c.aliases)}


def parse(parts: Parts) -> Asked | None:
    """The command that a message gives, or `None` for ordinary speech. A path such as /etc/hosts is speech."""
    if len(parts) != 1 or not isinstance(parts[0], Text):
        return None
    match = _COMMAND.match(parts[0].text.strip())
    if match is None:
        return None
    name = match[1].lower()
    return Asked(name, _BY_NAME.get(name), (match[2] or "").strip())


def run(asked: Asked, call: Call) -> Done:
    """Run a command. What it refuses to do becomes its reply; the message counts as taken in."""
    try:
        command = asked.command
        if command is None:
            raise NotFound(f"There is no command /{asked.name}. /help lists them.")
        _check(command, call)
        return _RUN[command.name](call)
    except KeryxError as exc:
        return Done(_sentence(str(exc)), call.session.id if call.session else None)


def sought(inbound: Inbound) -> str | None:
    """What a /search asks for, so that it can be looked up before the transaction; `None` for anything else."""
    if not inbound.commands or inbound.observed or inbound.edits is not None:
        return None
    asked = parse(inbound.parts)
    alone = inbound.source.chat_type is ChatType.DM
    return asked.text or None if alone and asked and asked.name == "search" else None


def listed(hits: Sequence[Hit]) -> str:
    """What /search replies: each hit with its conversation, its day and, of a message, the passage."""
    return "\n".join(f"{n}. {_hit(hit)}" for n, hit in enumerate(hits, start=1))


def _check(command: Command, call: Call) -> None:
    if command.who is Who.OPERATOR and call.viewer.principal != OPERATOR:
        raise NotFound(f"/{command.name} is for the operator.")
    if command.session:
        _ = call.current
    if not command.busy and call.session and _at_work(call.tx, call.session.id):
        raise Conflict(
            f"cannot {command.name} while a turn runs or waits: /stop it first, or wait for the answer"
        )


def _at_work(tx: Transaction, session: SessionId) -> bool:
    return turns.running(tx, session) is not None or bool(turns.queued(tx, session))


def _new(call: Call) -> Done:
    old = control.begin(call.tx, call.place, now=call.now)
    if old is None:
        return Done("This is a new conversation already. Say something.")
    return Done(f"New conversation. /resume {old.title or old.id} brings the last one back.")


def _resume(call: Call) -> Done:
    if not call.text:
        return _sessions(call)
    wanted = sessions.resolve(call.tx, call.viewer, call.text)
    control.switch(call.tx, call.place, wanted, why="resume", now=call.now)
    return Done(f"Back in {_name(wanted)}: {wanted.messages} messages.", wanted.id)


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
    return Done(f"Back in {_name(wanted)}: {wanted.messages} messages.", wanted.id)


def _sessions(call: Call) -> Done:
    listed, more = sessions.page(call.tx, call.viewer, Listing(limit=_SHOWN))
    found = [entry.session for entry in listed]
    if not found:
        return Done("You have no conversations yet. Say something.")
    lines = [f"{n}. {_name(s)} · {s.messages} messages · {s.id}" for n, s in enumerate(found, start=1)]
    return Done(
        "\n".join([*lines, "…" if more else "", "/resume <title or id> goes on with one."]).replace(
            "\n\n", "\n"
        )
    )


def _title(call: Call) -> Done:
    if not call.text:
        return Done(f"This is {_name(call.current)}.", call.current.id)
    title = sessions.rename(call.tx, call.current, call.text, by=TitleBy.PERSON, now=call.now)
    return Done(f"Now called “{title}”.", call.current.id)


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
    return Done(f"You are in a copy now: {_name(sessions.get(call.tx, child.id))}.{refusal}", child.id)


def _try_title(call: Call, child: Session) -> str:
    """The copy is made whatever becomes of its title; gives why the title was refused."""
    try:
        sessions.rename(call.tx, child, call.text, by=TitleBy.PERSON, now=call.now)
    except Invalid as exc:
        return f" {_sentence(str(exc))}"
    return ""


def _undo(call: Call) -> Done:
    text = revisions.undo(call.tx, call.current, _number(call.text, 1), now=call.now)
    return Done(f"Undone. It began with: {text[:300]}", call.current.id)


def _redo(call: Call) -> Done:
    count = revisions.redo(call.tx, call.current, now=call.now)
    return Done(f"{count} messages are back.", call.current.id)


def _retry(call: Call) -> Done:
    receipt = revisions.retry(
        call.tx, call.current, asker=call.viewer.principal, surface=call.inbound.surface, now=call.now
    )
    return Done("", call.current.id, receipt.turn, receipt.seq)


def _stop(call: Call) -> Done:
    stopped = control.stop(call.tx, call.current.id, now=call.now)
    waiting = len(turns.queued(call.tx, call.current.id))
    left = f" {waiting} more wait: /queue clear drops them." if waiting else ""
    return Done(("Stopping." if stopped else "Nothing is running.") + left, call.current.id)


def _queue(call: Call) -> Done:
    if call.text == "clear":
        return Done(
            f"Dropped {control.clear(call.tx, call.current.id, now=call.now)} waiting.", call.current.id
        )
    if call.text:
        return _say(call, BusyMode.QUEUE)
    waiting = turns.queued(call.tx, call.current.id)
    if not waiting:
        return Done("Nothing waits.", call.current.id)
    texts = [messages.get(call.tx, t.session, t.input_seq).text for t in waiting]
    return Done("\n".join(f"{n}. {t[:120]}" for n, t in enumerate(texts, start=1)), call.current.id)


def _steer(call: Call) -> Done:
    if not call.text:
        raise NotFound("say what to consider: /steer use the metric system")
    return _say(call, BusyMode.STEER)


def _say(call: Call, mode: BusyMode) -> Done:
    asked = Question(
        parts=(Text(call.text),),
        asker=call.viewer.principal,
        surface=call.inbound.surface,
        mode=mode,
        author=call.inbound.source.user_name or "",
        reply=call.inbound.reply,
        pin=call.inbound.pin,
    )
    receipt = ask(call.tx, call.current, asked, now=call.now)
    return Done("", call.current.id, receipt.turn, receipt.seq)


def _busy(call: Call) -> Done:
    session = call.current
    if not call.text:
        return Done(
            f"While a turn runs, messages: {session.settings.busy or call.policy.busy.value}.", session.id
        )
    if call.text not in {m.value for m in BusyMode}:
        raise NotFound(f"choose one of {', '.join(m.value for m in BusyMode)}")
    settings = msgspec.structs.replace(session.settings, busy=call.text)
    sessions.set_settings(call.tx, session, settings, now=call.now)
    return Done(f"While a turn runs, messages: {call.text}.", session.id)


def _pin(call: Call) -> Done:
    sessions.set_pinned(call.tx, call.current, not call.current.pinned, now=call.now)
    return Done("Unpinned." if call.current.pinned else "Pinned.", call.current.id)


def _archive(call: Call) -> Done:
    sessions.set_archived(call.tx, call.current, not call.current.archived, now=call.now)
    return Done("Back from the archive." if call.current.archived else "Archived.", call.current.id)


def _project(call: Call) -> Done:
    viewer = Viewer(call.current.profile, call.current.owner)
    if not call.text:
        names = [p.name for p in projects.every(call.tx, viewer)]
        return Done(
            f"Projects: {', '.join(names)}." if names else "There are no projects yet.", call.current.id
        )
    chosen = None if call.text == "none" else projects.find(call.tx, viewer, call.text)
    sessions.set_project(call.tx, call.current, chosen.id if chosen else None, now=call.now)
    return Done(f"Now in {chosen.name}." if chosen else "In no project now.", call.current.id)


def _delete(call: Call) -> Done:
    session = call.current
    control.delete(call.tx, session, grace=call.policy.keep.erase, now=call.now)
    return Done(f"Deleted {_name(session)}. It is erased in {call.policy.keep.erase.days} days.", session.id)


def _model(call: Call) -> Done:
    session = call.current
    if not call.text:
        return Done(f"Model: {session.settings.model or 'default'}.", session.id)
    model = None if call.text == "default" else call.text[:200]
    settings = msgspec.structs.replace(session.settings, model=model)
    sessions.set_settings(call.tx, session, settings, now=call.now)
    return Done(f"Model: {model or 'default'}.", session.id)


def _status(call: Call) -> Done:
    session = call.session
    if session is None:
        return Done("No conversation here yet. Say something.")
    activity = sessions.activity(call.tx, session.id)
    waiting = len(turns.queued(call.tx, session.id))
    lines = [
        f"{_name(session)} · {session.id}",
        f"{activity.value}, {waiting} waiting · {session.messages} messages, {session.turns} turns",
        f"model {session.settings.model or 'default'} · since {session.created_at:%Y-%m-%d %H:%M} UTC",
    ]
    return Done("\n".join(lines), session.id)


def _usage(call: Call) -> Done:
    s = call.current
    cost = "unknown" if s.cost is None else f"{s.cost / 1_000_000:.4f} ({s.cost_status})"
    t = s.tokens
    return Done(
        f"in {t.input}, out {t.output}, reasoning {t.reasoning}, cache read {t.cache_read}, write {t.cache_write} · cost {cost}",
        s.id,
    )


def _search(call: Call) -> Done:
    if call.inbound.source.chat_type is not ChatType.DM:
        raise Forbidden("search in a direct chat: here others would read what is found")
    if not call.text:
        raise NotFound("say what to look for: /search oslo hotel")
    return Done(call.found or "Nothing found.", call.session.id if call.session else None)


def _whoami(call: Call) -> Done:
    name = principals.name(call.tx, call.viewer.principal)
    return Done(f"{name or 'unnamed'} · {call.viewer.principal} · profile {call.viewer.profile}")


def _help(call: Call) -> Done:
    return Done("\n".join(f"/{c.name} {c.usage}".rstrip() + f" – {c.help}" for c in COMMANDS))


def _name(session: Session) -> str:
    return f"“{session.title}”" if session.title else f"untitled {session.id}"


def _hit(hit: Hit) -> str:
    if hit.message is None:
        return f"{_name(hit.session)} · {hit.session.active_at:%Y-%m-%d}"
    return f"{_name(hit.session)} · {hit.message.at:%Y-%m-%d}\n{hit.snippet.text}"


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else default


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


_RUN: dict[str, Callable[[Call], Done]] = {
    "new": _new,
    "resume": _resume,
    "undo-reset": _undo_reset,
    "sessions": _sessions,
    "title": _title,
    "fork": _fork,
    "undo": _undo,
    "redo": _redo,
    "retry": _retry,
    "stop": _stop,
    "queue": _queue,
    "steer": _steer,
    "busy": _busy,
    "pin": _pin,
    "archive": _archive,
    "project": _project,
    "delete": _delete,
    "model": _model,
    "status": _status,
    "usage": _usage,
    "search": _search,
    "whoami": _whoami,
    "help": _help,
}
