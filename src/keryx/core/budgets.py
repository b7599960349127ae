"""Budgets: what a person may use in a day and in a month, and how the refusal reads."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from keryx.core.ids import OPERATOR, PrincipalId

MILLION = 1_000_000


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one person. Money is in the currency of the configured prices; days and months are UTC. Zero is no
    limit."""

    day: float = 0
    month: float = 0
    day_tokens: int = 0
    month_tokens: int = 0


class Budgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`everyone` holds for all but the operator; `people` names principals, as /whoami shows them."""

    everyone: Budget = Budget()
    people: Mapping[str, Budget] = {}

    def of(self, principal: PrincipalId) -> Budget:
        other = Budget() if principal == OPERATOR else self.everyone
        return self.people.get(principal, other)

    @property
    def limited(self) -> bool:
        return bool(self.people) or self.everyone != Budget()


class Spent(msgspec.Struct, frozen=True):
    """What was used since a moment: millionths of the currency, and tokens."""

    cost: int = 0
    tokens: int = 0


class Period(msgspec.Struct, frozen=True):
    """A day or a month: since when, and when the next begins."""

    name: str
    since: datetime
    until: datetime


def day(now: datetime) -> Period:
    since = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return Period("today", since, since + timedelta(days=1))


def month(now: datetime) -> Period:
    since = day(now).since.replace(day=1)
    return Period("this month", since, (since + timedelta(days=32)).replace(day=1))


def refusal(budget: Budget, today: Spent, this_month: Spent, *, now: datetime) -> str | None:
    """Why a person may not ask now and when they may again; `None` if they may."""
    limits = (
        (day(now), budget.day, budget.day_tokens, today),
        (month(now), budget.month, budget.month_tokens, this_month),
    )
    for period, money, tokens, spent in limits:
        again = f"It opens again on {period.until:%Y-%m-%d %H:%M} UTC."
        if money and spent.cost >= money * MILLION:
            return f"Your budget for {period.name} is used up: {spent.cost / MILLION:.2f} of {money:.2f}. {again}"
        if tokens and spent.tokens >= tokens:
            return f"Your budget for {period.name} is used up: {spent.tokens} of {tokens} tokens. {again}"
    return None
