"""Import of JSONL exports, session by session. Every loss is reported with its line."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, TypeVar

import msgspec

from keryx.core import media, records
from keryx.core.clock import Clock
from keryx.core.errors import Conflict, Invalid
from keryx.core.ids import SessionId
from keryx.core.media import Attachment
from keryx.core.records import (
    Entry,
    Header,
    MediaRecord,
    MessageRecord,
    Progress,
    SessionRecord,
    TurnRecord,
    UsageRecord,
    ignore_progress,
)
from keryx.core.sessions import Viewer
from keryx.core.text import format_count
from keryx.engine.media import MediaStorage
from keryx.store.admin import session_import
from keryx.store.admin.session_import import ImportTarget
from keryx.store.db import Database, Transaction

T = TypeVar("T")
BATCH_SIZE = 500
MAX_LINE_BYTES = 256 << 20
MAX_FILE_BYTES = 256 << 20
MAX_GAP = 10_000
MAX_PROBLEMS = 1_000


class ImportProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of the file that was changed or left out."""

    line: int
    session: str = ""
    text: str


class ImportReport(msgspec.Struct, kw_only=True):
    # Sessions.
    created: int = 0
    extended: int = 0
    unchanged: int = 0
    skipped: int = 0
    # Rows added.
    messages: int = 0
    turns: int = 0
    usage: int = 0
    files: int = 0
    # Lines and sessions that were left out; the other problems are minor.
    damage: int = 0
    # Problems that are not listed because there are too many.
    untold: int = 0
    troubles: list[ImportProblem] = []

    def add_problem(self, line: int, text: str, *, session: str = "", damage: bool = True) -> None:
        self.damage += damage
        if len(self.troubles) < MAX_PROBLEMS:
            self.troubles.append(ImportProblem(line=line, session=session, text=text))
        else:
            self.untold += 1


class _RecordBatch(msgspec.Struct):
    """Consecutive records of one session, small enough for one transaction."""

    session: SessionRecord
    line: int
    first: bool
    entries: list[Entry]


class _CompleteFile(msgspec.Struct, frozen=True):
    """A file of a session, with all of its chunks."""

    session: SessionRecord
    line: int
    id: str
    attachment: Attachment


class _BatchResult(msgspec.Struct, frozen=True):
    target: ImportTarget
    messages: int
    turns: int
    usage: int
    kept: int
    missing: int
    notes: list[str]


async def import_sessions(
    database: Database,
    clock: Clock,
    viewer: Viewer,
    file: BinaryIO,
    *,
    size: int = 0,
    progress: Progress = ignore_progress,
) -> ImportReport:
    """Import a JSONL export into the viewer's profile. Idempotent: a longer export of a session adds what is new, and a
    session that differs is left as it is and reported. A session of ordinary size is imported in one transaction; a
    long one in batches, which a later import continues."""
    report = ImportReport()
    reader = _RecordReader(file, report)
    batches = reader.batches()
    target: ImportTarget | None = None
    changed = False
    files = MediaStorage(database, limit=MAX_FILE_BYTES)
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        if isinstance(batch, _CompleteFile):
            await _store_file(files, batch, viewer, report)
            continue
        if batch.first:
            _count_session(report, target, changed)
            target, changed = None, False
        elif target is None:
            continue
        progress("bytes", reader.bytes_read, size)
        try:
            work = partial(_import_batch, batch=batch, target=target, viewer=viewer)
            result = await database.write("import", work)
        except (Conflict, Invalid) as exc:
            report.skipped += 1
            report.add_problem(batch.line, str(exc), session=batch.session.id)
            target = None
            continue
        target = result.target
        changed = changed or bool(result.messages or result.turns or result.usage)
        _add_counts(report, batch, result)
    _count_session(report, target, changed)
    progress("bytes", reader.bytes_read, size)
    return report


async def _store_file(files: MediaStorage, file: _CompleteFile, viewer: Viewer, report: ImportReport) -> None:
    """Store a file for the messages that follow."""
    if media.hash_body(file.attachment.body) != file.id:
        report.add_problem(
            file.line,
            f"file {file.id} holds other bytes than its id says: it is left out",
            session=file.session.id,
        )
        return
    owner = viewer.owner or file.session.owner
    await files.save(Viewer(viewer.profile, owner), file.attachment)
    report.files += 1


def _import_batch(
    tx: Transaction, batch: _RecordBatch, target: ImportTarget | None, viewer: Viewer
) -> _BatchResult:
    session = batch.session
    notes: list[str] = []
    if target is None:
        if not _select_records(batch, MessageRecord):
            raise Conflict("none of its messages could be read: it is left out")
        owner = viewer.owner or session.owner
        target = session_import.begin(tx, session, profile=viewer.profile, owner=owner)
        notes += target.notes
    target, messages = session_import.add_messages(tx, target, session, _select_records(batch, MessageRecord))
    turns, left_out = session_import.add_turns(tx, target, _select_records(batch, TurnRecord))
    target, usage = session_import.add_usage(tx, target, _select_records(batch, UsageRecord))
    return _BatchResult(
        target,
        messages.messages,
        turns.turns,
        usage.usage,
        messages.kept,
        messages.missing,
        [*notes, *left_out],
    )


def _select_records(batch: _RecordBatch, kind: type[T]) -> list[T]:
    return [entry for entry in batch.entries if isinstance(entry, kind)]


def _add_counts(report: ImportReport, batch: _RecordBatch, result: _BatchResult) -> None:
    report.messages += result.messages
    report.turns += result.turns
    report.usage += result.usage
    notes = list(result.notes)
    if result.kept:
        differ = format_count(result.kept, "message differs", "messages differ")
        notes.append(f"{differ} here in the marks: what is here was kept")
    if result.missing:
        files = format_count(result.missing, "file of its messages is", "files of its messages are")
        notes.append(f"{files} not in this export: the names are kept")
    for note in notes:
        report.add_problem(batch.line, note, session=batch.session.id, damage=False)


def _count_session(report: ImportReport, target: ImportTarget | None, changed: bool) -> None:
    if target is None:
        return
    report.created += target.created
    report.extended += not target.created and changed
    report.unchanged += not target.created and not changed


class _RecordReader:
    """Reads batches of records. Invalid lines are reported and skipped."""

    def __init__(self, file: BinaryIO, report: ImportReport) -> None:
        self._file = file
        self._report = report
        self._line = 0
        self._next = 1
        self._chunks: list[MediaRecord] = []
        self.bytes_read = 0

    def batches(self) -> Iterator[_RecordBatch | _CompleteFile]:
        """Yield the records in batches, and each file as soon as it is complete."""
        self._check_header()
        batch: _RecordBatch | None = None
        strays: set[str] = set()
        for record in self._records():
            if isinstance(record, SessionRecord):
                if batch:
                    yield batch
                    self._check_end(batch.session)
                batch = _RecordBatch(record, self._line, True, [])
                self._next = 1
            elif isinstance(record, Header):
                self._report.add_problem(self._line, "a second header has no meaning here")
            elif batch is None or record.session != batch.session.id:
                self._report_stray(record.session, strays)
            elif isinstance(record, MediaRecord):
                whole = self._add_chunk(record, batch.session)
                if whole:
                    yield whole
            else:
                batch.entries += self._fill_gap(record, batch.session)
                if len(batch.entries) >= BATCH_SIZE:
                    yield batch
                    batch = _RecordBatch(batch.session, self._line, False, [])
        if batch:
            yield batch
            self._check_end(batch.session)

    def _check_header(self) -> None:
        refusal = Invalid("this is not an export of Keryx: its first line must name the format")
        try:
            header = records.decode(self._readline())
        except Invalid as exc:
            raise refusal from exc
        if not isinstance(header, Header) or header.format != records.FORMAT:
            raise refusal
        if header.version > records.VERSION:
            raise Invalid(
                f"this export was made by a newer Keryx (format {header.version}): upgrade Keryx to read it"
            )

    def _records(self) -> Iterator[records.Record]:
        while line := self._readline():
            if not line.strip():
                continue
            try:
                yield records.decode(line)
            except Invalid as exc:
                self._report.add_problem(self._line, str(exc))

    def _readline(self) -> bytes:
        line = self._file.readline(MAX_LINE_BYTES)
        self._line += 1
        self.bytes_read += len(line)
        return line

    def _add_chunk(self, chunk: MediaRecord, session: SessionRecord) -> _CompleteFile | None:
        """Add a chunk and return the file if it is complete. The chunks of a file are consecutive and in order."""
        if chunk.n == 0:
            self._report_partial_file(session)
        received = sum(len(c.body) for c in self._chunks)
        fits = not self._chunks or self._chunks[0].id == chunk.id
        if (
            not fits
            or chunk.n != len(self._chunks)
            or received + len(chunk.body) > min(chunk.size, MAX_FILE_BYTES)
        ):
            self._chunks = [chunk]
            self._report_partial_file(session)
            return None
        self._chunks.append(chunk)
        if received + len(chunk.body) < chunk.size:
            return None
        body, self._chunks = b"".join(c.body for c in self._chunks), []
        attachment = Attachment(name=chunk.name, mime=chunk.mime, body=body)
        return _CompleteFile(session, self._line, chunk.id, attachment)

    def _report_partial_file(self, session: SessionRecord) -> None:
        """Report a file whose chunks are incomplete."""
        if self._chunks:
            text = f"file {self._chunks[0].id} is not whole: it is left out"
            self._report.add_problem(self._line, text, session=session.id)
            self._chunks = []

    def _report_stray(self, session: SessionId, strays: set[str]) -> None:
        self._report.damage += 1
        if session not in strays:
            strays.add(session)
            self._report.damage -= 1
            self._report.add_problem(
                self._line, "its session is not before it in the file: it is left out", session=session
            )

    def _fill_gap(self, record: Entry, session: SessionRecord) -> list[Entry]:
        """Return the record, preceded by notices for messages that are missing before it."""
        if not isinstance(record, MessageRecord):
            return [record]
        if record.seq < self._next or record.seq - self._next > MAX_GAP:
            self._report.add_problem(
                self._line, f"message {record.seq} is out of order: it is left out", session=session.id
            )
            return []
        missing = [
            records.build_lost_message(session.id, seq, at=record.at, epoch=record.epoch)
            for seq in range(self._next, record.seq)
        ]
        if missing:
            lost = format_count(len(missing), "message", "messages")
            self._report.add_problem(
                self._line,
                f"{lost} missing before message {record.seq}: a notice stands for each",
                session=session.id,
            )
        self._next = record.seq + 1
        return [*missing, record]

    def _check_end(self, session: SessionRecord) -> None:
        self._report_partial_file(session)
        missing = session.last_seq - (self._next - 1)
        if missing > 0:
            self._report.add_problem(
                self._line, f"{format_count(missing, 'message')} missing at the end", session=session.id
            )
