# LangGraph has no type stubs for a part of its modules.
# pyright: reportMissingTypeStubs=false
"""Graphs of LangGraph on the store: the conformance suite of its checkpointers, the size of long threads, and memories."""

import random
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import SearchItem

from keryx.core.errors import Conflict, Unavailable
from keryx.integrations import StoreThread
from keryx.integrations.langgraph import KeryxMemory, KeryxSaver
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Engine, Transaction
from keryx.testing import FakeClock

Closed = Callable[[], Database]


@pytest.fixture
def store(closed: Closed) -> Iterator[StoreThread]:
    with StoreThread(database=closed()) as made:
        yield made


def build_graph(saver: KeryxSaver, answer: Callable[[str], str] = str.upper, **more: Any) -> Any:
    def speak(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(answer(str(state["messages"][-1].content)))]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", speak)
    builder.add_edge(START, "agent")
    return builder.compile(checkpointer=saver, **more)


def in_thread(name: str, **more: str) -> Any:
    return {"configurable": {"thread_id": name, **more}}


def said(state: Any) -> list[str]:
    return [message.content for message in state.values["messages"]]


async def test_the_conformance_suite_of_checkpointers_passes(store: StoreThread) -> None:
    async def make() -> AsyncIterator[KeryxSaver]:
        yield KeryxSaver(store)

    report = await validate(checkpointer_test(name="keryx")(make))
    assert {name: found.failures for name, found in report.results.items() if not found.passed} == {}
    assert report.conformance_level() == "FULL"


def test_a_long_thread_grows_by_little_more_than_what_was_said(
    closed: Callable[[], Database],
) -> None:
    """A tenth of what `make bench` measures: what each turn adds does not grow. Empty tables take pages, too, so the second half is
    measured: 25 kB of text. PostgreSQL keeps earlier forms of rows until they are vacuumed."""
    chosen = random.Random(7)
    words = [
        "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz", k=chosen.randint(2, 9))) for _ in range(5000)
    ]

    def write(_: str = "") -> str:
        return " ".join(chosen.choices(words, k=100))[:250]

    sizes, engine = list[int](), Engine.SQLITE
    for number in (1, 2):
        with KeryxSaver(StoreThread(database=closed())) as saver:
            graph = build_graph(saver, write)
            for _ in range(50):
                graph.invoke({"messages": [("user", write())]}, in_thread("long"))
            assert len(said(graph.get_state(in_thread("long")))) == 100 * number
        with StoreThread(database=closed()) as store:
            sizes.append(store.read("test", measure_size))
            engine = store.read("test", lambda tx: tx.engine)
    added = sizes[1] - sizes[0]
    assert added < (100_000 if engine is Engine.SQLITE else 200_000)


def measure_size(tx: Transaction) -> int:
    """Return the size of a store: its pages, or on PostgreSQL its tables with their indexes."""
    if tx.engine is Engine.SQLITE:
        row = tx.row("select page_count * page_size from pragma_page_count(), pragma_page_size()")
    else:
        row = tx.row(
            "select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = current_schema() and c.relkind = 'r'"
        )
    assert row
    return int(row[0])


def test_a_graph_goes_on_where_another_process_left_it(store: StoreThread) -> None:
    first, config = build_graph(KeryxSaver(store)), in_thread("a")
    first.invoke({"messages": [("user", "one")]}, config)
    second = build_graph(KeryxSaver(store))
    second.invoke({"messages": [("user", "two")]}, config)
    assert said(second.get_state(config)) == ["one", "ONE", "two", "TWO"]


def test_writes_are_kept_whether_they_come_before_or_after_their_checkpoint(store: StoreThread) -> None:
    saver, config = KeryxSaver(store), in_thread("a", checkpoint_ns="")
    checkpoint = empty_checkpoint()
    at = in_thread("a", checkpoint_ns="", checkpoint_id=checkpoint["id"])
    saver.put_writes(at, [("early", 1)], "task-1")
    saver.put(config, checkpoint, {}, {})
    saver.put_writes(at, [("late", 2)], "task-2")
    saver.put_writes(at, [("late", 3), ("more", 4)], "task-2")
    # As a graph does that is updated at a checkpoint.
    saver.put(config, checkpoint, {"source": "update"}, {})
    found = saver.get_tuple(at)
    assert found and found.metadata.get("source") == "update"
    assert found.pending_writes == [("task-1", "early", 1), ("task-2", "late", 2), ("task-2", "more", 4)]
    assert store.read("test", lambda tx: tx.rows("select count(*) from graph_writes"))[0][0] == 0


def test_a_thread_that_forks_keeps_both_ways(store: StoreThread) -> None:
    graph, config = build_graph(KeryxSaver(store)), in_thread("a")
    for text in ("one", "two"):
        graph.invoke({"messages": [("user", text)]}, config)
    before = [
        state for state in graph.get_state_history(config) if said(state) == ["one", "ONE"] and not state.next
    ]
    other = graph.invoke({"messages": [("user", "other")]}, before[0].config)
    assert [m.content for m in other["messages"]] == ["one", "ONE", "other", "OTHER"]
    histories = [said(state) for state in graph.get_state_history(config) if state.values]
    assert ["one", "ONE", "two", "TWO"] in histories and ["one", "ONE", "other", "OTHER"] in histories


def test_pruned_and_old_threads_leave_nothing_behind(store: StoreThread, clock: FakeClock) -> None:
    saver = KeryxSaver(store)
    graph = build_graph(saver)
    for text in ("one " * 20, "two " * 20):
        graph.invoke({"messages": [("user", text)]}, in_thread("a"))
    saver.copy_thread("a", "b")
    with pytest.raises(Conflict):
        saver.copy_thread("a", "b")
    saver.prune(["a"])
    assert len(list(saver.list(in_thread("a")))) == 1
    assert said(graph.get_state(in_thread("a"))) == said(graph.get_state(in_thread("b")))
    assert len(list(saver.list(None, limit=3))) == 3

    def count(tx: Transaction) -> list[int]:
        tables = ("graph_checkpoints", "graph_writes", "graph_items", "graph_lists", "graph_texts")
        return [tx.rows(f"select count(*) from {table}")[0][0] for table in tables]

    clock.advance(timedelta(days=8))
    graph.invoke({"messages": [("user", "three")]}, in_thread("b"))
    assert saver.delete_older_threads(timedelta(days=7)) == 1
    assert said(graph.get_state(in_thread("b")))[-1] == "THREE"
    saver.delete_thread("b")
    assert store.read("test", count) == [0, 0, 0, 0, 0]


async def test_memories_are_found_by_namespace_filter_and_lifetime(
    store: StoreThread, clock: FakeClock
) -> None:
    memory = KeryxMemory(store, ttl={"refresh_on_read": True})

    def keys(found: list[SearchItem]) -> set[str]:
        return {item.key for item in found}

    memory.put(("users", "ann"), "food", {"likes": "cake", "score": 3, "tags": ["a", "b"]})
    await memory.aput(("users", "ann", "work"), "job", {"likes": "tea", "score": 5})
    memory.put(("users", "annabel"), "food", {"likes": "cake", "score": 1})
    memory.put(("temporary",), "note", {"text": "soon gone"}, ttl=10)
    found = memory.get(("users", "ann"), "food")
    assert found is not None and found.value["score"] == 3
    assert keys(memory.search(("users", "ann"))) == {"food", "job"}
    assert keys(await memory.asearch(("users",), filter={"score": {"$gte": 3}})) == {"food", "job"}
    assert keys(memory.search((), filter={"likes": "tea"})) == {"job"}
    assert keys(memory.search((), filter={"tags": ["a", "b"]})) == {"food"}
    assert len(memory.search((), limit=2, offset=1)) == 2
    assert memory.list_namespaces(prefix=("users",), max_depth=2) == [("users", "ann"), ("users", "annabel")]
    assert await memory.alist_namespaces(suffix=("work",)) == [("users", "ann", "work")]
    clock.advance(timedelta(minutes=9))
    assert memory.get(("temporary",), "note") is not None
    clock.advance(timedelta(minutes=9))
    assert memory.get(("temporary",), "note", refresh_ttl=False) is not None
    clock.advance(timedelta(minutes=2))
    assert memory.get(("temporary",), "note") is None
    assert memory.sweep_ttl() == 1
    memory.delete(("users", "ann"), "food")
    assert memory.get(("users", "ann"), "food") is None


def test_lists_that_grow_shrink_and_change_come_back_as_they_were(store: StoreThread) -> None:
    chosen, saver = random.Random(3), KeryxSaver(store)
    put: dict[str, list[Any]] = {}
    for n in range(120):
        parent = chosen.choice([*put][-8:]) if put else None
        items = list(put[parent]) if parent else []
        match chosen.randrange(5):
            case 0:
                del items[chosen.randrange(len(items) + 1) :]
            case 1 if items:
                items[chosen.randrange(len(items))] = f"changed {n} " * chosen.randrange(1, 9)
            case _:
                items += [f"new {n} " * chosen.randrange(1, 9)] * chosen.randrange(3)
        id_ = f"c{n:04}"
        checkpoint: Any = {
            "v": 4,
            "id": id_,
            "ts": "",
            "channel_values": {"items": items, "whole": {"n": n // 9, "text": "x" * 900}},
            "channel_versions": {"items": n, "whole": n // 9},
            "versions_seen": {},
        }
        config = in_thread("a", checkpoint_ns="", **({"checkpoint_id": parent} if parent else {}))
        run: Any = {"source": "loop", "step": n, "run_id": f"r{n}"}
        saver.put(config, checkpoint, run, {"items": n})
        put[id_] = items
    for gone in chosen.sample(sorted(put), 60):
        saver.delete_for_runs([f"r{int(gone[1:])}"])
        del put[gone]
    found = {
        tuple_.checkpoint["id"]: tuple_.checkpoint["channel_values"] for tuple_ in saver.list(in_thread("a"))
    }
    assert {id_: values["items"] for id_, values in found.items()} == put
    assert all(values["whole"]["n"] == int(id_[1:]) // 9 for id_, values in found.items())


async def test_damage_is_found(store: StoreThread, closed: Closed) -> None:
    graph = build_graph(KeryxSaver(store))
    await graph.ainvoke({"messages": [("user", "one " * 20)]}, in_thread("a"))
    async with closed() as database:
        assert await verify(database) == []
        await database.write("test", lambda tx: tx.run("delete from graph_texts"))
        [problem] = await verify(database)
    assert problem.subject == "a" and "lacks" in problem.text


def test_a_closed_store_says_so(store: StoreThread) -> None:
    store.close()
    with pytest.raises(Unavailable, match="closed"):
        KeryxSaver(store).get_tuple(in_thread("a"))
