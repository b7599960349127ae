"""Live: tabs, terminal and chats see the same, and a server that is killed loses nothing and doubles nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import PHONE, WAIT, House, Tab, away_too_long, tab
from tests.cli.driver import end
from tests.fakes.platform import Platform

from keryx.store.db import Engine

ROOT = Path(__file__).parents[2]


def test_two_tabs_and_a_terminal_see_the_same(browser: Browser, served: House) -> None:
    with tab(browser, served) as one, tab(browser, served) as two:
        session = one.begin("hello", "hello")
        two.open(f"/s/{session}")
        expect(two.answers).to_have_text(["hello"])
        two.say("slow 2 from the second tab")
        expect(one.draft).to_contain_text("from")
        for seen in (one, two):
            expect(seen.answers).to_have_text(["hello", "from the second tab"])
        served.run("send", "--session", session, "from the terminal")
        for seen in (one, two):
            expect(seen.questions).to_have_text(["hello", "slow 2 from the second tab", "from the terminal"])
            expect(seen.answers.last).to_have_text("from the terminal")
            expect(seen.page.get_by_text("via terminal")).to_be_visible()


def test_a_message_from_a_chat_appears_in_every_tab(browser: Browser, house: House) -> None:
    """Either process may answer; the one that serves the page goes by what the other was told of who may talk."""
    with Platform() as platform, house.serving(), tab(browser, house) as one, tab(browser, house) as two:
        one.open()
        two.open()
        node = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.node", platform.url],
            cwd=ROOT,
            env=house.cli.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert node.stdout and node.stdout.readline() == "ready\n"
            platform.say("42", "good morning from the chat", user="ann")
            for seen in (one, two):
                expect(seen.rows()).to_contain_text(["good morning from the chat"])
                seen.rows().first.click()
                expect(seen.questions).to_have_text(["good morning from the chat"])
                expect(seen.answers).to_have_text(["good morning from the chat"])
            assert platform.wait_for(lambda: bool(platform.shown), WAIT / 1000)
        finally:
            end(node)
    assert platform.texts("42") == ["good morning from the chat"]


@pytest.mark.parametrize(
    "house", [Engine.SQLITE, pytest.param(Engine.POSTGRES, marks=pytest.mark.faults)], ids=str, indirect=True
)
def test_a_page_comes_back_by_itself_after_the_server_was_killed(browser: Browser, house: House) -> None:
    words = " ".join(f"word{n}" for n in range(40))
    with tab(browser, house) as page:
        with house.serving(KERYX_LIMITS_LEASE="2s") as node:
            page.open("/new")
            page.say(f"slow 4 {words}")
            expect(page.draft).to_contain_text("word3")
            node.process.kill()
            node.process.wait(WAIT)
        expect(page.page.locator(".link")).not_to_have_text("Live")
        with house.serving():
            expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
            expect(page.answers.last).to_have_text(words)
            expect(page.draft).to_have_count(0)
            expect(page.questions).to_have_count(1)
            live = transcript(page)
            page.page.reload()
            expect(page.answers.last).to_have_text(words)
            assert transcript(page) == live
            page.ask("and the needle", "and the needle")
            page.begin("another thing", "another thing")
            page.page.get_by_role("searchbox").fill("needle")
            hits = page.page.get_by_role("navigation", name="Search results").locator("a.hit")
            expect(hits.first.locator("mark").first).to_have_text("needle")
            hits.first.click()
            expect(page.answers.last).to_have_text("and the needle")


def test_a_phone_shows_that_the_link_is_lost_and_back(browser: Browser, house: House) -> None:
    with tab(browser, house, size=PHONE, touch=True) as page:
        lost = page.page.locator("header.bar").get_by_role("status")
        with house.serving() as node:
            page.begin("hello", "hello")
            expect(lost).to_have_count(0)
            node.process.kill()
            node.process.wait(WAIT)
            expect(lost).to_have_text("Reconnecting")
            expect(lost).to_be_in_viewport()
        with house.serving():
            expect(lost).to_have_count(0)


def test_a_draft_that_could_not_be_saved_is_saved_when_the_server_is_back(
    browser: Browser, house: House
) -> None:
    with tab(browser, house) as page:
        with house.serving() as node:
            page.begin("hello", "hello")
            node.process.kill()
            node.process.wait(WAIT)
        page.composer.fill("half a thought")
        expect(page.page.get_by_text("Draft not saved yet")).to_be_visible()
        with house.serving():
            expect(page.page.get_by_text("Draft saved")).to_be_visible()
            page.page.reload()
            expect(page.composer).to_have_value("half a thought")


def test_a_page_that_was_away_too_long_reads_all_anew(browser: Browser, served: House) -> None:
    with tab(browser, served) as page:
        session = page.begin("hello", "hello")
        with away_too_long(page):
            served.run("send", "--wait", "--session", session, "while you were away")
        expect(page.answers).to_have_text(["hello", "while you were away"])
        expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
        page.ask("and on", "and on")


def test_a_choice_of_conversations_stays_when_all_is_read_anew(browser: Browser, served: House) -> None:
    with tab(browser, served) as page:
        page.begin("to be archived", "to be archived")
        page.choose("Archive")
        page.begin("to stay", "to stay")
        page.filter("is:archived")
        expect(page.rows()).to_have_count(1)
        with away_too_long(page):
            served.run("send", "--wait", "a third one")
        expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
        expect(page.rows()).to_contain_text(["to be archived"])


def test_a_conversation_deleted_meanwhile_is_not_shown_any_more(browser: Browser, served: House) -> None:
    with tab(browser, served) as page:
        session = page.begin("hello", "hello")
        with away_too_long(page):
            served.run("sessions", "delete", session, "--yes")
        expect(page.page.get_by_role("heading", name="This conversation is not here")).to_be_visible()
        expect(page.rows()).to_have_count(0)


def test_the_view_follows_the_end_only_from_the_end(page: Tab) -> None:
    page.begin("!words 3000", " ".join(f"word{n}" for n in range(1, 3001)))
    talk = page.page.get_by_role("log")
    talk.evaluate("e => { e.scrollTop = 100 }")
    expect(page.page.get_by_role("button", name="To the end")).to_be_visible()
    before = talk.evaluate("e => e.scrollTop")
    page.page.evaluate(
        "id => fetch(`/api/sessions/${id}/messages`, {method: 'POST', body: '{\"text\": \"more\"}', "
        "headers: {'Content-Type': 'application/json'}})",
        page.session,
    )
    expect(page.page.get_by_role("button", name="2 new messages")).to_be_visible()
    assert talk.evaluate("e => e.scrollTop") == before
    page.press("2 new messages")
    expect(page.answers.last).to_be_in_viewport()
    expect(page.answers.last).to_have_text("more")


def transcript(page: Tab) -> list[str]:
    return page.page.locator(".message .body").all_inner_texts()
