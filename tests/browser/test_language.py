"""The page in the language of the browser."""

import re

from playwright.sync_api import Browser, expect
from tests.browser.driver import House, Tab
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.untranslated import find_untranslated_words


def test_a_german_browser_sees_a_german_page_and_an_english_one_an_english_page(
    house: House, browser: Browser
) -> None:
    with house.serving():
        for locale, begin, sent, status in (
            ("de-AT", "Ein Gespräch beginnen", "Nachricht", "Bereit. Modell: Vorgabe."),
            ("fr-FR", "Begin a conversation", "Message", "Idle. Model: default."),
        ):
            context = browser.new_context(locale=locale)
            tab = Tab(context, house.address).open("/new")
            box = tab.page.get_by_role("textbox", name=sent, exact=True)
            expect(box).to_have_attribute("placeholder", begin)
            box.fill("hello")
            box.press("Enter")
            expect(tab.answers).to_have_text(["hello"])
            box.fill("/status")
            box.press("Enter")
            expect(tab.page.get_by_text(status)).to_be_visible()
            assert tab.errors == []
            context.close()


# What is no text of Keryx: what was said, names, marks of surfaces, targets, and what the echo agent says and asks.
DATA = "Wb Passkeys Asking. local Keryx !ask go on May the echo agent go on? ask rm -rf Telegram Token default echo operator web page UTC MB KB Firefox Chrome Code System Enter OpenAI v1 http API"


def test_a_german_page_shows_no_text_that_bypasses_the_catalogue(house: House, browser: Browser) -> None:
    with house.serving():
        context = browser.new_context(locale="de-DE")
        tab = Tab(context, house.address).open("/new")
        box = tab.page.get_by_role("textbox", name="Nachricht", exact=True)
        box.fill("!ask go on")
        box.press("Enter")
        expect(tab.page.get_by_role("button", name="Erlauben", exact=True)).to_be_visible()
        foreign: dict[str, list[str]] = {"conversation": find_untranslated_words(_read(tab), DATA)}
        for screen in (
            "board",
            "deliveries",
            "lanes",
            "pairing",
            "jobs",
            "usage",
            "people",
            "models",
            "tools",
            "permissions",
            "profiles",
            "users",
            "settings",
        ):
            # The screen before must not be read again.
            tab.page.goto("about:blank")
            tab.open(f"/{screen}")
            expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
            expect(tab.page.locator(".inner > :nth-child(2)")).not_to_have_text("Lädt …")
            # Names and values of settings are what is written to the file.
            tab.page.locator(".block:has(details.more)").evaluate_all("all => all.forEach((e) => e.remove())")
            foreign[screen] = find_untranslated_words(_read(tab), DATA)
        context.close()
    assert {screen: words for screen, words in foreign.items() if words} == {}


def _read(tab: Tab) -> str:
    return tab.page.locator("body").inner_text()


# Names and words of the platforms, which their own pages have in English.
PLATFORM_WORDS = (
    "BotFather newbot bot setprivacy Disable keryx serve gateway setup Telegram telegram main dm agent ann queue sent failed access allow"
    " Discord Slack Signal Matrix WhatsApp WeChat Feishu Lark iMessage Webhook webhook fake"
)


def test_why_history_deliveries_and_setups_are_told_in_german(house: House, browser: Browser) -> None:
    (house.cli.home / "keryx.toml").write_text('[access.telegram]\nallow = ["7"]\n')
    with FakeTelegram() as telegram:
        variables = {"KERYX_TELEGRAM_BASE_URL": telegram.url, "KERYX_TELEGRAM_TOKEN": TOKEN}
        with house.serving(**variables):
            telegram.blocked.add(7)
            telegram.say("hello", chat=7, user=7)
            context = browser.new_context(locale="de-DE")
            tab = Tab(context, house.address).open("/deliveries")
            expect(
                tab.page.get_by_text("Telegram lehnt ab: die Person hat den Bot blockiert")
            ).to_be_visible()
            tab.open("/lanes")
            tab.page.get_by_role("button", name="Verlauf").first.click()
            expect(tab.page.get_by_text("erste Nachricht")).to_be_visible()
            tab.page.keyboard.press("Escape")
            tab.page.locator(".rows a, nav a").filter(has_text="hello").first.click()
            question = tab.page.locator(".message.user").first
            question.hover()
            question.get_by_role("button", name="Mehr zu dieser Nachricht").click()
            tab.page.get_by_role("menuitem", name="Warum: die Geschichte dieser Nachricht").click()
            story = tab.page.get_by_role("dialog")
            expect(story.get_by_text("eingereiht als Runde")).to_be_visible()
            for line in story.locator("li span").all_inner_texts():
                told = re.sub(r"\S+[/:]\S+|\b[0-9a-z]{18}\b", "x", line)
                assert find_untranslated_words(told, DATA, PLATFORM_WORDS, "x") == []
            tab.page.keyboard.press("Escape")
            tab.open("/platforms")
            tab.page.get_by_role("button", name="Verbinden: Matrix").click()
            expect(tab.page.get_by_text("Leg zuerst ein Konto für Keryx an")).to_be_visible()
            expect(tab.page.get_by_text("Das Konto, als das Keryx spricht.")).to_be_visible()
            context.close()
