"""Setup of Matrix: asks for an account, checks it with its homeserver, and writes the settings."""

import getpass
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from keryx import config
from keryx.cli import output, settings_file
from keryx.cli.access import Json
from keryx.core.errors import Forbidden, Invalid
from keryx.surfaces.gateway.matrix.api import Homeserver, discovered

VARIABLE = "KERYX_MATRIX_TOKEN"
DEVICE = "Keryx"


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
        Path | None, Parameter(help=f"A file with an access token, instead of a password; or {VARIABLE}.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        Parameter(negative="", help="Who may talk to Keryx, such as @you:example.org; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Connect an account on Matrix.

    Make an account for Keryx first, as for any person. Its password is used once,
    to get an access token, and is not kept.

        keryx gateway setup matrix
        keryx gateway setup matrix --homeserver example.org --user @keryx:example.org
        keryx gateway setup matrix --homeserver example.org --token-file token
    """
    home = config.read().folder
    address = await discovered(homeserver or _asked("Homeserver (such as example.org): "))
    token = _read(token_file) if token_file else os.environ.get(VARIABLE, "")
    async with _server(address) as server:
        account, token = await _account(server, address, token, user, password_file)
    people = allow if allow is not None else _people()
    reference = settings_file.keep_secret(home, "matrix-token", token)
    path = settings_file.change(home, "matrix", {"homeserver": address, "user": account, "token": reference})
    if people:
        settings_file.change(home, "access.matrix", {"allow": people})
    if json:
        output.json({"user": account, "homeserver": address, "settings": str(path), "allow": people})
    else:
        _tell(account, reference, path, people)


async def _account(
    server: Homeserver, address: str, token: str, user: str, password_file: Path | None
) -> tuple[str, str]:
    """The account's full name and its access token, checked with the homeserver."""
    if not token and password_file is None:
        user = user or _asked("Account (such as @keryx:example.org): ")
        password = _asked("Password (not shown and not kept; empty to give an access token): ", hidden=True)
        token = "" if password else _asked("Access token (not shown): ", hidden=True)
    else:
        password = _read(password_file) if password_file and not token else ""
    if password:
        if not user:
            raise Invalid("a password needs --user, the account that it belongs to")
        login = await server.login(user, password, device=DEVICE)
        return login.user_id, login.access_token
    async with _server(address, token) as mine:
        account = await mine.whoami()
    if user and account.removeprefix("@").partition(":")[0] != user.removeprefix("@").partition(":")[0]:
        raise Forbidden(f"the access token belongs to {account}, not to {user}")
    return account, token


def _people() -> list[str]:
    if not sys.stdin.isatty():
        return []
    said = _asked("Who may talk to it? (such as @you:example.org; empty for nobody yet): ", empty=True)
    return [name for name in said.replace(",", " ").split() if name]


def _tell(account: str, reference: str, path: Path, people: list[str]) -> None:
    output.write(f"Keryx speaks as {account}.")
    output.write(f"The access token is in {reference.removeprefix('file:')}; {path} refers to it.")
    if people:
        output.write(f"{', '.join(people)} may talk to it, and invite it into rooms.")
    output.write("\nNext:")
    steps: list[str] = []
    if not people:
        steps.append('say who may talk to it: in keryx.toml, [access.matrix] allow = ["@you:example.org"]')
    steps.append("start Keryx, or start it again: keryx serve")
    steps.append(f"in your Matrix client, begin a chat with {account}, without encryption, and write to it")
    for number, step in enumerate(steps, 1):
        output.write(f"  {number}. {step}")


def _asked(question: str, *, hidden: bool = False, empty: bool = False) -> str:
    """What the person types. `Invalid` where nobody can be asked, or nothing is said."""
    if not sys.stdin.isatty():
        raise Invalid("nobody can be asked here: give what is needed as options, as `--help` shows")
    ask: Callable[[str], str] = getpass.getpass if hidden else input
    said = ask(question).strip()
    if not said and not empty and not hidden:
        raise Invalid("nothing was said: start again when you have it")
    return said


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as exc:
        raise Invalid(f"{path} cannot be read: {exc}") from exc
    if not text:
        raise Invalid(f"{path} is empty")
    return text


@asynccontextmanager
async def _server(url: str, token: str = "") -> AsyncGenerator[Homeserver]:
    server = Homeserver(url, token)
    try:
        yield server
    finally:
        await server.close()
