"""Settings: the table [telegram] of keryx.toml, and the adapter that it makes."""

import re
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from keryx.core.errors import Invalid
from keryx.surfaces.gateway.telegram.api import DEFAULT_URL
from keryx.surfaces.secrets import Secret

TOKEN = re.compile(r"(\d{1,20}):[\w-]{3,200}\Z", re.ASCII)
_SECRET = re.compile(r"[\w-]{1,256}\Z", re.ASCII)


class Mode(StrEnum):
    POLLING = "polling"
    WEBHOOK = "webhook"


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`url` is the public address of Keryx and `secret` what Telegram shows with each post, both for a webhook.
    `per_chat` and `per_second` are messages per second, to one chat and in all; 0 is as many as Telegram takes, which
    says itself when it wants a pause."""

    token: Secret = Secret()
    base_url: str = DEFAULT_URL
    mode: Mode = Mode.POLLING
    url: str = ""
    secret: Secret = Secret()
    per_chat: float = 0
    per_second: float = 0


def check_token(text: str) -> str:
    """The bot's id, which a token begins with. `Invalid` for what cannot be a token."""
    found = TOKEN.match(text)
    if found is None:
        raise Invalid("this does not look like a Telegram token: @BotFather gives one like 123456789:AAE1x…")
    return found[1]


def check_url(name: str, url: str) -> str:
    """A web address without its last slash."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Invalid(f"telegram.{name}: write a web address such as https://example.org")
    return url.rstrip("/")


def check_secret(text: str) -> str:
    if not _SECRET.match(text):
        raise Invalid("telegram.secret: use 1 to 256 letters, digits, _ and -, as Telegram wants it")
    return text
