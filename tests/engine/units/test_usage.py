"""Budgets and reports of usage."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS

from keryx.core import usage
from keryx.core.ids import OPERATOR, PrincipalId
from keryx.core.ports.agent import TextDelta, UsageEvent
from keryx.core.turns import TurnState
from keryx.core.usage import Budget, Budgets, SpentAmount, Usage, UsageGrouping
from keryx.engine.policy import Policy
from keryx.testing import ScriptedAgent

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)


def test_the_operator_has_no_budget_unless_it_is_named() -> None:
    everyone = Budgets(everyone=Budget(day=1))
    assert (
        everyone.for_principal(OPERATOR) == Budget() and everyone.for_principal(PrincipalId("ann")).day == 1
    )
    named = Budgets(everyone=Budget(day=1), people={"ann": Budget(day=5), OPERATOR: Budget(day=2)})
    assert (named.for_principal(PrincipalId("ann")).day, named.for_principal(OPERATOR).day) == (5, 2)


@pytest.mark.parametrize(
    ("budget", "today", "month", "words"),
    [
        (Budget(), SpentAmount(10**12, 10**9), SpentAmount(10**12, 10**9), None),
        (Budget(day=1), SpentAmount(999_999, 5), SpentAmount(0, 0), None),
        (
            Budget(day=1),
            SpentAmount(1_000_000, 5),
            SpentAmount(0, 0),
            "1.00 of 1.00. It opens again on 2026-04-01 00:00",
        ),
        (
            Budget(month=1),
            SpentAmount(0, 0),
            SpentAmount(2_500_000, 0),
            "this month is used up: 2.50 of 1.00",
        ),
        (
            Budget(month_tokens=10),
            SpentAmount(0, 0),
            SpentAmount(0, 10),
            "10 of 10 tokens. It opens again on 2026-04-01",
        ),
    ],
)
def test_a_refusal_says_what_is_used_up_and_when_it_opens_again(
    budget: Budget, today: SpentAmount, month: SpentAmount, words: str | None
) -> None:
    said = usage.find_refusal(budget, today, month, now=NOON)
    assert (said is None) if words is None else (said is not None and words in said)


@pytest.mark.parametrize("month", range(1, 13))
def test_a_month_ends_where_the_next_begins(month: int) -> None:
    period = usage.month_period(NOON.replace(month=month, day=28))
    assert period.since.day == period.until.day == 1
    assert timedelta(days=28) <= period.until - period.since <= timedelta(days=31)


async def test_who_has_used_up_a_budget_is_refused_and_others_go_on(begin: Begin) -> None:
    answer = [TextDelta("ok"), UsageEvent(Usage(model="m", input=60, output=50, cost=700_000))]
    world = await begin(
        agent=ScriptedAgent(*[answer] * 6), policy=Policy(budgets=Budgets(everyone=Budget(day=1)))
    )
    assert [(await world.ask(t, user="ann")).state for t in "ab"] == [TurnState.DONE] * 2
    refused = await world.ask("c", user="ann")
    assert refused.state is TurnState.FAILED and "1.40 of 1.00" in (refused.error or "")
    assert (await world.ask("d", chat="2", user="bob")).state is TurnState.DONE
    world.advance(timedelta(days=1))
    assert (await world.ask("e", user="ann")).state is TurnState.DONE
    accounts = await world.hub.usage.list_budgets(OPERATORS)
    assert sorted(a.this_month.cost for a in accounts) == [700_000, 2_100_000]


async def test_usage_is_added_up_by_what_is_asked_for(begin: Begin) -> None:
    script = [
        [
            TextDelta("a"),
            UsageEvent(Usage(model="big", input=100, output=10, cost=500)),
            UsageEvent(Usage(model="big", input=5), "title"),
        ],
        [TextDelta("b"), UsageEvent(Usage(model="small", input=1, output=1, cost=2))],
    ]
    world = await begin(agent=ScriptedAgent(*script))
    await world.ask("x")
    world.advance(timedelta(days=1))
    await world.ask("y")

    async def keys(by: UsageGrouping) -> list[tuple[str, int, int]]:
        lines = await world.hub.usage.report(OPERATORS, by=by, since=NOON - timedelta(days=9999))
        return [(line.label, line.calls, line.cost) for line in lines]

    assert [(calls, cost) for _, calls, cost in await keys(UsageGrouping.DAY)] == [(2, 500), (1, 2)]
    assert await keys(UsageGrouping.MODEL) == [("big", 2, 500), ("small", 1, 2)]
    assert await keys(UsageGrouping.TASK) == [("answer", 2, 502), ("title", 1, 0)]
    assert [calls for _, calls, _ in await keys(UsageGrouping.SESSION)] == [3]
    assert [calls for _, calls, _ in await keys(UsageGrouping.PERSON)] == [3]
    lines = await world.hub.usage.report(OPERATORS, by=UsageGrouping.MODEL, since=NOON - timedelta(days=9999))
    assert (lines[0].unpriced, lines[0].tokens.input) == (1, 105)
