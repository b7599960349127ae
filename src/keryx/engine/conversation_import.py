"""Import of conversations of other programs: batch by batch, each in one transaction together with the position that it ends
at, so that an import goes on after a crash, and importing again adds only what is new."""

import asyncio
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

import msgspec

from keryx.core import ids, records
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.errors import Conflict, Invalid
from keryx.core.ids import OPERATOR, SessionId, TurnId
from keryx.core.media import Attachment, filter_media
from keryx.core.messages import Message, Notice, Role, ToolCall, join_text
from keryx.core.records import Progress, TurnRecord, ignore_progress
from keryx.core.sessions import LONGEST_TITLE, TitleBy, Viewer, clean_title, derive_title
from keryx.core.text import replace_unwritable, truncate
from keryx.core.turns import BusyMode, TurnState
from keryx.engine.importer import MAX_FILE_BYTES
from keryx.engine.media import MediaStorage
from keryx.importers.conversation import (
    ForeignCall,
    ForeignCompaction,
    ForeignEntry,
    ForeignMessage,
    ForeignSession,
    ForeignUsage,
    ImportLog,
)
from keryx.store import changes, imports, media, messages, projects, sessions, viewer_state
from keryx.store.admin import session_import
from keryx.store.admin.session_import import ImportTarget
from keryx.store.db import Database, Transaction
from keryx.store.imports import CallUsage, Import, ImportKey, ImportTotal

BATCH_SIZE = 500
# Characters of a batch, so that long messages do not fill the memory.
BATCH_CHARS = 4_000_000
# With more new messages, followers are told to load the session again.
MAX_LIVE_MESSAGES = 50
# How much the times of a program may differ from ours: some have whole seconds only.
_TIME_SLACK = timedelta(seconds=5)
# How long after the end of a turn its program may write its question.
_WRITE_DELAY = timedelta(minutes=1)
_IMPORTED_TWICE = "this conversation is being imported by another process as well: try again"
_DELETED = "conversations that were deleted here: bring them back first, or erase them"


class ConversationReport(msgspec.Struct, kw_only=True):
    """What an import added, or would add."""

    program: str
    dry_run: bool = False
    # Sessions.
    created: int = 0
    extended: int = 0
    unchanged: int = 0
    forks: int = 0
    subagents: int = 0
    # What was added to them.
    messages: int = 0
    tool_calls: int = 0
    files: int = 0
    compactions: int = 0
    usage: int = 0
    # Messages of other branches and messages that were taken back, among those added.
    undone: int = 0


class WatchMark(msgspec.Struct, frozen=True, kw_only=True):
    """Says that the conversations are watched in their program."""

    machine: str
    # Another machine has sent them.
    pushed: bool = False
    # What each file looked like before it was read, by place.
    stamps: Mapping[str, str]


class _WrittenMessages(msgspec.Struct, frozen=True):
    """The imported messages of a session whose program may write them anew under other ids."""

    by_time: Mapping[tuple[Role, int], Sequence[int]] = {}
    turns: Mapping[int, TurnId] = {}

    def find(self, entry: ForeignMessage, matched: Collection[int]) -> int | None:
        """Return the first message with the role and time of a record that no other record is."""
        found = self.by_time.get((entry.role, to_micros(entry.at)), ())
        return next((seq for seq in found if seq not in matched), None)


class _Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the import of a session is. A transaction returns a new one, which holds after its commit."""

    session: SessionId | None = None
    created: bool = False
    # The records of the session that it was forked from: their usage is counted there.
    inherited: Collection[int] = ()
    # The number of the message by the hash of its record; `noted` has those of the last batch.
    known: dict[int, int]
    noted: dict[int, int] = {}
    written: _WrittenMessages = _WrittenMessages()
    # The messages that are in the source, as far as it was read.
    matched: frozenset[int] = frozenset()
    # The number of batches that the store has: another import would change it.
    batches: int = 0
    totals: dict[str, ImportTotal]
    turn: TurnId | None = None
    # The last message was on another branch.
    in_branch: bool = False
    # The last question was asked here, by a turn that the program ran: what follows is there already.
    own_turn: bool = False
    # Known messages that are on another branch by now.
    left: tuple[int, ...] = ()
    grown: bool = False
    counts: ConversationReport


class _SessionBatch(msgspec.Struct, frozen=True, kw_only=True):
    source: ForeignSession
    key: ImportKey
    entries: list[ForeignEntry]
    last: bool
    watched: WatchMark | None = None


class _KnownImport(msgspec.Struct, frozen=True):
    """What is here of a conversation."""

    found: Import | None
    records: dict[int, int] = {}
    # Of the conversation that it was forked from.
    inherited: Collection[int] = ()
    written: _WrittenMessages = _WrittenMessages()
    # In how many batches its records were stored.
    batches: int = 0
    # Nothing about its file has changed.
    watched: bool = True


async def import_conversations(
    database: Database,
    viewer: Viewer,
    program: str,
    conversations: Iterator[ForeignSession],
    log: ImportLog,
    *,
    dry_run: bool = False,
    watched: WatchMark | None = None,
    progress: Progress = ignore_progress,
) -> ConversationReport:
    """Import the conversations that a reader returns. What is here is never changed, except that messages of a branch that
    was left are marked as undone when the new branch is added. With `dry_run`, nothing is written. What a program wrote in a
    turn that was asked for here is not added again."""
    report = ConversationReport(program=program, dry_run=dry_run)
    owner = viewer.owner or OPERATOR
    files = MediaStorage(database, limit=MAX_FILE_BYTES)
    # With `dry_run`, the records of the sessions so far.
    planned: dict[str, array[int]] = {}
    done = 0
    while (source := await asyncio.to_thread(next, conversations, None)) is not None:
        done += 1
        progress("conversations", done, 0)
        key = ImportKey(viewer.profile, owner, program, source.id)
        mark = None if source.subagent else watched
        there = await database.read("import.find", partial(_find, key=key, source=source, watched=mark))
        found = there.found
        if found and found.deleted:
            log.lose(_DELETED, source.place)
            continue
        if found and source.fingerprint and found.fingerprint == source.fingerprint:
            report.unchanged += 1
            if mark and not there.watched:
                await database.write(
                    "import.watch", partial(_watch, session=found.session, source=source, mark=mark)
                )
            continue
        state = _Progress(
            session=found.session if found else None,
            inherited=set(planned[source.parent]) if source.parent in planned else there.inherited,
            known=there.records,
            written=there.written,
            batches=there.batches,
            totals=found.totals if found else {},
            counts=ConversationReport(program=program),
        )
        if source.supplement and found and not dry_run:
            await database.write(
                "import.supplement", partial(_supplement, session=found.session, source=source)
            )
        batches = _split_batches(source, key, mark)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            if dry_run:
                state = _count_batch(state, batch)
            else:
                ready = await _save_files(files, viewer, state, batch, log)
                state = await database.write("import", partial(_write_batch, batch=ready, state=state))
                state.known.update(state.noted)
        if dry_run:
            # Eight bytes each: all of a huge source fit into the memory.
            planned[source.id] = array("Q", state.known)
        if state.session is None and not state.counts.messages:
            log.fold("conversations without messages")
        else:
            _add_counts(report, state, source, new=found is None)
    return report


def _find(tx: Transaction, key: ImportKey, source: ForeignSession, watched: WatchMark | None) -> _KnownImport:
    """Return the import of a conversation, its records, and those of the conversation that it was forked from."""
    found = imports.find(tx, key)
    if found and (found.deleted or (source.fingerprint and found.fingerprint == source.fingerprint)):
        if watched is None or found.deleted:
            return _KnownImport(found)
        same = imports.is_watched(
            tx,
            found.session,
            machine=watched.machine,
            pushed=watched.pushed,
            file=source.place,
            stamp=watched.stamps.get(source.place),
        )
        return _KnownImport(found, watched=same)
    known = imports.load_records(tx, found.session) if found else {}
    parent = imports.find(tx, msgspec.structs.replace(key, source=source.parent)) if source.parent else None
    forked = parent and not source.subagent
    inherited = imports.load_records(tx, parent.session) if parent and forked else ()
    if found is None:
        return _KnownImport(None, known, inherited)
    written = _list_written(tx, found.session, known) if source.rewritten else _WrittenMessages()
    return _KnownImport(found, known, inherited, written, imports.count_record_batches(tx, found.session))


def _list_written(tx: Transaction, session: SessionId, known: Mapping[int, int]) -> _WrittenMessages:
    imported = set(known.values())
    by_time: dict[tuple[Role, int], list[int]] = {}
    turns: dict[int, TurnId] = {}
    for seq, role, at, turn in imports.list_messages(tx, session):
        if seq in imported:
            by_time.setdefault((role, at), []).append(seq)
            if turn:
                turns[seq] = turn
    return _WrittenMessages(by_time, turns)


def _watch(
    tx: Transaction,
    session: SessionId,
    source: ForeignSession,
    mark: WatchMark,
    wrote_at: datetime | None = None,
) -> None:
    """Note that a session is watched, and with `wrote_at` that its program wrote."""
    imports.watch(
        tx,
        session,
        machine=mark.machine,
        pushed=mark.pushed,
        file=source.place,
        stamp=mark.stamps.get(source.place),
        wrote_at=wrote_at,
    )


def _supplement(tx: Transaction, session: SessionId, source: ForeignSession) -> None:
    """Give a session of another reader what only this one knows, unless it has that already."""
    ours = sessions.get(tx, session)
    if source.pinned and not ours.pinned:
        sessions.set_pinned(tx, ours, True)
    if source.archived and not ours.archived:
        sessions.set_archived(tx, ours, True)
    if source.project and ours.project is None:
        owner = Viewer(ours.profile, ours.owner)
        sessions.set_project(tx, ours, projects.ensure(tx, owner, source.project))
    if source.title_by is TitleBy.PERSON and ours.title_by is not TitleBy.PERSON:
        sessions.import_title(tx, ours, source.title, by=TitleBy.PERSON)


def _split_batches(source: ForeignSession, key: ImportKey, mark: WatchMark | None) -> Iterator[_SessionBatch]:
    """Yield the entries in batches. The records of one answer are in one batch, and the first batch has a message."""
    batch: list[ForeignEntry] = []
    size = 0
    has_message = False
    for entry in source.entries():
        joins = isinstance(entry, ForeignMessage) and entry.joins
        if has_message and not joins and (len(batch) >= BATCH_SIZE or size >= BATCH_CHARS):
            yield _SessionBatch(source=source, key=key, entries=batch, last=False, watched=mark)
            batch, size = [], 0
        batch.append(entry)
        if isinstance(entry, ForeignMessage):
            has_message = True
            size += sum(len(str(part)) for part in entry.parts)
    yield _SessionBatch(source=source, key=key, entries=batch, last=True, watched=mark)


def _count_batch(state: _Progress, batch: _SessionBatch) -> _Progress:
    """Count what a batch would add."""
    fresh: list[ForeignEntry] = []
    matched = set(state.matched)
    for entry in batch.entries:
        known = state.known.get(imports.hash_record(entry.id))
        if known is None and isinstance(entry, ForeignMessage):
            known = state.written.find(entry, matched)
        if known is None:
            fresh.append(entry)
        matched.add(known or 0)
    added = {imports.hash_record(entry.id): 0 for entry in fresh}
    counts = state.counts
    totals = _measure_totals(state, batch.source) if batch.last else []
    written = [m for m in fresh if isinstance(m, ForeignMessage)]
    own = [entry for entry in fresh if imports.hash_record(entry.id) not in state.inherited]
    calls = sum(len(entry.usage) for entry in own if isinstance(entry, ForeignMessage))
    calls += sum(isinstance(entry, ForeignCall) for entry in own)
    counts = msgspec.structs.replace(
        counts,
        messages=counts.messages + sum(not m.joins for m in written),
        tool_calls=counts.tool_calls + sum(isinstance(p, ToolCall) for m in written for p in m.parts),
        files=counts.files + sum(len(m.files) for m in written),
        compactions=counts.compactions + sum(isinstance(entry, ForeignCompaction) for entry in fresh),
        usage=counts.usage + calls + len(totals),
        undone=counts.undone + sum(m.undone for m in written),
    )
    state.known.update(added)
    return msgspec.structs.replace(
        state,
        counts=counts,
        matched=frozenset(matched) if state.written.by_time else state.matched,
        grown=state.grown or bool(fresh),
    )


async def _save_files(
    files: MediaStorage, viewer: Viewer, state: _Progress, batch: _SessionBatch, log: ImportLog
) -> _SessionBatch:
    """Store the files of new messages, and return the batch with their parts. A file that cannot be read is reported."""
    if not any(isinstance(entry, ForeignMessage) and entry.files for entry in batch.entries):
        return batch
    owner = Viewer(viewer.profile, batch.key.owner)
    entries: list[ForeignEntry] = []
    for entry in batch.entries:
        if isinstance(entry, ForeignMessage) and entry.files:
            parts = list(entry.parts)
            for file in entry.files if imports.hash_record(entry.id) not in state.known else ():
                try:
                    body = await asyncio.to_thread(file.load)
                    parts.append(
                        await files.save(owner, Attachment(name=file.name, mime=file.mime, body=body))
                    )
                except Invalid as exc:
                    log.lose("files that could not be read", f"{batch.source.place}, {file.name}: {exc}")
                    parts.append(Notice(f"The file {file.name} was not imported: {exc}.", "file"))
            entry = msgspec.structs.replace(entry, parts=tuple(parts))
        entries.append(entry)
    return msgspec.structs.replace(batch, entries=entries)


def _write_batch(tx: Transaction, batch: _SessionBatch, state: _Progress) -> _Progress:
    """Write the entries that are not there yet, and note them."""
    session = state.session
    if session is None:
        if not any(isinstance(entry, ForeignMessage) for entry in batch.entries):
            return state
        if imports.find(tx, batch.key):
            raise Conflict(_IMPORTED_TWICE)
        session = _create_session(tx, batch)
        state = msgspec.structs.replace(state, session=session, created=True)
    sessions.lock(tx, session)
    if imports.count_record_batches(tx, session) != state.batches:
        raise Conflict(_IMPORTED_TWICE)
    writer = _BatchWriter(tx, session, batch, state)
    for entry in batch.entries:
        writer.add(entry)
    return writer.finish()


class _BatchWriter:
    """Numbers the new entries of one batch and writes them."""

    def __init__(self, tx: Transaction, session: SessionId, batch: _SessionBatch, state: _Progress) -> None:
        self._tx = tx
        self._session = session
        self._batch = batch
        self._state = state
        self._counts = msgspec.structs.replace(state.counts)
        self._last_seq, self._epoch, self._undo = imports.get_position(tx, session)
        self._first_seq = self._last_seq + 1
        self._turn = state.turn
        self._in_branch = state.in_branch
        self._own_turn = state.own_turn
        # The questions of turns that ran here, with the times between which the program may have written each.
        self._own_questions: list[_OwnQuestion] | None = None
        self._bindings = [b for b in sessions.list_bindings(tx, session).values() if b.id == batch.key.source]
        self._left = list(state.left)
        self._matched = set(state.matched)
        self._noted: dict[int, int] = {}
        self._messages: list[Message] = []
        self._turns: dict[TurnId, TurnRecord] = {}
        self._usage: list[CallUsage] = []

    def add(self, entry: ForeignEntry) -> None:
        record = imports.hash_record(entry.id)
        known = self._state.known.get(record, self._noted.get(record))
        if known is None and isinstance(entry, ForeignMessage):
            known = self._state.written.find(entry, self._matched)
            if known is not None:
                self._noted[record] = known
        match entry:
            case ForeignCompaction() | ForeignCall() if known is None and self._own_turn:
                self._noted[record] = 0
            case ForeignCompaction():
                # What comes before the next question belongs to no turn: its question is covered by the summary.
                self._turn = None
                if known is None:
                    self._begin_epoch(entry)
                    self._noted[record] = 0
            case ForeignCall():
                if known is None:
                    self._add_usage(record, (entry.usage,), entry.at)
                    self._noted[record] = 0
            case ForeignMessage() if known is not None:
                self._matched.add(known)
                if entry.role is Role.USER and not entry.observed:
                    self._turn = self._state.written.turns.get(known) or self._derive_turn(entry.id)
                    # An imported question has a number here.
                    self._own_turn = known == 0
                self._in_branch = entry.undone
                if entry.undone and known:
                    self._left.append(known)
            case ForeignMessage():
                if entry.role is Role.USER and not entry.observed and not entry.joins:
                    self._own_turn = self._was_asked_here(entry)
                self._noted[record] = 0 if self._own_turn else self._add_message(entry)

    def _was_asked_here(self, question: ForeignMessage) -> bool:
        """Whether a turn of this session asked the program. It may put text around the question."""
        if self._state.created:
            return False
        if self._own_questions is None:
            # What was asked in turns that ran here and had not ended long before.
            tx = self._tx
            found = imports.list_own_turns(
                tx, self._session, surface=self._batch.source.surface, since=question.at - _WRITE_DELAY
            )
            self._own_questions = [
                _OwnQuestion(
                    _squeeze(join_text(message.parts)),
                    turn.created_at - _TIME_SLACK,
                    (turn.finished_at or tx.now) + _WRITE_DELAY,
                )
                for turn in found
                for message in messages.list_for_turn(tx, self._session, turn.id, first=turn.input_seq)
                if message.role is Role.USER
            ]
        said = _squeeze(join_text(question.parts))
        return any(
            own.earliest <= question.at <= own.latest and own.text in said for own in self._own_questions
        )

    def _derive_turn(self, id_: str) -> TurnId:
        return TurnId(records.derive_id(self._session, "turn", id_))

    def _add_message(self, entry: ForeignMessage) -> int:
        if entry.role is Role.USER and not entry.observed and not entry.joins:
            self._turn = self._derive_turn(entry.id)
        if entry.undone and not self._in_branch:
            self._undo += 1
        self._in_branch = entry.undone
        self._counts.tool_calls += sum(isinstance(part, ToolCall) for part in entry.parts)
        self._counts.files += len(filter_media(entry.parts)) if entry.files else 0
        self._counts.undone += entry.undone
        before = self._messages[-1] if self._messages else None
        if entry.joins and before and before.role is entry.role and bool(before.undone) == entry.undone:
            joined = msgspec.structs.replace(before, parts=(*before.parts, *entry.parts))
            self._messages[-1] = joined
        else:
            self._last_seq += 1
            self._messages.append(
                Message(
                    self._session,
                    self._last_seq,
                    entry.role,
                    entry.parts,
                    to_micros(entry.at),
                    None if entry.observed or entry.role is Role.NOTICE else self._turn,
                    self._epoch,
                    entry.author,
                    self._batch.source.surface,
                    entry.platform_id,
                    entry.mark,
                    entry.observed,
                    self._undo if entry.undone else 0,
                    entry.exact,
                )
            )
        self._note_turn(entry)
        self._add_usage(imports.hash_record(entry.id), entry.usage, entry.at)
        return self._last_seq

    def _note_turn(self, entry: ForeignMessage) -> None:
        """Note the turn of a question, and that it lasted until the answer."""
        if self._turn is None or entry.observed:
            return
        if entry.role is Role.USER and not entry.joins:
            self._turns[self._turn] = TurnRecord(
                session=self._session,
                id=self._turn,
                asker=self._batch.key.owner,
                state=TurnState.DONE,
                mode=BusyMode.QUEUE,
                input_seq=self._last_seq,
                created_at=entry.at,
                started_at=entry.at,
                finished_at=entry.at,
                surface=self._batch.source.surface,
                attempts=1,
            )
        elif turn := self._turns.get(self._turn):
            self._turns[self._turn] = msgspec.structs.replace(
                turn, finished_at=max(turn.created_at, entry.at)
            )

    def _add_usage(self, record: int, usage: tuple[ForeignUsage, ...], at: datetime) -> None:
        if record not in self._state.inherited:
            self._usage += [self._build_usage(used, at) for used in usage]

    def _build_usage(self, used: ForeignUsage, at: datetime) -> CallUsage:
        turn = self._turn or TurnId(records.derive_id(self._session, "usage"))
        return CallUsage(**msgspec.structs.asdict(used), turn=turn, at=at)

    def _begin_epoch(self, entry: ForeignCompaction) -> None:
        self._epoch += 1
        kept = imports.hash_record(entry.first_kept) if entry.first_kept else None
        first = self._state.known.get(kept) or self._noted.get(kept) if kept is not None else None
        # Epochs do not overlap backwards, wherever the program began to keep messages.
        first_seq = max(first or self._last_seq + 1, imports.get_epoch_start(self._tx, self._session))
        imports.begin_epoch(
            self._tx,
            self._session,
            number=self._epoch,
            first_seq=first_seq,
            summary=entry.summary,
            at=entry.at,
        )
        self._counts.compactions += 1

    def finish(self) -> _Progress:
        """Write everything, and return the position after it."""
        tx, session, state = self._tx, self._session, self._state
        for message in self._messages:
            messages.insert(tx, message)
        target = ImportTarget(session=session, created=state.created, moved=False)
        session_import.add_turns(tx, target, list(self._turns.values()))
        totals = dict(state.totals)
        if self._batch.last:
            for name, total, added in _measure_totals(state, self._batch.source):
                totals[name] = total
                # The totals of a program include the turns that were asked for here, which are counted already.
                if not self._bindings:
                    self._usage.append(self._build_usage(added, self._find_end()))
        if self._usage:
            imports.add_usage(tx, session, self._batch.key, self._batch.source.surface, self._usage)
        grown = state.grown or bool(self._messages)
        revised = False
        if self._batch.last and grown and self._left:
            revised = bool(imports.undo(tx, session, self._left, group=self._undo + 1))
            self._undo += revised
        if self._messages or self._left:
            imports.count_batch(
                tx,
                session,
                last_seq=self._last_seq,
                messages=len(self._messages),
                turns=len(self._turns),
                undo=self._undo,
                active_at=self._find_end(),
            )
        for message in self._messages:
            if files := filter_media(message.parts):
                key = self._batch.key
                media.link(tx, session, files, profile=key.profile, owner=key.owner)
        if self._noted:
            imports.add_records(tx, session, self._noted)
        if self._batch.last:
            imports.finish(tx, session, fingerprint=self._batch.source.fingerprint, totals=totals)
        if self._batch.last and self._batch.watched:
            wrote_at = self._find_end() if grown else None
            _watch(tx, session, self._batch.source, self._batch.watched, wrote_at)
            self._update_title()
        if self._messages:
            self._update_bindings()
            self._tell_followers()
        if revised:
            sessions.note_revision(tx, sessions.get(tx, session))
        self._counts.messages += len(self._messages)
        self._counts.usage += len(self._usage)
        return msgspec.structs.replace(
            state,
            noted=self._noted,
            batches=state.batches + bool(self._noted),
            totals=totals,
            turn=self._turn,
            in_branch=self._in_branch,
            own_turn=self._own_turn,
            left=tuple(self._left),
            matched=frozenset(self._matched) if state.written.by_time else state.matched,
            grown=grown,
            counts=self._counts,
        )

    def _find_end(self) -> datetime:
        times = (entry.at for entry in self._batch.entries)
        return max(chain((self._batch.source.created_at,), times))

    def _update_title(self) -> None:
        """Take over a title that the program gave later, unless a person gave one."""
        source = self._batch.source
        ours = sessions.get(self._tx, self._session)
        if self._state.created or not source.title.strip() or ours.title_by is TitleBy.PERSON:
            return
        try:
            title = clean_title(truncate(source.title, 4 * LONGEST_TITLE))
        except Invalid:
            return
        if ours.title != title and not ours.title.startswith(f"{title} #"):
            sessions.import_title(self._tx, ours, title, by=source.title_by or TitleBy.MODEL)

    def _update_bindings(self) -> None:
        """Let agents open the session again that the program has written to. They find there what it wrote."""
        for binding in self._bindings:
            fresh = msgspec.structs.replace(binding, turn=None, seq=self._last_seq)
            sessions.save_binding(self._tx, self._session, fresh)

    def _tell_followers(self) -> None:
        """Mark the new messages as read, and wake followers."""
        tx, session = self._tx, sessions.get(self._tx, self._session)
        for principal in dict.fromkeys((OPERATOR, session.owner)):
            viewer_state.mark_read(tx, Viewer(session.profile, principal), session, session.last_seq)
        if self._batch.watched and not self._state.created and len(self._messages) <= MAX_LIVE_MESSAGES:
            for message in self._messages:
                scope = changes.Scope(session.profile, session.owner, session.id, message.turn)
                changes.note(tx, ChangeKind.MESSAGE, message.id, scope, n=message.seq, note="added")
        elif not self._state.created:
            sessions.note_revision(tx, session)
        changes.note(tx, ChangeKind.SESSION, session.id, session, note=sessions.MESSAGES_IMPORTED)


class _OwnQuestion(msgspec.Struct, frozen=True):
    text: str
    earliest: datetime
    latest: datetime


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _create_session(tx: Transaction, batch: _SessionBatch) -> SessionId:
    source, key = batch.source, batch.key
    # The first ten characters are the time; the same conversation has the same id in every store.
    time = ids.new(source.created_at)[:10]
    scope = (key.program, key.profile, key.owner, ids.escape(key.source))
    id_ = SessionId(records.derive_id(time, *scope))
    parent, parent_seq = _find_parent(tx, source, key)
    sessions.create(
        tx,
        profile=key.profile,
        owner=key.owner,
        surface=source.surface,
        origin=source.origin and msgspec.structs.replace(source.origin, profile=key.profile),
        parent=parent,
        parent_seq=parent_seq,
        cwd=source.cwd,
        id=id_,
    )
    imports.add(tx, key, id_)
    imports.set_state(tx, id_, created_at=source.created_at, pinned=source.pinned, archived=source.archived)
    session = sessions.get(tx, id_)
    title, by = _choose_title(batch)
    sessions.import_title(tx, session, title, by=by)
    for alias in dict.fromkeys((source.id, *source.aliases)):
        # The name of a file may have bytes that are no text.
        if ids.is_reference(alias.strip()) and replace_unwritable(alias) == alias:
            sessions.add_alias(tx, session, alias)
    if source.project:
        project = projects.ensure(tx, Viewer(key.profile, key.owner), source.project)
        sessions.set_project(tx, session, project)
    return id_


def _find_parent(
    tx: Transaction, source: ForeignSession, key: ImportKey
) -> tuple[SessionId | None, int | None]:
    """Return the session that a conversation comes from, and the last message of it that both have."""
    parent = imports.find(tx, msgspec.structs.replace(key, source=source.parent)) if source.parent else None
    if parent is None:
        return None, None
    known = imports.load_records(tx, parent.session)
    return parent.session, known.get(imports.hash_record(source.parent_record)) or None


def _choose_title(batch: _SessionBatch) -> tuple[str, TitleBy]:
    """Return the title in the program, or one from the first question."""
    try:
        given = batch.source.title_by or TitleBy.MODEL
        return clean_title(truncate(batch.source.title, 4 * LONGEST_TITLE)), given
    except Invalid:
        asked = [
            entry for entry in batch.entries if isinstance(entry, ForeignMessage) and entry.role is Role.USER
        ]
        text = next(filter(None, (join_text(entry.parts) for entry in asked)), "")
        return derive_title(text), TitleBy.RULE


def _measure_totals(state: _Progress, source: ForeignSession) -> list[tuple[str, ImportTotal, ForeignUsage]]:
    """Return the totals that have grown, by name, each with the usage since the last import."""
    grown: list[tuple[str, ImportTotal, ForeignUsage]] = []
    # The other reader has counted the same calls.
    counted = source.supplement and state.totals
    for total in () if counted else source.totals:
        name = f"{total.model}:{total.task}"
        before = msgspec.structs.asdict(state.totals.get(name, ImportTotal()))
        after = {
            field: value or 0 for field, value in msgspec.structs.asdict(total).items() if field in before
        }
        added = {field: max(0, value - before[field]) for field, value in after.items()}
        if any(added.values()):
            cost = None if total.cost is None else added["cost"]
            used = msgspec.structs.replace(total, **{**added, "cost": cost})
            grown.append((name, ImportTotal(**after), used))
    return grown


def _add_counts(report: ConversationReport, state: _Progress, source: ForeignSession, *, new: bool) -> None:
    counts = state.counts
    report.created += new
    report.extended += not new and bool(counts.messages or counts.compactions)
    report.unchanged += not new and not counts.messages and not counts.compactions
    report.subagents += new and source.subagent
    report.forks += new and bool(source.parent) and not source.subagent
    report.messages += counts.messages
    report.tool_calls += counts.tool_calls
    report.files += counts.files
    report.compactions += counts.compactions
    report.usage += counts.usage
    report.undone += counts.undone
