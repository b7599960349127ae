"""What a person decides at the page: who is let in, what is sent again, which browser stays signed in."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import WAIT, House, apart, tab
from tests.builders import at_time
from tests.fakes.platform import PLATFORM, Platform
from tests.faults.node import Node

from keryx.core.deliveries import DeliveryState, Target
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, WorkerId
from keryx.core.sessions import Viewer
from keryx.store import deliveries
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase

CODE = re.compile(r"approve fake ([A-Z2-9]{8})")


@pytest.fixture
def platform() -> Iterator[Platform]:
    with Platform() as platform:
        yield platform


@pytest.fixture
def chats(house: House, platform: Platform) -> Iterator[Node]:
    """A node beside the page that knows nobody on the platform."""
    with Node(platform.url, house.cli.home, KERYX_FAKE_ALLOW="nobody") as node:
        yield node


def heard(platform: Platform, count: int) -> list[str]:
    assert platform.wait_for(lambda: len(platform.shown) >= count, WAIT / 1000), platform.shown
    return [shown.text for shown in platform.shown]


async def refused(path: Path, *texts: str) -> None:
    """Deliveries that a platform refused."""
    now = datetime.now(UTC)

    def work(tx: Transaction) -> None:
        for chat, text in enumerate(texts):
            target = Target(PLATFORM, "", str(chat))
            deliveries.enqueue(at_time(tx, now), target, text, of=Viewer(DEFAULT_PROFILE, OPERATOR))
        claimed = deliveries.claim(
            at_time(tx, now),
            most=len(texts),
            platform=PLATFORM,
            account="",
            worker=WorkerId("w"),
            lease=timedelta(minutes=1),
        )
        for held in claimed.leased:
            deliveries.finish_attempt(at_time(tx, now), *held, DeliveryState.FAILED, error="no such chat")

    async with SqliteDatabase(path) as database:
        await database.write("test", work)


def test_a_stranger_is_let_in_and_sent_away_again(
    browser: Browser, served: House, platform: Platform, chats: Node
) -> None:
    chats.start()
    with tab(browser, served) as page:
        page.open("/pairing")
        expect(page.page.get_by_role("heading", name="Nobody waits")).to_be_visible()
        platform.say("42", "hello?", user="ann")
        waiting = page.page.get_by_role("table", name="People who wait").locator("tbody tr")
        expect(waiting).to_contain_text(["ann"])
        found = CODE.search(heard(platform, 1)[0])
        assert found
        expect(page.page.get_by_role("combobox", name="Platform")).to_have_value("fake")
        page.page.get_by_label("Code").fill(found[1])
        code = page.page.get_by_label("Code")
        right = code.input_value()
        code.fill("WRONGONE")
        page.press("Let in")
        expect(page.page.get_by_role("alert")).to_be_visible()
        code.fill(right)
        page.press("Let in")
        expect(page.page.get_by_text("ann may talk now.")).to_be_visible()
        expect(waiting).to_have_count(0)
        granted = page.page.get_by_role("table", name="People who were let in").locator("tbody tr")
        expect(granted).to_contain_text(["ann"])
        platform.say("42", "good morning", user="ann")
        expect(page.rows()).to_contain_text(["good morning"])
        assert heard(platform, 3)[1:] == [
            "You have access now. Say something; /help lists the commands.",
            "good morning",
        ]
        granted.get_by_role("button", name="Let in no longer").click()
        expect(granted).to_have_count(0)
        platform.say("42", "and now?", user="ann")
        assert CODE.search(heard(platform, 4)[-1])
        expect(waiting).to_contain_text(["ann"])
        waiting.get_by_role("button", name="Refuse").click()
        expect(page.page.get_by_role("heading", name="Nobody waits")).to_be_visible()
        expect(page.rows()).to_have_count(1)


def test_a_delivery_is_sent_again_or_given_up(
    browser: Browser, house: House, platform: Platform, chats: Node
) -> None:
    apart(refused(house.cli.home / "keryx.db", "to be sent", "to be dropped"))
    with house.serving(), tab(browser, house) as page:
        page.open("/deliveries")
        rows = page.page.get_by_role("table", name="Deliveries").locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("no such chat")
        trouble = page.page.get_by_role("navigation", name="Screens").get_by_role("link", name="Deliveries")
        expect(trouble).to_contain_text("2 in trouble")
        rows.filter(has_text="to be dropped").get_by_role("button", name="Discard").click()
        expect(rows).to_have_count(1)
        expect(trouble).to_contain_text("1 in trouble")
        rows.get_by_role("button", name="Send again").click()
        expect(rows).to_contain_text(["waiting"])
        expect(trouble).not_to_contain_text("in trouble")
        chats.start()
        expect(page.page.get_by_role("heading", name="Nothing is on its way")).to_be_visible()
        assert heard(platform, 1) == ["to be sent"]
        page.press("Arrived")
        expect(rows).to_contain_text(["to be sent"])
        page.press("Discarded")
        expect(rows).to_contain_text(["to be dropped"])


def test_a_browser_is_signed_out_from_another(browser: Browser, house: House) -> None:
    with house.serving(KERYX_WEB_PASSWORD="correct horse"):
        with tab(browser, house) as here, tab(browser, house) as there:
            for page in (here, there):
                page.open("/settings")
                field = page.page.get_by_label("Password or token")
                field.fill("correct horse")
                field.press("Enter")
                expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
            here.page.reload()
            browsers = here.page.get_by_role("table", name="Signed-in browsers").locator("tbody tr")
            expect(browsers).to_have_count(2)
            browsers.get_by_role("button", name="End").click()
            expect(browsers).to_have_count(1)
            expect(browsers).to_contain_text("(this one)")
            there.page.reload()
            expect(there.page.get_by_role("heading", name="Sign in to Keryx")).to_be_visible()
            here.begin("still here", "still here")
