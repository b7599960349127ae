"""The setup of a mailbox: signs in at both servers, and finds out which server checks the senders of its mails."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.text import format_count
from keryx.secrets import Secret
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.email import EmailSettings, read_servers
from keryx.surfaces.gateway.email.authentication import find_server
from keryx.surfaces.gateway.email.event_parser import PLATFORM
from keryx.surfaces.gateway.email.imap_client import ImapConnection, ImapRefused
from keryx.surfaces.gateway.email.mail_headers import MAX_HEADER_BYTES, clean_address, parse_header
from keryx.surfaces.gateway.email.message_sender import MailServers
from keryx.surfaces.gateway.email.smtp_client import SmtpConnection, SmtpReply

_INTRO = """\
Keryx needs a mailbox of its own: everything that arrives there and is from a
verified person is answered.

  1. make an address at your provider, such as keryx@example.org, with a
     password (an app password where the provider has them)
  2. have the addresses of its IMAP and SMTP servers at hand"""
_PASSWORD_VARIABLE = "KERYX_SETUP_PASSWORD"
_MAILS_SEARCHED = 50
_MOST_SAVE_SENT = frozenset({"gmail.com", "googlemail.com", "outlook.com", "hotmail.com", "live.com"})
# The IMAP and the SMTP server of large providers.
_PROVIDERS = {
    "gmail.com": ("imaps://imap.gmail.com", "smtps://smtp.gmail.com"),
    "googlemail.com": ("imaps://imap.gmail.com", "smtps://smtp.gmail.com"),
    "fastmail.com": ("imaps://imap.fastmail.com", "smtps://smtp.fastmail.com"),
    "icloud.com": ("imaps://imap.mail.me.com", "smtp://smtp.mail.me.com"),
}


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Sign in at both servers. Raise `Invalid`, `Forbidden` or `Unavailable` with what to do."""
    address = _read_address(answers.get("address", ""))
    domain = address.rpartition("@")[2]
    known = _PROVIDERS.get(domain, (f"imaps://imap.{domain}", f"smtps://smtp.{domain}"))
    imap, smtp = (answers.get(name, "") or known[n] for n, name in enumerate(("imap", "smtp")))
    command = answers.get("token_command", "")
    if bool(answers.get("password")) == bool(command):
        raise Invalid("give the password of the mailbox, or a command that prints a token, and not both")
    settings = EmailSettings(
        address=address,
        imap=imap,
        smtp=smtp,
        user=answers.get("user", ""),
        password=Secret() if command else Secret(f"env:{_PASSWORD_VARIABLE}"),
        token_command=command,
        ca=answers.get("ca", ""),
    )
    environ = {_PASSWORD_VARIABLE: answers.get("password", "")}
    servers = read_servers(settings, AdapterSetup(platform=PLATFORM, home=Path(), environ=environ))
    mailbox = answers.get("mailbox", "") or settings.mailbox
    count, found = await _check_imap(servers, mailbox)
    await _check_smtp(servers, domain)
    authserv = answers.get("authserv", "").strip() or found
    if not authserv:
        raise Invalid(
            f"none of the last mails in {mailbox} says which server checked its sender: ask your provider for the name in the "
            "header Authentication-Results and give it as `authserv`, or send a mail to the address and try again"
        )
    values = {
        "address": address,
        "imap": imap,
        "smtp": smtp,
        "user": settings.user,
        "token_command": command,
        "authserv": authserv,
        "mailbox": "" if mailbox == EmailSettings().mailbox else mailbox,
        "ca": settings.ca,
        "saves_sent": "true" if domain in _MOST_SAVE_SENT else "",
    }
    return SetupOutcome(
        summary=f"Keryx reads and answers as {address}; {mailbox} holds {format_count(count, 'mail')}, left unanswered.",
        settings={name: value for name, value in values.items() if value},
        secrets={} if command else {"password": answers["password"]},
        steps=(
            "start Keryx, or start it again: keryx serve",
            f"write a mail to {address}",
            f"it answers with a code; let yourself in: keryx pairing approve {PLATFORM} CODE --operator",
        ),
        note=f"Mails count as those of their author if {authserv} has verified the sender (DMARC, DKIM or SPF).",
        details={"address": address, "authserv": authserv, "mails": count},
    )


def _read_address(text: str) -> str:
    """Return an address in the form for comparisons. Raise `Invalid` for anything else."""
    address = clean_address(text)
    if not address:
        raise Invalid("the address must be one such as keryx@example.org")
    return address


async def _check_imap(servers: MailServers, mailbox: str) -> tuple[int, str]:
    """Return how many mails there are, and the server that checked the senders of most of the last ones."""
    imap = await ImapConnection.connect(
        servers.imap, servers.credentials, servers.tls, max_bytes=_MAILS_SEARCHED * MAX_HEADER_BYTES
    )
    try:
        await imap.open_mailbox(mailbox, read_only=True)
        uids = await imap.search(b"ALL")
        header = b"BODY.PEEK[HEADER]<0.%d>" % MAX_HEADER_BYTES
        mails = await imap.fetch(uids[-_MAILS_SEARCHED:], header)
    except ImapRefused as exc:
        raise Invalid(f"the mailbox {mailbox} cannot be read: {exc}") from None
    finally:
        imap.abort()
    names = Counter(name for mail in mails if (name := find_server(parse_header(mail.body or b""))))
    return len(uids), names.most_common(1)[0][0] if names else ""


async def _check_smtp(servers: MailServers, name: str) -> None:
    try:
        smtp = await SmtpConnection.connect(servers.smtp, servers.credentials, servers.tls, name=name)
    except SmtpReply as exc:
        if exc.code in (530, 534, 535):
            raise Forbidden(f"{servers.smtp} refuses the user name or the password: {exc.code}") from None
        raise Unavailable(f"{servers.smtp} does not let us send: {exc.code}") from None
    await smtp.close()


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="E-mail",
    summary="Connect a mailbox.",
    intro=_INTRO,
    fields=(
        SetupField(
            name="address",
            label="Address of the mailbox",
            help="People write to Keryx there.",
            example="keryx@example.org",
            accept=_read_address,
        ),
        SetupField(
            name="password",
            label="Password of the mailbox",
            help="Give an app password if your provider has them.",
            secret=True,
            optional=True,
        ),
        SetupField(
            name="imap",
            label="IMAP server",
            help="imaps://HOST for TLS, imap://HOST for STARTTLS; guessed from the address if it is empty.",
            optional=True,
        ),
        SetupField(
            name="smtp",
            label="SMTP server",
            help="smtps://HOST for TLS, smtp://HOST for STARTTLS; guessed from the address if it is empty.",
            optional=True,
        ),
        SetupField(
            name="authserv",
            label="Server that checks senders",
            help="The first word of the header Authentication-Results; read from the last mails if it is empty.",
            optional=True,
        ),
        SetupField(name="user", label="User name, if it is not the address", optional=True, ask=False),
        SetupField(
            name="token_command",
            label="Command that prints a token for OAuth 2, instead of a password",
            optional=True,
            ask=False,
        ),
        SetupField(name="mailbox", label="Mailbox to read", optional=True, ask=False, default="INBOX"),
        SetupField(name="ca", label="File with certificates to trust", optional=True, ask=False),
    ),
    check=check,
)
