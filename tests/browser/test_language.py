"""The page in the language of the browser."""

from pathlib import Path

from playwright.sync_api import Browser, expect
from tests.browser.driver import House, Tab, apart
from tests.browser.scene import VIEWER
from tests.untranslated import find_untranslated_words

from keryx.core.ids import DEFAULT_PROFILE
from keryx.core.messages import Role, text_parts
from keryx.core.texts import Phrase
from keryx.store import messages, sessions
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase


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


def test_what_stands_for_a_message_is_in_the_language_of_the_browser(house: House, browser: Browser) -> None:
    with house.serving():
        pass
    session = apart(_add_forward(house.cli.home / "keryx.db"))
    with house.serving():
        for locale, heading in (("de", "Weitergeleitet von Zoe:"), ("en", "Forwarded from Zoe:")):
            context = browser.new_context(locale=locale)
            tab = Tab(context, house.address).open(f"/s/{session}")
            shown = tab.page.locator("[data-seq='1']")
            expect(shown).to_contain_text(heading)
            expect(shown).to_contain_text("Stop")
            assert tab.errors == []
            context.close()


async def _add_forward(path: Path) -> str:
    def write(tx: Transaction) -> str:
        made = sessions.create(tx, profile=DEFAULT_PROFILE, owner=VIEWER.principal, surface="web")
        forward = text_parts(Phrase("content.forwarded_from", name="Zoe"), "Stop")
        messages.append(tx, made, Role.USER, forward, surface="gateway")
        return made

    async with SqliteDatabase(path) as database:
        return await database.write("forward", write)


# What is no text of Keryx: what was said, names, marks of surfaces, targets, and what the echo agent says and asks. And what is the
# same word in German.
PLATFORMS = "Discord Feishu Lark iMessage Matrix Signal Slack webhooks Webhooks WeChat WhatsApp"
# The browser writes dates by itself.
MONTHS = "Jan Feb März Apr Mai Juni Juli Aug Sept Okt Nov Dez"
DATA = f"{PLATFORMS} {MONTHS} Normal Wb Lo Esc Passkeys Asking. local Keryx !ask go on May the echo agent go on? ask rm -rf Telegram Token default echo operator web page UTC MB KB Firefox Chrome Code System Enter OpenAI v1 http API"


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
            "platforms",
            "guide",
        ):
            # The screen before must not be read again.
            tab.page.goto("about:blank")
            tab.open(f"/{screen}")
            expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
            expect(tab.page.locator(".inner > :nth-child(2)")).not_to_have_text("Lädt …")
            # Names and values of settings are what is written to the file.
            tab.page.locator(".block:has(details.more)").evaluate_all("all => all.forEach((e) => e.remove())")
            foreign[screen] = find_untranslated_words(_read(tab), DATA)
        tab.open("/new")
        assert "Keryx braucht JavaScript" in tab.page.locator("noscript").inner_html()
        tab.page.keyboard.press("Escape")
        tab.page.keyboard.press("?")
        expect(tab.page.get_by_role("dialog")).to_be_visible()
        foreign["keys"] = find_untranslated_words(_read(tab), DATA)
        context.close()
    assert {screen: words for screen, words in foreign.items() if words} == {}


# What is shown, and what is told to those who do not see it.
TOLD = """() => [document.body.innerText, ...Array.from(document.querySelectorAll("#page *"), (element) =>
  ["aria-label", "title", "placeholder", "alt"].map((name) => element.getAttribute(name) ?? "").join("\\n")).filter(text => text.trim())].join("\\n")"""


def _read(tab: Tab) -> str:
    return tab.page.evaluate(TOLD)


# In the year 2026, at noon: of what is told at these times.
MOMENTS = """async () => {
  const { ago, date, dayName, moment } = await import(new URL("format.js", document.querySelector("script[type=module]").src));
  const now = Date.parse("2026-11-19T12:00:00Z");
  Date.now = () => now;
  const old = "2025-03-02T08:05:00Z", year = "2026-11-09T08:05:00Z", today = "2026-11-19T08:05:00Z", just = "2026-11-19T11:55:00Z";
  return [[just, today, year, old].map((at) => ago(at)), [today, year, old].map(moment), [year, old].map((at) => dayName(at)), date(year)];
}"""
ENGLISH_MOMENTS = [
    ["5m", "08:05", "9 Nov", "2 Mar 2025"],
    ["08:05", "9 Nov, 08:05", "2 Mar 2025, 08:05"],
    ["Monday 9 Nov", "Sunday, 2 Mar 2025"],
    "9 Nov",
]
GERMAN_MOMENTS = [
    ["5 Min.", "08:05", "9. Nov.", "2. März 2025"],
    ["08:05", "9. Nov., 08:05", "2. März 2025, 08:05"],
    ["Montag, 9. Nov.", "Sonntag, 2. März 2025"],
    "9. Nov.",
]


def test_dates_have_one_form_in_each_language(house: House, browser: Browser) -> None:
    with house.serving():
        # An English page in a browser for French has English months.
        for locale, told in (
            ("en-GB", ENGLISH_MOMENTS),
            ("de-DE", GERMAN_MOMENTS),
            ("fr-FR", ENGLISH_MOMENTS),
        ):
            context = browser.new_context(locale=locale, timezone_id="UTC")
            page = Tab(context, house.address).open("/").page
            assert page.evaluate(MOMENTS) == told
            context.close()
