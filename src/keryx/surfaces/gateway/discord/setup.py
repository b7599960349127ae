"""The setup of a Discord bot: its questions, the check of the token and of the switch for message content, and the address that invites the bot."""

import re
from collections.abc import Mapping

from keryx.core.errors import Invalid
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.discord import check_token, check_url
from keryx.surfaces.gateway.discord.event_parser import IDS, PLATFORM
from keryx.surfaces.gateway.discord.gateway_session import MISSING_INTENT
from keryx.surfaces.gateway.discord.rest_api import DEFAULT_URL, DiscordApi

INTRO = Phrase("connect.discord_intro")
INVITE_URL = "https://discord.com/oauth2/authorize"
# View channels, send messages, attach files, read the history, manage threads, create public threads, send in threads.
PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 15 | 1 << 16 | 1 << 34 | 1 << 35 | 1 << 38
# The switch for message content is on: for a bot in many servers, and for one in few.
_CONTENT_FLAGS = 1 << 18 | 1 << 19


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask Discord who the token belongs to. Raise `Invalid` or `Forbidden` with what to do."""
    token = answers["token"].strip().removeprefix("Bot ")
    bot = check_token(token)
    allow = tuple(re.split(r"[\s,]+", answers.get("allow", "").strip())) if answers.get("allow") else ()
    for person in allow:
        if IDS.person is not None and not IDS.person.matches(person):
            raise Invalid(
                Phrase(
                    "connect.no_person", name=repr(person[:80]), platform="Discord", words=IDS.person.words
                )
            )
    base_url = check_url("base_url", answers.get("base_url") or DEFAULT_URL)
    mentions_only, threads = bool(answers.get("mentions_only")), bool(answers.get("threads"))
    api = DiscordApi(token, base_url)
    try:
        application = await api.find_application()
    finally:
        await api.close()
    if not application.flags & _CONTENT_FLAGS and not mentions_only:
        raise Invalid(MISSING_INTENT)
    name = (application.bot.username if application.bot else "") or application.name
    invite = (
        f"{INVITE_URL}?client_id={application.id}&scope=bot+applications.commands&permissions={PERMISSIONS}"
    )
    settings = {
        **({"base_url": base_url} if base_url != DEFAULT_URL else {}),
        **({"message_content": "false"} if mentions_only else {}),
        **({"threads": "true"} if threads else {}),
    }
    return SetupOutcome(
        summary=Phrase("connect.discord_bot", name=name, id=bot),
        settings=settings,
        secrets={"token": token},
        allow=allow,
        steps=(
            Phrase("connect.discord_invite", address=invite),
            Phrase("connect.discord_serve"),
            Phrase("connect.discord_write"),
            *(() if allow else (Phrase("connect.discord_pair", platform=PLATFORM),)),
        ),
        details={"bot": bot, "application": application.id, "name": name, "invite": invite},
    )


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Discord",
    summary=Phrase("connect.discord"),
    intro=INTRO,
    fields=(
        SetupField(
            name="token",
            label=Phrase("connect.discord_token"),
            help=Phrase("connect.discord_token_help"),
            secret=True,
            accept=lambda answer: check_token(answer.removeprefix("Bot ")),
        ),
        SetupField(
            name="allow",
            label=Phrase("connect.discord_allow"),
            help=Phrase("connect.discord_allow_help"),
            optional=True,
        ),
        SetupField(
            name="mentions_only",
            label=Phrase("connect.discord_mentions"),
            help=Phrase("connect.discord_mentions_help"),
            optional=True,
            ask=False,
            flag=True,
        ),
        SetupField(
            name="threads",
            label=Phrase("connect.discord_threads"),
            optional=True,
            ask=False,
            flag=True,
        ),
        SetupField(
            name="base_url",
            label=Phrase("connect.api_address"),
            help=Phrase("connect.discord_api_help"),
            optional=True,
            ask=False,
        ),
    ),
    person=IDS.person,
    check=check,
)
