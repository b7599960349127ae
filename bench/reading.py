"""Reading: opening a session, loading its messages, and listing sessions."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from bench import fill
from bench.spread import Spread, beside, ms
from bench.stage import Stage, hub_of
from bench.table import Line, line
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR
from keryx.core.sessions import SessionFilter, Viewer
from keryx.engine.hub import Hub
from keryx.engine.hub.views import MessageRange

_VIEWER = Viewer(DEFAULT_PROFILE, OPERATOR)
_COLUMNS = """
session, seq, role, parts, at, turn, epoch, author, surface, platform_id, mark, observed, undone, exact
"""
_MESSAGES = f"select {_COLUMNS} from messages where session = :session and seq > :after order by seq"
_LATEST = f"select {_COLUMNS} from messages where session = :session order by seq desc limit 50"
_SESSION = "select * from sessions where id = :session"
_PAGE = """
select * from sessions
where profile = :profile and archived = 0 and deleted_at is null and (pinned, active_at, id) < (:pinned, :at, :last)
order by pinned desc, active_at desc, id desc limit 51
"""
_PARTS = 3
_PAGE_SIZE = 50


async def open_session(stage: Stage) -> AsyncIterator[Line]:
    """The last 50 messages. Ten messages are fewer than 50, so flatness is judged from a hundred on."""
    base: Spread | None = None
    for count in (10, 100, stage.size(100_000)):
        place, session = await stage.filled(
            f"messages-{count}", lambda db, count=count: fill.session_with_messages(db, count)
        )
        floor = stage.floor(place)

        def bare(_: int, floor: Any = floor, session: str = session) -> None:
            floor.rows(_SESSION, {"session": session})
            floor.rows(_LATEST, {"session": session})

        async with hub_of(place) as (hub, _):
            ours, plain = await beside(
                stage.count(1000), lambda _, hub=hub, session=session: hub.open(_VIEWER, session), bare
            )
        floor.close()
        size = f"{count:,} messages"
        if base is None or count <= 100:
            yield line("open p50", size, ms(ours.p50), "ms", floor=ms(plain.p50))
        else:
            yield line(
                "open p50",
                size,
                ms(ours.p50),
                "ms",
                floor=ms(plain.p50),
                against=ms(base.p50),
                most=1.5,
                what="100 messages",
            )
        base = ours if count <= 100 else base


async def load(stage: Stage) -> AsyncIterator[Line]:
    """All messages of a session: beside the rows alone, and beside the rows with their JSON parsed."""
    for count in (1000, 10_000):
        count = stage.size(count)
        place, session = await stage.filled(
            f"messages-{count}", lambda db, count=count: fill.session_with_messages(db, count)
        )
        floor = stage.floor(place)

        def rows(_: int, floor: Any = floor, session: str = session) -> list[Any]:
            return floor.rows(_MESSAGES, {"session": session, "after": 0})

        def parsed(n: int, rows: Any = rows) -> list[Any]:
            return [(row, msgspec.json.decode(row[_PARTS])) for row in rows(n)]

        async with hub_of(place) as (hub, _):
            ours, plain, with_json = await beside(
                stage.count(400),
                lambda _, hub=hub, session=session, count=count: hub.page(
                    _VIEWER, session, MessageRange(after=0, limit=count)
                ),
                rows,
                parsed,
            )
        floor.close()
        size = f"{count:,} messages"
        yield line("load p50", size, ms(ours.p50), "ms", floor=ms(plain.p50), most=2)
        yield line("load p50, floor with JSON", size, ms(ours.p50), "ms", floor=ms(with_json.p50), most=2)


async def list_sessions(stage: Stage) -> AsyncIterator[Line]:
    count = stage.size(100_000)
    place, _ = await stage.lanes(count)
    floor = stage.floor(place)
    async with hub_of(place) as (hub, _):
        for name, depth in (("list p50, first page", 0), ("list p50, deep page", count * 9 // 10)):
            after = await _cursor(hub, depth)
            start = await _position(hub, after)

            def bare(_: int, start: dict[str, Any] = start) -> list[Any]:
                return floor.rows(_PAGE, start)

            listing = SessionFilter(limit=_PAGE_SIZE, after=after)
            ours, plain = await beside(
                stage.count(300), lambda _, listing=listing: hub.list_sessions(_VIEWER, listing), bare
            )
            size = f"{_PAGE_SIZE} of {count:,} sessions"
            yield line(name, size, ms(ours.p50), "ms", floor=ms(plain.p50), under=5)
    floor.close()


async def _cursor(hub: Hub, depth: int) -> str | None:
    """The cursor of the page that begins this deep in the list."""
    after: str | None = None
    while depth > 0:
        _, after = await hub.list_sessions(_VIEWER, SessionFilter(limit=min(depth, 500), after=after))
        depth -= 500
    return after


async def _position(hub: Hub, after: str | None) -> dict[str, Any]:
    """Where the same page begins, for the bare statement: just above its first session."""
    found, _ = await hub.list_sessions(_VIEWER, SessionFilter(limit=1, after=after))
    at = int(found[0].session.active_at.timestamp() * 1_000_000)
    return {"profile": DEFAULT_PROFILE, "pinned": 0, "at": at + 1, "last": ""}
