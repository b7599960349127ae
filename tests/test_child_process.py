"""Programs that Keryx starts: their priority."""

import os
import sys

import anyio

from keryx import child_process


async def _read_output(command: list[str]) -> str:
    process = await child_process.start(command, env=os.environ, cwd=os.getcwd())
    try:
        with anyio.fail_after(60):
            output = b"".join([chunk async for chunk in process.chunks()])
    finally:
        await process.stop()
    return output.decode()


def test_a_program_has_a_lower_priority_than_the_process_that_started_it() -> None:
    niceness = anyio.run(_read_output, [sys.executable, "-c", "import os; print(os.nice(0))"])
    assert int(niceness) == min(os.nice(0) + 5, 19)
