"""Files by the hash of their bytes, in chunks, with their holders and the sessions that show them. A file without holder and session is removed."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from keryx.core import codec
from keryx.core.clock import to_micros
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, SessionId
from keryx.core.media import filter_media
from keryx.core.messages import Part
from keryx.core.sessions import Viewer
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

CHUNK_SIZE = 256 * 1024
PLATFORM_OWNER_PREFIX = "door:"


class MediaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a file without reading it."""

    id: str
    mime: str
    name: str
    size: int


_INFO_ROWS = RowMapper(MediaInfo, json={"name"})


def begin_write(tx: Transaction, id_: str, *, size: int) -> bool:
    """Prepare to write a file; return whether it is stored completely already."""
    tx.run(
        """
        insert into media (id, size, written_at) values (:id, :size, :now)
        on conflict (id) do update set written_at = excluded.written_at
        """,
        {"id": id_, "size": size, "now": to_micros(tx.now)},
    )
    row = tx.row("select whole from media where id = :id", {"id": id_})
    return bool(row and row[0])


def write_chunk(tx: Transaction, id_: str, n: int, body: bytes) -> None:
    """Store one chunk of a file that was begun. Storing it again changes nothing."""
    tx.run(
        "insert into media_chunks (media, n, body) values (:id, :n, :body) on conflict (media, n) do nothing",
        {"id": id_, "n": n, "body": body},
    )


def finish_write(
    tx: Transaction,
    id_: str,
    *,
    size: int,
    profile: str,
    owner: str,
    mime: str,
    name: str,
    session: SessionId | None = None,
) -> bool:
    """Make a file visible to its uploader if it is complete; return whether it is."""
    tx.row(f"select 1 from media where id = :id{tx.for_update}", {"id": id_})
    row = tx.row("select coalesce(sum(length(body)), -1) from media_chunks where media = :id", {"id": id_})
    if row is None or row[0] != size:
        return False
    tx.run("update media set whole = 1 where id = :id", {"id": id_})
    tx.run(
        """
        insert into media_holders (media, profile, owner, mime, name, created_at)
        values (:id, :profile, :owner, :mime, :name, :now)
        on conflict (media, profile, owner) do update
        set mime = excluded.mime, name = excluded.name, created_at = excluded.created_at
        """,
        {
            "id": id_,
            "profile": profile,
            "owner": owner,
            "mime": mime,
            "name": tx.keys.seal(session, codec.dumps(name)),
            "now": to_micros(tx.now),
        },
    )
    return True


def find_for_viewer(tx: Transaction, viewer: Viewer, id_: str) -> MediaInfo | None:
    """A file that the viewer brought, or that a session shows which the viewer sees; else `None`."""
    params = {"id": id_, "profile": viewer.profile, "owner": viewer.owner}
    row = tx.row(
        """
        select h.media, h.mime, h.name, m.size from media_holders h join media m on m.id = h.media
        where h.media = :id and h.profile = :profile and h.owner = coalesce(cast(:owner as text), h.owner)
        limit 1
        """,
        params,
    ) or tx.row(
        """
        select l.media, l.mime, l.name, m.size
        from media_links l
        join media m on m.id = l.media
        join sessions s on s.id = l.session
        where l.media = :id and s.profile = :profile and s.owner = coalesce(cast(:owner as text), s.owner)
          and s.deleted_at is null
        limit 1
        """,
        params,
    )
    return _INFO_ROWS.decode_optional(row)


def find_in_session(tx: Transaction, session: SessionId, id_: str) -> MediaInfo | None:
    """A file that a session shows; else `None`."""
    row = tx.row(
        """
        select l.media, l.mime, l.name, m.size from media_links l join media m on m.id = l.media
        where l.session = :session and l.media = :id
        """,
        {"session": session, "id": id_},
    )
    return _INFO_ROWS.decode_optional(row)


def list_for_session(tx: Transaction, session: SessionId) -> list[MediaInfo]:
    """The files that a session shows."""
    rows = tx.rows(
        """
        select l.media, l.mime, l.name, m.size from media_links l join media m on m.id = l.media
        where l.session = :session order by l.media
        """,
        {"session": session},
    )
    return _INFO_ROWS.decode_all(rows)


def is_sealed_for(tx: Transaction, session: SessionId, id_: str) -> bool:
    """Whether a file is sealed with the key of a temporary session."""
    row = tx.row("select substr(body, 1, 300) from media_chunks where media = :id and n = 0", {"id": id_})
    return row is not None and tx.keys.find_file_session(bytes(row[0])) == session


def read_chunks(tx: Transaction, id_: str) -> Iterator[bytes]:
    """The bytes of a file, chunk by chunk."""
    n = 0
    while (body := read_chunk(tx, id_, n)) is not None:
        yield body
        n += 1


def read_chunk(tx: Transaction, id_: str, n: int) -> bytes | None:
    """Return one chunk of a file, as it is stored; `None` after the last."""
    row = tx.row("select body from media_chunks where media = :id and n = :n", {"id": id_, "n": n})
    return bytes(row[0]) if row else None


def link(tx: Transaction, session: SessionId, parts: Sequence[Part], *, profile: str, owner: str) -> None:
    """Link the files among the parts of a message to a session.

    Only those uploaded by its owner, the operator or a platform, or linked to another session of the owner: guessing
    the hash of a file must not give access to it."""
    for part in filter_media(parts):
        tx.run(
            """
            insert into media_links (session, media, mime, name)
            select s.id, m.id, :mime, :name
            from sessions s, media m
            where s.id = :session and m.id = :id and m.whole = 1 and (
              exists (
                select 1 from media_holders h
                where h.media = m.id
                  and ((h.profile = :profile and h.owner in (:owner, :operator)) or h.owner like :doors)
              )
              or exists (
                select 1 from media_links l join sessions o on o.id = l.session
                where l.media = m.id and o.profile = :profile and o.owner = :owner
              )
            )
            on conflict (session, media) do nothing
            """,
            {
                "session": session,
                "id": part.media,
                "mime": part.mime,
                "name": tx.keys.seal(session, codec.dumps(part.name)),
                "profile": profile,
                "owner": owner,
                "operator": OPERATOR,
                "doors": f"{PLATFORM_OWNER_PREFIX}%",
            },
        )


def copy_links(tx: Transaction, *, source: SessionId, target: SessionId, parts: Sequence[Part]) -> None:
    """Link those files of a message to a copy of a session that the original is linked to."""
    for part in filter_media(parts):
        tx.run(
            """
            insert into media_links (session, media, mime, name)
            select :target, media, mime, name from media_links where session = :source and media = :id
            on conflict (session, media) do nothing
            """,
            {"source": source, "target": target, "id": part.media},
        )


def remove_for_session(
    tx: Transaction, session: SessionId, *, profile: ProfileId, owner: PrincipalId
) -> None:
    """Before a session is erased: remove the files that only it shows."""
    for known in list_for_session(tx, session):
        tx.run(
            "delete from media_links where session = :session and media = :id",
            {"session": session, "id": known.id},
        )
        tx.run(
            """
            delete from media_holders
            where media = :id and ((profile = :profile and owner = :owner) or owner like :doors)
            """,
            {"id": known.id, "profile": profile, "owner": owner, "doors": f"{PLATFORM_OWNER_PREFIX}%"},
        )
        remove_unused(tx, known.id)


def get_sizes(tx: Transaction, ids: Sequence[str]) -> dict[str, int]:
    """Return the sizes of files in bytes, by id, without those that are not there."""
    rows = tx.rows(f"select id, size from media where id {tx.in_names}", {"names": json.dumps(list(ids))})
    return {id_: int(size) for id_, size in rows}


def unlink(tx: Transaction, session: SessionId, parts: Sequence[Part], *, seq: int) -> None:
    """The message `seq` no longer shows these files: remove those that nothing else of its session shows."""
    for part in filter_media(parts):
        tx.run(
            """
            delete from media_links
            where session = :session and media = :id and not exists (
              select 1 from messages m
              where m.session = :session and m.seq <> :seq and m.parts like '%' || :id || '%'
            )
            """,
            {"session": session, "id": part.media, "seq": seq},
        )
        tx.run(
            "delete from media_holders where media = :id and owner like :doors",
            {"id": part.media, "doors": f"{PLATFORM_OWNER_PREFIX}%"},
        )
        remove_unused(tx, part.media)


def remove_for_owner(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> None:
    """Remove the uploads of a person."""
    params = {"profile": profile, "owner": owner}
    rows = tx.rows("select media from media_holders where profile = :profile and owner = :owner", params)
    tx.run("delete from media_holders where profile = :profile and owner = :owner", params)
    for (id_,) in rows:
        remove_unused(tx, id_)


def trim_holders(tx: Transaction, *, before: datetime) -> int:
    """Remove the holders of old uploads, except for those that wait for an instance of the relay: from now on only
    sessions keep the files."""
    return tx.count(
        """
        delete from media_holders
        where created_at < :before
          and not exists (select 1 from relay_files f where f.media = media_holders.media)
        """,
        {"before": to_micros(before)},
    )


def list_unused(tx: Transaction, *, before: datetime, limit: int = 100) -> list[str]:
    """Return old files without holder and session, incomplete ones included."""
    rows = tx.rows(
        """
        select m.id from media m
        where m.written_at < :before
          and not exists (select 1 from media_links l where l.media = m.id)
          and not exists (select 1 from media_holders h where h.media = m.id)
        order by m.written_at limit :limit
        """,
        {"before": to_micros(before), "limit": limit},
    )
    return [str(row[0]) for row in rows]


def remove_unused(tx: Transaction, id_: str) -> None:
    """Remove a file, unless it is in use again."""
    tx.row(f"select 1 from media where id = :id{tx.for_update}", {"id": id_})
    tx.run(
        """
        delete from media
        where id = :id
          and not exists (select 1 from media_links l where l.media = :id)
          and not exists (select 1 from media_holders h where h.media = :id)
        """,
        {"id": id_},
    )


def find_damaged(tx: Transaction) -> Iterator[tuple[str, str]]:
    """Yield every file whose bytes do not match its id, with the difference."""
    last = ""
    while row := tx.row(
        "select id, size, whole from media where id > :last order by id limit 1", {"last": last}
    ):
        last, size, whole = row
        if not whole:
            continue
        digest, length = hashlib.sha256(), 0
        for chunk in read_chunks(tx, last):
            digest.update(chunk)
            length += len(chunk)
        if length != size:
            yield last, f"has {length} bytes instead of {size}"
        elif digest.hexdigest() != last:
            yield last, "holds other bytes than its id stands for"
