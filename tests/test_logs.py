"""The log: what strangers can cause at will is told once, and everything else each time."""

import errno
import logging

import pytest

from keryx.core.errors import Conflict, Unavailable
from keryx.logs import REPEATS, RepeatFilter


def build_record(
    name: str, message: str, *args: object, error: BaseException | None = None
) -> logging.LogRecord:
    trace = (type(error), error, None) if error else None
    return logging.LogRecord(name, logging.ERROR, "file", 1, message, args, trace)


def test_a_complaint_about_one_of_many_connections_is_told_once() -> None:
    """asyncio names the objects of the connection in further lines."""
    repeats = RepeatFilter()
    lines = [
        f"Fatal error: protocol.data_received() failed.\nprotocol: <object at 0x{n:x}>" for n in range(100)
    ]
    shown = [line for line in lines if repeats.filter(build_record("asyncio", line))]
    assert shown == lines[:1]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_lack_of_descriptors_or_memory_is_told_once_wherever_it_is_met(code: int) -> None:
    repeats, error = RepeatFilter(), OSError(code, "too many")
    records = [build_record("keryx.store", "cannot open: %s", error) for _ in range(10)]
    records += [build_record("keryx.engine", "a sweep failed", error=error) for _ in range(10)]
    assert [r.name for r in records if repeats.filter(r)] == ["keryx.store", "keryx.engine"]


def test_what_is_tried_again_is_told_once_for_each_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    repeats, shown, now = RepeatFilter(), list[str](), 1_000.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    def report(error: Exception) -> None:
        record = build_record("keryx.engine.loops.runner", "cannot claim a turn now: %s", error)
        record.__dict__.update(REPEATS)
        if repeats.filter(record):
            shown.append(record.getMessage())

    for n in range(10):
        report(Unavailable(f"the store is away {n}"))
    report(Conflict("another one"))
    now += 61
    report(Unavailable("still away"))
    assert shown == [
        "cannot claim a turn now: the store is away 0",
        "cannot claim a turn now: another one",
        "cannot claim a turn now: still away (9 times more since this was last logged)",
    ]


def test_other_lines_are_told_each_time() -> None:
    repeats = RepeatFilter()
    assert all(repeats.filter(build_record("keryx.engine", "a turn failed")) for _ in range(10))


def test_errors_that_are_each_the_cause_of_the_other_hold_up_no_log_line() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__ = first.__context__ = second
    second.__cause__ = second.__context__ = first
    assert RepeatFilter().filter(build_record("keryx", "it failed: %s", first))


def test_a_long_chain_of_errors_holds_up_no_log_line() -> None:
    error: BaseException = ValueError("the first")
    for n in range(200):
        following = ValueError(str(n))
        following.__cause__ = following.__context__ = error
        error = following
    assert RepeatFilter().filter(build_record("keryx", "it failed: %s", error))
