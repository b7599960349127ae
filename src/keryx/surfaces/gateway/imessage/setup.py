"""The setup of iMessage: what a person is asked for either way to the Mac, and the check of the answers."""

import secrets
from collections.abc import Mapping

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
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
from keryx.surfaces.gateway.imessage.event_parser import PLATFORM
from keryx.surfaces.gateway.imessage.imsg_client import ImsgClient, ImsgNoResponse, ImsgUnavailable

_INTRO = """\
iMessage needs a Mac that is signed in to Messages, best with an Apple account
of its own for the agent. Choose `imsg` if Keryx runs on this Mac or reaches it
by ssh. Choose `bluebubbles` if a BlueBubbles server runs there.

For `imsg`: on the Mac, run `brew install steipete/tap/imsg`, and allow Full
Disk Access and Automation of Messages for the program that starts it. Test it:
`imsg chats`, or from here `ssh mac imsg chats`.

For `bluebubbles`: install the server from bluebubbles.app on the Mac. Its
window shows the address, and the password under API & Webhooks."""
_FOR_IMSG = {"transport": IMessageTransport.IMSG.value}
_FOR_BLUEBUBBLES = {"transport": IMessageTransport.BLUEBUBBLES.value}
_PAIR = (
    f"write to it; it answers with a code; let yourself in: keryx pairing approve {PLATFORM} CODE --operator"
)
_NOTE = (
    "Everybody who writes to this Apple account gets a pairing code. If the account is your own, write"
    " `pairing = false` under [access.imessage] in keryx.toml, and let people in by `allow`."
)


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
        summary="imsg reads the messages of the Mac.",
        settings={"transport": IMessageTransport.IMSG.value, "command": list(command)},
        steps=("start Keryx, or start it again: keryx serve", _PAIR),
        note=_NOTE,
    )


async def _check_bluebubbles(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    password = answers.get("password", "").strip()
    if not password:
        raise Invalid("the password is missing: the server shows it under API & Webhooks")
    base = check_url("base_url", answers.get("base_url", "").strip())
    url = answers.get("url", "").strip()
    url = check_url("url", url) if url else ""
    api = BlueBubblesApi(base, password)
    try:
        info = await api.get_info()
    except BlueBubblesError as exc:
        raise (Forbidden(BAD_PASSWORD) if exc.status in (401, 403) else Unavailable(str(exc))) from None
    except (BlueBubblesUnreachable, BlueBubblesNoResponse) as exc:
        raise Unavailable(f"{exc}: check base_url, and that the server runs") from None
    finally:
        await api.close()
    private = info.private_api and info.helper_connected
    return SetupOutcome(
        summary=f"BlueBubbles {info.server_version or '(unknown version)'} is signed in as {info.detected_imessage or 'an unknown account'}.",
        settings={
            "transport": IMessageTransport.BLUEBUBBLES.value,
            "base_url": base,
            **({"url": url} if url else {}),
        },
        secrets={"password": password, "secret": secrets.token_urlsafe(24)},
        steps=("start Keryx, or start it again: keryx serve", _PAIR),
        note=_NOTE
        if private
        else f"{_NOTE} The private API of the server is off, so typing is not shown and nothing is marked as read.",
        details={
            "server_version": info.server_version,
            "private_api": private,
            "webhook": f"{url}/hooks/{dialog.label.replace('.', '/')}/<secret>" if url else "",
        },
    )


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="iMessage",
    intro=_INTRO,
    fields=(
        SetupField(
            name="transport",
            label="What connects Keryx with the Mac",
            help="`imsg` for the program imsg, here or by ssh; `bluebubbles` for a BlueBubbles server.",
            choices=(IMessageTransport.IMSG.value, IMessageTransport.BLUEBUBBLES.value),
            default=IMessageTransport.IMSG.value,
        ),
        SetupField(
            name="command",
            label="Command that starts imsg",
            help="For `imsg`: with ssh before it if the Mac is another machine.",
            when=_FOR_IMSG,
            default="imsg rpc",
            example="ssh mac imsg rpc",
            accept=lambda text: ImsgClient(parse_command(text)),
        ),
        SetupField(
            name="base_url",
            label="Address of the BlueBubbles server",
            help="For `bluebubbles`: its window shows it.",
            when=_FOR_BLUEBUBBLES,
            example="http://mac.local:1234",
            accept=lambda text: check_url("base_url", text),
        ),
        SetupField(
            name="password",
            label="Password of the BlueBubbles server",
            help="For `bluebubbles`: the server shows it under API & Webhooks.",
            secret=True,
            when=_FOR_BLUEBUBBLES,
        ),
        SetupField(
            name="url",
            label="Address of Keryx",
            help="For `bluebubbles`: as the Mac reaches it. Without it Keryx asks for new messages every 15 seconds.",
            optional=True,
            when=_FOR_BLUEBUBBLES,
            example="http://keryx.local:8420",
        ),
    ),
    allow_example="+15551234567",
    check=check,
)
