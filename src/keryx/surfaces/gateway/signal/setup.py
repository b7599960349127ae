"""The setup of Signal: finds the account in signal-cli, or links a new device by a QR code."""

from collections.abc import Mapping
from pathlib import Path

from keryx.core.errors import Conflict, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome, SupportsQuestions
from keryx.jsonrpc import as_object, as_text
from keryx.surfaces.gateway import qr_code
from keryx.surfaces.gateway.signal import check_number
from keryx.surfaces.gateway.signal.daemon_api import (
    DEFAULT_URL,
    SignalApi,
    SignalApiError,
    SignalNoResponse,
    SignalUnreachable,
    check_url,
)
from keryx.surfaces.gateway.signal.event_parser import PLATFORM

_INTRO = """\
Keryx speaks Signal through signal-cli, which you install and start:

  mkdir -p ~/.keryx/signal && touch ~/.keryx/signal/received.jsonl
  chmod 600 ~/.keryx/signal/received.jsonl
  signal-cli --output=json daemon --http=127.0.0.1:8080 \\
    --receive-mode=manual >> ~/.keryx/signal/received.jsonl

If signal-cli has no account yet, the setup shows a QR code: in Signal on the
telephone, open Settings, Linked devices, Link new device, and scan it."""
_KERYX, _ME = "keryx", "me"
_DEVICE = "Keryx"
# How long a person may take to scan the code; a form waits for less.
_LINK_SECONDS, _FORM_SECONDS = 300.0, 90.0
_NO_SPOOL = (
    "Without a spool, a message that arrives while Keryx is stopped or killed can be lost: signal-cli hands over each message"
    " once. With it, nothing is."
)
_OWN_ACCOUNT = (
    "Everybody who writes to {number} is answered: strangers get a code. Use a number that is Keryx's alone."
)
_PERSONAL = "Keryx hears your notes to self and nothing else of this account. It can read all of it, as any linked device can."


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask signal-cli for the account, or link one."""
    url = check_url(answers.get("url", "") or DEFAULT_URL)
    spool = _check_spool(answers.get("spool", ""))
    api = SignalApi(url)
    try:
        version = as_text(as_object(await api.call("version")).get("version"))
        number = await _find_number(api, answers, dialog)
    except SignalApiError as exc:
        raise Unavailable(f"{exc}: update signal-cli, and try again") from None
    except (SignalUnreachable, SignalNoResponse) as exc:
        raise Unavailable(f"{exc}: start it with `signal-cli daemon --http`, or check url") from None
    finally:
        await api.close()
    personal = answers.get("use") == _ME
    pairing = f"it answers with a code; let yourself in: keryx pairing approve {PLATFORM} CODE --operator"
    talk = ("write a note to self in Signal",) if personal else (f"write to {number} in Signal", pairing)
    return SetupOutcome(
        summary=f"The account is {number}, by signal-cli {version or 'of an unknown version'}.",
        settings={
            "account": number,
            "url": url,
            **({"spool": str(spool)} if spool else {}),
            **({"notes_only": "true"} if personal else {}),
        },
        allow=(number,) if personal else (),
        steps=("start Keryx, or start it again: keryx serve", *talk),
        note=" ".join(
            filter(
                None,
                (_PERSONAL if personal else _OWN_ACCOUNT.format(number=number), "" if spool else _NO_SPOOL),
            )
        ),
        details={"account": number, "version": version},
    )


def _check_spool(text: str) -> Path | None:
    if not text.strip():
        return None
    path = Path(text.strip()).expanduser().absolute()
    if not path.is_file():
        raise Invalid(f"{path} does not exist: start signal-cli with its output appended to it, >> {path}")
    return path


async def _find_number(api: SignalApi, answers: Mapping[str, str], dialog: SetupDialog) -> str:
    """Return the number of the account that was asked for, of the only one, or of one that is linked now."""
    accounts = await api.find_accounts()
    wanted = check_number(answers["account"]) if answers.get("account") else ""
    if accounts is None:
        if not wanted:
            raise Invalid("signal-cli was started for one account: give its number with --account")
        return wanted
    if wanted and wanted not in accounts:
        known = ", ".join(accounts) or "none"
        raise Invalid(
            f"signal-cli has no account {wanted} (it has {known}): leave it out with --link to link it"
        )
    if wanted:
        return wanted
    started = answers.get("device_link", "")
    if not accounts or answers.get("link") or started:
        return await _link(api, started, dialog)
    if len(accounts) > 1:
        raise Conflict(f"signal-cli has several accounts: choose one with --account: {', '.join(accounts)}")
    return accounts[0]


async def _link(api: SignalApi, uri: str, dialog: SetupDialog) -> str:
    """Show the code of a new device, and wait until a telephone has scanned it. In a form, the first call raises `Conflict`
    with the address of the code, and a further one continues with it."""
    terminal = isinstance(dialog, SupportsQuestions)
    if not uri:
        try:
            uri = as_text(as_object(await api.call("startLink")).get("deviceLinkUri"))
        except SignalApiError as exc:
            raise Unavailable(f"{exc}: check the network of signal-cli, and try again") from None
        if not uri:
            raise Unavailable("signal-cli gave no code to scan: try again")
        if not terminal:
            raise Conflict(
                f"make a QR code of {uri} and scan it in Signal, Settings, Linked devices; then go on with device_link = {uri}"
            )
        dialog.show(
            "In Signal on the telephone, open Settings, Linked devices, Link new device, and scan this code within a minute:\n\n"
            f"{qr_code.render_text(uri)}\n\n"
            f"Or make a code of this address yourself: {uri}"
        )
    seconds = _LINK_SECONDS if terminal else _FORM_SECONDS
    try:
        found = await api.call("finishLink", seconds=seconds, deviceLinkUri=uri, deviceName=_DEVICE)
    except SignalNoResponse:
        raise Unavailable("the code was not scanned in time: run the setup again") from None
    except SignalApiError as exc:
        if "timed out" in exc.description or "Unknown device link" in exc.description:
            raise Unavailable("the code was not scanned in time: run the setup again") from None
        raise Unavailable(f"{exc}. Run the setup again") from None
    return check_number(as_text(as_object(found).get("number")))


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Signal",
    summary="Connect an account on Signal, by signal-cli.",
    intro=_INTRO,
    fields=(
        SetupField(
            name="url",
            label="Address of signal-cli",
            help="Where the daemon listens.",
            default=DEFAULT_URL,
            optional=True,
        ),
        SetupField(
            name="spool",
            label="File with the output of signal-cli",
            help="What signal-cli receives is appended to it, so that nothing is lost when Keryx is killed.",
            example="~/.keryx/signal/received.jsonl",
            optional=True,
        ),
        SetupField(
            name="use",
            label="Whose account is it",
            help="`keryx` if the number is Keryx's alone, `me` if it is yours: then only notes to self are heard.",
            choices=(_KERYX, _ME),
            default=_KERYX,
        ),
        SetupField(
            name="account",
            label="Number of the account",
            help="Needed only if signal-cli has several.",
            optional=True,
            ask=False,
        ),
        SetupField(
            name="link",
            label="Link",
            help="Link a new device even if signal-cli has an account.",
            flag=True,
        ),
        SetupField(
            name="device_link",
            label="Code that was scanned",
            help="For forms: the address of the code that the first attempt has named.",
            optional=True,
            ask=False,
        ),
    ),
    check=check,
)
