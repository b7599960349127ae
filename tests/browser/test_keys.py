"""Keys: everything that a mouse does, without one."""

from playwright.sync_api import Browser, Route, expect
from tests.browser.driver import PHONE, House, Tab, tab


def test_a_conversation_without_a_mouse(page: Tab) -> None:
    page.open()
    keyboard = page.page.keyboard
    expect(page.composer).to_be_focused()
    keyboard.type("first thing")
    keyboard.press("Enter")
    expect(page.answers).to_have_text(["first thing"])
    keyboard.type("two")
    keyboard.press("Shift+Enter")
    keyboard.type("lines")
    keyboard.press("Enter")
    expect(page.questions.last).to_have_text("two\nlines", use_inner_text=True)
    expect(page.draft).to_have_count(0)
    keyboard.press("Escape")
    keyboard.press("n")
    expect(page.composer).to_be_focused()
    keyboard.type("second thing")
    keyboard.press("Enter")
    expect(page.answers).to_have_text(["second thing"])
    keyboard.press("Escape")
    keyboard.press("j")
    expect(page.rows().first).to_be_focused()
    keyboard.press("j")
    expect(page.rows().nth(1)).to_be_focused()
    keyboard.press("Enter")
    expect(page.answers.first).to_have_text("first thing")
    keyboard.press("Escape")
    keyboard.press("p")
    expect(page.page.locator(".group").first).to_have_text("Pinned")
    keyboard.press("i")
    expect(page.page.get_by_role("complementary", name="Details")).to_be_visible()
    keyboard.press("Escape")
    expect(page.page.get_by_role("complementary", name="Details")).to_be_hidden()
    keyboard.press("e")
    expect(page.rows()).to_have_count(1)


def test_enter_makes_a_new_line_on_a_touch_screen_and_no_field_makes_it_zoom(
    browser: Browser, served: House
) -> None:
    with tab(browser, served, size=PHONE, touch=True) as page:
        page.open("/new")
        expect(page.composer).to_have_attribute("enterkeyhint", "enter")
        page.composer.press_sequentially("two")
        page.composer.press("Enter")
        page.composer.press_sequentially("lines")
        expect(page.composer).to_have_value("two\nlines")
        small = """fields => fields.filter(f => parseFloat(getComputedStyle(f).fontSize) < 16).map(f => f.outerHTML)"""
        for path in ("/new", "/jobs", "/settings", "/models"):
            page.open(path)
            expect(page.page.get_by_text("Loading…")).to_have_count(0)
            assert page.page.locator("input, textarea, select").evaluate_all(small) == []
        page.open("/new")
        page.page.get_by_role("button", name="Send").click()
        expect(page.questions.last).to_have_text("two\nlines", use_inner_text=True)


def test_undo_and_retry_by_key(page: Tab) -> None:
    page.begin("hello", "hello")
    page.composer.press("Escape")
    page.page.keyboard.press("u")
    expect(page.page.get_by_text("undone")).to_be_visible()
    expect(page.composer).to_be_focused()
    expect(page.composer).to_have_value("hello")
    page.composer.press("Enter")
    expect(page.answers.last).to_have_text("hello")
    expect(page.draft).to_have_count(0)
    page.composer.press("Escape")
    page.page.keyboard.press("r")
    expect(page.page.get_by_role("group", name="Versions")).to_have_text("2/2")
    expect(page.answers).to_have_text(["hello"])


def test_what_is_typed_before_the_palette_is_there_is_meant_for_it(page: Tab) -> None:
    page.begin("rivers of Norway", "rivers of Norway")
    held: list[Route] = []
    page.page.route("**/palette*", lambda route: held.append(route))
    page.composer.focus()
    with page.page.expect_request("**/palette*"):
        page.page.keyboard.press("Control+k")
    page.page.keyboard.type("rivx")
    page.page.keyboard.press("Backspace")
    expect(page.composer).to_have_value("")
    held[0].continue_()
    palette = page.page.get_by_role("dialog", name="Command palette")
    expect(palette.get_by_role("combobox")).to_have_value("riv")
    page.page.keyboard.type("ers")
    expect(palette.get_by_role("option").first).to_contain_text("rivers of Norway")
    page.page.keyboard.press("Escape")
    page.ask("and on", "and on")


def test_the_palette_finds_conversations_and_commands(page: Tab) -> None:
    page.begin("rivers of Norway", "rivers of Norway")
    page.begin("lakes of Finland", "lakes of Finland")
    page.page.keyboard.press("Control+k")
    palette = page.page.get_by_role("dialog", name="Command palette")
    palette.get_by_role("combobox").press_sequentially("rivers")
    expect(palette.get_by_role("option").first).to_contain_text("rivers of Norway")
    page.page.keyboard.press("Enter")
    expect(page.answers).to_have_text(["rivers of Norway"])
    page.page.keyboard.press("Control+k")
    # Two keys lead to the other conversation, and ask nothing again.
    expect(palette.locator("[aria-selected=true]")).to_contain_text("lakes of Finland")
    page.page.keyboard.press("Enter")
    expect(page.answers).to_have_text(["lakes of Finland"])
    page.page.keyboard.press("Control+k")
    expect(palette.get_by_text("Go to Chat platforms")).to_have_count(0)
    palette.get_by_role("combobox").press_sequentially("platforms")
    expect(palette.get_by_role("option").first).to_contain_text("Go to Chat platforms")
    palette.get_by_role("combobox").fill("")
    palette.get_by_role("combobox").press_sequentially("theme dark")
    page.page.keyboard.press("Enter")
    expect(page.page.locator("html")).to_have_attribute("data-theme", "dark")
    page.page.reload()
    expect(page.page.locator("html")).to_have_attribute("data-theme", "dark")


def test_search_is_reached_left_and_walked_by_key(page: Tab) -> None:
    page.begin("rivers of **Norway**", "rivers of Norway")
    page.composer.press("Escape")
    shown = page.page.get_by_role("search").locator("kbd")
    expect(shown).to_be_visible()
    page.page.keyboard.press(shown.inner_text())
    expect(page.page.get_by_role("searchbox")).to_be_focused()
    page.page.keyboard.type("norw")
    hits = page.page.locator("a.hit")
    expect(hits.first.locator("mark").first).to_have_text("Norway")
    # One conversation stands there once: its title with the first message, then the others.
    expect(page.page.locator(".hits")).to_have_count(1)
    expect(hits).to_have_count(2)
    expect(hits.first).to_contain_text("2 messages")
    expect(hits.nth(1).locator(".snippet")).to_have_text("rivers of Norway")
    page.page.keyboard.press("ArrowDown")
    expect(hits.first).to_be_focused()
    page.page.keyboard.press("ArrowDown")
    expect(hits.nth(1)).to_be_focused()
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("Escape")
    expect(hits).to_have_count(0)


def test_the_map_of_keys(page: Tab) -> None:
    page.open("/board")
    expect(page.page.get_by_role("heading", name="Nothing runs now")).to_be_visible()
    page.page.keyboard.press("?")
    expect(page.page.get_by_role("dialog", name="Keys")).to_contain_text("Ctrl K")
    page.page.keyboard.press("Escape")
    expect(page.page.get_by_role("dialog")).to_have_count(0)
