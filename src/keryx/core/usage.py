"""Token counts, cost, and the daily and monthly budgets of a person."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum

import msgspec

from keryx.core.ids import OPERATOR, PrincipalId

MILLION = 1_000_000


class UsageGrouping(StrEnum):
    DAY = "day"
    MODEL = "model"
    SURFACE = "surface"
    PERSON = "person"
    SESSION = "session"
    TASK = "task"


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0


class UsageTotal(msgspec.Struct, frozen=True, kw_only=True):
    """One group. `cost` leaves out the calls without a price, of which there are `unpriced`."""

    key: str
    label: str
    calls: int
    tokens: Tokens
    cost: int
    unpriced: int
    estimated: bool


class DailyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one day, model and surface used. `cost` is `None` when no price is known for any of it."""

    day: date
    model: str
    surface: str
    turns: int
    tokens: Tokens
    cost: int | None
    estimated: bool


class UsageTotals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent's own count of its use stands at, over all turns of its session. Costs are in millionths."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Five token classes and a cost in millionths of the currency, `None` when unknown."""

    model: str = ""
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: int | None = None
    estimated: bool = True
    context_used: int | None = None
    context_limit: int | None = None


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

    def for_principal(self, principal: PrincipalId) -> Budget:
        other = Budget() if principal == OPERATOR else self.everyone
        return self.people.get(principal, other)

    @property
    def has_limits(self) -> bool:
        return bool(self.people) or self.everyone != Budget()


class SpentAmount(msgspec.Struct, frozen=True):
    """What was used since a moment: millionths of the currency, and tokens."""

    cost: int = 0
    tokens: int = 0


class BudgetPeriod(msgspec.Struct, frozen=True):
    """A day or a month: since when, and when the next begins."""

    name: str
    since: datetime
    until: datetime


def day_period(now: datetime) -> BudgetPeriod:
    since = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return BudgetPeriod("today", since, since + timedelta(days=1))


def month_period(now: datetime) -> BudgetPeriod:
    since = day_period(now).since.replace(day=1)
    return BudgetPeriod("this month", since, (since + timedelta(days=32)).replace(day=1))


def find_refusal(budget: Budget, today: SpentAmount, this_month: SpentAmount, *, now: datetime) -> str | None:
    """Why a person may not ask now and when they may again; `None` if they may."""
    limits = (
        (day_period(now), budget.day, budget.day_tokens, today),
        (month_period(now), budget.month, budget.month_tokens, this_month),
    )
    for period, money, tokens, spent in limits:
        again = f"It opens again on {period.until:%Y-%m-%d %H:%M} UTC."
        if money and spent.cost >= money * MILLION:
            return f"Your budget for {period.name} is used up: {spent.cost / MILLION:.2f} of {money:.2f}. {again}"
        if tokens and spent.tokens >= tokens:
            return f"Your budget for {period.name} is used up: {spent.tokens} of {tokens} tokens. {again}"
    return None
