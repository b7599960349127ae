"""Token counts, cost, and the daily and monthly budgets of a person."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import msgspec

from keryx.core.ids import OPERATOR, PrincipalId
from keryx.core.texts import Phrase

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
    """The usage of one group of a report."""

    key: str
    label: str
    calls: int
    tokens: Tokens
    # Without the calls that have no price.
    cost: int
    # How many calls have no price.
    unpriced: int
    estimated: bool


class DailyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one day, model and surface."""

    day: date
    model: str
    surface: str
    turns: int
    tokens: Tokens
    # `None` if no price is known.
    cost: int | None
    estimated: bool


class CostMeter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cost counter of an outside agent over all turns of its session."""

    # In millionths of the currency, `None` if unknown.
    cost: int | None = None


class Usage(Tokens, frozen=True, kw_only=True, omit_defaults=True):
    """The usage of one call of a model."""

    model: str = ""
    # In millionths of the currency, `None` if unknown.
    cost: int | None = None
    estimated: bool = True
    context_used: int | None = None
    context_limit: int | None = None


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model, as it was recorded."""

    model: str
    # `answer`, `title` or `summary`.
    task: str
    input: int
    output: int
    # When it had ended.
    at: datetime


class AnswerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer of one turn took: the model that wrote it, and the totals of all calls."""

    model: str
    tokens: Tokens
    # In millionths of the currency, `None` if unknown.
    cost: int | None
    estimated: bool


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one person, 0 for no limit. Days and months are UTC."""

    # In the currency of the configured prices.
    day: Annotated[float, msgspec.Meta(ge=0)] = 0
    month: Annotated[float, msgspec.Meta(ge=0)] = 0
    day_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    month_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0


class Budgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # For all users except the operator.
    everyone: Budget = Budget()
    # By principal, as /whoami shows it.
    people: Mapping[str, Budget] = {}

    def for_principal(self, principal: PrincipalId) -> Budget:
        other = Budget() if principal == OPERATOR else self.everyone
        return self.people.get(principal, other)

    @property
    def has_limits(self) -> bool:
        return bool(self.people) or self.everyone != Budget()


class SpentAmount(msgspec.Struct, frozen=True):
    # In millionths of the currency.
    cost: int = 0
    tokens: int = 0


class BudgetPeriod(msgspec.Struct, frozen=True):
    name: Phrase
    since: datetime
    until: datetime


def day_period(now: datetime) -> BudgetPeriod:
    since = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return BudgetPeriod(Phrase("budget.today"), since, since + timedelta(days=1))


def month_period(now: datetime) -> BudgetPeriod:
    since = day_period(now).since.replace(day=1)
    return BudgetPeriod(Phrase("budget.month"), since, (since + timedelta(days=32)).replace(day=1))


def find_refusal(
    budget: Budget, today: SpentAmount, this_month: SpentAmount, *, now: datetime
) -> Phrase | None:
    """Return why the budget of a person is exhausted and when it is renewed; `None` if it is not."""
    limits = (
        (day_period(now), budget.day, budget.day_tokens, today),
        (month_period(now), budget.month, budget.month_tokens, this_month),
    )
    for period, money, tokens, spent in limits:
        if money and spent.cost >= money * MILLION:
            cost = spent.cost / MILLION
            return Phrase(
                "budget.money_used", period=period.name, spent=cost, limit=money, until=period.until
            )
        if tokens and spent.tokens >= tokens:
            return Phrase(
                "budget.tokens_used",
                period=period.name,
                spent=spent.tokens,
                limit=tokens,
                until=period.until,
            )
    return None
