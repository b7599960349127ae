"""Bad input: whatever is wrong is refused with a problem document and a useful sentence."""

import pytest
from tests.engine.world import World
from tests.web.site import Site

GONE = "0" * 18


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/api/sessions/{GONE}"),
        ("GET", "/api/sessions/%00"),
        ("GET", "/api/sessions/..%2f..%2fetc%2fpasswd"),
        ("PATCH", f"/api/sessions/{GONE}"),
        ("DELETE", f"/api/sessions/{GONE}"),
        ("POST", f"/api/sessions/{GONE}/stop"),
        ("POST", f"/api/sessions/{GONE}/undo"),
        ("POST", f"/api/sessions/{GONE}/retry"),
        ("GET", f"/api/sessions/{GONE}/export"),
        ("GET", f"/api/sessions/{GONE}/lineage"),
        ("GET", f"/api/messages/{GONE}.1"),
        ("DELETE", f"/api/turns/{GONE}"),
        ("DELETE", f"/api/projects/{GONE}"),
        ("GET", "/api/lanes/!!!"),
        ("GET", "/api/lanes/bm9ib2R5"),
        ("POST", f"/api/deliveries/{GONE}/retry"),
        ("DELETE", f"/api/sign-ins/{GONE}"),
        ("DELETE", "/api/pairing/bm9ib2R5"),
        ("DELETE", "/api/grants/bm9ib2R5"),
        ("GET", f"/media/{'0' * 64}"),
        ("GET", "/media/..%2f..%2fkeryx.db"),
        ("GET", "/static/x/..%2f..%2fserver.py"),
        ("GET", "/static/../server.py"),
        ("GET", "/api/nothing"),
        ("GET", "/api/sessions/"),
    ],
)
async def test_what_is_not_there_is_said_so(site: Site, method: str, path: str) -> None:
    answer = await site.request(method, path, json={"pinned": True} if method == "PATCH" else None)
    assert answer.status_code in (400, 404)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "names"),
    [
        ("POST", "/api/sessions", b"{", ""),
        ("POST", "/api/sessions", b"[]", "object"),
        ("POST", "/api/sessions", b"\xff\xfe", ""),
        ("POST", "/api/sessions", b'{"text": 5}', "text"),
        ("POST", "/api/sessions", b'{"words": "x"}', "words"),
        ("POST", "/api/sessions", b'{"text": " "}', "nothing to send"),
        ("POST", "/api/sessions", b"[" * 100_000, ""),
        ("POST", "/api/sessions", b'{"text": "x", "settings": {"busy": "asleep"}}', "busy"),
        ("GET", "/api/sessions?limit=0", None, "limit"),
        ("GET", "/api/sessions?limit=many", None, "limit"),
        ("GET", "/api/sessions?colour=red", None, "colour"),
        ("GET", "/api/sessions?limit=5&limit=6", None, "twice"),
        ("GET", "/api/sessions?after=nonsense", None, "page cursor"),
        ("GET", "/api/sessions?after=MTphOmI=", None, "page cursor"),
        ("GET", "/api/sessions?activity=asleep", None, "activity"),
        ("GET", "/api/sessions?since=yesterday", None, "since"),
        ("GET", "/api/stream?cursor=nonsense", None, "not a cursor"),
        ("GET", "/api/stream?cursor=-1", None, "not a cursor"),
        ("GET", "/api/search", None, "q"),
        ("POST", "/api/projects", b'{"name": ""}', "name"),
        ("POST", "/api/projects", b'{"name": "x", "colour": "url(javascript:1)"}', "colour"),
        ("PATCH", "/api/preferences", b'{"theme": "pink"}', "theme"),
        ("GET", "/api/usage?days=0", None, "days"),
    ],
)
async def test_what_is_wrong_is_named(
    site: Site, method: str, path: str, body: bytes | None, names: str
) -> None:
    assert names in await site.problem(400, method, path, content=body)


async def test_a_wrong_method_is_told_the_right_ones(site: Site) -> None:
    answer = await site.request("PUT", "/api/sessions")
    assert answer.status_code == 405
    assert {m.strip() for m in answer.headers["allow"].split(",")} == {"GET", "HEAD", "PATCH", "POST"}
    assert answer.headers["content-type"] == "application/problem+json"


async def test_an_idempotency_key_must_be_one(site: Site) -> None:
    headers = {"Idempotency-Key": "with blank"}
    detail = await site.problem(400, "POST", "/api/sessions", json={"text": "x"}, headers=headers)
    assert "Idempotency-Key" in detail


async def test_a_conflict_is_told_as_one(site: Site, world: World) -> None:
    turn = await world.ask("hello")
    await site.problem(409, "DELETE", f"/api/turns/{turn.id}")
    await site.problem(409, "PATCH", f"/api/messages/{turn.session}.1", json={"text": "too late"})
    await site.post("/api/projects", {"name": "P"})
    await site.problem(409, "POST", "/api/projects", json={"name": "P"})


async def test_lists_have_tags_and_are_packed(site: Site, world: World) -> None:
    for n in range(10):
        await world.ask(f"question {n}", chat=str(n))
    first = await site.request("GET", "/api/sessions")
    assert first.headers["content-encoding"] == "gzip"
    same = await site.request("GET", "/api/sessions", headers={"If-None-Match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    head = await site.request("HEAD", "/api/sessions")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == first.headers["etag"]
    plain = await site.request("GET", "/api/sessions", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    await world.ask("another", chat="11")
    changed = await site.request("GET", "/api/sessions", headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


async def test_head_of_the_stream_ends(site: Site) -> None:
    answer = await site.request("HEAD", "/api/stream")
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_a_project_that_is_not_there_keeps_the_message_out(site: Site) -> None:
    await site.problem(404, "POST", "/api/sessions", json={"text": "x", "project": "nowhere"})
    assert (await site.get("/api/sessions"))["sessions"] == []


async def test_a_broken_store_is_told_and_nothing_else_is(site: Site, world: World) -> None:
    world.node.die()
    detail = await site.problem(503, "GET", "/api/sessions")
    assert "dead" in detail
