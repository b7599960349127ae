"""The settings of WhatsApp, for either platform of Meta, and the check of what is written there."""

import re
from enum import StrEnum
from typing import Annotated

import msgspec

from keryx.core.errors import Invalid
from keryx.core.texts import Phrase
from keryx.secrets import Secret
from keryx.surfaces.gateway import http_clients

BAD_TOKEN = Phrase("connect.whatsapp_bad_token")
BAD_KEY = Phrase("connect.whatsapp_bad_key")
_NUMBER_PATTERN = re.compile(r"\d{5,25}\Z", re.ASCII)


class WhatsAppMode(StrEnum):
    AGENT = "agent"
    CLOUD = "cloud"


DEFAULT_MODE = WhatsAppMode.AGENT


class WhatsAppSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [whatsapp]. A misspelt name is an error."""

    # Which platform of Meta.
    mode: WhatsAppMode = DEFAULT_MODE
    # The access token, or the key of the agent.
    token: Secret = Secret()
    # The API; empty for Meta's.
    base_url: str = ""
    # Cloud: the id of the number, which is not the number itself.
    phone_number_id: str = ""
    # Cloud: the secret of the app, which signs what is posted.
    app_secret: Secret = Secret()
    # Cloud: what Meta shows when it verifies the address of the webhook.
    verify_token: Secret = Secret()
    # Cloud: the public address of Keryx. If it is set, Keryx tells Meta to post there.
    url: str = ""
    # Cloud: the template that is sent when an answer comes too late, and its language.
    template: str = ""
    template_language: str = "en"
    # Usernames are ids of people, too. Another person may take a username that was given up.
    usernames: bool = False
    # Answers in direct chats quote the message.
    quote: bool = False
    # Cloud: messages per second, to one chat and in all. 0 means no limit but WhatsApp's own.
    per_chat: float = 0
    per_second: float = 0
    # Agent: messages and polls per minute. 0 means no limit but WhatsApp's own.
    per_minute: Annotated[int, msgspec.Meta(ge=0)] = 12
    polls_per_minute: Annotated[int, msgspec.Meta(ge=0)] = 15

    @property
    def cloud_setting(self) -> str:
        """The name of a setting that only the Cloud API has, empty if none is set."""
        own = {
            "phone_number_id": self.phone_number_id,
            "app_secret": self.app_secret,
            "verify_token": self.verify_token,
            "url": self.url,
            "template": self.template,
        }
        return next((name for name, value in own.items() if value), "")


def check_url(name: str, url: str) -> str:
    """Return the address in a setting without its trailing slash."""
    return http_clients.check_url(
        url, f"whatsapp.{name}: write a web address such as https://example.org", username=True
    )


def check_number(text: str) -> str:
    """Return the id of a number. Raise `Invalid` for anything else."""
    if not _NUMBER_PATTERN.match(text):
        raise Invalid(
            "whatsapp.phone_number_id: write the id of the number, such as 106540352242922, from API Setup in the app"
        )
    return text
