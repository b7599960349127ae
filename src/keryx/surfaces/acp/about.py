"""About: what an editor is told of a session beside its messages: title, settings, usage and commands."""

import msgspec

from keryx.core import modes
from keryx.core.sessions import Session, Settings
from keryx.engine import commands
from keryx.surfaces.acp import options
from keryx.surfaces.acp.options import Choices
from keryx.surfaces.acp.peer import Json
from keryx.surfaces.acp.toolcalls import text_block

_ELSEWHERE = frozenset({"new", "resume", "undo-reset", "fork"})
"""Commands that lead a lane to another session: an editor opens sessions itself."""


class About(msgspec.Struct, frozen=True):
    title: str = ""
    settings: Settings = Settings()
    used: int | None = None
    size: int | None = None


def of(session: Session) -> About:
    return About(session.title, session.settings, session.context_used, session.context_limit)


def news(before: About, after: About, session: Session, choices: Choices) -> list[Json]:
    """The updates that bring an editor from what it knows to what is."""
    found: list[Json] = []
    if after.title != before.title:
        found.append(
            {
                "sessionUpdate": "session_info_update",
                "title": after.title or None,
                "updatedAt": session.active_at.isoformat(),
            }
        )
    if after.settings != before.settings:
        found += [mode_set(after.settings)] if _mode(after) != _mode(before) else []
        found.append(options_set(after.settings, choices))
    if (after.used, after.size) != (before.used, before.size) and after.used is not None and after.size:
        found.append({"sessionUpdate": "usage_update", "used": after.used, "size": after.size})
    return found


def notice(text: str, key: str, *, notices: bool) -> Json:
    """Something for the person at the editor alone, which is no part of the conversation."""
    if notices:
        return {"sessionUpdate": "notice", "severity": "warning", "title": text}
    return {
        "sessionUpdate": "agent_thought_chunk",
        "content": text_block(text),
        "messageId": key,
        "_meta": {"keryx": {"notice": True}},
    }


def mode_set(settings: Settings) -> Json:
    return {"sessionUpdate": "current_mode_update", "currentModeId": modes.of(settings.mode).value}


def options_set(settings: Settings, choices: Choices) -> Json:
    return {"sessionUpdate": "config_option_update", "configOptions": options.listed(settings, choices)}


def offered() -> Json:
    """The commands that make sense in an editor."""
    return {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [
            {"name": c.name, "description": c.help, **({"input": {"hint": c.usage}} if c.usage else {})}
            for c in commands.COMMANDS
            if c.name not in _ELSEWHERE
        ],
    }


def _mode(about: About) -> modes.Mode:
    return modes.of(about.settings.mode)
