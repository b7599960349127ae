"""The adapter for one mailbox: receives by IMAP, and answers by SMTP under Message-IDs of its own."""

import asyncio
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import anyio
import msgspec

from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import Invalid
from keryx.core.ports.adapter import (
    Adapter,
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    OutgoingPart,
    RenderedPart,
)
from keryx.markdown import email_html
from keryx.secrets import Secret
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.email.event_parser import IDS, PLATFORM, MailAccount
from keryx.surfaces.gateway.email.event_receiver import ListenerLimits, MailListener
from keryx.surfaces.gateway.email.mail_builder import create_message_id
from keryx.surfaces.gateway.email.mail_headers import MailPerson, clean_address
from keryx.surfaces.gateway.email.message_sender import MailSender, MailServers
from keryx.surfaces.gateway.email.server_login import MailCredentials, create_tls_context, parse_address
from keryx.timing import Sleep

_CLOSE_SECONDS = 2.0
NOTES = (
    "Each mail thread is a conversation of its own. An answer is one mail with the files in it; people read it whole, so it says everything at once.",
    "Answers go to the author of the mail alone, never to others who got it.",
)


class EmailSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[email]` in keryx.toml."""

    # The address that Keryx reads and answers as, and the name that people see.
    address: str = ""
    name: str = "Keryx"
    # `imaps://` and `smtps://` for TLS, `imap://` and `smtp://` for STARTTLS.
    imap: str = ""
    smtp: str = ""
    # The user name at both servers; the address if it is empty.
    user: str = ""
    # One of the three.
    password: Secret = Secret()
    token: Secret = Secret()
    token_command: str = ""
    # The names of the servers whose Authentication-Results are believed, with commas between them.
    authserv: str = ""
    mailbox: str = "INBOX"
    # Where copies of answers are; found by itself if it is empty.
    sent: str = ""
    # The server saves a copy of what it sends in that mailbox itself.
    saves_sent: bool = False
    # A tail with the mail that is answered is put below an answer.
    quote: bool = True
    # The time between two polls, for servers without IDLE.
    poll: timedelta = timedelta(seconds=60)
    # The largest mail that is fetched as a whole, and the most bytes of files in one answer.
    download: Annotated[int, msgspec.Meta(ge=100_000)] = 25_000_000
    upload: Annotated[int, msgspec.Meta(ge=0)] = 18_000_000
    # The most mails of one sender in an hour; 0 for no limit.
    per_hour: Annotated[int, msgspec.Meta(ge=0)] = 60
    # A file with the certificates to trust instead of those of the system.
    ca: str = ""

    def __post_init__(self) -> None:
        if self.poll < timedelta(seconds=1):
            raise ValueError("poll: give at least 1s")


def make(setup: AdapterSetup) -> Adapter | None:
    """The entry point. Return `None` if the platform is not configured; raise `Invalid` if a setting is missing."""
    settings = setup.read(EmailSettings)
    if settings is None:
        return None
    return build_adapter(settings, setup)


def build_adapter(settings: EmailSettings, setup: AdapterSetup) -> "EmailAdapter":
    """Return the adapter for these settings. Raise `Invalid` with the name of one that is missing or wrong."""
    values = msgspec.structs.asdict(settings)
    for name in ("address", "imap", "smtp", "authserv"):
        if not values[name]:
            raise Invalid(f"{setup.label}.{name} is missing: write it, or set {setup.variable_name(name)}")
    if not clean_address(settings.address):
        raise Invalid(f"{setup.label}.address must be an address, such as keryx@example.org")
    given = [name for name in ("password", "token", "token_command") if values[name]]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise Invalid(
            f'{setup.label} needs one of password, token and token_command, not {found}: write password = "file:PATH", or set {setup.variable_name("password")}'
        )
    try:
        shlex.split(settings.token_command)
    except ValueError as exc:
        raise Invalid(f"{setup.label}.token_command is no command: {exc}") from None
    return EmailAdapter(settings, read_servers(settings, setup))


def read_servers(settings: EmailSettings, setup: AdapterSetup) -> MailServers:
    """Return the servers that the settings name. Raise `Invalid` for a malformed address."""
    return MailServers(
        imap=parse_address(settings.imap, "imap", f"{setup.label}.imap"),
        smtp=parse_address(settings.smtp, "smtp", f"{setup.label}.smtp"),
        credentials=MailCredentials(
            user=settings.user or settings.address,
            password=settings.password,
            token=settings.token,
            token_command=settings.token_command,
            environ=dict(setup.environ),
        ),
        tls=create_tls_context(settings.ca),
    )


class EmailAdapter:
    platform = PLATFORM
    hook = None

    def __init__(
        self,
        settings: EmailSettings,
        servers: MailServers,
        *,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.account = clean_address(settings.address)
        self.capabilities = Capabilities(
            idempotency=Idempotency.RECONCILE,
            threads=True,
            attachments=AttachmentLimits(max_bytes=settings.upload),
            files_with_text=True,
            titles=True,
            limit=email_html.LIMIT.size,
            unit=email_html.LIMIT.unit,
            pii_safe=True,
            ids=IDS,
            notes=NOTES,
        )
        self._settings = settings
        self._servers = servers
        self._sleep = sleep
        self._now = now
        names = (name.strip().lower() for name in settings.authserv.split(","))
        self._identity = MailAccount(address=self.account, trusted=frozenset(filter(None, names)))
        self._sender = MailSender(
            servers,
            MailPerson(self.account, settings.name),
            sent_mailbox=settings.sent,
            saves_sent=settings.saves_sent,
            quote=settings.quote,
            now=now,
        )

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._sender.close()

    async def listen(self, context: AdapterContext) -> None:
        settings = self._settings
        listener = MailListener(
            self._servers,
            self._identity,
            context,
            mailbox=settings.mailbox,
            limits=ListenerLimits(
                download=settings.download, per_hour=settings.per_hour, poll=settings.poll.total_seconds()
            ),
            sleep=self._sleep,
            now=self._now,
        )
        try:
            await listener.run()
        except asyncio.CancelledError:
            await self.close()
            raise

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [RenderedPart(part.plain, part) for part in email_html.render_parts(text)]

    def create_send_key(self, part: OutgoingPart) -> str:
        """The key is the Message-ID of the mail."""
        return create_message_id(part, self._identity.domain)

    async def send(self, part: OutgoingPart) -> str:
        return await self._sender.send(part)

    async def find_sent(self, part: OutgoingPart) -> str | None:
        return await self._sender.find_sent(part)

    async def typing(self, target: Target) -> None:
        """Do nothing: mail cannot show it."""
