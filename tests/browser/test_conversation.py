"""The conversation itself: versions in place, single messages, search, outline, copies, links, and what an answer took."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import PHONE, House, Tab, apart, tab
from tests.browser.long_conversation import fill
from tests.fakes.endpoint import KEY, MODEL, Endpoint, answer
from tests.importers.samples import write_chatgpt


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A home with a conversation of many days, served for the whole module."""
    home = tmp_path_factory.mktemp("home")
    house = House(home)
    (home / "keryx.toml").write_text(f'[web]\npublic_address = "{house.address}"\n')
    apart(fill(home / "keryx.db"))
    with house.serving():
        yield house


@pytest.fixture
def page(browser: Browser, shared: House) -> Iterator[Tab]:
    with tab(browser, shared) as opened:
        yield opened


@pytest.fixture
def phone(browser: Browser, shared: House) -> Iterator[Tab]:
    with tab(browser, shared, size=PHONE, touch=True) as opened:
        yield opened


def test_an_edit_in_place_makes_a_version_and_both_can_be_chosen(page: Tab) -> None:
    session = page.begin("one", "one")
    page.ask("two", "two")
    page.questions.first.hover()
    page.page.get_by_role("button", name="Edit and ask again").first.click()
    field = page.page.get_by_role("textbox", name="The question in other words")
    expect(field).to_have_value("one")
    expect(field).to_be_focused()
    field.press("Escape")
    expect(field).to_have_count(0)
    page.questions.first.hover()
    page.page.get_by_role("button", name="Edit and ask again").first.click()
    field.fill("uno")
    field.press("Control+Enter")
    expect(page.answers).to_have_text(["uno"])
    assert page.session == session
    versions = page.page.get_by_role("group", name="Versions")
    expect(versions).to_have_text("2/2")
    page.ask("due", "due")
    before = page.page.get_by_role("button", name="The version before")
    before.focus()
    before.press("Enter")
    expect(page.answers).to_have_text(["one", "two"])
    expect(versions).to_have_text("1/2")
    expect(page.page.get_by_role("button", name="The next version")).to_be_focused()
    expect(page.page.locator(".folded")).to_have_count(0)
    page.page.reload()
    expect(page.answers).to_have_text(["one", "two"])
    page.page.get_by_role("button", name="The next version").click()
    expect(page.answers).to_have_text(["uno", "due"])
    page.press("Details (i)")
    row = page.page.locator(".lineage .question-versions")
    expect(row).to_contain_text("2/2 uno")
    expect(row.locator("circle")).to_have_count(2)
    expect(row.locator("circle").last).to_have_class("node here")
    page.press("Close the details")


def test_an_edited_answer_is_a_version_that_is_marked(page: Tab) -> None:
    page.begin("one", "one")
    page.do("Edit the answer", page.page.locator(".message.assistant"))
    field = page.page.get_by_role("textbox", name="The answer in other words")
    expect(field).to_have_value("one")
    field.fill("eins **hier**")
    page.page.get_by_role("button", name="Save", exact=True).click()
    expect(page.answers).to_have_text([re.compile("eins hier.*Edited", re.DOTALL)])
    expect(page.questions).to_have_text(["one"])
    expect(page.page.get_by_role("group", name="Versions")).to_have_text("2/2")
    page.ask("two", "two")
    page.page.get_by_role("button", name="The version before").click()
    expect(page.answers).to_have_text(["one"])
    page.page.get_by_role("button", name="The next version").click()
    expect(page.answers).to_have_text([re.compile("eins hier"), "two"])


def test_arrow_up_changes_the_last_question(page: Tab) -> None:
    page.begin("frist", "frist")
    page.composer.press("ArrowUp")
    field = page.page.get_by_role("textbox", name="The question in other words")
    field.fill("first")
    page.page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.answers).to_have_text(["first"])
    expect(page.composer).to_be_focused()
    page.composer.fill("being written")
    page.composer.press("ArrowUp")
    expect(field).to_have_count(0)


def test_an_answer_says_what_it_took_and_is_asked_for_again_with_another_model(
    browser: Browser, house: House
) -> None:
    with Endpoint(answer("from the first"), answer("from the second")) as endpoint:
        models = "".join(
            f'[[models]]\nname = "{name}"\nbase_url = "{endpoint.base_url}"\nid = "{MODEL}"\nkey = "env:TEST_KEY"\n'
            "titles = false\ncontext = 8192\nprices = { input = 2.0, output = 4.0 }\n"
            for name in ("small", "large")
        )
        (house.cli.home / "keryx.toml").write_text(f'currency = "EUR"\n{models}')
        with house.serving(KERYX_AGENT="llm", TEST_KEY=KEY), tab(browser, house) as page:
            page.begin("hello", "from the first")
            facts = page.page.locator(".answer-facts")
            expect(facts).to_contain_text(re.compile(r"small.*s.*tokens.*0\.0000 EUR"))
            ring = page.page.get_by_role("img", name=re.compile("of 8.2k tokens of context"))
            expect(ring.locator(".part")).to_have_attribute("stroke-dasharray", re.compile(r"^0\.\d"))
            page.do("Again with large", page.page.locator(".message.assistant").last)
            expect(page.answers).to_have_text(["from the second"])
            expect(facts).to_contain_text("large")
            expect(page.page.get_by_role("combobox", name="Model")).to_have_value("")
            page.page.get_by_role("button", name="The version before").click()
            expect(page.answers).to_have_text(["from the first"])
            expect(facts).to_contain_text("small")


def test_a_message_is_deleted_restored_and_erased(page: Tab) -> None:
    page.begin("one", "one")
    page.ask("two", "two")
    page.do("Delete this message", page.page.locator(".message.assistant").first)
    expect(page.answers).to_have_text(["two"])
    page.page.get_by_role("status").get_by_role("button", name="Restore").click()
    expect(page.answers).to_have_text(["one", "two"])
    page.do("Erase the text for good", page.page.locator(".message.user").first)
    page.page.get_by_role("dialog").get_by_role("button", name="Erase").click()
    expect(page.questions).to_have_text(["two"])
    page.press("Show")
    expect(page.questions.first).to_have_text("(erased)")


def test_a_search_marks_words_over_the_whole_conversation(page: Tab) -> None:
    page.open()
    page.rows().filter(has_text="Long one").click()
    expect(page.answers.last).to_be_visible()
    page.page.keyboard.press("Control+f")
    field = page.page.get_by_role("searchbox", name="Search in this conversation")
    expect(field).to_be_focused()
    field.fill("needle")
    found = page.page.get_by_role("search").get_by_role("status")
    expect(found).to_have_text("3 of 3")
    expect(page.page.locator("[data-seq='301']")).to_be_visible()
    field.press("Enter")
    expect(found).to_have_text("1 of 3")
    expect(page.page.locator("[data-seq='1']")).to_be_in_viewport()
    marks = "[...CSS.highlights.get('found-here')].map((range) => range.toString().toLowerCase())"
    assert page.page.evaluate(marks) == ["needle"]
    field.press("Shift+Enter")
    expect(found).to_have_text("3 of 3")
    expect(page.page.locator("[data-seq='301']")).to_be_in_viewport()
    field.fill("nothing like this")
    expect(found).to_have_text("Nothing found")
    field.press("Escape")
    expect(field).to_have_count(0)
    assert page.page.evaluate("CSS.highlights.size") == 0


def test_a_search_counts_what_it_marks_and_goes_from_one_to_the_next(page: Tab) -> None:
    said = "The otter. **Otters** and `otter_den`, not blotters."
    page.begin(said, "The otter. Otters and otter_den, not blotters.")
    page.ask("!tool look otter", "look was given otter")
    page.page.keyboard.press("Control+f")
    field = page.page.get_by_role("searchbox", name="Search in this conversation")
    found = page.page.get_by_role("search").get_by_role("status")
    field.fill("otter")
    marks = "(name) => [...CSS.highlights.get(name)].map((range) => range.toString())"

    def lit(name: str) -> list[str]:
        return page.page.evaluate(marks, name)

    expect(found).to_have_text("10 of 10")
    # Two of them are in a tool that is folded.
    assert len(lit("found")) == 7
    assert lit("found-here") == ["otter"]
    place = "[...CSS.highlights.get('found-here')][0].startContainer.parentElement.closest('{0}') !== null"
    for n, where in (
        (9, ".tool pre"),
        (8, ".tool .inside"),
        (7, ".message.user"),
        (6, "code"),
        (5, "strong"),
    ):
        field.press("Shift+Enter")
        expect(found).to_have_text(f"{n} of 10")
        page.page.wait_for_function(place.format(where))
    assert len(lit("found")) == 9
    assert lit("found-here") == ["Otters"]
    for n in (6, 7, 8, 9, 10, 1, 2):
        field.press("Enter")
        expect(found).to_have_text(f"{n} of 10")


def test_the_outline_and_a_date_lead_to_a_message(page: Tab) -> None:
    page.open()
    page.rows().filter(has_text="Long one").click()
    expect(page.answers.last).to_be_visible()
    page.choose("Questions and dates")
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_role("button", name=re.compile("question 40$")).click()
    expect(page.page.locator("[data-seq='79']")).to_be_in_viewport()
    page.choose("Questions and dates")
    first = page.page.get_by_role("dialog")
    first.get_by_label("Go to a date").fill("2026-01-03")
    first.get_by_role("button", name="Go", exact=True).click()
    expect(page.page.locator("[data-seq='41']")).to_be_in_viewport()
    page.choose("To the first message")
    expect(page.page.locator("[data-seq='1']")).to_be_in_viewport()


def test_a_selection_over_many_messages_is_copied_whole_from_the_store(page: Tab) -> None:
    page.open()
    page.rows().filter(has_text="Long one").click()
    expect(page.answers.last).to_be_visible()
    page.page.get_by_role("log").focus()
    page.page.keyboard.press("Control+a")
    page.page.keyboard.press("Control+c")
    expect(page.page.get_by_text("Copied as Markdown.")).to_be_visible()
    copied = page.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("**You**, 2026-01-01 09:00 UTC\n\nneedle")
    assert copied.count("**Agent**") == 160
    assert "answer 7 with **bold**" in copied
    page.page.evaluate(
        """() => {
          const of = (seq) => document.querySelector(`[data-seq="${seq}"] .body`);
          const [first, last] = [...document.querySelectorAll('.talk [data-seq]')].slice(-3).filter((e, i) => i !== 1);
          getSelection().setBaseAndExtent(of(first.dataset.seq), 0, of(last.dataset.seq), 1);
        }"""
    )
    page.page.evaluate("navigator.clipboard.writeText('')")
    page.page.keyboard.press("Control+c")
    some = page.page.evaluate(
        """async () => {
          for (;;) {
            const text = await navigator.clipboard.readText();
            if (text) return text;
            await new Promise((soon) => setTimeout(soon, 20));
          }
        }"""
    )
    assert some.count("**You**") + some.count("**Agent**") == 3


def test_a_conversation_is_shared_read_by_a_stranger_and_revoked(page: Tab, browser: Browser) -> None:
    session = page.begin("Look **here**", "Look here")
    page.choose("Share by a link")
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Make a link").click()
    link = dialog.get_by_role("textbox", name="The link")
    expect(link).to_have_value(re.compile("/share/"))
    stranger = browser.new_context()
    outside = stranger.new_page()
    address = link.input_value()
    shown = outside.goto(address)
    assert shown is not None and shown.status == 200
    expect(outside.locator(".message.user strong")).to_have_text("here")
    expect(outside.locator(".message.user .body")).not_to_have_css("background-color", "rgba(0, 0, 0, 0)")
    assert session not in outside.content()
    dialog.get_by_role("button", name="Revoke").click()
    expect(dialog.get_by_role("button", name="Make a link")).to_be_visible()
    gone = outside.goto(address)
    assert gone is not None and gone.status == 404
    stranger.close()


def test_a_print_has_all_messages_and_nothing_else(page: Tab) -> None:
    page.open()
    page.rows().filter(has_text="Long one").click()
    expect(page.answers.last).to_be_visible()
    page.page.evaluate("() => { window.print = () => { window.printed = true; }; }")
    page.choose("Print, or save as PDF")
    expect(page.page.locator("#paper .trouble")).to_have_count(0)
    expect(page.page.locator("#paper .message")).to_have_count(320)
    page.page.emulate_media(media="print")
    expect(page.page.locator("#app")).to_be_hidden()
    assert len(page.page.pdf()) > 10_000
    page.page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.page.locator("#paper")).to_have_count(0)


def test_files_of_the_folder_and_values_of_commands_are_completed(
    browser: Browser, house: House, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src/main.py").write_text("x")
    (folder / "notes.md").write_text("x")
    with house.serving(), tab(browser, house) as page:
        session = page.begin("one", "one")
        page.page.evaluate(
            "([id, cwd]) => fetch(`/api/sessions/${id}`, {method: 'PATCH', body: JSON.stringify({cwd})})",
            [session, str(folder)],
        )
        page.page.reload()
        page.composer.press_sequentially("look at @mai")
        expect(page.page.locator("#commands [role=option]")).to_have_text(["src/main.py"])
        page.composer.press("Tab")
        expect(page.composer).to_have_value("look at @src/main.py ")
        for typed, found in (
            ("/agent e", ["echo"]),
            ("/model d", ["default"]),
            ("/project n", ["none"]),
            ("/zone Europe/Os", ["Europe/Oslo"]),
            ("/tools o", ["on", "off"]),
            ("/queue c", ["clear"]),
        ):
            page.composer.fill(typed)
            expect(page.page.locator("#commands [role=option]")).to_have_text(found)
        page.composer.fill("/mode r")
        expect(page.page.locator("#commands [role=option]")).to_have_text(["read"])
        page.composer.press("Enter")
        expect(page.composer).to_have_value("/mode read")
        page.composer.press("Enter")
        expect(page.page.locator(".notice").last).to_be_visible()


def test_files_are_imported_on_the_start_screen(page: Tab, tmp_path: Path) -> None:
    session = page.begin("taken along", "taken along")
    exported = page.page.request.get(f"{page.address}/api/sessions/{session}/export?format=jsonl")
    file, other = tmp_path / "keryx.jsonl", tmp_path / "other.json"
    file.write_bytes(exported.body())
    other.write_text('{"nothing": 1}')
    page.open("/new")
    picker = page.page.get_by_label("Files to import")
    picker.set_input_files(file)
    expect(page.page.get_by_text("Everything in keryx.jsonl is here already.")).to_be_visible()
    picker.set_input_files(other)
    expect(page.page.get_by_role("alert")).to_contain_text("no export that Keryx knows")
    page.page.get_by_role("alert").get_by_role("button", name="Close").click()
    drop = """(element) => {
      const data = new DataTransfer();
      data.items.add(new File(['{"nothing": 2}'], "dropped.json"));
      for (const type of ["dragover", "drop"]) element.dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));
    }"""
    page.page.locator("#main .screen").evaluate(drop)
    expect(page.page.get_by_role("alert")).to_contain_text("no export that Keryx knows")


def test_an_export_of_chatgpt_is_dropped_and_its_conversation_goes_on_here(page: Tab, tmp_path: Path) -> None:
    archive = write_chatgpt(tmp_path / "chatgpt")
    page.open("/new")
    drop = """(element, bytes) => {
      const data = new DataTransfer();
      data.items.add(new File([Uint8Array.from(bytes)], "export.zip"));
      for (const type of ["dragover", "drop"]) element.dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));
    }"""
    page.page.locator("#main .screen").evaluate(drop, list(archive.read_bytes()))
    expect(page.page.get_by_text("1 conversation of ChatGPT, 7 messages.")).to_be_visible()
    page.rows().filter(has_text="My talk").click()
    expect(page.questions.first).to_contain_text("hello there")
    expect(page.page.locator(".message.user .picture img").first).to_be_visible()
    expect(page.answers.last).to_contain_text("Tool said tool-ran.")
    page.ask("and on", "and on")


def test_a_conversation_is_exported_from_its_menu(page: Tab) -> None:
    page.begin("export me", "export me")
    for name, begins in (
        ("Markdown", b"# export me"),
        ("Page", b"<!doctype html>"),
        ("JSONL", b"{"),
    ):
        page.choose("Export")
        with page.page.expect_download() as download:
            page.page.get_by_role("dialog").get_by_role("button", name=name).click()
        assert download.value.path().read_bytes().startswith(begins)


def test_a_message_steers_the_running_answer(page: Tab) -> None:
    page.begin("steering", "steering")
    page.say("slow 12 one two three four five six seven eight nine ten")
    expect(page.draft).to_contain_text("one")
    mode = page.page.get_by_role("combobox", name="What a message does while an answer is written")
    mode.select_option("Put into this answer")
    with page.page.expect_request(lambda r: r.url.endswith("/messages") and r.method == "POST") as sent:
        page.say("to the left")
    assert '"busy":"steer"' in (sent.value.post_data or "")
    expect(page.questions.last).to_have_text("to the left")
    expect(page.page.get_by_role("region", name="Waiting messages")).to_have_count(0)
    expect(page.stop).to_have_count(0)


def test_on_a_phone_versions_and_the_search_fit(phone: Tab) -> None:
    phone.begin("one", "one")
    phone.page.locator(".message.assistant .body").tap()
    phone.page.get_by_role("button", name="Ask again").last.click()
    versions = phone.page.get_by_role("group", name="Versions")
    expect(versions).to_have_text("2/2")
    phone.choose("Search in this conversation")
    phone.page.get_by_role("searchbox").fill("one")
    expect(phone.page.get_by_role("search").get_by_role("status")).to_have_text("2 of 2")
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
