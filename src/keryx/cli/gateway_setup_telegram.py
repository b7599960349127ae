"""Setup of Telegram: asks for a bot's token, checks it with Telegram, and writes the settings."""

import getpass
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from keryx import config
from keryx.cli import output, settings_file
from keryx.cli.access import Json
from keryx.core.errors import Conflict, Forbidden, Invalid, Unavailable
from keryx.surfaces.gateway.settings import Setup
from keryx.surfaces.gateway.telegram.api import DEFAULT_URL, Api, ApiError, Unanswered, Unreached
from keryx.surfaces.gateway.telegram.line import BAD_TOKEN
from keryx.surfaces.gateway.telegram.parse import PLATFORM
from keryx.surfaces.gateway.telegram.settings import TelegramSettings, check_token, check_url

VARIABLE = "KERYX_TELEGRAM_TOKEN"
_FLAG = Parameter(negative="", show_default=False)
_HOW = """\
Keryx needs a bot of its own:
  1. in Telegram, open a chat with @BotFather and send /newbot
  2. give the bot a name, and a user name that ends in "bot"
  3. copy the token that BotFather answers with
"""
_QUIET = """\
In a group the bot hears commands, replies and messages that mention it. To let it hear everything that is said
there, send /setprivacy to @BotFather, choose Disable, and add the bot to the group again."""
_ALL_EARS = "In a group the bot hears everything that is said; it answers what is meant for it."


class Bot(msgspec.Struct, frozen=True, kw_only=True):
    """The bot as Telegram describes it."""

    id: int
    first_name: str
    username: str = ""
    can_read_all_group_messages: bool = False


async def telegram(
    *,
    token_file: Annotated[
        Path | None, Parameter(help=f"A file with the token; without it {VARIABLE}, or you are asked.")
    ] = None,
    take_over: Annotated[
        bool, _FLAG, Parameter(help="Remove a webhook that another program has set for the bot.")
    ] = False,
    json: Json = False,
) -> None:
    """Connect a bot on Telegram.

    The token is checked with Telegram, kept in a file that you alone can read, and
    named in keryx.toml; everything else there stays as it is.

        keryx gateway setup telegram
        keryx gateway setup telegram --token-file token
    """
    settings = config.read()
    token = _token(token_file)
    check_token(token)
    async with _api(token, _base_url(settings)) as api:
        bot = await _checked(api, take_over=take_over)
    reference = settings_file.keep_secret(settings.folder, "telegram-token", token)
    path = settings_file.change(settings.folder, PLATFORM, {"token": reference})
    if json:
        output.json({"id": bot.id, "username": bot.username, "name": bot.first_name, "settings": str(path)})
    else:
        _tell(bot, reference, path)


def _token(file: Path | None) -> str:
    if file is not None:
        return _read(file)
    if given := os.environ.get(VARIABLE, "").strip():
        return given
    if not sys.stdin.isatty():
        raise Invalid(f"nobody can be asked here: give --token-file, or set {VARIABLE}")
    output.write(_HOW)
    return getpass.getpass("Token (not shown): ").strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as exc:
        raise Invalid(f"{path} cannot be read: {exc}") from exc


def _base_url(settings: config.Settings) -> str:
    table = settings.platforms.get(PLATFORM, {})
    setup = Setup(platform=PLATFORM, home=settings.folder, table=table, environ=os.environ)
    found = setup.read(TelegramSettings)
    return check_url("base_url", found.base_url if found else DEFAULT_URL)


async def _checked(api: Api, *, take_over: bool) -> Bot:
    """The bot that the token belongs to, with nobody else listening by a webhook."""
    try:
        bot = msgspec.convert(await api.call("getMe"), Bot)
        hooked = msgspec.convert(await api.call("getWebhookInfo"), dict[str, object]).get("url")
        if hooked and not take_over:
            raise Conflict(
                f"another program gets the messages of @{bot.username} by a webhook: --take-over removes that"
            )
        if hooked:
            await api.call("deleteWebhook", drop_pending_updates=False)
    except ApiError as exc:
        if exc.code in (401, 404):
            raise Forbidden(BAD_TOKEN) from None
        raise Unavailable(str(exc)) from None
    except (Unreached, Unanswered, msgspec.ValidationError) as exc:
        raise Unavailable(f"the token could not be checked: {exc}. Try again later") from None
    return bot


def _tell(bot: Bot, reference: str, path: Path) -> None:
    output.write(output.plain(f"The bot is @{bot.username} ({bot.first_name}).", one_line=True))
    output.write(f"Its token is in {reference.removeprefix('file:')}; {path} refers to it.")
    output.write("\nNext:")
    output.write("  1. start Keryx, or start it again: keryx serve")
    output.write(f"  2. write to the bot: https://t.me/{output.plain(bot.username, one_line=True)}")
    output.write(
        "  3. it answers with a code; let yourself in: keryx pairing approve telegram CODE --operator"
    )
    output.write(f"\n{_ALL_EARS if bot.can_read_all_group_messages else _QUIET}")


@asynccontextmanager
async def _api(token: str, base_url: str) -> AsyncGenerator[Api]:
    api = Api(token, base_url)
    try:
        yield api
    finally:
        await api.close()
