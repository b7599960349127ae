"""The setup of WhatsApp: what a person is asked on either platform of Meta, and the check of the answers."""

import secrets
from collections.abc import Mapping

import msgspec

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.surfaces.gateway.whatsapp.event_parser import PLATFORM
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

_INTRO = """\
WhatsApp has two ways in. Choose `agent` for an agent of your own that only
you can write to: it needs no public address. Choose `cloud` for the number of
a business: it needs an app at developers.facebook.com and a public https
address.

For `agent`: in WhatsApp, open Settings, Agents, Create an agent; then open its
chat, Chat info, API key, and copy the key.

For `cloud`: in your app, add the product WhatsApp. API Setup shows the phone
number ID. In the business settings, make a system user, and for it a permanent
token with whatsapp_business_messaging and whatsapp_business_management. App
settings, Basic shows the app secret."""
_FOR_CLOUD = {"mode": WhatsAppMode.CLOUD.value}
_TERMS = (
    "Meta's terms for the Cloud API bar general assistants as the main purpose of a number since 15 January 2026, except for"
    " people with numbers of Italy and Brazil. An assistant for the customers of a business is allowed."
)


class _PhoneNumber(msgspec.Struct, frozen=True):
    display_phone_number: str = ""
    verified_name: str = ""


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask WhatsApp whether the answers are right."""
    token = answers.get("token", "").strip()
    if not token:
        raise Invalid("the token is missing")
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
            raise Unavailable(
                f"{exc}: check the network, or base_url if you have set it, and try again"
            ) from None
        finally:
            await api.close()
        return SetupOutcome(
            summary="WhatsApp knows the agent.",
            settings={"mode": WhatsAppMode.AGENT.value, **({"base_url": url} if url else {})},
            secrets={"token": token},
            steps=(
                "start Keryx, or start it again: keryx serve",
                "write to the agent in WhatsApp",
                f"it answers with a code; let yourself in: keryx pairing approve {PLATFORM} CODE --operator",
            ),
            note="WhatsApp lets an agent talk with its creator only, and takes 12 messages a minute from it.",
        )
    return await _check_cloud(token, answers, dialog)


async def _check_cloud(token: str, answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    number = check_number(answers.get("phone_number_id", "").strip())
    app_secret = answers.get("app_secret", "").strip()
    if not app_secret:
        raise Invalid("the app secret is missing: App settings, Basic shows it")
    base, url = answers.get("base_url", ""), answers.get("url", "").strip()
    if url and not check_url("url", url).startswith("https://"):
        raise Invalid("whatsapp.url: Meta posts to https addresses only")
    api = WhatsAppApi(token, check_url("base_url", base or CLOUD_URL))
    try:
        found = await api.get(number, fields="display_phone_number,verified_name")
        phone = msgspec.convert(found, _PhoneNumber)
    except WhatsAppApiError as exc:
        raise _translate(exc, BAD_TOKEN) from None
    except (WhatsAppUnreachable, WhatsAppNoResponse) as exc:
        raise Unavailable(
            f"{exc}: check the network, or base_url if you have set it, and try again"
        ) from None
    except msgspec.ValidationError:
        raise Unavailable("WhatsApp answers in another form: check base_url") from None
    finally:
        await api.close()
    verify_token = answers.get("verify_token", "").strip() or secrets.token_urlsafe(24)
    hook = f"{url or 'https://<your address>'}/hooks/{dialog.label.replace('.', '/')}"
    settings = {
        "mode": WhatsAppMode.CLOUD.value,
        "phone_number_id": number,
        **{name: value for name, value in (("url", url), ("base_url", base)) if value},
    }
    by_hand = (
        ()
        if url
        else (
            f"in your app, under WhatsApp, Configuration, set the callback URL {hook} and the verify token {verify_token}",
        )
    )
    return SetupOutcome(
        summary=f"The number is {phone.display_phone_number or number} ({phone.verified_name or 'no name'}).",
        settings=settings,
        secrets={"token": token, "app_secret": app_secret, "verify_token": verify_token},
        steps=(
            "start Keryx, or start it again: keryx serve",
            *by_hand,
            "in your app, under WhatsApp, Configuration, subscribe to the webhook field `messages`",
            f"write to the number; it answers with a code; let yourself in: keryx pairing approve {PLATFORM} CODE --operator",
        ),
        note=_TERMS,
        details={
            "phone_number_id": number,
            "display_phone_number": phone.display_phone_number,
            "webhook": hook,
        },
    )


def _translate(error: WhatsAppApiError, refused: str) -> Forbidden | Invalid | Unavailable:
    if error.status == 401 or error.code == 190:
        return Forbidden(refused)
    if error.status >= 500 or error.status == 429:
        return Unavailable(str(error))
    return Forbidden(refused) if refused == BAD_KEY else Invalid(str(error))


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="WhatsApp",
    intro=_INTRO,
    fields=(
        SetupField(
            name="mode",
            label="Which way in",
            help="`agent` for an agent of your own, `cloud` for the number of a business.",
            choices=(WhatsAppMode.AGENT.value, WhatsAppMode.CLOUD.value),
            default=DEFAULT_MODE.value,
        ),
        SetupField(
            name="token",
            label="Key of the agent, or access token",
            help="For `agent` the key from Chat info, API key; for `cloud` the permanent token of a system user.",
            secret=True,
        ),
        SetupField(
            name="phone_number_id",
            label="Phone number ID",
            help="For `cloud`: API Setup in the app shows it. It is not the number itself.",
            when=_FOR_CLOUD,
            accept=check_number,
        ),
        SetupField(
            name="app_secret",
            label="App secret",
            help="For `cloud`: App settings, Basic shows it.",
            secret=True,
            when=_FOR_CLOUD,
        ),
        SetupField(
            name="verify_token",
            label="Verify token",
            help="For `cloud`: any text of your choice. One is made if there is none.",
            secret=True,
            optional=True,
            when=_FOR_CLOUD,
            ask=False,
        ),
        SetupField(
            name="url",
            label="Public address of Keryx",
            help="For `cloud`: an https address. Without it you set the callback URL in the app yourself.",
            optional=True,
            when=_FOR_CLOUD,
        ),
        SetupField(
            name="base_url",
            label="Address of the API",
            help="Only for another one than Meta's.",
            optional=True,
            ask=False,
        ),
    ),
    check=check,
)
