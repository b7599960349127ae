"""Notifications while the page is closed: who is told what, once, and what the answers of a push service lead to."""

import asyncio
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, OPERATORS, SECONDS, World, viewer
from tests.fakes.push_service import PushBrowser, PushService

from keryx.client_address import is_public
from keryx.core.codec import decode_base64url, encode_base64url
from keryx.core.errors import Invalid, Retryable, StoreBroken, Unavailable
from keryx.core.ports.agent import TextDelta
from keryx.core.sessions import Viewer
from keryx.core.turns import Turn
from keryx.engine.hub.push_subscriptions import PushSubscription, check_endpoint
from keryx.engine.policy import Policy, PushSettings
from keryx.engine.web_push import PushClient, PushOutcome, ServerKey, encrypt
from keryx.store.db import Database, Engine
from keryx.testing import START_TIME, CrashingDatabase, DatabaseFault, FaultTiming, ScriptedAgent

ANN, BOB = viewer("ann"), viewer("bob")
on_sqlite = pytest.mark.engines(Engine.SQLITE)


def build_policy(folder: Path, **settings: object) -> Policy:
    push = msgspec.convert({"loopback": True, "contact": "mailto:me@keryx.example", **settings}, PushSettings)
    return msgspec.structs.replace(AT_ONCE, push=push, push_key=folder / "secrets" / "push.key")


@dataclass
class Stage:
    world: World
    service: PushService
    folder: Path

    async def connect(
        self, person: Viewer, name: str = "phone", *, with_text: bool | None = None, prefix: str = ""
    ) -> PushSubscription:
        """Connect a browser of a person who has been on the page."""
        await self.world.hub.viewer_state.change_preferences(person, {})
        # What was said before the first visit counts as read.
        self.world.advance(1)
        return await self.save(person, self.service.add_browser(name), with_text=with_text, prefix=prefix)

    async def save(
        self,
        person: Viewer,
        browser: PushBrowser,
        *,
        with_text: bool | None = None,
        prefix: str = "",
        sign_in: str | None = None,
    ) -> PushSubscription:
        return await self.world.hub.push_subscriptions.save(
            person, **browser.fields, sign_in=sign_in, prefix=prefix, language="en", with_text=with_text
        )

    async def ask(self, text: str, *, user: str = "ann", surface: str = "web") -> Turn:
        """Ask, and let the time pass after which a person is told."""
        before = await self.count("")
        turn = await self.world.ask(text, user=user, chat=user, surface=surface)
        await self.world.until(lambda tx: tx.row("select count(*) from pushes") != (before,))
        self.world.advance(5)
        return turn

    async def count(self, condition: str) -> int:
        row = await self.world.database.read(
            "test", lambda tx: tx.row(f"select count(*) from pushes {condition}")
        )
        assert row is not None
        return row[0]

    async def told(self, number: int) -> list[dict[str, str]]:
        await self.world.eventually(lambda: len(self.service.received) >= number)
        await self.rest()
        assert len(self.service.received) == number
        return [push.told for push in self.service.received]

    async def rest(self) -> None:
        """Wait until everything that was due is recorded."""
        now = int(self.world.clock.now().timestamp() * 1_000_000)
        await self.world.until(
            lambda tx: tx.row(f"select 1 from pushes where due_at <= {now + 130_000_000}") is None
        )


@pytest.fixture
async def stage(begin: Begin, tmp_path: Path) -> AsyncIterator[Stage]:
    with PushService() as service:
        yield Stage(await begin(policy=build_policy(tmp_path)), service, tmp_path)


def test_a_body_is_encrypted_as_in_the_example_of_rfc_8291() -> None:
    sender = int.from_bytes(decode_base64url("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big")
    body = encrypt(
        b"When I grow up, I want to be a watermelon",
        public_key="BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        secret="BTBZMqHH6r4Tts7J_aSIgg",
        block=1,
        salt=decode_base64url("DGv6ra1nlYgDCS1FRnbzlw"),
        sender=ec.derive_private_key(sender, ec.SECP256R1()),
    )
    assert encode_base64url(body) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8w"
        "EqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


def test_the_key_is_made_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "push.key"
    assert ServerKey.find(path) is None
    made = ServerKey.ensure(path)
    assert len(decode_base64url(made.public)) == 65
    assert ServerKey.ensure(path).public == made.public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["push.key"]
    path.write_bytes(b"half")
    with pytest.raises(StoreBroken, match="bring it back"):
        ServerKey.ensure(path)


@pytest.mark.engines(*Engine)
async def test_the_end_of_an_answer_is_told_once_without_its_text(stage: Stage) -> None:
    await stage.connect(ANN)
    turn = await stage.ask("a secret")
    [told] = await stage.told(1)
    assert told == {
        "id": f"finished {turn.id}",
        "who": "ann",
        "session": turn.session,
        "path": f"/#/s/{turn.session}",
        "title": "Keryx",
        "text": "An answer is finished",
    }
    [push] = stage.service.received
    assert push.claims["sub"] == "mailto:me@keryx.example"
    assert (push.headers["Urgency"], push.key) == (
        "normal",
        await stage.world.hub.push_subscriptions.read_key(),
    )
    # A node that begins again, or another one, does not tell it again.
    await stage.world.restart()
    await stage.ask("another")
    assert [t["session"] for t in await stage.told(2)] == [turn.session] * 2
    assert len({p.headers["Topic"] for p in stage.service.received}) == 1


@on_sqlite
async def test_the_text_is_told_to_those_who_want_it(stage: Stage) -> None:
    saved = await stage.connect(ANN, with_text=True, prefix="/p/default")
    assert saved.with_text
    turn = await stage.ask("tell me of Oslo")
    [told] = await stage.told(1)
    assert told["text"] == "tell me of Oslo" and told["title"] == "tell me of Oslo"
    assert told["path"] == f"/p/default/#/s/{turn.session}"


@on_sqlite
async def test_a_long_text_fits_into_a_notification(begin: Begin, tmp_path: Path) -> None:
    with PushService() as service:
        agent = ScriptedAgent([TextDelta('\N{GRINNING FACE}\n"' * 3_000)])
        stage = Stage(await begin(policy=build_policy(tmp_path), agent=agent), service, tmp_path)
        await stage.connect(ANN, with_text=True)
        await stage.ask("x")
        [told] = await stage.told(1)
    assert 20 < len(told["text"]) <= 300


@pytest.mark.engines(*Engine)
async def test_a_person_is_told_of_own_conversations_and_the_operator_of_all(stage: Stage) -> None:
    await stage.connect(ANN, "ann")
    await stage.connect(BOB, "bob")
    await stage.connect(OPERATORS, "operator")
    await stage.ask("for ann alone")
    await stage.told(2)
    assert sorted(push.path for push in stage.service.received) == ["/ann", "/operator"]


@on_sqlite
async def test_preferences_decide_as_on_the_page(stage: Stage) -> None:
    await stage.connect(ANN)
    turn = await stage.ask("one")
    await stage.told(1)
    prefer = stage.world.hub.viewer_state.change_preferences
    for change, told in (
        ({"muted": "finished"}, False),
        ({f"alerts.{turn.session}": "all"}, True),
        ({"muted": "", f"alerts.{turn.session}": "none"}, False),
        ({f"alerts.{turn.session}": ""}, True),
    ):
        await prefer(ANN, change)
        before = len(stage.service.received)
        if told:
            await stage.ask("more")
            await stage.told(before + 1)
        else:
            await stage.world.ask("more", chat="ann", surface="web")
    # What was asked elsewhere is told there.
    await stage.world.ask("from a chat", chat="ann", surface="gateway")
    await stage.ask("a last one")
    assert len(await stage.told(4)) == 4


@on_sqlite
async def test_what_was_read_meanwhile_is_not_told(stage: Stage) -> None:
    await stage.connect(ANN)
    turn = await stage.world.ask("one", chat="ann", surface="web")
    await stage.world.until(lambda tx: tx.row("select 1 from pushes") is not None)
    await stage.world.hub.viewer_state.mark_read(ANN, turn.session, 1_000)
    stage.world.advance(5)
    await stage.rest()
    assert stage.service.received == []


@on_sqlite
async def test_a_session_that_the_person_may_not_see_any_more_is_not_told(stage: Stage) -> None:
    await stage.connect(ANN)
    turn = await stage.world.ask("one", chat="ann", surface="web")
    await stage.world.until(lambda tx: tx.row("select 1 from pushes") is not None)
    await stage.world.database.write(
        "test", lambda tx: tx.run("update sessions set owner = 'bob' where id = :id", {"id": turn.session})
    )
    stage.world.advance(5)
    await stage.rest()
    assert stage.service.received == []


@pytest.mark.parametrize("status", [404, 410])
@on_sqlite
async def test_a_browser_that_is_gone_is_forgotten(stage: Stage, status: int) -> None:
    await stage.connect(ANN)
    stage.service.answers = [(status, {})]
    await stage.ask("one")
    await stage.world.until(lambda tx: tx.row("select 1 from push_subscriptions") is None)
    assert await stage.count("") == 0
    assert len(stage.service.received) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
@on_sqlite
async def test_a_service_that_is_busy_is_asked_again_later(stage: Stage, status: int) -> None:
    await stage.connect(ANN)
    stage.service.answers = [(status, {"Retry-After": "600"})]
    await stage.ask("one")
    await stage.told(1)
    stage.world.advance(400)
    await stage.rest()
    assert len(stage.service.received) == 1
    stage.world.advance(210)
    await stage.told(2)
    stage.world.advance(timedelta(hours=3))
    assert len(await stage.told(2)) == 2


@on_sqlite
async def test_what_waits_is_replaced_by_what_is_newer(stage: Stage) -> None:
    await stage.connect(ANN)
    stage.service.answers = [(503, {"Retry-After": "600"})]
    await stage.ask("one")
    await stage.told(1)
    newer = await stage.ask("two")
    await stage.told(2)
    stage.world.advance(timedelta(hours=2))
    told = await stage.told(2)
    assert told[1]["id"] == f"finished {newer.id}"


@on_sqlite
async def test_what_is_refused_is_given_up_and_what_is_too_old_as_well(stage: Stage) -> None:
    await stage.connect(ANN)
    stage.service.answers = [(413, {}), *[(503, {"Retry-After": "80000"})] * 2]
    await stage.ask("one")
    await stage.told(1)
    await stage.ask("two")
    await stage.told(2)
    stage.world.advance(80_010)
    await stage.told(3)
    stage.world.advance(80_010)
    await stage.world.until(lambda tx: tx.row("select 1 from pushes where due_at is not null") is None)
    assert len(stage.service.received) == 3


@pytest.mark.engines(*Engine)
async def test_the_end_of_a_sign_in_ends_the_notifications_of_its_browser(stage: Stage) -> None:
    sign_ins = stage.world.hub.sign_ins
    id_, _ = await sign_ins.create(ANN, browser="a phone")
    await stage.save(ANN, stage.service.add_browser("phone"), sign_in=id_)
    await stage.connect(ANN, "other")
    await sign_ins.end(ANN, id_)
    await stage.ask("one")
    await stage.told(1)
    assert [push.path for push in stage.service.received] == ["/other"]


@on_sqlite
async def test_the_next_person_in_a_browser_takes_its_place(stage: Stage) -> None:
    await stage.connect(BOB, "bob")
    browser = stage.service.add_browser("shared")
    await stage.save(ANN, browser)
    await stage.save(BOB, browser)
    await stage.world.ask("of ann", chat="ann", surface="web")
    await stage.ask("of bob", user="bob")
    assert {told["who"] for told in await stage.told(2)} == {"bob"}


@on_sqlite
async def test_a_person_removes_own_browsers_only(stage: Stage) -> None:
    saved = await stage.connect(ANN)
    subscriptions = stage.world.hub.push_subscriptions
    await subscriptions.remove(BOB, saved.id)
    await stage.ask("one")
    await stage.told(1)
    await subscriptions.remove(ANN, saved.id)
    await stage.world.until(lambda tx: tx.row("select 1 from push_subscriptions") is None)


@pytest.mark.engines(*Engine)
@pytest.mark.parametrize("when", FaultTiming)
async def test_a_write_that_is_struck_leads_to_one_notification(
    begin: Begin, database: Database, tmp_path: Path, when: FaultTiming
) -> None:
    crashing = CrashingDatabase(database)
    with PushService() as service:
        stage = Stage(await begin(database=crashing, policy=build_policy(tmp_path)), service, tmp_path)
        subscriptions = stage.world.hub.push_subscriptions
        browser = service.add_browser("phone")
        await stage.world.hub.viewer_state.change_preferences(ANN, {})
        stage.world.advance(1)

        async def strike(label: str, act: Callable[[], Awaitable[object]]) -> None:
            crashing.faults = [DatabaseFault(label, when)]
            with pytest.raises(Retryable):
                await act()
            await act()

        await strike("push.subscribe", lambda: stage.save(ANN, browser))
        saved = await stage.save(ANN, browser)
        for number, label in enumerate(("push.queue", "push.claim", "push.record"), 1):
            crashing.faults = [fault := DatabaseFault(label, when)]
            turn = await stage.world.ask("hello", user="ann", chat="ann", surface="web")
            async with asyncio.timeout(SECONDS):
                while f"finished {turn.id}" not in {push.told["id"] for push in service.received}:
                    stage.world.advance(5)
                    await asyncio.sleep(0.005)
            stage.world.advance(130)
            await stage.rest()
            assert fault.hits
            # What could not be recorded comes again: a browser shows one of the same id.
            assert len({push.told["id"] for push in service.received}) == number
        crashing.faults = [fault := DatabaseFault("pushes.trim", when)]
        async with asyncio.timeout(SECONDS):
            while not fault.hits or await stage.count(""):
                stage.world.advance(timedelta(hours=1))
                await asyncio.sleep(0.005)
        assert fault.hits
        await strike("push.unsubscribe", lambda: subscriptions.remove(ANN, saved.id))
        assert await stage.world.read(lambda tx: tx.row("select 1 from push_subscriptions")) is None
        await stage.save(ANN, browser)
        await strike("push.unsigned", subscriptions.remove_unsigned)
        assert await stage.world.read(lambda tx: tx.row("select 1 from push_subscriptions")) is None


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://push.example.com/x",
        "https://127.0.0.1/x",
        "https://10.0.0.1/x",
        "https://[::1]/x",
        "https://2130706433/x",
        "https://0x7f.1/x",
        "https://localhost/x",
        "https://router.local/x",
        "https://intranet/x",
        "https://user:word@push.example.com/x",
        "https://push.example.com:8443/x",
        "https://push.example.com/x#y",
        "https://push.example.com/\n",
        "https://push.example.com\\@10.0.0.1/",
        "https://push.example.com/" + "x" * 2_000,
        "ftp://push.example.com/x",
        "https://[broken/x",
        "",
    ],
)
def test_an_address_that_no_push_service_has_is_refused(endpoint: str) -> None:
    with pytest.raises(Invalid):
        check_endpoint(endpoint)


def test_an_address_of_a_push_service_is_taken() -> None:
    check_endpoint("https://fcm.googleapis.com/fcm/send/abc:def")
    check_endpoint("https://updates.push.services.mozilla.com:443/wpush/v2/x")
    with pytest.raises(Invalid):
        check_endpoint("http://127.0.0.1:9/x")
    check_endpoint("http://127.0.0.1:9/x", loopback=True)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::8.8.8.8", True),
        ("2002:0a00:0001::1", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
        ("keryx.example", False),
    ],
)
def test_only_addresses_of_the_public_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


async def test_a_name_that_leads_into_a_network_of_its_own_is_not_asked(tmp_path: Path) -> None:
    """The name of a subscription may lead anywhere when it is looked up: that is checked, and nothing is sent there."""
    with PushService() as service:
        port = service.origin.rpartition(":")[2]
        async with PushClient(ServerKey.ensure(tmp_path / "key"), contact="") as client:
            result = await client.send(
                f"http://localhost:{port}/x", b"", topic="t", urgent=False, seconds=60, now=START_TIME
            )
        assert result.outcome is PushOutcome.GONE
        assert service.received == [] and service.wrong == []


@on_sqlite
async def test_a_key_that_is_none_and_a_service_that_is_off_are_told(begin: Begin, tmp_path: Path) -> None:
    with PushService() as service:
        stage = Stage(await begin(policy=build_policy(tmp_path)), service, tmp_path)
        browser = service.add_browser("x")
        for field, value in (("public_key", "ab"), ("secret", "!!"), ("endpoint", "https://10.0.0.1/")):
            with pytest.raises(Invalid, match="push service"):
                await stage.world.hub.push_subscriptions.save(
                    ANN,
                    **{**browser.fields, field: value},
                    sign_in=None,
                    prefix="",
                    language="en",
                    with_text=None,
                )
    off = await begin(policy=build_policy(tmp_path, enabled=False))
    with pytest.raises(Unavailable, match=r"push\.enabled"):
        await off.hub.push_subscriptions.read_key()
