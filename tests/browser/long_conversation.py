"""A conversation of many days, too long to be loaded at once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.browser.scene import VIEWER
from tests.builders import at_time

from keryx.core import ids
from keryx.core.ids import TurnId
from keryx.core.messages import Role, text_parts
from keryx.core.sessions import TitleBy
from keryx.store import messages, sessions
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase

# Pairs of a question and its answer; ten a day.
PAIRS = 160
_NEEDLES = {1: "needle in the first", 60: "the second Needle", 151: "and a needle near the end"}
_BEGIN = datetime(2026, 1, 1, 9, tzinfo=UTC)


async def fill(path: Path) -> None:
    async with SqliteDatabase(path) as database:
        await database.write("scene", _write)


def _write(tx: Transaction) -> None:
    made = sessions.create(
        at_time(tx, _BEGIN), profile=VIEWER.profile, owner=VIEWER.principal, surface="web", origin=None
    )
    for n in range(1, PAIRS + 1):
        at = _BEGIN + timedelta(days=(n - 1) // 10, minutes=(n - 1) % 10)
        turn = TurnId(ids.new(at))
        asked = _NEEDLES.get(n, f"question {n}")
        messages.append(at_time(tx, at), made, Role.USER, text_parts(asked), turn=turn, surface="web")
        messages.append(
            at_time(tx, at), made, Role.ASSISTANT, text_parts(f"answer {n} with **bold** words"), turn=turn
        )
    sessions.rename(at_time(tx, _BEGIN), sessions.get(tx, made), "Long one", by=TitleBy.PERSON)
