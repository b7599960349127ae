"""What a person sees of the platforms."""

import time
from datetime import UTC, datetime, timedelta

import anyio
from tests.cli.driver import WAIT, Cli

from keryx.core.ids import WorkerId
from keryx.core.ports.adapter import LinkState, PlatformStatus
from keryx.store import platforms, workers
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase
from keryx.store.workers import Worker


def test_without_a_node_it_says_so(keryx: Cli) -> None:
    assert "No node runs" in keryx.ok("gateway", "status").out
    assert keryx.json("gateway", "status") == {"nodes": 0, "connections": [], "gates": []}


def test_a_node_tells_how_its_platforms_stand(keryx: Cli) -> None:
    with keryx.serving():
        deadline = time.monotonic() + WAIT
        while "connected" not in (out := keryx.ok("gateway", "status").out):
            assert time.monotonic() < deadline, out
        found = keryx.json("gateway", "status")
    assert "No node" not in out and "connected" in out
    assert found["nodes"] == 1
    assert [(c["platform"], c["link"]) for c in found["connections"]] == [("local", "connected")]


def test_an_account_is_removed(keryx: Cli) -> None:
    settings = keryx.home / "keryx.toml"
    keryx.home.mkdir()
    settings.write_text('agent = "echo"\n\n[telegram.work]\ntoken = "env:WORK"\n')
    assert "add --yes" in keryx("gateway", "remove", "telegram.work").err
    out = keryx.ok("gateway", "remove", "telegram.work", "--yes").out
    assert "disconnected when Keryx is restarted" in " ".join(out.split())
    assert settings.read_text() == 'agent = "echo"\n'
    assert "no account 'telegram.work'" in keryx("gateway", "remove", "telegram.work", "--yes").err


def test_refused_credentials_and_closed_gates_are_told(keryx: Cli) -> None:
    keryx.session()
    now = datetime.now(UTC)
    worker = Worker(
        id=WorkerId("elsewhere/1/2/serve"), kind="serve", host="elsewhere", pid=1, started_at=now, seen_at=now
    )

    def fill(tx: Transaction) -> None:
        workers.heartbeat(tx, worker)
        workers.save_connection(
            tx,
            PlatformStatus(
                platform="telegram",
                account="bot",
                worker=worker.id,
                link=LinkState.REFUSED,
                detail="the token is wrong",
                since=now,
                rejected=3,
            ),
        )
        platforms.close_gate(tx, "telegram:bot:42:", until=now + timedelta(minutes=5), reason="slow down")

    async def write() -> None:
        async with SqliteDatabase(keryx.home / "keryx.db") as database:
            await database.write("test", fill)

    anyio.run(write)
    out = keryx.ok("gateway", "status").out
    assert "refused" in out and "the token is wrong" in out
    assert "telegram refuses the credentials: `keryx gateway setup telegram` asks for new ones" in out
    assert "Rejected at the hook of telegram:bot since the node started: 3 requests" in " ".join(out.split())
    until = f"{(now + timedelta(minutes=5)).astimezone():%H:%M:%S}"
    assert f"Nothing is sent to telegram:bot:42 until {until} (slow down)." in out


def test_the_connections_of_several_nodes_are_told_apart(keryx: Cli) -> None:
    keryx.session()
    now = datetime.now(UTC)

    async def write() -> None:
        async with SqliteDatabase(keryx.home / "keryx.db") as database:
            for host in ("red", "blue"):
                await database.write("test", lambda tx, host=host: add_node(tx, host))

    def add_node(tx: Transaction, host: str) -> None:
        id_ = WorkerId(f"{host}/7/2/serve")
        workers.heartbeat(tx, Worker(id=id_, kind="serve", host=host, pid=7, started_at=now, seen_at=now))
        status = PlatformStatus(
            platform="local", account="", worker=id_, link=LinkState.CONNECTED, detail="", since=now
        )
        workers.save_connection(tx, status)

    anyio.run(write)
    out = keryx.ok("gateway", "status").out
    assert "node (process)" in out and "red (7)" in out and "blue (7)" in out
