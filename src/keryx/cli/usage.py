"""Usage: tokens and cost, by day, model, place, person, session or task, and the budgets."""

from typing import Annotated

from cyclopts import Parameter

from keryx.cli import output
from keryx.cli.access import Json, hub, since
from keryx.core.budgets import MILLION
from keryx.engine.usage import Account
from keryx.store.spending import By, Line

_BAR = 24


async def usage(
    *,
    by: Annotated[By, Parameter(help="What to add up by.")] = By.DAY,
    since_: Annotated[str, Parameter(name="--since", help="Since when: 12h, 30d or a date.")] = "30d",
    budgets: Annotated[bool, Parameter(negative="", help="Show people's budgets instead.")] = False,
    json: Json = False,
) -> None:
    """Show tokens and cost.

    For example:

        keryx usage
        keryx usage --by model --since 7d
        keryx usage --budgets
    """
    async with hub() as access:
        if budgets:
            accounts = await access.hub.usages.accounts(access.viewer)
            _show_accounts(accounts, json)
            return
        lines = await access.hub.usages.report(access.viewer, by=by, since=since(since_))
    if json:
        output.json({"by": by, "lines": lines})
    elif lines:
        _show(by, lines)
    else:
        output.write("Nothing was used yet: usage is recorded with each answer of a model.")


def _show(by: By, lines: list[Line]) -> None:
    most = max((_tokens(line) for line in lines), default=0) or 1
    rows = [
        (
            output.plain(line.label),
            str(line.calls),
            str(line.tokens.input + line.tokens.cache_read + line.tokens.cache_write),
            str(line.tokens.output + line.tokens.reasoning),
            _money(line),
            "█" * max(1, round(_BAR * _tokens(line) / most)),
        )
        for line in lines
    ]
    output.table((by.value, "calls", "tokens in", "tokens out", "cost", ""), rows, flexible=0)


def _show_accounts(accounts: list[Account], json: bool) -> None:
    if json:
        output.json({"people": accounts})
    elif accounts:
        rows = [
            (
                output.plain(a.name or a.principal),
                f"{a.today.cost / MILLION:.2f} / {_limit(a.budget.day)}",
                f"{a.this_month.cost / MILLION:.2f} / {_limit(a.budget.month)}",
                f"{a.today.tokens} / {_count(a.budget.day_tokens)}",
                "used up" if a.refusal else "",
            )
            for a in accounts
        ]
        output.table(("person", "today", "this month", "tokens today", ""), rows, flexible=0)
    else:
        output.write("Nobody has used anything this month. Budgets are set under [budgets] in keryx.toml.")


def _tokens(line: Line) -> int:
    t = line.tokens
    return t.input + t.output + t.reasoning + t.cache_read + t.cache_write


def _money(line: Line) -> str:
    """Estimated where prices come from the configuration; unknown where a call had none."""
    if line.unpriced == line.calls:
        return "unknown"
    about = "~" if line.estimated else ""
    more = " + unknown" if line.unpriced else ""
    return f"{about}{line.cost / MILLION:.4f}{more}"


def _limit(value: float) -> str:
    return f"{value:.2f}" if value else "∞"


def _count(value: int) -> str:
    return str(value) if value else "∞"
