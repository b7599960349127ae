"""The worker of the page and the routes by which a browser is told while the page is closed."""

from pathlib import Path

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, World
from tests.fakes.push_service import PushBrowser
from tests.web.site import PASSWORD, TOKEN, Site, open_site

from keryx.engine.policy import Policy, PushSettings
from keryx.store.db import Engine
from keryx.surfaces.web.settings import hash_password
from keryx.surfaces.web.static_files import StaticFiles

pytestmark = pytest.mark.engines(Engine.SQLITE)
ENDPOINT = "https://push.example.com/abc"
HASH = hash_password(PASSWORD)


def build_policy(folder: Path) -> Policy:
    return msgspec.structs.replace(AT_ONCE, push=PushSettings(), push_key=folder / "secrets" / "push.key")


async def count(world: World) -> int:
    row = await world.database.read("test", lambda tx: tx.row("select count(*) from push_subscriptions"))
    assert row is not None
    return row[0]


async def test_the_worker_has_the_whole_address_its_own_policy_and_is_asked_for_again(site: Site) -> None:
    answer = await site.request("GET", "/worker.js")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    version = StaticFiles().version
    assert f'const VERSION = "{version}";' in answer.text
    again = await site.request("GET", "/worker.js", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


async def test_the_worker_keeps_what_the_page_needs_to_open(site: Site) -> None:
    text = (await site.request("GET", "/worker.js")).text
    shell = msgspec.json.decode(text.split("const SHELL = ")[1].split(";\n")[0], type=list[str])
    assert {"main.js", "dom.js", "link.js", "sidebar.js", "composer.js", "keryx.css"} <= set(shell)
    version = StaticFiles().version
    for name in shell:
        answer = await site.request("GET", f"/static/{version}/{name}")
        assert "immutable" in answer.headers["cache-control"]


async def test_what_is_shared_without_a_worker_leads_to_the_page(site: Site) -> None:
    answer = await site.request("POST", "/share-target", headers={"Origin": "null"}, content=b"x" * 100)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?shared=none")


async def test_a_browser_is_connected_renewed_and_removed(begin: Begin, tmp_path: Path) -> None:
    world = await begin(policy=build_policy(tmp_path))
    browser = PushBrowser(ENDPOINT)
    async with open_site(world.hub, world.clock) as site:
        status = await site.get("/api/push")
        assert len(status["key"]) == 87 and "problem" not in status
        first = await site.put("/api/push", {**browser.fields, "with_text": True})
        assert first["with_text"] and await site.put("/api/push", browser.fields) == first
        assert await site.put("/api/push", {**browser.fields, "with_text": False}) == {
            "id": first["id"],
            "with_text": False,
        }
        assert await count(world) == 1
        await site.delete(f"/api/push/{first['id']}")
        await site.delete(f"/api/push/{first['id']}")
        assert await count(world) == 0
        for change in ({"endpoint": "https://127.0.0.1/"}, {"public_key": "x"}, {"secret": "x"}):
            await site.problem(400, "PUT", "/api/push", json={**browser.fields, **change})


async def test_sign_out_a_key_and_a_password_end_or_refuse_it(begin: Begin, tmp_path: Path) -> None:
    world = await begin(policy=build_policy(tmp_path))
    browser = PushBrowser(ENDPOINT)
    async with open_site(world.hub, world.clock) as site:
        await site.put("/api/push", browser.fields)
    async with open_site(world.hub, world.clock, password=HASH, token=TOKEN) as site:
        # It was connected before anybody had to sign in.
        assert await count(world) == 0
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        await site.problem(403, "PUT", "/api/push", json=browser.fields, headers=bearer)
        await site.post("/api/sign-in", {"secret": PASSWORD})
        await site.put("/api/push", browser.fields)
        assert await count(world) == 1
        await site.post("/api/sign-out")
        assert await count(world) == 0


async def test_a_message_that_was_kept_for_somebody_else_is_refused(site: Site) -> None:
    said = {"text": "kept for ann"}
    await site.problem(401, "POST", "/api/sessions", json=said, headers={"Keryx-Person": "ann"})
    await site.post("/api/sessions", said, headers={"Keryx-Person": "operator"})


async def test_without_a_key_file_the_page_is_told_why(site: Site) -> None:
    status = await site.get("/api/push")
    assert status["key"] == "" and "push.enabled" in status["problem"]
    assert "ausgeschaltet" in (await site.get("/api/push", headers={"Accept-Language": "de"}))["problem"]
