"""A connection to a mail server: lines and blocks of bytes with a time limit, TLS, and one translation of what may go wrong."""

import asyncio
import ssl
from contextlib import suppress

from keryx.core.errors import Unavailable
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.email.server_login import CONNECT_SECONDS, ServerAddress

# The result of a search in a large mailbox is one line.
_LONGEST_LINE = 4 * 1024 * 1024
_CLOSE_SECONDS = 2.0


class MailServerUnavailable(Unavailable):
    """The server cannot be reached, has closed the connection, or does not keep to the protocol."""


class MailStream:
    """An open connection. Every error and every wait that is too long is a `MailServerUnavailable`."""

    def __init__(
        self, address: ServerAddress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address = address
        self.encrypted = address.tls
        self._reader = reader
        self._writer = writer
        self._plain_writer: asyncio.StreamWriter | None = None

    @classmethod
    async def open(cls, address: ServerAddress, tls: ssl.SSLContext) -> "MailStream":
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    address.host,
                    address.port,
                    limit=_LONGEST_LINE,
                    ssl=tls if address.tls else None,
                    server_hostname=address.host if address.tls else None,
                )
        except TimeoutError:
            raise MailServerUnavailable(Phrase("delivery.server_silent", address=address)) from None
        except ssl.SSLError as exc:
            raise MailServerUnavailable(
                Phrase(
                    "delivery.server_certificate", address=address, reason=exc.reason or type(exc).__name__
                )
            ) from None
        except OSError as exc:
            raise MailServerUnavailable(
                Phrase("delivery.server_unreachable", address=address, kind=type(exc).__name__)
            ) from None
        return cls(address, reader, writer)

    async def read_line(self, seconds: float) -> bytes:
        """Return the next line without its end. Raise `TimeoutError` if none begins in time."""
        try:
            async with asyncio.timeout(seconds):
                line = await self._reader.readline()
        except TimeoutError:
            raise
        except (OSError, ValueError) as exc:
            raise self._describe(exc) from None
        if not line.endswith(b"\n"):
            raise MailServerUnavailable(Phrase("delivery.server_closed", address=self.address))
        return line.rstrip(b"\r\n")

    async def read_exactly(self, size: int, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                return await self._reader.readexactly(size)
        except TimeoutError:
            raise MailServerUnavailable(Phrase("delivery.server_silent", address=self.address)) from None
        except (OSError, asyncio.IncompleteReadError) as exc:
            raise self._describe(exc) from None

    async def write(self, data: bytes, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(data)
                await self._writer.drain()
        except TimeoutError:
            raise MailServerUnavailable(Phrase("delivery.server_not_reading", address=self.address)) from None
        except (OSError, RuntimeError) as exc:
            raise self._describe(exc) from None

    async def start_tls(self, tls: ssl.SSLContext) -> None:
        """Change to TLS. What the server sent before it is dropped, because anybody on the way could have added it."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                transport = await loop.start_tls(
                    self._writer.transport, protocol, tls, server_hostname=self.address.host
                )
        except ssl.SSLError as exc:
            raise MailServerUnavailable(
                Phrase(
                    "delivery.server_certificate",
                    address=self.address,
                    reason=exc.reason or type(exc).__name__,
                )
            ) from None
        except (OSError, TimeoutError) as exc:
            raise self._describe(exc) from None
        if transport is None:
            raise MailServerUnavailable(Phrase("delivery.server_closed", address=self.address))
        protocol.connection_made(transport)
        # Without a reference, the writer would close its transport, which is below the encrypted one.
        self._plain_writer = self._writer
        self._reader, self._writer = reader, asyncio.StreamWriter(transport, protocol, reader, loop)
        self.encrypted = True

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._writer.wait_closed()

    def abort(self) -> None:
        """Close without waiting, after a failure."""
        self._writer.transport.abort()

    def _describe(self, error: Exception) -> MailServerUnavailable:
        return MailServerUnavailable(
            Phrase("delivery.server_broke", address=self.address, kind=type(error).__name__)
        )
