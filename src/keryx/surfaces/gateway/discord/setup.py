"""The setup of a Discord bot: its questions, the check of the token and of the switch for message content, and the address that invites the bot."""

import re
from collections.abc import Mapping

from keryx.core.errors import Invalid
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.surfaces.gateway.discord import check_token, check_url
from keryx.surfaces.gateway.discord.event_parser import IDS, PLATFORM
from keryx.surfaces.gateway.discord.gateway_session import MISSING_INTENT
from keryx.surfaces.gateway.discord.rest_api import DEFAULT_URL, DiscordApi

INTRO = """\
1. Open https://discord.com/developers/applications and press New Application.
2. On the page Bot, press Reset Token and copy the token.
3. On the same page, switch on Message Content Intent, and save."""
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
            raise Invalid(f"{person[:80]!r} is no person on Discord: the id of one is {IDS.person.words}")
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
        summary=f"Keryx is {name} on Discord ({bot}).",
        settings=settings,
        secrets={"token": token},
        allow=allow,
        steps=(
            f"Open {invite} and choose the server that the bot joins.",
            "Run `keryx serve`.",
            "Write to the bot in a direct chat, or mention it in a channel.",
            *(
                ()
                if allow
                else (
                    f"In a direct chat it answers with a code; let yourself in: keryx pairing approve {PLATFORM} CODE --operator",
                )
            ),
        ),
        details={"bot": bot, "application": application.id, "name": name, "invite": invite},
    )


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Discord",
    intro=INTRO,
    fields=(
        SetupField(
            name="token",
            label="Token of the bot",
            help="The page Bot of the developer portal shows it once, after Reset Token.",
            secret=True,
            accept=lambda answer: check_token(answer.removeprefix("Bot ")),
        ),
        SetupField(
            name="allow",
            label="Who may talk to the bot, as user ids with commas",
            help="In Discord, switch on Developer Mode under Advanced, then right-click a person and choose Copy User ID. Whoever is not listed can ask for a pairing code.",
            optional=True,
        ),
        SetupField(
            name="mentions_only",
            label="Read only direct messages and mentions",
            help="For a bot without Message Content Intent.",
            optional=True,
            ask=False,
            flag=True,
        ),
        SetupField(
            name="threads",
            label="Begin a thread for each conversation in a channel",
            optional=True,
            ask=False,
            flag=True,
        ),
        SetupField(
            name="base_url",
            label="Address of the API",
            help="Only for a proxy of your own.",
            optional=True,
            ask=False,
        ),
    ),
    check=check,
)
