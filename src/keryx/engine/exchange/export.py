"""Export: chosen sessions, read in one snapshot and written piece by piece, so that size does not matter."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from keryx.core import records
from keryx.core.ids import SessionId
from keryx.core.progress import Progress, silent
from keryx.core.records import Entry, MessageRecord, SessionRecord
from keryx.core.redact import Redactor
from keryx.core.sessions import Viewer
from keryx.engine.exchange import html, markdown
from keryx.store import exports, sessions
from keryx.store.database import Database, Transaction

_TELL = 200


class Format(StrEnum):
    JSONL = "jsonl"
    MD = "md"
    HTML = "html"


class Exported(msgspec.Struct, frozen=True):
    sessions: int
    messages: int


Write = Callable[[str], object]


async def export(
    database: Database,
    viewer: Viewer,
    chosen: Sequence[SessionId] | None,
    format: Format,
    write: Write,
    *,
    redact: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write the chosen sessions, or all that the viewer may see, as one snapshot shows them.

    `write` is called in a thread of the database with pieces of text, in order."""

    def work(tx: Transaction) -> Exported:
        return _Export(tx, viewer, chosen, Redactor() if redact else None, progress).run(format, write)

    return await database.read("export", work)


class _Export:
    """One pass over the chosen sessions of one snapshot."""

    def __init__(
        self,
        tx: Transaction,
        viewer: Viewer,
        chosen: Sequence[SessionId] | None,
        redactor: Redactor | None,
        progress: Progress,
    ) -> None:
        self._tx = tx
        self._viewer = viewer
        self._chosen = None if chosen is None else list(dict.fromkeys(chosen))
        self._redactor = redactor
        self._progress = progress
        self._done = 0
        self._sessions = 0
        self._total = sum(s.messages for s in self._picked())

    def run(self, format: Format, write: Write) -> Exported:
        match format:
            case Format.JSONL:
                pieces = self._jsonl()
            case Format.MD:
                pieces = markdown.document((s, self._messages(s)) for s in self._each())
            case Format.HTML:
                contents = [html.Heading.of(s) for s in self._each()]
                self._sessions = 0
                pieces = html.document(contents, ((s, self._messages(s)) for s in self._each()))
        for piece in pieces:
            write(piece)
        self._progress("messages", self._done, self._total)
        return Exported(self._sessions, self._done)

    def _jsonl(self) -> Iterator[str]:
        header = records.Header(
            format=records.FORMAT, version=records.VERSION, redacted=self._redactor is not None
        )
        yield records.encode(header) + "\n"
        written: set[str] = set()
        for session in self._each():
            yield records.encode(session) + "\n"
            # Nobody can look into a file, so nobody can say what it gives away.
            if self._redactor is None:
                for chunk in exports.files(self._tx, session.id, known=written):
                    yield records.encode(chunk) + "\n"
            for entry in self._entries(exports.records_of(self._tx, session.id)):
                yield records.encode(entry) + "\n"

    def _messages(self, session: SessionRecord) -> Iterator[MessageRecord]:
        told = (records.of_message(m) for m in exports.said(self._tx, session.id))
        return (m for m in self._entries(told) if isinstance(m, MessageRecord))

    def _picked(self) -> Iterator[sessions.Session]:
        if self._chosen is None:
            yield from exports.visible(self._tx, self._viewer)
        else:
            yield from (sessions.get(self._tx, id_, viewer=self._viewer) for id_ in self._chosen)

    def _each(self) -> Iterator[SessionRecord]:
        for session in self._picked():
            self._sessions += 1
            record = exports.session(self._tx, session.id)
            yield self._redactor.session(record) if self._redactor else record

    def _entries(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for entry in entries:
            if isinstance(entry, MessageRecord):
                self._done += 1
                if self._done % _TELL == 0:
                    self._progress("messages", self._done, self._total)
            yield self._redactor.entry(entry) if self._redactor else entry
