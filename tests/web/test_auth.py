"""Safety: who is let in, from where, and what a browser may do with what it gets."""

import asyncio
import itertools
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders import until
from tests.engine.world import World, viewer
from tests.web.site import HOST, KEY, PASSWORD, TOKEN, Listener, Site, open_site

from keryx.core.errors import Invalid
from keryx.store.db import Engine
from keryx.surfaces.web import settings
from keryx.surfaces.web.auth import CookieSigner, read_cookie_key
from keryx.surfaces.web.operations import RequiredRole
from keryx.surfaces.web.responses import OPENAI_PATH
from keryx.surfaces.web.routes import OPERATIONS
from keryx.surfaces.web.settings import WebSettings
from keryx.surfaces.web.sign_in_limits import BROWSER_COOKIE_NAME, FailureCounter
from keryx.testing import FakeClock

pytestmark = pytest.mark.engines(Engine.SQLITE)

BEARER = {"Authorization": f"Bearer {TOKEN}"}
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 40


async def test_without_credentials_nothing_but_health_and_sign_in_answers(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        for operation in OPERATIONS:
            if operation.role is not RequiredRole.NONE:
                path = operation.path.replace("{", "").replace("}", "")
                if path.startswith(OPENAI_PATH):
                    refused = await site.request(operation.method, path, json={})
                    assert refused.status_code == 401
                    detail = refused.json()["error"]["message"]
                else:
                    detail = await site.problem(401, operation.method, path, json={})
                assert "sign in" in detail
        await site.problem(401, "GET", "/openapi.json")
        await site.problem(401, "GET", "/metrics")
        await site.problem(401, "GET", "/api/start", headers={"Cookie": "keryx=forged.cookie.value"})
        await site.problem(401, "GET", "/api/start", headers={"Authorization": "Bearer wrong"})
        await site.problem(401, "GET", "/api/start", headers={"Authorization": f"Basic {TOKEN}"})
        assert (await site.request("GET", "/api/start", headers=BEARER)).status_code == 200


@pytest.mark.engines(*Engine)
async def test_a_token_is_exchanged_for_a_cookie_that_can_be_revoked(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        answer = await site.request(
            "POST", "/api/sign-in", json={"secret": TOKEN}, headers={"User-Agent": "Browser 1"}
        )
        assert answer.json()["signed_in"] is True
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        found = (await site.get("/api/sign-ins"))["sign_ins"]
        assert [(s["browser"], s["current"]) for s in found] == [("Browser 1", True)]
        await site.delete(f"/api/sign-ins/{found[0]['id']}")
        await site.problem(401, "GET", "/api/start")


async def test_signing_out_ends_the_cookie(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        await site.post("/api/sign-in", {"secret": TOKEN})
        value = site.client.cookies["keryx"]
        await site.post("/api/sign-out")
        await site.problem(401, "GET", "/api/start", headers={"Cookie": f"keryx={value}"})


async def test_a_sign_in_runs_out_and_its_secret_is_not_in_the_store(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        await site.post("/api/sign-in", {"secret": TOKEN})
        id_, secret, _ = site.client.cookies["keryx"].split(".")
        rows = await world.read(lambda tx: tx.rows("select * from sign_ins"))
        assert id_ in str(rows)
        assert secret not in str(rows)
        world.advance(timedelta(days=31))
        await site.problem(401, "GET", "/api/start")


async def test_guessing_the_token_is_slowed_down(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        for _ in range(10):
            await site.problem(401, "POST", "/api/sign-in", json={"secret": "guess"})
        answer = await site.request("POST", "/api/sign-in", json={"secret": TOKEN})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        world.advance(61)
        assert (await site.request("POST", "/api/sign-in", json={"secret": TOKEN})).status_code == 200


async def test_a_known_browser_is_not_locked_out_by_strangers(world: World) -> None:
    async with open_site(world.hub, world.clock, password=settings.hash_password(PASSWORD)) as site:
        await site.post("/api/sign-in", {"secret": PASSWORD})
        known = {"Cookie": f"{BROWSER_COOKIE_NAME}={site.client.cookies[BROWSER_COOKIE_NAME]}"}
        site.client.cookies.clear()
        # The mark alone gives no access.
        await site.problem(401, "GET", "/api/start", headers=known)
        for _ in range(10):
            await site.problem(401, "POST", "/api/sign-in", json={"secret": "guess"})
        await site.problem(429, "POST", "/api/sign-in", json={"secret": PASSWORD})
        assert (
            await site.request("POST", "/api/sign-in", json={"secret": PASSWORD}, headers=known)
        ).status_code == 200
        site.client.cookies.clear()
        forged = {"Cookie": known["Cookie"][:-1]}
        await site.problem(429, "POST", "/api/sign-in", json={"secret": PASSWORD}, headers=forged)
        world.advance(timedelta(days=366))
        for _ in range(10):
            await site.problem(401, "POST", "/api/sign-in", json={"secret": "guess"})
        await site.problem(429, "POST", "/api/sign-in", json={"secret": PASSWORD}, headers=known)


async def test_a_known_browser_that_guesses_waits_longer_and_longer(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        await site.post("/api/sign-in", {"secret": TOKEN})
        for _ in range(3):
            await site.problem(401, "POST", "/api/sign-in", json={"secret": "guess"})
        guesses = [
            asyncio.create_task(site.request("POST", "/api/sign-in", json={"secret": "guess"}))
            for _ in range(20)
        ]
        # Few may wait; the others are refused at once, so that they hold no connections.
        await until(lambda: sum(g.done() for g in guesses) == 12)
        assert {g.result().status_code for g in guesses if g.done()} == {429}
        world.advance(16)
        assert sorted([(await g).status_code for g in guesses]) == [401] * 8 + [429] * 12
        right = asyncio.create_task(site.request("POST", "/api/sign-in", json={"secret": TOKEN}))
        await asyncio.sleep(0.05)
        assert not right.done()
        world.advance(16)
        assert (await right).status_code == 200
        await site.problem(401, "POST", "/api/sign-in", json={"secret": "guess"})


async def test_clients_behind_a_trusted_proxy_are_counted_apart(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN, trusted_proxies=("127.0.0.1",)) as site:
        for n in range(10):
            given = {"X-Forwarded-For": f"192.0.2.{n}, 2001:db8::{n}"}
            await site.problem(401, "POST", "/api/sign-in", json={"secret": "guess"}, headers=given)
        for address, status in (("2001:db8::ff", 429), ("2001:db8:0:1::1", 200)):
            given = {"X-Forwarded-For": address}
            answer = await site.request("POST", "/api/sign-in", json={"secret": TOKEN}, headers=given)
            assert answer.status_code == status


async def test_the_header_of_a_stranger_is_not_believed(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        for n in range(10):
            given = {"X-Forwarded-For": f"192.0.2.{n}"}
            await site.problem(401, "POST", "/api/sign-in", json={"secret": "guess"}, headers=given)
        await site.problem(429, "POST", "/api/sign-in", json={"secret": "guess"})


async def test_wrong_tokens_are_counted_and_right_ones_are_not_held_up(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        for _ in range(10):
            await site.problem(401, "GET", "/api/start", headers={"Authorization": "Bearer wrong"})
        await site.problem(429, "GET", "/api/start", headers={"Authorization": "Bearer wrong"})
        assert (await site.request("GET", "/api/start", headers=BEARER)).status_code == 200
        # People behind the same address can still sign in.
        assert (await site.request("POST", "/api/sign-in", json={"secret": TOKEN})).status_code == 200


def test_the_memory_of_failures_is_bounded() -> None:
    counter = FailureCounter(FakeClock(), window=60, most=10)
    for n in range(5_000):
        counter.add(f"192.0.2.{n}")
    assert counter.count("192.0.2.0") == 0
    assert counter.count("192.0.2.4999") == 1


async def test_a_password_signs_in_as_a_token_does(world: World) -> None:
    kept = settings.hash_password(PASSWORD)
    async with open_site(world.hub, world.clock, token=TOKEN, password=kept) as site:
        assert (await site.post("/api/sign-in", {"secret": PASSWORD}))["signed_in"] is True
        assert (await site.get("/api/start"))["who"]["operator"] is True
    async with open_site(world.hub, world.clock, password=kept) as site:
        for given in (PASSWORD, kept):
            await site.problem(401, "GET", "/api/start", headers={"Authorization": f"Bearer {given}"})
        for given in ("wrong", PASSWORD.upper(), kept, "x" * 1000):
            await site.problem(401, "POST", "/api/sign-in", json={"secret": given})
        assert (await site.post("/api/sign-in", {"secret": PASSWORD}))["signed_in"] is True
    stored = await world.read(lambda tx: tx.rows("select * from sign_ins"))
    assert PASSWORD not in str(stored) and kept not in str(stored)


async def test_guesses_of_a_password_count_before_they_are_judged(world: World) -> None:
    async with open_site(world.hub, world.clock, password=settings.hash_password(PASSWORD)) as site:
        guesses = [site.request("POST", "/api/sign-in", json={"secret": f"guess {n}"}) for n in range(25)]
        codes = [answer.status_code for answer in await asyncio.gather(*guesses)]
        assert sorted(codes) == [401] * 10 + [429] * 15


async def test_those_who_sign_in_often_do_not_wait(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        for _ in range(30):
            await site.post("/api/sign-in", {"secret": TOKEN})


async def test_a_revoked_browser_hears_nothing_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keryx.surfaces.web.stream.endpoint.HEARTBEAT_SECONDS", 0.01)
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        await site.post("/api/sign-in", {"secret": TOKEN})
        start = await site.get("/api/start")
        cookie = {"cookie": f"keryx={site.client.cookies['keryx']}"}
        listener = Listener(site.app, start["cursor"], headers=cookie)
        async with listener.connect():
            await site.post("/api/sign-out")
            assert await listener.wait_closed(within=10)


async def test_a_revoked_browser_hears_nothing_more_of_a_busy_node(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keryx.surfaces.web.stream.endpoint.HEARTBEAT_SECONDS", 0.05)
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        await site.post("/api/sign-in", {"secret": TOKEN})
        start = await site.get("/api/start")
        listener = Listener(
            site.app, start["cursor"], headers={"cookie": f"keryx={site.client.cookies['keryx']}"}
        )
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        project = (await site.request("POST", "/api/projects", json={"name": "P"})).json()["id"]
        async with listener.connect():
            await listener.wait_for("project", project__name="P")
            await site.post("/api/sign-out")
            closed = asyncio.create_task(listener.wait_closed(within=10))
            for n in itertools.count():
                if closed.done():
                    break
                await site.request(
                    "PATCH", f"/api/projects/{project}", json={"name": f"P{n}"}, headers=bearer
                )
            assert await closed


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:7337"]
)
async def test_a_foreign_host_is_refused(site: Site, host: str) -> None:
    await site.problem(421, "GET", "/api/start", headers={"Host": host})
    await site.problem(421, "GET", "/", headers={"Host": host})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:7337", "[::1]:7337", "LOCALHOST", "192.168.1.5:80"])
async def test_addresses_and_localhost_are_let_through(site: Site, host: str) -> None:
    assert (await site.request("GET", "/api/start", headers={"Host": host})).status_code == 200


async def test_a_configured_name_is_let_through(world: World) -> None:
    async with open_site(world.hub, world.clock, hosts=("keryx.example.org",)) as site:
        own = {"Host": "keryx.example.org", "Origin": "https://keryx.example.org"}
        assert (
            await site.request("POST", "/api/sessions", json={"text": "x"}, headers=own)
        ).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_foreign_page_can_neither_change_nor_listen(site: Site, headers: dict[str, str]) -> None:
    await site.problem(403, "POST", "/api/sessions", json={"text": "x"}, headers=headers)
    await site.problem(403, "GET", "/api/stream", headers=headers)
    await site.problem(403, "DELETE", "/api/projects/x", headers=headers)


async def test_the_own_page_may(site: Site) -> None:
    own = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
    assert (await site.request("POST", "/api/sessions", json={"text": "x"}, headers=own)).status_code == 201


async def test_every_answer_has_safe_headers(site: Site) -> None:
    for path in ("/api/start", "/api/nothing", "/healthz", "/", "/api/sessions/x"):
        headers = (await site.request("GET", path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"


async def test_only_the_operator_sees_settings_and_lets_people_in(world: World) -> None:
    async with open_site(world.hub, world.clock, operator=viewer("ann")) as site:
        for method, path in (("GET", "/api/settings"), ("GET", "/api/pairing"), ("POST", "/api/pairing")):
            await site.problem(403, method, path, json={"platform": "fake", "code": "x"})


async def test_files_are_kept_shown_and_cannot_run(world: World) -> None:
    async with open_site(world.hub, world.clock) as site:
        picture = (await site.request("POST", "/api/media?name=a.png", content=PNG)).json()
        assert (picture["kind"], picture["mime"]) == ("image", "image/png")
        sent = await site.post("/api/sessions", {"text": "look", "media": [picture["media"]]})
        shown = (await site.get(f"/api/sessions/{sent['session']}"))["messages"][0]["parts"]
        assert [p["type"] for p in shown] == ["text", "media"]
        answer = await site.request("GET", picture["url"])
        assert answer.content == PNG
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["content-disposition"].startswith("inline")
        assert answer.headers["content-security-policy"].startswith("sandbox")

        page = b"<script>alert(1)</script>"
        for kind in ("text/html", "image/svg+xml", "image/png"):
            name = '%22%0d%0aX: y;.html"'
            upload = await site.request(
                "POST", "/api/media", params={"name": name}, content=page, headers={"Content-Type": kind}
            )
            hostile = await site.request("GET", upload.json()["url"])
            assert hostile.headers["content-type"] == "application/octet-stream"
            assert hostile.headers["content-disposition"].startswith("attachment")
            assert "\n" not in hostile.headers["content-disposition"]
    async with open_site(world.hub, world.clock, operator=viewer("eve")) as eves:
        await eves.problem(404, "GET", picture["url"])
        await eves.problem(404, "POST", "/api/sessions", json={"text": "x", "media": [picture["media"]]})


async def test_bodies_are_refused_as_soon_as_they_are_too_large(site: Site, world: World) -> None:
    await site.problem(413, "POST", "/api/sessions", content=b"x" * (9 << 20))

    async def endless() -> object:
        while True:
            yield b"x" * 65_536

    await site.problem(413, "POST", "/api/sessions", content=endless())
    await site.problem(413, "POST", "/api/sign-in", content=b"x" * 20_000)
    await site.problem(413, "POST", "/api/media", content=b"x" * (world.hub.media.limit + 1))


def test_the_key_of_cookies_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    key = read_cookie_key(tmp_path)
    path = tmp_path / "secrets" / "web.key"
    assert read_cookie_key(tmp_path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"cut")
    assert len(read_cookie_key(tmp_path)) == 32


def test_a_cookie_that_was_changed_is_refused() -> None:
    seal = CookieSigner(KEY)
    cookie = seal.encode("id", "secret")
    assert seal.decode(cookie) == ("id", "secret")
    assert CookieSigner(b"other" * 8).decode(cookie) is None
    for forged in (
        "",
        ".",
        "..",
        "id.secret",
        "id.secret.",
        cookie[:-1],
        cookie.replace("id", "ie"),
        "é.ü.ß",
    ):
        assert seal.decode(forged) is None


def test_the_token_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert settings.read_token(WebSettings(), {}) == ""
    assert settings.read_token(WebSettings(secret=f"file:{file}"), {}) == TOKEN
    assert settings.read_token(WebSettings(secret="env:MINE"), {"MINE": TOKEN}) == TOKEN
    assert settings.read_token(WebSettings(secret=f"file:{file}"), {"KERYX_WEB_TOKEN": "x" * 16}) == "x" * 16
    for web, environ in (
        (WebSettings(secret="env:GONE"), {}),
        (WebSettings(secret=f"file:{tmp_path}/gone"), {}),
        (WebSettings(), {"KERYX_WEB_TOKEN": "short"}),
    ):
        with pytest.raises(Invalid) as refused:
            settings.read_token(web, environ)
        assert "short" not in str(refused.value).split("too")[0]
    with pytest.raises(ValueError, match="not the token itself"):
        WebSettings(secret=TOKEN)
    with pytest.raises(ValueError, match="without https"):
        WebSettings(hosts=("https://x.example",))


def test_the_password_is_kept_as_a_hash(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    assert settings.read_password_hash(WebSettings(), {}) == ""
    for web, environ in (
        (WebSettings(password_from=f"file:{file}"), {}),
        (WebSettings(password_from="env:MINE"), {"MINE": PASSWORD}),
        (WebSettings(password_from="env:MINE"), {"KERYX_WEB_PASSWORD": PASSWORD}),
        (WebSettings(), {"KERYX_WEB_PASSWORD": settings.hash_password(PASSWORD)}),
    ):
        kept = settings.read_password_hash(web, environ)
        assert PASSWORD not in kept
        assert settings.verify_password(PASSWORD, kept)
        assert not settings.verify_password(kept, kept)
    assert settings.hash_password(PASSWORD) != settings.hash_password(PASSWORD)
    assert settings.verify_password("Zu\u0308richsee", settings.hash_password("Z\u00fcrichsee"))
    with pytest.raises(Invalid, match="too short") as refused:
        settings.read_password_hash(WebSettings(), {"KERYX_WEB_PASSWORD": "tiny"})
    assert "tiny" not in str(refused.value)
    with pytest.raises(ValueError, match="not the password itself"):
        WebSettings(password_from=PASSWORD)


async def test_a_cookie_of_another_program_on_the_same_host_signs_nobody_out(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        answer = await site.request("POST", "/api/sign-in", json={"secret": TOKEN})
        own = answer.cookies["keryx"]
        site.client.cookies.clear()
        for cookies in (
            f"keryx=forged; keryx={own}",
            f"keryx={own}; keryx=a.b.c",
            f'keryx="\\a"; keryx={own}',
        ):
            answer = await site.request("GET", "/api/start", headers={"Cookie": cookies})
            assert answer.status_code == 200


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://a]b", "null", "", "\u00e9://", "//"])
async def test_a_malformed_origin_is_a_foreign_one(world: World, origin: str) -> None:
    async with open_site(world.hub, world.clock) as site:
        headers = {"Origin": origin.encode("latin-1")}
        await site.problem(403, "POST", "/api/sessions", json={"text": "hello"}, headers=headers)
