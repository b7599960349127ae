"""The setup of a Telegram bot: checks its token, and whether another program gets its messages."""

from collections.abc import Mapping

import msgspec

from keryx.core.errors import Conflict, Forbidden, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.telegram import check_token, check_url
from keryx.surfaces.gateway.telegram.bot_api import (
    BAD_TOKEN,
    DEFAULT_URL,
    TelegramApi,
    TelegramApiError,
    TelegramNoResponse,
    TelegramUnreachable,
)
from keryx.surfaces.gateway.telegram.event_parser import IDS, PLATFORM

_INTRO = Phrase("connect.telegram_intro")
_PRIVACY_ON = Phrase("connect.telegram_privacy_on")
_PRIVACY_OFF = Phrase("connect.telegram_privacy_off")


class BotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The bot as Telegram describes it."""

    id: int
    first_name: str
    username: str = ""
    can_read_all_group_messages: bool = False


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask Telegram for the bot of the token."""
    token = answers["token"]
    check_token(token)
    base_url = check_url("base_url", str(dialog.configured.get("base_url") or DEFAULT_URL))
    api = TelegramApi(token, base_url)
    try:
        try:
            bot = msgspec.convert(await api.call("getMe"), BotInfo)
            webhook = msgspec.convert(await api.call("getWebhookInfo"), dict[str, object]).get("url")
            if webhook and not answers["take_over"]:
                raise Conflict(Phrase("connect.telegram_webhook", username=bot.username))
            if webhook:
                await api.call("deleteWebhook", drop_pending_updates=False)
        except TelegramApiError as exc:
            if exc.code in (401, 404):
                raise Forbidden(BAD_TOKEN) from None
            raise Unavailable(str(exc)) from None
        except (TelegramUnreachable, TelegramNoResponse, msgspec.ValidationError) as exc:
            raise Unavailable(Phrase("connect.token_unchecked", reason=exc)) from None
    finally:
        await api.close()
    return SetupOutcome(
        summary=Phrase("connect.telegram_bot", username=bot.username, name=bot.first_name),
        secrets={"token": token},
        steps=(
            Phrase("connect.start"),
            Phrase("connect.telegram_write", address=f"https://t.me/{bot.username}"),
            Phrase("connect.pair", platform=PLATFORM),
        ),
        note=_PRIVACY_OFF if bot.can_read_all_group_messages else _PRIVACY_ON,
        details={"id": bot.id, "username": bot.username, "name": bot.first_name},
    )


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Telegram",
    summary=Phrase("connect.telegram"),
    intro=_INTRO,
    fields=(
        SetupField(name="token", label=Phrase("connect.token"), secret=True),
        SetupField(
            name="take_over",
            label=Phrase("connect.take_over"),
            help=Phrase("connect.take_over_help"),
            flag=True,
        ),
    ),
    person=IDS.person,
    check=check,
)
