"""Set-up in the browser: models, platforms, tools, people and users, by mouse, by keyboard, on a phone and in German."""

import re
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from tests.agents.acp.conversation import PLAYER
from tests.browser.driver import PHONE, House, Tab, apart, tab
from tests.browser.test_access import faults
from tests.builders import at_time
from tests.fakes.endpoint import KEY, MODEL, Endpoint, answer
from tests.fakes.wechat import FakeWeChat

from keryx.core.ids import DEFAULT_PROFILE, OPERATOR
from keryx.core.questions import Consent
from keryx.core.sessions import TitleBy
from keryx.store import people, questions, sessions
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing import START_TIME

PASSWORD = "correct horse"
TOOL_SERVER = Path(__file__).parents[1] / "agents" / "tool_server.py"


def fill_store(tx: Transaction) -> None:
    for platform, person, name in (
        ("telegram", "7", "Ann"),
        ("signal", "8", "Ann B."),
        ("discord", "41", "Ann"),
    ):
        people.resolve(
            at_time(tx, START_TIME), profile=DEFAULT_PROFILE, platform=platform, person=person, name=name
        )
    session = sessions.create(at_time(tx, START_TIME), profile=DEFAULT_PROFILE, owner=OPERATOR, surface="web")
    sessions.rename(at_time(tx, START_TIME), sessions.get(tx, session), "Deploy", by=TitleBy.PERSON)
    questions.set_consent(tx, session, "run_in_terminal(git *)", Consent.ALLOW_ALWAYS, by=OPERATOR)


async def furnish(path: Path) -> None:
    async with SqliteDatabase(path) as database:
        await database.write("test", fill_store)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A home that one Keryx serves for the tests that do not restart it."""
    home = tmp_path_factory.mktemp("setup")
    apart(furnish(home / "keryx.db"))
    house = House(home)
    with house.serving():
        yield house


def test_a_model_is_tried_saved_and_answers_after_a_restart(browser: Browser, house: House) -> None:
    with (
        Endpoint(answer("ready")) as endpoint,
        house.serving(KERYX_AGENT="auto", KERYX_DRAIN="1s"),
        tab(browser, house) as page,
    ):
        page.open("/models")
        page.press("Add a model")
        form = page.page.get_by_role("form", name="Add a model")
        form.get_by_label("Provider").select_option("Another one")
        form.get_by_label("Address").fill("localhost/v1")
        form.get_by_label("Model", exact=True).fill(MODEL)
        form.get_by_label("Name here").fill("big")
        form.get_by_label("API key").fill(KEY)
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_role("alert")).to_contain_text("begins with https://")
        expect(form.get_by_label("Address")).to_be_focused()
        assert faults(page) == []
        form.get_by_label("Address").fill(endpoint.base_url)
        form.get_by_role("button", name="Test").click()
        expect(form.get_by_role("status")).to_contain_text("It answered “ready”")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
        models = page.page.get_by_role("list", name="Models")
        expect(models).to_contain_text("key in a file")
        page.press("Restart now")
        expect(page.page.get_by_text("What was saved is in force after a restart")).to_have_count(0)
        expect(page.page.get_by_text("Keryx restarts.")).to_have_count(0)
        expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
        expect(models).to_contain_text("big")
        page.open("/new")
        page.say("are you there?")
        expect(page.answers).to_have_text(["ready"])
        assert KEY not in page.page.content() and KEY not in "".join(page.requests)
        page.open("/guide")
        expect(page.page.get_by_role("heading", name="Connect a better model (done)")).to_be_visible()


def test_two_browsers_are_told_of_each_other(browser: Browser, shared: House) -> None:
    (shared.cli.home / "keryx.toml").write_text(
        '# mine\n[[models]]\nname = "small"\nbase_url = "http://localhost:1/v1"\nid = "s-1"\n'
    )
    with tab(browser, shared) as one, tab(browser, shared) as other:
        for page in (one, other):
            page.open("/models")
            page.press("Edit: small")
        for page, name in ((one, "s-2"), (other, "s-3")):
            page.page.get_by_label("Model", exact=True).fill(name)
            page.press("Save")
            if page is one:
                expect(page.page.get_by_role("form")).to_have_count(0)
        expect(other.page.get_by_role("form").get_by_role("alert")).to_contain_text("changed meanwhile")
        expect(other.page.get_by_role("list", name="Models")).to_contain_text("s-2")
        expect(other.page.get_by_label("Model", exact=True)).to_have_value("s-3")
        other.press("Save")
        expect(other.page.get_by_role("list", name="Models")).to_contain_text("s-3")
    assert (shared.cli.home / "keryx.toml").read_text().startswith("# mine\n")


def test_a_platform_is_connected_with_its_steps(browser: Browser, shared: House) -> None:
    with tab(browser, shared) as page:
        page.open("/platforms")
        page.press("Connect: Telegram")
        form = page.page.get_by_role("form", name="Connect Telegram")
        expect(form).to_contain_text("@BotFather")
        form.get_by_role("button", name="Connect").click()
        expect(form.get_by_role("alert")).to_have_text("This is needed.")
        form.get_by_label("Token", exact=False).first.fill("hunter2")
        form.get_by_role("button", name="Connect").click()
        expect(form.get_by_role("alert")).to_contain_text("does not look like a Telegram token")
        assert faults(page) == []
        page.press("Cancel")
        with FakeWeChat() as wechat:
            wechat.statuses[:] = [{"status": "need_verifycode"}, wechat.confirm()]
            page.press("Connect: WeChat")
            form = page.page.get_by_role("form", name="Connect WeChat")
            form.locator("[name=base_url]").fill(wechat.url)
            form.locator("[name=cdn_url]").fill(wechat.cdn_url)
            form.get_by_role("button", name="Connect").click()
            expect(page.page.locator(".qr-code")).to_contain_text("█")
            page.page.get_by_label("The number that WeChat shows").fill("42")
            page.press("Answer")
            expect(page.page.get_by_role("region", name="WeChat")).to_be_visible()
        expect(page.page.get_by_role("button", name="Restart now")).to_be_visible()
        assert faults(page) == []
        page.press("Remove…: WeChat")
        expect(page.page.get_by_role("dialog")).to_contain_text("Its chats and conversations stay")
        page.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(page.page.get_by_role("button", name="Connect: WeChat")).to_be_visible()
        assert "wechat" not in (shared.cli.home / "keryx.toml").read_text()


def test_a_server_of_tools_is_checked_before_it_is_saved(browser: Browser, shared: House) -> None:
    with tab(browser, shared, size=PHONE, touch=True) as page:
        page.open("/tools")
        page.press("Add a server")
        form = page.page.get_by_role("form", name="Add a server")
        form.get_by_label("Name", exact=True).first.fill("files")
        form.get_by_label("Command").fill(f"{sys.executable} -c 1")
        form.get_by_role("button", name="Check").click()
        expect(form.get_by_role("alert")).to_be_visible()
        form.get_by_label("Command").fill(f"{sys.executable} {TOOL_SERVER} {shared.cli.home}/runs")
        pair = form.get_by_role("group", name="Variables")
        pair.get_by_label("Name").first.fill("TOKEN")
        pair.get_by_label("Value").first.fill("s3cret")
        form.get_by_role("button", name="Check").click()
        expect(form.locator(".offered li").first).to_be_visible()
        assert faults(page) == []
        form.get_by_role("button", name="Save").click()
        expect(page.page.get_by_role("list", name="Servers of tools")).to_contain_text("files")
        assert "s3cret" not in page.page.content()
        page.press("Remove: files")
        page.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(page.page.get_by_role("heading", name="No server of tools")).to_be_visible()
        assert page.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_an_agent_is_checked_saved_and_answers_after_a_restart(browser: Browser, house: House) -> None:
    store = house.cli.home / "agent-store"
    store.mkdir(parents=True)
    with house.serving(KERYX_DRAIN="1s"), tab(browser, house, size=PHONE, touch=True) as page:
        page.open("/tools")
        page.press("Add an agent")
        form = page.page.get_by_role("form", name="Add an agent")
        expect(form.get_by_label("Command")).to_have_value(re.compile("claude-agent-acp"))
        form.get_by_label("Program").select_option("Gemini CLI")
        expect(form.get_by_label("Name", exact=True).first).to_have_value("gemini")
        form.get_by_label("Program").select_option("Another one")
        form.get_by_label("Name", exact=True).first.fill("Player")
        form.get_by_label("Command").fill(f"{sys.executable} {PLAYER} {store}")
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_role("alert")).to_contain_text("lower-case letters")
        form.get_by_label("Name", exact=True).first.fill("player")
        form.get_by_role("button", name="Check").click()
        expect(form.get_by_role("status")).to_contain_text("It works: Player 1.2")
        expect(form.get_by_role("status")).to_contain_text("small, large")
        assert faults(page) == []
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
        agents = page.page.get_by_role("list", name="Agents")
        expect(agents).to_contain_text("player")
        page.press("Restart now")
        expect(page.page.get_by_text("What was saved is in force after a restart")).to_have_count(0)
        expect(page.page.get_by_text("Keryx restarts.")).to_have_count(0)
        expect(page.page.get_by_text("Live", exact=True)).to_be_attached()
        page.open("/new")
        page.say("/agent player")
        expect(page.page.locator(".notice").last).to_contain_text("player")
        page.ask("hello", "Hello.")
        page.open("/tools")
        page.press("Edit: player")
        form = page.page.get_by_role("form", name="Change player")
        expect(form.get_by_label("Command")).to_have_value(f"{sys.executable} {PLAYER} {store}")
        form.get_by_role("button", name="Cancel").click()
        page.press("Remove: player")
        page.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(agents).not_to_contain_text("player")
        assert page.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_people_permissions_and_profiles_are_managed(browser: Browser, shared: House) -> None:
    with tab(browser, shared) as page:
        page.open("/permissions")
        page.press("Take back: run_in_terminal(git *)")
        expect(page.page.get_by_role("heading", name="Nothing was allowed for good")).to_be_visible()
        page.open("/people")
        entries = page.page.get_by_role("list", name="People").locator("li.entry")
        expect(entries).to_have_count(3)
        # Of two with one name the platform and its id tell which is meant.
        expect(page.page.get_by_role("button", name="Erase…: Ann (Discord 41)")).to_be_visible()
        expect(entries.filter(has_text="Discord · Ann · 41")).to_have_count(1)
        page.press("Merge…: Ann B.")
        dialog = page.page.get_by_role("dialog")
        dialog.get_by_label("Person").select_option("Ann (Telegram 7)")
        dialog.get_by_role("button", name="Merge").click()
        expect(entries).to_have_count(2)
        page.press("Split off: signal 8")
        expect(entries).to_have_count(3)
        page.press("Erase…: Ann B.")
        page.page.get_by_role("dialog").get_by_role("button", name="Erase for good").click()
        expect(entries).to_have_count(2)
        page.open("/profiles")
        page.press("Add a profile")
        page.page.get_by_label("Name", exact=True).fill("Main")
        page.press("Save")
        expect(page.page.get_by_role("alert")).to_contain_text("lower-case letters")
        page.page.get_by_label("Name", exact=True).fill("work")
        page.page.get_by_label("Instructions").fill("Be brief.")
        page.press("Save")
        profiles = page.page.get_by_role("list", name="Profiles")
        expect(profiles).to_contain_text("Be brief.")
        page.press("Remove: work")
        page.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(profiles).not_to_contain_text("work")


def test_a_job_shows_its_next_runs_while_it_is_typed(browser: Browser, shared: House) -> None:
    with tab(browser, shared) as page:
        page.open("/jobs")
        page.page.get_by_label("When", exact=True).fill("0 9 * * mon-fri")
        expect(page.page.get_by_role("list", name="Next runs").locator("li")).to_have_count(5)
        page.page.get_by_label("When", exact=True).fill("now and then")
        expect(page.page.locator(".form-box p.wrong")).to_be_visible()
        page.press("once a day")
        expect(page.page.get_by_role("list", name="Next runs").locator("li")).to_have_count(5)
        page.press("Add")
        expect(page.page.get_by_role("alert")).to_have_text("This is needed.")


def test_the_guided_start_is_left_and_found_again(browser: Browser, house: House) -> None:
    with house.serving(), tab(browser, house) as page:
        page.open("/")
        page.page.get_by_role("link", name="Choose a platform").click()
        expect(page.page.get_by_role("heading", name="Chat platforms")).to_be_visible()
        page.open("/")
        page.press("Leave the guided start")
        expect(page.page.get_by_role("heading", name="Talk now")).to_have_count(0)
        page.page.reload()
        expect(page.page.get_by_role("heading", name="Keryx is running")).to_be_visible()
        expect(page.page.get_by_role("heading", name="Talk now")).to_have_count(0)
        page.open("/settings")
        page.page.get_by_role("link", name="Guided start").click()
        expect(page.page.get_by_role("heading", name="Talk now")).to_be_visible()


def test_a_model_is_added_with_the_keyboard_alone_in_german(browser: Browser, shared: House) -> None:
    context = browser.new_context(locale="de-DE")
    page = Tab(context, shared.address).open("/models")
    page.page.get_by_role("button", name="Modell hinzufügen").focus()
    page.page.keyboard.press("Enter")
    expect(page.page.get_by_role("form", name="Modell hinzufügen")).to_be_visible()
    page.page.get_by_label("Adresse").focus()
    page.page.keyboard.press("Control+a")
    page.page.keyboard.type("https://")
    page.page.keyboard.press("Tab")
    page.page.keyboard.type("ein-modell")
    page.page.keyboard.press("Enter")
    expect(page.page.get_by_role("alert")).to_contain_text("Schreibe eine Adresse")
    expect(page.page.get_by_label("Adresse")).to_be_focused()
    page.page.keyboard.press("Control+a")
    page.page.keyboard.type("http://localhost:9/v1")
    for _ in range(3):
        page.page.keyboard.press("Tab")
    page.page.keyboard.press("End")
    page.page.keyboard.press("ArrowDown")
    page.page.get_by_label("Modell", exact=True).focus()
    page.page.keyboard.press("Enter")
    expect(page.page.get_by_role("list", name="Modelle")).to_contain_text("ein-modell")
    assert page.errors == []
    context.close()


@contextmanager
def at_localhost(browser: Browser, house: House) -> Generator[tuple[BrowserContext, Tab]]:
    """A tab under a name, which passkeys need, with a device that has them."""
    context = browser.new_context(locale="en-GB")
    page = Tab(context, f"http://localhost:{house.port}")
    session = context.new_cdp_session(page.page)
    session.send("WebAuthn.enable")  # pyright: ignore[reportUnknownMemberType]
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})  # pyright: ignore[reportUnknownMemberType]
    try:
        yield context, page
        page.healthy()
    finally:
        context.close()


def sign_in(page: Tab, name: str, password: str) -> None:
    page.page.get_by_label("Name").fill(name)
    page.page.get_by_label("Password or token").fill(password)
    page.page.get_by_label("Password or token").press("Enter")
    expect(page.page.get_by_text("Live", exact=True)).to_be_visible()


def test_a_user_signs_in_with_a_password_and_then_with_a_passkey(browser: Browser, house: House) -> None:
    with house.serving(KERYX_WEB_PASSWORD=PASSWORD):
        with tab(browser, house) as operator:
            operator.open("/users")
            sign_in(operator, "", PASSWORD)
            operator.press("Add a user")
            form = operator.page.get_by_role("form", name="Add a user")
            form.get_by_label("Name").fill("ann")
            form.get_by_label("Password").fill("short")
            form.get_by_role("button", name="Save").click()
            expect(form.get_by_role("alert")).to_contain_text("too short")
            form.get_by_label("Password").fill("a horse for ann")
            form.get_by_role("button", name="Save").click()
            expect(operator.page.get_by_role("list", name="Users")).to_contain_text("ann")
            assert faults(operator) == []
            operator.begin("only for me", "only for me")
        with at_localhost(browser, house) as (context, page):
            page.open("/")
            page.page.get_by_label("Name").fill("ann")
            page.page.get_by_label("Password or token").fill("wrong")
            page.press("Sign in")
            expect(page.page.get_by_role("alert")).to_contain_text("name or the password")
            sign_in(page, "ann", "a horse for ann")
            expect(page.rows()).to_have_count(0)
            page.open("/settings")
            tabs = page.page.get_by_role("navigation", name="Settings")
            expect(tabs).not_to_contain_text("Models")
            page.open("/models")
            expect(page.page.get_by_text("Only the operator may do this")).to_be_visible()
            page.open("/users")
            page.press("Make a passkey")
            page.page.get_by_label("Name of the device").fill("laptop")
            page.page.get_by_role("form").get_by_role("button", name="Make a passkey").click()
            expect(page.page.get_by_role("list", name="Passkeys")).to_contain_text("laptop")
            context.clear_cookies()
            page.page.reload()
            page.press("Use a passkey")
            expect(page.page.get_by_text("Live", exact=True)).to_be_visible()
            page.open("/users")
            expect(page.page.get_by_role("list", name="Passkeys")).to_contain_text("last used")
            page.press("Remove: laptop")
            page.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
            expect(page.page.get_by_role("list", name="Passkeys")).to_have_count(0)
