"""The screens beside the conversation: deliveries, lanes, pairing, usage and settings do what they offer."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import PHONE, House, Tab, apart, tab
from tests.browser.scene import furnish
from tests.builders import at_time

from keryx.core.deliveries import DeliveryState
from keryx.core.ids import WorkerId
from keryx.store import deliveries
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase


@pytest.fixture
def screens(browser: Browser, tmp_path: Path) -> Iterator[Tab]:
    """A tab on a store that was used for some weeks."""
    apart(furnish(tmp_path / "keryx.db"))
    house = House(tmp_path)
    with house.serving(), tab(browser, house) as opened:
        yield opened


async def fail_for_now(path: Path) -> None:
    """The delivery that waits was tried, and is tried again in an hour."""

    def work(tx: Transaction) -> None:
        now = datetime.now(UTC)
        [held] = deliveries.claim(
            at_time(tx, now),
            most=1,
            platform="telegram",
            account="bot",
            worker=WorkerId("w"),
            lease=timedelta(minutes=1),
        ).leased
        later = now + timedelta(hours=1)
        deliveries.finish_attempt(
            at_time(tx, now), *held, DeliveryState.READY, not_before=later, error="Bad Gateway"
        )

    async with SqliteDatabase(path) as database:
        await database.write("test", work)


def test_a_delivery_says_why_it_waits_and_is_sent_now_stopped_and_discarded(
    screens: Tab, tmp_path: Path
) -> None:
    screens.open("/deliveries")
    row = screens.page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("Telegram is not connected; it is sent as soon as it is")
    link = {"platform": "telegram", "account": "bot", "link": "connected"}
    screens.page.route("**/api/connections", lambda route: route.fulfill(json={"connections": [link]}))
    apart(fail_for_now(tmp_path / "keryx.db"))
    expect(row).to_contain_text(re.compile(r"Bad Gateway · 1 try · next try at \S"))
    row.get_by_role("button", name="Send now").click()
    expect(row.get_by_role("button")).to_have_text(["Discard"])
    apart(fail_for_now(tmp_path / "keryx.db"))
    row.get_by_role("button", name="Stop trying").click()
    expect(row).to_contain_text("given up")
    expect(row.get_by_role("button")).to_have_text(["Send again", "Discard"])
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
    anns = screens.page.locator("tbody tr", has_text="Ann")
    expect(anns).to_contain_text(["direct chat, 7", "direct chat, 9"])
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
    expect(screens.page.get_by_text("The next message there begins a new conversation.")).to_be_visible()


def test_no_code_is_asked_for_where_no_platform_is_connected(screens: Tab) -> None:
    screens.open("/pairing")
    expect(screens.page.get_by_role("heading", name="Nobody waits")).to_be_visible()
    expect(screens.page.get_by_role("form", name="Let somebody in")).to_have_count(0)


def test_usage_is_told_as_a_picture_and_as_a_table(screens: Tab) -> None:
    screens.open("/usage")
    expect(screens.page.get_by_role("img", name="Tokens by day over 30 days")).to_be_visible()
    screens.page.get_by_text("The same as a table").click()
    table = screens.page.get_by_role("table", name="Usage by day, model and surface")
    assert table.locator("tbody tr").count() > 30
    people = screens.page.get_by_role("table", name="Usage by person").locator("tbody tr")
    expect(people).to_have_text([re.compile("^Operator"), re.compile("^Ann")])
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


def test_a_key_of_a_program_is_made_shown_once_and_revoked(screens: Tab) -> None:
    screens.open("/settings")
    screens.page.get_by_label("Name of a program or device").fill("laptop")
    screens.press("Make a key")
    dialog = screens.page.get_by_role("dialog")
    secret = dialog.get_by_role("textbox").input_value()
    assert secret.startswith("kx-")
    dialog.get_by_role("button", name="Cancel").click()
    row = screens.page.get_by_role("table", name="Keys of programs").locator("tbody tr", has_text="laptop")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("never")
    assert secret not in screens.page.content()
    row.get_by_role("button", name="Revoke").click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)


def test_the_settings_of_the_server_are_shown_with_where_they_come_from(
    browser: Browser, house: House
) -> None:
    (house.cli.home / "keryx.toml").write_text(
        'busy = "collect"\n[resets.default]\nmode = "idle"\nidle = "2h"\n'
    )
    with house.serving(KERYX_WEB_TOKEN="a-token-of-some-length"), tab(browser, house) as page:
        page.open("/settings")
        page.page.get_by_label("Password or token").fill("a-token-of-some-length")
        page.press("Sign in")
        row = page.page.get_by_role("table", name="Settings that were set").locator("tr")
        expect(row.filter(has_text="busy")).to_have_text(re.compile("collect.*keryx.toml"))
        expect(row.filter(has_text="resets.default.mode")).to_have_text(re.compile("idle.*keryx.toml"))
        expect(row.filter(has_text="port")).to_have_text(re.compile(f"{house.port}.*KERYX_PORT"))
        page.page.get_by_text("at the default").click()
        others = page.page.get_by_role("table", name="Settings at the default")
        expect(others.locator("tr", has_text="web.hosts")).to_contain_text("none")
        assert "a-token-of-some-length" not in page.page.content()


def test_new_conversations_begin_with_the_preferred_model(browser: Browser, house: House) -> None:
    model = '[[models]]\nname = "{0}"\nbase_url = "http://127.0.0.1:9/v1"\nid = "{0}"\n'
    (house.cli.home / "keryx.toml").write_text(model.format("large") + model.format("small"))
    with house.serving(KERYX_AGENT="llm"), tab(browser, house) as page:
        page.open("/settings")
        page.page.get_by_label("Model of new conversations").select_option("small")
        page.page.reload()
        expect(page.page.get_by_label("Model of new conversations")).to_have_value("small")
        page.open("/new")
        page.say("hello")
        expect(page.page.get_by_label("Model", exact=True)).to_have_value("small")
        page.say("/model large")
        expect(page.page.get_by_label("Model", exact=True)).to_have_value("")
        expect(page.page.locator("header .facts")).not_to_contain_text("small")
        page.open("/new")
        expect(page.page.get_by_text("Answered by small.")).to_be_visible()


def test_details_that_are_liked_beside_a_conversation_do_not_cover_it_on_a_phone(
    browser: Browser, served: House
) -> None:
    with tab(browser, served) as wide, tab(browser, served, size=PHONE, touch=True) as phone:
        session = wide.begin("hello", "hello")
        wide.press("Details (i)")
        wide.page.reload()
        expect(wide.page.get_by_role("complementary", name="Details")).to_be_visible()
        phone.open(f"/s/{session}")
        expect(phone.answers).to_have_text(["hello"])
        sheet = phone.page.get_by_role("complementary", name="Details")
        expect(sheet).to_be_hidden()
        phone.press("Details (i)")
        expect(sheet).to_be_visible()
        phone.press("Close the details")
        phone.ask("again", "again")


def test_the_first_day_on_a_phone_shows_the_way(browser: Browser, served: House) -> None:
    with tab(browser, served, size=PHONE, touch=True) as page:
        page.open()
        page.page.get_by_role("link", name="Begin the first one").click()
        expect(page.page.get_by_role("heading", name="Keryx is running")).to_be_visible()
        page.ask("hello", "hello")


def test_a_job_is_added_run_paused_changed_and_removed(screens: Tab) -> None:
    screens.open("/jobs")
    expect(screens.page.get_by_role("heading", name="Nothing is scheduled")).to_be_visible()
    screens.page.get_by_label("When", exact=True).fill("often")
    screens.page.get_by_label("What the agent is to do").fill("Check the news")
    screens.press("Add")
    expect(screens.page.get_by_role("alert")).to_contain_text("every 2h")
    screens.page.get_by_label("When", exact=True).fill("every 2h")
    screens.page.get_by_label("Where the answer goes").select_option("Another place")
    screens.page.get_by_label("Send to").fill("local:news")
    screens.press("Add")
    job = screens.page.locator("tbody tr", has_text="Check the news")

    def choose(name: str) -> None:
        job.get_by_role("button", name="More for").click()
        screens.page.get_by_role("menuitem", name=name, exact=True).click()

    expect(job).to_contain_text("to local:news")
    job.get_by_role("button", name="Run Check the news now").click()
    expect(job).to_contain_text("done · arrived")
    choose("Pause")
    expect(job).to_contain_text("paused")
    job.get_by_role("button", name="Edit Check the news").click()
    form = screens.page.get_by_role("form", name="Change Check the news")
    expect(form.get_by_label("Send to")).to_have_value("local:news")
    expect(form.get_by_label("When", exact=True)).to_have_value("every 2h")
    form.get_by_label("What the agent is to do").fill("Check the weather")
    form.get_by_label("When", exact=True).fill("often")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("every 2h")
    form.get_by_label("When", exact=True).fill("0 8 * * *")
    expect(form.get_by_role("list", name="Next runs").locator("li")).to_have_count(5)
    form.get_by_role("button", name="Save").click()
    expect(form).to_have_count(0)
    expect(screens.page.get_by_role("button", name="Add a job")).to_be_visible()
    expect(job).to_contain_text("Check the weather")
    expect(job).to_contain_text("0 8 * * *")
    expect(job).to_contain_text("paused")
    choose("Resume")
    expect(job).not_to_contain_text("paused")
    choose("Runs")
    screens.page.get_by_role("dialog").get_by_role("link", name="conversation").click()
    expect(screens.page.get_by_role("heading", name="Check the news")).to_be_visible()
    screens.open("/jobs")
    choose("Remove")
    screens.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(screens.page.get_by_role("heading", name="Nothing is scheduled")).to_be_visible()


def test_old_conversations_are_archived_after_a_look_at_them(screens: Tab) -> None:
    screens.open("/settings")
    block = screens.page.locator("section.block", has_text="Old conversations")
    block.get_by_label("Not used for").select_option("730")
    block.get_by_role("button", name="Show what would go").click()
    expect(screens.page.get_by_text("No conversation is that old.")).to_be_visible()
    block.get_by_label("Not used for").select_option("7")
    block.get_by_role("button", name="Show what would go").click()
    dialog = screens.page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Archive 3 conversations?")
    expect(dialog.get_by_role("listitem").first).to_contain_text("Names for a sailing boat")
    dialog.get_by_role("button", name="Archive").click()
    expect(screens.page.get_by_text("Archived 3 conversations.")).to_be_visible()
    expect(screens.rows().filter(has_text="Names for a sailing boat")).to_have_count(0)


# Elements that reach beyond the window, but those that scroll in a box of their own.
BEYOND = """() => Array.from(document.querySelectorAll("#page *")).filter(element => {
  if (!element.checkVisibility() || element.closest(".wide, .code, pre, svg, .unseen, .setup-tabs")) return false;
  for (let box = element.parentElement; box; box = box.parentElement) if (getComputedStyle(box).overflowX === "auto" && box.scrollWidth > box.clientWidth) return false;
  const {left, right, width} = element.getBoundingClientRect();
  return width && (left < -1 || right > innerWidth + 1);
}).map(element => `${element.tagName} ${element.className}`)"""
STACKED = """() => Array.from(document.querySelectorAll("#side .canvas > *"), (row) => row.getBoundingClientRect())
  .every((row, i, all) => !i || Math.abs(row.top - all[i - 1].bottom) < 0.1)"""


def test_text_is_as_large_as_this_browser_wants_it(screens: Tab) -> None:
    screens.open("/settings")
    size = screens.page.get_by_label("Text size")
    row = screens.rows().first
    before = row.bounding_box()
    size.select_option("Larger")
    expect(screens.page.locator("body")).to_have_css("font-size", "19.5px")
    after = row.bounding_box()
    assert before and after and after["height"] > before["height"]
    screens.page.reload()
    expect(screens.page.locator("body")).to_have_css("font-size", "19.5px")
    expect(screens.page.get_by_label("Text size")).to_have_value("larger")
    assert screens.page.evaluate(STACKED)
    size.select_option("Normal")
    expect(screens.page.locator("body")).to_have_css("font-size", "15px")
    expect(row).to_have_css("height", "54px")


def test_all_text_follows_the_size_that_was_chosen() -> None:
    style = (resources.files("keryx.surfaces.web") / "static" / "keryx.css").read_text("utf-8")
    # Text in drawings has the measures of these.
    rules = [line for line in style.splitlines() if not re.match(r"\.(chart|lineage) text", line)]
    assert [line for line in rules if re.search(r"font(-size)?: [^;]*\b(?<!max\()[1-9][\d.]*px", line)] == []


@pytest.mark.parametrize(
    ("width", "height"),
    [
        # 1,280 pixels at 200 %, and at 400 %.
        pytest.param(640, 400, id="200"),
        pytest.param(320, 400, id="400", marks=pytest.mark.slow),
    ],
)
def test_nothing_reaches_beyond_the_window_at_a_large_zoom_with_large_text(
    screens: Tab, width: int, height: int
) -> None:
    screens.open()
    screens.page.evaluate("localStorage.setItem('size', 'larger')")
    screens.page.set_viewport_size({"width": width, "height": height})
    screens.page.reload()
    expect(screens.rows().first).to_be_visible()
    assert screens.page.evaluate(BEYOND) == []
    screens.rows().filter(has_text="Restarts of the billing worker").click()
    expect(screens.answers.last).to_be_visible()
    assert screens.page.evaluate(BEYOND) == []
    for screen, title in (
        ("settings", "Settings"),
        ("models", "Models"),
        ("tools", "Tools and agents"),
        ("jobs", "Jobs"),
        ("users", "Sign-in"),
        ("usage", "Usage"),
        ("board", "Board"),
        ("profiles", "Profiles"),
    ):
        screens.open(f"/{screen}")
        expect(screens.page).to_have_title(re.compile(title))
        expect(screens.page.get_by_role("heading", name=title, level=1)).to_be_visible()
        expect(screens.page.get_by_text("Loading…")).to_have_count(0)
        assert screens.page.evaluate(BEYOND) == [], screen
