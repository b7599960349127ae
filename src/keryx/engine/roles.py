"""Roles: which roles the author of a message has at its place. The platform is asked, and believed for half a minute."""

import logging
from collections import OrderedDict
from collections.abc import Sequence

import anyio
import msgspec

from keryx.core import access
from keryx.core.access import CLOSED, Rules, Verdict
from keryx.core.errors import Unavailable
from keryx.core.ports import Adapter, Clock, Inbound, Ranked
from keryx.core.source import ChatType, Source
from keryx.engine.foreign import contained

log = logging.getLogger(__name__)

BELIEVED_SECONDS = 30.0
_ASK_SECONDS = 10.0
_MOST = 10_000
_Key = tuple[str, str, str, str]


class Roles:
    """Of the platforms whose rule names roles, and whose adapter can be asked for them."""

    def __init__(self, adapters: Sequence[Adapter], rules: Rules, clock: Clock) -> None:
        named = [a for a in adapters if rules.get(a.platform, CLOSED).roles]
        self._adapters = {(a.platform, a.account): a for a in named if isinstance(a, Ranked)}
        self._rules = rules
        self._clock = clock
        self._known: OrderedDict[_Key, tuple[float, tuple[str, ...]]] = OrderedDict()

    @property
    def matter(self) -> bool:
        return bool(self._adapters)

    async def heard(self, inbound: Inbound) -> Inbound:
        """The event with the roles of its author, if they decide what becomes of it."""
        rule = self._rules.get(inbound.source.platform, CLOSED)
        if access.quiet(rule, inbound.source, addressed=inbound.addressed) and not rule.observe:
            return inbound
        return msgspec.structs.replace(inbound, source=await self.now(inbound.source))

    async def now(self, source: Source) -> Source:
        """The source with the roles that its author has now, unless something else lets them in. `Unavailable` if the
        platform cannot tell."""
        adapter = self._adapters.get((source.platform, source.account))
        if adapter is None or source.chat_type is ChatType.DM or not source.chat or not source.user:
            return source
        bare, rule = msgspec.structs.replace(source, roles=()), self._rules[source.platform]
        if access.judge(rule, bare, granted=False) is Verdict.ALLOWED:
            return bare
        key = (source.platform, source.account, source.chat, source.user)
        asked_at, roles = self._known.get(key, (0.0, None))
        if roles is None or self._clock.monotonic() - asked_at > BELIEVED_SECONDS:
            asked_at, roles = self._clock.monotonic(), await _asked(adapter, source)
            self._known[key] = asked_at, roles
            self._known.move_to_end(key)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return msgspec.structs.replace(source, roles=roles)


async def _asked(adapter: Ranked, source: Source) -> tuple[str, ...]:
    try:
        with anyio.fail_after(_ASK_SECONDS), contained():
            return tuple(await adapter.roles(source))
    except Unavailable:
        raise
    except TimeoutError as exc:
        raise Unavailable(f"{source.platform} does not tell who has which role") from exc
    except Exception as exc:
        log.exception("the %s adapter cannot tell roles", source.platform)
        raise Unavailable(f"{source.platform} cannot tell who has which role: {type(exc).__name__}") from exc
