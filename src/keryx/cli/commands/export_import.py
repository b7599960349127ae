"""`keryx sessions export`, `keryx sessions import`, and `keryx import` for the conversations of other programs."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, TypeAlias

import msgspec
from cyclopts import App, Parameter

from keryx import importers
from keryx.cli import output
from keryx.cli.options import FLAG, Json, find_terminal_language, load_base
from keryx.cli.output import STDIO, format_count, show_progress
from keryx.core.errors import Invalid
from keryx.core.texts import Reader
from keryx.engine import conversation_import, importer
from keryx.engine import export as exporter
from keryx.engine.conversation_import import ConversationReport
from keryx.engine.export import ExportFormat
from keryx.importers.conversation import Damage, ImportLog, LossCount
from keryx.store import sessions

import_app = App(name="import", help="Bring in the conversations of other programs.")
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
                texts=app.settings.policy.texts.speak(find_terminal_language(), "", Reader.OPERATOR),
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


class ProgramPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A program that conversations can be imported from, and where it has some on this machine."""

    name: str
    title: str
    place: str


class ImportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What an import of another program did."""

    source: str
    result: ConversationReport
    # Records that became part of others, by kind.
    folded: dict[str, int]
    losses: list[LossCount]
    damages: list[Damage]
    more_damages: int


@import_app.default
async def import_program(
    program: Annotated[str, Parameter(help="The program. Without it, all are listed.")] = "",
    path: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True, help="Its folder, database or export, if it is not at its usual place."
        ),
    ] = "",
    /,
    *,
    dry_run: Annotated[
        bool, FLAG, Parameter(help="Show what would be imported and what would be lost, and change nothing.")
    ] = False,
    json: Json = False,
) -> int:
    """Bring in the conversations of another program.

    The source is never changed. What was imported before stays as it is: importing again adds
    what is new, and goes on after an interruption. The exit code is 1 if a part of the source could not be read.

        keryx import
        keryx import claude-code --dry-run
        keryx import hermes ~/.hermes
        keryx import chatgpt export.zip
    """
    if not program:
        _list_programs(json)
        return 0
    chosen = importers.find_program(program)
    source = importers.find_source(chosen, path, home=Path.home(), env=os.environ)
    app = load_base()
    log = ImportLog()
    with show_progress() as progress:
        async with app.database as database:
            report = await conversation_import.import_conversations(
                database,
                app.viewer,
                chosen.key,
                chosen.read(source, log),
                log,
                dry_run=dry_run,
                progress=progress,
            )
    summary = ImportSummary(
        source=str(source),
        result=report,
        folded=dict(log.folded),
        losses=sorted(log.losses.values(), key=lambda loss: -loss.count),
        damages=log.damages,
        more_damages=log.more_damages,
    )
    if json:
        output.write_json(summary)
    else:
        _write_summary(summary)
        if not (report.created or report.extended or report.unchanged or log.damages):
            places = [str(place) for place in chosen.find_places(Path.home(), dict(os.environ))]
            usual = f"; its usual place is {' or '.join(places)}" if places else ""
            output.warn(f"keryx: no conversation of {chosen.title} was found in {source}{usual}")
    return 1 if log.damages else 0


def _list_programs(json: bool) -> None:
    places = [
        ProgramPlace(
            name=program.name,
            title=program.title,
            place=next(
                (str(p) for p in program.find_places(Path.home(), dict(os.environ)) if p.exists()), ""
            ),
        )
        for program in importers.PROGRAMS.values()
    ]
    output.write_list(
        "programs",
        places,
        json,
        heads=("name", "program", "found at"),
        rows=[(place.name, place.title, place.place) for place in places],
        flexible=2,
        empty="",
    )


def _write_summary(summary: ImportSummary) -> None:
    report = summary.result
    added = "would be added" if report.dry_run else "added"
    output.write_fields(
        [
            ("source", summary.source),
            ("new conversations", str(report.created)),
            ("longer now", str(report.extended)),
            ("unchanged", str(report.unchanged)),
            ("forks among the new", str(report.forks)),
            ("sub-agents among the new", str(report.subagents)),
            (f"messages {added}", str(report.messages)),
            ("of other branches, or undone", str(report.undone)),
            ("tool calls", str(report.tool_calls)),
            ("files", str(report.files)),
            ("compactions", str(report.compactions)),
            ("model calls with usage", str(report.usage)),
        ]
    )
    rows = [(what, "part of others, or empty", str(count), "") for what, count in summary.folded.items()]
    rows += [(loss.what, "not kept", str(loss.count), loss.place) for loss in summary.losses]
    if rows:
        output.write("")
        output.write_table(("records", "what happens", "count", "first at"), rows, flexible=3, right=(2,))
    for damage in summary.damages:
        output.warn(f"{damage.place}: {damage.text}")
    if summary.more_damages:
        output.warn(f"and {summary.more_damages} more of these")
