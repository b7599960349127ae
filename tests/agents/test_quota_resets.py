"""When a limit resets, as providers and agents say it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from keryx.agents.quota_resets import find_reset

NOW = datetime(2026, 11, 18, 14, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
UNIX = int(NOW.timestamp())


@pytest.mark.parametrize(
    ("said", "after"),
    [
        ({"headers": {"retry-after": "3600"}}, HOUR),
        ({"headers": {"retry-after": "Wed, 18 Nov 2026 15:00:00 GMT"}}, HOUR),
        ({"headers": {"anthropic-ratelimit-unified-reset": str(UNIX + 3600)}}, HOUR),
        ({"headers": {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h0m0s"}}, HOUR),
        ({"headers": {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((UNIX + 3600) * 1000)}}, HOUR),
        (
            {
                "headers": {
                    "anthropic-ratelimit-tokens-remaining": "0",
                    "anthropic-ratelimit-tokens-reset": "2026-11-18T15:00:00Z",
                }
            },
            HOUR,
        ),
        # A limit of which something is left is not the one that was reached.
        ({"headers": {"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1h"}}, None),
        ({"body": {"type": "usage_limit_reached", "resets_at": UNIX + 3600}}, HOUR),
        ({"body": {"error": {"resets_in_seconds": 3600}}}, HOUR),
        ({"body": [{"error": {"details": [{"@type": "RetryInfo", "retryDelay": "3600s"}]}}]}, HOUR),
        ({"body": {"metadata": {"headers": {"X-RateLimit-Reset": str((UNIX + 3600) * 1000)}}}}, HOUR),
        ({"text": "Rate limit reached on tokens per day. Please try again in 1h0m0.5s."}, HOUR),
        ({"text": "Please retry in 3600.07s."}, HOUR),
        ({"text": "Please wait 3600 seconds before retrying."}, HOUR),
        (
            {"text": "You've hit your usage limit. Try again in 2 days 3 hours 5 minutes."},
            timedelta(days=2, hours=3, minutes=5),
        ),
        ({"text": "Usage limit reached. Your limit will reset at 2026-11-18 15:00:00"}, HOUR),
        ({"text": f"Claude AI usage limit reached|{UNIX + 3600}"}, HOUR),
        ({"text": "You've hit your session limit · resets 4pm (Europe/Berlin)"}, HOUR),
        ({"text": "5-hour limit reached ∙ resets 3:00pm"}, HOUR),
        ({"text": "usage limit: try again at Nov 20th, 2026 2:00 PM."}, timedelta(days=2)),
        ({"text": "limit reached, resets 1pm"}, timedelta(hours=23)),
        ({"text": "You exceeded your current quota, please check your plan and billing details."}, None),
        ({"text": "limit of 10 requests; wait for the 3rd floor"}, None),
        ({"body": {"resets_at": UNIX - 60}}, None),
        ({"body": {"resets_at": "soon"}, "headers": {"x-ratelimit-reset": "x"}}, None),
        ({"body": {"retry_after": 1e300}}, None),
        ({"body": {"retry_after": "9" * 4_000, "reset_at": "9" * 4_000}}, None),
        ({"body": {"retry_after": 10**400, "reset_at": 10**400}}, None),
        ({"body": [0] * 10_000 + [{"retry_after": 3600}]}, None),
        ({"text": "try again in 99999999999999999999 days"}, None),
        ({"text": "resets at 0001-01-01 00:00 +14:00"}, None),
    ],
)
def test_a_reset_is_found_wherever_it_is_said(said: dict[str, Any], after: timedelta | None) -> None:
    found = find_reset(now=NOW, **said)
    assert (found and (found - NOW).total_seconds()) == (
        after and pytest.approx(after.total_seconds(), abs=1)
    )
