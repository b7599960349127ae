"""The setup of Signal: finds the account in signal-cli, or links a new device by a QR code."""

from collections.abc import Mapping
from pathlib import Path

from keryx.core.errors import Conflict, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome, SupportsQuestions
from keryx.core.texts import Phrase
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
from keryx.surfaces.gateway.signal.event_parser import IDS, PLATFORM

_INTRO = Phrase("connect.signal_intro")
_KERYX, _ME = "keryx", "me"
_DEVICE = "Keryx"
# How long a person may take to scan the code; a form waits for less.
_LINK_SECONDS, _FORM_SECONDS = 300.0, 90.0
_NO_SPOOL = Phrase("connect.signal_no_spool")
_PERSONAL = Phrase("connect.signal_personal")


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask signal-cli for the account, or link one."""
    url = check_url(answers.get("url", "") or DEFAULT_URL)
    spool = _check_spool(answers.get("spool", ""))
    api = SignalApi(url)
    try:
        version = as_text(as_object(await api.call("version")).get("version"))
        number = await _find_number(api, answers, dialog)
    except SignalApiError as exc:
        raise Unavailable(Phrase("connect.signal_update", reason=exc)) from None
    except (SignalUnreachable, SignalNoResponse) as exc:
        raise Unavailable(Phrase("connect.signal_start", reason=exc)) from None
    finally:
        await api.close()
    personal = answers.get("use") == _ME
    pairing = Phrase("connect.pair", platform=PLATFORM)
    talk = (
        (Phrase("connect.signal_note_to_self"),)
        if personal
        else (Phrase("connect.signal_write", number=number), pairing)
    )
    note = _PERSONAL if personal else Phrase("connect.signal_own", number=number)
    return SetupOutcome(
        summary=Phrase(
            "connect.signal_account", number=number, version=version or Phrase("connect.unknown_version")
        ),
        settings={
            "account": number,
            "url": url,
            **({"spool": str(spool)} if spool else {}),
            **({"notes_only": "true"} if personal else {}),
        },
        allow=(number,) if personal else (),
        steps=(Phrase("connect.start"), *talk),
        note=note if spool else Phrase("connect.signal_notes", note=note, other=_NO_SPOOL),
        details={"account": number, "version": version},
    )


def _check_spool(text: str) -> Path | None:
    if not text.strip():
        return None
    path = Path(text.strip()).expanduser().absolute()
    if not path.is_file():
        raise Invalid(Phrase("connect.signal_spool_missing", path=path))
    return path


async def _find_number(api: SignalApi, answers: Mapping[str, str], dialog: SetupDialog) -> str:
    """Return the number of the account that was asked for, of the only one, or of one that is linked now."""
    accounts = await api.find_accounts()
    wanted = check_number(answers["account"]) if answers.get("account") else ""
    if accounts is None:
        if not wanted:
            raise Invalid(Phrase("connect.signal_one_account"))
        return wanted
    if wanted and wanted not in accounts:
        known = ", ".join(accounts) or "none"
        raise Invalid(Phrase("connect.signal_no_account", number=wanted, known=known))
    if wanted:
        return wanted
    started = answers.get("device_link", "")
    if not accounts or answers.get("link") or started:
        return await _link(api, started, dialog)
    if len(accounts) > 1:
        raise Conflict(Phrase("connect.signal_several", choices=", ".join(accounts)))
    return accounts[0]


async def _link(api: SignalApi, uri: str, dialog: SetupDialog) -> str:
    """Show the code of a new device, and wait until a telephone has scanned it. In a form, the first call raises `Conflict`
    with the address of the code, and a further one continues with it."""
    terminal = isinstance(dialog, SupportsQuestions)
    if not uri:
        try:
            uri = as_text(as_object(await api.call("startLink")).get("deviceLinkUri"))
        except SignalApiError as exc:
            raise Unavailable(Phrase("connect.signal_network", reason=exc)) from None
        if not uri:
            raise Unavailable(Phrase("connect.signal_no_code"))
        if not terminal:
            raise Conflict(Phrase("connect.signal_scan_form", uri=uri))
        dialog.show(Phrase("connect.signal_scan", code=qr_code.render_text(uri), uri=uri))
    seconds = _LINK_SECONDS if terminal else _FORM_SECONDS
    try:
        found = await api.call("finishLink", seconds=seconds, deviceLinkUri=uri, deviceName=_DEVICE)
    except SignalNoResponse:
        raise Unavailable(Phrase("connect.signal_too_late")) from None
    except SignalApiError as exc:
        if "timed out" in exc.description or "Unknown device link" in exc.description:
            raise Unavailable(Phrase("connect.signal_too_late")) from None
        raise Unavailable(Phrase("connect.signal_again", reason=exc)) from None
    return check_number(as_text(as_object(found).get("number")))


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Signal",
    summary=Phrase("connect.signal"),
    intro=_INTRO,
    fields=(
        SetupField(
            name="url",
            label=Phrase("connect.signal_url"),
            help=Phrase("connect.signal_url_help"),
            default=DEFAULT_URL,
            optional=True,
        ),
        SetupField(
            name="spool",
            label=Phrase("connect.signal_spool"),
            help=Phrase("connect.signal_spool_help"),
            example="~/.keryx/signal/received.jsonl",
            optional=True,
        ),
        SetupField(
            name="use",
            label=Phrase("connect.signal_use"),
            help=Phrase("connect.signal_use_help"),
            choices=(_KERYX, _ME),
            default=_KERYX,
        ),
        SetupField(
            name="account",
            label=Phrase("connect.signal_number"),
            help=Phrase("connect.signal_number_help"),
            optional=True,
            ask=False,
        ),
        SetupField(
            name="link",
            label=Phrase("connect.signal_link"),
            help=Phrase("connect.signal_link_help"),
            flag=True,
        ),
        SetupField(
            name="device_link",
            label=Phrase("connect.signal_scanned"),
            help=Phrase("connect.signal_scanned_help"),
            optional=True,
            ask=False,
        ),
    ),
    person=IDS.person,
    check=check,
)
