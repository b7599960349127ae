"""Runs a command in its own process group and kills the group when the parent closes its pipe or dies. A script of its own that uses the standard library only."""

import ctypes
import os
import signal
import sys
import threading
import time

GRACE_SECONDS = 3.0
# The priority of the command, as of `nice`: the process that started it stays responsive while the command computes.
_NICENESS = 5
_PR_SET_PDEATHSIG = 1


def main(parent_pipe: int, command: list[str]) -> int:
    """Run a command and return its exit code."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    child = os.fork()
    if child == 0:
        try:
            _set_process_group(0)
            if library:
                library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _lower_priority()
            os.close(parent_pipe)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)
        except OSError as exc:
            os.write(2, f"{command[0]} cannot be run: {exc.strerror}\n".encode())
        finally:
            os._exit(127)

    def watch_parent() -> None:
        while os.read(parent_pipe, 1):
            pass
        _signal_group(child, signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        _signal_group(child, signal.SIGKILL)

    _set_process_group(child)
    for stream in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: _signal_group(child, signal.SIGTERM))
    threading.Thread(target=watch_parent, daemon=True).start()
    _, status = os.waitpid(child, 0)
    _signal_group(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def list_descendants(root: int) -> list[int]:
    """Return the descendants of a process, parents before their children; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    names = os.listdir("/proc") if os.path.isdir("/proc") else []
    for pid in (int(name) for name in names if name.isdigit()):
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            # A process that is gone meanwhile has no file.
            continue
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _lower_priority() -> None:
    os.nice(_NICENESS)
    try:
        # Linux may weigh sessions against each other, and `nice` then counts only within one.
        with open("/proc/self/autogroup", "w") as file:
            file.write(str(_NICENESS))
    except OSError:
        return


def _set_process_group(process: int) -> None:
    try:
        os.setpgid(process, process)
    except OSError:
        # Parent and child both set the group; the other one was first.
        return


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        # The group has ended already.
        return


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), sys.argv[2:]))
