"""Run benchmarks: `python -m bench [names] [--quick] [--postgres DSN | start] [--json FILE]`."""

import argparse
import asyncio
import gc
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.postgres import Server, Unstartable

from bench import (
    acp,
    agent_frameworks,
    brain,
    exchange,
    flood,
    followers,
    gateway,
    history,
    memory,
    page,
    queues,
    reading,
    receive,
    search,
    siege,
    startup,
    table,
    watching,
    web,
)
from bench.stage import Stage
from bench.table import Line
from keryx.cli import GC_THRESHOLDS

Benchmark = Callable[[Stage], AsyncIterator[Line]]


BENCHMARKS: dict[str, Benchmark] = {
    "receive": receive.run,
    "exchange": exchange.run,
    "open": reading.open_session,
    "load": reading.load,
    "list": reading.list_sessions,
    "search": search.run,
    "queues": queues.run,
    "followers": followers.run,
    "gateway": gateway.run,
    "memory": memory.run,
    "startup": startup.run,
    "web": web.run,
    "page": page.run,
    "acp": acp.run,
    "brain": brain.run,
    "siege": siege.run,
    "flood": flood.run,
    "import": history.run,
    "frameworks": agent_frameworks.run,
    "watch": watching.run,
}


def main() -> None:
    asked = _arguments()
    gc.set_threshold(*GC_THRESHOLDS)  # as in the program itself
    lines = _on(asked.benchmarks, quick=asked.quick)
    if asked.postgres == "start":
        lines += _on_started(asked.benchmarks, quick=asked.quick)
    elif asked.postgres:
        lines += _on(asked.benchmarks, quick=asked.quick, dsn=asked.postgres)
    if asked.json:
        table.save(asked.json, lines)


def _on_started(names: list[str], *, quick: bool) -> list[Line]:
    """On a PostgreSQL of its own, where one can be started."""
    try:
        server = Server(durable=True)
    except Unstartable as exc:
        print(f"\nPostgreSQL is left out: {exc}")
        return []
    try:
        server.start()
        return _on(names, quick=quick, dsn=server.dsn)
    finally:
        server.remove()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="What Keryx costs, beside a floor.")
    parser.add_argument("benchmarks", nargs="*", help=f"of {', '.join(BENCHMARKS)}; all if none is named")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: shows that it runs, not what it costs"
    )
    parser.add_argument("--postgres", metavar="DSN", help="measure there too; `start` starts a server for it")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the lines to a file too")
    asked = parser.parse_args()
    for name in asked.benchmarks:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}")
    return asked


def _on(names: list[str], *, quick: bool, dsn: str = "") -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="keryx-bench-") as folder:
        stage = Stage(Path(folder), dsn=dsn, quick=quick)
        print(
            f"\n{stage.engine}{', quick sizes: the figures mean nothing' if quick else ''}\n\n{table.head()}"
        )
        try:
            return asyncio.run(_run([BENCHMARKS[n] for n in names or BENCHMARKS], stage))
        finally:
            stage.remove()


async def _run(chosen: list[Benchmark], stage: Stage) -> list[Line]:
    lines: list[Line] = []
    for benchmark in chosen:
        async for line in benchmark(stage):
            print(table.show(line), flush=True)
            lines.append(line)
    return lines


if __name__ == "__main__":
    main()
