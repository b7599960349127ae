"""A conversation in the browser: begin, stream, stop, queue, retry, edit, undo, and what is kept."""

import re
from pathlib import Path

from playwright.sync_api import Browser, Route, expect
from tests.browser.driver import House, Tab, tab
from tests.fakes.endpoint import KEY, MODEL, Endpoint, answer, throttled

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f01f0005"
    "0001ff6b9d2b900000000049454e44ae426082"
)


def test_the_first_page_says_what_to_do_next(page: Tab) -> None:
    page.open()
    expect(page.page.get_by_role("heading", name="Keryx is running")).to_be_visible()
    for title in ("Talk now", "Connect a better model", "Connect a chat"):
        expect(page.page.get_by_role("heading", name=title)).to_be_visible()
    # The field for it stands below.
    expect(page.page.get_by_role("link", name="Begin a conversation")).to_have_count(0)
    below = page.page.locator(".composer .box").bounding_box()
    last = page.page.locator(".welcome .card").last.bounding_box()
    assert below and last and last["y"] + last["height"] < below["y"]
    expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
    assert len(page.first_load) < 12, "\n".join(page.first_load)
    page.ask("hello there", "hello there")
    expect(page.questions).to_have_text(["hello there"])
    expect(page.rows()).to_have_count(1)
    expect(page.page.get_by_title("What answers here")).to_have_text("echo")
    expect(page.rows().first).to_contain_text("hello there")


def test_an_answer_streams_and_stays(page: Tab) -> None:
    page.open("/new")
    page.say("slow 3 one two **three** four five six")
    expect(page.draft).to_contain_text("one")
    expect(page.stop).to_be_visible()
    expect(page.rows().first).to_contain_text("running")
    # It has no title yet.
    for named in (page.rows().first, page.page.locator("header h1")):
        expect(named).to_contain_text("slow 3 one two three four five six")
    expect(page.page).to_have_title("slow 3 one two three four five six · Keryx")
    expect(page.answers.last).to_have_text("one two three four five six")
    expect(page.answers.last.locator("strong")).to_have_text("three")
    expect(page.stop).to_have_count(0)
    page.page.reload()
    expect(page.answers).to_have_text(["one two three four five six"])
    expect(page.questions).to_have_count(1)


def test_a_stopped_answer_keeps_what_was_said(page: Tab) -> None:
    page.open("/new")
    page.say("slow 60 one two three four five six seven eight nine ten eleven twelve")
    expect(page.draft).to_contain_text("one")
    page.stop.click()
    expect(page.page.locator(".sign.cancelled")).to_have_text("Stopped")
    expect(page.answers.last).to_contain_text("one")
    expect(page.draft).to_have_count(0)
    page.ask("go on", "go on")


def test_messages_wait_while_an_answer_is_written(page: Tab) -> None:
    page.open("/new")
    page.say("slow 6 one two three four")
    expect(page.draft).to_contain_text("one")
    for text in ("second", "third", "fourth"):
        page.say(text)
    queue = page.page.get_by_role("region", name="Waiting messages")
    expect(queue.locator("li")).to_have_count(3)
    queue.locator("li", has_text="fourth").get_by_role("button", name=re.compile("Edit")).click()
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("fourth, edited")
    dialog.get_by_role("button", name="Save").click()
    queue.locator("li", has_text="third").get_by_role("button", name=re.compile("Remove")).click()
    expect(queue.locator("li")).to_have_text(["second", "fourth, edited"])
    expect(page.page.locator(".sign.withdrawn")).to_have_text(["Withdrawn before it was answered"])
    expect(page.answers).to_have_text(["one two three four", "second", "fourth, edited"])
    expect(queue).to_have_count(0)


def test_a_question_is_asked_again_and_taken_back(page: Tab) -> None:
    page.begin("first", "first")
    page.ask("second", "second")
    page.choose("Undo the last turn")
    expect(page.page.get_by_text("messages undone")).to_be_visible()
    expect(page.composer).to_have_value("second")
    expect(page.answers).to_have_text(["first"])
    page.page.get_by_role("button", name="Show", exact=True).click()
    expect(page.answers).to_have_text(["first", "second"])
    page.choose("Redo")
    expect(page.page.get_by_text("messages undone")).to_have_count(0)
    expect(page.answers).to_have_text(["first", "second"])
    page.choose("Ask the last question again")
    expect(page.page.get_by_role("group", name="Versions")).to_have_text("2/2")
    expect(page.answers).to_have_text(["first", "second"])
    expect(page.page.locator(".folded")).to_have_count(0)


def test_edit_and_fork_leave_the_original_as_it_is(page: Tab) -> None:
    original = page.begin("one", "one")
    page.ask("two", "two")
    page.do("Edit and ask in a copy", page.page.locator(".message.user").last)
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("two, but better")
    dialog.get_by_role("button", name="Ask in a copy").click()
    expect(page.answers).to_have_text(["one", "two, but better"])
    assert page.session != original
    expect(page.page.get_by_text("Forked here from")).to_be_visible()
    page.open(f"/s/{original}")
    expect(page.answers).to_have_text(["one", "two"])
    page.do("Fork from here", page.page.locator(".message.assistant").first)
    expect(page.answers).to_have_text(["one"])
    assert page.session != original
    page.press("Details")
    expect(page.page.get_by_role("complementary", name="Details").locator(".lineage a")).to_have_count(3)


def test_what_is_typed_is_kept(page: Tab) -> None:
    page.begin("hello", "hello")
    page.composer.fill("half a sentence")
    expect(page.page.get_by_text("Draft saved")).to_be_visible()
    page.page.reload()
    expect(page.composer).to_have_value("half a sentence")
    page.open("/new")
    expect(page.composer).to_have_value("")


def test_commands_are_completed_and_answered(page: Tab) -> None:
    page.begin("hello", "hello")
    page.composer.press_sequentially("/sta")
    expect(page.page.get_by_role("listbox", name="Commands").get_by_role("option")).to_have_count(1)
    page.page.keyboard.press("Tab")
    expect(page.composer).to_have_value("/status ")
    expect(page.composer).to_be_focused()
    page.page.keyboard.press("Enter")
    expect(page.composer).to_be_focused()
    expect(page.page.locator(".notice").last).to_contain_text("2 messages in 1 turn")
    expect(page.questions).to_have_count(1)
    page.say("/title Rivers and lakes")
    expect(page.page.get_by_role("heading", name="Rivers and lakes")).to_be_visible()


def test_a_title_is_removed_by_an_empty_field_and_the_folder_changed(page: Tab) -> None:
    page.begin("hello", "hello")
    page.say("/title Rivers and lakes")
    page.page.get_by_role("button", name="Rivers and lakes, rename").click()
    field = page.page.get_by_role("textbox", name="Title")
    field.fill("")
    field.press("Enter")
    expect(page.page.get_by_role("heading", name="hello")).to_be_visible()
    for folder in ("/srv/lakes", ""):
        page.choose("Change the folder")
        dialog = page.page.get_by_role("dialog")
        before = "" if folder else "/srv/lakes"
        expect(dialog.get_by_role("textbox")).to_have_value(before)
        dialog.get_by_role("textbox").fill(folder)
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_have_count(0)


def test_tools_and_reasoning_are_folded(page: Tab) -> None:
    page.begin("!think rivers", "ThoughtThey said: riversrivers")
    page.page.get_by_text("Thought", exact=True).click()
    expect(page.page.get_by_text("They said: rivers")).to_be_visible()
    page.say('!tool search {"q": "oslo"}')
    card = page.page.locator("details.tool")
    expect(card).to_contain_text("done")
    card.locator("summary").click()
    expect(card.locator("pre").last).to_contain_text("search was given")


def test_a_failed_answer_says_why_and_offers_to_try_again(page: Tab) -> None:
    page.open("/new")
    page.say("!fail The model is out of tea.")
    expect(page.page.locator(".notice")).to_have_text("The model is out of tea.")
    expect(page.rows().first).to_contain_text("failed")
    page.page.reload()
    expect(page.page.locator(".notice")).to_have_text("The model is out of tea.")
    page.press("Try again")
    expect(page.page.get_by_role("group", name="Versions")).to_have_text("2/2")
    expect(page.page.locator(".notice")).to_have_text("The model is out of tea.")


def test_conversations_are_renamed_pinned_archived_and_put_into_projects(page: Tab) -> None:
    page.begin("alpha", "alpha")
    page.press("alpha, rename")
    page.page.get_by_role("textbox", name="Title").fill("Letters")
    page.page.get_by_role("textbox", name="Title").press("Enter")
    expect(page.rows().first).to_contain_text("Letters")
    page.choose("Move to a project")
    page.page.get_by_role("textbox", name="Name of a new project").fill("Alphabet")
    page.page.get_by_role("button", name="Move", exact=True).click()
    expect(page.page.locator(".session-row.filed")).to_contain_text("Letters")
    page.press("Pin (p)")
    expect(page.page.locator(".group").first).to_have_text("Pinned")
    page.begin("beta", "beta")
    page.filter("project:alphabet")
    expect(page.rows()).to_have_count(1)
    page.press("Remove the filter alphabet")
    expect(page.rows()).to_have_count(2)
    page.choose("Archive")
    expect(page.rows()).to_have_count(1)
    page.filter("is:archived")
    expect(page.rows()).to_contain_text(["beta"])
    page.choose("Delete")
    page.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.rows()).to_have_count(0)


def test_a_conversation_is_taken_out_of_its_project(page: Tab) -> None:
    page.begin("alpha", "alpha")
    page.choose("Move to a project")
    page.page.get_by_role("textbox", name="Name of a new project").fill("Alphabet")
    page.page.get_by_role("button", name="Move", exact=True).click()
    expect(page.page.locator(".session-row.filed")).to_contain_text("alpha")
    page.choose("Move to a project")
    page.page.get_by_role("combobox", name="Project", exact=True).select_option(label="No project")
    page.page.get_by_role("button", name="Move", exact=True).click()
    expect(page.page.locator(".session-row.filed")).to_have_count(0)


def test_files_are_sent_and_shown(page: Tab, tmp_path: Path) -> None:
    picture = tmp_path / "small.png"
    picture.write_bytes(PIXEL)
    notes = tmp_path / "notes.txt"
    notes.write_text("some notes")
    same = tmp_path / "same-notes.txt"
    same.write_text("some notes")
    page.begin("hello", "hello")
    page.page.get_by_label("Files to attach").set_input_files([picture, notes, same])
    expect(page.page.locator(".attached .attachment")).to_have_count(3)
    expect(page.page.get_by_text("Draft saved")).to_have_count(0)
    names = [re.compile("small.png"), re.compile("^notes.txt"), re.compile("same-notes.txt")]
    with page.page.expect_response("**/composers/*"):
        page.composer.fill("look")
    page.page.reload()
    expect(page.page.locator(".attached .attachment")).to_have_text(names)
    page.ask("both", "both")
    expect(page.page.locator(".message.user .attachment")).to_have_text(names[1:])
    with page.page.expect_download() as download:
        page.page.locator(".message.user .attachment").first.click()
    assert download.value.suggested_filename == "notes.txt"
    page.page.get_by_label("Files to attach").set_input_files([picture, notes])
    expect(page.page.locator(".attached .attachment")).to_have_count(2)
    page.page.get_by_role("button", name="Remove notes.txt").click()
    page.ask("look", "look")
    shown = page.page.locator(".message.user img").last
    expect(page.page.locator(".message.user img")).to_have_count(2)
    expect(shown).to_have_js_property("naturalWidth", 1)


def test_a_question_is_answered_in_the_conversation_and_on_the_board(page: Tab) -> None:
    page.open("/new")
    page.say("!ask open the window")
    asked = page.page.get_by_role("region", name="A question of the agent")
    expect(asked).to_contain_text("open the window")
    asked.get_by_role("button", name="Allow", exact=True).click()
    expect(asked).to_have_count(0)
    expect(page.answers.last).to_contain_text("allow")
    expect(page.draft).to_have_count(0)
    page.say("!ask close it again")
    expect(asked).to_be_visible()

    # What a conversation has cost is told of one at work, not of a message that waits in it.
    def price(route: Route) -> None:
        board = route.fetch().json()
        [row] = board["turns"]
        row["session"]["cost"] = 1.5
        board["turns"] = [
            row,
            {**row, "turn": {**row["turn"], "id": "other", "state": "queued"}, "question": None},
        ]
        route.fulfill(json=board)

    page.page.route("**/api/turns", price)
    page.open("/board")
    cards = page.page.locator(".turn-card")
    expect(cards.first.locator(".state")).to_have_text("asks you")
    expect(cards.first).to_contain_text("in this conversation")
    expect(cards.last.locator(".state")).to_have_text("waiting")
    expect(cards.last).not_to_contain_text("in this conversation")
    page.page.unroute_all()
    asked.first.get_by_role("button", name="Deny").click()
    expect(page.page.get_by_role("heading", name="Nothing runs now")).to_be_visible()


def test_the_story_of_a_message(page: Tab) -> None:
    page.begin("hello", "hello")
    page.do("Why: the story of this message", page.page.locator(".message.user").first)
    told = page.page.get_by_role("dialog")
    expect(told).to_contain_text("answered in turn")
    expect(told.locator("li").first).to_contain_text("received via web")


def test_a_plan_is_shown_once_as_it_stands(page: Tab) -> None:
    page.begin("!plan read; write", "2 steps are done.")
    expect(page.page.get_by_role("list", name="Plan").locator("li")).to_have_text(
        ["done: read", "done: write"]
    )


def test_a_compaction_is_one_marker_with_its_summary_live_and_after_a_reload(
    browser: Browser, house: House
) -> None:
    with Endpoint(answer("A1"), answer("A2"), answer("In **short**."), answer("A3")) as endpoint:
        (house.cli.home / "keryx.toml").write_text(
            f'[[models]]\nname = "m"\nbase_url = "{endpoint.base_url}"\nid = "{MODEL}"\nkey = "env:TEST_KEY"\n'
            "titles = false\n"
        )
        with house.serving(KERYX_AGENT="llm", TEST_KEY=KEY), tab(browser, house) as page:
            page.begin("one", "A1")
            page.ask("two", "A2")
            page.say("/compact")
            marker = page.page.locator(".break")
            expect(marker).to_have_text(re.compile("Compacted here: the summary.*short", re.S))
            page.ask("three", "A3")
            expect(page.page.get_by_text("short")).to_have_count(1)
            page.page.reload()
            expect(marker).to_have_text("Compacted here: the summaryIn short.")
            marker.locator("summary").click()
            expect(marker.locator("strong")).to_be_visible()
            expect(page.page.get_by_text("short")).to_have_count(1)


def test_another_model_answers_a_message_that_waits_for_a_limit(browser: Browser, house: House) -> None:
    with Endpoint(throttled("7200"), answer("from the other one")) as endpoint:
        settings = f'base_url = "{endpoint.base_url}"\nid = "{MODEL}"\nkey = "env:TEST_KEY"\ntitles = false\n'
        (house.cli.home / "keryx.toml").write_text(
            "".join(f'[[models]]\nname = "{name}"\n{settings}' for name in ("first", "other"))
        )
        with house.serving(KERYX_AGENT="llm", TEST_KEY=KEY), tab(browser, house) as page:
            page.open("/new")
            page.say("hello")
            held = page.page.locator(".queue.held")
            expect(held).to_contain_text("for the limit of first")
            held.get_by_label("Use another model").select_option("other")
            expect(page.answers).to_have_text(["from the other one"])
            expect(held).to_have_count(0)
        assert len(endpoint.requests) == 2


def test_everything_from_a_message_on_is_taken_back_and_restored(page: Tab) -> None:
    page.begin("first", "first")
    for text in ("second", "third"):
        page.ask(text, text)
    page.do("Take back from here on", page.page.locator(".message.user").nth(1))
    expect(page.page.get_by_text("Took back 2 turns.")).to_be_visible()
    expect(page.composer).to_have_value("second")
    expect(page.answers).to_have_text(["first"])
    page.page.get_by_role("status").get_by_role("button", name="Redo").click()
    expect(page.answers).to_have_text(["first", "second", "third"])


def test_a_temporary_conversation_is_begun_and_ended_here(page: Tab) -> None:
    page.open("/new")
    page.page.get_by_role("button", name="Temporary", exact=True).click()
    page.ask("keep this to yourself", "keep this to yourself")
    expect(page.page.locator("header .facts")).to_contain_text("temporary")
    page.page.reload()
    expect(page.answers).to_have_text(["keep this to yourself"])
    expect(page.rows()).to_have_count(1)
    page.page.get_by_role("button", name="End", exact=True).click()
    expect(page.rows()).to_have_count(0)


def test_a_message_that_waits_for_a_limit_says_until_when_and_can_be_cancelled(page: Tab) -> None:
    page.open("/new")
    page.say("!limit 3000")
    held = page.page.locator(".queue.held")
    expect(held).to_contain_text("for the limit of echo")
    expect(page.rows().first).to_contain_text("waits until")
    held.get_by_role("button", name="Cancel").click()
    expect(held).to_have_count(0)
    page.ask("next", "next")
