"""Responses to interactions by their tokens: the acknowledgement that Discord waits for, and notices that one person sees."""

import logging

import msgspec

from keryx.surfaces.gateway.discord.payloads import DiscordInteraction, InteractionKind
from keryx.surfaces.gateway.discord.rest_api import (
    DiscordApi,
    DiscordError,
    DiscordNoResponse,
    DiscordRateLimit,
    DiscordUnreachable,
)
from keryx.surfaces.gateway.discord.route_limits import Route

log = logging.getLogger(__name__)

# Discord waits for 3 seconds.
_ACK_TIMEOUT_SECONDS = 2.5
_RESPONSE_TYPES = {
    # The bot "is thinking" until the response is edited.
    InteractionKind.COMMAND: 5,
    # The message with the button stays as it is, until it is edited.
    InteractionKind.COMPONENT: 6,
}
_EPHEMERAL_FLAG = 1 << 6
_ALREADY_ACKNOWLEDGED = 40060
_MAX_NOTICE_LENGTH = 2000


async def acknowledge(api: DiscordApi, data: object) -> bool:
    """Tell Discord that an interaction is being answered. Return whether its token may be used. An interaction that comes again
    after a restart was acknowledged before."""
    try:
        interaction = msgspec.convert(data, DiscordInteraction)
    except msgspec.ValidationError:
        return False
    response = _RESPONSE_TYPES.get(InteractionKind(interaction.type)) if is_known(interaction) else None
    if response is None:
        return False
    route = Route("POST", "/interactions/{}/{}/callback", (interaction.id, interaction.token))
    try:
        await api.request(route, {"type": response}, authorize=False, seconds=_ACK_TIMEOUT_SECONDS)
    except DiscordError as exc:
        if exc.code == _ALREADY_ACKNOWLEDGED:
            return True
        log.info("an interaction could not be acknowledged: %s", exc)
    except (DiscordRateLimit, DiscordUnreachable, DiscordNoResponse) as exc:
        log.info("an interaction could not be acknowledged: %s", exc)
    else:
        return True
    return False


def is_known(interaction: DiscordInteraction) -> bool:
    """Whether it is a slash command or the press of a button."""
    return interaction.type in set(InteractionKind)


async def send_notice(api: DiscordApi, interaction: DiscordInteraction, text: str) -> None:
    """Show a text to the person who pressed a button. It is not repeated if it is lost."""
    route = Route("POST", "/webhooks/{}/{}", (interaction.application_id, interaction.token))
    nobody = {"parse": list[str]()}
    body = {"content": text[:_MAX_NOTICE_LENGTH], "flags": _EPHEMERAL_FLAG, "allowed_mentions": nobody}
    try:
        await api.request(route, body, authorize=False)
    except (DiscordError, DiscordRateLimit, DiscordUnreachable, DiscordNoResponse) as exc:
        log.info("the reply to a press could not be shown: %s", exc)
