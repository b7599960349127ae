"""A person at a browser: a real Keryx, a real Chromium, and what is seen on the page."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Request,
    Route,
    expect,
)
from tests.cli.driver import Cli, Node
from tests.fork_server import build_command
from tests.free_ports import find_free_port

T = TypeVar("T")

ENVIRONMENT = "KERYX_TEST_CHROMIUM"
WAIT = 60_000
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--use-fake-device-for-media-stream",
)
WIDE, PHONE = (1280, 800), (390, 844)
Scheme = Literal["light", "dark"]

expect.set_options(timeout=WAIT)


@cache
def chromium() -> str | None:
    """Where Chromium is, if it is installed: by the system, or by `playwright install chromium`."""
    return (
        os.environ.get(ENVIRONMENT)
        or shutil.which("chromium")
        or shutil.which("google-chrome")
        or _chromium_of_playwright()
    )


@cache
def headless_shell() -> str | None:
    """Where the part of Chromium that has no windows is. It takes half the processor time, but has no push service and no
    microphone. Where it is not installed, all of Chromium stands in."""
    return os.environ.get(ENVIRONMENT) or shutil.which("chromium-headless-shell") or chromium()


def _chromium_of_playwright() -> str | None:
    # A process of its own, because the caller may have an event loop, which the synchronous API refuses.
    script = "from playwright.sync_api import sync_playwright as p\nwith p() as x: print(x.chromium.executable_path)"
    asked = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    found = asked.stdout.strip()
    return found if Path(found).exists() else None


def apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: the browser's driver keeps the loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class House:
    """A home folder with a port of its own, so that a server that was killed comes back where it was."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.port = find_free_port()
        self.cli = Cli(home, KERYX_PORT=str(self.port), **variables)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, *arguments: str) -> None:
        """A command in another process, as from a terminal."""
        subprocess.run(
            build_command(*arguments), env=self.cli.environment(), check=True, capture_output=True, timeout=60
        )

    @contextmanager
    def serving(self, **variables: str) -> Generator[Node]:
        with self.cli.serving(**variables) as node:
            yield node


class Tab:
    """One tab. Errors of the page, and requests to anybody but its own server, are kept and end the test."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.address = address
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", self._failed)
        self.page.on("console", self._said)
        self.page.on("request", self._asked)

    def open(self, path: str = "/") -> "Tab":
        self.page.goto(f"{self.address}/#{path}")
        expect(self.page.locator("#app, .gate")).to_be_visible()
        return self

    @property
    def composer(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def questions(self) -> Locator:
        return self.page.locator(".message.user .body")

    @property
    def answers(self) -> Locator:
        return self.page.locator(".message.assistant:not([aria-busy]) .body")

    @property
    def draft(self) -> Locator:
        return self.page.locator(".message[aria-busy]")

    @property
    def stop(self) -> Locator:
        return self.page.get_by_role("button", name="Stop the answer")

    @property
    def first_load(self) -> list[str]:
        """What the page asked for, without what comes after it is shown."""
        return [url for url in self.requests if not url.endswith("/background.js")]

    @property
    def session(self) -> str:
        return self.page.url.partition("#/s/")[2].split("/")[0]

    def say(self, text: str) -> None:
        self.composer.fill(text)
        # With a touch screen too, where Enter alone makes a new line.
        self.composer.press("Control+Enter")

    def ask(self, text: str, answer: str) -> None:
        """Say something and wait for all of the answer."""
        self.say(text)
        expect(self.answers.last).to_have_text(answer)
        expect(self.draft).to_have_count(0)

    def begin(self, text: str, answer: str) -> str:
        """Begin a conversation; gives its id."""
        self.open("/new")
        self.ask(text, answer)
        return self.session

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name).first.click()

    def choose(self, name: str) -> None:
        """Take an entry of the conversation's menu, or of what its last one opens."""
        self.page.get_by_role("button", name="More", exact=True).click()
        menu = self.page.get_by_role("menu")
        expect(menu).to_be_visible()
        if not menu.get_by_role("menuitem", name=name, exact=True).count():
            menu.get_by_role("menuitem", name="More", exact=True).click()
        menu.get_by_role("menuitem", name=name, exact=True).click()

    def filter(self, query: str) -> None:
        """Filter the list by what is typed into the search."""
        self.page.get_by_role("searchbox", name="Search all conversations").fill(f"{query} ")

    def do(self, name: str, message: Locator) -> None:
        """Take an entry of the menu of a message."""
        message.hover()
        message.get_by_role("button", name="More for this message").click()
        self.page.get_by_role("menuitem", name=name, exact=True).click()

    def rows(self) -> Locator:
        return self.page.get_by_role("navigation", name="Conversations").locator("a.session")

    def healthy(self) -> None:
        assert not self.errors, self.errors
        foreign = [url for url in self.requests if not url.startswith((self.address, "data:", "blob:"))]
        assert not foreign, foreign

    def _failed(self, error: Error) -> None:
        self.errors.append(str(error))

    def _said(self, message: ConsoleMessage) -> None:
        # A link that is lost, and what the server refuses on purpose, are told on the console by the browser itself.
        lost = "net::ERR" in message.text or "Failed to load resource" in message.text
        if message.type == "error" and not lost:
            self.errors.append(message.text)

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)


@contextmanager
def tab(
    browser: Browser,
    house: House,
    *,
    size: tuple[int, int] = WIDE,
    scheme: Scheme = "light",
    touch: bool = False,
    worker: bool = False,
) -> Generator[Tab]:
    """A tab of a browser of its own; at the end it must have been healthy. What a service worker asks for cannot be held up by a
    test, so that only those that are about it have one."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        has_touch=touch,
        locale="en-GB",
        timezone_id="UTC",
        permissions=["clipboard-read", "clipboard-write"],
        service_workers="allow" if worker else "block",
    )
    try:
        opened = Tab(context, house.address)
        yield opened
        opened.healthy()
    finally:
        context.close()


@contextmanager
def away_too_long(page: Tab) -> Generator[None]:
    """The tab hears nothing while the block runs; afterwards the server cannot tell what was missed."""
    stream = "**/api/stream*"
    expired = 'data: {"type": "expired", "detail": "too old"}\n\n'

    def cut(route: Route) -> None:
        route.abort()

    def told(route: Route) -> None:
        route.fulfill(body=expired, content_type="text/event-stream")

    page.page.route(stream, cut)
    page.page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.page.locator(".link")).not_to_have_text("Live")
    yield
    # The way is never open in between: what was missed must not be told after all.
    with page.page.expect_response("**/api/start*"):
        page.page.route(stream, told, times=1)
    page.page.unroute(stream, cut)
