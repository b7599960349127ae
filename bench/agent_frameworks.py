# LangGraph has no type stubs for a part of its modules.
# pyright: reportMissingTypeStubs=false
"""Agent frameworks: a long conversation kept in the store, compared with the store that comes with each framework."""

import asyncio
import random
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from openai import AsyncOpenAI
from tests.web.site import ORIGIN, open_site

from agents import OpenAIConversationsSession, SQLiteSession
from bench.stage import OPEN, Place, Stage
from bench.table import Line, line
from keryx.engine.hub import Hub
from keryx.engine.loops.feed import Feed
from keryx.integrations import StoreThread
from keryx.integrations.langgraph import KeryxSaver
from keryx.timing import SystemClock

_TURNS = 1000
# Their stores grow with the square of the turns.
_FEWER = 300
_TEXT = 250
_MEBIBYTE = 1 << 20
# Two million bytes for half a million bytes of text.
_LARGEST = 2_000_000 / _MEBIBYTE
_TABLE_SIZES = """
  select pg_total_relation_size(c.oid)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = current_schema() and c.relkind = 'r'
"""


class _Measured(NamedTuple):
    milliseconds: float
    loading: float
    mebibytes: float


class _Writer:
    """Text that compresses like words, and never repeats."""

    def __init__(self) -> None:
        self._chosen = random.Random(7)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = [
            "".join(self._chosen.choices(letters, k=self._chosen.randint(2, 9))) for _ in range(5000)
        ]

    def write(self) -> str:
        return " ".join(self._chosen.choices(self._words, k=_TEXT))[:_TEXT]


async def run(stage: Stage) -> AsyncIterator[Line]:
    few, many = stage.size(_FEWER), stage.size(_TURNS)
    size = _describe(few)
    ours = await asyncio.to_thread(_measure_graph_here, stage, few)
    theirs = await asyncio.to_thread(_measure_graph_there, stage.folder / "langgraph.db", few)
    yield line("LangGraph: a turn", size, ours.milliseconds, "ms", floor=theirs.milliseconds, most=1.5, what="its own")  # fmt: skip
    yield line("LangGraph: load the state", size, ours.loading, "ms", floor=theirs.loading, most=3, what="its own")  # fmt: skip
    yield line("LangGraph: size", size, ours.mebibytes, "MiB", floor=theirs.mebibytes)
    ours = await asyncio.to_thread(_measure_graph_here, stage, many)
    yield line("LangGraph: size", _describe(many), ours.mebibytes, "MiB", under=_LARGEST)
    sdk = await _measure_sdk(stage, few)
    yield line("Agents SDK: a turn, by HTTP", size, sdk[0].milliseconds, "ms", floor=sdk[1].milliseconds)
    yield line("Agents SDK: 20 last items, by HTTP", size, sdk[0].loading, "ms", floor=sdk[1].loading)
    yield line("Agents SDK: size", size, sdk[0].mebibytes, "MiB", floor=sdk[1].mebibytes)
    if find_spec("google") is not None and find_spec("google.adk") is not None:
        adk = await _measure_adk(stage, few)
        yield line("ADK: an event", size, adk[0].milliseconds, "ms", floor=adk[1].milliseconds, most=1, what="its own")  # fmt: skip
        yield line("ADK: load a session", size, adk[0].loading, "ms", floor=adk[1].loading, most=1.5, what="its own")  # fmt: skip
        yield line("ADK: size", size, adk[0].mebibytes, "MiB", floor=adk[1].mebibytes)
    else:
        yield line("ADK: left out", "google-adk is missing", 0, "events")


def _describe(turns: int) -> str:
    return f"{turns:,} turns, {turns * _TEXT * 2 / 1000:,.0f} kB"


def _measure_graph_here(stage: Stage, turns: int) -> _Measured:
    place = stage.place()
    with StoreThread(database=place.database()) as store:
        store.read("bench", lambda tx: None)
    empty = _measure_place(place)
    with KeryxSaver(StoreThread(database=place.database())) as saver:
        milliseconds, loading = _use_graph(saver, turns)
    return _Measured(milliseconds, loading, _measure_place(place) - empty)


def _measure_graph_there(path: Path, turns: int) -> _Measured:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        milliseconds, loading = _use_graph(SqliteSaver(connection), turns)
    return _Measured(milliseconds, loading, _measure_size(path))


def _use_graph(saver: Any, turns: int) -> tuple[float, float]:
    """Return how long a turn takes, and the last state, in milliseconds."""
    writer = _Writer()

    def speak(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(writer.write())]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", speak)
    builder.add_edge(START, "agent")
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "long"}}
    begin = time.perf_counter()
    for _ in range(turns):
        graph.invoke({"messages": [("user", writer.write())]}, config)
    spent = time.perf_counter() - begin
    loads: list[float] = []
    for _ in range(5):
        begin = time.perf_counter()
        assert len(graph.get_state(config).values["messages"]) == 2 * turns
        loads.append(time.perf_counter() - begin)
    return spent / turns * 1000, statistics.median(loads) * 1000


async def _measure_sdk(stage: Stage, turns: int) -> tuple[_Measured, _Measured]:
    clock, place = SystemClock(), stage.place()
    async with place.database() as database:
        await database.read("bench", lambda tx: None)
    empty = await asyncio.to_thread(_measure_place, place)
    async with place.database() as database:
        with closing(Hub(database, policy=OPEN, feed=Feed(database, clock))) as hub:
            async with open_site(hub, clock) as site:
                http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=site.app), base_url=ORIGIN)
                async with AsyncOpenAI(
                    api_key="none", base_url=f"{ORIGIN}/v1", http_client=http, max_retries=0
                ) as client:
                    ours = await _use_sdk(OpenAIConversationsSession(openai_client=client), turns)
    ours = ours._replace(mebibytes=await asyncio.to_thread(_measure_place, place) - empty)
    file = stage.folder / "sdk.db"
    theirs = await _use_sdk(SQLiteSession("long", file), turns)
    return ours, theirs._replace(mebibytes=_measure_size(file))


async def _use_sdk(session: Any, turns: int) -> _Measured:
    writer = _Writer()

    async def add() -> None:
        said = {"role": "user", "content": writer.write()}
        content: Any = [{"type": "output_text", "text": writer.write(), "annotations": []}]
        answer: Any = {"type": "message", "role": "assistant", "status": "completed", "content": content}
        await session.add_items([said, answer])

    async def load() -> None:
        assert len(await session.get_items(limit=20)) == 20

    return _Measured(await _take_median(add, turns), await _take_median(load, 5), 0)


async def _measure_adk(stage: Stage, turns: int) -> tuple[_Measured, _Measured]:
    ours: Any = import_module("keryx.integrations.adk")
    theirs: Any = import_module("google.adk.sessions.sqlite_session_service")
    place, file = stage.place(), stage.folder / "adk.db"
    with StoreThread(database=place.database()) as store:
        store.read("bench", lambda tx: None)
    empty = await asyncio.to_thread(_measure_place, place)
    with StoreThread(database=place.database()) as store:
        here = await _use_adk(ours.KeryxSessionService(store), turns)
    here = here._replace(mebibytes=await asyncio.to_thread(_measure_place, place) - empty)
    there = await _use_adk(theirs.SqliteSessionService(str(file)), turns)
    return here, there._replace(mebibytes=_measure_size(file))


async def _use_adk(service: Any, turns: int) -> _Measured:
    events: Any = import_module("google.adk.events")
    types: Any = import_module("google.genai.types")
    writer, names = _Writer(), {"app_name": "bench", "user_id": "ann"}
    session = await service.create_session(**names)

    async def add() -> None:
        content = types.Content(role="user", parts=[types.Part(text=writer.write())])
        await service.append_event(session, events.Event(author="user", content=content))

    async def load() -> None:
        found = await service.get_session(**names, session_id=session.id)
        assert len(found.events) == 2 * turns

    return _Measured(await _take_median(add, 2 * turns), await _take_median(load, 5), 0)


async def _take_median(work: Callable[[], Awaitable[None]], times: int) -> float:
    """Return how long a call takes, in milliseconds."""
    taken: list[float] = []
    for _ in range(times):
        begin = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1000


def _measure_place(place: Place) -> float:
    """Return the size of a store: of its files, or on a server of its tables with their indexes."""
    if not place.dsn:
        return _measure_size(place.path)
    with StoreThread(database=place.database()) as store:
        sizes = store.read("bench", lambda tx: tx.rows(_TABLE_SIZES))
    return sum(size for (size,) in sizes) / _MEBIBYTE


def _measure_size(path: Path) -> float:
    """Return the size of a database with its log."""
    files = [path, path.with_name(f"{path.name}-wal")]
    return sum(file.stat().st_size for file in files if file.exists()) / _MEBIBYTE
