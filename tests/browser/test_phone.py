"""Phones: the page opens without its server, what waits is sent by the worker alone, notifications while the page is closed, and what other apps share."""

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, CDPSession, Worker, expect
from tests.browser.driver import PHONE, WAIT, House, Tab, tab

TOKEN = "a-long-token-for-the-browser-test"
ACTIVE = "navigator.serviceWorker.ready.then(() => new Promise((done) => { const look = () => navigator.serviceWorker.controller ? done() : setTimeout(look, 20); look(); }))"
CACHED = """async () => {
  const found = [];
  for (const name of await caches.keys()) {
    const cache = await caches.open(name);
    for (const request of await cache.keys()) found.push([name, request.url, await (await cache.match(request)).text()]);
  }
  return found;
}"""
READ = """() => new Promise((done) => {
  const request = indexedDB.open("keryx-worker", 1);
  request.onupgradeneeded = () => request.result.createObjectStore("records", { keyPath: "id" });
  request.onsuccess = () => {
    const all = request.result.transaction("records").objectStore("records").getAll();
    all.onsuccess = () => (request.result.close(), done(all.result));
  };
})"""
# The page cannot send messages; its worker can.
CANNOT_SEND = """() => {
  const ask = window.fetch;
  window.fetch = (path, more) => more?.method === "POST" && String(path).includes("/api/sessions") ? Promise.reject(new TypeError("no way")) : ask(path, more);
}"""
# The share of another app, which comes as a form does.
SHARE = """([title, text, url, names]) => {
  const form = Object.assign(document.createElement("form"), { method: "post", action: "/share-target", enctype: "multipart/form-data" });
  const files = new DataTransfer();
  for (const name of names) files.items.add(new File([`what ${name} says`], name, { type: "text/plain" }));
  for (const [name, value] of Object.entries({ title, text, url })) form.append(Object.assign(document.createElement("input"), { name, value }));
  form.append(Object.assign(document.createElement("input"), { type: "file", name: "files", multiple: true, files: files.files }));
  document.body.append(form);
  form.submit();
}"""


@contextmanager
def phone(browser: Browser, house: House) -> Generator[Tab]:
    with tab(browser, house, size=PHONE, touch=True, worker=True) as page:
        yield page


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One server for the tests in which it does not stop."""
    house = House(tmp_path_factory.mktemp("home"))
    with house.serving():
        yield house


def settle(page: Tab) -> Worker:
    """Wait until the worker answers for the page; gives it."""
    page.page.evaluate(ACTIVE)
    return page.page.context.service_workers[-1]


def records(page: Tab) -> dict[str, dict[str, Any]]:
    return {record["id"]: record for record in cast(list[dict[str, Any]], page.page.evaluate(READ))}


def until(page: Tab, condition: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
    """Wait until the records of the worker meet a condition."""
    for _ in range(600):
        if condition(records(page)):
            return
        page.page.wait_for_timeout(100)
    raise AssertionError(records(page))


def until_shown(page: Tab, worker: Worker, *shown: list[str]) -> None:
    """Wait until the browser shows these notifications: while one replaces another it has none for a moment."""
    for _ in range(600):
        if worker.evaluate(SHOWN) == list(shown):
            return
        page.page.wait_for_timeout(100)
    assert worker.evaluate(SHOWN) == list(shown)


class Pushes:
    """The part of the browser that gives the worker what a push service sends it."""

    def __init__(self, page: Tab) -> None:
        self._session: CDPSession = page.page.context.new_cdp_session(page.page)
        self._registrations: list[dict[str, Any]] = []
        self._origin = page.address
        self._session.on("ServiceWorker.workerRegistrationUpdated", self._note)
        # The driver gives what the browser's protocol says, which it has no types for.
        self._ask = cast(Callable[..., object], self._session.send)  # pyright: ignore[reportUnknownMemberType]
        self._ask("ServiceWorker.enable")
        page.page.wait_for_function("true")

    def _note(self, event: dict[str, Any]) -> None:
        self._registrations += event["registrations"]

    @property
    def registration(self) -> str:
        return self._registrations[-1]["registrationId"]

    def deliver(self, **told: str) -> None:
        self._ask(
            "ServiceWorker.deliverPushMessage",
            {"origin": self._origin, "registrationId": self.registration, "data": json.dumps(told)},
        )

    def sync(self) -> None:
        self._ask(
            "ServiceWorker.dispatchSyncEvent",
            {
                "origin": self._origin,
                "registrationId": self.registration,
                "tag": "outbox",
                "lastChance": False,
            },
        )


SHOWN = "self.registration.getNotifications().then((all) => all.map((n) => [n.title, n.body, n.tag]))"


def test_the_page_opens_without_its_server_and_shows_what_waits(browser: Browser, house: House) -> None:
    with phone(browser, house) as page:
        with house.serving() as node:
            page.begin("before the outage", "before the outage")
            settle(page)
            node.process.kill()
            expect(page.page.locator(".link").first).not_to_have_text("Live")
            page.say("written in the tunnel")
            page.page.on("dialog", lambda dialog: dialog.accept())
            page.page.reload()
            expect(page.page.get_by_role("heading", name="Keryx does not answer")).to_be_visible()
            expect(page.page.get_by_text("1 message waits in this browser")).to_be_visible()
            expect(page.page.get_by_text("written in the tunnel")).to_be_visible()
        with house.serving():
            expect(page.answers).to_have_text(["before the outage", "written in the tunnel"])


def test_the_cache_has_files_of_the_page_and_nothing_of_a_person(browser: Browser, shared: House) -> None:
    with phone(browser, shared) as page:
        session = page.begin("very private words", "very private words")
        settle(page)
        page.open("/settings")
        page.page.reload()
        expect(page.page.get_by_text("Being told")).to_be_visible()
        found = cast(list[list[str]], page.page.evaluate(CACHED))
        assert len({name for name, _, _ in found}) == 1
        paths = [url.removeprefix(page.address) for _, url, _ in found]
        version = re.compile(r"/static/[0-9a-f]{12}/[\w./-]+")
        assert "/" in paths and all(path == "/" or version.fullmatch(path) for path in paths), paths
        assert not [url for _, url, text in found if "very private words" in text or session in text]


def test_the_browser_offers_to_install_the_page(browser: Browser, shared: House) -> None:
    with phone(browser, shared) as page:
        page.open()
        settle(page)
        session = page.page.context.new_cdp_session(page.page)
        # The driver gives what the browser's protocol says, which it has no types for.
        ask = cast(Callable[[str], dict[str, Any]], session.send)  # pyright: ignore[reportUnknownMemberType]
        manifest = ask("Page.getAppManifest")
        assert manifest["url"].startswith(page.address) and manifest["errors"] == []
        found = {error["errorId"] for error in ask("Page.getInstallabilityErrors")["installabilityErrors"]}
        # Every tab of a test is a private one.
        assert found <= {"in-incognito"}


def test_a_new_release_leaves_nothing_of_an_old_one(browser: Browser, shared: House) -> None:
    with phone(browser, shared) as page:
        page.open()
        worker = settle(page)
        worker.evaluate(
            "caches.open('keryx-000000000000').then((c) => c.put('/', new Response('an old page')))"
        )
        assert worker.evaluate("caches.keys().then((all) => all.length)") == 2
        worker.evaluate("renew()")
        [name] = worker.evaluate("caches.keys()")
        assert name != "keryx-000000000000"
        # What the server sends is shown whenever it answers.
        worker.evaluate("caches.open(CACHE).then((c) => c.put('/', new Response('a kept page')))")
        page.page.reload()
        expect(page.page.locator("#app")).to_be_visible()


def test_what_waits_is_sent_once_by_the_worker(browser: Browser, shared: House) -> None:
    with phone(browser, shared) as page:
        session = page.begin("the first", "the first")
        settle(page)
        context = page.page.context
        until(page, lambda found: "who" in found)
        page.page.evaluate(CANNOT_SEND)
        pushes = Pushes(page)
        page.say("by the worker")
        page.open("/new")
        page.say("a new one by the worker")
        until(page, lambda found: any(box.get("items") for box in found.values()))
        pushes.sync()
        expect(page.answers).to_have_text(["a new one by the worker"])
        expect(page.page.get_by_text("not sent yet")).to_have_count(0)
        page.page.on("dialog", lambda dialog: dialog.accept())
        page.page.close()
        again = Tab(context, page.address).open(f"/s/{session}")
        expect(again.questions).to_have_text(["the first", "by the worker"])
        expect(again.answers).to_have_text(["the first", "by the worker"])
        again.open()
        expect(again.rows().filter(has_text="a new one by the worker")).to_have_count(1)
        again.healthy()


def test_what_waits_is_sent_while_no_page_is_open(browser: Browser, shared: House) -> None:
    with phone(browser, shared) as page:
        session = page.begin("begun", "begun")
        worker = settle(page)
        context = page.page.context
        until(page, lambda found: "who" in found)
        page.page.evaluate(CANNOT_SEND)
        worker.evaluate(
            "() => { self.sending = sendBox; sendBox = () => Promise.reject(new Error('away')); }"
        )
        page.say("said on the way out")
        until(page, lambda found: any(len(box.get("items", [])) == 1 for box in found.values()))
        # Another page of the same address holds the way to the worker, and runs none of ours.
        other = Tab(context, page.address)
        other.page.goto(f"{page.address}/healthz")
        page.page.on("dialog", lambda dialog: dialog.accept())
        page.page.close()
        worker.evaluate("() => { sendBox = self.sending; }")
        worker.evaluate("sendAll()")
        until(other, lambda found: any(len(box.get("sent", [])) == 1 for box in found.values()))
        posted: list[str] = []
        again = Tab(context, page.address)
        again.page.on(
            "request",
            lambda r: posted.append(r.url) if r.method == "POST" and r.url.endswith("/messages") else None,
        )
        again.open(f"/s/{session}")
        expect(again.questions).to_have_text(["begun", "said on the way out"])
        expect(again.page.get_by_text("not sent yet")).to_have_count(0)
        assert posted == []
        again.healthy()


def test_the_worker_sends_nothing_for_somebody_who_has_signed_out(browser: Browser, house: House) -> None:
    with house.serving(KERYX_WEB_TOKEN=TOKEN), phone(browser, house) as page:
        page.open()
        page.page.get_by_label("Password or token").fill(TOKEN)
        page.page.get_by_role("button", name="Sign in").click()
        expect(page.page.locator("#app")).to_be_visible()
        page.begin("hello", "hello")
        settle(page)
        until(page, lambda found: found.get("who", {}).get("principal") == "operator")
        pushes = Pushes(page)
        page.page.context.grant_permissions(["notifications"])
        # As the cookie of somebody else would be: the server knows for whom the message was written.
        refused = page.page.evaluate(
            "fetch('/api/sessions', {method: 'POST', headers: {'Keryx-Person': 'ann', 'Content-Type': 'application/json'}, body: '{\"text\": \"x\"}'}).then((a) => a.status)"
        )
        assert refused == 401
        page.page.context.clear_cookies()
        page.page.reload()
        expect(page.page.get_by_role("heading", name="Sign in to Keryx")).to_be_visible()
        until(page, lambda found: "who" not in found and not any(name.startswith("out ") for name in found))
        worker = settle(page)
        pushes.deliver(
            id="finished 1", who="operator", session="s", path="/#/s/1", title="hello", text="a secret"
        )
        pushes.sync()
        assert worker.evaluate(SHOWN) == []
        found = cast(list[list[str]], page.page.evaluate(CACHED))
        assert not [url for _, url, text in found if "hello" in text and url.endswith("/")]


def test_a_push_is_shown_once_and_opens_its_conversation(browser: Browser, shared: House) -> None:
    with phone(browser, shared) as page:
        page.page.context.grant_permissions(["notifications"])
        session = page.begin("to be opened", "to be opened")
        worker = settle(page)
        until(page, lambda found: "who" in found)
        page.open("/board")
        pushes = Pushes(page)
        told = {"who": "operator", "session": session, "path": f"/#/s/{session}", "title": "Keryx"}
        # Nobody looks at the page.
        other = page.page.context.new_page()
        other.bring_to_front()
        worker.evaluate(
            "clients.matchAll = ((all) => (...more) => all.apply(clients, more).then((found) => found.map((c) => ({ focused: false, url: c.url, focus: () => c.focus(), postMessage: (m) => c.postMessage(m) }))))(clients.matchAll)"
        )
        pushes.deliver(id="finished 1", text="An answer is finished", **told)
        until_shown(page, worker, ["Keryx", "An answer is finished", session])
        pushes.deliver(id="question 2", text="An agent needs you", **told)
        until_shown(page, worker, ["Keryx", "An agent needs you", session])
        worker.evaluate("self.registration.getNotifications().then(([n]) => clicked(n).catch(() => {}))")
        expect(page.page).to_have_url(re.compile(f"#/s/{session}$"))
        expect(page.answers).to_have_text(["to be opened"])
        until_shown(page, worker)
        other.close()


def test_a_push_that_is_broken_or_leads_elsewhere_does_nothing(browser: Browser, shared: House) -> None:
    with phone(browser, shared) as page:
        page.page.context.grant_permissions(["notifications"])
        page.open()
        worker = settle(page)
        until(page, lambda found: "who" in found)
        for text in ("", "null", "{", '{"who": ""}', '{"who": "ann", "title": "x"}'):
            worker.evaluate("(text) => pushed({ json: () => JSON.parse(text) })", text)
        assert worker.evaluate(SHOWN) == []
        for path in ("https://evil.example/", "//evil.example/", "javascript:alert(1)", 7):
            worker.evaluate("(path) => clicked({ close() {}, data: { path } })", path)
        expect(page.page.locator("#app")).to_be_visible()
        assert len(page.page.context.pages) == 1


def test_what_another_app_shares_stands_in_a_new_conversation_and_is_not_sent(
    browser: Browser, shared: House
) -> None:
    with phone(browser, shared) as page:
        page.open()
        settle(page)
        page.open("/new")
        page.composer.fill("I was writing this")
        expect(page.page.get_by_text("Draft saved")).to_be_visible()
        page.page.evaluate(
            SHARE,
            ["A page", "Read this: https://keryx.example/x", "https://keryx.example/x", ["a.txt", "b.txt"]],
        )
        expect(page.composer).to_have_value(
            "I was writing this\n\nA page\nRead this: https://keryx.example/x"
        )
        expect(page.page.locator(".attachment")).to_have_text([re.compile("a.txt"), re.compile("b.txt")])
        expect(page.page).to_have_url(re.compile(r"/#/new$"))
        listed = cast(str, page.page.evaluate("fetch('/api/sessions').then((answer) => answer.text())"))
        assert "A page" not in listed
        expect(page.page.get_by_text("Draft saved")).to_be_visible()
        page.press("Send")
        expect(page.answers.last).to_contain_text("A page")
        expect(page.questions.last.locator("a, .file")).not_to_have_count(0)


def test_a_share_that_is_too_large_or_empty_is_told(browser: Browser, shared: House) -> None:
    with phone(browser, shared) as page:
        page.open()
        settle(page)
        page.page.evaluate(SHARE, ["", "x" * 100_001, "", []])
        expect(page.page.get_by_text("What was shared is too large.")).to_be_visible()
        page.page.evaluate(SHARE, [" ", "", "", []])
        expect(page.page.get_by_text("What was shared did not arrive. Share it again.")).to_be_visible()
        expect(page.composer).not_to_have_value(re.compile("x{10}"))


def test_without_a_worker_a_share_is_told_to_be_lost(browser: Browser, shared: House) -> None:
    with tab(browser, shared, size=PHONE, touch=True) as page:
        page.open()
        page.page.evaluate(SHARE, ["A page", "", "", []])
        expect(page.page.get_by_text("What was shared did not arrive. Share it again.")).to_be_visible()


def test_the_settings_say_what_is_possible_in_this_browser(browser: Browser, shared: House) -> None:
    with phone(browser, shared) as page:
        page.page.context.grant_permissions(["notifications"])
        page.open()
        settle(page)
        page.open("/settings")
        box = page.page.get_by_label("While the page is closed too")
        expect(box).not_to_be_checked()
        # There is no push service here, which is told where it happens.
        box.click()
        expect(page.page.get_by_text("The push service of this browser does not answer")).to_be_visible(
            timeout=WAIT
        )
        expect(box).not_to_be_checked()
        # Chromium says on the console that a window without history has no push service.
        page.errors = [text for text in page.errors if "Push API" not in text]
