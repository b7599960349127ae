"""Rules: who may talk on a platform, as the last node that serves it was told. Nodes that do not, go by this."""

from datetime import datetime

from keryx.core import wire
from keryx.core.access import Rule
from keryx.store.database import Transaction, micros


def publish(tx: Transaction, platform: str, rule: Rule, *, now: datetime) -> None:
    tx.run(
        """
        insert into rules (platform, rule, published_at) values (:platform, :rule, :now)
        on conflict (platform) do update set rule = excluded.rule, published_at = excluded.published_at
        where rules.rule <> excluded.rule
        """,
        {"platform": wire.dumps(platform), "rule": wire.dumps(rule), "now": micros(now)},
    )


def find(tx: Transaction, platform: str) -> Rule | None:
    row = tx.row("select rule from rules where platform = :platform", {"platform": wire.dumps(platform)})
    return None if row is None else wire.loads(row[0], Rule)
