"""Design: what stands below each other has the same edges at every width, nothing scrolls sideways, what is touched is
large enough, controls have one look, and nothing is said twice or in the language of programs."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect
from tests.browser.driver import House, Scheme, tab
from tests.browser.gallery import HEIGHTS, VIEWS, furnished, settle, sign_in, tidy
from tests.browser.test_access import faults

SCREENS = ("board", "deliveries", "lanes", "jobs", "usage", "settings", "models", "people", "users")
WIDTHS = (360, 768, 1280, 2560)
# What can be used, is seen, and is smaller than a finger. A link within a sentence is as high as its line.
_SMALL = """() => {
  const seen = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && e.getBoundingClientRect().width > 1;
  const grown = (e, size, one, other) => {
    const after = getComputedStyle(e, "::after");
    return after.content === "none" || after.position !== "absolute" ? size : size - parseFloat(after[one]) - parseFloat(after[other]);
  };
  return [...document.querySelectorAll("button, a[href], input, select, textarea, summary, [role=option]")]
    .filter((e) => seen(e) && !e.closest(".prose, .skip, p:not(:has(> a:only-child)), svg") && !e.matches(".unseen, .attachment, .picture"))
    .filter((e) => {
      const box = e.getBoundingClientRect();
      const label = e.closest("label")?.getBoundingClientRect();
      const high = Math.max(grown(e, box.height, "top", "bottom"), label?.height ?? 0);
      const wide = Math.max(grown(e, box.width, "left", "right"), label?.width ?? 0);
      return high < 43.5 || wide < (e.textContent.trim() ? 24 : 43.5);
    })
    .map((e) => `${e.tagName} ${e.className} ${e.getAttribute("aria-label") ?? e.textContent.slice(0, 30)}`);
}"""
# The screen that the title of the tab names has read what it shows.
_COMPLETE = """() => {
  const title = document.querySelector("header.bar h1")?.textContent;
  return title && document.title.includes(title) && document.querySelectorAll(".inner > *").length > 1
    && !document.body.textContent.includes("Loading…");
}"""
# Where the title begins, and where the column and its parts begin and end. What is folded has no edges,
# and what scrolls sideways on a phone has those of the window.
_EDGES = """() => {
  const edges = (e) => { const { left, right } = e.getBoundingClientRect(); return [Math.round(left), Math.round(right)]; };
  const parts = [...document.querySelectorAll(":is(.sheet, .form-box, .entries, .figures, .chart, .tabs, .empty, .turn-card)")]
    .filter((e) => e.checkVisibility() && !e.closest("details") && !(innerWidth < 720 && e.matches(".tabs")));
  return [edges(document.querySelector("header.bar h1"))[0], edges(document.querySelector(".inner")), Object.fromEntries(parts.map((e) => [e.className, edges(e)]))];
}"""
# What stands out of the window, and out of everything that scrolls.
_OUTSIDE = """() => [...document.querySelectorAll("body *")].filter((e) => {
  const box = e.getBoundingClientRect();
  if (!box.width || !e.checkVisibility() || box.right <= innerWidth + 1) return false;
  for (let up = e.parentElement; up; up = up.parentElement) if (getComputedStyle(up).overflowX !== "visible" && up.getBoundingClientRect().right <= innerWidth + 1 && !up.matches(".screen, .talk, #main, #app, body, html")) return false;
  return true;
}).map((e) => `${e.tagName} ${e.className}`)"""


# What scrolls sideways without being made for it, and choices whose words cannot be read.
_SQUEEZED = """() => [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && (
  e.matches("select") ? e.clientWidth < 64 : e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(e).overflowX)
    && !e.matches(".tabs, .wide, pre, .diff, figure, math, textarea, input")
)).map((e) => `${e.tagName} ${e.className}`)"""


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, dict[str, str]]]:
    with furnished(tmp_path_factory.mktemp("home")) as opened:
        yield opened


def edges(found: Locator) -> tuple[int, int]:
    """The left and the right edge of what is written in an element."""
    expect(found.first).to_be_visible()
    left, right = found.first.evaluate(
        """(e) => {
          const box = e.getBoundingClientRect();
          const style = getComputedStyle(e);
          return [box.left + parseFloat(style.paddingLeft), box.right - parseFloat(style.paddingRight)];
        }"""
    )
    return round(left), round(right)


def frame(found: Locator) -> tuple[int, int]:
    expect(found.first).to_be_visible()
    box = found.first.bounding_box()
    assert box
    return round(box["x"]), round(box["x"] + box["width"])


@pytest.mark.parametrize("width", WIDTHS)
def test_edges_align(browser: Browser, gallery: tuple[House, dict[str, str]], width: int) -> None:
    house, paths = gallery
    phone = width < 720
    with tab(browser, house, size=(width, HEIGHTS[width]), touch=phone) as page:
        sign_in(page)
        page.open(paths["story"])
        expect(page.answers.last).to_be_visible()
        column = frame(page.page.locator(".talk .column"))
        assert frame(page.page.locator(".composer .box")) == column
        if not phone:
            assert edges(page.page.locator("header.bar h1 button"))[0] == column[0]
        assert column[1] - column[0] <= 76 * 10
        page.open("/new")
        expect(page.page.locator(".welcome .card").first).to_be_visible()
        assert frame(page.page.locator(".welcome .card")) == frame(page.page.locator(".composer .box"))
        assert frame(page.page.locator(".welcome h1"))[0] == frame(page.page.locator(".composer .box"))[0]
        below = page.page.locator(".composer .box").bounding_box()
        last = page.page.locator(".welcome .card").last.bounding_box()
        assert below and last and (width < 1280 or last["y"] + last["height"] < below["y"])
        expect(page.page.get_by_text("Ctrl K finds")).to_have_count(0 if phone else 1)
        for name in SCREENS:
            page.page.goto("about:blank")
            page.open(f"/{name}")
            page.page.wait_for_function(_COMPLETE)
            title, inner, parts = page.page.evaluate(_EDGES)
            side = 304 if width > 900 else 264 if not phone else 0
            assert inner[0] - side == width - inner[1], name
            assert phone or title == inner[0], name
            assert parts
            assert {part: found for part, found in parts.items() if found != inner} == {}, name


@pytest.mark.parametrize("scheme", [pytest.param("dark"), pytest.param("light", marks=pytest.mark.slow)])
def test_every_screen_fits_a_phone_and_a_finger(
    browser: Browser, gallery: tuple[House, dict[str, str]], scheme: Scheme
) -> None:
    house, paths = gallery
    found: dict[str, list[str]] = {}
    with tab(browser, house, size=(360, 740), scheme=scheme, touch=True) as page:
        page.page.emulate_media(reduced_motion="reduce")
        sign_in(page)
        for name, view in VIEWS.items():
            view(page, paths)
            settle(page)
            wrong: list[str] = [f"too small: {e}" for e in page.page.evaluate(_SMALL)]
            wrong += [f"outside: {e}" for e in page.page.evaluate(_OUTSIDE)]
            wrong += [f"squeezed: {e}" for e in page.page.evaluate(_SQUEEZED)]
            if page.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wrong.append("scrolls sideways")
            if "`" in page.page.locator("body").inner_text():
                wrong.append("a backtick")
            if wrong:
                found[name] = wrong
            tidy(page)
            page.page.goto("about:blank")
    assert not found, "\n".join(f"{name}: {w}" for name, bad in found.items() for w in bad)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [768, 2560])
def test_every_view_is_without_serious_faults(
    browser: Browser, gallery: tuple[House, dict[str, str]], scheme: Scheme, width: int
) -> None:
    house, paths = gallery
    found: dict[str, list[str]] = {}
    with tab(browser, house, size=(width, HEIGHTS[width]), scheme=scheme) as page:
        page.page.emulate_media(reduced_motion="reduce")
        sign_in(page)
        for name, view in VIEWS.items():
            view(page, paths)
            settle(page)
            wrong = faults(page)
            if page.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wrong.append("scrolls sideways")
            if wrong:
                found[name] = wrong
            tidy(page)
            page.page.goto("about:blank")
    assert not found, "\n".join(f"{name}: {w}" for name, bad in found.items() for w in bad)


def test_controls_have_one_look(browser: Browser, gallery: tuple[House, dict[str, str]]) -> None:
    house, paths = gallery
    with tab(browser, house) as page:
        sign_in(page)
        for path in ("/settings", "/jobs", "/new", "/tools"):
            page.open(path)
            settle(page)
            if path == "/tools":
                page.press("Add a server")
            native = page.page.locator("select, input[type=checkbox], input[type=radio]").evaluate_all(
                "all => all.filter((e) => e.isConnected && getComputedStyle(e).appearance !== 'none').map((e) => e.outerHTML)"
            )
            assert native == []
        page.open(paths["story"])
        expect(page.answers.last).to_be_visible()
        colours = page.page.evaluate(
            "['--said', '--tint', '--hover'].map((name) => getComputedStyle(document.documentElement).getPropertyValue(name))"
        )
        assert len(set(colours)) == 3


def test_the_palette_begins_with_what_can_be_done(
    browser: Browser, gallery: tuple[House, dict[str, str]]
) -> None:
    house, paths = gallery
    with tab(browser, house) as page:
        sign_in(page)
        page.open(paths["story"])
        expect(page.answers.last).to_be_visible()
        page.page.keyboard.press("Control+k")
        palette = page.page.get_by_role("dialog")
        expect(palette.locator("h3")).to_have_text(["Do", "Conversations", "Go to"])
        expect(palette.get_by_role("option").first).to_have_text("Ask the last question again")
        # The conversations are in sight without scrolling.
        expect(palette.locator("h3", has_text="Conversations")).to_be_in_viewport(ratio=1)
        expect(palette.get_by_role("option").nth(5)).to_be_in_viewport(ratio=1)
        page.page.keyboard.type("undo")
        expect(palette.get_by_role("option").first).to_have_text("Undo the last turn")
        page.page.keyboard.press("Control+a")
        page.page.keyboard.type("learning")
        expect(palette.get_by_role("option").first).to_have_text("TgLearning Norwegian")
        page.page.keyboard.press("Escape")


def test_the_tabs_of_the_settings_stay_in_place_and_show_the_current_one(
    browser: Browser, gallery: tuple[House, dict[str, str]]
) -> None:
    house, _ = gallery
    with tab(browser, house, size=(360, 740), touch=True) as page:
        sign_in(page)
        tabs = page.page.get_by_role("navigation", name="Settings")
        places: set[float] = set()
        for name in ("models", "platforms", "permissions", "guide"):
            page.open(f"/{name}")
            settle(page)
            box = tabs.bounding_box()
            assert box
            places.add(box["y"])
            current = tabs.locator("[aria-current]").bounding_box()
            assert current and current["x"] >= box["x"] - 1
            assert current["x"] + current["width"] <= box["x"] + box["width"] + 1
        assert len(places) == 1
    with tab(browser, house) as page:
        sign_in(page)
        page.open("/users")
        screens = page.page.get_by_role("navigation", name="Screens")
        expect(screens.locator("[aria-current]")).to_have_text("Settings")
        # Deliveries in trouble stand there as well, within the side.
        expect(screens.get_by_role("link")).to_have_count(2)
        assert frame(screens.get_by_role("link").last)[1] <= frame(page.page.locator("#side"))[1]


def test_a_form_that_is_opened_is_in_sight_on_a_phone_and_the_only_one(
    browser: Browser, gallery: tuple[House, dict[str, str]]
) -> None:
    house, _ = gallery
    with tab(browser, house, size=(360, 740), touch=True) as page:
        sign_in(page)
        for path, button in (
            ("/models", "Add a model"),
            ("/tools", "Add a server"),
            ("/tools", "Add an agent"),
            ("/jobs", "Add a job"),
            ("/profiles", "Add a profile"),
        ):
            page.page.goto("about:blank")
            page.open(path)
            page.page.get_by_role("button", name=button).tap()
            form = page.page.get_by_role("form", name=button)
            expect(form.locator(".field").first).to_be_focused()
            expect(form.get_by_role("heading")).to_be_in_viewport()
            expect(page.page.locator("#main").get_by_role("button", name="Add a", exact=False)).to_have_count(
                0
            )


def test_dialogs_are_sheets_on_a_phone_and_titles_have_two_lines(
    browser: Browser, gallery: tuple[House, dict[str, str]]
) -> None:
    house, paths = gallery
    with tab(browser, house, size=(360, 740), touch=True) as page:
        sign_in(page)
        page.page.get_by_role("button", name="Filter", exact=True).tap()
        box = page.page.get_by_role("dialog").bounding_box()
        assert box and (box["x"], box["width"], box["y"] + box["height"]) == (0, 360, 740) and box["y"] >= 24
        dates = [date.bounding_box() for date in page.page.locator("input[type=date]").all()]
        since, before = (found for found in dates if found)
        assert since["x"] == before["x"] and since["y"] + since["height"] < before["y"]
        assert max(found["x"] + found["width"] for found in (since, before)) < 360
        page.press("Done")
        page.open(paths["story"])
        title = page.page.locator("header.bar h1 button")
        expect(title).to_have_text("Restarts of the billing worker")
        assert title.evaluate("e => e.scrollHeight <= e.clientHeight && e.scrollWidth <= e.clientWidth")


def test_what_was_granted_is_not_broken_within_words_on_a_phone(
    browser: Browser, gallery: tuple[House, dict[str, str]]
) -> None:
    house, _ = gallery
    with tab(browser, house, size=(360, 740), touch=True) as page:
        sign_in(page)
        page.open("/permissions")
        rules = page.page.get_by_role("list", name="Permissions").locator("code")
        expect(rules).to_have_count(2)
        assert rules.evaluate_all("all => all.every((e) => e.clientHeight < 28)")


def test_a_menu_is_short_and_on_a_phone_a_sheet_within_the_screen(
    browser: Browser, gallery: tuple[House, dict[str, str]]
) -> None:
    house, paths = gallery
    with tab(browser, house, size=(360, 420), touch=True) as page:
        sign_in(page)
        page.open(paths["story"])
        more = page.page.get_by_role("button", name="More", exact=True)
        more.tap()
        menu = page.page.get_by_role("menu", name="Restarts of the billing worker")
        entries = menu.get_by_role("menuitem")
        expect(entries.last).to_have_text("Delete")
        expect(entries.last).to_have_class("danger")
        assert entries.count() <= 10
        entries.last.scroll_into_view_if_needed()
        box = menu.bounding_box()
        assert box and (box["x"], box["y"] + box["height"], box["width"]) == (0, 420, 360) and box["y"] > 44
        menu.get_by_role("menuitem", name="More", exact=True).tap()
        expect(menu.get_by_role("menuitem", name="Undo the last turn")).to_be_visible()
        menu.get_by_role("menuitem", name="Back").tap()
        expect(entries.last).to_have_text("Delete")
        page.page.touchscreen.tap(40, 30)
        expect(menu).to_have_count(0)
        expect(page.page.get_by_role("log")).to_be_visible()
        more.tap()
        menu.get_by_role("menuitem", name="More", exact=True).press("ArrowRight")
        expect(menu.get_by_role("menuitem", name="Back")).to_be_focused()
        page.page.keyboard.press("ArrowLeft")
        expect(menu.get_by_role("menuitem", name="More", exact=True)).to_be_focused()
        page.page.keyboard.press("Escape")
        expect(more).to_be_focused()


def test_a_toast_covers_neither_the_details_nor_the_composer(
    browser: Browser, gallery: tuple[House, dict[str, str]]
) -> None:
    house, paths = gallery
    with tab(browser, house) as page:
        sign_in(page)
        page.open(paths["story"])
        page.press("Details (i)")
        expect(page.page.locator("#details")).to_contain_text("Turns3")
        page.choose("Archive")
        toast = frame(page.page.locator(".toast"))
        assert toast[1] <= frame(page.page.locator("#details"))[0]
        box = page.page.locator(".composer .box").bounding_box()
        covering = page.page.locator(".toast").bounding_box()
        assert box and covering and covering["y"] + covering["height"] < box["y"]
        page.press("Undo")
        expect(page.rows().filter(has_text="Restarts of the billing worker")).to_have_count(1)
        tidy(page)


def test_the_page_names_what_really_answers(browser: Browser, gallery: tuple[House, dict[str, str]]) -> None:
    house, _ = gallery
    with tab(browser, house) as page:
        sign_in(page)
        page.open("/new")
        # Models are set up, but the agent in force does not use them.
        expect(page.page.get_by_text("Answered by echo, the offline agent.")).to_be_visible()
        expect(page.page.get_by_title("What answers here")).to_have_text("echo")
        expect(page.page.get_by_role("combobox", name="Model")).to_have_count(0)
        expect(page.page.get_by_text("Only the offline agent answers now.")).to_have_count(0)


def test_choices_of_the_field_are_as_large_as_what_stands_beside_them(
    browser: Browser, gallery: tuple[House, dict[str, str]]
) -> None:
    house, _ = gallery
    look = "(e) => getComputedStyle(e).fontSize"
    with tab(browser, house, size=(360, 740), touch=True) as page:
        sign_in(page)
        page.open("/new")
        page.say("slow 60 one two three four five six seven eight nine ten")
        mode = page.page.locator(".picker.mode")
        expect(mode).to_have_text(re.compile("^Send as usual"))
        assert mode.locator(".cut").evaluate(look) == "13px"
        mode.get_by_role("combobox").select_option("Answer this next")
        expect(mode.locator(".cut")).to_have_text("Answer this next")
        # Phones zoom to a field with smaller letters.
        assert mode.get_by_role("combobox").evaluate(look) == "16px"
        page.stop.click()
        expect(page.stop).to_have_count(0)
        page.composer.fill("/")
        starts = "(all) => all.map((e) => Math.round(e.children[1].getBoundingClientRect().left))"
        expect(page.page.locator("#commands .option").first).to_be_visible()
        assert len(set(page.page.locator("#commands .option").evaluate_all(starts))) == 1
        page.composer.fill("")
