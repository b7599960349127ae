"""Usage: reports of what was used, and the budgets that a turn must keep before it runs."""

from datetime import datetime

import msgspec

from keryx.core import budgets
from keryx.core.budgets import Budget, Budgets, Spent
from keryx.core.errors import Forbidden
from keryx.core.ids import PrincipalId
from keryx.core.ports import Clock
from keryx.core.sessions import Viewer
from keryx.core.turns import Turn
from keryx.store import principals, spending
from keryx.store.database import Database, Transaction
from keryx.store.spending import By, Line


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A person's budget beside what they have used."""

    principal: PrincipalId
    name: str
    budget: Budget
    today: Spent
    this_month: Spent
    refusal: str | None


class Usages:
    """`hub.usages`: what was used, and by whom."""

    def __init__(self, database: Database, clock: Clock, *, budgets: Budgets) -> None:
        self._database = database
        self._clock = clock
        self._budgets = budgets

    async def report(
        self, viewer: Viewer, *, by: By, since: datetime, until: datetime | None = None
    ) -> list[Line]:
        end = until or self._clock.now()
        return await self._database.read(
            "usage", lambda tx: spending.report(tx, viewer, by=by, since=since, until=end)
        )

    async def accounts(self, viewer: Viewer) -> list[Account]:
        """Everybody who used something this month or has a budget of their own, as far as the viewer may see."""
        now = self._clock.now()

        def work(tx: Transaction) -> list[Account]:
            active = spending.askers(tx, profile=viewer.profile, since=budgets.month(now).since)
            known = dict.fromkeys([*active, *map(PrincipalId, self._budgets.people)])
            mine = [p for p in known if viewer.owner is None or p == viewer.owner]
            return [_account(tx, viewer.profile, p, self._budgets.of(p), now) for p in mine]

        return await self._database.read("usage.accounts", work)


def check(tx: Transaction, turn: Turn, limits: Budgets, *, now: datetime) -> None:
    """Raise `Forbidden` with a sentence for the person if a turn's asker has used up a budget."""
    if not limits.limited:
        return
    account = _account(tx, turn.profile, turn.asker, limits.of(turn.asker), now)
    if account.refusal:
        raise Forbidden(account.refusal)


def _account(tx: Transaction, profile: str, person: PrincipalId, budget: Budget, now: datetime) -> Account:
    today = spending.spent(tx, profile=profile, asker=person, since=budgets.day(now).since)
    this_month = spending.spent(tx, profile=profile, asker=person, since=budgets.month(now).since)
    return Account(
        principal=person,
        name=principals.name(tx, person),
        budget=budget,
        today=today,
        this_month=this_month,
        refusal=budgets.refusal(budget, today, this_month, now=now),
    )
