"""Profiles over HTTP: the operator chooses one by the path, and nothing crosses between them."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.engine.world import World
from tests.web.site import INSTALLATION, OPERATORS, PASSWORD, TOKEN, Listener, Site, open_site
from tests.web.test_sessions import begun

from keryx.core.ids import DEFAULT_PROFILE, PrincipalId, TurnId
from keryx.core.sessions import Viewer
from keryx.store.db import Engine
from keryx.surfaces.web.settings import hash_password

PROFILES = ("default", "work", "club")
pytestmark = pytest.mark.engines(Engine.SQLITE)


@pytest.fixture
async def site(world: World) -> AsyncIterator[Site]:
    installation = msgspec.structs.replace(INSTALLATION, profiles=PROFILES)
    async with open_site(world.hub, world.clock, installation=installation) as made:
        yield made


@pytest.mark.engines(*Engine)
async def test_a_conversation_belongs_to_the_profile_of_its_path(site: Site, world: World) -> None:
    here = await begun(site, world, "at home")
    sent = await site.post("/p/work/api/sessions", {"text": "at work"})
    await world.settle(TurnId(sent["turn"]))
    start = await site.get("/p/work/api/start")
    assert (start["who"]["profile"], start["profiles"]) == ("work", list(PROFILES))
    assert [s["id"] for s in start["sessions"]["sessions"]] == [sent["session"]]
    assert [s["id"] for s in (await site.get("/api/sessions"))["sessions"]] == [here]
    await site.problem(404, "GET", f"/api/sessions/{sent['session']}")
    await site.problem(404, "GET", f"/p/work/api/sessions/{here}")
    hits = await site.get("/p/work/api/search", params={"q": "home"})
    assert not hits["hits"]


async def test_files_and_streams_are_those_of_the_profile(site: Site, world: World) -> None:
    kept = await site.client.post("/p/work/api/media", params={"name": "a.txt"}, content=b"text")
    url = kept.json()["url"]
    assert (await site.client.get(f"/p/work{url}")).content == b"text"
    await site.problem(404, "GET", url)
    stream = Listener(site.app, (await site.get("/p/work/api/start"))["cursor"], path="/p/work/api/stream")
    async with stream.connect():
        await begun(site, world, "at home")
        sent = await site.post("/p/work/api/sessions", {"text": "at work"})
        await stream.wait_for("message", message__session=sent["session"])
        assert {e["message"]["session"] for e in stream.of_type("message")} == {sent["session"]}


async def test_the_page_is_served_for_a_profile(site: Site) -> None:
    for path in ("/p/work", "/p/work/"):
        answer = await site.request("GET", path)
        assert answer.status_code == 200 and "<title>Keryx</title>" in answer.text
    servers = (await site.get("/openapi.json"))["servers"]
    assert [s["url"] for s in servers] == ["/", "/p/{profile}"]


async def test_only_the_operator_chooses_and_only_what_there_is(world: World, site: Site) -> None:
    assert "there are default, work, club" in await site.problem(404, "GET", "/p/wrok/api/start")
    await site.problem(404, "GET", "/p/Work/api/start")
    guest = Viewer(DEFAULT_PROFILE, PrincipalId("ann"))
    installation = msgspec.structs.replace(INSTALLATION, profiles=PROFILES)
    async with open_site(
        world.hub, world.clock, operator=guest, token=TOKEN, installation=installation
    ) as other:
        other.client.headers["Authorization"] = f"Bearer {TOKEN}"
        start = await other.get("/p/default/api/start")
        assert start["who"]["profile"] == "default" and "profiles" not in start
        for name in ("work", "nothing"):
            assert "not yours" in await other.problem(403, "GET", f"/p/{name}/api/start")


async def test_a_sign_in_holds_for_all_profiles(world: World) -> None:
    installation = msgspec.structs.replace(INSTALLATION, profiles=PROFILES)
    async with open_site(
        world.hub,
        world.clock,
        operator=OPERATORS,
        password=hash_password(PASSWORD),
        installation=installation,
    ) as site:
        await site.problem(401, "GET", "/p/work/api/start")
        await site.post("/api/sign-in", {"secret": PASSWORD})
        assert (await site.get("/p/work/api/start"))["who"]["profile"] == "work"
        (browser,) = (await site.get("/p/work/api/sign-ins"))["sign_ins"]
        assert browser["current"]
        await site.post("/p/work/api/sign-out")
        await site.problem(401, "GET", "/api/start")
