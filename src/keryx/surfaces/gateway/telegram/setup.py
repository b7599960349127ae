"""The setup of a Telegram bot: checks its token, and whether another program gets its messages."""

from collections.abc import Mapping

import msgspec

from keryx.core.errors import Conflict, Forbidden, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.surfaces.gateway.telegram import check_token, check_url
from keryx.surfaces.gateway.telegram.bot_api import (
    BAD_TOKEN,
    DEFAULT_URL,
    TelegramApi,
    TelegramApiError,
    TelegramNoResponse,
    TelegramUnreachable,
)
from keryx.surfaces.gateway.telegram.event_parser import PLATFORM

_INTRO = """\
Keryx needs a bot of its own:
  1. in Telegram, open a chat with @BotFather and send /newbot
  2. give the bot a name, and a user name that ends in "bot"
  3. copy the token that BotFather answers with"""
_PRIVACY_ON = """\
In a group the bot hears commands, replies and messages that mention it. To let it hear everything that is said
there, send /setprivacy to @BotFather, choose Disable, and add the bot to the group again."""
_PRIVACY_OFF = "In a group the bot hears everything that is said; it answers what is meant for it."


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
                raise Conflict(
                    f"another program gets the messages of @{bot.username} by a webhook: --take-over removes that"
                )
            if webhook:
                await api.call("deleteWebhook", drop_pending_updates=False)
        except TelegramApiError as exc:
            if exc.code in (401, 404):
                raise Forbidden(BAD_TOKEN) from None
            raise Unavailable(str(exc)) from None
        except (TelegramUnreachable, TelegramNoResponse, msgspec.ValidationError) as exc:
            raise Unavailable(f"the token could not be checked: {exc}. Try again later") from None
    finally:
        await api.close()
    return SetupOutcome(
        summary=f"The bot is @{bot.username} ({bot.first_name}).",
        secrets={"token": token},
        steps=(
            "start Keryx, or start it again: keryx serve",
            f"write to the bot: https://t.me/{bot.username}",
            f"it answers with a code; let yourself in: keryx pairing approve {PLATFORM} CODE --operator",
        ),
        note=_PRIVACY_OFF if bot.can_read_all_group_messages else _PRIVACY_ON,
        details={"id": bot.id, "username": bot.username, "name": bot.first_name},
    )


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Telegram",
    summary="Connect a bot on Telegram.",
    intro=_INTRO,
    fields=(
        SetupField(name="token", label="Token", secret=True),
        SetupField(
            name="take_over",
            label="Take over",
            help="Remove a webhook that another program has set for the bot.",
            flag=True,
        ),
    ),
    check=check,
)
