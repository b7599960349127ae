"""Pictures: the screenshots of the documentation, made from a furnished store. `KERYX_TEST_PICTURES=1` keeps them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import PHONE, WIDE, House, Scheme, Tab, apart, tab
from tests.browser.scene import furnish

from keryx.core.ids import SessionId

FOLDER = Path(__file__).parents[2] / "docs" / "images"
LARGEST = 150_000


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, SessionId]]:
    home: Path = tmp_path_factory.mktemp("home")
    session = apart(furnish(home / "keryx.db"))
    house = House(home)
    with house.serving():
        yield house, session


def take(page: Tab, name: str, tmp_path: Path) -> None:
    """A picture, in the documentation when asked for, else only made and measured."""
    folder = FOLDER if os.environ.get("KERYX_TEST_PICTURES") else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    expect(page.page.get_by_text("Live", exact=True)).to_be_attached()
    page.page.screenshot(path=folder / f"{name}.png", animations="disabled", caret="hide")
    assert 5_000 < (folder / f"{name}.png").stat().st_size < LARGEST


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_conversation(
    browser: Browser, furnished: tuple[House, SessionId], scheme: Scheme, tmp_path: Path
) -> None:
    house, session = furnished
    with tab(browser, house, scheme=scheme, size=(1240, 700)) as page:
        page.open(f"/s/{session}")
        expect(page.answers.last).to_be_visible()
        page.page.get_by_role("button", name="Details (i)").click()
        expect(page.page.locator(".lineage a")).to_have_count(2)
        page.page.get_by_role("log").evaluate("e => { e.scrollTop = 0 }")
        expect(page.page.locator("article[data-seq='1']")).to_be_in_viewport()
        take(page, scheme, tmp_path)
        page.page.get_by_role("button", name="Close the details").click()


def test_a_phone(browser: Browser, furnished: tuple[House, SessionId], tmp_path: Path) -> None:
    house, session = furnished
    with tab(browser, house, size=PHONE, touch=True) as page:
        page.open("/")
        expect(page.rows().first).to_be_visible()
        take(page, "phone-list", tmp_path)
        page.open(f"/s/{session}")
        expect(page.answers.last).to_be_visible()
        take(page, "phone", tmp_path)


def test_the_list(browser: Browser, furnished: tuple[House, SessionId], tmp_path: Path) -> None:
    house, _ = furnished
    with tab(browser, house, size=(1240, 700)) as page:
        page.open("/new")
        expect(page.rows().first).to_be_visible()
        page.rows().filter(has_text="Learning Norwegian").click(button="right")
        expect(page.page.get_by_role("menu")).to_be_visible()
        take(page, "list", tmp_path)
        page.page.keyboard.press("Escape")
        page.filter("tag:infra after:30d")
        page.page.get_by_role("button", name="Filter", exact=True).click()
        expect(page.page.get_by_role("dialog")).to_be_visible()
        take(page, "list-filter", tmp_path)


def test_the_board(browser: Browser, furnished: tuple[House, SessionId], tmp_path: Path) -> None:
    house, session = furnished
    with tab(browser, house, size=WIDE) as page:
        page.open(f"/s/{session}")
        page.say("slow 60 The runner renews its lease every few seconds, whatever the tool does meanwhile.")
        expect(page.draft).to_contain_text("runner")
        page.say("Then write to the others, please.")
        expect(page.page.get_by_role("region", name="Waiting messages")).to_be_visible()
        take(page, "queue", tmp_path)
        page.open("/board")
        expect(page.page.locator(".turn-card")).to_have_count(2)
        take(page, "board", tmp_path)
        page.page.get_by_role("button", name="Remove queued message").click()
        page.page.get_by_role("button", name="Stop").click()
        expect(page.page.get_by_role("heading", name="Nothing runs now")).to_be_visible()


def test_usage(browser: Browser, furnished: tuple[House, SessionId], tmp_path: Path) -> None:
    house, _ = furnished
    with tab(browser, house, size=WIDE) as page:
        page.open("/usage")
        expect(page.page.locator(".day-bar").first).to_be_attached()
        take(page, "usage", tmp_path)


def test_the_form_of_a_model(browser: Browser, furnished: tuple[House, SessionId], tmp_path: Path) -> None:
    house, _ = furnished
    with tab(browser, house, size=WIDE) as page:
        page.open("/models")
        page.press("Add a model")
        form = page.page.get_by_role("form", name="Add a model")
        form.get_by_label("Model", exact=True).fill("gpt-5-mini")
        take(page, "set-up", tmp_path)


def test_the_first_day(page: Tab, tmp_path: Path) -> None:
    page.open()
    expect(page.page.get_by_role("heading", name="Keryx is running")).to_be_visible()
    take(page, "first", tmp_path)
