"""Receives the mails of one mailbox: by IDLE where the server offers it, otherwise by asking again. The position (UIDVALIDITY, UID) moves with a stored event, and no flag of a mail is read or changed."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx import logs
from keryx.core.cache import LruCache
from keryx.core.durations import Backoff
from keryx.core.errors import Invalid, KeryxError
from keryx.core.messages import Part
from keryx.core.ports.adapter import AdapterContext, LinkState
from keryx.surfaces.gateway.email import bounces, event_parser
from keryx.surfaces.gateway.email.event_parser import MailAccount, MailSummary, ParsedMail
from keryx.surfaces.gateway.email.imap_client import FetchedMail, ImapConnection, ImapRefused, format_date
from keryx.surfaces.gateway.email.mail_headers import MAX_HEADER_BYTES, parse_header
from keryx.surfaces.gateway.email.mail_stream import MailServerUnavailable
from keryx.surfaces.gateway.email.message_sender import MailServers
from keryx.timing import Sleep

log = logging.getLogger(__name__)

POSITION_SCOPE = "position"
# Servers end a connection that is idle for 30 minutes, and many routers one of 10.
IDLE_SECONDS = 9 * 60.0
_CHUNK = 50
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=2))
# After a change of UIDVALIDITY, mails of this long before the last one are read again, because mails do not arrive in the
# order of their dates. Events are remembered for 14 days, so those are recognised.
_OVERLAP = timedelta(days=1)
_REMEMBERED = timedelta(days=12)
# In a row. Some servers break the connection whenever they should hand over a certain mail.
_MOST_FAILURES = 20
_MOST_SENDERS = 10_000
# A mail from this size on is fetched over a connection of its own, so that those behind it do not wait for it.
LARGE_BYTES = 500_000
_LARGE_AT_ONCE = 2
# With more mails beside, the mailbox waits.
_MOST_BESIDE = 20
# What a malformed mail may lead to in the parser.
_PARSE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class MailPosition:
    """How far a mailbox was read."""

    uid_validity: int
    # The last one that was read.
    uid: int
    # When the last mail arrived, in seconds.
    at: int = 0
    # After a change of UIDVALIDITY: mails before this moment were read under other UIDs. 0 if all new UIDs are new mails.
    since: int = 0

    def __str__(self) -> str:
        return f"{self.uid_validity}.{self.uid}.{self.at}.{self.since}"


def parse_position(text: str | None) -> MailPosition | None:
    numbers = (text or "").split(".")
    if len(numbers) != 4 or not all(number.isdigit() for number in numbers):
        return None
    validity, uid, at, since = map(int, numbers)
    return MailPosition(uid_validity=validity, uid=uid, at=at, since=since)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    # The largest mail that is fetched as a whole, in bytes.
    download: int
    # The most mails of one sender in an hour; 0 for no limit.
    per_hour: int
    # Between two looks into the mailbox if the server has no IDLE, in seconds.
    poll: float


class PendingMail:
    """A mail that is received beside those behind it. The stored position stays before it."""

    def __init__(self, uid_validity: int, author: str) -> None:
        self.uid_validity = uid_validity
        self.author = author
        self.done = asyncio.Event()


class MailListener:
    def __init__(
        self,
        servers: MailServers,
        account: MailAccount,
        context: AdapterContext,
        *,
        mailbox: str,
        limits: ListenerLimits,
        sleep: Sleep,
        now: Callable[[], datetime],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._servers = servers
        self._account = account
        self._context = context
        self._mailbox = mailbox
        self._limits = limits
        self._sleep = sleep
        self._now = now
        self._idle_seconds = idle_seconds
        self._position: MailPosition | None = None
        # What the store holds.
        self._stored: MailPosition | None = None
        # The mail that is being handled, and how often the connection broke meanwhile.
        self._current = 0
        self._failures = 0
        self._ignored = 0
        self._detail = ""
        # When the last mails of each sender arrived, in seconds.
        self._arrivals = LruCache[str, deque[float]](_MOST_SENDERS)
        # By UID: large mails, and those that their authors wrote after them.
        self._pending: dict[int, PendingMail] = {}
        self._slots = asyncio.Semaphore(_LARGE_AT_ONCE)
        # What ended the receipt of a large mail.
        self._error: KeryxError | None = None

    async def run(self) -> None:
        """Receive until cancelled, and reconnect after failures. Raise `Forbidden` if the server refuses the credentials."""
        async with anyio.create_task_group() as group:
            try:
                await self._receive_forever(group)
            except KeryxError as exc:
                self._error = exc
            group.cancel_scope.cancel()
        if self._error is not None:
            raise self._error

    async def _receive_forever(self, group: TaskGroup) -> None:
        failures = 0
        while True:
            before = self._position
            try:
                await self._receive_until_broken(group)
            except (MailServerUnavailable, ImapRefused) as exc:
                failures = 1 if self._position != before else failures + 1
                self._failures += bool(self._current)
                self._context.report(LinkState.CONNECTING, str(exc))
                await self._sleep(_BACKOFF.seconds(failures))

    async def _receive_until_broken(self, group: TaskGroup) -> None:
        servers = self._servers
        imap = await ImapConnection.connect(
            servers.imap, servers.credentials, servers.tls, max_bytes=self._limits.download
        )
        try:
            await self._open_mailbox(imap)
            while True:
                arrivals = imap.arrivals
                await self._catch_up(imap, group)
                self._context.report(LinkState.CONNECTED, self._detail)
                if imap.can_idle:
                    await imap.idle(self._idle_seconds, arrivals=arrivals)
                else:
                    await self._sleep(self._limits.poll)
                    await imap.command("NOOP")
        finally:
            imap.abort()

    async def _open_mailbox(self, imap: ImapConnection) -> None:
        """Open the mailbox, and decide where to go on in it."""
        try:
            await imap.open_mailbox(self._mailbox, read_only=True)
        except ImapRefused as exc:
            raise Invalid(
                f"the mailbox {self._mailbox!r} cannot be opened ({exc}): check email.mailbox"
            ) from None
        if self._position is None:
            saved = await self._context.load_state(POSITION_SCOPE)
            self._position = self._stored = choose_position(
                parse_position(self._context.cursor), parse_position(saved), imap.uid_validity
            )
        if self._position is None:
            self._position = self._stored = await self._find_end(imap)
            await self._context.init_cursor(str(self._position))
        elif self._position.uid_validity != imap.uid_validity:
            self._position = begin_again(self._position, imap.uid_validity, self._now())
            self._pending.clear()
            log.warning(
                "the mailbox %s has a new UIDVALIDITY: mails are compared by their ids", self._mailbox
            )

    async def _find_end(self, imap: ImapConnection) -> MailPosition:
        """Return the position behind all mails: what came before Keryx is not answered."""
        uids = [] if imap.uid_next else await imap.search(b"ALL")
        last = imap.uid_next - 1 if imap.uid_next else max(uids, default=0)
        return MailPosition(uid_validity=imap.uid_validity, uid=last, at=int(self._now().timestamp()))

    @property
    def _last_position(self) -> MailPosition:
        assert self._position is not None
        return self._position

    async def _catch_up(self, imap: ImapConnection, group: TaskGroup) -> None:
        """Receive all mails behind the position, in order, and large ones beside those behind them."""
        criteria = [b"UID", b"%d:*" % (self._last_position.uid + 1)]
        if self._last_position.since:
            criteria += [
                b"SINCE",
                format_date(datetime.fromtimestamp(self._last_position.since, UTC) - _OVERLAP),
            ]
        # The range includes the last mail, even if it is before the position.
        uids = [uid for uid in await imap.search(*criteria) if uid > self._last_position.uid]
        for start in range(0, len(uids), _CHUNK):
            chunk = uids[start : start + _CHUNK]
            header = b"BODY.PEEK[HEADER]<0.%d>" % MAX_HEADER_BYTES
            for mail in await imap.fetch(chunk, b"RFC822.SIZE", b"INTERNALDATE", header):
                if mail.uid > self._last_position.uid:
                    await self._handle(imap, mail, group)
            self._position = replace(self._last_position, uid=max(self._last_position.uid, chunk[-1]))
            await self._save_position()
        if self._last_position.since:
            self._position = replace(self._last_position, since=0)
            await self._save_position()

    async def _save_position(self) -> None:
        """Store the position after mails that do not become events."""
        position = self._find_safe_position(self._last_position)
        if self._stored != position:
            await self._context.save_state(POSITION_SCOPE, str(position))
            self._stored = position

    def _find_safe_position(self, position: MailPosition) -> MailPosition:
        """Return the position to store: before the first mail that is still being received beside the others. After a crash
        the mails between are read again, and recognised by their ids."""
        return replace(position, uid=min([position.uid, *(uid - 1 for uid in self._pending)]))

    async def _handle(self, imap: ImapConnection, mail: FetchedMail, group: TaskGroup) -> None:
        """Receive one mail, or ignore it, and move the position behind it."""
        if mail.uid != self._current:
            self._current = mail.uid
            self._failures = 0
        moment = int(mail.at.timestamp()) if mail.at else 0
        behind = replace(self._last_position, uid=mail.uid, at=max(self._last_position.at, moment))
        try:
            if not self._is_known(mail):
                await self._receive(imap, mail, behind, group)
        except ImapRefused as exc:
            self._ignore(None, f"cannot be fetched ({exc})")
        except _PARSE_ERRORS as exc:
            self._ignore(None, f"cannot be parsed ({type(exc).__name__})")
        self._position = behind
        self._current = 0

    def _is_known(self, mail: FetchedMail) -> bool:
        """Whether a mail was read before the UIDVALIDITY changed. A server that was restored from a backup may say that all
        mails arrived just now: then the date that the author wrote decides."""
        if not self._last_position.since:
            return False
        if mail.at is not None and mail.at.timestamp() < self._last_position.since:
            return True
        try:
            written = parsedate_to_datetime(parse_header(mail.body or b"").get("date")[:100])
            return written.timestamp() < self._last_position.since - _OVERLAP.total_seconds()
        except (ValueError, TypeError, IndexError, OverflowError):
            return False

    async def _receive(
        self, imap: ImapConnection, mail: FetchedMail, behind: MailPosition, group: TaskGroup
    ) -> None:
        summary = await asyncio.to_thread(event_parser.read_summary, mail.body or b"", self._account)
        if summary.bounce:
            await self._receive_bounce(imap, mail, summary, behind)
            return
        if summary.reason or summary.author is None:
            self._ignore(summary, summary.reason)
            return
        if self._exceeds_rate(summary.author.address, mail.at or self._now()):
            self._ignore(summary, f"is more than {self._limits.per_hour} from one sender in an hour")
            return
        author = summary.author.address
        # What a person writes behind a large mail waits for it, so that their mails stay in order.
        earlier = next((p for p in reversed(self._pending.values()) if p.author == author), None)
        beside = earlier is not None or mail.size >= LARGE_BYTES
        if beside and not self._last_position.since and len(self._pending) < _MOST_BESIDE:
            pending = self._pending[mail.uid] = PendingMail(self._last_position.uid_validity, author)
            group.start_soon(self._receive_beside, mail, summary, pending, earlier, group)
            return
        if self._failures < _MOST_FAILURES:
            raw = await self._fetch(imap, mail)
        else:
            raw = _take_header(mail)
        await self._receive_content(mail, summary, raw, behind)

    async def _fetch(self, imap: ImapConnection, mail: FetchedMail) -> bytes | None:
        """Return a mail up to the limit, `None` if it was deleted meanwhile."""
        found = await imap.fetch([mail.uid], b"BODY.PEEK[]<0.%d>" % self._limits.download)
        return next((entry.body for entry in found if entry.body is not None), None)

    async def _receive_beside(
        self,
        mail: FetchedMail,
        summary: MailSummary,
        pending: PendingMail,
        earlier: PendingMail | None,
        group: TaskGroup,
    ) -> None:
        """Receive a mail over a connection of its own, after an earlier one of its author."""
        try:
            if earlier is not None:
                await earlier.done.wait()
            async with self._slots:
                await self._receive_alone(mail, summary, pending)
            if self._pending.get(mail.uid) is pending:
                del self._pending[mail.uid]
                await self._save_position()
        except KeryxError as exc:
            self._error = exc
            group.cancel_scope.cancel()
        finally:
            pending.done.set()

    async def _receive_alone(self, mail: FetchedMail, summary: MailSummary, pending: PendingMail) -> None:
        servers, failures = self._servers, 0
        while failures < _MOST_FAILURES:
            try:
                imap = await ImapConnection.connect(
                    servers.imap, servers.credentials, servers.tls, max_bytes=self._limits.download
                )
                try:
                    await imap.open_mailbox(self._mailbox, read_only=True)
                    if imap.uid_validity != pending.uid_validity:
                        # It is received under its new UID.
                        return
                    raw = await self._fetch(imap, mail)
                finally:
                    imap.abort()
                break
            except (MailServerUnavailable, ImapRefused) as exc:
                failures += 1
                log.info("a large mail is fetched again: %s", exc)
                await self._sleep(_BACKOFF.seconds(failures))
        else:
            raw = _take_header(mail)
        try:
            await self._receive_content(mail, summary, raw, self._last_position)
        except _PARSE_ERRORS as exc:
            self._ignore(None, f"cannot be parsed ({type(exc).__name__})")

    async def _receive_content(
        self, mail: FetchedMail, summary: MailSummary, raw: bytes | None, behind: MailPosition
    ) -> None:
        if raw is None:
            log.info("a mail was deleted before it was read")
            return
        limit = self._limits.download
        if not summary.event:
            summary = replace(summary, event=await asyncio.to_thread(event_parser.hash_mail, raw))
        parsed = await asyncio.to_thread(
            event_parser.parse_content, raw, summary, self._account, truncated=mail.size > len(raw) >= limit
        )
        files, notes = await self._store_files(parsed)
        position = self._find_safe_position(behind)
        inbound = event_parser.build_inbound(
            parsed,
            summary,
            self._account,
            root=await self._find_root(summary),
            at=mail.at,
            files=files,
            notes=notes,
            cursor=str(position),
        )
        try:
            await self._context.receive(inbound)
        except Invalid as exc:
            self._ignore(summary, f"was refused: {exc}")
        else:
            self._stored = position

    async def _receive_bounce(
        self, imap: ImapConnection, mail: FetchedMail, summary: MailSummary, behind: MailPosition
    ) -> None:
        """Record which mail of ours was not delivered. A report is never answered."""
        if self._failures < _MOST_FAILURES:
            found = await imap.fetch([mail.uid], b"BODY.PEEK[]<0.%d>" % bounces.MAX_REPORT_BYTES)
            raw = next((entry.body for entry in found if entry.body is not None), b"")
        else:
            raw = mail.body or b""
        failure = await asyncio.to_thread(bounces.parse_bounce, raw, summary, self._account)
        if failure is None:
            self._ignore(summary, summary.reason or "is a report of a mail server")
            return
        position = self._find_safe_position(behind)
        await self._context.receive(msgspec.structs.replace(failure, at=mail.at, cursor=str(position)))
        self._stored = position
        self._ignore(summary, f"is a report: {failure.reason}")

    async def _find_root(self, summary: MailSummary) -> str:
        for name in event_parser.list_own_threads(summary, self._account):
            if root := await self._context.load_state(event_parser.name_thread_scope(name)):
                return root
        return event_parser.find_root(summary, self._account)

    async def _store_files(self, parsed: ParsedMail) -> tuple[tuple[Part, ...], Sequence[str]]:
        """Store the files of a mail. Return their parts, and a sentence for each file that is missing."""
        parts: list[Part] = []
        texts = self._context.texts.speak()
        notes = [texts.render(note) for note in parsed.notes]
        for file in parsed.files:
            try:
                parts.append(await self._context.store_attachment(file))
            except Invalid as exc:
                notes.append(texts.say("file.missing", name=file.name, reason=exc.text))
        return tuple(parts), notes

    def _exceeds_rate(self, address: str, at: datetime) -> bool:
        """Count a mail of a sender. By the time of its arrival, so that mails that waited are judged alike."""
        if not self._limits.per_hour:
            return False
        moment = at.timestamp()
        times = self._arrivals.get(address) or deque[float]()
        while times and times[0] <= moment - 3600:
            times.popleft()
        self._arrivals.put(address, times)
        if len(times) >= self._limits.per_hour:
            return True
        times.append(moment)
        return False

    def _ignore(self, summary: MailSummary | None, reason: str) -> None:
        """Tell the operator of a mail that is not received."""
        author = summary.author.address if summary and summary.author else ""
        self._ignored += 1
        level = logging.WARNING if summary and summary.bounce else logging.INFO
        log.log(level, "ignored a mail from %s: it %s", logs.hash_chat(author) or "somebody", reason)
        what = "is about a mail that was not delivered" if summary and summary.bounce else reason
        count = "1 mail was ignored" if self._ignored == 1 else f"{self._ignored} mails were ignored"
        self._detail = f"{count}; the last one, from {author or 'an unknown author'}, {what}"


def _take_header(mail: FetchedMail) -> bytes:
    log.warning("a mail is received without its content: the connection broke whenever it was fetched")
    return mail.body or b""


def choose_position(
    cursor: MailPosition | None, saved: MailPosition | None, uid_validity: int
) -> MailPosition | None:
    """Return the further one of two stored positions: that of the mailbox as it is now, or else the later one."""
    found = [position for position in (cursor, saved) if position is not None]
    current = [position for position in found if position.uid_validity == uid_validity]
    if current:
        return max(current, key=lambda position: (position.uid, -position.since))
    return max(found, key=lambda position: position.at, default=None)


def begin_again(last: MailPosition, uid_validity: int, now: datetime) -> MailPosition:
    """Return the position at which to begin after a change of UIDVALIDITY."""
    age = now - datetime.fromtimestamp(last.at, UTC)
    overlap = _OVERLAP if age < _REMEMBERED else timedelta(0)
    since = max(1, last.at - int(overlap.total_seconds()))
    return MailPosition(uid_validity=uid_validity, uid=0, at=last.at, since=since)
