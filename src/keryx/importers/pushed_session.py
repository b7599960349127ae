"""The form in which a watcher sends conversations to a Keryx on another machine."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from keryx.core.errors import Invalid
from keryx.core.messages import Mark, Notice, Parts, Role
from keryx.core.sessions import PROGRAM_TITLES, TitleBy
from keryx.importers.conversation import (
    ForeignCall,
    ForeignCompaction,
    ForeignEntry,
    ForeignFile,
    ForeignMessage,
    ForeignSession,
    ForeignUsage,
)

# Larger files are left where they are.
MAX_FILE_BYTES = 5_000_000

_Id = Annotated[str, Meta(min_length=1, max_length=1000)]
_Name = Annotated[str, Meta(max_length=4096)]
_Time = Annotated[datetime, Meta(tz=True)]


class PushedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: _Name
    mime: _Name = ""
    body: bytes


class PushedMessage(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message", forbid_unknown_fields=True
):
    id: _Id
    role: Role
    parts: Parts = ()
    at: _Time
    undone: bool = False
    joins: bool = False
    exact: str | None = None
    mark: Mark | None = None
    files: tuple[PushedFile, ...] = ()
    usage: tuple[ForeignUsage, ...] = ()


class PushedCompaction(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag="compaction",
    forbid_unknown_fields=True,
):
    id: _Id
    summary: str
    at: _Time
    first_kept: str = ""


class PushedCall(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call", forbid_unknown_fields=True
):
    id: _Id
    at: _Time
    usage: ForeignUsage


PushedEntry: TypeAlias = PushedMessage | PushedCompaction | PushedCall


class PushedSession(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """New entries of a session, and those before them that they refer to. The fingerprint is empty and there is no stamp if
    more entries follow."""

    program: str
    machine: Annotated[str, Meta(min_length=1, max_length=200)]
    id: _Id
    place: _Name
    stamp: _Name | None = None
    fingerprint: _Name = ""
    created_at: _Time
    surface: Annotated[str, Meta(min_length=1, max_length=40)]
    title: _Name = ""
    title_by: TitleBy | None = None
    cwd: _Name = ""
    pinned: bool = False
    archived: bool = False
    project: _Name = ""
    parent: _Name = ""
    parent_record: _Name = ""
    subagent: bool = False
    aliases: tuple[_Id, ...] = ()
    totals: tuple[ForeignUsage, ...] = ()
    entries: tuple[PushedEntry, ...] = ()

    def __post_init__(self) -> None:
        if self.program not in PROGRAM_TITLES:
            raise ValueError(f"{self.program[:80]!r} is not a program that can be watched")


def pack_session(
    session: ForeignSession, program: str, machine: str, stamps: Mapping[str, str]
) -> PushedSession:
    """Return a session in this form, without entries."""
    return PushedSession(
        program=program,
        machine=machine,
        id=session.id,
        place=session.place,
        stamp=stamps.get(session.place),
        fingerprint=session.fingerprint,
        created_at=session.created_at,
        surface=session.surface,
        title=session.title[:4096],
        title_by=session.title_by,
        cwd=session.cwd,
        pinned=session.pinned,
        archived=session.archived,
        project=session.project,
        parent=session.parent,
        parent_record=session.parent_record,
        subagent=session.subagent,
        aliases=session.aliases,
        totals=session.totals,
    )


def pack_entry(entry: ForeignEntry, *, known: bool) -> PushedEntry:
    """Return an entry in this form; one that is known there without its content. Reads its files."""
    match entry:
        case ForeignCompaction():
            return PushedCompaction(**_pick(entry, PushedCompaction))
        case ForeignCall():
            return PushedCall(**_pick(entry, PushedCall))
        case ForeignMessage() if known:
            return PushedMessage(
                id=entry.id, role=entry.role, at=entry.at, undone=entry.undone, joins=entry.joins
            )
        case ForeignMessage():
            # The parts have a notice for each file that stays behind.
            files: list[PushedFile] = []
            parts = list(entry.parts)
            for file in entry.files:
                try:
                    body = file.load()
                    if len(body) > MAX_FILE_BYTES:
                        raise Invalid("it is too large to be sent")
                    files.append(PushedFile(name=file.name[:4096], mime=file.mime[:4096], body=body))
                except Invalid as exc:
                    parts.append(Notice(f"The file {file.name} was not imported: {exc}.", "file"))
            fields: dict[str, Any] = {
                **_pick(entry, PushedMessage),
                "files": tuple(files),
                "parts": tuple(parts),
            }
            return PushedMessage(**fields)


def _pick(entry: ForeignEntry, kind: type[msgspec.Struct]) -> dict[str, Any]:
    fields = msgspec.structs.asdict(entry)
    return {name: fields[name] for name in kind.__struct_fields__}


def unpack_session(pushed: PushedSession) -> ForeignSession:
    """Return what was sent as a session that can be imported."""
    return ForeignSession(
        **{
            name: value
            for name, value in msgspec.structs.asdict(pushed).items()
            if name not in ("program", "machine", "stamp", "entries")
        },
        entries=lambda: map(_unpack_entry, pushed.entries),
    )


def _unpack_entry(entry: PushedEntry) -> ForeignEntry:
    match entry:
        case PushedCompaction():
            return ForeignCompaction(**msgspec.structs.asdict(entry))
        case PushedCall():
            return ForeignCall(**msgspec.structs.asdict(entry))
        case PushedMessage():
            files = tuple(
                ForeignFile(name=file.name, mime=file.mime, load=lambda body=file.body: body)
                for file in entry.files
            )
            fields: dict[str, Any] = {**msgspec.structs.asdict(entry), "files": files}
            return ForeignMessage(**fields)
