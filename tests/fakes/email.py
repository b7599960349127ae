"""A mail provider: IMAP and SMTP on loopback, strict about what it is asked, with the faults of real ones."""

import base64
import re
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from itertools import count
from pathlib import Path
from typing import Self

import msgspec

from keryx.core.media import Attachment
from keryx.secrets import Secret
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.email import EmailAdapter, EmailSettings, read_servers
from keryx.testing.wire import WireFake
from keryx.timing import Sleep

ADDRESS = "keryx@hub.test"
PASSWORD = "horse-battery-staple"
TOKEN = "ya29.bearer-token-of-keryx"
AUTHSERV = "mx.hub.test"
ENVIRON = {"MAIL_PASSWORD": PASSWORD, "MAIL_TOKEN": TOKEN}
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
_TAIL = re.compile(r"\n\n[^\n]* wrote:\n(?:>[^\n]*\n?)+\Z")
_FETCH_ITEMS = re.compile(
    rb"UID|FLAGS|RFC822\.SIZE|INTERNALDATE|BODY\.PEEK\[(HEADER)?\]<0\.(\d+)>", re.IGNORECASE
)
_COMMANDS_BEFORE_LOGIN = {b"CAPABILITY", b"STARTTLS", b"AUTHENTICATE", b"LOGIN", b"LOGOUT", b"NOOP"}
_MAIL_PARAMETER = re.compile(r"SIZE=\d+|BODY=8BITMIME|SMTPUTF8", re.IGNORECASE)


@dataclass
class StoredMail:
    uid: int
    raw: bytes
    at: datetime
    flags: set[bytes] = field(default_factory=set[bytes])


@dataclass
class FakeMail(WireFake):
    """The account of Keryx, and the people it writes with. `errors` are requests that no real server would take."""

    # What the servers offer.
    idle: bool = True
    auth: Sequence[str] = ("PLAIN", "XOAUTH2")
    saves_sent: bool = True
    uid_plus: bool = True
    tls: ssl.SSLContext | None = None
    max_bytes: int = 30_000_000
    # What a send is refused with, at RCPT.
    refusal: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.uid_validity = 1
        self.mailboxes: dict[str, list[StoredMail]] = {"INBOX": [], "Gesendet &AOQ-": []}
        self.errors: list[str] = []
        # Who gets it, and the mail, in order.
        self.delivered: list[tuple[str, bytes]] = []
        # Who gets it, and what they read.
        self._texts: list[tuple[str, str]] = []
        self.commands: list[str] = []
        # The password that is right now.
        self.password = PASSWORD
        self.token = TOKEN
        self.sign_ins = 0
        self._uids = count(1)
        self._ids = count(1)
        self._idlers: set[_ImapSession] = set()
        self._sessions: set[socket.socket] = set()
        # The contents of these mails are handed out when the event is set.
        self.held: set[int] = set()
        self.released = threading.Event()
        self._imap = _Server(self, _ImapSession)
        self._smtp = _Server(self, _SmtpSession)

    @property
    def imap(self) -> str:
        return f"imap://127.0.0.1:{self._imap.port}"

    @property
    def smtp(self) -> str:
        return f"smtp://127.0.0.1:{self._smtp.port}"

    @property
    def sent(self) -> list[StoredMail]:
        return self.mailboxes["Gesendet &AOQ-"]

    def __enter__(self) -> Self:
        super().__enter__()
        self._imap.start()
        self._smtp.start()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for server in (self._imap, self._smtp):
            server.shutdown()
            server.server_close()
        self.disconnect()

    def disconnect(self) -> None:
        """Break every connection."""
        for each in list(self._sessions):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def write(
        self,
        author: str,
        text: str,
        *,
        subject: str = "",
        answers: str = "",
        references: Sequence[str] = (),
        message_id: str | None = None,
        html: str = "",
        files: Sequence[Attachment] = (),
        result: str = "dmarc=pass header.from={domain}",
        headers: Mapping[str, str] = {},
        at: datetime = START,
    ) -> str:
        """Deliver a mail of a person, and return its Message-ID."""
        message = EmailMessage(policy=policy.SMTP)
        id_ = f"<m{next(self._ids)}@people.test>" if message_id is None else message_id
        domain = author.rpartition("@")[2].rstrip(">")
        fields = {
            "Authentication-Results": f"{AUTHSERV}; {result.format(domain=domain)}" if result else "",
            "From": author,
            "To": ADDRESS,
            "Date": at.strftime("%a, %d %b %Y %H:%M:%S +0000"),
            "Message-ID": id_,
            "Subject": subject,
            "In-Reply-To": answers,
            "References": " ".join(references),
            **headers,
        }
        message.set_content(text)
        if html:
            message.add_alternative(html, subtype="html")
        for file in files:
            kind, _, subtype = (file.mime or "application/octet-stream").partition("/")
            message.add_attachment(file.body, maintype=kind, subtype=subtype, filename=file.name)
        header = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
        self.deliver(header.encode() + message.as_bytes(), at=at)
        return id_

    def deliver(
        self, raw: bytes, *, mailbox: str = "INBOX", at: datetime = START, flags: Sequence[bytes] = ()
    ) -> int:
        """Store a mail as it is, and tell who waits for one."""
        with self.lock:
            uid = next(self._uids)
            self.mailboxes[mailbox].append(StoredMail(uid, raw, at, set(flags)))
            idlers = [each for each in self._idlers if each.mailbox == mailbox]
            self.lock.notify_all()
        for session in idlers:
            session.report_exists()
        return uid

    def rebuild(self, *, keep_dates: bool = True) -> None:
        """Give the inbox a new UIDVALIDITY and new UIDs, as a server that was restored from a backup does."""
        with self.lock:
            self.uid_validity += 1
            self._uids = count(1)
            now = max((mail.at for mail in self.mailboxes["INBOX"]), default=START)
            self.mailboxes["INBOX"] = [
                replace(mail, uid=next(self._uids), at=mail.at if keep_dates else now)
                for mail in self.mailboxes["INBOX"]
            ]
        self.disconnect()

    def mails(self, chat: str) -> list[EmailMessage]:
        """The mails that a person got, in order."""
        with self.lock:
            found = [raw for to, raw in self.delivered if to == chat]
        return list(map(read, found))

    def texts(self, chat: str) -> list[str]:
        """What a person reads, without the quoted tail."""
        with self.lock:
            return [text for to, text in self._texts if to == chat and text]

    def files(self, chat: str) -> list[bytes]:
        found = [
            part.get_payload(decode=True) for mail in self.mails(chat) for part in mail.iter_attachments()
        ]
        return [body for body in found if isinstance(body, bytes)]

    def accept(self, recipient: str, raw: bytes) -> None:
        mail = check_mail(raw, recipient, self.errors)
        with self.lock:
            self.delivered.append((recipient, raw))
            self._texts.append((recipient, plain_text(mail)))
            if self.saves_sent:
                self.sent.append(StoredMail(next(self._uids), raw, START, {b"\\SEEN"}))
            self.lock.notify_all()

    def check_login(self, mechanism: str, response: str) -> bool:
        self.sign_ins += 1
        try:
            words = base64.b64decode(response, validate=True).decode()
        except ValueError:
            self.errors.append(f"{mechanism} with a response that is no base64")
            return False
        if mechanism == "XOAUTH2":
            return words == f"user={ADDRESS}\1auth=Bearer {self.token}\1\1"
        return words == f"\0{ADDRESS}\0{self.password}"

    def settings(self, **more: object) -> EmailSettings:
        values: dict[str, object] = {
            "address": ADDRESS,
            "imap": self.imap,
            "smtp": self.smtp,
            "authserv": AUTHSERV,
            "saves_sent": self.saves_sent,
            "password": "env:MAIL_PASSWORD",
            **more,
        }
        return msgspec.convert(values, EmailSettings, dec_hook=lambda _, value: Secret(str(value)))

    def track(self, connection: socket.socket) -> None:
        with self.lock:
            self._sessions.add(connection)

    def untrack(self, connection: socket.socket) -> None:
        with self.lock:
            self._sessions.discard(connection)

    def wait_idle(self, session: "_ImapSession", *, waiting: bool) -> None:
        with self.lock:
            (self._idlers.add if waiting else self._idlers.discard)(session)
            self.lock.notify_all()

    @property
    def idlers(self) -> int:
        with self.lock:
            return len(self._idlers)


def read(raw: bytes) -> EmailMessage:
    found = message_from_bytes(raw, policy=policy.default)
    assert isinstance(found, EmailMessage)
    return found


def plain_text(mail: EmailMessage) -> str:
    body = mail.get_body(("plain",))
    text = "" if body is None else str(body.get_content()).replace("\r\n", "\n").removesuffix("\n")
    return _TAIL.sub("", text)


def check_mail(raw: bytes, recipient: str, errors: list[str]) -> EmailMessage:
    """Return a mail, and note what a strict server or a strict reader would not take."""
    if re.search(rb"(?<!\r)\n|\r(?!\n)", raw):
        errors.append("a line end that is not CRLF")
    if any(len(line) > 998 for line in raw.split(b"\r\n")):
        errors.append("a line of more than 998 bytes")
    if not raw.isascii():
        errors.append("bytes beyond ASCII")
    mail = read(raw)
    if mail.defects:
        errors.append(f"a malformed mail: {mail.defects}")
    for name in ("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version"):
        if len(mail.get_all(name, [])) != 1:
            errors.append(f"{len(mail.get_all(name, []))} fields {name}")
    if str(mail["To"]) != recipient or mail["Cc"] or mail["Bcc"]:
        errors.append(f"the mail is to {mail['To']}, but was handed over for {recipient}")
    if not mail.is_multipart() or mail.get_body(("html",)) is None:
        errors.append("the mail has no HTML")
    return mail


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, fake: FakeMail, handler: "type[_Session]") -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.fake = fake
        self.port = int(self.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that a client has broken: tests kill clients."""


class _Closed(Exception):
    """The connection has ended."""


class _Session(socketserver.BaseRequestHandler):
    def setup(self) -> None:
        assert isinstance(self.server, _Server)
        self.fake = self.server.fake
        self.connection: socket.socket = self.request
        self.fake.track(self.connection)
        self.encrypted = False
        self._buffer = b""
        self._sending = threading.Lock()

    def finish(self) -> None:
        self.fake.untrack(self.connection)
        with suppress(OSError):
            self.connection.close()

    def handle(self) -> None:
        with suppress(_Closed, OSError):
            self.serve()

    def serve(self) -> None:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        with self._sending:
            self.connection.sendall(data)

    def read_line(self) -> bytes:
        while b"\n" not in self._buffer:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\n")
        if not line.endswith(b"\r"):
            self.fake.errors.append(f"a line without CR: {line[:80]!r}")
        return line.removesuffix(b"\r")

    def read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def start_tls(self) -> None:
        assert self.fake.tls is not None
        self.connection = self.fake.tls.wrap_socket(self.connection, server_side=True)
        self.fake.track(self.connection)
        self.encrypted = True
        self._buffer = b""

    def _fill(self) -> None:
        chunk = self.connection.recv(65536)
        if not chunk:
            raise _Closed
        self._buffer += chunk


class _ImapSession(_Session):
    def setup(self) -> None:
        super().setup()
        self.mailbox = ""
        self._read_only = True
        self._signed_in = False

    def report_exists(self) -> None:
        with suppress(OSError):
            self.write(b"* %d EXISTS\r\n" % len(self.fake.mailboxes[self.mailbox]))

    def serve(self) -> None:
        self.write(b"* OK ready\r\n")
        while True:
            line = self.read_line()
            tag, _, rest = line.partition(b" ")
            while literal := re.search(rb"\{(\d+)\}\Z", rest):
                self.write(b"+ go on\r\n")
                data = self.read_exactly(int(literal[1]))
                rest = rest[: literal.start()] + b"~" + base64.b64encode(data) + b"~" + self.read_line()
            name, _, arguments = rest.partition(b" ")
            name = name.upper()
            if name == b"UID":
                more, _, arguments = arguments.partition(b" ")
                name = b"UID_" + more.upper()
            self.fake.commands.append(name.decode("ascii", "replace"))
            handler: Callable[[bytes, bytes], None] | None = getattr(
                self, f"do_{name.decode().lower()}", None
            )
            if handler is None or (not self._signed_in and name not in _COMMANDS_BEFORE_LOGIN):
                self.refuse(tag, f"{name!r} is not possible now")
            else:
                handler(tag, arguments)

    def ok(self, tag: bytes, text: bytes = b"done") -> None:
        self.write(tag + b" OK " + text + b"\r\n")

    def refuse(self, tag: bytes, why: str) -> None:
        self.fake.errors.append(why)
        self.write(tag + b" BAD no\r\n")

    def do_capability(self, tag: bytes, arguments: bytes) -> None:
        names = ["IMAP4rev1", *(f"AUTH={each}" for each in self.fake.auth)]
        names += ["IDLE"] if self.fake.idle else []
        names += ["UIDPLUS"] if self.fake.uid_plus else []
        names += ["STARTTLS"] if self.fake.tls and not self.encrypted else []
        self.write(b"* CAPABILITY " + " ".join(names).encode() + b"\r\n")
        self.ok(tag)

    def do_starttls(self, tag: bytes, arguments: bytes) -> None:
        # What follows in clear text must not be read as part of the encrypted conversation.
        self.write(tag + b" OK begin\r\n* CAPABILITY IMAP4rev1 AUTH=INJECTED\r\n")
        self.start_tls()

    def do_authenticate(self, tag: bytes, arguments: bytes) -> None:
        mechanism = arguments.decode().strip()
        if mechanism not in self.fake.auth:
            self.refuse(tag, f"{mechanism} is not offered")
            return
        self.write(b"+ \r\n")
        if self.fake.check_login(mechanism, self.read_line().decode()):
            self._signed_in = True
            self.ok(tag)
            return
        if mechanism == "XOAUTH2":
            self.write(b"+ " + base64.b64encode(b'{"status":"400"}') + b"\r\n")
            if self.read_line():
                self.fake.errors.append("the error of XOAUTH2 is not answered by an empty line")
        self.write(tag + b" NO [AUTHENTICATIONFAILED] no\r\n")

    def do_login(self, tag: bytes, arguments: bytes) -> None:
        user, password = (base64.b64decode(each) for each in re.findall(rb"~([^~]*)~", arguments))
        self._signed_in = (user.decode(), password.decode()) == (ADDRESS, self.fake.password)
        self.fake.sign_ins += 1
        self.write(tag + (b" OK in\r\n" if self._signed_in else b" NO no\r\n"))

    def do_select(self, tag: bytes, arguments: bytes) -> None:
        name = _unquote(arguments)
        with self.fake.lock:
            if name not in self.fake.mailboxes:
                self.write(tag + b" NO [NONEXISTENT] there is no such mailbox\r\n")
                return
            self.mailbox, self._read_only = name, False
            mails = self.fake.mailboxes[name]
            last = max((mail.uid for mail in mails), default=0)
            self.write(
                b"* FLAGS (\\Answered \\Seen \\Draft)\r\n* %d EXISTS\r\n* OK [UIDVALIDITY %d] yes\r\n"
                b"* OK [UIDNEXT %d] yes\r\n" % (len(mails), self.fake.uid_validity, last + 1)
            )
        self.ok(tag, b"[READ-WRITE] open")

    def do_examine(self, tag: bytes, arguments: bytes) -> None:
        self.do_select(tag, arguments)
        self._read_only = True

    def do_create(self, tag: bytes, arguments: bytes) -> None:
        self.fake.mailboxes[_unquote(arguments)] = []
        self.ok(tag)

    def do_list(self, tag: bytes, arguments: bytes) -> None:
        self.write(b'* LIST (\\HasNoChildren) "." INBOX\r\n')
        if "Gesendet &AOQ-" in self.fake.mailboxes:
            self.write(b'* LIST (\\HasNoChildren \\Sent) "." "Gesendet &AOQ-"\r\n')
        self.ok(tag)

    def do_noop(self, tag: bytes, arguments: bytes) -> None:
        if self.mailbox:
            self.report_exists()
        self.ok(tag)

    def do_logout(self, tag: bytes, arguments: bytes) -> None:
        self.write(b"* BYE bye\r\n" + tag + b" OK bye\r\n")
        raise _Closed

    def do_idle(self, tag: bytes, arguments: bytes) -> None:
        if not self.fake.idle:
            self.refuse(tag, "IDLE is not offered")
            return
        self.write(b"+ idling\r\n")
        self.fake.wait_idle(self, waiting=True)
        try:
            self.report_exists()
            if self.read_line() != b"DONE":
                self.fake.errors.append("IDLE is not ended by DONE")
        finally:
            self.fake.wait_idle(self, waiting=False)
        self.ok(tag)

    def do_uid_search(self, tag: bytes, arguments: bytes) -> None:
        with self.fake.lock:
            mails = list(self.fake.mailboxes[self.mailbox])
        if header := re.fullmatch(rb'HEADER Message-ID ("[^"]+")', arguments):
            wanted = b"Message-ID: " + _unquote(header[1]).encode()
            found = [mail.uid for mail in mails if wanted in mail.raw]
        elif span := re.fullmatch(rb"UID (\d+):\*(?: SINCE (\d+-[A-Z][a-z]{2}-\d{4}))?", arguments):
            last = max((mail.uid for mail in mails), default=0)
            day = datetime.strptime(span[2].decode(), "%d-%b-%Y").replace(tzinfo=UTC) if span[2] else None
            # `*` is the last mail, whether it is before the number or not.
            found = [
                mail.uid for mail in mails
                if mail.uid >= min(int(span[1]), last) and (day is None or mail.at >= day)
            ]  # fmt: skip
        elif arguments == b"ALL":
            found = [mail.uid for mail in mails]
        else:
            self.refuse(tag, f"a search for {arguments!r}")
            return
        self.write(b"* SEARCH " + b" ".join(b"%d" % uid for uid in found) + b"\r\n")
        self.ok(tag)

    def do_uid_fetch(self, tag: bytes, arguments: bytes) -> None:
        numbers, _, wanted = arguments.partition(b" ")
        items = wanted.removeprefix(b"(").removesuffix(b")").split(b" ")
        if not wanted.startswith(b"(") or not all(map(_FETCH_ITEMS.fullmatch, items)):
            self.refuse(tag, f"a fetch of {wanted!r}")
            return
        uids = {int(number) for number in numbers.split(b",")}
        with self.fake.lock:
            mails = [mail for mail in self.fake.mailboxes[self.mailbox] if mail.uid in uids]
        if any(item.startswith(b"BODY.PEEK[]") for item in items) and uids & self.fake.held:
            self.fake.released.wait(30)
        answer = b"".join(_format_fetch(mail, items) for mail in self.fake.inject_event_faults(mails))
        if self.fake.roll(self.fake.faults.torn) and answer:
            self.write(answer[: len(answer) // 2])
            raise _Closed
        self.write(answer)
        self.ok(tag)

    def do_uid_store(self, tag: bytes, arguments: bytes) -> None:
        change = re.fullmatch(rb"(\d+) ([+-])FLAGS \((\\[A-Za-z]+)\)", arguments)
        if change is None or self._read_only:
            self.refuse(tag, f"STORE {arguments!r}")
            return
        with self.fake.lock:
            for mail in self.fake.mailboxes[self.mailbox]:
                if mail.uid == int(change[1]):
                    (mail.flags.add if change[2] == b"+" else mail.flags.discard)(change[3].upper())
        self.ok(tag)

    def do_uid_expunge(self, tag: bytes, arguments: bytes) -> None:
        with self.fake.lock:
            kept = [
                mail for mail in self.fake.mailboxes[self.mailbox]
                if mail.uid != int(arguments) or b"\\DELETED" not in mail.flags
            ]  # fmt: skip
            self.fake.mailboxes[self.mailbox][:] = kept
        self.ok(tag)

    def do_append(self, tag: bytes, arguments: bytes) -> None:
        found = re.fullmatch(rb'("[^"]*") \(([^)]*)\) ~([^~]*)~', arguments)
        name = _unquote(found[1]) if found else ""
        if found is None or name not in self.fake.mailboxes:
            self.refuse(tag, f"APPEND {arguments[:80]!r}")
            return
        flags = [flag.upper() for flag in found[2].split()]
        uid = self.fake.deliver(base64.b64decode(found[3]), mailbox=name, flags=flags)
        code = b"[APPENDUID %d %d] " % (self.fake.uid_validity, uid) if self.fake.uid_plus else b""
        self.ok(tag, code + b"stored")


def _unquote(value: bytes) -> str:
    return value.strip().removeprefix(b'"').removesuffix(b'"').replace(b"\\\\", b"\\").decode()


def _format_fetch(mail: StoredMail, items: Sequence[bytes]) -> bytes:
    fields: list[bytes] = []
    for item in items:
        if body := re.fullmatch(rb"BODY\.PEEK\[(HEADER)?\]<0\.(\d+)>", item):
            head = re.split(rb"(?<=\r\n)\r\n|(?<=\n)\n", mail.raw, maxsplit=1)[0] + b"\r\n"
            data = (head if body[1] else mail.raw)[: int(body[2])]
            fields.append(b"BODY[%s]<0> {%d}\r\n%s" % (body[1] or b"", len(data), data))
        else:
            value = {
                b"UID": b"%d" % mail.uid,
                b"FLAGS": b"(" + b" ".join(sorted(mail.flags)) + b")",
                b"RFC822.SIZE": b"%d" % len(mail.raw),
                b"INTERNALDATE": mail.at.strftime('"%d-%b-%Y %H:%M:%S +0000"').encode(),
            }[item.upper()]
            fields.append(item + b" " + value)
    return b"* 1 FETCH (" + b" ".join(fields) + b")\r\n"


class _SmtpSession(_Session):
    def setup(self) -> None:
        super().setup()
        self._signed_in = False
        self._greeted = False
        self._sender = self._recipient = ""

    def reply(self, line: str) -> None:
        self.write(line.encode() + b"\r\n")

    def serve(self) -> None:
        self.reply("220 mx.hub.test ESMTP")
        while True:
            line = self.read_line().decode()
            name, _, rest = line.partition(" ")
            handler: Callable[[str], None] | None = getattr(self, f"do_{name.lower()}", None)
            if handler is None or (name.upper() in ("MAIL", "RCPT", "DATA") and not self._signed_in):
                self.refuse(f"{name} is not possible now")
            else:
                handler(rest)

    def refuse(self, why: str) -> None:
        self.fake.errors.append(why)
        self.reply("503 5.5.1 no")

    def do_ehlo(self, rest: str) -> None:
        self._greeted = bool(rest)
        names = ["mx.hub.test", f"SIZE {self.fake.max_bytes}", "8BITMIME", "ENHANCEDSTATUSCODES"]
        names += [f"AUTH {' '.join(self.fake.auth)}"] if self.fake.auth else []
        names += ["STARTTLS"] if self.fake.tls and not self.encrypted else []
        self.write(
            "".join(f"250{' ' if n == len(names) else '-'}{t}\r\n" for n, t in enumerate(names, 1)).encode()
        )

    def do_starttls(self, rest: str) -> None:
        self.write(b"220 begin\r\n250 injected\r\n")
        self.start_tls()

    def do_auth(self, rest: str) -> None:
        mechanism, _, response = rest.partition(" ")
        if mechanism not in self.fake.auth:
            self.refuse(f"{mechanism} is not offered")
        elif mechanism == "LOGIN":
            self.reply("334 VXNlcm5hbWU6")
            user = base64.b64decode(self.read_line()).decode()
            self.reply("334 UGFzc3dvcmQ6")
            self._signed_in = (user, base64.b64decode(self.read_line()).decode()) == (
                ADDRESS,
                self.fake.password,
            )
            self.reply("235 in" if self._signed_in else "535 5.7.8 no")
        elif self.fake.check_login(mechanism, response):
            self._signed_in = True
            self.reply("235 2.7.0 in")
        else:
            if mechanism == "XOAUTH2":
                self.reply("334 " + base64.b64encode(b'{"status":"400"}').decode())
                self.read_line()
            self.reply("535 5.7.8 no")

    def do_mail(self, rest: str) -> None:
        found = re.fullmatch(r"FROM:<([^<>]+)>((?: \S+)*)", rest, re.IGNORECASE)
        parameters = found[2].split() if found else []
        if found is None or self._sender or not all(map(_MAIL_PARAMETER.fullmatch, parameters)):
            self.refuse(f"MAIL {rest}")
        elif self.fake.roll(self.fake.faults.throttle):
            wait = self.fake.faults.retry_after
            self.reply(f"450 4.7.1 Too many mails, try again in {wait:g} seconds")
        else:
            self._sender = found[1]
            self.reply("250 2.1.0 ok")

    def do_rcpt(self, rest: str) -> None:
        found = re.fullmatch(r"TO:<([^<>]+)>", rest, re.IGNORECASE)
        if found is None or not self._sender or self._recipient:
            self.refuse(f"RCPT {rest}")
        elif self.fake.refusal:
            self.reply(self.fake.refusal)
        else:
            self._recipient = found[1]
            self.reply("250 2.1.5 ok")

    def do_data(self, rest: str) -> None:
        if not self._recipient:
            self.refuse("DATA without a recipient")
            return
        self.reply("354 go on")
        lines: list[bytes] = []
        while (line := self.read_line()) != b".":
            lines.append(line.removeprefix(b".") + b"\r\n")
        recipient, self._sender, self._recipient = self._recipient, "", ""
        if self.fake.roll(self.fake.faults.broken):
            self.reply("451 4.3.0 later")
            return
        self.fake.accept(recipient, b"".join(lines))
        if self.fake.roll(self.fake.faults.lost_reply):
            raise _Closed
        self.reply("250 2.0.0 queued")

    def do_rset(self, rest: str) -> None:
        self._sender = self._recipient = ""
        self.reply("250 2.0.0 ok")

    def do_quit(self, rest: str) -> None:
        self.reply("221 2.0.0 bye")
        raise _Closed


def open_adapter(
    settings: EmailSettings, *, sleep: Sleep, now: Callable[[], datetime] = lambda: START
) -> EmailAdapter:
    """The adapter for settings of the fake."""
    setup = AdapterSetup(platform="email", home=Path(), environ=ENVIRON)
    return EmailAdapter(settings, read_servers(settings, setup), sleep=sleep, now=now)
