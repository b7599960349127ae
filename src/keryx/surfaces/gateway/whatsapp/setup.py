"""The setup of WhatsApp: what a person is asked on either platform of Meta, and the check of the answers."""

import secrets
from collections.abc import Mapping

import msgspec

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.texts import Phrase
from keryx.surfaces.gateway import http_clients
from keryx.surfaces.gateway.whatsapp.event_parser import PERSON, PLATFORM
from keryx.surfaces.gateway.whatsapp.graph_api import (
    AGENT_URL,
    CLOUD_URL,
    WhatsAppApi,
    WhatsAppApiError,
    WhatsAppNoResponse,
    WhatsAppUnreachable,
)
from keryx.surfaces.gateway.whatsapp.whatsapp_settings import (
    BAD_KEY,
    BAD_TOKEN,
    DEFAULT_MODE,
    WhatsAppMode,
    check_number,
    check_url,
)

_INTRO = Phrase("connect.whatsapp_intro")
_FOR_CLOUD = {"mode": WhatsAppMode.CLOUD.value}
# What Meta answers if there is no such number, or if the token has no right to it.
_UNKNOWN_OBJECT = 100
_TERMS = Phrase("connect.whatsapp_terms")


class _PhoneNumber(msgspec.Struct, frozen=True):
    display_phone_number: str = ""
    verified_name: str = ""


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask WhatsApp whether the answers are right."""
    token = answers.get("token", "").strip()
    if not token:
        raise Invalid(Phrase("connect.whatsapp_no_token"))
    if answers.get("mode") == WhatsAppMode.AGENT:
        url = answers.get("base_url", "")
        api = WhatsAppApi(token, check_url("base_url", url or AGENT_URL))
        try:
            await api.get("agent/v1/updates", offset=0, limit=1, timeout=0)
        except WhatsAppApiError as exc:
            # The key is right; another program polls.
            if exc.status != 409:
                raise _translate(exc, BAD_KEY) from None
        except (WhatsAppUnreachable, WhatsAppNoResponse) as exc:
            raise Unavailable(Phrase("connect.check_network", reason=exc)) from None
        finally:
            await api.close()
        return SetupOutcome(
            summary=Phrase("connect.whatsapp_agent"),
            settings={"mode": WhatsAppMode.AGENT.value, **({"base_url": url} if url else {})},
            secrets={"token": token},
            steps=(
                Phrase("connect.start"),
                Phrase("connect.whatsapp_write_agent"),
                Phrase("connect.pair", platform=PLATFORM),
            ),
            note=Phrase("connect.whatsapp_agent_note"),
        )
    return await _check_cloud(token, answers, dialog)


async def _check_cloud(token: str, answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    number = _check_id(answers.get("phone_number_id", "").strip())
    app_secret = answers.get("app_secret", "").strip()
    if not app_secret:
        raise Invalid(Phrase("connect.whatsapp_no_secret"))
    base, url = answers.get("base_url", ""), answers.get("url", "").strip()
    if url:
        _check_public_address(url)
    api = WhatsAppApi(token, check_url("base_url", base or CLOUD_URL))
    try:
        found = await api.get(number, fields="display_phone_number,verified_name")
        phone = msgspec.convert(found, _PhoneNumber)
    except WhatsAppApiError as exc:
        if exc.code == _UNKNOWN_OBJECT:
            raise Invalid(Phrase("connect.whatsapp_unknown_id", reason=exc, id=number)) from None
        raise _translate(exc, BAD_TOKEN) from None
    except (WhatsAppUnreachable, WhatsAppNoResponse) as exc:
        raise Unavailable(Phrase("connect.check_network", reason=exc)) from None
    except msgspec.ValidationError:
        raise Unavailable(Phrase("connect.whatsapp_other_form")) from None
    finally:
        await api.close()
    verify_token = answers.get("verify_token", "").strip() or secrets.token_urlsafe(24)
    hook = f"{url or 'https://<your address>'}/hooks/{dialog.label.replace('.', '/')}"
    settings = {
        "mode": WhatsAppMode.CLOUD.value,
        "phone_number_id": number,
        **{name: value for name, value in (("url", url), ("base_url", base)) if value},
    }
    by_hand = () if url else (Phrase("connect.whatsapp_hook", address=hook, token=verify_token),)
    return SetupOutcome(
        summary=Phrase(
            "connect.whatsapp_number",
            number=phone.display_phone_number or number,
            name=phone.verified_name or Phrase("connect.no_name"),
        ),
        settings=settings,
        secrets={"token": token, "app_secret": app_secret, "verify_token": verify_token},
        steps=(
            Phrase("connect.start"),
            *by_hand,
            Phrase("connect.whatsapp_subscribe"),
            Phrase("connect.whatsapp_write", platform=PLATFORM),
        ),
        note=_TERMS,
        details={
            "phone_number_id": number,
            "display_phone_number": phone.display_phone_number,
            "webhook": hook,
        },
    )


def _check_id(text: str) -> str:
    try:
        return check_number(text)
    except Invalid:
        raise Invalid(Phrase("connect.whatsapp_wrong_id")) from None


def _check_public_address(url: str) -> str:
    found = http_clients.check_url(url, Phrase("connect.public_address_missing"))
    if not found.startswith("https://"):
        raise Invalid(Phrase("connect.whatsapp_https"))
    return found


def _translate(error: WhatsAppApiError, refused: str) -> Forbidden | Invalid | Unavailable:
    if error.status == 401 or error.code == 190:
        return Forbidden(refused)
    if error.status >= 500 or error.status == 429:
        return Unavailable(str(error))
    return Forbidden(refused) if refused == BAD_KEY else Invalid(str(error))


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="WhatsApp",
    summary=Phrase("connect.whatsapp"),
    intro=_INTRO,
    fields=(
        SetupField(
            name="mode",
            label=Phrase("connect.whatsapp_mode"),
            help=Phrase("connect.whatsapp_mode_help"),
            choices=(WhatsAppMode.AGENT.value, WhatsAppMode.CLOUD.value),
            default=DEFAULT_MODE.value,
        ),
        SetupField(
            name="token",
            label=Phrase("connect.whatsapp_token"),
            help=Phrase("connect.whatsapp_token_help"),
            secret=True,
        ),
        SetupField(
            name="phone_number_id",
            label=Phrase("connect.whatsapp_number_id"),
            help=Phrase("connect.whatsapp_number_id_help"),
            when=_FOR_CLOUD,
            accept=_check_id,
        ),
        SetupField(
            name="app_secret",
            label=Phrase("connect.whatsapp_secret"),
            help=Phrase("connect.whatsapp_secret_help"),
            secret=True,
            when=_FOR_CLOUD,
        ),
        SetupField(
            name="verify_token",
            label=Phrase("connect.whatsapp_verify"),
            help=Phrase("connect.whatsapp_verify_help"),
            secret=True,
            optional=True,
            when=_FOR_CLOUD,
            ask=False,
        ),
        SetupField(
            name="url",
            label=Phrase("connect.public_address"),
            help=Phrase("connect.whatsapp_url_help"),
            optional=True,
            when=_FOR_CLOUD,
            accept=_check_public_address,
        ),
        SetupField(
            name="base_url",
            label=Phrase("connect.api_address"),
            help=Phrase("connect.whatsapp_api_help"),
            optional=True,
            ask=False,
        ),
    ),
    person=PERSON,
    check=check,
)
