"""Rendering: tables, code, tasks, formulas, tools and pictures look as they should, and no text is altered."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import House, Tab, apart, tab
from tests.browser.scene import add_steps
from tests.browser.test_talk import PIXEL


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    home = tmp_path_factory.mktemp("home")
    apart(add_steps(home / "keryx.db", "Many steps"))
    house = House(home)
    with house.serving():
        yield house


@pytest.fixture
def page(browser: Browser, shared: House) -> Iterator[Tab]:
    with tab(browser, shared) as opened:
        yield opened


def say(page: Tab, text: str) -> None:
    """Send a text of several lines, and wait for its answer."""
    page.open("/new")
    page.say(text)
    expect(page.answers).not_to_have_count(0)
    expect(page.draft).to_have_count(0)
    expect(page.stop).to_have_count(0)


def test_a_wide_table_scrolls_keeps_its_words_and_aligns_its_columns(page: Tab) -> None:
    words = ["Donaudampfschifffahrt", "interoperability", "characteristically", "misunderstandings"] * 3
    row = "|".join(words)
    say(page, f"|{row}|\n|{'|'.join([':-', ':-:', '-:'] * 4)}|\n|{row}|\n")
    box = page.answers.locator(".wide")
    assert box.evaluate("e => e.scrollWidth > e.clientWidth")
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cells = box.locator("td")
    assert cells.evaluate_all("all => all.every(e => e.clientHeight < 40)")
    for n, side in enumerate(("left", "center", "right")):
        expect(cells.nth(n)).to_have_css("text-align", side)


def test_code_names_its_language_wraps_and_is_copied_exactly(page: Tab) -> None:
    code = f"path = r'C:\\_temp\\*'  # {'long ' * 60}"
    say(page, f"```python\n{code}\n```")
    block = page.answers.locator(".code")
    expect(block.locator(".language")).to_have_text("python")
    pre = block.locator("pre")
    assert pre.evaluate("e => e.scrollWidth > e.clientWidth")
    block.get_by_role("button", name="Wrap").click()
    assert pre.evaluate("e => e.scrollWidth <= e.clientWidth")
    block.get_by_role("button", name="Copy").click()
    expect(block.get_by_role("button", name="Copy")).to_have_text("Copied")
    assert page.page.evaluate("navigator.clipboard.readText()") == f"{code}\n"


def test_tasks_are_boxes_and_formulas_are_drawn_or_shown_as_written(page: Tab) -> None:
    say(page, "- [x] done\n- [ ] open\n\nSo $x^2$ and $\\unknown{y}$ for $5.")
    boxes = page.answers.locator(".task")
    expect(boxes).to_have_text(["[x]", "[ ]"])
    assert boxes.evaluate_all("all => all.map(e => e.clientWidth)") == [12, 12]
    expect(page.answers.locator("math")).to_have_count(1)
    expect(page.answers.locator("p")).to_contain_text(r"$\unknown{y}$ for $5.")


def test_diagrams_are_drawn_above_their_source(page: Tab) -> None:
    say(
        page,
        "```mermaid\nclassDiagram\nA <|-- B : is\n```\n\n```mermaid\nstateDiagram-v2\n[*] --> C\n```\n\n```mermaid\nnonsense\n```",
    )
    drawings = page.answers.locator("figure.diagram svg")
    expect(drawings).to_have_count(2)
    expect(drawings.first.locator("text")).to_have_text(["is", "A", "B"])
    # A wide one is scrolled by the keyboard, too.
    page.answers.locator("figure.diagram").first.focus()
    expect(page.answers.locator("figure.diagram").first).to_be_focused()
    page.page.keyboard.press("Enter")
    larger = page.page.get_by_role("dialog", name="Diagram")
    wide = "(e) => e.getBoundingClientRect().width"
    assert larger.locator("svg").evaluate(wide) > drawings.first.evaluate(wide)
    page.page.keyboard.press("Escape")
    expect(larger).to_have_count(0)
    drawings.first.click()
    larger.get_by_role("button", name="Close").click()
    expect(larger).to_have_count(0)
    for drawing in drawings.all():
        box = drawing.bounding_box()
        assert box is not None and box["width"] > 30 and box["height"] > 60
    expect(page.answers.locator("pre", has_text="nonsense")).to_be_visible()
    page.answers.get_by_text("Mermaid", exact=True).first.click()
    expect(page.answers.locator("pre", has_text="A <|-- B")).to_be_visible()


def test_text_from_right_to_left_stands_so(page: Tab) -> None:
    say(page, "שלום עולם **מודגש**\n\nand English")
    paragraphs = page.answers.locator("p")
    expect(paragraphs.first).to_have_css("direction", "rtl")
    expect(paragraphs.last).to_have_css("direction", "ltr")
    expect(page.page.locator("h1 button")).to_have_css("direction", "rtl")
    expect(page.rows().first.locator(".name")).to_have_css("direction", "rtl")


def test_many_steps_fold_into_one_line_that_opens(page: Tab) -> None:
    say(page, "!tools 12")
    steps = page.page.locator("details.steps")
    expect(steps).to_contain_text("12 steps")
    expect(steps).to_contain_text("done")
    expect(steps.locator("details.tool")).to_have_count(0)
    steps.locator("summary").click()
    expect(steps.locator("details.tool")).to_have_count(12)
    steps.locator("summary").first.click()
    expect(steps.locator("details.tool")).to_have_count(0)
    say(page, "!tools 2")
    expect(page.page.locator("details.tool")).to_have_count(2)
    expect(page.page.locator("details.steps")).to_have_count(0)


def test_steps_of_several_messages_fold_and_keep_their_thoughts_and_actions(page: Tab) -> None:
    page.open()
    page.rows().filter(has_text="Many steps").click()
    steps = page.page.locator("details.steps")
    expect(steps.locator("summary").first).to_contain_text("5 steps")
    folded = page.page.locator("article").filter(has=steps)
    expect(folded.get_by_role("button", name="Copy")).to_have_count(1)
    steps.locator("summary").first.click()
    expect(steps.locator("details.thought")).to_have_count(5)
    expect(steps.locator("details.tool")).to_have_count(5)
    third = steps.locator(".step").nth(2)
    # A thought begins on its line, and what took no time has no duration.
    expect(third.locator(".thought summary")).to_have_attribute(
        "data-beginning", "Renewing is left to the runner, while the model talks."
    )
    expect(steps.locator(".step .muted")).to_have_text(["0.7 s", "1.4 s", "2.1 s", "2.8 s"])
    # All lines end where the first one does, and are not cards of their own.
    ends = "(all) => all.map((e) => Math.round(e.getBoundingClientRect().right))"
    assert len(set(steps.locator(".state").evaluate_all(ends))) == 1
    borders = "(all) => all.map((e) => getComputedStyle(e).borderTopWidth)"
    assert steps.locator(".tool").evaluate_all(borders) == ["0px"] * 5
    third.locator(".thought summary").click()
    expect(third.locator(".thought")).to_contain_text("left to the runner")
    third.hover()
    third.get_by_role("button", name="More for this message").click()
    page.page.get_by_role("menuitem", name="Why: the story of this message").click()
    expect(page.page.get_by_role("dialog", name="The story of this message")).to_be_visible()


def test_a_page_without_encryption_copies_too(page: Tab) -> None:
    page.page.add_init_script(
        "Object.defineProperty(Navigator.prototype, 'clipboard', { get: () => undefined })"
    )
    say(page, "`first` copied\n\n```python\nprint(1)\n```")
    page.answers.get_by_role("button", name="Copy this code").click()
    expect(page.answers.get_by_role("button", name="Copy this code")).to_have_text("Copied")
    page.composer.press("Control+v")
    expect(page.composer).to_have_value("print(1)\n")
    page.composer.fill("")
    page.page.get_by_role("log").focus()
    page.page.keyboard.press("Control+a")
    page.page.keyboard.press("Control+c")
    expect(page.page.get_by_text("Copied as Markdown.")).to_be_visible()
    page.composer.press("Control+v")
    expect(page.composer).to_have_value(re.compile(r"\*\*Agent\*\*(.|\n)*`first` copied"))
    page.composer.fill("")


def test_an_edit_of_a_tool_is_a_diff_and_other_input_stands_under_its_names(page: Tab) -> None:
    given = {"path": "a.py", "count": 2, "old_string": "one\ntwo\nthree", "new_string": "one\n2\nthree"}
    say(page, f"!tool edit {json.dumps(given)}")
    page.page.locator("details.tool summary").click()
    inside = page.page.locator("details.tool .inside")
    expect(inside.locator(".field-name")).to_have_text(["path", "count"])
    expect(inside.locator(".diff").first.locator("div")).to_have_text(["  one", "- two", "+ 2", "  three"])
    expect(inside.locator(".diff .removed")).to_have_text("- two")
    patch = "*** Begin Patch\n*** Update File: a.py\n@@ def one\n-old\n+new\n*** End Patch"
    say(page, f"!tool apply_patch {json.dumps({'command': ['apply_patch', patch]})}")
    page.page.locator("details.tool summary").click()
    expect(inside.locator(".diff").first.locator(".added")).to_have_text("+new")
    expect(inside.locator(".diff").first.locator(".removed")).to_have_text("-old")
    expect(inside.locator(".diff").first.locator(".skipped")).to_have_count(4)


def test_footnotes_lead_to_and_fro_and_parts_open_within_parts(page: Tab) -> None:
    many = "\n\n".join(f"line {n}" for n in range(60))
    say(page, f"a[^1]\n\n{many}\n\n[^1]: the note")
    mark, note = page.answers.locator("#note-from-1"), page.answers.locator("#note-1")
    note.click()
    expect(mark).to_be_focused()
    expect(mark).to_be_in_viewport()
    mark.click()
    expect(note).to_be_focused()
    expect(note).to_be_in_viewport()
    assert "note" not in page.page.url
    say(
        page,
        "<details>\n<summary>outer</summary>\none\n<details><summary>inner</summary>\ntwo\n</details>\n</details>",
    )
    expect(page.answers.get_by_text("one")).to_be_hidden()
    page.answers.get_by_text("outer").click()
    page.answers.get_by_text("inner").click()
    expect(page.answers.get_by_text("two")).to_be_visible()


def test_pictures_have_thumbnails_and_open_in_front_of_the_page(page: Tab, tmp_path: Path) -> None:
    picture, notes = tmp_path / "small.png", tmp_path / "notes.txt"
    picture.write_bytes(PIXEL)
    notes.write_text("x" * 12_345)
    page.begin("files", "files")
    page.page.get_by_label("Files to attach").set_input_files([picture, notes])
    attached = page.page.locator(".attached .attachment")
    expect(attached.locator("img")).to_have_js_property("naturalWidth", 1)
    expect(attached.nth(1)).to_contain_text("12 kB")
    page.ask("look", "look")
    expect(page.page.locator(".message.user .attachment")).to_contain_text("notes.txt12 kB")
    page.page.reload()
    expect(page.page.locator(".message.user .attachment")).to_contain_text("notes.txt12 kB")
    page.page.locator(".message.user .picture").click()
    box = page.page.get_by_role("dialog", name="small.png")
    expect(box.locator("img")).to_be_visible()
    page.page.keyboard.press("Escape")
    expect(box).to_have_count(0)


def test_what_is_wider_than_its_place_shows_that_there_is_more(page: Tab) -> None:
    cells = " | ".join(f"column number {n}" for n in range(12))
    say(page, f"| {cells} |\n|{'--|' * 12}\n| {cells} |")
    box = page.answers.locator(".wide")
    expect(box).to_have_class("wide more-after")
    box.evaluate("e => { e.scrollLeft = 200 }")
    expect(box).to_have_class("wide more-after more-before")
    box.evaluate("e => { e.scrollLeft = 10000 }")
    expect(box).to_have_class("wide more-before")
