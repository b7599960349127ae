"""Outages: nothing that a person writes is lost, nothing is sent twice, and every view comes back by itself."""

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Locator, Route, expect
from tests.browser.driver import WAIT, House, Tab, tab
from tests.cli.driver import Node

UNSENT = "not sent yet"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One server for all tests in which only the network fails."""
    house = House(tmp_path_factory.mktemp("home"))
    with house.serving():
        yield house


@pytest.fixture
def page(browser: Browser, shared: House) -> Iterator[Tab]:
    with tab(browser, shared) as opened:
        yield opened


@contextmanager
def offline(page: Tab) -> Generator[None]:
    """No request of the browser arrives while the block runs."""
    page.page.context.set_offline(True)
    expect(page.page.locator(".link")).not_to_have_text("Live")
    yield
    page.page.context.set_offline(False)
    expect(page.page.get_by_text("Live", exact=True)).to_be_visible()


def row(page: Tab, text: str) -> Locator:
    return page.rows().filter(has_text=text)


def test_a_message_that_cannot_be_sent_waits_over_screens_and_reloads_and_is_sent_once(page: Tab) -> None:
    session = page.begin("on the way", "on the way")
    lost = re.compile(r"/api/sessions/[^/]+/messages$")
    page.page.route(lost, lambda route: route.abort())
    page.say("kept meanwhile")
    expect(page.page.get_by_role("article", name="A message on its way")).to_contain_text(UNSENT)
    expect(row(page, "on the way")).to_contain_text(UNSENT)
    page.open("/board")
    expect(row(page, "on the way")).to_contain_text(UNSENT)
    page.page.reload()
    expect(row(page, "on the way")).to_contain_text(UNSENT)
    page.open(f"/s/{session}")
    expect(page.questions).to_have_text(["on the way", "kept meanwhile"])
    page.page.unroute(lost)
    page.page.reload()
    expect(page.answers).to_have_text(["on the way", "kept meanwhile"])
    expect(page.questions).to_have_text(["on the way", "kept meanwhile"])
    expect(row(page, "on the way")).not_to_contain_text(UNSENT)


def test_a_message_whose_acknowledgement_is_lost_is_sent_again_and_taken_once(page: Tab) -> None:
    page.begin("ack", "ack")
    sent: list[str] = []

    def lose(route: Route) -> None:
        sent.append(route.request.headers["idempotency-key"])
        if len(sent) == 1:
            route.fetch()
            route.abort()
        else:
            route.continue_()

    page.page.route("**/api/stream*", lambda route: route.abort())
    page.page.evaluate("dispatchEvent(new Event('online'))")
    page.page.route(re.compile(r"/api/sessions/[^/]+/messages$"), lose)
    page.say("only once")
    expect(page.page.locator("article[aria-label='A message on its way']")).to_contain_text("stored")
    assert len(sent) == 2 and len(set(sent)) == 1
    page.page.unroute_all()
    page.page.reload()
    expect(page.answers).to_have_text(["ack", "only once"])
    expect(page.questions).to_have_text(["ack", "only once"])


def test_messages_of_two_tabs_are_sent_in_order(page: Tab) -> None:
    session = page.begin("two tabs", "two tabs")
    other = Tab(page.page.context, page.address).open(f"/s/{session}")
    expect(other.answers).to_have_text(["two tabs"])
    with offline(page):
        for at, text in ((page, "first"), (other, "second"), (page, "third")):
            at.say(text)
            expect(page.questions.last).to_have_text(text)
    for at in (page, other):
        expect(at.answers).to_have_text(["two tabs", "first", "second", "third"])
        expect(at.questions).to_have_text(["two tabs", "first", "second", "third"])
        expect(at.page.get_by_text(UNSENT)).to_have_count(0)
    other.healthy()


def test_a_new_conversation_is_on_the_screen_before_the_server_knows_it(page: Tab) -> None:
    page.open("/new")
    with offline(page):
        page.say("begun offline")
        expect(page.questions).to_have_text(["begun offline"])
        expect(row(page, "begun offline")).to_contain_text(UNSENT)
        page.say("and more")
        page.composer.fill("still writing")
        page.open("/usage")
        row(page, "begun offline").click()
        expect(page.questions).to_have_text(["begun offline", "and more"])
        expect(page.composer).to_have_value("still writing")
    expect(page.answers).to_have_text(["begun offline", "and more"])
    expect(page.questions).to_have_text(["begun offline", "and more"])
    expect(page.composer).to_have_value("still writing")
    assert not page.session.startswith("~")
    expect(row(page, "begun offline")).to_have_count(1)
    page.page.reload()
    expect(page.questions).to_have_text(["begun offline", "and more"])
    expect(page.composer).to_have_value("still writing")
    page.composer.fill("")


def test_a_message_that_the_server_refuses_says_so_and_the_next_one_goes_on(page: Tab) -> None:
    page.begin("refusals", "refusals")
    refused = re.compile(r"/api/sessions/[^/]+/messages$")
    problem = json.dumps({"detail": "this is too long"})
    page.page.route(
        refused, lambda r: r.fulfill(status=413, body=problem, content_type="application/problem+json")
    )
    page.say("too long")
    expect(page.page.get_by_role("alert")).to_contain_text("This is too long")
    page.page.unroute(refused)
    page.ask("short", "short")
    page.page.reload()
    expect(page.page.get_by_role("alert")).to_contain_text("This is too long")
    page.page.get_by_role("alert").get_by_role("button", name="Send again").click()
    expect(page.answers).to_have_text(["refusals", "short", "too long"])
    expect(page.page.get_by_role("alert")).to_have_count(0)


def test_every_view_that_was_opened_during_an_outage_comes_back_by_itself(page: Tab) -> None:
    session = page.begin("views", "views")
    page.begin("another view", "another view")
    for path, shown in (
        ("/usage", "Tokens by day"),
        ("/board", "Nothing runs now"),
        ("/settings", "This page"),
        ("/jobs", "Nothing is scheduled"),
    ):
        page.open(path)
        expect(page.page.locator("#main")).to_contain_text(
            shown if path != "/usage" else "The same as a table"
        )
        page.open("/new")
        with offline(page):
            page.open(path)
            expect(page.page.get_by_role("heading", name="This cannot be shown now")).to_be_visible()
        expect(page.page.get_by_role("heading", name="This cannot be shown now")).to_have_count(0)
        expect(page.page.locator("#main .lead")).to_be_visible()
    with offline(page):
        page.open(f"/s/{session}")
        expect(page.page.get_by_role("heading", name="This conversation cannot be shown now")).to_be_visible()
    expect(page.answers).to_have_text(["views"])
    page.open("/")
    with offline(page):
        page.page.get_by_role("searchbox").fill("views")
        expect(page.page.get_by_role("navigation", name="Search results")).to_contain_text(
            "This cannot be shown now"
        )
    expect(page.page.locator("a.hit").first).to_be_visible()


def test_details_that_were_opened_during_an_outage_come_back_by_themselves(page: Tab) -> None:
    page.begin("details", "details")
    page.page.route("**/lineage", lambda route: route.abort())
    page.press("Details (i)")
    lineage = page.page.get_by_role("region", name="Lineage")
    expect(lineage).to_contain_text("This cannot be shown now")
    with offline(page):
        page.page.unroute("**/lineage")
    expect(lineage.locator("a")).to_have_count(1)
    page.press("Close the details")


def test_what_is_typed_into_a_screen_outlives_a_failed_refresh(page: Tab) -> None:
    page.open("/jobs")
    page.page.get_by_label("What the agent is to do").fill("half a job")
    page.page.route("**/api/jobs", lambda route: route.abort())
    with offline(page):
        pass
    expect(page.page.get_by_role("alert")).to_be_visible()
    expect(page.page.get_by_label("What the agent is to do")).to_have_value("half a job")
    page.page.unroute_all()
    page.press("Try again")
    expect(page.page.get_by_role("alert")).to_have_count(0)
    expect(page.page.get_by_label("What the agent is to do")).to_have_value("half a job")


def test_undo_never_replaces_what_is_being_written(page: Tab) -> None:
    page.begin("first", "first")
    page.ask("second", "second")
    page.composer.fill("being written")
    page.choose("Undo the last turn")
    expect(page.page.get_by_text("Took back 1 turn.")).to_be_visible()
    expect(page.composer).to_have_value("being written")
    page.composer.fill("")


def test_leaving_the_title_field_keeps_the_title_and_escape_does_not(page: Tab) -> None:
    page.begin("untitled talk", "untitled talk")
    page.press("untitled talk, rename")
    field = page.page.get_by_role("textbox", name="Title")
    field.fill("Not this one")
    field.press("Escape")
    expect(page.page.get_by_role("heading", name="untitled talk")).to_be_visible()
    page.press("untitled talk, rename")
    field.fill("A better title")
    page.composer.focus()
    expect(row(page, "A better title")).to_have_count(1)
    with offline(page):
        page.press("A better title, rename")
        field.fill("Even better")
        page.composer.focus()
        expect(page.page.get_by_role("alert")).to_be_visible()
        expect(field).to_have_value("Even better")
    expect(row(page, "Even better")).to_have_count(1)
    expect(field).to_have_count(0)


def test_a_tab_with_unsaved_text_warns_before_it_closes(browser: Browser, shared: House) -> None:
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    with tab(browser, shared) as page:
        page.begin("closing", "closing")
        page.page.on("dialog", stay)
        with offline(page):
            page.composer.fill("unsaved")
            expect(page.page.get_by_text("Draft not saved yet")).to_be_visible()
            page.page.close(run_before_unload=True)
            page.composer.fill("unsaved still")
        expect(page.page.get_by_text("Draft saved")).to_be_visible()
        assert asked == ["beforeunload"]
        with page.page.expect_event("close"):
            page.page.close(run_before_unload=True)
        assert asked == ["beforeunload"]


def test_text_that_could_not_be_saved_outlives_the_tab(page: Tab) -> None:
    session = page.begin("drafts", "drafts")
    page.page.route("**/api/composers/*", lambda route: route.abort())
    page.composer.fill("half a thought")
    expect(page.page.get_by_text("Draft not saved yet")).to_be_visible()
    page.page.reload()
    expect(page.composer).to_have_value("half a thought")
    page.page.unroute_all()
    # Else the first tab may be the one that saves it.
    page.page.close()
    other = Tab(page.page.context, page.address).open(f"/s/{session}")
    expect(other.composer).to_have_value("half a thought")
    expect(other.page.get_by_text("Draft saved")).to_be_visible()


def test_files_that_are_attached_while_the_server_is_away_go_with_their_message(
    page: Tab, tmp_path: Path
) -> None:
    notes, drawing = tmp_path / "notes.txt", tmp_path / "drawing.txt"
    notes.write_text("x" * 12_345)
    drawing.write_text("y")
    session = page.begin("kept files", "kept files")
    for lost in ("**/api/media*", "**/api/composers/*", f"**/api/sessions/{session}/messages"):
        page.page.route(lost, lambda route: route.abort())
    page.page.get_by_label("Files to attach").set_input_files([notes])
    attached = page.page.locator(".attached .attachment")
    expect(attached).to_contain_text("notes.txt12 kB")
    page.page.reload()
    expect(attached).to_contain_text("notes.txt12 kB")
    page.say("look at this")
    expect(page.page.get_by_role("article", name="A message on its way")).to_contain_text("notes.txt12 kB")
    page.page.get_by_label("Files to attach").set_input_files([drawing])
    expect(attached).to_contain_text("drawing.txt")
    page.page.reload()
    expect(page.page.get_by_role("article", name="A message on its way")).to_contain_text("notes.txt12 kB")
    page.page.unroute_all()
    page.page.reload()
    expect(page.answers).to_have_text(["kept files", "look at this"])
    expect(page.page.locator(".message.user a.attachment")).to_contain_text("notes.txt")
    with page.page.expect_download() as download:
        page.page.locator(".message.user a.attachment").click()
    assert download.value.path().read_text() == notes.read_text()
    expect(attached).to_contain_text("drawing.txt")
    page.ask("and this", "and this")
    expect(page.page.locator(".message.user a.attachment").last).to_contain_text("drawing.txt")


def test_words_of_a_changed_question_outlive_an_outage_a_reload_and_another_screen(
    browser: Browser, shared: House
) -> None:
    asked: list[str] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    with tab(browser, shared) as page:
        session = page.begin("first words", "first words")
        page.composer.press("ArrowUp")
        field = page.page.get_by_role("textbox", name="The question in other words")
        field.fill("better words")
        page.open("/usage")
        page.open(f"/s/{session}")
        expect(field).to_have_value("better words")
        page.page.once("dialog", leave)
        page.page.reload()
        expect(field).to_have_value("better words")
        assert asked == ["beforeunload"]
        with offline(page):
            page.page.get_by_role("button", name="Ask", exact=True).click()
            expect(page.page.get_by_role("alert")).to_be_visible()
            expect(field).to_have_value("better words")
        page.page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.answers).to_have_text(["better words"])
        page.do("Edit and ask in a copy", page.page.locator(".message.user"))
        dialog = page.page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill("in a copy")
        with offline(page):
            dialog.get_by_role("button", name="Ask in a copy").click()
            expect(dialog.get_by_role("alert")).to_contain_text("cannot be reached")
            expect(dialog.get_by_role("textbox")).to_have_value("in a copy")
        dialog.get_by_role("button", name="Ask in a copy").click()
        expect(page.answers).to_have_text(["in a copy"])
        assert page.session != session


def test_the_list_and_the_search_of_a_conversation_catch_up_after_an_outage(page: Tab) -> None:
    page.begin("catching up", "catching up")
    page.page.keyboard.press("Control+f")
    looked = page.page.get_by_role("search").locator("input[placeholder='Search in this conversation']")
    with offline(page):
        looked.fill("catching")
        expect(page.page.locator(".find .wrong")).to_be_visible()
    expect(page.page.locator(".find")).to_contain_text("2 of 2")
    with offline(page):
        page.filter("is:archived")
        expect(page.page.locator("#side")).to_contain_text("This cannot be shown now")
    expect(page.page.locator("#side")).to_contain_text("No conversation fits this choice.")
    page.press("Remove the filter Archived")
    row(page, "catching up").focus()
    page.page.keyboard.press("F2")
    with offline(page):
        page.page.locator(".session.rename input").fill("caught up")
        page.page.locator(".session.rename input").press("Enter")
        expect(page.page.get_by_role("alert").last).to_be_visible()
        expect(page.page.locator(".session.rename input")).to_have_value("caught up")
    expect(row(page, "caught up")).to_have_count(1)
    expect(page.page.locator(".session.rename")).to_have_count(0)


def test_what_waits_for_somebody_else_is_neither_shown_nor_sent(page: Tab) -> None:
    session = page.begin("mine", "mine")
    entry = {
        "client": "c1",
        "session": session,
        "text": "of somebody else",
        "media": list[str](),
        "order": 1,
        "at": "2026-01-01",
    }
    page.page.evaluate(
        "([key, value]) => localStorage.setItem(key, value)",
        ["keryx:out:somebody:default:0000000000000001:c1", json.dumps(entry)],
    )
    page.page.reload()
    page.ask("and mine again", "and mine again")
    expect(page.questions).to_have_text(["mine", "and mine again"])
    expect(page.page.get_by_text("of somebody else")).to_have_count(0)


def test_signing_out_discards_what_waits_after_a_question_and_sends_nothing_later(
    browser: Browser, house: House
) -> None:
    def sign_in() -> None:
        page.page.get_by_label("Password or token").fill("a-token-of-some-length")
        page.press("Sign in")

    with house.serving(KERYX_WEB_TOKEN="a-token-of-some-length"), tab(browser, house) as page:
        page.open("/new")
        sign_in()
        page.ask("hello", "hello")
        session = page.session
        page.page.route(re.compile(r"/api/sessions/[^/]+/messages$"), lambda route: route.abort())
        page.say("never sent")
        expect(row(page, "hello")).to_contain_text(UNSENT)
        page.open("/settings")
        page.press("Sign out")
        dialog = page.page.get_by_role("dialog")
        expect(dialog).to_contain_text("discard 1 message")
        dialog.get_by_role("button", name="Sign out").click()
        expect(page.page.get_by_role("heading", name="Sign in to Keryx")).to_be_visible()
        assert "never sent" not in page.page.evaluate("JSON.stringify(localStorage)")
        page.page.unroute_all()
        sign_in()
        page.open(f"/s/{session}")
        page.ask("sent", "sent")
        expect(page.questions).to_have_text(["hello", "sent"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a person left on the page when the server was killed."""

    said: list[str]
    answered: list[str]
    typed: str = ""


Kill = Callable[[], None]
Moment = Callable[[Tab, Kill], Left]


def while_nothing_happens(page: Tab, kill: Kill) -> Left:
    kill()
    page.say("are you there")
    page.say("hello?")
    page.composer.fill("half a thought")
    return Left(
        said=["hello", "are you there", "hello?"],
        answered=["hello", "are you there", "hello?"],
        typed="half a thought",
    )


def before_the_request_arrives(page: Tab, kill: Kill) -> Left:
    page.page.route(re.compile(r"/messages$"), lambda route: (kill(), route.abort()), times=1)
    page.say("lost on the way")
    expect(page.page.get_by_text(UNSENT).first).to_be_visible()
    return Left(said=["hello", "lost on the way"], answered=["hello", "lost on the way"])


def before_the_acknowledgement_arrives(page: Tab, kill: Kill) -> Left:
    page.page.route(re.compile(r"/messages$"), lambda route: (route.fetch(), kill(), route.abort()), times=1)
    page.say("taken in silence")
    expect(page.page.locator(".link")).not_to_have_text("Live")
    return Left(said=["hello", "taken in silence"], answered=["hello", "taken in silence"])


def before_a_conversation_begins(page: Tab, kill: Kill) -> Left:
    page.open("/new")
    page.composer.fill("begun too early")
    kill()
    page.composer.press("Enter")
    expect(page.questions).to_have_text(["begun too early"])
    page.say("and on")
    return Left(said=["begun too early", "and on"], answered=["begun too early", "and on"])


def before_a_new_conversation_is_acknowledged(page: Tab, kill: Kill) -> Left:
    page.open("/new")
    page.page.route(
        re.compile(r"/api/sessions$"), lambda route: (route.fetch(), kill(), route.abort()), times=1
    )
    page.say("begun in silence")
    expect(page.questions).to_have_text(["begun in silence"])
    expect(page.page.locator(".link")).not_to_have_text("Live")
    return Left(said=["begun in silence"], answered=["begun in silence"])


def in_the_middle_of_an_answer(page: Tab, kill: Kill) -> Left:
    words = " ".join(f"word{n}" for n in range(40))
    page.say(f"slow 6 {words}")
    expect(page.draft).to_contain_text("word5")
    kill()
    page.say("next")
    return Left(said=["hello", f"slow 6 {words}", "next"], answered=["hello", words, "next"])


def while_a_message_is_queued(page: Tab, kill: Kill) -> Left:
    page.say("slow 4 one two three four")
    expect(page.draft).to_contain_text("one")
    page.say("queued")
    expect(page.page.get_by_role("region", name="Waiting messages")).to_be_visible()
    kill()
    page.composer.fill("typed")
    return Left(
        said=["hello", "slow 4 one two three four", "queued"],
        answered=["hello", "one two three four", "queued"],
        typed="typed",
    )


def while_the_title_is_changed(page: Tab, kill: Kill) -> Left:
    page.press("hello, rename")
    page.page.get_by_role("textbox", name="Title").fill("A new title")
    kill()
    page.composer.focus()
    expect(page.page.get_by_role("textbox", name="Title")).to_have_value("A new title")
    page.composer.fill("typed")
    return Left(said=["hello"], answered=["hello"], typed="typed")


def while_a_question_waits(page: Tab, kill: Kill) -> Left:
    page.say("!ask may I")
    expect(page.page.get_by_role("region", name="A question of the agent")).to_be_visible()
    kill()
    page.say("while you wait")
    return Left(
        said=["hello", "!ask may I", "while you wait"],
        answered=["hello", "Asking. Answered: allow", "while you wait"],
    )


def while_an_undo_is_on_its_way(page: Tab, kill: Kill) -> Left:
    page.ask("second", "second")
    page.composer.fill("being written")
    page.page.route("**/undo", lambda route: (route.fetch(), kill(), route.abort()), times=1)
    page.choose("Undo the last turn")
    expect(page.page.get_by_role("alert")).to_be_visible()
    expect(page.page.locator(".link")).not_to_have_text("Live")
    return Left(said=["hello"], answered=["hello"], typed="being written")


def while_a_file_is_attached(page: Tab, kill: Kill) -> Left:
    def attach(name: str, body: bytes) -> None:
        page.page.get_by_label("Files to attach").set_input_files(
            [{"name": name, "mimeType": "text/plain", "buffer": body}]
        )
        expect(page.page.locator(".attached .attachment").last).to_contain_text(name)

    attach("notes.txt", b"x" * 12)
    kill()
    attach("later.txt", b"y" * 12)
    page.say("two files")
    return Left(said=["hello", "two filesnotes.txt12 Blater.txt12 B"], answered=["hello", "two files"])


def while_another_conversation_is_opened(page: Tab, kill: Kill) -> Left:
    page.begin("another", "another")
    kill()
    page.composer.fill("typed in another")
    expect(page.page.get_by_text("Draft not saved yet")).to_be_visible()
    row(page, "hello").click()
    expect(page.page.get_by_role("heading", name="This conversation cannot be shown now")).to_be_visible()
    row(page, "another").click()
    expect(page.answers).to_have_text(["another"])
    expect(page.composer).to_have_value("typed in another")
    return Left(said=["another"], answered=["another"], typed="typed in another")


MOMENTS: tuple[Moment, ...] = (
    before_the_acknowledgement_arrives,
    while_nothing_happens,
    before_the_request_arrives,
    before_a_conversation_begins,
    before_a_new_conversation_is_acknowledged,
    in_the_middle_of_an_answer,
    while_a_message_is_queued,
    while_the_title_is_changed,
    while_a_question_waits,
    while_an_undo_is_on_its_way,
    while_a_file_is_attached,
    while_another_conversation_is_opened,
)

# Those that every run of the suite tries.
AT_ONCE = (before_the_acknowledgement_arrives, while_nothing_happens, in_the_middle_of_an_answer)


@pytest.mark.parametrize(
    "moment",
    [pytest.param(m, id=m.__name__, marks=[] if m in AT_ONCE else [pytest.mark.slow]) for m in MOMENTS],
)
def test_a_person_finds_everything_after_a_kill(browser: Browser, house: House, moment: Moment) -> None:
    """What is seen without a reload is what was there before the kill, and what is seen after one."""
    with tab(browser, house) as page:
        with house.serving() as node:
            aside = page.begin("put aside", "put aside")
            page.composer.fill("a note for later")
            expect(page.page.get_by_text("Draft saved")).to_be_visible()
            page.choose("Pin")
            house.run("sessions", "tag", aside, "keep")
            page.begin("hello", "hello")
            expect(row(page, "put aside").locator(".tag-mark")).to_have_text("keep")
            before = seen(page, aside)
            assert "Pinned" in before
            left = moment(page, lambda: kill(node))
        with house.serving():
            expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
            asked = page.page.get_by_role("region", name="A question of the agent")
            if moment is while_a_question_waits:
                asked.get_by_role("button", name="Allow", exact=True).click()
            if moment is while_the_title_is_changed:
                expect(row(page, "A new title")).to_have_count(1)
            find(page, left)
            live = page.page.locator(".message .body").all_inner_texts()
            page.page.reload()
            find(page, left)
            assert page.page.locator(".message .body").all_inner_texts() == live
            expect(page.page.get_by_text(UNSENT)).to_have_count(0)
            page.composer.fill("")
            assert seen(page, aside) == before
            row(page, "put aside").click()
            expect(page.answers).to_have_text(["put aside"])
            expect(page.composer).to_have_value("a note for later")


def seen(page: Tab, session: str) -> list[str]:
    """What the list says of a conversation: its group, its name, where it is from, and its marks."""
    script = """link => { let at = link.closest('.session-row').previousElementSibling;
      while (!at.classList.contains('group')) at = at.previousElementSibling;
      return [at.innerText, ...['.name', '.from', '.signs'].map((part) => link.querySelector(part).innerText)] }"""
    return page.page.locator(f"a.session[data-id='{session}']").evaluate(script)


def kill(node: Node) -> None:
    node.process.kill()
    node.process.wait(WAIT)


def find(page: Tab, left: Left) -> None:
    # An answer that the kill broke off is shown as that, before the one that was given afterwards.
    whole = page.page.locator(".message.assistant:not([aria-busy]) .body:not(:has(.sign.interrupted))")
    expect(whole).to_have_text(left.answered)
    expect(page.questions).to_have_text(left.said)
    expect(page.draft).to_have_count(0)
    expect(page.composer).to_have_value(left.typed)
