"""Users beside the operator: they sign in with own passwords and passkeys, and reach nothing of others."""

import asyncio
import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from tests.builders import a_job, a_session
from tests.engine.world import World
from tests.web.site import HOST, ORIGIN, PASSWORD, Site, open_site

from keryx.core.codec import encode_base64url
from keryx.core.errors import Forbidden
from keryx.core.ids import DEFAULT_PROFILE, PrincipalId, SessionId
from keryx.core.sessions import SessionSettings, Viewer
from keryx.store.db import Engine
from keryx.surfaces.web import webauthn
from keryx.surfaces.web.operations import RequiredRole
from keryx.surfaces.web.routes import OPERATIONS
from keryx.surfaces.web.settings import hash_password

ANNS_PASSWORD = "a horse for ann"
HASH = hash_password(PASSWORD)


async def sign_in(site: Site, name: str = "", secret: str = PASSWORD) -> dict[str, Any]:
    site.client.cookies.clear()
    return await site.post("/api/sign-in", {"secret": secret, "name": name})


async def add_user(site: Site, name: str = "ann", password: str = ANNS_PASSWORD) -> dict[str, Any]:
    await sign_in(site)
    return await site.post("/api/users", {"name": name, "password": password})


async def test_commands_of_the_terminal_are_named_to_the_operator_and_not_to_a_user(world: World) -> None:
    async with open_site(world.hub, world.clock, password=HASH) as site:
        await add_user(site, "Ann")
        browser = {"Accept-Language": "de"}
        told = "es gibt kein Schlagwort 'blue'"
        hint = f"{told}: `keryx tags list` zeigt alle"
        assert await site.problem(404, "DELETE", "/api/tags/blue", headers=browser) == hint
        await sign_in(site, "ann", ANNS_PASSWORD)
        assert await site.problem(404, "DELETE", "/api/tags/blue", headers=browser) == told


@pytest.mark.engines(*Engine)
async def test_a_user_signs_in_and_has_own_conversations(world: World) -> None:
    async with open_site(world.hub, world.clock, password=HASH) as site:
        ann = await add_user(site, "Ann")
        assert ann["name"] == "ann" and "password" not in ann
        assert (await sign_in(site, "Operator"))["operator"]
        await site.problem(409, "POST", "/api/users", json={"name": "ann", "password": ANNS_PASSWORD})
        for name in ("operator", "a b", ""):
            await site.problem(400, "POST", "/api/users", json={"name": name, "password": ANNS_PASSWORD})
        short = await site.request("POST", "/api/users", json={"name": "bob", "password": "short"})
        assert short.json()["field"] == "password"
        mine = (await site.post("/api/sessions", {"text": "mine"}))["session"]
        who = await sign_in(site, "ANN ", ANNS_PASSWORD)
        assert not who.get("operator") and who["principal"] == ann["principal"]
        theirs = (await site.post("/api/sessions", {"text": "hers"}))["session"]
        start = await site.get("/api/start")
        assert [s["id"] for s in start["sessions"]["sessions"]] == [theirs] and start["who"]["name"] == "ann"
        await site.problem(404, "GET", f"/api/sessions/{mine}")
        assert len((await site.get("/api/sign-ins"))["sign_ins"]) == 1
        await sign_in(site)
        listed = (await site.get("/api/users"))["users"]
        assert [(u["name"], bool(u["seen_at"])) for u in listed] == [("ann", True)]
        people = {p["id"]: p for p in (await site.get("/api/people"))["people"]}
        assert people[ann["principal"]]["user"] == "ann"
        stored = str(await world.read(lambda tx: tx.rows("select * from users")))
        assert ANNS_PASSWORD not in stored and "scrypt:" in stored


@pytest.mark.engines(Engine.SQLITE)
async def test_nothing_of_another_is_reachable(world: World) -> None:
    """Every operation that names something is called by a user with what is the operator's and another user's."""
    async with open_site(world.hub, world.clock, password=HASH) as site:
        bob = Viewer(DEFAULT_PROFILE, PrincipalId((await add_user(site, "bob"))["principal"]))
        await add_user(site, "ann")
        session = (await site.post("/api/sessions", {"text": "secret plan"}))["session"]
        key = (await site.post("/api/keys", {"name": "laptop"}))["key"]["id"]
        project = (await site.post("/api/projects", {"name": "hidden"}))["id"]
        browser = (await site.get("/api/sign-ins"))["sign_ins"][0]["id"]
        job = await world.write(a_job, name="hidden job")
        theirs = await world.write(a_session, owner=bob.principal, title="of Bob")
        passkey = await world.hub.users.add_passkey(bob, id_="b" * 20, public_key="k", uses=0, name="")
        await sign_in(site, "ann", ANNS_PASSWORD)
        values = {
            "session": [session, theirs.id],
            "key": [key],
            "project": [project],
            "sign_in": [browser],
            "job": [job.id],
            "user": ["bob"],
            "passkey": [passkey.id],
            "message": [f"{session}.1"],
        }
        body = {"password": "another one", "current": ANNS_PASSWORD}
        called = 0
        for operation in OPERATIONS:
            path, json_body = operation.path, body if operation.path.endswith("/password") else {}
            if operation.role is RequiredRole.OPERATOR:
                path = path.replace("{", "").replace("}", "")
                assert (await site.request(operation.method, path, json={})).status_code == 403, path
                called += 1
                continue
            names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
            if operation.role is RequiredRole.NONE or not names or names[0] not in values:
                continue
            for value in values[names[0]]:
                answer = await site.request(
                    operation.method, path.replace(f"{{{names[0]}}}", value), json=json_body
                )
                # A body that is refused before anything is looked up tells nothing either, nor do links that are off.
                refused = (400, 403, 404) if path.endswith("/shares") else (400, 404)
                assert answer.status_code in refused, (operation.method, path, answer.text)
                assert "secret plan" not in answer.text and "of Bob" not in answer.text
                called += 1
        assert called > 60
        for path in ("/api/sessions", "/api/jobs", "/api/keys", "/api/projects", "/api/consents"):
            assert not any(await site.get(path) and next(iter((await site.get(path)).values())))
        assert (await site.get("/api/search?q=plan"))["hits"] == []
        await site.problem(403, "GET", "/p/other/api/start")


@pytest.mark.engines(Engine.SQLITE)
@pytest.mark.engines(*Engine)
async def test_only_the_operator_chooses_the_folder_in_which_an_agent_works(world: World) -> None:
    async with open_site(world.hub, world.clock, password=HASH) as site:
        ann = await add_user(site, "ann")
        await sign_in(site, "ann", ANNS_PASSWORD)
        told = "only the operator chooses the folder of a conversation"
        body = {"text": "READ /etc/shadow", "cwd": "/etc"}
        assert await site.problem(403, "POST", "/api/sessions", json=body) == told
        assert (await site.get("/api/start"))["sessions"]["sessions"] == []
        session = (await site.post("/api/sessions", {"text": "hello"}))["session"]
        path = f"/api/sessions/{session}"
        assert await site.problem(403, "PATCH", path, json={"cwd": "/root"}) == told
        await sign_in(site)
        assert (await site.patch(path, {"cwd": "/srv/ann"}))["cwd"] == "/srv/ann"
        await sign_in(site, "ann", ANNS_PASSWORD)
        # What the operator has chosen stays, also in a copy.
        assert (await site.patch(path, {"title": "Mine", "cwd": "/srv/ann"}))["cwd"] == "/srv/ann"
        turn = (await site.get(path))["messages"][0]["seq"]
        fork = await site.post(f"{path}/fork", {"through": turn})
        assert fork["session"]["cwd"] == "/srv/ann"
        again = {"text": "hello", "through": turn}
        assert (await site.post(f"{path}/fork", again))["session"]["cwd"] == "/srv/ann"
        assert (await site.patch(path, {"cwd": ""})).get("cwd", "") == ""
    viewer = Viewer(DEFAULT_PROFILE, PrincipalId(ann["principal"]))
    with pytest.raises(Forbidden):
        await world.hub.reserve_session(viewer, SessionId("reserved"), cwd="/etc", settings=SessionSettings())
    with pytest.raises(Forbidden):
        await world.hub.fork(viewer, SessionId(session), surface="web", cwd="/etc")


def read_cookies(site: Site) -> dict[str, str]:
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in site.client.cookies.items())}


async def test_exports_and_searches_of_one_person_leave_turns_to_others(world: World) -> None:
    async with open_site(world.hub, world.clock, password=HASH) as site:
        await add_user(site, "ann")
        session = (await site.post("/api/sessions", {"text": "mine"}))["session"]
        mine = read_cookies(site)
        await sign_in(site, "ann", ANNS_PASSWORD)
        hers, ended = read_cookies(site), list[str]()
        site.client.cookies.clear()
        other = (await site.post("/api/sessions", {"text": "hers"}, headers=hers))["session"]

        async def ask(who: str, path: str, headers: dict[str, str]) -> None:
            assert (await site.request("GET", path, headers=headers)).status_code == 200
            ended.append(who)

        for first, second in (
            (f"/api/sessions/{session}/export?format=html", f"/api/sessions/{other}/export?format=html"),
            ("/api/search?q=mine", "/api/search?q=hers"),
            (f"/api/sessions/{session}/words?first=1&last=1", f"/api/sessions/{other}/words?first=1&last=1"),
        ):
            asked = [asyncio.create_task(ask("operator", first, mine)) for _ in range(40)]
            await asyncio.sleep(0)
            await asyncio.gather(*asked, ask("ann", second, hers))
            assert len(ended) == 41 and ended[-1] != "ann"
            ended.clear()


async def test_a_password_is_changed_with_the_current_one(world: World) -> None:
    async with open_site(world.hub, world.clock, password=HASH) as site:
        await add_user(site)
        await sign_in(site, "ann", ANNS_PASSWORD)
        elsewhere = site.client.cookies["keryx"]
        await sign_in(site, "ann", ANNS_PASSWORD)
        path = "/api/users/ann/password"
        wrong = await site.request("PUT", path, json={"password": "a new horse", "current": "guess"})
        assert wrong.status_code == 400 and wrong.json()["field"] == "current"
        await site.put(path, {"password": "a new horse", "current": ANNS_PASSWORD})
        assert (await site.get("/api/start"))["who"]["name"] == "ann"
        site.client.cookies.clear()
        await site.problem(401, "GET", "/api/start", headers={"Cookie": f"keryx={elsewhere}"})
        await site.problem(401, "POST", "/api/sign-in", json={"name": "ann", "secret": ANNS_PASSWORD})
        await sign_in(site, "ann", "a new horse")
        cookie = site.client.cookies["keryx"]
        await sign_in(site)
        await site.delete("/api/users/ann")
        site.client.cookies.clear()
        await site.problem(401, "GET", "/api/start", headers={"Cookie": f"keryx={cookie}"})
        await site.problem(401, "POST", "/api/sign-in", json={"name": "ann", "secret": "a new horse"})


@pytest.mark.engines(Engine.SQLITE)
async def test_guesses_are_limited_for_each_user(world: World) -> None:
    proxy = ("127.0.0.1/32",)
    async with open_site(world.hub, world.clock, password=HASH, trusted_proxies=proxy) as site:
        await add_user(site)
        await sign_in(site, "ann", ANNS_PASSWORD)
        known = site.client.cookies["keryx_browser"]
        for n in range(10):
            site.client.cookies.clear()
            headers = {"X-Forwarded-For": f"10.0.{n}.1"}
            body = {"name": "ann", "secret": "guess"}
            await site.problem(401, "POST", "/api/sign-in", json=body, headers=headers)
        right = {"name": "ann", "secret": ANNS_PASSWORD}
        stranger, guess = {"X-Forwarded-For": "10.0.0.1"}, {"name": "ann", "secret": "guess"}
        for _ in range(2):
            await site.problem(401, "POST", "/api/sign-in", json=guess, headers=stranger)
        await site.problem(429, "POST", "/api/sign-in", json=right, headers=stranger)
        # The user comes in from an address that has not guessed, with a new browser.
        elsewhere = {"X-Forwarded-For": "10.8.8.8"}
        assert (await site.request("POST", "/api/sign-in", json=right, headers=elsewhere)).is_success
        site.client.cookies.clear()
        # The operator, and the browser that the user has used before, are not locked out.
        assert (
            await site.request("POST", "/api/sign-in", json={"secret": PASSWORD}, headers=stranger)
        ).is_success
        site.client.cookies.clear()
        cookie = {"Cookie": f"keryx_browser={known}", **stranger}
        assert (await site.request("POST", "/api/sign-in", json=right, headers=cookie)).is_success
        world.advance(timedelta(minutes=11))


@pytest.mark.engines(Engine.SQLITE)
async def test_strangers_do_not_keep_a_user_from_changing_the_password(world: World) -> None:
    proxy = ("127.0.0.1/32",)
    async with open_site(world.hub, world.clock, password=HASH, trusted_proxies=proxy) as site:
        await add_user(site)
        site.client.cookies.clear()
        for n in range(60):
            headers = {"X-Forwarded-For": f"10.0.{n}.1"}
            body = {"name": f"user{n}", "secret": "guess"}
            await site.problem(401, "POST", "/api/sign-in", json=body, headers=headers)
        await site.problem(429, "POST", "/api/sign-in", json={"name": "ann", "secret": ANNS_PASSWORD})
        world.advance(61)
        await sign_in(site, "ann", ANNS_PASSWORD)
        for n in range(60):
            headers = {"X-Forwarded-For": f"10.0.{n}.1", "Cookie": ""}
            body = {"name": f"user{n}", "secret": "guess"}
            await site.problem(401, "POST", "/api/sign-in", json=body, headers=headers)
        changed = {"current": ANNS_PASSWORD, "password": "a new horse of Ann"}
        assert (await site.request("PUT", "/api/users/ann/password", json=changed)).is_success


@pytest.mark.engines(Engine.SQLITE)
async def test_users_need_a_password_of_the_operator(world: World) -> None:
    async with open_site(world.hub, world.clock) as site:
        body = {"name": "ann", "password": ANNS_PASSWORD}
        assert "set your own password first" in await site.problem(400, "POST", "/api/users", json=body)


@pytest.mark.engines(Engine.SQLITE)
async def test_who_is_merged_with_the_operator_signs_in_no_longer(world: World) -> None:
    async with open_site(world.hub, world.clock, password=HASH) as site:
        ann = await add_user(site)
        await site.post("/api/people/merge", {"one": ann["principal"]})
        site.client.cookies.clear()
        await site.problem(401, "POST", "/api/sign-in", json={"name": "ann", "secret": ANNS_PASSWORD})


class Authenticator:
    """A device with one passkey."""

    def __init__(self, host: str = "localhost") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id = b"credential-of-the-test"
        self.host = host
        self.uses = 0

    def client_data(self, kind: str, challenge: str, origin: str = ORIGIN) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": origin}).encode()

    def data(self, flags: int) -> bytes:
        self.uses += 1
        return hashlib.sha256(self.host.encode()).digest() + bytes([flags]) + self.uses.to_bytes(4)

    def make(self, challenge: str, *, flags: int = 0x45, origin: str = ORIGIN) -> dict[str, str]:
        numbers = self.key.public_key().public_numbers()
        cose = b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20" + numbers.x.to_bytes(32)
        cose += b"\x22\x58\x20" + numbers.y.to_bytes(32)
        data = self.data(flags) + bytes(16) + len(self.id).to_bytes(2) + self.id + cose
        attestation = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58" + bytes([len(data)]) + data
        return {
            "challenge": challenge,
            "client_data": encode_base64url(self.client_data("webauthn.create", challenge, origin)),
            "attestation": encode_base64url(attestation),
            "name": "phone",
        }

    def prove(self, challenge: str, *, flags: int = 0x05, origin: str = ORIGIN) -> dict[str, str]:
        said, data = self.client_data("webauthn.get", challenge, origin), self.data(flags)
        signature = self.key.sign(data + hashlib.sha256(said).digest(), ec.ECDSA(hashes.SHA256()))
        return {
            "challenge": challenge,
            "id": encode_base64url(self.id),
            "client_data": encode_base64url(said),
            "authenticator_data": encode_base64url(data),
            "signature": encode_base64url(signature),
        }


@pytest.mark.engines(*Engine)
async def test_a_passkey_signs_in_once_for_each_challenge(world: World) -> None:
    device = Authenticator()
    async with open_site(world.hub, world.clock, password=HASH) as site:
        ann = await add_user(site)
        await sign_in(site, "ann", ANNS_PASSWORD)
        assert (await site.get("/api/passkeys"))["available"]
        options = await site.post("/api/passkeys/options")
        assert options["host"] == "localhost" and options["user_name"] == "ann"
        made = await site.post("/api/passkeys", device.make(options["challenge"]))
        site.client.cookies.clear()

        async def challenge() -> str:
            return (await site.post("/api/sign-in/passkey/options"))["challenge"]

        proof = device.prove(await challenge())
        who = await site.post("/api/sign-in/passkey", proof)
        assert who["principal"] == ann["principal"]
        assert (await site.get("/api/start"))["who"]["name"] == "ann"
        site.client.cookies.clear()
        await site.problem(400, "POST", "/api/sign-in/passkey", json=proof)
        for wrong in (
            device.prove(await challenge(), flags=0x01),
            device.prove(await challenge(), origin="https://other.example"),
            {**device.prove(await challenge()), "signature": encode_base64url(b"0" * 70)},
            device.prove(encode_base64url(b"0" * 56)),
            device.prove(options["challenge"]),
            {**device.prove(await challenge()), "authenticator_data": "AAAA"},
            {**device.prove(await challenge()), "client_data": "###"},
        ):
            await site.problem(400, "POST", "/api/sign-in/passkey", json=wrong)
        world.advance(61)
        stranger = {**device.prove(await challenge()), "id": encode_base64url(b"another credential")}
        await site.problem(401, "POST", "/api/sign-in/passkey", json=stranger)
        # A copy of the device would have an older counter.
        device.uses = 0
        await site.problem(401, "POST", "/api/sign-in/passkey", json=device.prove(await challenge()))
        device.uses = 99
        late = device.prove(await challenge())
        world.advance(timedelta(minutes=6))
        await site.problem(400, "POST", "/api/sign-in/passkey", json=late)
        await site.post("/api/sign-in/passkey", device.prove(await challenge()))
        await site.delete(f"/api/passkeys/{made['id']}")
        site.client.cookies.clear()
        await site.problem(401, "POST", "/api/sign-in/passkey", json=device.prove(await challenge()))


@pytest.mark.engines(Engine.SQLITE)
async def test_a_new_passkey_is_refused_unless_it_is_in_order(world: World) -> None:
    device = Authenticator()
    async with open_site(world.hub, world.clock, password=HASH) as site:
        await sign_in(site)

        async def challenge() -> str:
            return (await site.post("/api/passkeys/options"))["challenge"]

        signing_in = (await site.post("/api/sign-in/passkey/options"))["challenge"]
        for wrong in (
            device.make(await challenge(), flags=0x41),
            device.make(await challenge(), flags=0x05),
            device.make(await challenge(), origin="http://127.0.0.1:7337"),
            device.make(signing_in),
            Authenticator("other.example").make(await challenge()),
            {**device.make(await challenge()), "attestation": encode_base64url(b"\x9f")},
        ):
            await site.problem(400, "POST", "/api/passkeys", json=wrong)
        await site.post("/api/passkeys", device.make(await challenge()))
        await site.problem(409, "POST", "/api/passkeys", json=device.make(await challenge()))
        by_address = {"Host": "127.0.0.1:7337"}
        options = await site.request("POST", "/api/passkeys/options", headers=by_address)
        assert options.status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1:7337", "[::1]:7337", "example.org"])
def test_passkeys_need_a_name_and_encryption(host: str) -> None:
    assert not webauthn.is_available(host, secure=False)
    assert webauthn.is_available(HOST, secure=False)
    assert webauthn.is_available("example.org", secure=True)
