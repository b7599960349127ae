"""Storage of attachments: files are written in chunks, each in its own transaction, and read by viewers who may see them."""

from collections.abc import AsyncGenerator, Sequence
from functools import partial

import anyio.to_thread

from keryx.core import media
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import DEFAULT_PROFILE, PrincipalId, SessionId
from keryx.core.media import Attachment
from keryx.core.media import Media as Part
from keryx.core.sessions import Viewer
from keryx.core.text import format_count
from keryx.core.texts import Phrase
from keryx.store import media as store
from keryx.store.db import Database, Transaction

_MAX_TRIES = 3


class MediaStorage:
    """Stores and loads files."""

    def __init__(self, database: Database, *, limit: int) -> None:
        self._database = database
        # The size of the largest file, in bytes.
        self.limit = limit

    async def save(self, viewer: Viewer, attachment: Attachment, *, session: SessionId | None = None) -> Part:
        """Store a file and return its message part. Raise `Invalid` if it is empty or too large.

        The file is kept for a day, and then as long as a session shows it. That of a temporary session is sealed, so the
        session has to be named."""
        self._check(attachment)
        kind, name = media.detect_mime(attachment.mime, attachment.body), media.clean_name(attachment.name)
        # Some milliseconds for each megabyte, during which the event loop would be blocked.
        body, id_ = await anyio.to_thread.run_sync(self._encode, attachment.body, session)
        for _ in range(_MAX_TRIES):
            await self._write_chunks(id_, body)
            finish = partial(
                store.finish_write,
                id_=id_,
                size=len(body),
                profile=viewer.profile,
                owner=viewer.principal,
                mime=kind,
                name=name,
                session=session,
            )
            if await self._database.write("media.finish", finish):
                return media.build_part(id_, kind, name)
        raise Conflict(Phrase("file.removed", name=name or Phrase("file.unnamed")))

    async def fetch(self, viewer: Viewer, media_id: str) -> Attachment:
        """Load a file that the viewer uploaded or sees in a session. Raise `NotFound` for any other."""

        def work(tx: Transaction) -> Attachment:
            return _load_attachment(tx, store.find_for_viewer(tx, viewer, media_id), media_id)

        return await self._database.read("media.fetch", work)

    async def load_parts(self, viewer: Viewer, media_ids: Sequence[str]) -> dict[str, Part]:
        """Return the parts of files, without those that the viewer may not see."""

        def work(tx: Transaction) -> dict[str, Part]:
            infos = filter(None, (store.find_for_viewer(tx, viewer, id_) for id_ in media_ids))
            return {info.id: media.build_part(info.id, info.mime, info.name) for info in infos}

        return await self._database.read("media.parts", work) if media_ids else {}

    async def fetch_for_session(self, session: SessionId, media_id: str) -> Attachment:
        """Load a file of a session for the engine itself. Raise `NotFound` if the session does not show it."""

        def work(tx: Transaction) -> Attachment:
            return _load_attachment(tx, store.find_in_session(tx, session, media_id), media_id)

        return await self._database.read("media.fetch", work)

    async def read_chunks(self, media_id: str) -> AsyncGenerator[bytes]:
        """Yield a file that is not sealed in pieces. Each is read alone, so that nobody who takes them slowly holds the
        file in memory, or a reader of the store."""
        n = 0
        while (
            body := await self._database.read("media.chunk", partial(store.read_chunk, id_=media_id, n=n))
        ) is not None:
            yield body
            n += 1

    def _encode(self, body: bytes, session: SessionId | None) -> tuple[bytes, str]:
        """Return the stored form of a file, and its id."""
        stored = self._database.keys.seal_file(session, body) if session else body
        return stored, media.hash_body(stored)

    async def _write_chunks(self, id_: str, body: bytes) -> None:
        """Store the chunks, each in its own transaction."""
        if await self._database.write("media.begin", partial(store.begin_write, id_=id_, size=len(body))):
            return
        for n, start in enumerate(range(0, len(body), store.CHUNK_SIZE)):
            piece = body[start : start + store.CHUNK_SIZE]
            await self._database.write("media.chunk", partial(store.write_chunk, id_=id_, n=n, body=piece))

    def _check(self, attachment: Attachment) -> None:
        name = media.clean_name(attachment.name) or Phrase("file.unnamed")
        if not attachment.body:
            raise Invalid(Phrase("file.empty", name=name))
        if len(attachment.body) > self.limit:
            size, limit = _format_size(len(attachment.body)), _format_size(self.limit)
            raise Invalid(Phrase("file.not_kept", name=name, size=size, limit=limit))


def build_adapter_viewer(platform: str, account: str) -> Viewer:
    """Return the owner of a platform's files until the message is received and its owner is known."""
    return Viewer(DEFAULT_PROFILE, PrincipalId(f"{store.PLATFORM_OWNER_PREFIX}{platform}:{account}"))


def _load_attachment(tx: Transaction, info: store.MediaInfo | None, media_id: str) -> Attachment:
    if info is None:
        raise NotFound(Phrase("file.unknown", name=repr(media_id[:80])))
    body = tx.keys.unseal_file(b"".join(store.read_chunks(tx, info.id)))
    return Attachment(name=info.name, mime=info.mime, body=body)


def _format_size(count: int) -> str:
    return f"{count / 1_000_000:.1f} MB" if count >= 100_000 else format_count(count, "byte")
