"""Exchange: conversations leave as files and come back."""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from cyclopts import Parameter

from keryx.cli import output
from keryx.cli.access import Json, base
from keryx.cli.progress import bar
from keryx.core.errors import Invalid
from keryx.engine.exchange import export as exporting
from keryx.engine.exchange import load as loading
from keryx.engine.exchange.export import Exported, Format
from keryx.store import lookup

_STDIO = "-"
_FLAG = Parameter(negative="", show_default=False)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    format: Format
    sessions: int
    messages: int
    redacted: bool


async def export(
    *refs: Annotated[str, Parameter(help="Conversations: ids, beginnings of ids, titles, or old ids.")],
    all_: Annotated[
        bool, _FLAG, Parameter(name="--all", help="Every conversation, archived ones too.")
    ] = False,
    format: Annotated[
        Format | None,
        Parameter(help="jsonl (complete, can be imported), md or html. Without it, by the name of the file."),
    ] = None,
    output_: Annotated[
        str,
        Parameter(
            name=["--output", "-o"], allow_leading_hyphen=True, help="The file to write, - for stdout."
        ),
    ] = _STDIO,
    redact: Annotated[
        bool, _FLAG, Parameter(help="Hide e-mail addresses, phone numbers, ids of people, and secrets.")
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
    if json and output_ == _STDIO:
        raise Invalid("--json tells about a file: give its name with --output")
    chosen_format = format or _by_name(output_)
    app = base()
    async with app.database as database:
        found = [
            await database.read("resolve", lambda tx, ref=ref: lookup.resolve(tx, app.viewer, ref))
            for ref in refs
        ]
        with bar() as progress, writer(output_) as write:
            done = await exporting.export(
                database,
                app.viewer,
                None if all_ else [session.id for session in found],
                chosen_format,
                write,
                redact=redact,
                progress=progress,
            )
    if output_ != _STDIO:
        _tell_written(output_, chosen_format, done, redact, json)


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
    app = base()
    with _opened(file) as (stream, size), bar() as progress:
        async with app.database as database:
            report = await loading.load(database, app.clock, app.viewer, stream, size=size, progress=progress)
    if json:
        output.json(report)
    else:
        _print_report(report)
    return 1 if report.damage else 0


def _by_name(name: str) -> Format:
    suffix = Path(name).suffix.lower().lstrip(".")
    names = {"md": Format.MD, "markdown": Format.MD, "html": Format.HTML, "htm": Format.HTML}
    return names.get(suffix, Format.JSONL)


@contextmanager
def writer(name: str) -> Generator[Callable[[str], object]]:
    """Writes to stdout, or to a file that appears under its name when it is complete."""
    if name == _STDIO:
        yield sys.stdout.write
        return
    target = Path(name)
    partial = target.with_name(f"{target.name}.partial")
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
                yield stream.write
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as exc:
        raise Invalid(f"{name} cannot be written ({exc.strerror}): give another file with --output") from exc


@contextmanager
def _opened(name: str) -> Generator[tuple[BinaryIO, int]]:
    if name == _STDIO:
        yield sys.stdin.buffer, 0
        return
    try:
        handle = os.open(name, os.O_RDONLY)
    except OSError as exc:
        raise Invalid(f"{name} cannot be read ({exc.strerror}): give the name of an export") from exc
    with os.fdopen(handle, "rb") as stream:
        yield stream, os.fstat(handle).st_size


def _tell_written(name: str, format: Format, done: Exported, redacted: bool, json: bool) -> None:
    written = Written(
        file=name, format=format, sessions=done.sessions, messages=done.messages, redacted=redacted
    )
    if json:
        output.json(written)
    else:
        said = f"{_number(done.sessions, 'conversation')} with {_number(done.messages, 'message')}"
        output.write(f"{said} written to {output.plain(name)}.")


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _print_report(report: loading.Report) -> None:
    output.fields(
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
