"""Sends watched conversations to a Keryx on another machine, with the key of a device."""

import asyncio
import ssl
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import msgspec

from keryx.core import codec
from keryx.core.cache import LruCache
from keryx.core.errors import Conflict, Forbidden, Invalid, KeryxError, Unavailable
from keryx.core.messages import Role
from keryx.engine.conversation_import import ConversationReport
from keryx.engine.takeover import ProgramStateChange
from keryx.importers import pushed_session
from keryx.importers.conversation import ForeignEntry, ForeignMessage, ForeignSession, ImportLog
from keryx.importers.pushed_session import PushedEntry, PushedSession
from keryx.store.imports import hash_record

_SECONDS = 60.0
_BATCH_SIZE = 500
_BATCH_BYTES = 4_000_000
# Sessions whose records are remembered, so that the other side is not asked each time.
_MAX_REMEMBERED = 200
_NOTHING: tuple[tuple[PushedEntry, ...], bool] = ((), True)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class _Known(msgspec.Struct, kw_only=True):
    """What the other side has of a session."""

    fingerprint: str
    records: set[int]


class PushTarget:
    """A Keryx elsewhere. Use it as a context manager. What it does not take stays in the files of the programs."""

    def __init__(
        self, url: str, key: str, *, machine: str, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        check_address(url)
        self._machine = machine
        self._known = LruCache[tuple[str, str], _Known](_MAX_REMEMBERED)
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {key}"},
            timeout=_SECONDS,
            follow_redirects=False,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def load_files(self, program: str) -> dict[str, str]:
        query = {"machine": self._machine, "program": program}
        answer = await self._request("GET", "/api/watch/files", params=query)
        return codec.loads(answer, _Files).files

    async def take(
        self, program: str, sessions: Iterator[ForeignSession], stamps: Mapping[str, str], log: ImportLog
    ) -> ConversationReport:
        report = ConversationReport(program=program)
        while (session := await asyncio.to_thread(next, sessions, None)) is not None:
            known = await self._load_known(program, session.id)
            packed = pushed_session.pack_session(session, program, self._machine, stamps)
            same = session.fingerprint and session.fingerprint == known.fingerprint
            batches = iter([_NOTHING]) if same else _split_batches(session, known.records)
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                entries, last = batch
                await self._push(packed, entries, report, last=last)
                known.records |= {hash_record(entry.id) for entry in entries}
            known.fingerprint = session.fingerprint
        return report

    async def set_states(self, states: Sequence[ProgramStateChange]) -> None:
        body = [{"program": s.program, "id": s.source, "state": s.state.value} for s in states]
        await self._request("PUT", "/api/watch/states", content=codec.dumps({"states": body}))

    async def _push(
        self,
        packed: PushedSession,
        entries: tuple[PushedEntry, ...],
        report: ConversationReport,
        *,
        last: bool,
    ) -> None:
        more = {} if last else {"fingerprint": "", "stamp": None}
        body = msgspec.structs.replace(packed, entries=entries, **more)
        answer = await self._request("POST", "/api/watch/sessions", content=codec.dumps(body))
        added = codec.loads(answer, _Added)
        report.created += added.created
        report.extended += added.extended
        report.messages += added.messages

    async def _load_known(self, program: str, id_: str) -> _Known:
        known = self._known.get((program, id_))
        if known is None:
            body = codec.dumps({"program": program, "id": id_})
            answer = codec.loads(await self._request("POST", "/api/watch/known", content=body), _Records)
            records = {int(record, 16) for record in answer.records}
            known = _Known(fingerprint=answer.fingerprint, records=records)
            self._known.put((program, id_), known)
        return known

    async def _request(self, method: str, path: str, **options: Any) -> bytes:
        """Return the body of the response. Raise `Unavailable` if there is none, `Forbidden` for a key that is refused, and
        `Invalid` for a request that is refused whenever it comes."""
        try:
            response = await self._client.request(
                method, path, headers={"Content-Type": "application/json"}, **options
            )
        except (httpx.HTTPError, ssl.SSLError) as exc:
            self._known.clear()
            raise Unavailable(
                f"{self._client.base_url} cannot be reached: {exc or type(exc).__name__}"
            ) from exc
        if response.is_success:
            return response.content
        self._known.clear()
        raise _build_error(response, str(self._client.base_url))


class _Files(msgspec.Struct):
    files: dict[str, str]


class _Records(msgspec.Struct):
    fingerprint: str = ""
    records: list[str] = []


class _Added(msgspec.Struct):
    created: int = 0
    extended: int = 0
    messages: int = 0


def check_address(url: str) -> None:
    """Raise `Invalid` for an address that a key must not be sent to."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(f"{url[:200]!r} is not an address: write https://HOST")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise Invalid("http:// would send the key and the conversations unencrypted: write https://")


def _build_error(response: httpx.Response, address: str) -> KeryxError:
    reason = f"{address} answers {response.status_code}"
    match response.status_code:
        case 401 | 403:
            return Forbidden(
                f"{reason}: the key is wrong or was revoked; `keryx keys add` there makes another one"
            )
        case 409:
            return Conflict(f"{reason}: it takes the same conversation from elsewhere now")
        case 404 | 405:
            return Unavailable(f"{reason}: it is no Keryx, or an older one")
        case status if 400 <= status < 500 and status not in (408, 425, 429):
            return Invalid(f"{reason}: {response.text[:500]}")
        case _:
            return Unavailable(reason)


def _split_batches(
    session: ForeignSession, known: set[int]
) -> Iterator[tuple[tuple[PushedEntry, ...], bool]]:
    """Yield the entries to send, and whether a batch is the last one. The records of one answer are in one batch."""
    batch: list[PushedEntry] = []
    size = 0
    question: PushedEntry | None = None
    for entry, is_known in _select_entries(session.entries(), known):
        packed = pushed_session.pack_entry(entry, known=is_known)
        joins = isinstance(entry, ForeignMessage) and entry.joins
        if not joins and (len(batch) >= _BATCH_SIZE or size >= _BATCH_BYTES):
            yield tuple(batch), False
            # What follows belongs to the last question.
            batch, size = [question] if question else [], 0
        batch.append(packed)
        size += len(codec.dumps(packed))
        if isinstance(entry, ForeignMessage) and entry.role is Role.USER:
            question = pushed_session.pack_entry(entry, known=True)
    yield tuple(batch), True


def _select_entries(entries: Iterator[ForeignEntry], known: set[int]) -> Iterator[tuple[ForeignEntry, bool]]:
    """Yield the entries that are new, the question before them, and known messages of branches that were left."""
    question: ForeignEntry | None = None
    for entry in entries:
        message = entry if isinstance(entry, ForeignMessage) else None
        if hash_record(entry.id) not in known:
            if question:
                yield question, True
                question = None
            yield entry, False
        elif message and message.undone:
            yield entry, True
        elif message and message.role is Role.USER:
            question = entry
