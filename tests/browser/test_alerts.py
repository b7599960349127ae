"""Being told: what waits for a person is seen at once, and a browser tells them while they look elsewhere."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Route, expect
from tests.browser.driver import PHONE, House, Tab, tab

# The notifications of the browser, each listed in every tab, and a person who looks at something else.
NOTIFICATIONS = """
const tabs = new BroadcastChannel("told");
const list = (text) => document.documentElement.append(Object.assign(document.createElement("i"), {className: "told", hidden: true, textContent: text}));
tabs.onmessage = (event) => list(event.data);
globalThis.shown = [];
globalThis.Notification = class {
  static permission = "granted";
  constructor(title, { body }) {
    shown.push(this);
    list(`${title}: ${body}`);
    tabs.postMessage(`${title}: ${body}`);
  }
  close() {}
};
document.hasFocus = () => false;
"""
# What is heard: the pitch of each tone.
TONES = """
globalThis.heard = [];
globalThis.OscillatorNode = class extends OscillatorNode {
  constructor(context, options) {
    super(context, options);
    heard.push(options.frequency);
  }
};
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("home"))
    with house.serving():
        yield house


@pytest.fixture
def page(browser: Browser, shared: House) -> Iterator[Tab]:
    with tab(browser, shared) as opened:
        yield opened


def icon(page: Tab) -> str:
    return str(page.page.locator("link[rel=icon]").get_attribute("href"))


def questions(page: Tab) -> Locator:
    return page.page.locator("header.bar").get_by_role("link", name="1 question")


def told(page: Tab) -> Locator:
    return page.page.locator("i.told")


def test_a_waiting_question_is_seen_from_everywhere(page: Tab) -> None:
    page.open("/new")
    page.say("!ask open the window")
    asked = page.page.get_by_role("region", name="A question of the agent")
    expect(asked).to_be_visible()
    expect(page.page.locator("header.bar .state.asking")).to_have_text("asks you")
    page.open("/settings")
    expect(page.page.locator(".group").first).to_have_text("Needs you")
    expect(page.rows().first).to_contain_text("asks you")
    expect(page.page).to_have_title(re.compile(r"^1 question · .*Settings · Keryx$"))
    assert "circle" in icon(page)
    questions(page).click()
    asked.get_by_role("button", name="Allow", exact=True).click()
    expect(page.draft).to_have_count(0)
    expect(page.page.get_by_text("Needs you")).to_have_count(0)
    expect(page.page).to_have_title(re.compile(r"^!ask open the window"))


def test_a_question_in_view_stands_there_once_and_says_so(page: Tab) -> None:
    page.page.add_init_script("document.hasFocus = () => false")
    page.open("/new")
    page.say("!ask open the window")
    asked = page.page.get_by_role("region", name="A question of the agent")
    expect(asked).to_contain_text("open the window")
    # The tab that tells holds a lock for a while.
    held = "async () => (await navigator.locks.query()).held.some((lock) => lock.name.startsWith('alert'))"
    page.page.wait_for_function(held)
    expect(page.page.locator(".toast")).to_have_count(0)
    expect(page.draft.locator(".state")).to_have_text("asks you")
    expect(page.draft.locator(".caret")).to_have_count(0)
    asked.get_by_role("button", name="Deny").click()
    expect(page.draft).to_have_count(0)


def test_a_phone_shows_in_any_conversation_that_another_one_asks(browser: Browser, shared: House) -> None:
    with tab(browser, shared, size=PHONE, touch=True) as page:
        calm = page.begin("a calm talk", "a calm talk")
        page.open("/new")
        page.say("!ask the other way")
        asked = page.page.get_by_role("region", name="A question of the agent")
        expect(asked).to_be_visible()
        page.open(f"/s/{calm}")
        questions(page).click()
        asked.get_by_role("button", name="Deny").click()
        expect(asked).to_have_count(0)


def test_the_title_counts_conversations_with_something_unread(browser: Browser, served: House) -> None:
    with tab(browser, served) as page:
        first = page.begin("one of two", "one of two")
        second = page.begin("two of two", "two of two")
        page.open("/board")
        expect(page.page).to_have_title("Board · Keryx")
        for session in (first, second):
            served.run("send", "--wait", "--session", session, "news")
        expect(page.page).to_have_title("(2) Board · Keryx")
        page.filter("is:archived")
        expect(page.rows()).to_have_count(0)
        expect(page.page).to_have_title("(2) Board · Keryx")
        page.press("Remove the filter Archived")
        assert "circle" in icon(page)
        page.open(f"/s/{first}")
        expect(page.page).to_have_title("(1) one of two · Keryx")
        page.open(f"/s/{second}")
        expect(page.page).to_have_title("two of two · Keryx")
        assert "circle" not in icon(page)


def test_a_person_who_looks_elsewhere_is_told_once_of_what_finished_failed_or_asks(page: Tab) -> None:
    page.page.context.add_init_script(NOTIFICATIONS)
    session = page.begin("hello", "hello")
    other = Tab(page.page.context, page.address).open("/board")
    expect(other.page.get_by_text("Live", exact=True)).to_be_visible()
    expected = ["hello: An answer is finished"]
    expect(told(page)).to_have_text(expected)
    page.say("!fail no tea")
    expected.append("hello: An answer failed")
    expect(told(page)).to_have_text(expected)
    page.say("!ask a cup")
    expected.append("hello: May the echo agent go on?")
    expect(told(page)).to_have_text(expected)
    page.open("/usage")
    for at in (page, other):
        at.page.evaluate("shown.at(-1)?.onclick()")
    assert session in (page.session, other.session)
    page.open(f"/s/{session}")
    page.page.get_by_role("button", name="Deny").click()
    expected.append("hello: An answer is finished")
    expect(told(page)).to_have_text(expected)
    other.healthy()


def test_a_person_at_the_page_is_told_by_the_page_of_another_conversation(page: Tab) -> None:
    page.open("/new")
    page.say("slow 2 meanwhile")
    expect(page.draft).to_be_visible()
    session = page.session
    page.open("/board")
    note = page.page.locator(".toast", has_text="An answer is finished")
    note.get_by_role("button", name="Open").click()
    expect(page.answers).to_have_text(["meanwhile"])
    assert page.session == session


def test_a_conversation_that_begins_here_is_not_told_of_before_it_has_its_address(page: Tab) -> None:
    opening: list[Route] = []
    let_go = False

    def hold(route: Route) -> None:
        if let_go:
            route.continue_()
        else:
            opening.append(route)

    page.page.route(re.compile(r"/api/sessions/[^/]+(\?.*)?$"), hold)
    page.open("/new")
    page.say("!fail it broke")
    # The tab that tells holds a lock for a while.
    held = "async () => (await navigator.locks.query()).held.some((lock) => lock.name.startsWith('alert'))"
    page.page.wait_for_function(held)
    # A window that is asked for later is not held any more.
    let_go = True
    for request in opening:
        request.continue_()
    expect(page.page.get_by_text("it broke", exact=True)).to_be_visible()
    expect(page.page.locator(".toast")).to_have_count(0)


def test_a_conversation_that_is_muted_and_kinds_that_are_off_tell_nothing(page: Tab) -> None:
    page.page.context.add_init_script(NOTIFICATIONS)
    page.begin("to be muted", "to be muted")
    expect(told(page)).to_have_count(1)
    page.choose("Tell me nothing of this one")
    expect(page.page.locator("header.bar")).to_contain_text("muted")
    page.page.reload()
    expect(page.page.locator("header.bar")).to_contain_text("muted")
    page.ask("in silence", "in silence")
    page.open("/settings")
    for label in ("An answer is finished", "An answer failed"):
        page.page.get_by_label(label).uncheck()
    page.page.get_by_label("Sound").check()
    page.page.reload()
    expect(page.page.get_by_label("An answer is finished")).not_to_be_checked()
    expect(page.page.get_by_label("An agent needs you")).to_be_checked()
    expect(page.page.get_by_label("Sound")).to_be_checked()
    page.begin("nothing of this", "nothing of this")
    page.choose("Tell me of every answer here")
    page.ask("but of this", "but of this")
    expect(told(page)).to_have_text(["nothing of this: An answer is finished"])
    page.open("/settings")
    for label in ("An answer is finished", "An answer failed"):
        page.page.get_by_label(label).check()
    page.page.get_by_label("Sound").uncheck()


def test_a_sound_is_heard_where_it_is_wanted_and_differs_for_a_failure(page: Tab) -> None:
    page.page.context.add_init_script(NOTIFICATIONS)
    page.page.context.add_init_script(TONES)
    page.begin("in silence", "in silence")
    expect(told(page)).to_have_count(1)
    assert page.page.evaluate("heard") == []
    page.open("/settings")
    page.page.get_by_label("Sound").check()
    page.begin("and not in silence", "and not in silence")
    expect(told(page)).to_have_count(2)
    finished = page.page.evaluate("heard")
    page.say("!fail no tea")
    expect(told(page)).to_have_count(3)
    failed = page.page.evaluate("heard").copy()[len(finished) :]
    assert len(finished) == len(failed) == 2 and finished != failed
    page.open("/settings")
    page.page.get_by_label("Sound").uncheck()
