"""Tool sets: several toolboxes as one, by the choice of the session and by the rules of permission."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from keryx.agents import permissions
from keryx.agents.permissions import Rules
from keryx.agents.tools import Output, Permission, Spec, Toolbox, ToolFailed
from keryx.core.ports import TurnContext

_MOST_TOLD = 1000


class ToolSets:
    """Offers the sets that a session has switched on, all of them unless it has chosen. A set without a name is
    always on."""

    def __init__(self, sets: Mapping[str, Toolbox], *, rules: Rules) -> None:
        self._sets = sets
        self._rules = rules
        self._owners: dict[str, Toolbox] = {}
        self._told: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def specs(self, context: TurnContext) -> Sequence[Spec]:
        chosen = self._chosen(context)
        offered: dict[str, Spec] = {}
        for toolbox, specs in zip(
            chosen, await asyncio.gather(*(t.specs(context) for t in chosen)), strict=True
        ):
            for spec in specs:
                given = self._ruled(spec, context)
                if given.permission is not Permission.DENY and given.name not in offered:
                    offered[given.name] = given
                    self._owners[given.name] = toolbox
        return list(offered.values())

    def troubles(self, context: TurnContext) -> Sequence[str]:
        found = [text for toolbox in self._chosen(context) for text in toolbox.troubles(context)]
        return [text for text in found if self._first_time(context.session, text)]

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> Output:
        owner = self._owners.get(name)
        if owner is None:
            raise ToolFailed(f"There is no tool {name!r}.")
        return await owner.call(name, arguments, context)

    def _chosen(self, context: TurnContext) -> list[Toolbox]:
        wanted = context.settings.tools
        return [
            toolbox for name, toolbox in self._sets.items() if wanted is None or not name or name in wanted
        ]

    def _ruled(self, spec: Spec, context: TurnContext) -> Spec:
        given = permissions.decide(self._rules, spec.name, context.surface, default=spec.permission)
        return msgspec.structs.replace(spec, permission=given)

    def _first_time(self, session: str, text: str) -> bool:
        if (session, text) in self._told:
            return False
        self._told[session, text] = None
        if len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)
        return True
