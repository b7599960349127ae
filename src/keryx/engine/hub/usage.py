"""Reports of usage, and of each person's budget."""

from datetime import datetime

from keryx.core import usage
from keryx.core.clock import Clock
from keryx.core.ids import PrincipalId
from keryx.core.sessions import Viewer
from keryx.core.usage import Budgets, UsageGrouping, UsageTotal
from keryx.engine.units import usage as _account
from keryx.engine.units.usage import BudgetStatus
from keryx.store import usage as usage_store
from keryx.store.db.database import Database, Transaction


class HubUsage:
    """`hub.usages`: what was used, and by whom."""

    def __init__(self, database: Database, clock: Clock, *, budgets: Budgets) -> None:
        self._database = database
        self._clock = clock
        self._budgets = budgets

    async def report(
        self, viewer: Viewer, *, by: UsageGrouping, since: datetime, until: datetime | None = None
    ) -> list[UsageTotal]:
        end = until or self._clock.now()
        return await self._database.read(
            "usage", lambda tx: usage_store.list_totals(tx, viewer, by=by, since=since, until=end)
        )

    async def list_budgets(self, viewer: Viewer) -> list[BudgetStatus]:
        """Everybody who used something this month or has a budget of their own, as far as the viewer may see."""
        now = self._clock.now()

        def work(tx: Transaction) -> list[BudgetStatus]:
            active = usage_store.list_askers(tx, profile=viewer.profile, since=usage.month_period(now).since)
            known = dict.fromkeys([*active, *map(PrincipalId, self._budgets.people)])
            mine = [p for p in known if viewer.owner is None or p == viewer.owner]
            return [_account.load_budget(tx, viewer.profile, p, self._budgets.for_principal(p)) for p in mine]

        return await self._database.read("usage.accounts", work)
