"""Clients: one connection each, the last used first, and none left open."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from keryx.core.errors import Invalid
from keryx.surfaces.gateway.http_clients import HttpClientPool, check_url

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Counts the connections that it is asked for, and those that are still there. Answers while `open`."""

    def __init__(self) -> None:
        self.opened = 0
        self.held = 0
        self.asked = asyncio.Semaphore(0)
        self.gone = asyncio.Semaphore(0)
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.held += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.asked.release()
                await self.open.wait()
                writer.write(ANSWER)
        except asyncio.IncompleteReadError:
            self.held -= 1
            self.gone.release()
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    made = Server()
    listening = await asyncio.start_server(made, "127.0.0.1", 0)
    async with listening:
        yield made, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def ask(clients: HttpClientPool, url: str) -> str:
    async with clients.acquire() as client:
        return (await client.get(url)).text


def clients_of() -> HttpClientPool:
    return HttpClientPool(lambda trusted: httpx.AsyncClient(verify=trusted))


async def test_calls_one_after_another_share_a_connection(server: tuple[Server, str]) -> None:
    at, url = server
    clients = clients_of()
    assert [await ask(clients, url) for _ in range(5)] == ["ok"] * 5
    assert at.opened == 1
    await clients.close()


async def test_calls_at_once_have_a_connection_each_and_few_are_kept(server: tuple[Server, str]) -> None:
    at, url = server
    at.open.clear()
    clients = clients_of()
    calls = [asyncio.ensure_future(ask(clients, url)) for _ in range(25)]
    async with asyncio.timeout(20):
        for _ in calls:
            await at.asked.acquire()
        at.open.set()
        assert await asyncio.gather(*calls) == ["ok"] * 25
        for _ in range(5):
            await at.gone.acquire()
    assert (at.opened, at.held) == (25, 20)
    await clients.close()


async def test_closing_ends_the_calls_that_are_out_and_the_next_one_begins_anew(
    server: tuple[Server, str],
) -> None:
    at, url = server
    clients = clients_of()
    await ask(clients, url)
    at.open.clear()
    call = asyncio.ensure_future(ask(clients, url))
    async with asyncio.timeout(20):
        await at.asked.acquire()
        await at.asked.acquire()
        await clients.close()
        with pytest.raises(httpx.HTTPError):
            await call
        at.open.set()
        assert await ask(clients, url) == "ok"
    assert at.opened == 2
    await clients.close()


@pytest.mark.parametrize(
    "url",
    ["", "example.org", "ftp://example.org", "https://", "http://[", "https://a@example.org", "https://a/?b"],
)
def test_another_address_than_a_web_server_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="write an address"):
        check_url(url, "write an address")


def test_an_address_is_returned_without_its_trailing_slash() -> None:
    assert check_url("https://example.org/api/", "no") == "https://example.org/api"
    assert check_url("http://a:b@example.org", "no", username=True) == "http://a:b@example.org"
    assert check_url("http://example.org?a=b#c", "no", query=True) == "http://example.org?a=b#c"
