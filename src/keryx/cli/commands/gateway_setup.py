"""`keryx gateway setup`: ask for the credentials of a platform, check them, and write the settings."""

import getpass
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from cyclopts import App, Parameter

from keryx import config
from keryx.cli import output, settings_file
from keryx.cli.options import FLAG, Json
from keryx.core.errors import Conflict, Forbidden, Invalid, Unavailable
from keryx.surfaces.gateway.matrix.homeserver import Homeserver, discover_url
from keryx.surfaces.gateway.telegram import TelegramSettings, check_token, check_url
from keryx.surfaces.gateway.telegram.bot_api import (
    BAD_TOKEN,
    DEFAULT_URL,
    TelegramApi,
    TelegramApiError,
    TelegramNoResponse,
    TelegramUnreachable,
)
from keryx.surfaces.gateway.telegram.update_parser import PLATFORM

TELEGRAM_VARIABLE = "KERYX_TELEGRAM_TOKEN"
_BOTFATHER_STEPS = """\
Keryx needs a bot of its own:
  1. in Telegram, open a chat with @BotFather and send /newbot
  2. give the bot a name, and a user name that ends in "bot"
  3. copy the token that BotFather answers with
"""
_PRIVACY_ON = """\
In a group the bot hears commands, replies and messages that mention it. To let it hear everything that is said
there, send /setprivacy to @BotFather, choose Disable, and add the bot to the group again."""
_PRIVACY_OFF = "In a group the bot hears everything that is said; it answers what is meant for it."
MATRIX_VARIABLE = "KERYX_MATRIX_TOKEN"
DEVICE_NAME = "Keryx"
AccountName = Annotated[
    str, Parameter(show_default=False, help="A name for the account, such as work, if it is one of several.")
]
_ACCOUNT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")
ClientT = TypeVar("ClientT", TelegramApi, Homeserver)
_WHO_MAY_TALK = "Who may talk to it? (such as @you:example.org; empty for nobody yet): "

app = App(name="setup", help="Connect a chat platform.")
app.command("keryx.cli.commands.gateway_setup:telegram")
app.command("keryx.cli.commands.gateway_setup:matrix")


class BotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The bot as Telegram describes it."""

    id: int
    first_name: str
    username: str = ""
    can_read_all_group_messages: bool = False


async def telegram(
    *,
    token_file: Annotated[
        Path | None,
        Parameter(help=f"A file with the token; without it {TELEGRAM_VARIABLE}, or you are asked."),
    ] = None,
    take_over: Annotated[
        bool, FLAG, Parameter(help="Remove a webhook that another program has set for the bot.")
    ] = False,
    name: AccountName = "",
    json: Json = False,
) -> None:
    """Connect a bot on Telegram.

    The token is checked with Telegram, kept in a file that you alone can read, and
    named in keryx.toml; everything else there stays as it is.

        keryx gateway setup telegram
        keryx gateway setup telegram --token-file token
        keryx gateway setup telegram --name work
    """
    settings, label = config.read(), _build_label(PLATFORM, name)
    token = _read_bot_token(token_file)
    check_token(token)
    setups = {setup.label: setup for setup in config.list_setups(settings)}
    configured = setups[label].read(TelegramSettings) if label in setups else None
    base_url = check_url("base_url", configured.base_url if configured else DEFAULT_URL)
    async with _closing(TelegramApi(token, base_url)) as api:
        bot = await _check_bot(api, take_over=take_over)
    reference = settings_file.write_secret(settings.folder, f"{label.replace('.', '-')}-token", token)
    path = settings_file.update(settings.folder, label, {"token": reference})
    if json:
        output.write_json(
            {"id": bot.id, "username": bot.username, "name": bot.first_name, "settings": str(path)}
        )
        return
    output.write(output.sanitize(f"The bot is @{bot.username} ({bot.first_name}).", one_line=True))
    output.write(f"Its token is in {reference.removeprefix('file:')}; {path} refers to it.")
    _print_next_steps(
        [
            "start Keryx, or start it again: keryx serve",
            f"write to the bot: https://t.me/{output.sanitize(bot.username, one_line=True)}",
            "it answers with a code; let yourself in: keryx pairing approve telegram CODE --operator",
        ]
    )
    output.write(f"\n{_PRIVACY_OFF if bot.can_read_all_group_messages else _PRIVACY_ON}")


def _read_bot_token(file: Path | None) -> str:
    if file is not None:
        return _read_secret_file(file, required=False)
    if token := os.environ.get(TELEGRAM_VARIABLE, "").strip():
        return token
    if not sys.stdin.isatty():
        raise Invalid(f"nobody can be asked here: give --token-file, or set {TELEGRAM_VARIABLE}")
    output.write(_BOTFATHER_STEPS)
    return getpass.getpass("Token (not shown): ").strip()


async def _check_bot(api: TelegramApi, *, take_over: bool) -> BotInfo:
    """Return the bot of the token. Raise `Conflict` if it has a webhook, or remove that with `take_over`."""
    try:
        bot = msgspec.convert(await api.call("getMe"), BotInfo)
        webhook = msgspec.convert(await api.call("getWebhookInfo"), dict[str, object]).get("url")
        if webhook and not take_over:
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
    return bot


def _build_label(platform: str, name: str) -> str:
    """Return the name of the table of an account. Raise `Invalid` for a name that cannot be written there."""
    if name and not _ACCOUNT_NAME.match(name):
        raise Invalid(f"{name[:80]!r} is no name for an account: use lower case letters, digits, _ and -")
    return f"{platform}.{name}" if name else platform


def _print_next_steps(steps: Sequence[str]) -> None:
    output.write("\nNext:")
    for number, step in enumerate(steps, 1):
        output.write(f"  {number}. {step}")


async def matrix(
    *,
    homeserver: Annotated[
        str, Parameter(show_default=False, help="Its address, or the domain of the account.")
    ] = "",
    user: Annotated[str, Parameter(show_default=False, help="The account that Keryx speaks as.")] = "",
    password_file: Annotated[
        Path | None, Parameter(help="A file with the account's password; without it, you are asked.")
    ] = None,
    token_file: Annotated[
        Path | None,
        Parameter(help=f"A file with an access token, instead of a password; or {MATRIX_VARIABLE}."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        Parameter(negative="", help="Who may talk to Keryx, such as @you:example.org; may be repeated."),
    ] = None,
    name: AccountName = "",
    json: Json = False,
) -> None:
    """Connect an account on Matrix.

    Make an account for Keryx first, as for any person. Its password is used once,
    to get an access token, and is not kept.

        keryx gateway setup matrix
        keryx gateway setup matrix --homeserver example.org --user @keryx:example.org
        keryx gateway setup matrix --homeserver example.org --token-file token
    """
    home, label = config.read().folder, _build_label("matrix", name)
    address = await discover_url(homeserver or _ask("Homeserver (such as example.org): "))
    token = _read_secret_file(token_file) if token_file else os.environ.get(MATRIX_VARIABLE, "")
    async with _closing(Homeserver(address, "")) as server:
        account, token = await _find_account(server, address, token, user, password_file)
    people = allow or []
    if allow is None and sys.stdin.isatty():
        people = _ask(_WHO_MAY_TALK, empty=True).replace(",", " ").split()
    reference = settings_file.write_secret(home, f"{label.replace('.', '-')}-token", token)
    path = settings_file.update(home, label, {"homeserver": address, "user": account, "token": reference})
    if people:
        settings_file.update(home, f"access.{label}", {"allow": people})
    if json:
        output.write_json({"user": account, "homeserver": address, "settings": str(path), "allow": people})
        return
    output.write(f"Keryx speaks as {account}.")
    output.write(f"The access token is in {reference.removeprefix('file:')}; {path} refers to it.")
    steps = [
        "start Keryx, or start it again: keryx serve",
        f"in your Matrix client, begin a chat with {account}, without encryption, and write to it",
    ]
    if people:
        output.write(f"{', '.join(people)} may talk to it, and invite it into rooms.")
    else:
        steps.insert(
            0, f'say who may talk to it: in keryx.toml, [access.{label}] allow = ["@you:example.org"]'
        )
    _print_next_steps(steps)


async def _find_account(
    server: Homeserver, address: str, token: str, user: str, password_file: Path | None
) -> tuple[str, str]:
    """Return the full name of the account and its access token, checked with the homeserver."""
    if not token and password_file is None:
        user = user or _ask("Account (such as @keryx:example.org): ")
        password = _ask("Password (not shown and not kept; empty to give an access token): ", hidden=True)
        token = "" if password else _ask("Access token (not shown): ", hidden=True)
    else:
        password = _read_secret_file(password_file) if password_file and not token else ""
    if password:
        if not user:
            raise Invalid("a password needs --user, the account that it belongs to")
        login = await server.login(user, password, device=DEVICE_NAME)
        return login.user_id, login.access_token
    async with _closing(Homeserver(address, token)) as signed_in:
        account = await signed_in.whoami()
    if user and account.removeprefix("@").partition(":")[0] != user.removeprefix("@").partition(":")[0]:
        raise Forbidden(f"the access token belongs to {account}, not to {user}")
    return account, token


def _ask(question: str, *, hidden: bool = False, empty: bool = False) -> str:
    """Ask the user for a line. Raise `Invalid` without a terminal, or if the line is empty."""
    if not sys.stdin.isatty():
        raise Invalid("nobody can be asked here: give what is needed as options, as `--help` shows")
    ask: Callable[[str], str] = getpass.getpass if hidden else input
    line = ask(question).strip()
    if not line and not empty and not hidden:
        raise Invalid("nothing was said: start again when you have it")
    return line


def _read_secret_file(path: Path, *, required: bool = True) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as exc:
        raise Invalid(f"{path} cannot be read: {exc}") from exc
    if required and not text:
        raise Invalid(f"{path} is empty")
    return text


@asynccontextmanager
async def _closing(client: ClientT) -> AsyncGenerator[ClientT]:
    try:
        yield client
    finally:
        await client.close()
