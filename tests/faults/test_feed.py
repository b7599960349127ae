"""The change feed of PostgreSQL while its writers are killed."""

import asyncio

from tests.faults.feed_storm import run_storm


async def test_readers_see_every_committed_change_once_and_in_one_order(
    postgres: str, new_schema: str
) -> None:
    report = await asyncio.to_thread(run_storm, postgres, new_schema, seconds=5)
    assert report.clean and report.committed > 100, report
