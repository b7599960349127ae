"""Sends mails, and keeps a copy of each in the Sent mailbox, which tells later whether a mail went out.

Where the server does not save copies itself, the copy is stored before the mail is handed over, with the flag `\\Draft`, which is removed afterwards. So a
mail without a copy was never sent, one whose copy is no draft was, and only for a draft nobody knows: it is repeated with a mark."""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from keryx.core.cache import LruCache
from keryx.core.errors import Forbidden, Invalid, NotSent, SendError, Unavailable, Uncertain
from keryx.core.ports.adapter import OutgoingPart
from keryx.surfaces.gateway.email.imap_client import FetchedMail, ImapConnection, ImapRefused
from keryx.surfaces.gateway.email.mail_builder import build_mail, create_message_id, is_message_id
from keryx.surfaces.gateway.email.mail_headers import MailPerson
from keryx.surfaces.gateway.email.server_login import MailCredentials, ServerAddress
from keryx.surfaces.gateway.email.smtp_client import SmtpConnection, SmtpReply, describe_refusal

log = logging.getLogger(__name__)

DEFAULT_SENT = "Sent"
_DRAFT = b"\\DRAFT"
_MOST_CONNECTIONS = 4
_IDLE_SECONDS = 20.0
_MOST_REMEMBERED = 1_000


class PooledConnection(Protocol):
    async def is_alive(self) -> bool: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=PooledConnection)


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServers:
    """Both servers of an account, and how to sign in."""

    imap: ServerAddress
    smtp: ServerAddress
    credentials: MailCredentials
    tls: ssl.SSLContext


class MailConnectionPool(Generic[C]):
    """Reuses connections that were used a moment ago and still answer. A failure inside of the block ends the
    connection."""

    def __init__(self, connect: Callable[[], Awaitable[C]]) -> None:
        self._connect = connect
        self._idle: list[tuple[float, C]] = []
        self._free = asyncio.Semaphore(_MOST_CONNECTIONS)

    @asynccontextmanager
    async def acquire(self) -> AsyncGenerator[C]:
        async with self._free:
            connection = await self._take() or await self._connect()
            try:
                yield connection
            except BaseException:
                await connection.close()
                raise
            self._idle.append((time.monotonic(), connection))

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop()[1].close()

    async def _take(self) -> C | None:
        while self._idle:
            used_at, connection = self._idle.pop()
            if time.monotonic() - used_at < _IDLE_SECONDS and await connection.is_alive():
                return connection
            await connection.close()
        return None


class MailSender:
    def __init__(
        self,
        servers: MailServers,
        sender: MailPerson,
        *,
        sent_mailbox: str,
        saves_sent: bool,
        quote: bool,
        now: Callable[[], datetime],
    ) -> None:
        self._servers = servers
        self._sender = sender
        self._sent_mailbox = sent_mailbox
        self._saves_sent = saves_sent
        self._quote = quote
        self._now = now
        self._smtp = MailConnectionPool(self._connect_smtp)
        self._sent = MailConnectionPool(self._connect_sent)
        # Message-IDs of mails that may have been sent, as the last search has shown.
        self._doubtful = LruCache[str, None](_MOST_REMEMBERED)

    async def close(self) -> None:
        await self._smtp.close()
        await self._sent.close()

    async def send(self, part: OutgoingPart) -> str:
        """Send a mail under `part.key` and return its Message-ID."""
        message_id = part.key if is_message_id(part.key) else create_message_id(part, self._sender.domain)
        doubtful = message_id in self._doubtful
        mail = await asyncio.to_thread(
            build_mail,
            part,
            self._sender,
            message_id=message_id,
            now=self._now(),
            quote=self._quote,
            mark=part.repeat_mark if doubtful or part.again else "",
        )
        if self._saves_sent:
            await self._transmit(part.target.chat, mail)
        else:
            await self._send_with_copy(part.target.chat, message_id, mail, doubtful=doubtful)
        self._doubtful.remove(message_id)
        return message_id

    async def find_sent(self, part: OutgoingPart) -> str | None:
        """Return the Message-ID of a mail that went out. If that cannot be told, `send` will mark the mail.

        It does not wait for a copy: the engine calls it a second or more after the attempt, and a process that ends while
        it waits would make the mail suspect of ending processes."""
        if not is_message_id(part.key):
            return None
        copies = await self._find_copies(part.key)
        if any(_DRAFT not in copy.flags for copy in copies):
            return part.key
        if copies:
            self._doubtful.put(part.key, None)
        return None

    async def _send_with_copy(self, recipient: str, message_id: str, mail: bytes, *, doubtful: bool) -> None:
        uid = 0 if doubtful else await self._save_copy(mail)
        try:
            await self._transmit(recipient, mail)
        except Uncertain:
            raise
        except SendError:
            # An earlier attempt may have arrived: then its copy stays.
            if not doubtful:
                await self._change_copy(message_id, uid, lambda sent, at: sent.delete(at))
            raise
        await self._change_copy(message_id, uid, lambda sent, at: sent.store_flags(at, b"-FLAGS (\\Draft)"))

    async def _transmit(self, recipient: str, mail: bytes) -> None:
        async with self._translate_errors(), self._smtp.acquire() as smtp:
            try:
                await smtp.send(self._sender.address, recipient, mail)
            except SendError as exc:
                if smtp.broken:
                    raise
                error = exc
            else:
                return
        # A refusal of one mail does not end the connection.
        raise error

    async def _save_copy(self, mail: bytes) -> int:
        async with self._translate_errors(), self._sent.acquire() as sent:
            return await sent.append(self._sent_mailbox, b"\\Seen \\Draft", mail)

    async def _change_copy(
        self, message_id: str, uid: int, change: Callable[[ImapConnection, int], Awaitable[None]]
    ) -> None:
        """Change the copy of a mail whose outcome is known. If that fails, the copy stays a draft, and that is all."""
        try:
            async with self._sent.acquire() as sent:
                uids = [uid] if uid else [mail.uid for mail in await sent.find_by_message_id(message_id)]
                for each in uids:
                    await change(sent, each)
        except (Unavailable, Forbidden, Invalid, ImapRefused) as exc:
            log.warning("the copy of a mail in %s cannot be changed: %s", self._sent_mailbox, exc)

    async def _find_copies(self, message_id: str) -> list[FetchedMail]:
        async with self._translate_errors(), self._sent.acquire() as sent:
            return await sent.find_by_message_id(message_id)

    async def _connect_smtp(self) -> SmtpConnection:
        servers = self._servers
        return await SmtpConnection.connect(
            servers.smtp, servers.credentials, servers.tls, name=self._sender.domain
        )

    async def _connect_sent(self) -> ImapConnection:
        """Open the Sent mailbox, which is created if there is none."""
        servers = self._servers
        connection = await ImapConnection.connect(servers.imap, servers.credentials, servers.tls)
        try:
            if not self._sent_mailbox:
                self._sent_mailbox = await connection.find_special(b"\\Sent") or DEFAULT_SENT
            await connection.ensure_mailbox(self._sent_mailbox)
        except BaseException:
            connection.abort()
            raise
        return connection

    @asynccontextmanager
    async def _translate_errors(self) -> AsyncGenerator[None]:
        try:
            yield
        except SmtpReply as exc:
            raise describe_refusal(exc) from None
        except (Unavailable, Forbidden, Invalid, ImapRefused) as exc:
            raise NotSent(str(exc)) from None
