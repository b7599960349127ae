"""A node for fault tests, as a process of its own: `python -m tests.fakes.node PLATFORM_URL`.

Configured like any node by KERYX_ variables. KERYX_TEST_FAULT=label:before|after:n kills the process with -9 at
the n-th unit of work with that label.
"""

import asyncio
import os
import signal
import sys

import msgspec
from tests.fakes.platform import PLATFORM, PlatformAdapter

from keryx import config
from keryx.app import App
from keryx.bootstrap import configure_logging, open_database
from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.errors import KeryxError
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming


async def main(url: str) -> None:
    settings = config.read()
    settings = msgspec.structs.replace(
        settings, access={PLATFORM: AccessRule(allow=(EVERYBODY,)), **settings.access}
    )
    configure_logging(settings)
    database = CrashingDatabase(open_database(settings), *_faults(os.environ.get("KERYX_TEST_FAULT", "")))
    native = os.environ.get("KERYX_TEST_NATIVE") == "1"
    app = App(settings, adapters=[PlatformAdapter(url, native=native)], database=database)
    async with app.service("serve", everything=True):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _faults(text: str) -> list[DatabaseFault]:
    if not text:
        return []
    label, when, nth = text.split(":")
    return [DatabaseFault(label, FaultTiming(when), nth=int(nth), strike=_kill)]


def _kill(label: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except KeryxError as exc:
        sys.stderr.write(f"{exc}\n")
        sys.exit(5)
