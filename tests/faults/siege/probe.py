"""A well-behaved browser: asks for `/healthz`, the list and a conversation, and follows the stream. Each line that it
prints is a sample: what was asked, when, and how many seconds it took, or `null` if it failed.

python -m tests.faults.siege.probe PORT SECONDS
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable

import httpx

# From the send, and from its answer, which comes after the commit, to the event on the stream.
_STREAM, _COMMIT = "event", "commit to event"


async def probe(port: int, seconds: float) -> None:
    timeout = httpx.Timeout(30, read=30)
    signed = {"Authorization": f"Bearer {os.environ['KERYX_WEB_TOKEN']}"}
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, timeout=timeout, headers=signed) as http:
        session = await _begin(http)
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                group.create_task(_repeat("health", 0.05, lambda: _get(http, "/healthz")))
                group.create_task(_repeat("list", 0.5, lambda: _get(http, "/api/sessions")))
                group.create_task(_repeat("open", 0.5, lambda: _get(http, f"/api/sessions/{session}")))
                group.create_task(_follow(http, session))
        except TimeoutError:
            return


async def _begin(http: httpx.AsyncClient) -> str:
    while True:
        try:
            begun = await http.post("/api/sessions", json={"text": "probe"})
            return begun.raise_for_status().json()["session"]
        except httpx.HTTPError:
            await asyncio.sleep(0.5)


async def _get(http: httpx.AsyncClient, path: str) -> None:
    (await http.get(path)).raise_for_status()


async def _repeat(name: str, every: float, ask: Callable[[], Awaitable[None]]) -> None:
    while True:
        began = time.monotonic()
        try:
            await ask()
            print_sample(name, began, time.monotonic() - began)
        except httpx.HTTPError:
            print_sample(name, began, None)
        await asyncio.sleep(every)


async def _follow(http: httpx.AsyncClient, session: str) -> None:
    """Send a message each second, and measure until the stream shows it."""
    sent: dict[str, float] = {}
    stored: dict[str, float] = {}
    shown: dict[str, float] = {}
    cursor = (await http.get("/api/start")).json()["cursor"]

    async def send() -> None:
        for number in range(1_000_000):
            text = f"probe {number}"
            sent[text] = time.monotonic()
            try:
                (await http.post(f"/api/sessions/{session}/messages", json={"text": text})).raise_for_status()
                stored[text] = time.monotonic()
                if text in shown:
                    print_sample(_COMMIT, stored.pop(text), 0.0)
            except httpx.HTTPError:
                print_sample(_STREAM, sent.pop(text, time.monotonic()), None)
            await asyncio.sleep(1)

    sending = asyncio.create_task(send())
    try:
        while True:
            try:
                async with http.stream("GET", "/api/stream", params={"cursor": cursor}) as stream:
                    async for line in stream.aiter_lines():
                        if line.startswith("id: "):
                            cursor = line[4:]
                        for text in [text for text in sent if f'"{text}"' in line]:
                            began, shown[text] = sent.pop(text), time.monotonic()
                            print_sample(_STREAM, began, shown[text] - began)
                            if text in stored:
                                committed = stored.pop(text)
                                print_sample(_COMMIT, committed, shown[text] - committed)
            except httpx.HTTPError:
                await asyncio.sleep(0.2)
    finally:
        sending.cancel()


def print_sample(name: str, at: float, seconds: float | None) -> None:
    """Print how long one request took."""
    print(json.dumps([name, at, seconds]), flush=True)


if __name__ == "__main__":
    asyncio.run(probe(int(sys.argv[1]), float(sys.argv[2])))
