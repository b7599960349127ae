"""Import of a file that a person gives: an export of Keryx, or of a program whose conversations can be imported. The program is found by trying."""

import tempfile
from io import BytesIO
from itertools import islice
from pathlib import Path

import anyio.to_thread
import msgspec

from keryx import importers
from keryx.core import codec, media, records
from keryx.core.errors import Invalid
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.engine import conversation_import, importer
from keryx.engine.hub.verbs import HubPart
from keryx.importers import Program
from keryx.importers.conversation import ForeignMessage, ImportLog

OWN_NAME = "Keryx"
# What is read of a file to find out which program wrote it.
_TRIED_SESSIONS = 3
_TRIED_ENTRIES = 30
_MAX_LOSSES = 20
# Of the first line of a file of Keryx.
_MAX_HEADER_BYTES = 65_536


class FileImport(msgspec.Struct, frozen=True, kw_only=True):
    """What was added from a file, and what could not be kept."""

    program: str
    created: int
    extended: int
    unchanged: int
    messages: int
    losses: list[str]


class HubFileImports(HubPart):
    async def run(self, viewer: Viewer, name: str, body: bytes) -> FileImport:
        """Import the conversations of a file. Importing again adds what is new. Raise `Invalid` for a file of no known program."""
        if _is_own_export(body):
            return await self._import_own(viewer, body)
        folder = await anyio.to_thread.run_sync(tempfile.TemporaryDirectory)
        try:
            path = Path(folder.name) / (media.clean_name(name) or "file")
            await anyio.to_thread.run_sync(path.write_bytes, body)
            program = await anyio.to_thread.run_sync(_find_program, path)
            if program is None:
                raise Invalid(Phrase("web.no_import"))
            log = ImportLog()
            report = await conversation_import.import_conversations(
                self._database, viewer, program.key, program.read(path, log), log
            )
        finally:
            await anyio.to_thread.run_sync(folder.cleanup)
        losses = [loss.what for loss in log.losses.values()] + [damage.text for damage in log.damages]
        return FileImport(
            program=program.title,
            created=report.created,
            extended=report.extended,
            unchanged=report.unchanged,
            messages=report.messages,
            losses=losses[:_MAX_LOSSES],
        )

    async def _import_own(self, viewer: Viewer, body: bytes) -> FileImport:
        report = await importer.import_sessions(
            self._database, self._database.clock, viewer, BytesIO(body), size=len(body)
        )
        return FileImport(
            program=OWN_NAME,
            created=report.created,
            extended=report.extended,
            unchanged=report.unchanged,
            messages=report.messages,
            losses=[problem.text for problem in report.troubles[:_MAX_LOSSES]],
        )


def _is_own_export(body: bytes) -> bool:
    end = body.find(b"\n", 0, _MAX_HEADER_BYTES)
    try:
        header = codec.loads_foreign(body[: _MAX_HEADER_BYTES if end < 0 else end], dict[str, object])
    except Invalid:
        return False
    return header.get("format") == records.FORMAT


def _find_program(path: Path) -> Program | None:
    """Return the program whose reader finds most in the beginning of a file, `None` if none finds a message. Blocks."""
    best, most = None, 0
    for program in importers.PROGRAMS.values():
        log, count = ImportLog(), 0
        try:
            for session in islice(program.read(path, log), _TRIED_SESSIONS):
                tried = islice(session.entries(), _TRIED_ENTRIES)
                count += sum(isinstance(entry, ForeignMessage) for entry in tried)
        except (Invalid, OSError):
            continue
        if count - len(log.damages) > most:
            best, most = program, count - len(log.damages)
    return best
