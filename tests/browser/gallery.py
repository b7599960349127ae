"""Gallery: every screen of the page, with a store that was used for some weeks, for checks of its form and for pictures.

`python -m tests.browser.gallery FOLDER [--sizes 360,1280] [--schemes light,dark] [NAME ...]` takes a picture of each.
With `--join docs/images/screens` the pictures of each screen also become one, as in `docs/explanation/screens.md`.
"""

import argparse
import base64
import io
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Browser, expect, sync_playwright
from tests.browser.driver import ARGUMENTS, House, Scheme, Tab, apart, chromium, tab
from tests.browser.scene import VIEWER, add_steps, furnish
from tests.builders import at_time

from keryx.core import ids
from keryx.core.deliveries import DeliveryState, Target
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, SessionId, TurnId, WorkerId
from keryx.core.messages import Role, ToolCall, ToolResult, text_parts
from keryx.core.questions import Consent
from keryx.core.sessions import TitleBy
from keryx.store import deliveries, messages, people, questions, sessions
from keryx.store.changes import Scope
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase

TOKEN = "a-token-for-the-gallery"
HEIGHTS = {360: 740, 390: 844, 768: 1024, 1280: 800, 2560: 1300}
PHONE_WIDTH = 720
_JOINED, _GAP = 600, 12
# What is shown on a very wide screen, four beside and below each other.
_WIDEST = 2560
_WIDE_VIEWS = (("conversation", "light"), ("headings", "dark"), ("settings", "light"), ("usage", "dark"))
SETTINGS = """
[[models]]
name = "large"
base_url = "https://models.example.org/v1"
id = "large-2026-05"
[[models]]
name = "small"
base_url = "http://127.0.0.1:11434/v1"
id = "small-4b"
[[tools]]
name = "notes"
command = ["python", "-m", "notes"]
[webhook.shop]
url = "http://127.0.0.1:9/answers"
secret = "env:SHOP_SECRET"
"""
_RICH = """The three schedules differ in how long a worker waits after the $n$-th failure:

$$ t_n = \\min\\left(c,\\; b \\cdot 2^{n}\\right) \\cdot (1 + \\varepsilon), \\qquad \\varepsilon \\sim U(0, 0.1) $$

| schedule | first wait | longest wait | tries in an hour | notes |
|:--|--:|--:|:-:|:--|
| fixed | 5.0 s | 5.0 s | 720 | simple, floods the server |
| linear | 1.0 s | 60.0 s | 84 | slow to recover |
| exponential with jitter | 0.5 s | 300.0 s | 19 | spreads the load |

```mermaid
flowchart LR
  A[claim] --> B{lease held?}
  B -->|yes| C[run the turn]
  B -->|no| D[return to the queue]
  C --> E[record the answer]
```

- [x] Measure the restarts of a day
- [ ] Roll the change out

<details><summary>How it was measured</summary>

One worker, one hour, with a server that refuses each second request.

</details>"""
_SECRET = f"whsec_{base64.b64encode(bytes(24)).decode()}"
_LONG = """# How a restart looks from outside

A worker that restarts is not seen by the people who talk to it, if three things hold: what was taken in is durable before it is acknowledged, what was shown is stored before it is shown, and nothing that was sent is sent again without a mark. The rest of this note says how each of them is kept, and what it costs.

## What is taken in

Messages arrive by long polling, by a socket or by a hook. In each case the platform keeps what has not been acknowledged, so that the order of two writes decides whether something is lost.

> Acknowledge after the commit, never before it. A platform repeats what was not acknowledged; it cannot repeat what was.

### Long polling

1. Read the updates that follow the offset.
2. Write them and the new offset in one transaction.
3. Ask for the next ones, which acknowledges these.

### Hooks

- The answer 200 is given after the commit.
- A request that comes twice is recognised by its id:
  - for fourteen days on disk,
  - afterwards by nothing, which no platform needs.

#### A word about clocks

The id of an update is enough. The time of a message is that of its platform, and may be wrong by hours.

## What it costs

One commit for each update is 0.3 ms on a disk with a cache that survives a loss of power, and up to 8 ms on one without. Updates that arrive together share a commit, so that a storm of messages costs less for each than a single one."""
_EDIT = (
    '{"path": "src/runner.py", "old_string": "await tool.run()", '
    '"new_string": "async with renewing(lease):\\n    await tool.run()"}'
)


@contextmanager
def furnished(home: Path) -> Generator[tuple[House, dict[str, str]]]:
    """A home with everything that a screen can show, being served, and the paths of its conversations."""
    (home / "keryx.toml").write_text(SETTINGS)
    paths = {"story": f"/s/{apart(furnish(home / 'keryx.db'))}"}
    paths["steps"] = f"/s/{apart(add_steps(home / 'keryx.db', 'Where is the lease renewed?'))}"
    paths["long"] = f"/s/{apart(_add_long(home / 'keryx.db'))}"
    paths["rich"] = f"/s/{apart(_add(home / 'keryx.db'))}"
    house = House(home)
    for schedule, prompt in (
        ("0 8 * * mon-fri", "Sum up the news of the day in five lines"),
        ("every 6h", "Look for workers that restarted"),
    ):
        house.run("jobs", "add", schedule, prompt)
    with house.serving(KERYX_WEB_TOKEN=TOKEN, KERYX_WEB_PUBLIC_ADDRESS=house.address, SHOP_SECRET=_SECRET):
        yield house, paths


async def _add(path: Path) -> SessionId:
    async with SqliteDatabase(path) as database:
        return await database.write("gallery", _write)


async def _add_long(path: Path) -> SessionId:
    async with SqliteDatabase(path) as database:
        return await database.write("gallery", _write_long)


def _write_long(tx: Transaction) -> SessionId:
    """A conversation with headings and long text, what waits on its way to chats, and a trash with something in it."""
    now = datetime.now(UTC)
    at = at_time(tx, now - timedelta(hours=3))
    made = _talk(
        at, "What does a restart look like from outside?", _LONG, title="Restarts, seen from outside"
    )
    for n, (title, days) in enumerate(
        (("Old build logs", 2), ("Draft of a letter", 4), ("Test of a microphone", 9))
    ):
        then = at_time(tx, now - timedelta(days=days))
        gone = _talk(then, f"{title}, please.", "Here it is.", title=title)
        sessions.soft_delete(
            at_time(tx, now - timedelta(hours=n)), sessions.get(tx, gone), grace=timedelta(days=30)
        )
    # Tried or refused: of each place the first one.
    states = (
        ("7", "The next lesson is tomorrow at nine.", DeliveryState.READY, "502 Bad Gateway"),
        ("8", "Beans and peas can go out in May.", DeliveryState.FAILED, "the person has blocked the bot"),
        ("10", "The backup is complete.", DeliveryState.UNKNOWN, None),
    )
    for chat, text, state, error in states:
        deliveries.enqueue(
            at, Target("telegram", "bot", chat), text, of=Scope(DEFAULT_PROFILE, OPERATOR, made)
        )
        claims = deliveries.claim(
            at_time(tx, now),
            most=10,
            platform="telegram",
            account="bot",
            worker=WorkerId("gallery"),
            lease=timedelta(minutes=1),
        )
        for delivery, lease in claims.leased:
            later = now + timedelta(hours=1) if delivery.target.chat == "7" else None
            same = delivery.target.chat == chat
            deliveries.finish_attempt(
                at_time(tx, now),
                delivery,
                lease,
                state if same else DeliveryState.READY,
                error=error if same else None,
                not_before=later,
            )
    return made


def _talk(at: Transaction, asked: str, answered: str, *, title: str) -> SessionId:
    made = sessions.create(at, profile=DEFAULT_PROFILE, owner=VIEWER.principal, surface="web")
    turn = TurnId(ids.new(at.now))
    sessions.count_turn(at, made)
    messages.append(at, made, Role.USER, text_parts(asked), turn=turn, surface="web")
    messages.append(at, made, Role.ASSISTANT, text_parts(answered), turn=turn)
    sessions.rename(at, sessions.get(at, made), title, by=TitleBy.PERSON)
    return made


def _write(tx: Transaction) -> SessionId:
    now = datetime.now(UTC)
    early = at_time(tx, now - timedelta(days=40))
    people.resolve(early, profile=DEFAULT_PROFILE, platform="signal", person="+47 555", name="Ann B.")
    people.resolve(early, profile=DEFAULT_PROFILE, platform="discord", person="41", name="Carl")
    at = at_time(tx, now - timedelta(minutes=12))
    made = sessions.create(at, profile=DEFAULT_PROFILE, owner=VIEWER.principal, surface="web")
    turn = TurnId(ids.new(now))
    messages.append(
        at,
        made,
        Role.USER,
        text_parts("How should a worker wait before it tries again?"),
        turn=turn,
        surface="web",
    )
    messages.append(at, made, Role.ASSISTANT, (ToolCall("g1", "edit_file", _EDIT),), turn=turn)
    messages.append(at, made, Role.TOOL, (ToolResult("g1", "edit_file", "changed 1 place"),), turn=turn)
    messages.append(at, made, Role.ASSISTANT, text_parts(_RICH), turn=turn)
    sessions.rename(at, sessions.get(tx, made), "Waiting before the next try", by=TitleBy.PERSON)
    questions.set_consent(tx, made, "run_in_terminal(git *)", Consent.ALLOW_ALWAYS, by=OPERATOR)
    questions.set_consent(tx, made, "fetch(https://intranet.example.org/*)", Consent.DENY_ALWAYS, by=OPERATOR)
    return made


def sign_in(page: Tab) -> None:
    page.open("/")
    page.page.get_by_label("Password or token").fill(TOKEN)
    page.press("Sign in")
    expect(page.page.locator("#app")).to_be_visible()


def _story(page: Tab, paths: dict[str, str]) -> None:
    page.open(paths["story"])
    expect(page.answers.last).to_be_visible()


def _rich(page: Tab, paths: dict[str, str]) -> None:
    page.open(paths["rich"])
    expect(page.page.locator("svg.diagram")).to_be_visible()


def _rich_top(page: Tab, paths: dict[str, str]) -> None:
    _rich(page, paths)
    page.page.locator("details.tool > summary").click()
    page.page.get_by_role("log").evaluate("e => { e.scrollTop = 0 }")


def _long(page: Tab, paths: dict[str, str]) -> None:
    page.open(paths["long"])
    expect(page.answers.last).to_be_visible()
    page.page.get_by_role("log").evaluate("e => { e.scrollTop = 0 }")


def _steps(page: Tab, paths: dict[str, str]) -> None:
    page.open(paths["steps"])
    page.page.locator("details.steps > summary").click()


def _attach(page: Tab) -> None:
    """A picture and a file in the field for messages."""
    picture = io.BytesIO()
    image = Image.new("RGB", (960, 540), (236, 239, 247))
    ImageDraw.Draw(image).line([(0, 500), (240, 430), (480, 460), (720, 180), (960, 60)], (60, 85, 180), 12)
    image.save(picture, "PNG")
    page.page.get_by_label("Files to attach").set_input_files(
        [
            {"name": "restarts.png", "mimeType": "image/png", "buffer": picture.getvalue()},
            {"name": "worker.toml", "mimeType": "text/plain", "buffer": b"lease = '30s'\n" * 60},
        ]
    )
    expect(page.page.locator(".attachment")).to_have_count(2)


def _files(page: Tab, paths: dict[str, str]) -> None:
    page.open("/new")
    _attach(page)
    page.ask("What does this curve say?", "What does this curve say?")
    expect(page.page.locator(".picture img")).to_be_visible()


def _composer(page: Tab, paths: dict[str, str]) -> None:
    _story(page, paths)
    _attach(page)
    expect(page.page.locator(".thumbnail img")).to_be_visible()
    page.composer.fill("/")
    expect(page.page.locator(".menu .option").first).to_be_visible()


def _busy(page: Tab, paths: dict[str, str]) -> None:
    page.open("/new")
    page.say("!ask systemctl restart billing-worker@b")
    expect(page.page.get_by_role("region", name="A question of the agent")).to_be_visible()


def _board(page: Tab, paths: dict[str, str]) -> None:
    _busy(page, paths)
    page.open("/board")
    expect(page.page.locator(".turn-card").first).to_be_visible()


def _details(page: Tab, paths: dict[str, str]) -> None:
    _story(page, paths)
    page.page.get_by_role("button", name="Details (i)").click()
    expect(page.page.locator(".lineage a")).to_have_count(2)


def _palette(page: Tab, paths: dict[str, str]) -> None:
    _story(page, paths)
    page.page.keyboard.press("Control+k")
    expect(page.page.locator("dialog .option").first).to_be_visible()


def _menu(page: Tab, paths: dict[str, str]) -> None:
    _story(page, paths)
    page.page.get_by_role("button", name="More", exact=True).click()


def _keys(page: Tab, paths: dict[str, str]) -> None:
    page.open("/board")
    page.page.locator("#main h1").click()
    page.page.keyboard.press("?")


def _find(page: Tab, paths: dict[str, str]) -> None:
    _story(page, paths)
    page.choose("Search in this conversation")
    page.page.get_by_role("searchbox", name="Search in this conversation").fill("lease")
    expect(page.page.get_by_role("button", name="The next one (Enter)")).to_be_enabled()


def _shares(page: Tab, paths: dict[str, str]) -> None:
    _story(page, paths)
    page.choose("Share by a link")
    page.press("Make a link")
    expect(page.page.get_by_role("textbox", name="The link")).to_be_visible()


def _outline(page: Tab, paths: dict[str, str]) -> None:
    _story(page, paths)
    page.choose("Questions and dates")
    expect(page.page.get_by_role("dialog")).to_be_visible()


def _search(page: Tab, paths: dict[str, str]) -> None:
    page.open("/")
    page.page.get_by_role("searchbox", name="Search all conversations").fill("lease")
    expect(page.page.locator("a.hit").first).to_be_visible()


def _filter(page: Tab, paths: dict[str, str]) -> None:
    page.open("/")
    page.press("Filter")
    expect(page.page.get_by_role("dialog")).to_be_visible()


def _row_menu(page: Tab, paths: dict[str, str]) -> None:
    page.open("/")
    page.rows().filter(has_text="Learning Norwegian").click(button="right")
    expect(page.page.get_by_role("menu")).to_be_visible()


def _selected(page: Tab, paths: dict[str, str]) -> None:
    page.open("/")
    for name in ("Learning Norwegian", "Invoice template"):
        page.rows().filter(has_text=name).click(modifiers=["Control"])


def _trash(page: Tab, paths: dict[str, str]) -> None:
    page.open("/")
    page.filter("is:deleted")
    expect(page.rows()).to_have_count(3)


def _unfolded(page: Tab, paths: dict[str, str]) -> None:
    page.open("/")
    page.page.get_by_role("button", name="Screens", exact=True).click()


def _dialog(page: Tab, paths: dict[str, str]) -> None:
    _story(page, paths)
    page.choose("Move to a project")
    expect(page.page.get_by_role("dialog")).to_be_visible()


def _model_form(page: Tab, paths: dict[str, str]) -> None:
    page.open("/models")
    page.press("Add a model")
    form = page.page.get_by_role("form", name="Add a model")
    form.get_by_label("Provider").select_option("Another one")
    form.get_by_label("Address").fill("localhost/v1")
    form.get_by_label("Model", exact=True).fill("m")
    form.get_by_label("Name here").fill("big")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_be_visible()


def _tool_form(page: Tab, paths: dict[str, str]) -> None:
    page.open("/tools")
    page.press("Add a server")


def _agent_form(page: Tab, paths: dict[str, str]) -> None:
    page.open("/tools")
    page.press("Add an agent")


def _platform_form(page: Tab, paths: dict[str, str]) -> None:
    page.open("/platforms")
    page.press("Connect: Telegram")
    expect(page.page.get_by_role("form", name="Connect Telegram")).to_be_visible()


def _job_form(page: Tab, paths: dict[str, str]) -> None:
    page.open("/jobs")
    page.press("Add a job")
    page.page.get_by_label("When", exact=True).fill("0 9 * * mon-fri")
    expect(page.page.get_by_role("list", name="Next runs")).to_be_visible()


def _user_form(page: Tab, paths: dict[str, str]) -> None:
    page.open("/users")
    page.press("Add a user")


def _browsers(page: Tab, paths: dict[str, str]) -> None:
    page.open("/settings")
    page.page.get_by_role("heading", name="Signed-in browsers").evaluate(
        "e => { e.scrollIntoView(); e.closest('.screen').scrollTop -= 24 }"
    )


View = Callable[[Tab, dict[str, str]], None]


def _plain(path: str) -> View:
    def view(page: Tab, paths: dict[str, str]) -> None:
        page.open(path)

    return view


# The first ones leave the store as it is; the last ones begin conversations.
VIEWS: dict[str, View] = {
    "list": _plain("/"),
    "new": _plain("/new"),
    "conversation": _story,
    "table-math": _rich,
    "headings": _long,
    "diff": _rich_top,
    "steps": _steps,
    "composer": _composer,
    "details": _details,
    "palette": _palette,
    "menu": _menu,
    "keys": _keys,
    "find": _find,
    "shares": _shares,
    "outline": _outline,
    "search": _search,
    "filter": _filter,
    "row-menu": _row_menu,
    "selected": _selected,
    "trash": _trash,
    "screens": _unfolded,
    "dialog": _dialog,
    **{
        name: _plain(f"/{name}")
        for name in (
            *("deliveries", "lanes", "pairing", "jobs", "usage", "settings", "models", "platforms", "tools"),
            *("permissions", "people", "users", "profiles", "guide"),
        )
    },
    "browsers": _browsers,
    "model-form": _model_form,
    "tool-form": _tool_form,
    "agent-form": _agent_form,
    "platform-form": _platform_form,
    "job-form": _job_form,
    "user-form": _user_form,
    "files": _files,
    "question": _busy,
    "board": _board,
}


def tidy(page: Tab) -> None:
    """Undo what a view leaves for the next one."""
    if page.page.locator(".menu .option").count():
        page.composer.fill("")
        attached = page.page.locator(".attachment button")
        for left in reversed(range(attached.count())):
            with page.page.expect_response("**/composers/*"):
                attached.first.click()
            expect(attached).to_have_count(left)
    close = page.page.get_by_role("button", name="Close the details")
    if close.count() and close.is_visible():
        close.click()
    asked = page.page.get_by_role("region", name="A question of the agent")
    for left in reversed(range(asked.count())):
        asked.first.get_by_role("button", name="Deny").click()
        expect(asked).to_have_count(left)


def settle(page: Tab) -> None:
    expect(page.page.get_by_text("Live", exact=True)).to_be_attached()
    page.page.wait_for_function(
        "() => document.querySelector('#main')?.children.length && !document.body.textContent.includes('Loading…')"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Take a picture of every screen of the page.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sizes", default="360,1280")
    parser.add_argument("--schemes", default="light,dark")
    parser.add_argument("--quality", type=int, default=85)
    parser.add_argument("--join", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        for width in map(int, given.sizes.split(",")):
            for scheme in given.schemes.split(","):
                # What one walk says must not be in the list of the next one.
                with tempfile.TemporaryDirectory() as home, furnished(Path(home)) as (house, paths):
                    _take(browser, house, paths, given, width, "dark" if scheme == "dark" else "light")
        browser.close()
    if given.join:
        given.join.mkdir(parents=True, exist_ok=True)
        for name in ("sign-in", *VIEWS):
            _join(given.folder, name, given.join / f"{name}.webp")
        _join_wide(given.folder, given.join / "wide.webp")


def _join(folder: Path, name: str, target: Path) -> None:
    """Put the pictures of one screen beside each other, the wide ones first, all of one height."""
    found = sorted(
        (path for path in folder.glob(f"{name}-[0-9]*.webp") if f"-{_WIDEST}-" not in path.name),
        key=lambda path: (-int(path.stem.split("-")[-2]), path.stem),
    )
    shots = [Image.open(path).convert("RGB") for path in found]
    if not shots:
        return
    shots = [_scale(shot) for shot in shots]
    joined = Image.new("RGB", (sum(shot.width + _GAP for shot in shots) - _GAP, _JOINED), "white")
    left = 0
    for shot in shots:
        joined.paste(shot, (left, 0))
        left += shot.width + _GAP
    joined.save(target, quality=55, method=6)


def _join_wide(folder: Path, target: Path) -> None:
    """Put four pictures of very wide screens together, if they were taken."""
    paths = [folder / f"{name}-{_WIDEST}-{scheme}.webp" for name, scheme in _WIDE_VIEWS]
    if not all(path.exists() for path in paths):
        return
    shots = [Image.open(path).convert("RGB") for path in paths]
    joined = Image.new("RGB", (2 * 1280 + _GAP, 2 * 650 + _GAP), "white")
    for n, shot in enumerate(shots):
        shot.thumbnail((1280, 650))
        joined.paste(shot, (n % 2 * (1280 + _GAP), n // 2 * (650 + _GAP)))
    joined.save(target, quality=55, method=6)


def _scale(shot: Image.Image) -> Image.Image:
    smaller = shot.copy()
    smaller.thumbnail((shot.width, _JOINED))
    return smaller


def _take(
    browser: Browser,
    house: House,
    paths: dict[str, str],
    given: argparse.Namespace,
    width: int,
    scheme: Scheme,
) -> None:
    size = (width, HEIGHTS.get(width, 800))

    def keep(page: Tab, name: str) -> None:
        shot = page.page.screenshot(animations="disabled", caret="hide")
        target = given.folder / f"{name}-{width}-{scheme}.webp"
        Image.open(io.BytesIO(shot)).save(target, quality=given.quality, method=6)

    with tab(browser, house, size=size, scheme=scheme, touch=width < PHONE_WIDTH) as page:
        page.open("/")
        expect(page.page.get_by_label("Password or token")).to_be_visible()
        keep(page, "sign-in")
        sign_in(page)
        for name, view in VIEWS.items():
            if given.names and name not in given.names:
                continue
            page.page.goto("about:blank")
            view(page, paths)
            settle(page)
            keep(page, name)
            tidy(page)


if __name__ == "__main__":
    main()
