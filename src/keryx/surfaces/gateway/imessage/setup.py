"""The setup of iMessage: what a person is asked for either way to the Mac, and the check of the answers."""

import secrets
from collections.abc import Mapping

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.imessage import (
    BAD_PASSWORD,
    NO_DISK_ACCESS,
    IMessageTransport,
    check_url,
    parse_command,
)
from keryx.surfaces.gateway.imessage.bluebubbles_api import (
    BlueBubblesApi,
    BlueBubblesError,
    BlueBubblesNoResponse,
    BlueBubblesUnreachable,
)
from keryx.surfaces.gateway.imessage.event_parser import IDS, PLATFORM
from keryx.surfaces.gateway.imessage.imsg_client import ImsgClient, ImsgNoResponse, ImsgUnavailable

_INTRO = Phrase("connect.imessage_intro")
_FOR_IMSG = {"transport": IMessageTransport.IMSG.value}
_FOR_BLUEBUBBLES = {"transport": IMessageTransport.BLUEBUBBLES.value}
_PAIR = Phrase("connect.write_and_pair", platform=PLATFORM)
_NOTE = Phrase("connect.imessage_note")


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask the Mac whether the answers are right."""
    if answers.get("transport") == IMessageTransport.BLUEBUBBLES:
        return await _check_bluebubbles(answers, dialog)
    command = parse_command(answers.get("command", "").strip() or "imsg rpc")
    client = ImsgClient(command)
    try:
        await client.request("chats.list", {"limit": 1})
    except (ImsgUnavailable, ImsgNoResponse) as exc:
        if "Full Disk Access" in str(exc) or "authorization denied" in str(exc):
            raise Forbidden(NO_DISK_ACCESS) from None
        raise Unavailable(str(exc)) from None
    finally:
        await client.close()
    return SetupOutcome(
        summary=Phrase("connect.imessage_reads"),
        settings={"transport": IMessageTransport.IMSG.value, "command": list(command)},
        steps=(Phrase("connect.start"), _PAIR),
        note=_NOTE,
    )


async def _check_bluebubbles(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    password = answers.get("password", "").strip()
    if not password:
        raise Invalid(Phrase("connect.imessage_no_password"))
    base = check_url("base_url", answers.get("base_url", "").strip())
    url = answers.get("url", "").strip()
    url = check_url("url", url) if url else ""
    api = BlueBubblesApi(base, password)
    try:
        info = await api.get_info()
    except BlueBubblesError as exc:
        raise (Forbidden(BAD_PASSWORD) if exc.status in (401, 403) else Unavailable(str(exc))) from None
    except (BlueBubblesUnreachable, BlueBubblesNoResponse) as exc:
        raise Unavailable(Phrase("connect.imessage_unreachable", reason=exc)) from None
    finally:
        await api.close()
    private = info.private_api and info.helper_connected
    return SetupOutcome(
        summary=Phrase(
            "connect.imessage_server",
            version=info.server_version or Phrase("connect.imessage_unknown_version"),
            account=info.detected_imessage or Phrase("connect.imessage_unknown_account"),
        ),
        settings={
            "transport": IMessageTransport.BLUEBUBBLES.value,
            "base_url": base,
            **({"url": url} if url else {}),
        },
        secrets={"password": password, "secret": secrets.token_urlsafe(24)},
        steps=(Phrase("connect.start"), _PAIR),
        note=_NOTE if private else Phrase("connect.imessage_note_no_api", note=_NOTE),
        details={
            "server_version": info.server_version,
            "private_api": private,
            "webhook": f"{url}/hooks/{dialog.label.replace('.', '/')}/<secret>" if url else "",
        },
    )


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="iMessage",
    summary=Phrase("connect.imessage"),
    intro=_INTRO,
    fields=(
        SetupField(
            name="transport",
            label=Phrase("connect.imessage_transport"),
            help=Phrase("connect.imessage_transport_help"),
            choices=(IMessageTransport.IMSG.value, IMessageTransport.BLUEBUBBLES.value),
            default=IMessageTransport.IMSG.value,
        ),
        SetupField(
            name="command",
            label=Phrase("connect.imessage_command"),
            help=Phrase("connect.imessage_command_help"),
            when=_FOR_IMSG,
            default="imsg rpc",
            example="ssh mac imsg rpc",
            accept=lambda text: ImsgClient(parse_command(text)),
        ),
        SetupField(
            name="base_url",
            label=Phrase("connect.imessage_base_url"),
            help=Phrase("connect.imessage_base_url_help"),
            when=_FOR_BLUEBUBBLES,
            example="http://mac.local:1234",
            accept=lambda text: check_url("base_url", text),
        ),
        SetupField(
            name="password",
            label=Phrase("connect.imessage_password"),
            help=Phrase("connect.imessage_password_help"),
            secret=True,
            when=_FOR_BLUEBUBBLES,
        ),
        SetupField(
            name="url",
            label=Phrase("connect.imessage_url"),
            help=Phrase("connect.imessage_url_help"),
            optional=True,
            when=_FOR_BLUEBUBBLES,
            example="http://keryx.local:8420",
        ),
    ),
    allow_example="+15551234567",
    person=IDS.person,
    check=check,
)
