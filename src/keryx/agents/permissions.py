"""Permissions: which tools may be used without asking, by the name of the tool and the surface of the turn."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TypeAlias

from keryx.agents.tools import Permission

Rules: TypeAlias = Mapping[str, Permission | dict[str, Permission]]
"""Patterns of tool names with what they get; a table in place of it holds the patterns of one surface."""


def decide(rules: Rules, tool: str, surface: str, *, default: Permission) -> Permission:
    """What a tool gets on a surface: the surface's rules go before the general ones, and of those that fit
    the longest pattern wins. Without one the default stands."""
    own = rules.get(surface)
    general = {p: given for p, given in rules.items() if isinstance(given, Permission)}
    for table in (own if isinstance(own, dict) else {}, general):
        fitting = [p for p in table if fnmatchcase(tool, p)]
        if fitting:
            return table[max(fitting, key=len)]
    return default
