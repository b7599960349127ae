"""A small IMAP client (RFC 3501, IDLE, SASL, special-use mailboxes): the commands that the adapter needs, with bounded responses."""

import asyncio
import base64
import re
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from keryx.core.errors import Forbidden, KeryxError
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.email.mail_stream import MailServerUnavailable, MailStream
from keryx.surfaces.gateway.email.server_login import MailCredentials, ServerAddress

COMMAND_SECONDS = 60.0
# Beside the mail itself, a response holds a few flags and numbers.
_RESPONSE_OVERHEAD = 1_000_000
_LITERAL = re.compile(rb"\{(\d{1,12})\+?\}\Z")
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*+)"|([()])|([^\s()"]+)')
_CODE = re.compile(rb"\[([A-Z0-9-]+)(?: ([^\]]*))?\]", re.IGNORECASE)
_APPEND_UID = re.compile(rb"\[APPENDUID \d{1,10} (\d{1,10})\]", re.IGNORECASE)
_LINE_END = re.compile(rb"[\r\n\0]")
_TEMPORARY_CODES = frozenset({b"UNAVAILABLE", b"INUSE", b"SERVERBUG", b"LIMIT", b"CONTACTADMIN"})
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

Open, Close = "(", ")"
Token = bytes | str
"""A value, or one of the two brackets, which are the only texts."""


class ImapRefused(KeryxError):
    """The server refuses a command. `code` is its response code, such as TRYCREATE."""

    def __init__(self, message: str, code: bytes = b"") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ImapResponse:
    # Without literals.
    text: bytes
    tokens: Sequence[Token]


@dataclass(frozen=True, slots=True)
class ImapLiteral:
    """An argument that is sent as a block of bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class FetchedMail:
    """One message of a FETCH response. Fields that were not asked for are empty."""

    uid: int
    size: int = 0
    # When it arrived.
    at: datetime | None = None
    flags: frozenset[bytes] = frozenset()
    # The header, or the whole mail.
    body: bytes | None = None


class ImapConnection:
    """One connection. `arrivals` counts the reports of new mail in the open mailbox."""

    def __init__(self, stream: MailStream, *, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes + _RESPONSE_OVERHEAD
        self._count = 0
        self._capabilities: frozenset[bytes] = frozenset()
        self.arrivals = 0
        self.uid_validity = 0
        self.uid_next = 0
        # How many mails there are, as the server reported last.
        self._exists: Token = b""
        # What the server said at the end of the last command.
        self._completion = b""

    @classmethod
    async def connect(
        cls,
        address: ServerAddress,
        credentials: MailCredentials,
        tls: ssl.SSLContext,
        *,
        max_bytes: int = 0,
    ) -> "ImapConnection":
        """Connect and sign in. Raise `Forbidden` if the server refuses the credentials."""
        stream = await MailStream.open(address, tls)
        connection = cls(stream, max_bytes=max_bytes)
        try:
            await connection._sign_in(credentials, tls)
        except BaseException:
            stream.abort()
            raise
        return connection

    @property
    def can_idle(self) -> bool:
        return b"IDLE" in self._capabilities

    async def is_alive(self) -> bool:
        """Whether the server still answers. Afterwards what others have stored is seen."""
        try:
            await self.command("NOOP")
        except (MailServerUnavailable, ImapRefused):
            return False
        return True

    async def close(self) -> None:
        """Sign out. A server that does not answer is not waited for."""
        try:
            async with asyncio.timeout(1):
                await self.command("LOGOUT")
        except (MailServerUnavailable, ImapRefused, TimeoutError):
            self._stream.abort()
        else:
            await self._stream.close()

    def abort(self) -> None:
        self._stream.abort()

    async def command(self, name: str, *arguments: bytes | ImapLiteral) -> list[ImapResponse]:
        """Send a command and return the responses to it. Raise `ImapRefused` if the server refuses it."""
        self._count += 1
        tag = b"k%d" % self._count
        responses: list[ImapResponse] = []
        pending = tag + b" " + name.encode()
        for argument in arguments:
            if isinstance(argument, bytes):
                pending += b" " + argument
                continue
            await self._write(pending + b" {%d}\r\n" % len(argument.data))
            await self._wait_for_continuation(tag, name, responses)
            pending = argument.data
        await self._write(pending + b"\r\n")
        await self._read_until(tag, name, responses)
        return responses

    async def open_mailbox(self, mailbox: str, *, read_only: bool) -> None:
        """Open a mailbox. Afterwards `uid_validity` and `uid_next` are its own."""
        self.uid_validity = self.uid_next = 0
        responses = await self.command("EXAMINE" if read_only else "SELECT", quote(encode_mailbox(mailbox)))
        for response in responses:
            if (code := _CODE.search(response.text)) and code[2] is not None and code[2].isdigit():
                if code[1].upper() == b"UIDVALIDITY":
                    self.uid_validity = int(code[2])
                elif code[1].upper() == b"UIDNEXT":
                    self.uid_next = int(code[2])
        if not self.uid_validity:
            raise MailServerUnavailable(f"{self._stream.address} does not say the UIDVALIDITY of {mailbox}")

    async def ensure_mailbox(self, mailbox: str) -> None:
        """Open a mailbox for changes. It is created if there is none."""
        try:
            await self.open_mailbox(mailbox, read_only=False)
        except ImapRefused:
            await self.command("CREATE", quote(encode_mailbox(mailbox)))
            await self.open_mailbox(mailbox, read_only=False)

    async def search(self, *criteria: bytes) -> list[int]:
        """Return the UIDs of the mails that match, in order."""
        found: set[int] = set()
        for response in await self.command("UID SEARCH", *criteria):
            if response.tokens[1:2] and _upper(response.tokens[1]) == b"SEARCH":
                found |= {int(t) for t in response.tokens[2:] if isinstance(t, bytes) and t.isdigit()}
        return sorted(found)

    async def fetch(self, uids: Iterable[int], *items: bytes) -> list[FetchedMail]:
        """Return those of the mails that exist, in the order of their UIDs, each once."""
        numbers = b",".join(b"%d" % uid for uid in uids)
        if not numbers:
            return []
        responses = await self.command("UID FETCH", numbers, b"(" + b" ".join((b"UID", *items)) + b")")
        mails: dict[int, FetchedMail] = {}
        for response in responses:
            mail = _parse_fetch(response.tokens)
            # A server may report the flags of a mail on its own, too.
            if mail is not None and (mail.body is not None or mail.uid not in mails):
                mails[mail.uid] = mail
        return [mails[uid] for uid in sorted(mails)]

    async def append(self, mailbox: str, flags: bytes, mail: bytes) -> int:
        """Store a mail in a mailbox and return its UID; 0 if the server does not say it."""
        await self.command("APPEND", quote(encode_mailbox(mailbox)), b"(" + flags + b")", ImapLiteral(mail))
        uid = _APPEND_UID.search(self._completion)
        return int(uid[1]) if uid else 0

    async def delete(self, uid: int) -> None:
        """Delete a mail. Without the extension UIDPLUS it is only marked, so that no other mail is deleted with it."""
        await self.store_flags(uid, b"+FLAGS (\\Deleted)")
        if b"UIDPLUS" in self._capabilities:
            await self.command("UID EXPUNGE", b"%d" % uid)

    async def store_flags(self, uid: int, change: bytes) -> None:
        """Change the flags of a mail, such as `-FLAGS (\\Draft)`."""
        await self.command("UID STORE", b"%d" % uid, change)

    async def find_by_message_id(self, message_id: str) -> list[FetchedMail]:
        """Return the mails with this Message-ID in the open mailbox, with their flags."""
        found = await self.search(b"HEADER", b"Message-ID", quote(message_id.encode()))
        return await self.fetch(found, b"FLAGS")

    async def find_special(self, use: bytes) -> str | None:
        """Return the mailbox of a special use, such as `\\Sent`, if the server names one."""
        for response in await self.command("LIST", b'""', b'"*"'):
            tokens = response.tokens
            if len(tokens) < 6 or _upper(tokens[1]) != b"LIST" or Close not in tokens:
                continue
            end = tokens.index(Close)
            if any(_upper(token) == use.upper() for token in tokens[3:end]) and isinstance(tokens[-1], bytes):
                return decode_mailbox(tokens[-1])
        return None

    async def idle(self, seconds: float, *, arrivals: int) -> None:
        """Wait until mail is reported, or for this long. Return at once if `arrivals` is not up to date."""
        self._count += 1
        tag = b"k%d" % self._count
        await self._write(tag + b" IDLE\r\n")
        await self._wait_for_continuation(tag, "IDLE", [])
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.arrivals == arrivals and loop.time() < end:
            try:
                line = await self._stream.read_line(end - loop.time())
            except TimeoutError:
                break
            response = await self._complete(line)
            if not response.text.startswith(b"*"):
                raise MailServerUnavailable(f"{self._stream.address} has ended IDLE by itself")
        await self._write(b"DONE\r\n")
        await self._read_until(tag, "IDLE", [])

    async def _sign_in(self, credentials: MailCredentials, tls: ssl.SSLContext) -> None:
        greeting = await self._read_response()
        if greeting.text.upper().startswith(b"* BYE"):
            raise MailServerUnavailable(Phrase("delivery.server_full", address=self._stream.address))
        await self._load_capabilities()
        if not self._stream.encrypted and b"STARTTLS" in self._capabilities:
            await self.command("STARTTLS")
            await self._stream.start_tls(tls)
            await self._load_capabilities()
        if not self._stream.encrypted and not self._stream.address.local:
            raise Forbidden(f"{self._stream.address} offers no TLS: no password is sent to it")
        try:
            await self._authenticate(credentials)
        except ImapRefused as exc:
            if exc.code in _TEMPORARY_CODES:
                raise MailServerUnavailable(
                    Phrase("delivery.server_no_check", address=self._stream.address, reason=exc.code.decode())
                ) from None
            what = "token" if credentials.uses_token else "password"
            raise Forbidden(f"{self._stream.address} refuses the user name or the {what}") from None
        await self._load_capabilities()

    async def _load_capabilities(self) -> None:
        for response in await self.command("CAPABILITY"):
            if len(response.tokens) > 1 and _upper(response.tokens[1]) == b"CAPABILITY":
                self._capabilities = frozenset(_upper(token) for token in response.tokens[2:])

    async def _authenticate(self, credentials: MailCredentials) -> None:
        if credentials.uses_token:
            await self._authenticate_sasl("XOAUTH2", await credentials.build_xoauth2())
        elif b"AUTH=PLAIN" in self._capabilities:
            await self._authenticate_sasl("PLAIN", await credentials.build_plain())
        else:
            password = await credentials.read_password()
            await self.command(
                "LOGIN", ImapLiteral(credentials.user.encode()), ImapLiteral(password.encode())
            )

    async def _authenticate_sasl(self, mechanism: str, response: str) -> None:
        self._count += 1
        tag = b"k%d" % self._count
        await self._write(tag + b" AUTHENTICATE " + mechanism.encode() + b"\r\n")
        await self._wait_for_continuation(tag, "AUTHENTICATE", [])
        await self._write(response.encode() + b"\r\n")

        async def end_error() -> None:
            # The server explains why it refuses a token, and waits for an empty line.
            await self._write(b"\r\n")

        await self._read_until(tag, "AUTHENTICATE", [], on_continuation=end_error)

    async def _write(self, data: bytes) -> None:
        await self._stream.write(data, COMMAND_SECONDS)

    async def _wait_for_continuation(self, tag: bytes, name: str, responses: list[ImapResponse]) -> None:
        while not (response := await self._read_response()).text.startswith(b"+"):
            if response.text.startswith(tag + b" "):
                raise self._describe_refusal(name, response)
            responses.append(response)

    async def _read_until(
        self,
        tag: bytes,
        name: str,
        responses: list[ImapResponse],
        on_continuation: Callable[[], object] | None = None,
    ) -> None:
        """Collect responses until the one that ends the command. Raise `ImapRefused` if that is a refusal."""
        budget = self._max_bytes
        while not (response := await self._read_response()).text.startswith(tag + b" "):
            if response.text.startswith(b"+") and on_continuation is not None:
                waiting = on_continuation()
                if asyncio.iscoroutine(waiting):
                    await waiting
                continue
            budget -= len(response.text)
            if budget < 0:
                raise MailServerUnavailable(f"{self._stream.address} answers {name} without an end")
            responses.append(response)
        self._completion = response.text
        if not response.text[len(tag) + 1 :].upper().startswith(b"OK"):
            raise self._describe_refusal(name, response)

    def _describe_refusal(self, name: str, response: ImapResponse) -> ImapRefused:
        code = _CODE.search(response.text)
        found = code[1].upper() if code else b""
        detail = f" ({found.decode('ascii', 'replace')})" if found else ""
        return ImapRefused(
            Phrase("delivery.scope", platform=self._stream.address, what=f"{name}{detail}"), found
        )

    async def _read_response(self) -> ImapResponse:
        try:
            line = await self._stream.read_line(COMMAND_SECONDS)
        except TimeoutError:
            raise MailServerUnavailable(
                Phrase("delivery.server_silent", address=self._stream.address)
            ) from None
        return await self._complete(line)

    async def _complete(self, line: bytes) -> ImapResponse:
        """Return the response that begins with a line, with the literals that follow it."""
        text, tokens, size = line, list[Token](), 0
        while literal := _LITERAL.search(line):
            size += int(literal[1])
            if size > self._max_bytes:
                raise MailServerUnavailable(f"{self._stream.address} sends more than was asked for")
            tokens += _tokenize(line[: literal.start()])
            tokens.append(await self._stream.read_exactly(int(literal[1]), COMMAND_SECONDS))
            try:
                line = await self._stream.read_line(COMMAND_SECONDS)
            except TimeoutError:
                raise MailServerUnavailable(
                    Phrase("delivery.server_silent", address=self._stream.address)
                ) from None
            text += b" " + line
        tokens += _tokenize(line)
        self._note(tokens)
        return ImapResponse(text, tokens)

    def _note(self, tokens: Sequence[Token]) -> None:
        if len(tokens) > 2 and tokens[0] == b"*" and _upper(tokens[2]) == b"EXISTS":
            # Some servers repeat the number without a reason.
            self.arrivals += tokens[1] != self._exists
            self._exists = tokens[1]
        elif len(tokens) > 2 and tokens[0] == b"*" and _upper(tokens[2]) == b"EXPUNGE":
            self._exists = b""
        elif len(tokens) > 1 and tokens[0] == b"*" and _upper(tokens[1]) == b"BYE":
            raise MailServerUnavailable(Phrase("delivery.server_ended", address=self._stream.address))


def quote(value: bytes) -> bytes:
    """Return a quoted string. Raise `ImapRefused` for a value that no command can hold."""
    if _LINE_END.search(value):
        raise ImapRefused("a name with a line end cannot be used")
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def encode_mailbox(name: str) -> bytes:
    """Return the name of a mailbox in the modified UTF-7 of IMAP."""
    out, wide = bytearray(), ""
    for char in f"{name}\0":
        if " " <= char <= "~" or char == "\0":
            if wide:
                encoded = base64.b64encode(wide.encode("utf-16-be", "surrogatepass")).rstrip(b"=")
                out += b"&" + encoded.replace(b"/", b",") + b"-"
                wide = ""
            out += b"&-" if char == "&" else char.encode()
        else:
            wide += char
    return bytes(out[:-1])


def decode_mailbox(name: bytes) -> str:
    """Return the name of a mailbox from modified UTF-7; as it is if it is malformed."""

    def decode(found: re.Match[bytes]) -> bytes:
        if not found[1]:
            return b"&"
        padded = found[1].replace(b",", b"/") + b"=" * (-len(found[1]) % 4)
        return base64.b64decode(padded).decode("utf-16-be", "replace").encode()

    try:
        return re.sub(rb"&([A-Za-z0-9+,]*)-", decode, name).decode()
    except ValueError:
        return name.decode("ascii", "replace")


def format_date(moment: datetime) -> bytes:
    """Format a day for the search key SINCE."""
    return f"{moment.day}-{_MONTHS[moment.month - 1]}-{moment.year}".encode()


def _tokenize(line: bytes) -> list[Token]:
    tokens: list[Token] = []
    for found in _TOKEN.finditer(line):
        if found[2]:
            tokens.append(found[2].decode())
        else:
            quoted = found[1]
            tokens.append(re.sub(rb"\\(.)", rb"\1", quoted) if quoted is not None else found[3])
    return tokens


def _upper(token: Token) -> bytes:
    return token.upper() if isinstance(token, bytes) else token.encode()


def _parse_fetch(tokens: Sequence[Token]) -> FetchedMail | None:
    """Return the mail of a FETCH response with a UID; `None` for any other response."""
    if len(tokens) < 5 or _upper(tokens[2]) != b"FETCH":
        return None
    fields: dict[bytes, list[Token]] = {}
    at = 4
    while at < len(tokens) - 1:
        name, value = _upper(tokens[at]), tokens[at + 1]
        end = at + 2
        if value == Open:
            end = tokens.index(Close, at) + 1 if Close in tokens[at:] else len(tokens)
        fields[name.partition(b"[")[0]] = list(tokens[at + 1 : end])
        at = end
    uid, size = (_read_number(fields.get(name)) for name in (b"UID", b"RFC822.SIZE"))
    if not uid:
        return None
    body = next((t for t in fields.get(b"BODY", ()) if isinstance(t, bytes)), None)
    flags = frozenset(_upper(t) for t in fields.get(b"FLAGS", ()) if isinstance(t, bytes))
    return FetchedMail(uid, size, _parse_moment(fields.get(b"INTERNALDATE")), flags, body)


def _read_number(tokens: Sequence[Token] | None) -> int:
    value = tokens[0] if tokens else b""
    return int(value) if isinstance(value, bytes) and value.isdigit() and len(value) < 12 else 0


def _parse_moment(tokens: Sequence[Token] | None) -> datetime | None:
    value = tokens[0] if tokens else b""
    if not isinstance(value, bytes):
        return None
    day, _, rest = value.decode("ascii", "replace").strip().partition("-")
    month, _, rest = rest.partition("-")
    if month.title() not in _MONTHS:
        return None
    try:
        moment = datetime.strptime(f"{day} {_MONTHS.index(month.title()) + 1} {rest}", "%d %m %Y %H:%M:%S %z")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
