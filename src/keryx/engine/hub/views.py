"""What the web page shows, each from one read: the home view, a session with a range of its messages, the board of active turns, and the rows that changes name; and what a viewer changes there: read marks, unsent text and preferences."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

import msgspec

from keryx.core.changes import Change, ChangeKind, DraftChunk
from keryx.core.compaction import Epoch
from keryx.core.deliveries import Delivery, DeliveryState
from keryx.core.errors import CursorExpired
from keryx.core.ids import Cursor, PrincipalId, ProjectId, SessionId, TagId, TurnId
from keryx.core.lanes import Lane, LaneSharing
from keryx.core.media import filter_media
from keryx.core.messages import Message, Role, ToolCall, TurnVersion, read_text
from keryx.core.questions import AskedQuestion
from keryx.core.sessions import (
    UNTITLED,
    Activity,
    Binding,
    Project,
    Session,
    SessionFilter,
    SessionListItem,
    Tag,
    Viewer,
    derive_title,
)
from keryx.core.turns import Turn, TurnState
from keryx.core.usage import AnswerUsage
from keryx.engine.hub import lineage
from keryx.engine.hub.lineage import LineageEntry
from keryx.engine.hub.verbs import HubPart, bind_read, read_unit, write_unit
from keryx.store import (
    change_feed,
    changes,
    deliveries,
    epochs,
    lanes,
    media,
    messages,
    projects,
    questions,
    sessions,
    usage,
    viewer_state,
)
from keryx.store import turns as turns_store
from keryx.store.db import Database, Transaction
from keryx.store.viewer_state import UnsentMessage

NEW_SESSION = "new"
T = TypeVar("T")
_SESSION_KINDS = frozenset({ChangeKind.SESSION, ChangeKind.MESSAGE, ChangeKind.TURN, ChangeKind.LANE})
_TURN_KINDS = frozenset({ChangeKind.TURN, ChangeKind.CANCEL})
_MAX_CHANGES = 500
_UNSENT_STATES = (DeliveryState.UNKNOWN, DeliveryState.HELD, DeliveryState.FAILED, DeliveryState.DEAD)
_MAX_UNSENT = 1000
_MAX_UNREAD = 100
# How much of a project the list shows at first, and of how many that is looked up.
_SECTION = 5
_MAX_SECTIONS = 50
# Among so many a session has its first question.
_FIRST_MESSAGES = 5


class MessageRange(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to show: below `before`, above `after`, or `around` one; the last ones without any of these."""

    before: int | None = None
    after: int | None = None
    around: int | None = None
    # Around the first one that is not older.
    at: datetime | None = None
    limit: int = 50


class AnswerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How the answer of a turn came about."""

    turn: TurnId
    usage: AnswerUsage | None
    started_at: datetime | None
    finished_at: datetime | None


class MessageSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, oldest first, and whether there are more on either side."""

    messages: list[Message]
    earlier: bool
    later: bool
    # Of the finished turns of these messages.
    answers: list[AnswerFacts]
    # Of the whole session.
    versions: list[TurnVersion]
    # Of the files of these messages, in bytes.
    sizes: dict[str, int]


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session with a range of its messages, all from one read. Following from `cursor` misses nothing and repeats
    nothing."""

    session: Session
    activity: Activity
    tags: tuple[TagId, ...]
    # The beginning of the first question, for a session without a title.
    opening: str
    messages: list[Message]
    # Whether there are more messages before and after these.
    earlier: bool
    later: bool
    running: Turn | None
    # The draft of the running turn.
    draft: list[DraftChunk]
    queue: list[Turn]
    # The message of each turn in `queue`.
    inputs: list[Message]
    # Open questions.
    questions: list[AskedQuestion]
    # Unfinished deliveries.
    deliveries: list[Delivery]
    epochs: list[Epoch]
    # The last message that the viewer has read, and what the viewer typed and did not send.
    read: int
    unsent: UnsentMessage
    lanes: list[Lane]
    cursor: Cursor
    answers: list[AnswerFacts]
    versions: list[TurnVersion]
    # Of the files of these messages, in bytes.
    sizes: dict[str, int]
    # The sessions that agents have for it.
    bindings: list[Binding]


class Answering(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers in a session: `agent`, unless its settings name another one, and the models of each agent, the default
    first. An agent whose models are not known is left out."""

    agent: str
    models: dict[str, tuple[str, ...]]


_LAST_MESSAGES = MessageRange()


def load_snapshot(
    tx: Transaction, viewer: Viewer, session: SessionId, window: MessageRange = _LAST_MESSAGES
) -> SessionSnapshot:
    """Load a session with a range of its messages."""
    row = sessions.get(tx, session, viewer=viewer)
    part = _slice_messages(tx, row, window)
    listed = _get_listed(tx, row)
    running = turns_store.find_running(tx, session)
    queue = turns_store.list_queued(tx, session)
    return SessionSnapshot(
        session=row,
        activity=listed.activity,
        tags=listed.tags,
        opening=listed.opening,
        messages=part.messages,
        earlier=part.earlier,
        later=part.later,
        running=running,
        draft=turns_store.list_draft_pieces(tx, running.id) if running else [],
        queue=queue,
        inputs=_load_inputs(tx, queue),
        questions=questions.list_open(tx, session),
        deliveries=deliveries.list_for_session(tx, session, unfinished=True),
        epochs=epochs.list_all(tx, session),
        read=viewer_state.get_read_marks(tx, viewer, [row])[session],
        unsent=viewer_state.get_unsent(tx, viewer, session),
        lanes=lanes.list_for_session(tx, session),
        cursor=changes.get_head(tx),
        answers=part.answers,
        versions=part.versions,
        sizes=part.sizes,
        bindings=list(sessions.list_bindings(tx, session).values()),
    )


def load_messages(
    tx: Transaction, viewer: Viewer, session: SessionId, window: MessageRange = _LAST_MESSAGES
) -> MessageSlice:
    """Load a range of the messages of a session."""
    return _slice_messages(tx, sessions.get(tx, session, viewer=viewer), window)


def _slice_messages(tx: Transaction, session: Session, window: MessageRange) -> MessageSlice:
    id_, limit, around = session.id, window.limit, window.around
    if window.at is not None:
        around = messages.find_first_since(tx, id_, window.at) or session.last_seq
    if around is not None:
        older = messages.list_latest(tx, id_, before=around, limit=limit // 2)
        newer = messages.list_after(tx, id_, after=around - 1, limit=limit - len(older))
        if len(older) + len(newer) < limit:
            older = messages.list_latest(tx, id_, before=around, limit=limit - len(newer))
        entries = [*older, *newer]
    elif window.after is not None:
        entries = messages.list_after(tx, id_, after=window.after, limit=limit)
    else:
        entries = messages.list_latest(tx, id_, before=window.before, limit=limit)
    first = entries[0].seq if entries else 1
    end = entries[-1].seq if entries else session.last_seq
    files = [part.media for message in entries for part in filter_media(message.parts)]
    return MessageSlice(
        messages=entries,
        earlier=first > 1,
        later=end < session.last_seq,
        answers=_load_answers(tx, session, {m.turn for m in entries if m.turn and m.role is Role.ASSISTANT}),
        versions=messages.list_versions(tx, id_),
        sizes=media.get_sizes(tx, files) if files else {},
    )


def _load_answers(tx: Transaction, session: Session, turns: set[TurnId]) -> list[AnswerFacts]:
    """Load how the answers of turns came about, in the order of their questions, without those that are not finished."""
    if not turns:
        return []
    used = usage.list_answers(tx, session, turns)
    return [
        AnswerFacts(
            turn=turn.id, usage=used.get(turn.id), started_at=turn.started_at, finished_at=turn.finished_at
        )
        for turn in sorted(turns_store.get_many(tx, turns), key=lambda turn: turn.input_seq)
        if turn.state.finished
    ]


class ChangeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Rows by id; removed ones are left out."""

    sessions: dict[SessionId, SessionListItem]
    turns: dict[TurnId, Turn]
    deliveries: dict[str, Delivery]
    lanes: dict[str, Lane]
    projects: dict[str, Project]
    tags: dict[str, Tag]
    questions: dict[str, AskedQuestion]
    # Of the finished turns.
    answers: dict[TurnId, AnswerFacts]


def load_details(tx: Transaction, batch: Sequence[Change]) -> ChangeDetails:
    session_ids = {c.session for c in batch if c.session and c.kind in _SESSION_KINDS}
    turn_ids = {c.turn for c in batch if c.turn and c.kind in _TURN_KINDS}

    def load(read: Callable[[Transaction, set[str]], list[T]], kind: ChangeKind) -> list[T]:
        names = {c.subject for c in batch if c.kind is kind}
        return read(tx, names) if names else []

    listed = _list_named(tx, session_ids) if session_ids else []
    items = {item.session.id: item for item in listed}
    turns = {t.id: t for t in turns_store.get_many(tx, turn_ids)} if turn_ids else {}
    answers = [
        facts
        for item in listed
        for facts in _load_answers(
            tx,
            item.session,
            {t.id for t in turns.values() if t.state.finished and t.session == item.session.id},
        )
    ]
    return ChangeDetails(
        sessions=items,
        turns=turns,
        answers={facts.turn: facts for facts in answers},
        deliveries={d.id: d for d in load(deliveries.get_many, ChangeKind.DELIVERY)},
        lanes={lane.key: lane for lane in load(lanes.get_many, ChangeKind.LANE)},
        projects={p.id: p for p in load(projects.get_many, ChangeKind.PROJECT)},
        tags={t.id: t for t in load(projects.get_tags, ChangeKind.TAG)},
        questions={q.id: q for q in load(questions.get_many, ChangeKind.QUESTION)},
    )


def _load_drafts(tx: Transaction, turns: Iterable[str]) -> dict[str, list[DraftChunk]]:
    """Load the whole drafts of some turns."""
    return {turn: turns_store.list_draft_pieces(tx, TurnId(turn)) for turn in turns}


class SessionListPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions with the viewer's read marks, and the cursor of the next page."""

    listed: list[SessionListItem]
    read: dict[SessionId, int]
    next: str | None


class HomeView(msgspec.Struct, frozen=True, kw_only=True):
    """The first load of a page. Following from `cursor` misses nothing."""

    page: SessionListPage
    projects: list[Project]
    # The first sessions of projects that have more than are on the page.
    sections: dict[ProjectId, SessionListPage]
    # Sessions with something unread, on the page or not.
    unread: list[SessionId]
    tags: list[Tag]
    turns: list[Turn]
    questions: list[AskedQuestion]
    # The number of deliveries that need a decision.
    unsent: int
    # What the viewer typed for a new session and did not send.
    composed: UnsentMessage
    preferences: dict[str, str]
    # Whether the viewer has been here before.
    visited: bool
    cursor: Cursor


class ActiveTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A running or queued turn."""

    turn: Turn
    listed: SessionListItem
    # What the user has asked.
    message: Message
    # The last tool call of a running turn.
    step: ToolCall | None
    question: AskedQuestion | None


class HubViews(HubPart):
    def __init__(self, database: Database, *, sharing: LaneSharing) -> None:
        super().__init__(database)
        self._sharing = sharing

    @read_unit("view.begin")
    def load_home(self, tx: Transaction, viewer: Viewer, *, limit: int = 50) -> HomeView:
        page = _load_page(tx, viewer, SessionFilter(limit=limit))
        known = projects.list_for_viewer(tx, viewer)
        shown = Counter(item.session.project for item in page.listed)
        short = [p for p in known if shown[p.id] < min(p.sessions, _SECTION)]
        return HomeView(
            page=page,
            projects=known,
            sections={
                p.id: _load_page(tx, viewer, SessionFilter(project=p.id, archived=False, limit=_SECTION))
                for p in short[:_MAX_SECTIONS]
            },
            unread=viewer_state.list_unread(tx, viewer, limit=_MAX_UNREAD),
            tags=projects.list_tags(tx, viewer),
            turns=turns_store.list_active(tx, profile=viewer.profile, owner=viewer.owner),
            questions=questions.list_open_for_viewer(tx, viewer),
            unsent=len(deliveries.list_recent(tx, viewer, states=_UNSENT_STATES, limit=_MAX_UNSENT)),
            composed=viewer_state.get_unsent(tx, viewer, NEW_SESSION),
            preferences=viewer_state.get_preferences(tx, viewer),
            visited=viewer_state.has_visited(tx, viewer),
            cursor=changes.get_head(tx),
        )

    @read_unit("view.page")
    def load_page(self, tx: Transaction, viewer: Viewer, listing: SessionFilter) -> SessionListPage:
        return _load_page(tx, viewer, listing)

    @read_unit("view.listed")
    def get_listed(self, tx: Transaction, viewer: Viewer, session: SessionId) -> tuple[SessionListItem, int]:
        """Return one session as a list shows it, and the last message that the viewer has read."""
        row = sessions.get(tx, session, viewer=viewer, deleted=True)
        listed = _get_listed(tx, row)
        return listed, viewer_state.get_read_marks(tx, viewer, [row])[session]

    @read_unit("view.listed_many")
    def get_many_listed(
        self, tx: Transaction, viewer: Viewer, chosen: Sequence[SessionId]
    ) -> list[tuple[SessionListItem, int]]:
        """Return those of some sessions that the viewer may see, deleted ones too, each with the viewer's read mark."""
        found = _list_named(tx, chosen)
        own = [item for item in found if viewer.sees(item.session.profile, item.session.owner)]
        read = viewer_state.get_read_marks(tx, viewer, [item.session for item in own])
        return [(item, read[item.session.id]) for item in own]

    @read_unit("view.people")
    def find_people(
        self, tx: Transaction, viewer: Viewer, prefix: str, *, limit: int = 20
    ) -> list[tuple[PrincipalId, str]]:
        """Return the ids and names of people to filter a list by; only the operator sees sessions of others."""
        return [] if viewer.owner else sessions.find_people(tx, viewer, prefix, limit=limit)

    @read_unit("view.message")
    def message(self, tx: Transaction, viewer: Viewer, session: SessionId, seq: int) -> Message:
        return messages.get(tx, sessions.get(tx, session, viewer=viewer).id, seq)

    @read_unit("view.outline")
    def list_questions(
        self, tx: Transaction, viewer: Viewer, session: SessionId, *, limit: int, before: int | None = None
    ) -> list[Message]:
        """Return the last questions below a message, oldest first."""
        row = sessions.get(tx, session, viewer=viewer)
        return messages.list_questions(tx, row.id, limit=limit, before=before)

    @read_unit("view.words")
    def list_range(
        self, tx: Transaction, viewer: Viewer, session: SessionId, *, first: int, last: int
    ) -> list[Message]:
        """Return what people and the agent said from one message to another, as the conversation stands now."""
        row = sessions.get(tx, session, viewer=viewer)
        found = messages.list_after(tx, row.id, after=first - 1, limit=max(0, last - first + 1))
        return [m for m in found if m.seq <= last and m.role in (Role.USER, Role.ASSISTANT) and not m.undone]

    @read_unit("view.queue")
    def queue(self, tx: Transaction, viewer: Viewer, session: SessionId) -> list[tuple[Turn, Message]]:
        """Return the queued turns in order, each with its message."""
        queued = turns_store.list_queued(tx, sessions.get(tx, session, viewer=viewer).id)
        return list(zip(queued, _load_inputs(tx, queued), strict=True))

    @read_unit("view.board")
    def load_board(self, tx: Transaction, viewer: Viewer) -> list[ActiveTurn]:
        """Return every running or queued turn, running ones first."""
        active = turns_store.list_active(tx, profile=viewer.profile, owner=viewer.owner)
        by_turn = {question.turn: question for question in questions.list_open_for_viewer(tx, viewer)}
        items = _list_named(tx, {turn.session for turn in active})
        listed = {item.session.id: item for item in items}
        board = [_load_active_turn(tx, turn, listed[turn.session], by_turn.get(turn.id)) for turn in active]
        return sorted(board, key=lambda entry: entry.turn.state is not TurnState.RUNNING)

    @read_unit("view.lineage")
    def lineage(self, tx: Transaction, viewer: Viewer, session: SessionId) -> list[LineageEntry]:
        """Return the forks of a session and its neighbours in its lanes, parents before their children."""
        return lineage.load(tx, session, viewer=viewer, sharing=self._sharing)

    @read_unit("view.titles")
    def titles(self, tx: Transaction, viewer: Viewer, ids: Iterable[SessionId]) -> dict[str, str]:
        """Return the titles of those sessions that the viewer may see."""
        rows = [item.session for item in sessions.get_many_with_activity(tx, ids)]
        return {s.id: s.title for s in rows if viewer.sees(s.profile, s.owner)}

    @read_unit("view.check")
    def check_cursor(self, tx: Transaction, cursor: Cursor) -> None:
        """Raise `Invalid` for a text that is not a cursor. An expired cursor passes: following it raises."""
        with suppress(CursorExpired):
            change_feed.list_after(tx, cursor, limit=1)

    @read_unit("view.details")
    def load_details(
        self, tx: Transaction, batch: Sequence[Change], *, drafts: Iterable[str] = ()
    ) -> tuple[ChangeDetails, dict[str, list[DraftChunk]]]:
        """Return the rows that changes name, and the whole drafts of some turns."""
        return load_details(tx, batch), _load_drafts(tx, drafts)

    @read_unit("view.missed")
    def read_changes(
        self, tx: Transaction, cursor: Cursor
    ) -> tuple[list[Change], ChangeDetails, dict[str, list[DraftChunk]]]:
        """Return the next changes after a cursor, the rows that they name, and the whole drafts that they add to.
        Raise `CursorExpired` for a cursor that is too old or of another store."""
        change_feed.check_cursor(tx, cursor)
        batch = change_feed.list_after(tx, cursor, limit=_MAX_CHANGES)
        drafts = {c.turn for c in batch if c.kind is ChangeKind.DRAFT and c.turn}
        return batch, load_details(tx, batch), _load_drafts(tx, drafts)


def _name(tx: Transaction, listed: SessionListItem) -> SessionListItem:
    """Return an entry of a list with the beginning of its first question, if it has no title."""
    if listed.session.title:
        return listed
    first = messages.list_after(tx, listed.session.id, after=0, limit=_FIRST_MESSAGES)
    said = next((read_text(m, tx.texts.speak()) for m in first if m.role is Role.USER and not m.observed), "")
    words = derive_title(said)
    return listed if words == UNTITLED else msgspec.structs.replace(listed, opening=words)


def _get_listed(tx: Transaction, session: Session) -> SessionListItem:
    return _name(tx, sessions.get_listed(tx, session))


def _list_named(tx: Transaction, chosen: Iterable[SessionId]) -> list[SessionListItem]:
    return [_name(tx, listed) for listed in sessions.get_many_with_activity(tx, chosen)]


def _load_page(tx: Transaction, viewer: Viewer, listing: SessionFilter) -> SessionListPage:
    found, after = sessions.list_page(tx, viewer, listing)
    listed = [_name(tx, item) for item in found]
    read_marks = viewer_state.get_read_marks(tx, viewer, [item.session for item in listed])
    return SessionListPage(listed=listed, read=read_marks, next=after)


def _load_inputs(tx: Transaction, queued: Sequence[Turn]) -> list[Message]:
    return [messages.get(tx, turn.session, turn.input_seq) for turn in queued]


def _load_active_turn(
    tx: Transaction, turn: Turn, listed: SessionListItem, question: AskedQuestion | None
) -> ActiveTurn:
    running = turn.state is TurnState.RUNNING
    recent = messages.list_latest(tx, turn.session, limit=8) if running else []
    steps = [call for m in recent if m.turn == turn.id for call in m.calls]
    message = messages.get(tx, turn.session, turn.input_seq)
    step = steps[-1] if steps else None
    return ActiveTurn(turn=turn, listed=listed, message=message, step=step, question=question)


class HubViewerState(HubPart):
    preferences = bind_read("desk.preferences", viewer_state.get_preferences)

    @write_unit("desk.read")
    def mark_read(self, tx: Transaction, viewer: Viewer, session: SessionId, seq: int) -> None:
        """Record that the viewer has read a session up to a message. A mark never goes back."""
        viewer_state.mark_read(tx, viewer, sessions.get(tx, session, viewer=viewer), seq)

    @read_unit("desk.composed")
    def get_unsent_text(self, tx: Transaction, viewer: Viewer, composer: str) -> UnsentMessage:
        """Return what was typed and not sent. A composer is a session's id, or `NEW_SESSION`."""
        _find_session(tx, viewer, composer)
        return viewer_state.get_unsent(tx, viewer, composer)

    @write_unit("desk.compose")
    def save_unsent_text(self, tx: Transaction, viewer: Viewer, composer: str, unsent: UnsentMessage) -> None:
        session = _find_session(tx, viewer, composer)
        viewer_state.save_unsent(tx, viewer, composer, unsent, session=session)

    @write_unit("desk.sent")
    def forget_sent_text(self, tx: Transaction, viewer: Viewer, composer: str, sent: UnsentMessage) -> None:
        """Forget what was typed if it became this message. It may have been saved before its last words were typed; other
        text is a message that somebody is writing already."""
        typed = viewer_state.get_unsent(tx, viewer, composer)
        if sent.text.startswith(typed.text) and set(typed.media) <= set(sent.media):
            session = _find_session(tx, viewer, composer)
            viewer_state.save_unsent(tx, viewer, composer, UnsentMessage(), session=session)

    @write_unit("desk.prefer")
    def change_preferences(self, tx: Transaction, viewer: Viewer, changes: dict[str, str]) -> dict[str, str]:
        """Change some preferences, and return all of them. An empty value removes one."""
        merged = {**viewer_state.get_preferences(tx, viewer), **changes}
        values = {name: value for name, value in merged.items() if value}
        viewer_state.save_preferences(tx, viewer, values)
        return values


def _find_session(tx: Transaction, viewer: Viewer, composer: str) -> SessionId | None:
    return None if composer == NEW_SESSION else sessions.get(tx, SessionId(composer), viewer=viewer).id
