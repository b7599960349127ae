"""The dashboard, the alerts and the reference name the metrics that the code has, and leave none out."""

import json
import re
from pathlib import Path
from typing import Any

from tests.docs.test_blocks import blocks

from keryx import metrics

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = DOCS / "grafana" / "keryx.json"
HOW_TO = DOCS / "how-to" / "watch-a-node.md"
REFERENCE = DOCS / "reference" / "metrics.md"
SERIES = {name for metric in metrics.REGISTRY for name in metric.series}
LABELS = {name: {*m.labels, "job", "instance", "le"} for m in metrics.REGISTRY for name in m.series}
_NAME = re.compile(r"\bkeryx_\w+")
_SELECTOR = re.compile(r"\b(keryx_\w+)\{([^}]*)\}")
_GROUPED = re.compile(r"by \(([\w, ]+)\)")


def list_expressions(value: Any) -> list[str]:
    """Return every expression of the dashboard, wherever it is."""
    if isinstance(value, list):
        return [e for item in value for e in list_expressions(item)]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return []
    found = [str(value["expr"])] if "expr" in value else []  # pyright: ignore[reportUnknownArgumentType]
    return found + [e for item in value.values() for e in list_expressions(item)]  # pyright: ignore[reportUnknownVariableType]


def check(expressions: list[str]) -> set[str]:
    used: set[str] = set()
    for expression in expressions:
        names = set(_NAME.findall(expression))
        assert names <= SERIES, (expression, names - SERIES)
        for name, selector in _SELECTOR.findall(expression):
            assert {pair.split("=")[0].rstrip("!") for pair in selector.split(",")} <= LABELS[name], (
                expression
            )
        for group in _GROUPED.findall(expression):
            assert all({label.strip() for label in group.split(",")} <= LABELS[n] for n in names), expression
        used |= names
    return used


def test_every_expression_of_the_dashboard_names_metrics_that_exist() -> None:
    expressions = list_expressions(json.loads(DASHBOARD.read_text(encoding="utf-8")))
    assert len(expressions) > 30
    used = check(expressions)
    shown = {m.name for m in metrics.REGISTRY if used & set(m.series)}
    # The events of each platform are in `received` already.
    assert {m.name for m in metrics.REGISTRY} - shown == {"keryx_adapter_received_total"}


def test_every_alert_names_metrics_that_exist() -> None:
    expressions = re.findall(r"expr: (.+)", "\n".join(blocks(HOW_TO, "yaml")))
    used = check(expressions)
    assert {
        "keryx_oldest_waiting_turn_seconds",
        "keryx_deliveries_total",
        "keryx_adapter_refused",
        "keryx_adapter_connected",
        "keryx_uptime_seconds",
    } <= used


def test_the_reference_has_every_metric_once() -> None:
    rows = re.findall(r"^\| `(keryx_\w+)` \|", REFERENCE.read_text(encoding="utf-8"), re.M)
    assert rows == [m.name for m in metrics.REGISTRY]
