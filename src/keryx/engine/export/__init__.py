"""Export of sessions from one snapshot, written piece by piece, as JSONL, Markdown or HTML."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial

import msgspec

from keryx.core import records, sessions
from keryx.core.ids import SessionId
from keryx.core.records import Entry, MessageRecord, Progress, SessionRecord, ignore_progress
from keryx.core.sessions import Viewer
from keryx.core.texts import ENGLISH, Texts
from keryx.engine.export import html_document, markdown_document
from keryx.engine.export.redact import Redactor
from keryx.store import sessions as sessions_store
from keryx.store.admin import session_export
from keryx.store.db import Database, Transaction

_PROGRESS_INTERVAL = 200


class ExportFormat(StrEnum):
    JSONL = "jsonl"
    MD = "md"
    HTML = "html"


class ExportSummary(msgspec.Struct, frozen=True):
    sessions: int
    messages: int


TextWriter = Callable[[str], object]


async def export(
    database: Database,
    viewer: Viewer,
    chosen: Sequence[SessionId] | None,
    format: ExportFormat,
    write: TextWriter,
    *,
    redact: bool = False,
    progress: Progress = ignore_progress,
    texts: Texts = ENGLISH,
) -> ExportSummary:
    """Write the chosen sessions, or all that the viewer may see, as one snapshot shows them.

    The headings of Markdown and HTML are in the language of `texts`. `write` is called in a thread of the database with pieces of text, in order."""

    return await database.read(
        "export",
        partial(
            write_sessions,
            viewer=viewer,
            chosen=chosen,
            format=format,
            write=write,
            redact=redact,
            progress=progress,
            texts=texts,
        ),
    )


def write_sessions(
    tx: Transaction,
    viewer: Viewer,
    chosen: Sequence[SessionId] | None,
    format: ExportFormat,
    write: TextWriter,
    *,
    redact: bool = False,
    progress: Progress = ignore_progress,
    texts: Texts = ENGLISH,
) -> ExportSummary:
    """Write sessions as `export` does, in a transaction of the caller."""
    redactor = Redactor() if redact else None
    return _ExportPass(tx, viewer, chosen, redactor, progress, texts).run(format, write)


class _ExportPass:
    """One pass over the chosen sessions of one snapshot."""

    def __init__(
        self,
        tx: Transaction,
        viewer: Viewer,
        chosen: Sequence[SessionId] | None,
        redactor: Redactor | None,
        progress: Progress,
        texts: Texts,
    ) -> None:
        self._tx = tx
        self._viewer = viewer
        self._chosen = None if chosen is None else list(dict.fromkeys(chosen))
        self._redactor = redactor
        self._progress = progress
        self._texts = texts
        self._done = 0
        self._sessions = 0
        self._total = sum(s.messages for s in self._select_sessions())

    def run(self, format: ExportFormat, write: TextWriter) -> ExportSummary:
        match format:
            case ExportFormat.JSONL:
                pieces = self._render_jsonl()
            case ExportFormat.MD:
                pieces = markdown_document.render(
                    ((s, self._read_messages(s)) for s in self._read_sessions()), self._texts
                )
            case ExportFormat.HTML:
                contents = [
                    html_document.ContentsEntry.from_session(s, self._texts) for s in self._read_sessions()
                ]
                self._sessions = 0
                pieces = html_document.render(
                    contents, ((s, self._read_messages(s)) for s in self._read_sessions()), self._texts
                )
        for piece in pieces:
            write(piece)
        self._progress("messages", self._done, self._total)
        return ExportSummary(self._sessions, self._done)

    def _render_jsonl(self) -> Iterator[str]:
        header = records.Header(
            format=records.FORMAT, version=records.VERSION, redacted=self._redactor is not None
        )
        yield records.encode(header) + "\n"
        written: set[str] = set()
        for session in self._read_sessions():
            yield records.encode(session) + "\n"
            # A file cannot be redacted, so it is left out.
            if self._redactor is None:
                for chunk in session_export.iterate_files(self._tx, session.id, known=written):
                    yield records.encode(chunk) + "\n"
            for entry in self._redact_entries(session_export.iterate_records(self._tx, session.id)):
                yield records.encode(entry) + "\n"

    def _read_messages(self, session: SessionRecord) -> Iterator[MessageRecord]:
        messages = (records.from_message(m) for m in session_export.iterate_messages(self._tx, session.id))
        return (m for m in self._redact_entries(messages) if isinstance(m, MessageRecord))

    def _select_sessions(self) -> Iterator[sessions.Session]:
        if self._chosen is None:
            yield from session_export.iterate_sessions(self._tx, self._viewer)
        else:
            yield from (sessions_store.get(self._tx, id_, viewer=self._viewer) for id_ in self._chosen)

    def _read_sessions(self) -> Iterator[SessionRecord]:
        for session in self._select_sessions():
            self._sessions += 1
            record = session_export.read_session(self._tx, session.id)
            yield self._redactor.session(record) if self._redactor else record

    def _redact_entries(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for entry in entries:
            if isinstance(entry, MessageRecord):
                self._done += 1
                if self._done % _PROGRESS_INTERVAL == 0:
                    self._progress("messages", self._done, self._total)
            yield self._redactor.entry(entry) if self._redactor else entry
