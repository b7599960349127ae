"""The list: actions on one row and on several, by mouse, keyboard and finger; projects, tags, filters and the trash."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Browser, Locator, expect
from tests.browser.driver import PHONE, House, Scheme, Tab, apart, tab
from tests.browser.scene import furnish
from tests.browser.test_access import faults


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One store that was used for some weeks; each test has conversations of its own."""
    home: Path = tmp_path_factory.mktemp("home")
    apart(furnish(home / "keryx.db"))
    house = House(home)
    with house.serving():
        yield house


@pytest.fixture
def page(browser: Browser, house: House) -> Iterator[Tab]:
    with tab(browser, house) as opened:
        opened.open()
        expect(opened.rows().first).to_be_visible()
        yield opened


@pytest.fixture
def phone(browser: Browser, house: House) -> Iterator[Tab]:
    with tab(browser, house, size=PHONE, touch=True) as opened:
        opened.open()
        expect(opened.rows().first).to_be_visible()
        yield opened


def row(page: Tab, title: str) -> Locator:
    return page.rows().filter(has_text=title)


def entry(page: Tab, name: str) -> Locator:
    return page.page.get_by_role("menuitem", name=name, exact=True)


def accept(page: Tab, name: str) -> None:
    page.page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


def group_of(page: Tab, title: str) -> str:
    """The heading that a row stands below."""
    script = """link => { let at = link.closest('.session-row').previousElementSibling;
      while (!at.classList.contains('group')) at = at.previousElementSibling; return at.innerText }"""
    return row(page, title).evaluate(script)


def test_the_actions_of_a_row_are_in_its_menu(page: Tab) -> None:
    row(page, "Invoice template").click(button="right")
    entry(page, "Rename").click()
    field = page.page.get_by_role("textbox", name="Title")
    expect(field).to_be_focused()
    field.fill("Invoices")
    field.press("Enter")
    expect(row(page, "Invoices")).to_be_focused()
    row(page, "Invoices").hover()
    page.page.get_by_role("button", name="Actions of Invoices").click()
    entry(page, "Pin").click()
    expect(row(page, "Invoices").locator(".signs")).to_contain_text("pinned")
    assert group_of(page, "Invoices") == "Pinned"
    row(page, "Invoices").click(button="right")
    entry(page, "Export").click()
    with page.page.expect_download() as download:
        accept(page, "Markdown")
    assert download.value.suggested_filename.endswith(".md")
    row(page, "Invoices").click(button="right")
    entry(page, "Move to a project").click()
    page.page.get_by_role("combobox", name="Project").select_option("Operations")
    accept(page, "Move")
    expect(row(page, "Invoices").locator(".in-project")).to_have_text("Operations")
    row(page, "Invoices").click(button="right")
    entry(page, "Archive").click()
    expect(row(page, "Invoices")).to_have_count(0)
    # The notice of the move may still be there, with an undo of its own.
    page.page.locator(".toast", has_text="Archived.").get_by_role("button", name="Undo").click()
    expect(row(page, "Invoices")).to_be_visible()
    assert faults(page) == []


def test_a_row_is_worked_on_by_the_keyboard_alone(page: Tab) -> None:
    keys = page.page.keyboard
    row(page, "Home server backup").focus()
    keys.press("Shift+F10")
    expect(entry(page, "Rename")).to_be_focused()
    keys.press("Escape")
    expect(row(page, "Home server backup")).to_be_focused()
    keys.press("F2")
    keys.type("Backups")
    keys.press("Enter")
    expect(row(page, "Backups")).to_be_focused()
    keys.press("Tab")
    expect(page.page.get_by_role("button", name="Actions of Backups")).to_be_focused()
    keys.press("Shift+Tab")
    keys.press("x")
    expect(page.page.get_by_role("toolbar")).to_contain_text("1 selected")
    keys.press("Shift+ArrowDown")
    expect(page.page.get_by_role("toolbar")).to_contain_text("2 selected")
    keys.press("Escape")
    expect(page.page.get_by_role("toolbar")).to_have_count(0)
    row(page, "Backups").focus()
    keys.press("Delete")
    accept(page, "Delete")
    expect(row(page, "Backups")).to_have_count(0)


def test_leaving_the_field_keeps_a_title_and_escape_does_not(page: Tab) -> None:
    row(page, "Learning Norwegian").click(button="right")
    entry(page, "Rename").click()
    page.page.get_by_role("textbox", name="Title").fill("Norwegian")
    page.page.get_by_role("searchbox").click()
    expect(row(page, "Norwegian")).to_have_count(1)
    row(page, "Norwegian").focus()
    page.page.keyboard.press("F2")
    page.page.keyboard.type("nothing")
    page.page.keyboard.press("Escape")
    expect(row(page, "Norwegian")).to_be_focused()


def test_several_rows_are_changed_at_once(page: Tab) -> None:
    titles = ["Dinner for eight", "Quarterly report", "Why is the build slow?"]
    bar = page.page.get_by_role("toolbar", name="Selected conversations")
    row(page, titles[0]).click(modifiers=["Control"])
    row(page, titles[2]).click(modifiers=["Control"])
    expect(bar).to_contain_text("2 selected")
    row(page, titles[2]).click(modifiers=["Control"])
    row(page, titles[1]).click(modifiers=["Shift"])
    assert page.page.locator(".pick:checked").count() >= 2
    expect(bar.locator(".deeds")).to_have_text("ArchiveMovePinTagsExportDelete")
    lines = page.page.evaluate(
        """() => [...document.querySelectorAll(".session-row:not(.filed) .pick")].map((e) => e.getBoundingClientRect().left)
          .concat(...[...document.querySelectorAll(".group:not(.project-head)")].map((e) => e.getBoundingClientRect().left + parseFloat(getComputedStyle(e).paddingLeft)))"""
    )
    assert len(set(lines)) == 1
    page.press("End the selection (Esc)")
    for title in titles:
        row(page, title).click(modifiers=["Control"])
    bar.get_by_role("button", name="Tags").click()
    page.page.get_by_label("A new tag").fill("to do")
    page.page.get_by_label("A new tag").press("Enter")
    accept(page, "Save")
    for title in titles:
        expect(row(page, title).locator(".tag-mark")).to_have_text("to do")
    for title in titles:
        row(page, title).click(modifiers=["Control"])
    with page.page.expect_download() as download:
        bar.get_by_role("button", name="Export").click()
        accept(page, "JSONL")
    exported = download.value.path().read_text(encoding="utf-8")
    assert all(title in exported for title in titles)
    assert exported.count('"record":"session"') == 3
    bar.get_by_role("button", name="Archive").click()
    for title in titles:
        expect(row(page, title)).to_have_count(0)
    page.press("Undo")
    for title in titles:
        expect(row(page, title)).to_have_count(1)
    row(page, titles[0]).click(modifiers=["Control"])
    row(page, titles[1]).click(modifiers=["Control"])
    bar.get_by_role("button", name="Delete").click()
    accept(page, "Delete")
    expect(row(page, titles[0])).to_have_count(0)
    page.press("Undo")
    expect(row(page, titles[0])).to_have_count(1)


def test_projects_are_sections_that_take_rows_and_stay_closed(page: Tab) -> None:
    section = page.page.locator(".project-head", has_text="Operations")
    fold = section.get_by_role("button", name=re.compile("^Operations"))
    expect(fold).to_have_attribute("aria-expanded", "true")
    assert group_of(page, "Postgres upgrade plan").startswith("Operations")
    page.begin("to be filed", "to be filed")
    filed = page.page.locator(".session-row.filed", has_text="to be filed")
    row(page, "to be filed").hover()
    expect(row(page, "to be filed")).to_have_attribute("draggable", "true")
    row(page, "to be filed").drag_to(section)
    expect(filed).to_be_visible()
    fold.click()
    expect(row(page, "Postgres upgrade plan")).to_have_count(0)
    page.page.reload()
    expect(fold).to_have_attribute("aria-expanded", "false")
    expect(row(page, "to be filed")).to_have_count(0)
    fold.press("Enter")
    row(page, "to be filed").hover()
    expect(row(page, "to be filed")).to_have_attribute("draggable", "true")
    row(page, "to be filed").drag_to(page.page.locator(".group[data-drop='']").first)
    expect(filed).to_have_count(0)
    expect(row(page, "to be filed")).to_have_count(1)
    section.hover()
    page.page.get_by_role("button", name="Actions of the project Operations").click()
    entry(page, "Show only these").click()
    expect(page.page.get_by_role("button", name="Remove the filter Operations")).to_be_visible()
    expect(row(page, "Postgres upgrade plan")).to_have_count(1)


def test_a_filter_is_chosen_typed_taken_back_and_searched_with(page: Tab) -> None:
    all_rows = page.rows().count()
    page.page.get_by_role("button", name="Filter", exact=True).click()
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_role("button", name="terminal").click()
    expect(dialog.get_by_role("button", name="terminal")).to_have_attribute("aria-pressed", "true")
    assert faults(page) == []
    accept(page, "Done")
    expect(page.rows().first).to_contain_text("terminal")
    assert 0 < page.rows().count() < all_rows
    search = page.page.get_by_role("searchbox")
    search.press("Backspace")
    expect(search).to_have_value("surface:cli")
    search.fill("")
    page.filter('surface:web after:30d project:"nothing such"')
    expect(page.page.get_by_text("No conversation fits this choice.")).to_be_visible()
    page.press("Remove the filter nothing such")
    page.press("Remove the filter last 30 days")
    expect(page.rows().first).to_contain_text("web")
    search.fill("version")
    hits = page.page.locator("a.hit")
    expect(hits.first).to_be_visible()
    searched = hits.count()
    page.press("Clear the search (Esc)")
    page.press("Remove the filter web")
    search.fill("version")
    expect(hits.nth(searched)).to_be_visible()
    search.fill("is:pinned")
    search.press("Enter")
    expect(page.page.get_by_role("button", name="Remove the filter Pinned")).to_be_visible()
    expect(page.rows().first.locator(".signs")).to_contain_text("pinned")


def test_a_person_is_a_filter_and_what_comes_later_is_shown(page: Tab, house: House) -> None:
    page.page.get_by_role("button", name="Filter", exact=True).click()
    page.page.get_by_role("dialog").get_by_label("Name", exact=True).fill("bo")
    page.page.get_by_role("dialog").get_by_role("button", name="Bob").click()
    accept(page, "Done")
    expect(page.rows()).to_have_count(1)
    expect(page.rows()).to_contain_text("Garden in spring")
    page.press("Remove the filter Bob")
    page.filter("person:operator surface:cli surface:api")
    expect(row(page, "said from a terminal")).to_have_count(0)
    house.run("send", "--wait", "said from a terminal")
    expect(row(page, "said from a terminal")).to_have_count(1)


def test_all_that_a_filter_matches_is_archived_after_a_look(page: Tab, house: House) -> None:
    for text in ("old plans one", "old plans two"):
        session = page.begin(text, text)
        house.run("sessions", "tag", session, "plans")
    page.filter("tag:plans")
    expect(page.rows()).to_have_count(2)
    page.press("All of these")
    entry(page, "Archive all of these…").click()
    dialog = page.page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Archive 2 conversations?")
    expect(dialog.get_by_role("listitem")).to_have_text(["old plans one", "old plans two"])
    accept(page, "Archive")
    expect(page.page.get_by_text("Archived 2 conversations.")).to_be_visible()
    expect(page.page.get_by_text("No conversation fits this choice.")).to_be_visible()
    page.filter("is:archived")
    expect(page.rows()).to_have_count(2)
    page.press("All of these")
    entry(page, "Delete all of these…").click()
    expect(dialog.get_by_role("heading")).to_have_text("Delete 2 conversations?")
    accept(page, "Delete")
    expect(page.page.get_by_text("Deleted 2 conversations.")).to_be_visible()
    expect(page.page.get_by_text("No conversation fits this choice.")).to_be_visible()


def test_the_trash_gives_back_what_was_deleted_until_it_is_erased(page: Tab) -> None:
    for title in ("Rename the metrics", "Standup notes"):
        row(page, title).click(button="right")
        entry(page, "Delete").click()
        accept(page, "Delete")
        expect(row(page, title)).to_have_count(0)
    page.page.get_by_role("button", name="Screens").click()
    assert faults(page) == []
    page.page.get_by_role("navigation", name="Screens").get_by_role("button", name="Trash").click()
    expect(page.page.get_by_text("Where you were last")).to_have_count(0)
    expect(row(page, "Standup notes")).to_contain_text("until")
    row(page, "Rename the metrics").click()
    entry(page, "Bring back").click()
    expect(row(page, "Rename the metrics")).to_have_count(0)
    row(page, "Standup notes").click(modifiers=["Control"])
    page.page.get_by_role("toolbar").get_by_role("button", name="Erase now").click()
    accept(page, "Erase")
    expect(row(page, "Standup notes")).to_have_count(0)
    page.press("Remove the filter Trash")
    expect(row(page, "Rename the metrics")).to_have_count(1)
    expect(row(page, "Standup notes")).to_have_count(0)


def test_tags_are_renamed_coloured_and_removed(page: Tab, house: House) -> None:
    house.run("sessions", "tag", "Reading list for March", "books", "soon")
    marks = row(page, "Reading list for March").locator(".tag-mark")
    expect(marks).to_have_text(["books", "soon"])
    row(page, "Reading list for March").click(button="right")
    entry(page, "Tags").click()
    accept(page, "Edit tags")
    dialog = page.page.get_by_role("dialog", name="Edit tags")
    dialog.get_by_label("Name of the tag books").fill("novels")
    dialog.get_by_label("Name of the tag books").press("Tab")
    dialog.get_by_label("Colour of novels").select_option("teal")
    dialog.get_by_role("button", name="Remove the tag soon").click()
    accept(page, "Close")
    expect(marks).to_have_text(["novels"])
    expect(marks).to_have_class(re.compile("teal"))


def test_a_turn_is_stopped_from_its_row(page: Tab) -> None:
    page.open("/new")
    page.say("slow 30 one two three")
    expect(page.stop).to_be_visible()
    running = page.rows().filter(has=page.page.locator(".state.running"))
    running.click(button="right")
    entry(page, "Stop the answer").click()
    expect(page.stop).to_have_count(0)


class Finger:
    """One finger on the screen of a phone."""

    def __init__(self, page: Tab) -> None:
        session = page.page.context.new_cdp_session(page.page)
        # The driver gives what the browser's protocol says, which it has no types for.
        self._send = cast(Callable[..., object], session.send)  # pyright: ignore[reportUnknownMemberType]

    def put(self, kind: str, x: float, y: float) -> None:
        self._send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})

    def lift(self) -> None:
        self._send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    def swipe(self, target: Locator, far: int) -> None:
        """Move sideways over a row."""
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        assert box
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.put("touchStart", x, y)
        for step in range(1, 9):
            self.put("touchMove", x + far * step / 8, y)
        self.lift()


def test_a_finger_swipes_holds_and_selects(phone: Tab) -> None:
    title = "Garden in spring"
    finger = Finger(phone)
    finger.swipe(row(phone, title), 40)
    expect(row(phone, title).locator(".signs")).to_contain_text("pinned")
    finger.swipe(row(phone, title), 130)
    expect(row(phone, title).locator(".signs")).not_to_contain_text("pinned")
    finger.swipe(row(phone, title), 130)
    expect(row(phone, title).locator(".signs")).to_contain_text("pinned")
    finger.swipe(row(phone, title), -130)
    expect(row(phone, title)).to_have_count(0)
    phone.press("Undo")
    box = row(phone, title).bounding_box()
    assert box
    finger.put("touchStart", box["x"] + 40, box["y"] + 20)
    expect(entry(phone, "Select")).to_be_visible()
    finger.lift()
    phone.page.keyboard.press("Escape")
    # The menu opens below a finger that stays, which chooses nothing when it is lifted.
    low = phone.rows().last.bounding_box()
    assert low
    finger.put("touchStart", low["x"] + 40, low["y"] + 20)
    expect(entry(phone, "Select")).to_be_visible()
    finger.lift()
    entry(phone, "Select").tap()
    expect(phone.page.get_by_role("toolbar")).to_contain_text("1 selected")
    phone.rows().last.tap()
    expect(phone.page.get_by_role("toolbar")).to_contain_text("2 selected")
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert phone.page.url.endswith("#/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_selection_menus_and_filters_have_no_serious_fault_on_a_phone(
    browser: Browser, house: House, scheme: Scheme
) -> None:
    with tab(browser, house, size=PHONE, touch=True, scheme=scheme) as page:
        page.page.emulate_media(reduced_motion="reduce")
        page.open()
        page.page.locator(".session-row .row-more").first.tap()
        found = faults(page)
        entry(page, "Select").tap()
        found += faults(page)
        bar = page.page.get_by_role("toolbar")
        expect(bar.locator(".deeds")).to_have_text("ArchiveMoveDeleteMore")
        bar.get_by_role("button", name="More").tap()
        entry(page, "Tags").tap()
        page.page.get_by_label("A new tag").fill(scheme)
        accept(page, "Save")
        expect(page.page.locator(".tag-mark", has_text=scheme)).to_be_visible()
        page.filter(f"tag:{scheme}")
        expect(page.rows()).to_have_count(1)
        found += faults(page)
        page.page.get_by_role("button", name="Screens").tap()
        found += faults(page)
        assert found == []
