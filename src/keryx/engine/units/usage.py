"""Usage: reports, the budget of each person, and the refusal of a turn whose asker has used up a budget."""

from datetime import datetime

import msgspec

from keryx.core import usage
from keryx.core.errors import Forbidden
from keryx.core.ids import PrincipalId
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.core.turns import Turn
from keryx.core.usage import Budget, Budgets, DailyUsage, SpentAmount, UsageGrouping, UsageTotal
from keryx.store import people
from keryx.store import usage as usage_store
from keryx.store.db import Transaction

_MAX_REPORT_LINES = 20


class SpendingReport(msgspec.Struct, frozen=True, kw_only=True):
    days: list[DailyUsage]
    # Those who used most, and the sessions that used most.
    people: list[UsageTotal]
    sessions: list[UsageTotal]


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A person's budget beside what they have used."""

    principal: PrincipalId
    name: str
    budget: Budget
    today: SpentAmount
    this_month: SpentAmount
    refusal: Phrase | None


def report_spending(tx: Transaction, viewer: Viewer, *, since: datetime) -> SpendingReport:
    """Return the usage that the viewer may see since a time: all of it by day, and who and what used most."""

    def list_largest(by: UsageGrouping) -> list[UsageTotal]:
        return usage_store.list_totals(tx, viewer, by=by, since=since, until=tx.now, limit=_MAX_REPORT_LINES)

    return SpendingReport(
        days=usage_store.list_daily(tx, viewer, since=since),
        people=list_largest(UsageGrouping.PERSON),
        sessions=list_largest(UsageGrouping.SESSION),
    )


def list_budgets(tx: Transaction, viewer: Viewer, *, budgets: Budgets) -> list[BudgetStatus]:
    """Return the people who used something this month or have a budget of their own, as the viewer may see them."""
    since = usage.month_period(tx.now).since
    active = usage_store.list_askers(tx, profile=viewer.profile, since=since)
    principals = dict.fromkeys([*active, *map(PrincipalId, budgets.people)])
    visible = [p for p in principals if viewer.owner is None or p == viewer.owner]
    return [_load_budget(tx, viewer.profile, p, budgets.for_principal(p)) for p in visible]


def check_budget(tx: Transaction, turn: Turn, budgets: Budgets) -> None:
    """Raise `Forbidden` with a sentence for the person if a turn's asker has used up a budget."""
    if not budgets.has_limits:
        return
    status = _load_budget(tx, turn.profile, turn.asker, budgets.for_principal(turn.asker))
    if status.refusal:
        raise Forbidden(status.refusal)


def _load_budget(tx: Transaction, profile: str, person: PrincipalId, budget: Budget) -> BudgetStatus:
    today = usage_store.sum_for_asker(tx, profile=profile, asker=person, since=usage.day_period(tx.now).since)
    this_month = usage_store.sum_for_asker(
        tx, profile=profile, asker=person, since=usage.month_period(tx.now).since
    )
    return BudgetStatus(
        principal=person,
        name=people.get_name(tx, person),
        budget=budget,
        today=today,
        this_month=this_month,
        refusal=usage.find_refusal(budget, today, this_month, now=tx.now),
    )
