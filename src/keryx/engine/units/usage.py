"""Budgets: load a person's usage, and refuse a turn whose asker has used up a budget."""

import msgspec

from keryx.core import usage
from keryx.core.errors import Forbidden
from keryx.core.ids import PrincipalId
from keryx.core.turns import Turn
from keryx.core.usage import Budget, Budgets, SpentAmount
from keryx.store import people
from keryx.store import usage as usage_store
from keryx.store.db import Transaction


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A person's budget beside what they have used."""

    principal: PrincipalId
    name: str
    budget: Budget
    today: SpentAmount
    this_month: SpentAmount
    refusal: str | None


def check_budget(tx: Transaction, turn: Turn, limits: Budgets) -> None:
    """Raise `Forbidden` with a sentence for the person if a turn's asker has used up a budget."""
    if not limits.has_limits:
        return
    account = load_budget(tx, turn.profile, turn.asker, limits.for_principal(turn.asker))
    if account.refusal:
        raise Forbidden(account.refusal)


def load_budget(tx: Transaction, profile: str, person: PrincipalId, budget: Budget) -> BudgetStatus:
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
