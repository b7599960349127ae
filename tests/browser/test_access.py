"""Access: axe finds no serious fault on any screen, light and dark, wide and on a phone."""

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import PHONE, WIDE, House, Scheme, Tab, apart, tab
from tests.browser.scene import furnish

from keryx.core.ids import SessionId

SCREENS = (
    *("board", "deliveries", "lanes", "jobs", "pairing", "usage", "settings"),
    *("models", "platforms", "tools", "permissions", "people", "users", "profiles", "guide"),
)


# The other two have the same colours and the same widths as these, in other pairs.
LOOKS = (
    pytest.param("light", WIDE, id="light-wide"),
    pytest.param("dark", PHONE, id="dark-phone"),
    pytest.param("dark", WIDE, id="dark-wide", marks=pytest.mark.slow),
    pytest.param("light", PHONE, id="light-phone", marks=pytest.mark.slow),
)


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, SessionId]]:
    home: Path = tmp_path_factory.mktemp("home")
    session = apart(furnish(home / "keryx.db"))
    house = House(home)
    with house.serving():
        yield house, session


def faults(page: Tab) -> list[str]:
    page.page.evaluate((resources.files("axe_playwright_python") / "axe.min.js").read_text())
    found = page.page.evaluate("axe.run({resultTypes: ['violations']})")
    serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    return [f"{v['id']}: {v['help']}: {[n['target'] for n in v['nodes']][:4]}" for v in serious]


@pytest.mark.parametrize(("scheme", "size"), LOOKS)
def test_no_screen_has_a_serious_fault(
    browser: Browser, furnished: tuple[House, SessionId], scheme: Scheme, size: tuple[int, int]
) -> None:
    house, session = furnished
    found: dict[str, list[str]] = {}
    with tab(browser, house, scheme=scheme, size=size) as page:
        page.page.emulate_media(reduced_motion="reduce")
        for path in ("/", "/new", f"/s/{session}", *(f"/{name}" for name in SCREENS)):
            page.open(path)
            if path.startswith("/s/"):
                expect(page.answers.last).to_be_visible()
            expect(page.page.get_by_text("Live", exact=True)).to_be_attached()
            expect(page.page.get_by_text("Loading…")).to_have_count(0)
            found[path] = faults(page)
        assert not {path: bad for path, bad in found.items() if bad}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_details_dialogs_and_menus_have_no_serious_fault(
    browser: Browser, furnished: tuple[House, SessionId], scheme: Scheme
) -> None:
    house, session = furnished
    found: dict[str, list[str]] = {}
    with tab(browser, house, scheme=scheme) as page:
        page.page.emulate_media(reduced_motion="reduce")
        page.open(f"/s/{session}")
        expect(page.answers.last).to_be_visible()
        page.page.get_by_role("button", name="Details").click()
        expect(page.page.locator(".lineage a")).to_have_count(2)
        found["details"] = faults(page)
        page.page.get_by_role("button", name="Details (i)").click()
        page.page.keyboard.press("Control+k")
        expect(page.page.locator("dialog .option").first).to_be_visible()
        found["palette"] = faults(page)
        page.page.keyboard.press("Escape")
        page.page.get_by_role("button", name="More", exact=True).click()
        found["menu"] = faults(page)
        page.page.keyboard.press("Escape")
        page.composer.fill("/")
        expect(page.page.locator(".menu .option").first).to_be_visible()
        found["commands"] = faults(page)
        page.composer.fill("")
        page.page.get_by_role("searchbox").fill("lease")
        expect(page.page.locator("a.hit").first).to_be_visible()
        found["search"] = faults(page)
    assert not {name: bad for name, bad in found.items() if bad}


@pytest.mark.parametrize(("scheme", "size"), LOOKS)
def test_versions_search_outline_and_edits_have_no_serious_fault(
    browser: Browser, furnished: tuple[House, SessionId], scheme: Scheme, size: tuple[int, int]
) -> None:
    house, _ = furnished
    found: dict[str, list[str]] = {}
    with tab(browser, house, scheme=scheme, size=size) as page:
        page.page.emulate_media(reduced_motion="reduce")
        page.begin("one", "one")
        page.choose("Ask the last question again")
        expect(page.page.get_by_role("group", name="Versions")).to_have_text("2/2")
        found["versions"] = faults(page)
        page.composer.press("ArrowUp")
        field = page.page.get_by_role("textbox", name="The question in other words")
        expect(field).to_be_focused()
        found["edit"] = faults(page)
        field.press("Escape")
        page.page.locator(".message.assistant").hover()
        page.page.get_by_role("button", name="More for this message").last.click()
        found["menu of a message"] = faults(page)
        page.page.keyboard.press("Escape")
        page.choose("Search in this conversation")
        page.page.get_by_role("searchbox", name="Search in this conversation").fill("one")
        expect(page.page.get_by_role("button", name="The next one (Enter)")).to_be_enabled()
        found["search"] = faults(page)
        page.choose("Questions and dates")
        expect(page.page.get_by_role("dialog").get_by_role("button", name="Go", exact=True)).to_be_visible()
        found["outline"] = faults(page)
    assert not {name: bad for name, bad in found.items() if bad}


_RENDERED = """So $x^2$ and more[^1]:

- [x] done
- [ ] open

| a | b |
|:--|--:|
| 1 | 2 |

```python
x = 1
```

```mermaid
flowchart LR
  A[one] -->|text| B{two}
```

[^1]: a note"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_rendered_text_tools_questions_and_waiting_messages_have_no_serious_fault(
    browser: Browser, furnished: tuple[House, SessionId], scheme: Scheme
) -> None:
    house, _ = furnished
    with tab(browser, house, scheme=scheme) as page:
        page.page.emulate_media(reduced_motion="reduce")
        page.open("/new")
        for said in (
            _RENDERED,
            "!tools 5",
            '!tool edit {"path": "a", "old_str": "b", "new_str": "c"}',
            "!ask go on",
        ):
            page.say(said)
            expect(page.questions.last).to_be_visible()
        asked = page.page.get_by_role("region", name="A question of the agent")
        expect(asked).to_be_visible()
        page.page.locator("details.tool:not(.steps) > summary").click()
        page.page.locator("details.steps > summary").click()
        page.page.context.set_offline(True)
        page.say("waits")
        expect(page.page.locator("article .state.unsent")).to_be_visible()
        assert not faults(page)
        page.page.context.set_offline(False)
        expect(page.page.locator("article .state.unsent")).to_have_count(0)
        asked.get_by_role("button", name="Deny").click()
        expect(page.page.get_by_role("region", name="A question of the agent")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_for_strangers_have_no_serious_fault(browser: Browser, house: House, scheme: Scheme) -> None:
    found: dict[str, list[str]] = {}
    token = "a-token-of-some-length"
    with (
        house.serving(KERYX_WEB_TOKEN=token, KERYX_WEB_PUBLIC_ADDRESS=house.address),
        tab(browser, house, scheme=scheme) as page,
    ):
        page.page.emulate_media(reduced_motion="reduce")
        page.open()
        found["sign-in"] = faults(page)
        page.page.get_by_label("Password or token").fill("wrong-token-of-some-length")
        page.press("Sign in")
        expect(page.page.get_by_role("alert")).to_be_visible()
        found["refused"] = faults(page)
        page.page.get_by_label("Password or token").fill(token)
        page.press("Sign in")
        expect(page.page.locator("#app")).to_be_visible()
        page.open("/new")
        page.say(_RENDERED.replace("| a | b |", f"| {'wide' * 60} | b |"))
        expect(page.answers.last).to_be_visible()
        page.choose("Share by a link")
        page.press("Make a link")
        address = page.page.get_by_role("textbox", name="The link").input_value()
        page.page.goto(address)
        table = page.page.locator(".shared table").first
        assert table.evaluate("e => e.scrollWidth > e.clientWidth")
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        expect(table.locator("td").last).to_have_css("text-align", "right")
        found["shared page"] = faults(page)
        page.page.goto(f"{address}x")
        found["error"] = faults(page)
        page.page.goto(f"{house.address}/p/nowhere/")
        expect(page.page.get_by_role("heading", name="There is nothing here")).to_be_visible()
        found["no such profile"] = faults(page)
    assert not {name: bad for name, bad in found.items() if bad}


def test_a_phone_shows_the_list_or_the_conversation(
    browser: Browser, furnished: tuple[House, SessionId]
) -> None:
    house, session = furnished
    with tab(browser, house, size=PHONE, touch=True) as page:
        page.open()
        expect(page.rows().first).to_be_visible()
        expect(page.page.locator("#main")).to_be_hidden()
        page.page.locator(f"a.session[data-id='{session}']").click()
        expect(page.answers.last).to_be_visible()
        expect(page.page.locator("#side")).to_be_hidden()
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.page.get_by_role("button", name="Details").click()
        expect(page.page.get_by_role("complementary", name="Details")).to_be_in_viewport()
        page.page.get_by_role("button", name="Close the details").click()
        page.page.get_by_role("button", name="Back to the list").click()
        expect(page.rows().first).to_be_visible()
        page.page.go_back()
        expect(page.answers.last).to_be_visible()


def test_an_answer_is_announced_when_it_is_whole(page: Tab) -> None:
    page.begin("slow 1 one two three", "one two three")
    expect(page.page.locator("#announce")).to_have_text("Answer: one two three")
    expect(page.page.get_by_role("log")).to_have_attribute("aria-live", "off")
