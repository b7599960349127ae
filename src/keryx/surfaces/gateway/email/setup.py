"""The setup of a mailbox: signs in at both servers, and finds out which server checks the senders of its mails."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.texts import Phrase
from keryx.secrets import Secret
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.email import EmailSettings, read_servers
from keryx.surfaces.gateway.email.authentication import find_server
from keryx.surfaces.gateway.email.event_parser import IDS, PLATFORM
from keryx.surfaces.gateway.email.imap_client import ImapConnection, ImapRefused
from keryx.surfaces.gateway.email.mail_headers import MAX_HEADER_BYTES, clean_address, parse_header
from keryx.surfaces.gateway.email.message_sender import MailServers
from keryx.surfaces.gateway.email.smtp_client import SmtpConnection, SmtpReply

_INTRO = Phrase("connect.email_intro")
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
        raise Invalid(Phrase("connect.email_one_secret"))
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
        raise Invalid(Phrase("connect.email_no_authserv", mailbox=mailbox))
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
        summary=Phrase("connect.email_account", address=address, mailbox=mailbox, count=count),
        settings={name: value for name, value in values.items() if value},
        secrets={} if command else {"password": answers["password"]},
        steps=(
            Phrase("connect.start"),
            Phrase("connect.email_write", address=address),
            Phrase("connect.pair", platform=PLATFORM),
        ),
        note=Phrase("connect.email_note", authserv=authserv),
        details={"address": address, "authserv": authserv, "mails": count},
    )


def _read_address(text: str) -> str:
    """Return an address in the form for comparisons. Raise `Invalid` for anything else."""
    address = clean_address(text)
    if not address:
        raise Invalid(Phrase("connect.email_no_address"))
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
        raise Invalid(Phrase("connect.email_unreadable", mailbox=mailbox, reason=exc)) from None
    finally:
        imap.abort()
    names = Counter(name for mail in mails if (name := find_server(parse_header(mail.body or b""))))
    return len(uids), names.most_common(1)[0][0] if names else ""


async def _check_smtp(servers: MailServers, name: str) -> None:
    try:
        smtp = await SmtpConnection.connect(servers.smtp, servers.credentials, servers.tls, name=name)
    except SmtpReply as exc:
        if exc.code in (530, 534, 535):
            raise Forbidden(
                Phrase("connect.email_wrong_password", server=servers.smtp, code=exc.code)
            ) from None
        raise Unavailable(Phrase("connect.email_not_sending", server=servers.smtp, code=exc.code)) from None
    await smtp.close()


SETUP = PlatformSetup(
    platform=PLATFORM,
    title=Phrase("connect.email_title"),
    summary=Phrase("connect.email"),
    intro=_INTRO,
    fields=(
        SetupField(
            name="address",
            label=Phrase("connect.email_address"),
            help=Phrase("connect.email_address_help"),
            example="keryx@example.org",
            accept=_read_address,
        ),
        SetupField(
            name="password",
            label=Phrase("connect.email_password"),
            help=Phrase("connect.email_password_help"),
            secret=True,
            optional=True,
        ),
        SetupField(
            name="imap",
            label=Phrase("connect.email_imap"),
            help=Phrase("connect.email_imap_help"),
            optional=True,
        ),
        SetupField(
            name="smtp",
            label=Phrase("connect.email_smtp"),
            help=Phrase("connect.email_smtp_help"),
            optional=True,
        ),
        SetupField(
            name="authserv",
            label=Phrase("connect.email_authserv"),
            help=Phrase("connect.email_authserv_help"),
            optional=True,
        ),
        SetupField(name="user", label=Phrase("connect.email_user"), optional=True, ask=False),
        SetupField(
            name="token_command",
            label=Phrase("connect.email_command"),
            optional=True,
            ask=False,
        ),
        SetupField(
            name="mailbox", label=Phrase("connect.email_mailbox"), optional=True, ask=False, default="INBOX"
        ),
        SetupField(name="ca", label=Phrase("connect.email_ca"), optional=True, ask=False),
    ),
    person=IDS.person,
    check=check,
)
