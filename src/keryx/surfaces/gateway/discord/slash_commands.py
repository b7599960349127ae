"""The slash commands of the bot, made from the menu of Keryx and registered with Discord."""

import logging
import re
from collections.abc import Mapping, Sequence

import msgspec

from keryx.core.ports.adapter import AdapterContext, MenuItem
from keryx.surfaces.gateway.discord.rest_api import DiscordApi, DiscordError
from keryx.surfaces.gateway.discord.route_limits import Route

log = logging.getLogger(__name__)

OPTION_NAME = "arguments"
_MAX_COMMANDS = 100
_MAX_DESCRIPTION = 100
_NAME_PATTERN = re.compile(r"[a-z0-9_-]{1,32}\Z")
# The languages that Discord and Keryx call by the same name. English is the language of the commands themselves.
_LOCALES = frozenset({"cs", "da", "de", "fi", "fr", "hu", "it", "ja", "ko", "nl", "pl", "ru", "tr", "uk"})


# In servers, and in direct chats with the bot.
_EVERYWHERE = (0, 1)
_DIRECT = (1,)


class CommandParameter(msgspec.Struct, frozen=True, kw_only=True):
    # A text.
    type: int = 3
    name: str = OPTION_NAME
    description: str
    required: bool = False


class SlashCommand(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    # Typed by people, not chosen in the menu of a message or person.
    type: int = 1
    description: str = ""
    description_localizations: dict[str, str] | None = None
    options: tuple[CommandParameter, ...] = ()
    contexts: tuple[int, ...] | None = _EVERYWHERE


async def register(api: DiscordApi, context: AdapterContext) -> None:
    """Register the commands of the menu, unless Discord has the same ones. Without them the bot works all the same."""
    application = await api.find_application()
    wanted = build_commands(context.menu, context.menus)
    params = (application.id,)
    try:
        found = await api.call(
            Route("GET", "/applications/{}/commands", params), query={"with_localizations": "true"}
        )
        if not _are_same(found, wanted):
            await api.call(Route("PUT", "/applications/{}/commands", params), msgspec.to_builtins(wanted))
    except DiscordError as exc:
        log.warning("the slash commands are not registered: %s", exc)


def build_commands(menu: Sequence[MenuItem], menus: Mapping[str, Sequence[MenuItem]]) -> list[SlashCommand]:
    """Return the commands of a menu. One with arguments takes them as one text."""
    translations = {
        language: {item.name: item.help[:_MAX_DESCRIPTION] for item in items if item.help}
        for language, items in menus.items()
        if language in _LOCALES
    }
    return [
        SlashCommand(
            name=item.name,
            description=item.help[:_MAX_DESCRIPTION] or item.name,
            description_localizations={
                language: texts[item.name] for language, texts in translations.items() if item.name in texts
            },
            # Arguments that are written in brackets are optional.
            options=(
                CommandParameter(
                    description=item.usage[:_MAX_DESCRIPTION], required=not item.usage.startswith("[")
                ),
            )
            if item.usage
            else (),
            contexts=_DIRECT if item.direct else _EVERYWHERE,
        )
        for item in menu[:_MAX_COMMANDS]
        if _NAME_PATTERN.match(item.name)
    ]


def _are_same(found: object, wanted: Sequence[SlashCommand]) -> bool:
    """Whether Discord has these commands, in any order. It adds fields of its own."""
    try:
        registered = msgspec.convert(found, list[SlashCommand])
    except msgspec.ValidationError:
        return False
    return {c.name: _summarize(c) for c in registered} == {c.name: _summarize(c) for c in wanted}


def _summarize(command: SlashCommand) -> SlashCommand:
    return msgspec.structs.replace(
        command,
        description_localizations=command.description_localizations or {},
        contexts=tuple(sorted(command.contexts or ())),
    )
