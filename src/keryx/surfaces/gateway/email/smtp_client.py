"""A small SMTP client (RFC 5321 with STARTTLS, SIZE, 8BITMIME and AUTH): every failure says whether the mail may have been accepted."""

import asyncio
import re
import ssl
from datetime import timedelta

from keryx.core.errors import (
    CredentialsRefused,
    KeryxError,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Uncertain,
)
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.email.mail_stream import MailServerUnavailable, MailStream
from keryx.surfaces.gateway.email.server_login import MailCredentials, ServerAddress

COMMAND_SECONDS = 60.0
# A server may scan a mail before it accepts it.
_DATA_SECONDS = 300.0
_MOST_LINES = 100
_DEFAULT_WAIT = timedelta(minutes=1)
_LONGEST_WAIT = timedelta(hours=6)
_WAIT = re.compile(r"\b(\d{1,6}(?:\.\d{1,3})?) ?(s|sec|second|m|min|minute|h|hour)s?\b", re.IGNORECASE)
_UNITS = {"s": 1, "m": 60, "h": 3600}
_DETAIL = re.compile(r"[^\x20-\x7e]+")
_LONGEST_DETAIL = 200
_STATUS = re.compile(r"([245])\.(\d{1,3})\.(\d{1,3})\b")
# Codes of RFC 3463 that say that the recipient does not exist, or is disabled.
_GONE = frozenset({("1", "1"), ("1", "2"), ("1", "3"), ("1", "6"), ("1", "10"), ("2", "1")})


class SmtpReply(KeryxError):
    """A reply other than the one that was wanted."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.reply = text


class SmtpConnection:
    """One connection, signed in. It may be used for several mails, one after the other."""

    def __init__(self, stream: MailStream) -> None:
        self._stream = stream
        # The extensions that the server offers, with their parameters.
        self._extensions: dict[str, str] = {}
        self.broken = False

    @classmethod
    async def connect(
        cls, address: ServerAddress, credentials: MailCredentials | None, tls: ssl.SSLContext, *, name: str
    ) -> "SmtpConnection":
        """Connect and sign in. Raise `SmtpReply` if the server refuses the credentials."""
        stream = await MailStream.open(address, tls)
        connection = cls(stream)
        try:
            await connection._sign_in(credentials, tls, name)
        except BaseException:
            stream.abort()
            raise
        return connection

    @property
    def max_bytes(self) -> int:
        """The largest mail that the server takes; 0 if it does not say."""
        size = self._extensions.get("SIZE", "")
        return int(size) if size.isdigit() else 0

    async def send(self, sender: str, recipient: str, mail: bytes) -> None:
        """Hand over a mail. Raise the `SendError` that says what is known about it."""
        try:
            await self._begin(sender, recipient, len(mail))
        except SmtpReply as exc:
            raise describe_refusal(exc, gone=exc.code in (550, 551, 553)) from None
        except MailServerUnavailable as exc:
            self.broken = True
            raise NotSent(str(exc)) from None
        block = re.sub(rb"(?m)^\.", b"..", mail)
        try:
            await self._stream.write(block + (b"" if block.endswith(b"\r\n") else b"\r\n"), _DATA_SECONDS)
        except MailServerUnavailable as exc:
            # Without its end the mail is not accepted.
            self.broken = True
            raise NotSent(str(exc)) from None
        try:
            await self._stream.write(b".\r\n", COMMAND_SECONDS)
            code, text = await self._read_reply(_DATA_SECONDS)
        except BaseException as exc:
            self.broken = True
            if isinstance(exc, MailServerUnavailable):
                raise Uncertain(Phrase("delivery.mail_unknown", reason=exc)) from None
            raise
        if code != 250:
            raise describe_refusal(SmtpReply(code, text))

    async def is_alive(self) -> bool:
        """Whether the server still answers on a connection that was not used for some time."""
        try:
            await self.command("RSET", want=(250,))
        except (SmtpReply, MailServerUnavailable):
            return False
        return True

    async def close(self) -> None:
        try:
            if not self.broken:
                async with asyncio.timeout(1):
                    await self.command("QUIT", want=(221,))
        except (SmtpReply, MailServerUnavailable, TimeoutError):
            self.broken = True
        if self.broken:
            self._stream.abort()
        else:
            await self._stream.close()

    async def command(self, line: str, *, want: tuple[int, ...]) -> str:
        await self._stream.write(line.encode() + b"\r\n", COMMAND_SECONDS)
        code, text = await self._read_reply()
        if code not in want:
            raise SmtpReply(code, text)
        return text

    async def _begin(self, sender: str, recipient: str, size: int) -> None:
        parameters = ""
        if "SIZE" in self._extensions:
            if self.max_bytes and size > self.max_bytes:
                raise SmtpReply(
                    552, f"5.3.4 the mail has {size:,} bytes, the server takes {self.max_bytes:,}"
                )
            parameters += f" SIZE={size}"
        if "8BITMIME" in self._extensions:
            parameters += " BODY=8BITMIME"
        if not (sender + recipient).isascii():
            if "SMTPUTF8" not in self._extensions:
                raise SmtpReply(553, "5.6.7 the server takes no address with letters beyond ASCII")
            parameters += " SMTPUTF8"
        try:
            await self.command(f"MAIL FROM:<{sender}>{parameters}", want=(250,))
            await self.command(f"RCPT TO:<{recipient}>", want=(250, 251))
            await self.command("DATA", want=(354,))
        except SmtpReply as exc:
            # The connection stays in use for other mails.
            self.broken = exc.code == 421 or not await self.is_alive()
            raise

    async def _sign_in(self, credentials: MailCredentials | None, tls: ssl.SSLContext, name: str) -> None:
        code, text = await self._read_reply()
        if code != 220:
            raise SmtpReply(code, text)
        await self._say_hello(name)
        if not self._stream.encrypted and "STARTTLS" in self._extensions:
            await self.command("STARTTLS", want=(220,))
            await self._stream.start_tls(tls)
            await self._say_hello(name)
        if not self._stream.encrypted and not self._stream.address.local:
            raise SmtpReply(530, "5.7.0 the server offers no TLS: nothing is sent to it")
        if credentials is None or ("AUTH" not in self._extensions and self._stream.address.local):
            return
        mechanisms = self._extensions.get("AUTH", "").upper().split()
        if credentials.uses_token:
            await self._authenticate(f"AUTH XOAUTH2 {await credentials.build_xoauth2()}")
        elif "PLAIN" in mechanisms or "LOGIN" not in mechanisms:
            await self._authenticate(f"AUTH PLAIN {await credentials.build_plain()}")
        else:
            user, password = await credentials.build_login()
            await self.command("AUTH LOGIN", want=(334,))
            await self.command(user, want=(334,))
            await self.command(password, want=(235,))

    async def _authenticate(self, line: str) -> None:
        try:
            await self.command(line, want=(235,))
        except SmtpReply as exc:
            if exc.code != 334:
                raise
            # The server explains why it refuses a token, and waits for an empty line.
            await self.command("", want=(235,))

    async def _say_hello(self, name: str) -> None:
        lines = (await self.command(f"EHLO {name}", want=(250,))).split("\n")[1:]
        self._extensions = {word.upper(): rest for word, _, rest in (line.partition(" ") for line in lines)}

    async def _read_reply(self, seconds: float = COMMAND_SECONDS) -> tuple[int, str]:
        lines: list[str] = []
        while len(lines) < _MOST_LINES:
            try:
                line = (await self._stream.read_line(seconds)).decode("utf-8", "replace")
            except TimeoutError:
                raise MailServerUnavailable(
                    Phrase("delivery.server_silent", address=self._stream.address)
                ) from None
            if not line[:3].isdigit() or line[3:4] not in ("", " ", "-"):
                break
            lines.append(line[4:])
            if line[3:4] != "-":
                return int(line[:3]), "\n".join(lines)
        raise MailServerUnavailable(Phrase("delivery.server_no_smtp", address=self._stream.address))


def is_gone_status(text: str) -> bool:
    """Whether a status of RFC 3463 says for good that the recipient does not exist, or is disabled."""
    status = _STATUS.match(text)
    return status is not None and status[1] == "5" and (status[2], status[3]) in _GONE


def describe_refusal(reply: SmtpReply, *, gone: bool = False) -> SendError:
    """Return the error for a reply that says that the mail was not accepted. `gone` if it is about the recipient."""
    detail = _DETAIL.sub(" ", reply.reply).strip()[:_LONGEST_DETAIL]
    message = f"the server does not take the mail: {reply.code} {detail}"
    status = _STATUS.match(detail)
    subject = (status[2], status[3]) if status else ("", "")
    if reply.code in (530, 534, 535):
        return CredentialsRefused(Phrase("delivery.smtp_refused", reason=f"{reply.code} {detail}"))
    if 500 <= reply.code < 600:
        return TargetGone(message) if gone and (not status or subject in _GONE) else Refused(message)
    # Such as `try again in 300 seconds`.
    wait = _WAIT.search(detail)
    if reply.code == 421 or (status and subject[0] == "7") or wait:
        after = timedelta(seconds=float(wait[1]) * _UNITS[wait[2][0].lower()]) if wait else _DEFAULT_WAIT
        return Throttled(message, after=min(after, _LONGEST_WAIT), account=reply.code == 421)
    return NotSent(message)
