"""Hostile: names, words, tools and files that try to run something run nothing, on every screen."""

import itertools
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Browser, Locator, expect
from tests.browser.driver import House, Tab, apart, tab
from tests.builders import at_time

from keryx.core import ids, lanes
from keryx.core.deliveries import Target
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, SessionId, TurnId
from keryx.core.messages import File, Image, Notice, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.sessions import TitleBy, Viewer
from keryx.core.source import Source
from keryx.engine.policy import Policy
from keryx.engine.units import jobs
from keryx.engine.units.jobs import JobOrigin, JobRequest
from keryx.store import deliveries, messages, people, projects, sessions
from keryx.store import lanes as lane_store
from keryx.store.changes import Scope
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase

TRAP = """
window.sprung = [];
window.trap = (n) => window.sprung.push(n ?? "?");
window.alert = window.confirm = window.prompt = () => window.sprung.push("dialog");
document.addEventListener("securitypolicyviolation", (e) => window.sprung.push(`${e.violatedDirective} ${e.sample}`));
"""
ALIVE = """
() => [...document.querySelectorAll("*")].flatMap((e) => [
  ...(["SCRIPT", "IFRAME", "OBJECT", "EMBED", "FORM", "BASE", "META", "LINK", "STYLE"].includes(e.tagName)
      && e.closest("#page, dialog") && !e.closest(".composer, .question, .ask, .line-form, .form-box, .stack, .settings") ? [e.outerHTML] : []),
  ...[...e.attributes].filter((a) => /^on/i.test(a.name) || /^\\s*(javascript|vbscript|data:text)/i.test(a.value)
      || (a.name === "style" && /url|expression|@import/i.test(a.value))).map((a) => `${e.tagName} ${a.name}=${a.value}`),
])
"""

_CALLS = ("trap(1)", "trap`1`", "window['trap'](1)", "&#116;rap(1)", "top.trap(1)")
_TAGS = (
    "img src=x",
    "svg",
    "body",
    "input autofocus",
    "video src=x",
    "details open",
    "marquee",
    "a href=#",
    "iframe",
    "math",
)
_HANDLERS = (
    "onerror",
    "onload",
    "onfocus",
    "ontoggle",
    "onmouseover",
    "onanimationstart",
    "ONERROR",
    "on\nerror",
)
_SCHEMES = (
    "javascript:",
    "JaVaScRiPt:",
    "java\tscript:",
    " javascript:",
    "vbscript:",
    "data:text/html,<script>",
    "&#106;avascript:",
)
_FRAMES = (
    "<script>{}</script>",
    "<SCRIPT SRC=//x>{}</SCRIPT>",
    "<scr<script>ipt>{}</script>",
    "<style>@import 'javascript:{}'</style>",
    "<iframe srcdoc='<script>{}</script>'></iframe>",
    "<template><script>{}</script></template>",
    "<noscript><p title='</noscript><img src=x onerror={}>'>",
    "<math><mtext><table><mglyph><style><img src=x onerror={}>",
    "</textarea><script>{}</script>",
    "--><script>{}</script>",
    "<svg><script>{}</script></svg>",
    "<![CDATA[<script>{}</script>]]>",
)
_LINKS = (
    "[x]({}{})",
    "![x]({}{})",
    "<{}{}>",
    "[x]: {}{}\n\n[x]",
    "[![x]({0}{1})]({0}{1})",
    "<a href='{}{}'>x</a>",
)
_CODE = (
    "```{}\nx\n```",
    "`{}`",
    "~~~\n</code></pre>{}\n~~~",
    "| {} |\n|---|\n| {} |",
    "> {}",
    "1. {}",
    "# {}",
    "\\{}",
)
_DIAGRAMS = (
    'flowchart TD\nA["{0}"] -->|{0}| B',
    "graph LR\nA[{0}] --> B",
    'graph TD\nA --> B\nclick A href "javascript:trap(1)"\nclick B call trap(1)\nstyle A fill:url(javascript:trap(1))',
    "flowchart TD\nsubgraph g [{0}]\na --> b\nend",
    "sequenceDiagram\ntitle {0}\nparticipant A as {0}\nA->>B: {0}\nNote over A,B: {0}",
    'pie title {0}\n"{0}" : 1',
)
# Each of these with one of the ways to try.
_FURTHER_DIAGRAMS = (
    'stateDiagram-v2\nstate "{0}" as a\n[*] --> a : {0}\nnote right of a : {0}',
    'classDiagram\nclass A["{0}"]\nA <|-- B : {0}\nA : {0}()\nclick A href "javascript:trap(1)"',
    'erDiagram\nA ||--o{{ B : "{0}"\nA {{\n  string name "{0}"\n}}',
    "mindmap\n  root(({0}))\n    {0}\n    ::icon({0})",
    "timeline\ntitle {0}\nsection {0}\n2020 : {0}",
    "gantt\ntitle {0}\nsection {0}\n{0} : a, 2026-01-01, 3d\nclick a call trap(1)",
    'gitGraph\ncommit id: "{0}" tag: "{0}"\nbranch "{0}"',
)


_TEX = (
    r"$\text{{{}}}$",
    r"$$\begin{{matrix}} \text{{{}}} \end{{matrix}}$$",
    r"\(\mathrm{{{}}}\)",
    r"\[\tag{{{}}} x\]",
    r"$\textcolor{{{}}}{{x}}$",
)
_PARTS = (
    "a[^1]\n\n[^1]: {0}",
    "a[^{0}]\n\n[^{0}]: x",
    "<details>\n<summary>{0}</summary>\n{0}\n</details>",
    "<details {0}>\n<summary>a</summary>\n\n<details><summary>{0}</summary>\nb\n</details>\n</details>",
    "- [x] {0}",
)


def payloads() -> list[str]:
    """A few hundred ways to try, from a small grammar."""
    tags = [
        f"<{tag} {handler}={call}>" for tag, handler, call in itertools.product(_TAGS, _HANDLERS, _CALLS[:2])
    ]
    quoted = [
        f"\"'><{tag} {handler}='{_CALLS[3]}'>"
        for tag, handler in zip(_TAGS, itertools.cycle(_HANDLERS), strict=False)
    ]
    links = [
        form.format(scheme, call) for form, scheme, call in itertools.product(_LINKS, _SCHEMES, _CALLS[:2])
    ]
    frames = [form.format(call) for form, call in itertools.product(_FRAMES, _CALLS)]
    code = [form.replace("{}", tags[n * 7 % len(tags)]) for n, form in enumerate(_CODE * 4)]
    diagrams = [
        "```mermaid\n" + form.format(bad.replace('"', "")) + "\n```"
        for form, bad in itertools.product(_DIAGRAMS, (*tags[:3], *frames[:3], *quoted[:2]))
    ]
    diagrams += [
        "```mermaid\n" + form.format(bad.replace('"', "")) + "\n```"
        for form, bad in itertools.product(_FURTHER_DIAGRAMS, (tags[0], frames[0]))
    ]
    parts = [form.format(bad) for form in (*_TEX, *_PARTS) for bad in (tags[0], frames[0], quoted[3])]
    return [*tags, *quoted, *links, *frames, *code, *diagrams, *parts]


async def poison(path: Path) -> SessionId:
    async with SqliteDatabase(path) as database:
        return await database.write("poison", _write)


def _write(tx: Transaction) -> SessionId:
    all_of_them = payloads()
    at = datetime.now(UTC) - timedelta(hours=4)
    viewer = Viewer(DEFAULT_PROFILE, OPERATOR)
    first = None
    for n, bad in enumerate(all_of_them[:60:3]):
        source = Source(
            platform="telegram", chat=f"c{n}{bad}", chat_name=bad, user=f"u{n}", user_name=bad, topic=bad
        )
        owner = people.resolve(
            at_time(tx, at), profile=DEFAULT_PROFILE, platform="telegram", person=f"u{n}", name=bad
        )
        made = sessions.create(
            at_time(tx, at), profile=DEFAULT_PROFILE, owner=owner, surface="gateway", origin=source, cwd=bad
        )
        lane = lane_store.ensure(at_time(tx, at), lanes.build_address(source), source, owner=owner)
        lane_store.move(at_time(tx, at), lane, made, why=bad)
        messages.append(at_time(tx, at), made, Role.USER, (Text(bad),), author=bad, surface="telegram")
        sessions.rename(at_time(tx, at), sessions.get(tx, made), f"{n} {bad}", by=TitleBy.PERSON)
        deliveries.enqueue(
            at_time(tx, at),
            Target("telegram", "bot", bad),
            bad,
            of=Scope(DEFAULT_PROFILE, owner, made),
        )
        wanted = JobRequest(schedule="@daily", prompt=bad, name=f"{n} {bad}", to="origin")
        if bad.strip():
            place = JobOrigin(origin=Target("telegram", "bot", bad))
            jobs.add(at_time(tx, at), Viewer(DEFAULT_PROFILE, owner), wanted, place, policy=Policy())
        if n < 5:
            projects.add(at_time(tx, at), viewer, name=f"{n} {bad}"[:90], colour="")
        first = first or made
    shown = first
    assert shown
    for n, bad in enumerate(all_of_them):
        _poisoned(tx, shown, n, bad, at + timedelta(seconds=n))
    return shown


def _poisoned(tx: Transaction, session: SessionId, n: int, bad: str, at: datetime) -> None:
    turn = TurnId(ids.new(at))
    messages.append(
        at_time(tx, at), session, Role.USER, (Text(bad),), turn=turn, author=bad, surface=bad[:20]
    )
    if n % 3 == 0:
        parts = (
            Reasoning(bad),
            Text(bad),
            ToolCall(f"c{n}", bad, bad),
            ToolCall(f"d{n}", "x", f'{{"q": "{n} {bad[:30]}"}}'),
        )
        messages.append(at_time(tx, at), session, Role.ASSISTANT, parts, turn=turn)
        messages.append(
            at_time(tx, at), session, Role.TOOL, (ToolResult(f"c{n}", bad, bad, failed=True),), turn=turn
        )
    elif n % 3 == 1:
        messages.append(
            at_time(tx, at), session, Role.ASSISTANT, (Text(f"before\n\n{bad}\n\nafter"),), turn=turn
        )
        files = (Image("0" * 64, "image/svg+xml", bad), File("1" * 64, bad, bad))
        messages.append(at_time(tx, at), session, Role.USER, files, turn=turn)
    else:
        messages.append(at_time(tx, at), session, Role.NOTICE, (Notice(bad, bad),), turn=turn)


def unharmed(page: Tab, where: str) -> None:
    assert page.page.evaluate("window.sprung") == [], where
    assert page.page.evaluate(ALIVE) == [], where


def test_there_are_a_few_hundred_of_them() -> None:
    assert len(set(payloads())) > 300


def go_up(talk: Locator, first: Locator, seq: str) -> None:
    """Scroll until another message is the first one: what unfolds just then may hold the view where it was."""
    for _ in range(10):
        talk.evaluate("e => { e.scrollTop -= 3 * e.clientHeight }")
        with suppress(AssertionError):
            expect(first).not_to_have_attribute("data-seq", seq, timeout=3000)
            return
    raise AssertionError(f"nothing comes before message {seq}")


def test_nothing_that_is_shown_runs(browser: Browser, house: House) -> None:
    session = apart(poison(house.cli.home / "keryx.db"))
    (house.cli.home / "keryx.toml").write_text(f'[web]\npublic_address = "{house.address}"\n')
    with house.serving(), tab(browser, house) as page:
        page.page.add_init_script(TRAP)
        page.open(f"/s/{session}")
        talk = page.page.get_by_role("log")
        articles = page.page.locator("article.message, .notice")
        expect(articles.last).to_be_attached()
        page.page.get_by_role("button", name="Details (i)").click()
        seq = ""
        for step in range(400):
            page.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
            unharmed(page, f"step {step}")
            seq = articles.first.get_attribute("data-seq")
            if seq == "1":
                break
            go_up(talk, articles.first, str(seq))
        assert seq == "1"
        for path in (
            "/",
            "/board",
            "/deliveries",
            "/lanes",
            "/jobs",
            "/pairing",
            "/usage",
            "/settings",
            "/people",
            "/permissions",
            *("/models", "/platforms", "/tools", "/users", "/profiles", "/guide"),
        ):
            page.open(path)
            expect(page.page.get_by_text("Loading…")).to_have_count(0)
            unharmed(page, path)
        page.page.get_by_role("searchbox").fill("trap")
        expect(page.page.locator("a.hit").first).to_be_visible()
        unharmed(page, "search")
        page.page.keyboard.press("Control+k")
        page.page.locator("dialog input").fill("img")
        expect(page.page.locator("dialog .option").first).to_be_visible()
        unharmed(page, "palette")
        page.page.keyboard.press("Escape")
        page.open(f"/s/{session}")
        expect(articles.last).to_be_attached()
        page.choose("Search in this conversation")
        page.page.get_by_role("searchbox", name="Search in this conversation").fill("trap")
        expect(page.page.get_by_role("button", name="The next one (Enter)")).to_be_enabled()
        unharmed(page, "search of the conversation")
        page.choose("Questions and dates")
        expect(page.page.get_by_role("dialog").locator(".line").first).to_be_visible()
        unharmed(page, "outline")
        page.page.keyboard.press("Escape")
        page.page.evaluate("() => { window.print = () => {}; }")
        page.choose("Print, or save as PDF")
        expect(page.page.locator("#paper .message").first).to_be_attached()
        unharmed(page, "paper")
        page.page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.choose("Share by a link")
        page.press("Make a link")
        page.page.goto(page.page.get_by_role("textbox", name="The link").input_value())
        expect(page.page.locator(".shared .message").first).to_be_attached()
        page.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
        unharmed(page, "shared page")


def test_nothing_in_a_picture_runs(page: Tab, tmp_path: Path) -> None:
    page.page.add_init_script(TRAP)
    picture = tmp_path / "trap.svg"
    picture.write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" onload="trap(1)"><script>trap(2)</script>'
        '<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><img src="x" onerror="trap(3)"/></body></foreignObject></svg>'
    )
    page.begin("pictures", "pictures")
    page.page.get_by_label("Files to attach").set_input_files([picture])
    expect(page.page.locator(".attached .attachment")).to_contain_text("trap.svg")
    page.ask("look", "look")
    file = page.page.locator(".message.user .files a").last
    unharmed(page, "in the conversation")
    address = str(file.get_attribute("href"))
    page.page.evaluate(
        "(address) => { document.body.append(Object.assign(new Image(), { src: address })); }", address
    )
    answer = page.page.request.get(f"{page.address}{address}")
    assert "script" not in answer.headers.get("content-security-policy", "").replace("script-src 'none'", "")
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    unharmed(page, "beside it")


def test_nothing_that_is_typed_or_streamed_runs(page: Tab) -> None:
    page.page.add_init_script(TRAP)
    page.open("/new")
    bad = "<img src=x onerror=trap(1)><script>trap(2)</script> [x](javascript:trap(3)) <svg onload=trap(4)>"
    page.say(f"slow 2 {bad}")
    expect(page.draft).to_contain_text("trap(1)")
    unharmed(page, "draft")
    expect(page.answers.last).to_contain_text("trap(4)")
    page.say(f"/title {bad[:90]}")
    expect(page.page.get_by_role("heading", name="onerror")).to_be_visible()
    page.say(f"!tool {bad}")
    expect(page.page.locator("details.tool").last).to_contain_text("done")
    page.say(f"!fail {bad}")
    expect(page.page.locator(".trouble, .notice").last).to_contain_text("trap(2)")
    unharmed(page, "after")
