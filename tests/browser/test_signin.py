"""Sign-in: a server with a token shows nothing before it, and a browser that is signed out sees the door again."""

from playwright.sync_api import Browser, expect
from tests.browser.driver import House, tab

TOKEN = "a-long-token-for-the-browser-test"


def test_the_token_opens_the_page_and_signing_out_closes_it(browser: Browser, house: House) -> None:
    with house.serving(KERYX_WEB_TOKEN=TOKEN), tab(browser, house) as page:
        page.open()
        field = page.page.get_by_label("Password or token")
        expect(field).to_be_focused()
        field.fill("wrong")
        field.press("Enter")
        expect(page.page.get_by_role("alert")).to_be_visible()
        field.fill(TOKEN)
        field.press("Enter")
        expect(page.page.get_by_role("heading", name="Keryx is running")).to_be_visible()
        page.ask("hello", "hello")
        page.page.reload()
        expect(page.answers).to_have_text(["hello"])
        assert TOKEN not in "".join(page.requests)
        page.open("/settings")
        page.page.get_by_role("button", name="Sign out").click()
        expect(page.page.get_by_role("heading", name="Sign in to Keryx")).to_be_visible()
        expect(page.page.locator("#app")).to_have_count(0)
