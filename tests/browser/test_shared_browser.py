"""One browser and one person after another: what is of the first one is neither shown, nor sent, nor told to the second."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.driver import House, Tab, tab
from tests.browser.test_phone import CACHED, Pushes, records, settle, until, until_shown
from tests.browser.test_talk import PIXEL

PASSWORD, OF_ANN = "correct horse", "a horse for ann"
UNSENT = "not sent yet"
ADD_ANN = f"""fetch('/api/users', {{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: '{json.dumps({"name": "ann", "password": OF_ANN})}'}}).then((answer) => answer.status)"""
# All that the page itself keeps in the browser.
STORED = "JSON.stringify([localStorage, sessionStorage])"
WHO = "fetch('/api/start').then((answer) => answer.json()).then((start) => start.who.principal)"
SHARED = """(record) => new Promise((done) => {
  const request = indexedDB.open("keryx-worker", 1);
  request.onsuccess = () => {
    const doing = request.result.transaction("records", "readwrite");
    doing.objectStore("records").put({ id: "shared", at: Date.now(), files: [], ...record });
    doing.oncomplete = () => (request.result.close(), done());
  };
})"""


@pytest.fixture(scope="module")
def house(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A home with two people, each with a password."""
    house = House(tmp_path_factory.mktemp("home"))
    with house.serving(KERYX_WEB_PASSWORD=PASSWORD):
        with tab(browser, house) as page:
            enter(page.open().page)
            assert page.page.evaluate(ADD_ANN) == 201
        yield house


def enter(page: Page, name: str = "", password: str = PASSWORD) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password or token").fill(password)
    page.get_by_label("Password or token").press("Enter")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def sign_out(page: Tab) -> None:
    page.open("/settings")
    page.press("Sign out")
    expect(page.page.get_by_role("heading", name="Sign in to Keryx")).to_be_visible()


def test_who_signs_in_next_finds_nothing_of_the_one_before(
    browser: Browser, house: House, tmp_path: Path
) -> None:
    picture = tmp_path / "private.png"
    picture.write_bytes(PIXEL)
    with tab(browser, house, worker=True) as page:
        page.page.context.grant_permissions(["notifications"])
        enter(page.open().page)
        session = page.begin("words of the operator", "words of the operator")
        page.page.get_by_label("Files to attach").set_input_files([picture])
        expect(page.page.locator(".attached img")).to_be_visible()
        page.ask("see this", "see this")
        file = page.page.locator(".message.user .picture img").get_attribute("src")
        page.composer.fill("half a thought of the operator")
        expect(page.page.get_by_text("Draft saved")).to_be_visible()
        worker = settle(page)
        until(page, lambda found: found.get("who", {}).get("principal") == "operator")
        told = {
            "id": "finished 1",
            "session": session,
            "path": f"/#/s/{session}",
            "title": "words",
            "text": "x",
        }
        worker.evaluate("(told) => show(told)", told)
        until_shown(page, worker, ["words", "x", session])
        page.page.evaluate(SHARED, {"principal": "operator", "text": "shared by the operator"})
        sign_out(page)
        until(page, lambda found: not found)
        until_shown(page, worker)

        enter(page.page, "ann", OF_ANN)
        expect(page.rows()).to_have_count(0)
        who = cast(str, page.page.evaluate(WHO))
        until(page, lambda found: found.get("who", {}).get("principal") == who)
        assert page.page.evaluate("(url) => fetch(url).then((answer) => answer.status)", file) == 404
        for path in (f"/api/sessions/{session}", f"/api/sessions/{session}/export?format=html"):
            assert page.page.evaluate("(url) => fetch(url).then((answer) => answer.status)", path) == 404
        kept = cast(list[list[str]], page.page.evaluate(CACHED))
        private = [session, "of the operator", cast(str, file)]
        for where in (
            *(text for *_, text in kept),
            page.page.evaluate(STORED),
            str(records(page)),
            page.page.content(),
        ):
            assert not [words for words in private if words in where]
        page.open(f"/s/{session}")
        expect(page.page.get_by_role("heading", name="This conversation is not here")).to_be_visible()
        pushes = Pushes(page)
        other = page.page.context.new_page()
        other.bring_to_front()
        worker.evaluate("() => { clients.matchAll = () => Promise.resolve([]); }")
        pushes.deliver(**{**told, "who": "operator", "text": "a secret"})
        pushes.deliver(**{**told, "who": who, "session": "s", "text": "for ann"})
        until_shown(page, worker, ["words", "for ann", "s"])
        other.close()


def test_what_another_app_shared_is_for_whom_it_was_shared_by(browser: Browser, house: House) -> None:
    with tab(browser, house, worker=True) as page:
        enter(page.open().page, "ann", OF_ANN)
        settle(page)
        until(page, lambda found: "who" in found)
        for by, shown in (("operator", ""), ("", "before anybody signed in")):
            page.page.evaluate(SHARED, {"principal": by, "text": "before anybody signed in"})
            page.page.goto(f"{page.address}/?shared=yes")
            expect(page.page).to_have_url(re.compile("#/new$"))
            expect(page.composer).to_have_value(shown)
        page.composer.fill("")
        expect(page.page.locator(".composer .note")).to_have_text("")


def test_what_waits_is_sent_as_the_one_who_wrote_it_when_they_are_back(
    browser: Browser, house: House
) -> None:
    lost = re.compile(r"/api/sessions/[^/]+/messages$")
    with tab(browser, house) as page:
        enter(page.open().page)
        session = page.begin("of one person", "of one person")
        page.page.route(lost, lambda route: route.abort())
        page.say("kept for later")
        expect(page.page.get_by_role("article", name="A message on its way")).to_contain_text(UNSENT)
        page.page.context.clear_cookies()
        page.page.once("dialog", lambda dialog: dialog.accept())
        page.page.reload()
        page.page.unroute(lost)
        enter(page.page, "ann", OF_ANN)
        page.begin("of another one", "of another one")
        expect(page.page.get_by_text("kept for later")).to_have_count(0)
        expect(page.page.get_by_text(UNSENT)).to_have_count(0)
        page.page.context.clear_cookies()
        page.page.reload()
        enter(page.page)
        page.open(f"/s/{session}")
        expect(page.questions).to_have_text(["of one person", "kept for later"])
        expect(page.answers).to_have_text(["of one person", "kept for later"])


def test_a_session_that_ends_leaves_nothing_in_front_of_the_sign_in(browser: Browser, house: House) -> None:
    with tab(browser, house) as page:
        enter(page.open().page)
        page.begin("behind a dialog", "behind a dialog")
        message = page.page.locator(".message.user")
        page.do("Edit and ask in a copy", message)
        words = page.page.get_by_role("dialog").get_by_role("textbox")
        words.fill("other words")
        page.page.context.clear_cookies()
        page.page.get_by_role("dialog").get_by_role("button", name="Ask in a copy").click()
        expect(page.page.get_by_role("heading", name="Sign in to Keryx")).to_be_visible()
        expect(page.page.get_by_role("dialog")).to_have_count(0)
        assert "behind a dialog" not in page.page.locator("body").inner_text()
        expect(page.page).to_have_title("Sign in · Keryx")
        enter(page.page)
        page.do("Edit and ask in a copy", message)
        expect(words).to_have_value("other words")
        page.press("Cancel")


def test_all_tabs_sign_out_and_in_together(browser: Browser, house: House) -> None:
    with tab(browser, house) as page:
        enter(page.open().page)
        session = page.begin("in two tabs", "in two tabs")
        other = Tab(page.page.context, page.address).open(f"/s/{session}")
        other.page.route("**/api/composers/*", lambda route: route.abort())
        other.composer.fill("typed and not saved")
        expect(other.page.get_by_text("Draft not saved yet")).to_be_visible()
        sign_out(page)
        expect(other.page.get_by_role("heading", name="Sign in to Keryx")).to_be_visible()
        expect(other.page.get_by_text("in two tabs")).to_have_count(0)
        assert "typed and not saved" not in page.page.evaluate(STORED)
        enter(page.page)
        expect(other.answers).to_have_text(["in two tabs"])
        expect(other.composer).to_have_value("")
        other.healthy()
