"""Page: what a real browser asks for at first, how much work a frame of scrolling is, when a message is seen,
and how soon a letter is while an answer streams.

Work is CPU time of the page's main thread, which a busy machine does not change; a frame has 16 ms."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import anyio
from playwright.async_api import Browser, Page, Request, async_playwright
from starlette.types import ASGIApp, Message
from tests.browser.driver import ARGUMENTS, WIDE, House, chromium

from bench import fill
from bench.spread import Spread, ms, spread
from bench.stage import Stage, inbound
from bench.table import Line, line
from bench.web import HOST, answered, scope, served, site
from keryx.core.ids import SessionId
from keryx.engine.hub import Hub
from keryx.store.db import Database

_SCROLL = """async ([name, step, frames]) => {
  const box = document.querySelector(name);
  for (let n = 0; n < frames; n++) {
    box.scrollTop += step;
    await new Promise(requestAnimationFrame);
  }
}"""
# Nobody answers here: what is said stands in the queue above the field where people write.
_SEEN = """() => { window.seen = new Promise(done => {
  const waiting = () => document.querySelectorAll(".queue li").length;
  const before = waiting();
  const watch = new MutationObserver(() => {
    if (waiting() === before) return;
    watch.disconnect();
    done(performance.timeOrigin + performance.now());
  });
  watch.observe(document.body, {childList: true, subtree: true});
}); }"""
# From the press of a key until the frame that shows its letter is done.
_TYPED = """() => { window.typed = []; document.addEventListener("input", ({timeStamp}) =>
  requestAnimationFrame(() => setTimeout(() => typed.push(performance.now() - timeStamp))), true); }"""
_FRAMES = 10
_KEY_SECONDS = 0.05


async def run(stage: Stage) -> AsyncIterator[Line]:
    if chromium() is None:
        return
    messages, sessions = stage.size(50_000), stage.size(10_000)

    async def filled(database: Database) -> SessionId:
        await fill.lanes_with_sessions(database, sessions)
        return await fill.session_with_messages(database, messages)

    place, session = await stage.filled("page", filled)
    async with site(place) as (hub, app), served(app) as port, _browser() as browser:
        address = f"http://127.0.0.1:{port}"
        for name, path in (("first load", "/"), ("deep link", f"/#/s/{session}/{messages // 2}")):
            async with _page(browser) as page:
                asked, size = await _loaded(page, address + path)
            yield line(f"{name}, requests", f"{messages:,} messages", asked, "", under=12)
            yield line(f"{name}, gzip", f"{messages:,} messages", size / 1000, "kB", under=300)
        for what, path, box, step in (
            (f"{messages:,} messages", f"/#/s/{session}", ".talk", -400),
            (f"{sessions:,} sessions", "/", ".sessions", 400),
        ):
            async with _page(browser) as page:
                await _loaded(page, address + path)
                work = await _work(page, box, step, rounds=stage.count(60))
            yield line("work of a frame p95", what, work.p95, "ms", under=16)
        for streams in (1, 50, stage.size(500)):
            async with _page(browser) as page:
                delays = await _delays(hub, app, page, address, streams, rounds=stage.count(50))
            yield line("commit to DOM p50", f"{streams:,} streams", ms(delays.p50), "ms")
            yield line("commit to DOM p95", f"{streams:,} streams", ms(delays.p95), "ms")
    words = stage.size(2_000)
    typed = await _typing(words, rounds=stage.count(100))
    yield line("key to frame p50", f"beside {words:,} words", typed.p50, "ms", under=50)
    yield line("key to frame p95", f"beside {words:,} words", typed.p95, "ms", under=50)


@asynccontextmanager
async def _browser() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        yield browser
        await browser.close()


@asynccontextmanager
async def _page(browser: Browser) -> AsyncGenerator[Page]:
    """A page that shares nothing with those before it, and has no cache."""
    page = await browser.new_page(viewport={"width": WIDE[0], "height": WIDE[1]})
    yield page
    await page.close()


async def _loaded(page: Page, address: str) -> tuple[int, int]:
    """How many requests a page makes until it is live and shows something, and how many bytes come."""
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    await page.goto(address)
    await page.get_by_text("Live", exact=True).wait_for()
    await page.locator("article, a.session").first.wait_for()
    ended = [r for r in asked if "/api/stream" not in r.url]
    sizes = [await request.sizes() for request in ended]
    return len(asked), sum(s["responseBodySize"] for s in sizes)


async def _work(page: Page, box: str, step: int, *, rounds: int) -> Spread:
    """The CPU time of a frame in milliseconds, over some frames each."""
    session = await page.context.new_cdp_session(page)
    # The driver gives what the browser's protocol says, which it has no types for.
    ask = cast(Callable[..., Awaitable[dict[str, Any]]], session.send)  # pyright: ignore[reportUnknownMemberType]
    await ask("Performance.enable", {"timeDomain": "threadTicks"})

    async def spent() -> float:
        metrics = (await ask("Performance.getMetrics"))["metrics"]
        return next(m["value"] for m in metrics if m["name"] == "TaskDuration") * 1000

    taken: list[float] = []
    for _ in range(rounds):
        before = await spent()
        await page.evaluate(_SCROLL, [box, step, _FRAMES])
        taken.append((await spent() - before) / _FRAMES)
    return spread(taken)


async def _delays(hub: Hub, app: ASGIApp, page: Page, address: str, streams: int, *, rounds: int) -> Spread:
    """How long after its commit a message is in the document, while others listen too."""
    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        pass

    asked = scope("/api/stream", [*HOST, (b"last-event-id", (await hub.head_cursor()).encode())])
    delays: list[float] = []
    async with anyio.create_task_group() as group:
        for _ in range(streams - 1):
            group.start_soon(answered, app, dict(asked), receive, send)
        first = await hub.receive(inbound(0, time.monotonic_ns()))
        await _loaded(page, f"{address}/#/s/{first.session}")
        for _ in range(rounds):
            await page.evaluate(_SEEN)
            await hub.receive(inbound(0, time.monotonic_ns()))
            committed = time.time() * 1000
            delays.append((await page.evaluate("window.seen") - committed) / 1000)
        gone.set()
    return spread(delays)


async def _typing(words: int, *, rounds: int) -> Spread:
    """How long a letter takes to be seen, in milliseconds, while a long answer streams into the same conversation."""
    with TemporaryDirectory() as home:
        house = House(Path(home))
        seconds = 5 + 2 * rounds * _KEY_SECONDS
        with house.serving():
            async with _browser() as browser, _page(browser) as page:
                await page.goto(f"{house.address}/#/new")
                field = page.get_by_role("textbox", name="Message", exact=True)
                answer = " ".join(f"**word{n}**" if n % 7 else f"`word{n}`\n" for n in range(words))
                await field.fill(f"slow {seconds:g} {answer}")
                await field.press("Control+Enter")
                await page.locator(".message[aria-busy] .prose").wait_for()
                await page.evaluate(_TYPED)
                for _ in range(rounds):
                    await field.press("a")
                    await asyncio.sleep(_KEY_SECONDS)
                # What was measured was beside an answer, to the end.
                await page.locator(".message[aria-busy] .prose").wait_for(timeout=1_000)
                return spread([float(delay) for delay in await page.evaluate("window.typed")])
