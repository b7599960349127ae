"""Profiles on the page: chosen from the list, each with its own conversations, in tabs of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import House, Tab, tab


@pytest.fixture
def served(tmp_path: Path) -> Iterator[House]:
    (tmp_path / "keryx.toml").write_text('[profiles.work]\ninstructions = "Be brief."\n[profiles.club]\n')
    house = House(tmp_path)
    with house.serving():
        yield house


@pytest.fixture
def page(browser: Browser, served: House) -> Iterator[Tab]:
    with tab(browser, served) as opened:
        yield opened


def test_a_profile_is_chosen_and_has_its_own_conversations(page: Tab) -> None:
    page.begin("at home", "at home")
    chooser = page.page.get_by_role("combobox", name="Profile")
    expect(chooser).to_have_value("default")
    chooser.select_option("work")
    page.page.wait_for_url("**/p/work/**")
    expect(page.page.get_by_role("combobox", name="Profile")).to_have_value("work")
    expect(page.rows()).to_have_count(0)
    page.page.get_by_role("button", name="New conversation (n)").click()
    page.ask("at work", "at work")
    expect(page.rows()).to_have_count(1)
    page.page.reload()
    expect(page.answers).to_have_text(["at work"])
    page.page.goto(f"{page.address}/")
    expect(page.rows()).to_have_count(1)
    expect(page.rows().first).to_contain_text("at home")


def test_an_address_of_a_profile_that_is_not_there_says_so(page: Tab) -> None:
    page.page.goto(f"{page.address}/p/wrok/")
    expect(page.page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    expect(page.page.get_by_text("There is no profile 'wrok'")).to_be_visible()
    page.page.get_by_role("link", name="Go to the first page").click()
    expect(page.page.get_by_role("combobox", name="Profile")).to_have_value("default")
