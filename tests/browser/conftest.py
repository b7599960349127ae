"""Fixtures of the browser tests: one Chromium for each module, one Keryx for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests import left_out
from tests.browser.driver import ARGUMENTS, ENVIRONMENT, House, Tab, chromium, headless_shell, tab
from tests.postgres import own_database

from keryx.store.db import Engine

# Pushes and microphones are not in the part without windows.
NEED_ALL_OF_CHROMIUM = {"test_phone", "test_shared_browser", "test_speech"}


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    found = chromium() if request.path.stem in NEED_ALL_OF_CHROMIUM else headless_shell()
    if found is None:
        left_out.skip(
            "tests in a browser",
            why=f"there is no Chromium, and {ENVIRONMENT} does not name one",
            command=left_out.CHROMIUM,
        )
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def house(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    """A home that nobody serves yet; on PostgreSQL for those who ask for that."""
    if getattr(request, "param", Engine.SQLITE) is Engine.SQLITE:
        yield House(tmp_path)
        return
    with own_database(request.getfixturevalue("postgres")) as address:
        yield House(tmp_path, KERYX_DATABASE=address)


@pytest.fixture
def served(house: House) -> Iterator[House]:
    """A home that Keryx serves, with the agent that echoes."""
    with house.serving():
        yield house


@pytest.fixture
def page(browser: Browser, served: House) -> Iterator[Tab]:
    """One tab on a running Keryx."""
    with tab(browser, served) as opened:
        yield opened
