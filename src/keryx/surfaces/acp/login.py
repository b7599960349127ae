"""The login command that an operator configures, run when the editor calls authenticate."""

import asyncio
import os
import signal
from collections.abc import Sequence

from keryx.core.errors import Invalid
from keryx.jsonrpc import AUTH_REQUIRED, Json, RpcError

METHOD_ID = "login"
TIMEOUT_SECONDS = 300.0


class LoginCommand:
    """Without a command no login is needed. A login lasts as long as the connection."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._logged_in = not command

    def list_methods(self) -> list[Json]:
        if not self._command:
            return []
        program = os.path.basename(self._command[0])
        return [{"id": METHOD_ID, "name": "Log in", "description": f"Runs {program} on this machine."}]

    def check(self) -> None:
        """Raise `RpcError` unless the user is logged in."""
        if not self._logged_in:
            raise RpcError(AUTH_REQUIRED, "log in first: the editor offers it, or calls authenticate")

    async def run(self, method: str) -> None:
        """Run the login command. Raise `RpcError` if it fails."""
        if method != METHOD_ID or not self._command:
            raise Invalid(f"there is no login {method[:80]!r}")
        code = await _run_command(self._command)
        if code != 0:
            raise RpcError(
                AUTH_REQUIRED,
                f"{self._command[0]} ended with {code}: look at its output, then try again",
            )
        self._logged_in = True


async def _run_command(command: Sequence[str]) -> int:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=2, stderr=2, start_new_session=True
        )
    except OSError as exc:
        raise RpcError(AUTH_REQUIRED, f"{command[0]} cannot be run ({exc.strerror}): mend acp.login") from exc
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await process.wait()
    except TimeoutError as exc:
        raise RpcError(AUTH_REQUIRED, f"{command[0]} did not end within {TIMEOUT_SECONDS:g} s") from exc
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
