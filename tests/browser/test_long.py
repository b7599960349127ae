"""Long: ten thousand conversations and twenty thousand messages, of which the page holds only what is seen."""

from pathlib import Path

import pytest
from bench import fill
from playwright.sync_api import Browser, Route, expect
from tests.browser.driver import House, Tab, apart, away_too_long, tab

from keryx.core.ids import SessionId
from keryx.store.db.sqlite import SqliteDatabase

SESSIONS = 10_000
MESSAGES = 20_000
BOUND = 80

# The first message below the upper edge of the view, and where it stands.
TOPMOST = """
e => [...e.querySelectorAll("article")].map(a => [a.dataset.seq, a.getBoundingClientRect().top])
  .find(([, top]) => top > e.getBoundingClientRect().top)
"""
# Moves the view when older messages have come, before they are drawn, and notes what is then read.
STEP_AT_ARRIVAL = f"""
const json = Response.prototype.json;
const topmost = {TOPMOST.strip()};
Response.prototype.json = async function () {{
  const given = await json.call(this);
  if (this.url.includes("before=") && !window.stepped) {{
    const talk = document.querySelector("[role=log]");
    talk.scrollTop -= 400;
    window.stepped = topmost(talk);
  }}
  return given;
}};
"""


async def many_sessions(path: Path) -> None:
    async with SqliteDatabase(path) as database:
        await fill.lanes_with_sessions(database, SESSIONS)


async def many_messages(path: Path) -> SessionId:
    async with SqliteDatabase(path) as database:
        return await fill.session_with_messages(database, MESSAGES)


def test_ten_thousand_conversations_scroll(browser: Browser, house: House) -> None:
    apart(many_sessions(house.cli.home / "keryx.db"))
    with house.serving(), tab(browser, house) as page:
        page.open()
        rows = page.rows()
        expect(rows.first).to_be_visible()
        assert rows.count() < BOUND
        scroller = page.page.get_by_role("navigation", name="Conversations")
        seen: set[str] = set()
        for _ in range(30):
            seen.update(str(href) for href in rows.evaluate_all("all => all.map(a => a.href)"))
            scroller.evaluate("e => { e.scrollTop += e.clientHeight }")
            page.page.wait_for_function(
                "e => e.scrollTop + e.clientHeight < e.scrollHeight - 50", arg=scroller.element_handle()
            )
            assert rows.count() < BOUND
        assert len(seen) > 250
        loaded = page.page.evaluate("document.querySelectorAll('*').length")
        assert loaded < 1500


def test_twenty_thousand_messages_scroll(browser: Browser, house: House) -> None:
    session = apart(many_messages(house.cli.home / "keryx.db"))
    with house.serving(), tab(browser, house) as page:
        page.open(f"/s/{session}")
        articles = page.page.locator("article.message")
        expect(articles.last).to_contain_text(f"{MESSAGES - 1}:")
        expect(articles.last).to_be_in_viewport()
        talk = page.page.get_by_role("log")
        for _ in range(25):
            first = int(articles.first.get_attribute("data-seq") or 0)
            talk.evaluate("e => { e.scrollTop -= 2 * e.clientHeight }")
            expect(articles.first).not_to_have_attribute("data-seq", str(first))
            seqs = [int(s) for s in articles.evaluate_all("all => all.map(a => a.dataset.seq)")]
            assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
            assert len(seqs) < BOUND
        assert int(articles.first.get_attribute("data-seq") or 0) < MESSAGES - 200


def test_a_search_jumps_to_an_old_message_and_stays_there(browser: Browser, house: House) -> None:
    session = apart(many_messages(house.cli.home / "keryx.db"))
    with house.serving(), tab(browser, house) as page:
        page.open()
        page.page.get_by_role("searchbox").fill("137")
        hits = page.page.get_by_role("navigation", name="Search results").locator("a.hit")
        expect(hits.first.locator("mark").first).to_have_text("137")
        hits.first.click()
        found = page.page.locator("article[data-seq='138']")
        expect(found).to_contain_text("137:")
        expect(found).to_be_in_viewport()
        assert page.page.url.endswith(f"#/s/{session}/138")
        talk = page.page.get_by_role("log")
        talk.evaluate("e => { e.scrollTop -= 400 }")
        expect(page.page.locator("article[data-seq='130']")).to_be_attached()
        page.press("To the end")
        expect(page.page.locator(f"article[data-seq='{MESSAGES}']")).to_be_in_viewport()


def test_what_is_read_keeps_its_place_while_older_messages_load(browser: Browser, house: House) -> None:
    session = apart(many_messages(house.cli.home / "keryx.db"))
    with house.serving(), tab(browser, house) as page:
        held: list[Route] = []
        page.page.route("**/messages?before=*", lambda route: held.append(route))
        page.open(f"/s/{session}/5000")
        expect(page.page.locator("article[data-seq='5000']")).to_be_in_viewport()
        expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
        assert len(page.first_load) < 12, "\n".join(page.first_load)
        talk = page.page.get_by_role("log")
        with page.page.expect_request("**/messages?before=*"):
            talk.evaluate("e => { e.scrollTop = 1000 }")
        seq, before = topmost(page)
        with page.page.expect_response("**/messages?before=*"):
            held[0].continue_()
        page.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        after = page.page.locator(f"article[data-seq='{seq}']").bounding_box()
        assert after and abs(after["y"] - before) < 2
        assert talk.evaluate("e => e.scrollTop") > 3000


@pytest.mark.parametrize("link", ["", "/9000"], ids=["opened", "linked"])
def test_a_reader_far_up_keeps_the_place_when_all_is_read_anew(
    browser: Browser, house: House, link: str
) -> None:
    session = apart(many_messages(house.cli.home / "keryx.db"))
    with house.serving(), tab(browser, house) as page:
        page.open(f"/s/{session}{link}")
        expect(page.page.locator("article").last).to_be_visible()
        talk = page.page.get_by_role("log")
        for _ in range(8):
            first = page.page.locator("article").first.get_attribute("data-seq") or ""
            talk.evaluate("e => { e.scrollTop -= 2 * e.clientHeight }")
            expect(page.page.locator("article").first).not_to_have_attribute("data-seq", first)
        seq, before = topmost(page)
        with away_too_long(page):
            house.run("send", "--wait", "--session", session, "while you were away")
        expect(page.page.get_by_role("button", name="2 new messages")).to_be_visible()
        after = page.page.locator(f"article[data-seq='{seq}']").bounding_box()
        assert after and abs(after["y"] - before) < 2
        page.press("2 new messages")
        expect(page.answers.last).to_have_text("while you were away")
        expect(page.answers.last).to_be_in_viewport()


def test_the_top_of_what_is_loaded_is_kept_while_older_messages_load(browser: Browser, house: House) -> None:
    session = apart(many_messages(house.cli.home / "keryx.db"))
    with house.serving(), tab(browser, house) as page:
        page.open(f"/s/{session}/5000")
        expect(page.page.locator("article[data-seq='5000']")).to_be_in_viewport()
        with page.page.expect_response("**/messages?before=*"):
            page.page.get_by_role("log").evaluate("e => { e.scrollTop = 0 }")
        expect(page.page.locator("article[data-seq='4969']")).to_be_attached()
        assert page.page.get_by_role("log").evaluate("e => e.scrollTop") > 3000


def test_a_step_up_is_not_taken_back_by_older_messages_that_arrive_with_it(
    browser: Browser, house: House
) -> None:
    session = apart(many_messages(house.cli.home / "keryx.db"))
    with house.serving(), tab(browser, house) as page:
        page.page.add_init_script(STEP_AT_ARRIVAL)
        page.open(f"/s/{session}/5000")
        expect(page.page.locator("article[data-seq='5000']")).to_be_in_viewport()
        page.page.get_by_role("log").evaluate("e => { e.scrollTop = 1000 }")
        page.page.wait_for_function("() => window.stepped")
        expect(page.page.locator("article[data-seq='4969']")).to_be_attached()
        seq, top = page.page.evaluate("window.stepped")
        after = page.page.locator(f"article[data-seq='{seq}']").bounding_box()
        assert after and abs(after["y"] - top) < 2


def topmost(page: Tab) -> tuple[str, float]:
    seq, top = page.page.get_by_role("log").evaluate(TOPMOST)
    return seq, top
