"""Reports of usage, and of each person's budget."""

from datetime import datetime

import msgspec

from keryx.core.ids import PrincipalId
from keryx.core.sessions import Viewer
from keryx.core.usage import Budgets, DailyUsage, UsageGrouping, UsageTotal, month_period
from keryx.engine.hub.verbs import HubPart, read_unit
from keryx.engine.units import usage as usage_units
from keryx.engine.units.usage import BudgetStatus
from keryx.store import usage
from keryx.store.db import Database, Transaction

_MAX_REPORT_LINES = 20


class SpendingReport(msgspec.Struct, frozen=True, kw_only=True):
    days: list[DailyUsage]
    # Those who used most, and the sessions that used most.
    people: list[UsageTotal]
    sessions: list[UsageTotal]


class HubUsage(HubPart):
    def __init__(self, database: Database, *, budgets: Budgets) -> None:
        super().__init__(database)
        self._budgets = budgets

    @read_unit("usage")
    def report(
        self,
        tx: Transaction,
        viewer: Viewer,
        *,
        by: UsageGrouping,
        since: datetime,
        until: datetime | None = None,
    ) -> list[UsageTotal]:
        return usage.list_totals(tx, viewer, by=by, since=since, until=until or tx.now)

    @read_unit("view.spending")
    def report_spending(self, tx: Transaction, viewer: Viewer, *, since: datetime) -> SpendingReport:
        """Return the usage that the viewer may see since a time: all of it by day, and who and what used most."""

        def list_largest(by: UsageGrouping) -> list[UsageTotal]:
            return usage.list_totals(tx, viewer, by=by, since=since, until=tx.now, limit=_MAX_REPORT_LINES)

        return SpendingReport(
            days=usage.list_daily(tx, viewer, since=since),
            people=list_largest(UsageGrouping.PERSON),
            sessions=list_largest(UsageGrouping.SESSION),
        )

    @read_unit("usage.accounts")
    def list_budgets(self, tx: Transaction, viewer: Viewer) -> list[BudgetStatus]:
        """Return everybody who used something this month or has a budget of their own, as far as the viewer may see."""
        active = usage.list_askers(tx, profile=viewer.profile, since=month_period(tx.now).since)
        people = dict.fromkeys([*active, *map(PrincipalId, self._budgets.people)])
        visible = [p for p in people if viewer.owner is None or p == viewer.owner]
        return [
            usage_units.load_budget(tx, viewer.profile, p, self._budgets.for_principal(p)) for p in visible
        ]
