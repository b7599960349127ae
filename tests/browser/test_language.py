"""The page in the language of the browser."""

from playwright.sync_api import Browser, expect
from tests.browser.driver import House, Tab


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
