"""`keryx usage`: tokens and cost, and the budgets of people."""

from typing import Annotated

from cyclopts import Parameter

from keryx.cli import output
from keryx.cli.options import Json, open_hub, parse_since
from keryx.core.usage import MILLION, UsageGrouping, UsageTotal

_BAR_COLUMNS = 24


async def usage(
    *,
    by: Annotated[UsageGrouping, Parameter(help="What to add up by.")] = UsageGrouping.DAY,
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
    async with open_hub() as access:
        if budgets:
            accounts = await access.hub.usage.list_budgets(access.viewer)
            output.write_list(
                "people",
                accounts,
                json,
                heads=("person", "today", "this month", "tokens today", ""),
                rows=(
                    (
                        output.sanitize(a.name or a.principal),
                        f"{a.today.cost / MILLION:.2f} / {_format_cost_limit(a.budget.day)}",
                        f"{a.this_month.cost / MILLION:.2f} / {_format_cost_limit(a.budget.month)}",
                        f"{a.today.tokens} / {a.budget.day_tokens or '∞'}",
                        "used up" if a.refusal else "",
                    )
                    for a in accounts
                ),
                flexible=0,
                empty="Nobody has used anything this month. Budgets are set under [budgets] in keryx.toml.",
            )
            return
        lines = await access.hub.usage.report(access.viewer, by=by, since=parse_since(since_))
    if json:
        output.write_json({"by": by, "lines": lines})
        return
    if not lines:
        output.write(output.wrap("Nothing was used yet: usage is recorded with each answer of a model."))
        return
    most = max(map(_sum_tokens, lines)) or 1
    rows = [
        (
            output.sanitize(line.label),
            str(line.calls),
            str(line.tokens.input + line.tokens.cache_read + line.tokens.cache_write),
            str(line.tokens.output + line.tokens.reasoning),
            _format_cost(line),
            "█" * max(1, round(_BAR_COLUMNS * _sum_tokens(line) / most)),
        )
        for line in lines
    ]
    output.write_table((by.value, "calls", "tokens in", "tokens out", "cost", ""), rows, flexible=0)


def _sum_tokens(line: UsageTotal) -> int:
    t = line.tokens
    return t.input + t.output + t.reasoning + t.cache_read + t.cache_write


def _format_cost(line: UsageTotal) -> str:
    """Format the cost, with a mark if it is estimated from configured prices or incomplete."""
    if line.unpriced == line.calls:
        return "unknown"
    about = "~" if line.estimated else ""
    more = " + unknown" if line.unpriced else ""
    return f"{about}{line.cost / MILLION:.4f}{more}"


def _format_cost_limit(value: float) -> str:
    return f"{value:.2f}" if value else "∞"
