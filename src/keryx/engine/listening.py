"""Listening: an adapter is kept listening for ever, whatever becomes of its platform, and harms no other."""

import logging

from keryx.core.errors import Forbidden, KeryxError
from keryx.core.ports import Adapter, Clock, Link
from keryx.engine import doors
from keryx.engine.connections import Connections
from keryx.engine.foreign import contained
from keryx.engine.hub import Hub
from keryx.engine.roles import Roles

log = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
LONGEST_REFUSAL = 600.0


class Listening:
    """One adapter. `now` tells whether it is listening."""

    def __init__(
        self, hub: Hub, clock: Clock, adapter: Adapter, *, connections: Connections, roles: Roles
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._adapter = adapter
        self._connections = connections
        self._roles = roles
        self.now = False

    async def run(self) -> None:
        """Listen, and after a failure again, after a pause that grows. Refused credentials are tried more rarely."""
        pause = FIRST_PAUSE
        while True:
            began = self._clock.monotonic()
            refused = await self._listen()
            longest = LONGEST_REFUSAL if refused else LONGEST_PAUSE
            if self._clock.monotonic() - began > longest:
                pause = FIRST_PAUSE
            await self._clock.sleep(min(pause, longest))
            pause = min(pause * 2, longest)

    async def _listen(self) -> bool:
        """Listen until that ends; gives whether the platform refused the credentials."""
        adapter, report = self._adapter, self._connections.report
        report(adapter, Link.CONNECTING)
        try:
            door = await doors.opened(self._hub, adapter, self._connections, self._roles)
            self.now = True
            with contained():
                await adapter.listen(door)
            report(adapter, Link.BROKEN, "the adapter stopped listening by itself")
        except Forbidden as exc:
            report(adapter, Link.REFUSED, str(exc))
            return True
        except KeryxError as exc:
            report(adapter, Link.BROKEN, str(exc))
        except Exception as exc:
            log.exception("the %s adapter failed; it is started again", adapter.platform)
            report(
                adapter, Link.BROKEN, f"the adapter failed ({type(exc).__name__}): the log has the details"
            )
        finally:
            self.now = False
        return False
