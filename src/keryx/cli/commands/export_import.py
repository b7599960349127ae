"""`keryx sessions export` and `keryx sessions import`."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, TypeAlias

import msgspec
from cyclopts import Parameter

from keryx.cli import output
from keryx.cli.options import FLAG, Json, load_base
from keryx.cli.output import STDIO, format_count
from keryx.cli.progress_bar import show_progress
from keryx.core.errors import Invalid
from keryx.engine import export as exporter
from keryx.engine import importer
from keryx.engine.export import ExportFormat
from keryx.store import sessions

_FORMATS = {
    "md": ExportFormat.MD,
    "markdown": ExportFormat.MD,
    "html": ExportFormat.HTML,
    "htm": ExportFormat.HTML,
}


_Format: TypeAlias = Annotated[
    ExportFormat | None,
    Parameter(help="jsonl (complete, can be imported), md or html. Without it, by the name of the file."),
]
_OutputFile: TypeAlias = Annotated[
    str,
    Parameter(name=["--output", "-o"], allow_leading_hyphen=True, help="The file to write, - for stdout."),
]


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    format: ExportFormat
    sessions: int
    messages: int
    redacted: bool


async def export(
    *refs: Annotated[str, Parameter(help="Conversations: ids, beginnings of ids, titles, or old ids.")],
    all_: Annotated[
        bool, FLAG, Parameter(name="--all", help="Every conversation, archived ones too.")
    ] = False,
    format: _Format = None,
    output_: _OutputFile = STDIO,
    redact: Annotated[
        bool, FLAG, Parameter(help="Hide e-mail addresses, phone numbers, ids of people, and secrets.")
    ] = False,
    json: Json = False,
) -> None:
    """Write conversations to a file: complete as JSONL, or to be read as Markdown or one HTML page.

    For example:

        keryx sessions export oslo --output oslo.html
        keryx sessions export --all --output everything.jsonl
        keryx sessions export oslo --format md --redact
    """
    if bool(refs) == all_:
        raise Invalid("name the conversations to export, or give --all")
    if json and output_ == STDIO:
        raise Invalid("--json tells about a file: give its name with --output")
    chosen_format = format or _FORMATS.get(Path(output_).suffix.lower().lstrip("."), ExportFormat.JSONL)
    app = load_base()
    async with app.database as database:
        chosen = [
            await database.read("resolve", lambda tx, ref=ref: sessions.resolve(tx, app.viewer, ref))
            for ref in refs
        ]
        with show_progress() as progress, output.open_writer(output_) as write:
            done = await exporter.export(
                database,
                app.viewer,
                None if all_ else [session.id for session in chosen],
                chosen_format,
                write,
                redact=redact,
                progress=progress,
            )
    if output_ != STDIO:
        report = ExportReport(
            file=output_,
            format=chosen_format,
            sessions=done.sessions,
            messages=done.messages,
            redacted=redact,
        )
        contents = (
            f"{format_count(done.sessions, 'conversation')} with {format_count(done.messages, 'message')}"
        )
        output.write_result(f"{contents} written to {output_}.", report, json)


async def import_(
    file: Annotated[str, Parameter(allow_leading_hyphen=True, help="A JSONL export, - for stdin.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Bring back conversations that `keryx sessions export` wrote as JSONL.

    What is here stays as it is: importing again changes nothing, a longer export adds what is new, and a
    conversation that differs is named and left alone. The exit code is 1 if anything had to be left out.

        keryx sessions import everything.jsonl
        ssh host keryx sessions export --all | keryx sessions import -
    """
    app = load_base()
    with _open_input(file) as (stream, size), show_progress() as progress:
        async with app.database as database:
            report = await importer.import_sessions(
                database, app.clock, app.viewer, stream, size=size, progress=progress
            )
    if json:
        output.write_json(report)
    else:
        output.write_fields(
            [
                ("new", str(report.created)),
                ("longer now", str(report.extended)),
                ("unchanged", str(report.unchanged)),
                ("left out", str(report.skipped)),
                ("messages added", str(report.messages)),
            ]
        )
        for trouble in report.troubles:
            about = f" ({trouble.session})" if trouble.session else ""
            output.warn(f"line {trouble.line}{about}: {trouble.text}")
        if report.untold:
            output.warn(f"and {report.untold} more of these")
    return 1 if report.damage else 0


@contextmanager
def _open_input(name: str) -> Generator[tuple[BinaryIO, int]]:
    if name == STDIO:
        yield sys.stdin.buffer, 0
        return
    try:
        handle = os.open(name, os.O_RDONLY)
    except OSError as exc:
        raise Invalid(f"{name} cannot be read ({exc.strerror}): give the name of an export") from exc
    with os.fdopen(handle, "rb") as stream:
        yield stream, os.fstat(handle).st_size
