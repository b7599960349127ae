"""Errors of a command as one sentence on stderr and an exit code, by one table."""

import asyncio
import errno
import logging
import os
import traceback
from collections.abc import Callable
from typing import cast

from cyclopts import CycloptsError, UnusedCliTokensError

from keryx.cli import output
from keryx.core.errors import (
    DESCRIPTORS_EXHAUSTED,
    THREADS_EXHAUSTED,
    Conflict,
    Invalid,
    KeryxError,
    NotFound,
    Unavailable,
)

CODES: tuple[tuple[type[KeryxError], int, str], ...] = (
    (Invalid, 2, "the command line, a setting or a value is wrong"),
    (NotFound, 3, "what was named does not exist"),
    (Conflict, 4, "a name fits several things, or the state does not allow it now"),
    (Unavailable, 5, "the store or another part does not work now, or no answer came in time"),
    (KeryxError, 1, "the turn failed, or any other refusal"),
)
UNEXPECTED = 70
# What Python says when the system refuses a thread. The error has no code.
_NO_THREAD = "can't start new thread"
INTERRUPTED = 130
BROKEN_PIPE = 141
OTHER_CODES = (
    (0, "done"),
    (UNEXPECTED, "an error that nobody expected: a fault of Keryx"),
    (74, "the disk refused to sync: Keryx ends rather than acknowledge what may be lost"),
    (INTERRUPTED, "ended by Ctrl-C"),
    (BROKEN_PIPE, "nobody reads the output any more"),
)


def run_guarded(work: Callable[[], int | None]) -> int:
    """Run a command and return its exit code. Every error is reported; tracebacks are shown at log level debug only."""
    try:
        code = work() or 0
        output.flush()
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    except CycloptsError as exc:
        exc.verbose = False
        return report(Invalid(_describe_usage_error(exc)))
    except BaseExceptionGroup as exc:
        leaves = _flatten(exc)
        return _report_any(next((leaf for leaf in leaves if isinstance(leaf, KeryxError)), leaves[0]))
    except Exception as exc:  # noqa: BLE001 the outermost handler of the process
        return _report_any(exc)
    return code


def report(exc: KeryxError) -> int:
    """Print the error on stderr and return the exit code of its type."""
    _print_traceback(exc)
    output.warn(f"keryx: {exc}")
    return next(code for kind, code, _ in CODES if isinstance(exc, kind))


def _report_any(exc: BaseException) -> int:
    match exc:
        case KeryxError():
            return report(exc)
        case KeyboardInterrupt() | asyncio.CancelledError():
            return INTERRUPTED
        case BrokenPipeError():
            output.discard_rest()
            return BROKEN_PIPE
        case _ if shortage := _explain_shortage(exc):
            _print_traceback(exc)
            return report(shortage)
        case _:
            _print_traceback(exc)
            hint = "" if _debug_enabled() else "; KERYX_LOG_LEVEL=debug shows the details"
            output.warn(f"keryx: an unexpected error: {type(exc).__name__}: {exc}{hint}")
            return UNEXPECTED


def _explain_shortage(exc: BaseException) -> Unavailable | None:
    """Return the sentence for an error of the system that no part of Keryx has explained; `None` for other errors."""
    match exc:
        case MemoryError() | OSError(errno=errno.ENOMEM):
            return Unavailable(
                "there is no memory left: end other programs, or allow more (`ulimit -v`, MemoryMax of the service)"
            )
        case RuntimeError() if _NO_THREAD in str(exc):
            return Unavailable(THREADS_EXHAUSTED)
        case OSError(errno=errno.EAGAIN):
            return Unavailable(THREADS_EXHAUSTED)
        case OSError(errno=errno.EMFILE):
            return Unavailable(DESCRIPTORS_EXHAUSTED)
        case OSError(errno=errno.ENFILE):
            return Unavailable(
                "no more files can be opened on this machine: raise fs.file-max, or end programs"
            )
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return Unavailable(f"{_name_file(exc)}the disk is full: free some space")
        case OSError(errno=errno.EACCES | errno.EPERM | errno.EROFS) if exc.filename:
            return Unavailable(
                f"{_name_file(exc)}{exc.strerror}: check its rights, and that it belongs to the user of Keryx"
            )
        case _:
            return None


def _name_file(exc: OSError) -> str:
    return f"{exc.filename}: " if exc.filename else ""


def _print_traceback(exc: BaseException) -> None:
    if _debug_enabled():
        logging.shutdown()
        traceback.print_exception(exc)


def _debug_enabled() -> bool:
    return os.environ.get("KERYX_LOG_LEVEL", "").lower() == "debug"


def _flatten(exc: BaseException) -> list[BaseException]:
    if not isinstance(exc, BaseExceptionGroup):
        return [exc]
    inside = cast("tuple[BaseException, ...]", exc.exceptions)  # pyright: ignore[reportUnknownMemberType]
    return [leaf for inner in inside for leaf in _flatten(inner)]


def _describe_usage_error(exc: CycloptsError) -> str:
    command = " ".join(("keryx", *(exc.command_chain or ())))
    if isinstance(exc, UnusedCliTokensError):
        return f"too many arguments: {' '.join(exc.unused_tokens or ())}. `{command} --help` shows how it is used"
    text = " ".join(str(exc).split()).partition(" Available commands:")[0]
    stop = "" if text.endswith((".", "?")) else "."
    return f"{text[:1].lower()}{text[1:]}{stop} `{command} --help` shows how it is used"
