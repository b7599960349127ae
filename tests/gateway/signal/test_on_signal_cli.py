"""The adapter with the real signal-cli, without an account: framing, errors, and whether the fake answers in the same way."""

import asyncio
import base64
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import left_out
from tests.contracts.signal import build_adapter
from tests.fakes.signal import NUMBER, FakeSignalCli
from tests.free_ports import find_free_port
from tests.gateway.signal.test_setup import Form
from tests.importers import real_programs

from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, Forbidden, NotSent, Unavailable
from keryx.core.ids import DeliveryId
from keryx.core.ports.adapter import OutgoingPart
from keryx.surfaces.gateway.signal import NO_ACCOUNT
from keryx.surfaces.gateway.signal.daemon_api import SignalApi, SignalApiError
from keryx.surfaces.gateway.signal.message_sender import MAX_FILE_BYTES
from keryx.surfaces.gateway.signal.setup import SETUP
from keryx.testing import RecordingAdapterContext

SECONDS = 60


def find_program() -> tuple[str, dict[str, str]]:
    """Return the path of signal-cli and the variables that it needs. Skip the tests if it is not there or does not run."""
    given = os.environ.get("KERYX_TEST_SIGNAL_CLI")
    program = given or real_programs.find_installed("signal-cli") or shutil.which("signal-cli")
    if not program:
        left_out.skip("tests with signal-cli", why="signal-cli is not installed", command=left_out.SIGNAL_CLI)
    java = None if given else real_programs.find_java("signal-cli")
    environ = {**os.environ, **({"JAVA_HOME": str(java)} if java else {})}
    done = subprocess.run(
        [program, "--version"], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        why = f"signal-cli does not run ({done.stderr.strip()[:200]})"
        left_out.skip("tests with signal-cli", why=why, command=left_out.SIGNAL_CLI)
    return program, environ


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a daemon without accounts listens."""
    (program, environ), folder = find_program(), tmp_path_factory.mktemp("signal-cli")
    address = f"127.0.0.1:{find_free_port()}"
    options = [
        "--config",
        str(folder),
        "--output=json",
        "daemon",
        f"--http={address}",
        "--receive-mode=manual",
    ]
    with (folder / "received.jsonl").open("ab") as output, (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, *options], env=environ, stdout=output, stderr=log)
    try:
        wait_until_ready(f"http://{address}", process, folder / "log")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(SECONDS)


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/api/v1/check", timeout=5).status_code == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"signal-cli does not start: {log.read_text()[-2000:]}")


async def test_the_version_and_the_accounts_are_read(daemon: str) -> None:
    api = SignalApi(daemon, NUMBER)
    found: Any = await api.call("version", scoped=False)
    assert found["version"][0].isdigit()
    assert await api.find_accounts() == []
    await api.close()


async def test_an_account_that_signal_cli_does_not_have_is_one_sentence(daemon: str, tmp_path: Path) -> None:
    adapter = build_adapter(daemon, tmp_path)
    with pytest.raises(Forbidden) as caught:
        async with asyncio.timeout(SECONDS):
            await adapter.listen(RecordingAdapterContext())
    assert str(caught.value) == NO_ACCOUNT
    target = Target("signal", NUMBER, "+15550002222")
    part = OutgoingPart(delivery=DeliveryId("d"), number=0, key="k", target=target, text="hello")
    with pytest.raises(NotSent, match="does not have this account"):
        await adapter.send(part)
    await adapter.close()


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("receive", {"timeout": 1.0, "maxMessages": 1}, -32602),
        ("send", {"recipient": ["+15550002222"], "message": "hello"}, -32602),
        ("getAttachment", {"id": "x"}, -32602),
        ("noSuchMethod", {}, -32601),
        ("finishLink", {"deviceLinkUri": "sgnl://linkdevice?uuid=x&pub_key=y"}, -1),
    ],
)
async def test_errors_have_the_codes_that_keryx_reads(
    daemon: str, method: str, params: dict[str, Any], code: int
) -> None:
    with FakeSignalCli(accounts=[]) as fake:
        for url in (daemon, fake.url):
            api = SignalApi(url, NUMBER)
            with pytest.raises(SignalApiError) as caught:
                await api.call(method, scoped=method not in ("noSuchMethod", "finishLink"), **params)
            assert caught.value.code == code, url
            assert caught.value.unknown_account == (code == -32602)
            await api.close()


@pytest.mark.parametrize(
    ("method", "path", "kind", "body", "expected"),
    [
        ("POST", "/api/v1/rpc", "text/plain", b"{}", (415, None)),
        ("GET", "/api/v1/rpc", "application/json", b"", (405, None)),
        ("POST", "/api/v1/rpcs", "application/json", b"{}", (404, None)),
        ("POST", "/api/v1/rpc", "application/json", b"{", (200, -32700)),
        ("POST", "/api/v1/rpc", "application/json", b'{"id": 1}', (200, -32600)),
        ("POST", "/api/v1/rpc", "application/json", b'{"jsonrpc": "2.0", "id": 1, "x": 2}', (200, -32600)),
        (
            "POST",
            "/api/v1/rpc",
            "application/json",
            b'{"jsonrpc": "2.0", "id": 1, "method": "version"}',
            (200, None),
        ),
    ],
)
def test_the_fake_answers_as_signal_cli_does(
    daemon: str, method: str, path: str, kind: str, body: bytes, expected: tuple[int, int | None]
) -> None:
    with FakeSignalCli() as fake:
        for url in (daemon, fake.url):
            answer = httpx.request(
                method, url + path, content=body, headers={"content-type": kind}, timeout=SECONDS
            )
            found: Any = answer.json() if answer.status_code == 200 else {}
            code = found["error"]["code"] if "error" in found else None
            assert (answer.status_code, code) == expected, (url, answer.text)


async def test_the_largest_file_fits_into_one_call_and_a_larger_one_does_not(daemon: str) -> None:
    """A call that is read fails because of its account; one that is too large is not read."""
    api = SignalApi(daemon, NUMBER)
    for size, code in ((MAX_FILE_BYTES, -32602), (15_100_000, -32603)):
        part = f"data:x/y;filename=f;base64,{base64.b64encode(bytes(size)).decode()}"
        with pytest.raises(SignalApiError) as caught:
            await api.call("send", noteToSelf=True, attachment=[part])
        assert caught.value.code == code
    await api.close()


async def test_the_setup_asks_signal_cli_for_a_code_to_scan(daemon: str) -> None:
    """Without a network there is none."""
    with pytest.raises((Unavailable, Conflict), match=r"network of signal-cli|sgnl://linkdevice"):
        async with asyncio.timeout(2 * SECONDS):
            await SETUP.check({"url": daemon}, Form())
