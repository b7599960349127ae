"""The screens beside the conversation: deliveries, lanes, pairing, usage and settings do what they offer."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import House, Tab, apart, tab
from tests.browser.scene import furnish


@pytest.fixture
def screens(browser: Browser, tmp_path: Path) -> Iterator[Tab]:
    """A tab on a store that was used for some weeks."""
    apart(furnish(tmp_path / "keryx.db"))
    house = House(tmp_path)
    with house.serving(), tab(browser, house) as opened:
        yield opened


def test_a_delivery_is_discarded(screens: Tab) -> None:
    screens.open("/deliveries")
    expect(screens.page.locator("tbody tr")).to_have_count(1)
    screens.page.get_by_role("button", name="Discard", exact=True).click()
    expect(screens.page.get_by_role("heading", name="Nothing is on its way")).to_be_visible()
    screens.press("Discarded")
    expect(screens.page.locator("tbody tr")).to_have_count(1)


def test_the_lineage_leads_over_a_reset_and_back(screens: Tab) -> None:
    screens.open()
    screens.rows().filter(has_text="Restarts of the billing worker").click()
    screens.page.get_by_role("button", name="Details (i)").click()
    lineage = screens.page.get_by_role("region", name="Lineage")
    here = lineage.locator("a[aria-current]")
    expect(here).to_contain_text("Restarts of the billing worker")
    expect(here).to_contain_text("after a silence")
    expect(lineage.locator("path.broken")).to_have_count(1)
    lineage.get_by_text("Billing alerts at night").click()
    expect(screens.page.get_by_role("heading", name="Billing alerts at night")).to_be_visible()
    expect(here).to_contain_text("Billing alerts at night")
    expect(lineage.locator("a", has_text="Restarts of the billing worker")).to_be_visible()


def test_a_lane_is_suspended_and_reset(screens: Tab) -> None:
    screens.open("/lanes")
    lane = screens.page.locator("tbody tr", has_text="Restarts of the billing worker")
    lane.get_by_role("button", name="History").click()
    expect(screens.page.get_by_role("dialog")).to_contain_text("first message")
    screens.page.get_by_role("dialog").get_by_role("button", name="Close").click()
    lane.get_by_role("button", name="Suspend").click()
    expect(lane.get_by_role("button", name="Resume")).to_be_visible()
    lane.get_by_role("button", name="Resume").click()
    expect(lane.get_by_role("button", name="Suspend")).to_be_visible()
    lane.get_by_role("button", name="Reset").click()
    expect(lane).to_have_count(0)
    expect(screens.page.get_by_text("none: the next message begins one")).to_be_visible()


def test_a_wrong_code_lets_nobody_in(screens: Tab) -> None:
    screens.open("/pairing")
    expect(screens.page.get_by_role("heading", name="Nobody waits")).to_be_visible()
    screens.page.get_by_role("textbox", name="Platform").fill("telegram")
    screens.page.get_by_label("Code").fill("WRONGONE")
    screens.press("Let in")
    expect(screens.page.get_by_role("alert")).to_be_visible()


def test_usage_is_told_as_a_picture_and_as_a_table(screens: Tab) -> None:
    screens.open("/usage")
    expect(screens.page.get_by_role("img", name="Tokens by day over 30 days")).to_be_visible()
    screens.page.get_by_text("The same as a table").click()
    table = screens.page.get_by_role("table", name="Usage by day, model and surface")
    assert table.locator("tbody tr").count() > 30
    people = screens.page.get_by_role("table", name="Usage by person").locator("tbody tr")
    expect(people).to_have_text([re.compile("^operator"), re.compile("^Ann")])
    models = screens.page.get_by_role("table", name="Usage by model").locator("tbody tr")
    expect(models).to_have_count(3)
    screens.press("7 days")
    expect(screens.page.get_by_role("img", name="Tokens by day over 7 days")).to_be_visible()


def test_settings_are_kept(screens: Tab) -> None:
    screens.open("/settings")
    screens.page.get_by_label("Theme").select_option("dark")
    screens.page.get_by_label("Send with").select_option("Ctrl Enter")
    screens.page.get_by_label("Name of a new project").fill("Boats")
    screens.press("Add")
    row = screens.page.locator(".settings", has_text="Boats")
    row.get_by_role("button", name="Rename").click()
    screens.page.get_by_role("dialog").get_by_role("textbox").fill("Ships")
    screens.page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    expect(screens.page.locator(".settings", has_text="Ships")).to_be_visible()
    screens.page.reload()
    expect(screens.page.locator("html")).to_have_attribute("data-theme", "dark")
    screens.page.locator(".settings", has_text="Ships").get_by_role("button", name="Remove").click()
    screens.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(screens.page.locator(".settings", has_text="Ships")).to_have_count(0)
    screens.open("/new")
    screens.composer.fill("one line")
    screens.composer.press("Enter")
    expect(screens.composer).to_have_value("one line\n")
    screens.composer.press("Control+Enter")
    expect(screens.answers).to_have_text(["one line"])


def test_a_job_is_added_run_rested_and_removed(screens: Tab) -> None:
    screens.open("/jobs")
    expect(screens.page.get_by_role("heading", name="Nothing is scheduled")).to_be_visible()
    screens.page.get_by_label("Schedule").fill("often")
    screens.page.get_by_label("Prompt").fill("Check the news")
    screens.press("Add")
    expect(screens.page.get_by_role("alert")).to_contain_text("every 2h")
    screens.page.get_by_label("Schedule").fill("every 2h")
    screens.page.get_by_label("Send to").fill("local:news")
    screens.press("Add")
    job = screens.page.locator("tbody tr", has_text="Check the news")
    expect(job).to_contain_text("to local:news")
    job.get_by_role("button", name="Run Check the news now").click()
    expect(job).to_contain_text("done · sent")
    job.get_by_role("button", name="Pause").click()
    expect(job.get_by_role("button", name="Resume")).to_be_visible()
    job.get_by_role("button", name="Runs of").click()
    screens.page.get_by_role("dialog").get_by_role("link", name="conversation").click()
    expect(screens.page.get_by_role("heading", name="Check the news")).to_be_visible()
    screens.open("/jobs")
    job.get_by_role("button", name="Remove").click()
    screens.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(screens.page.get_by_role("heading", name="Nothing is scheduled")).to_be_visible()
