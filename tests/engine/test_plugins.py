"""Roles: whoever has one may talk, for as long as they have it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, Pause, Scenes, World, inbound

from keryx.core.access import AccessRule
from keryx.core.deliveries import Target
from keryx.core.errors import Invalid, Unavailable
from keryx.core.ports.adapter import Capabilities, IdFormat, InboundMessage, PlatformIds
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.source import ChatType, Source
from keryx.core.turns import BusyMode, TurnLimits, TurnState
from keryx.engine import adapter_listener
from keryx.engine.adapter_listener import HubAdapterContext
from keryx.engine.plugins import ROLE_TTL_SECONDS
from keryx.engine.policy import Policy, check_access
from keryx.engine.units import access
from keryx.store import turns
from keryx.store.db import Engine
from keryx.testing import RecordingAdapter

pytestmark = pytest.mark.engines(Engine.SQLITE)


class Guild(RecordingAdapter):
    """A platform on which `ranks` says who is what; `away`: it cannot be asked now."""

    def __init__(self) -> None:
        super().__init__(FAKE, capabilities=Capabilities(roles=("chief", "scribe")))
        self.ranks = {"ann": ("scribe",)}
        self.asked: list[str] = []
        self.away = False

    async def roles(self, source: Source) -> Sequence[str]:
        if self.away:
            raise Unavailable("the guild does not answer")
        self.asked.append(source.user or "")
        return self.ranks.get(source.user or "", ())


def said(text: str, user: str = "ann", **fields: Any) -> InboundMessage:
    source = Source(platform=FAKE, chat="g", chat_type=ChatType.GROUP, user=user, user_name=user)
    plain = inbound(text, source=source, reply=Target(FAKE, chat="g"), principal=None)
    return msgspec.structs.replace(plain, **fields)


async def opened(begin: Begin, guild: Guild, **fields: Any) -> tuple[World, HubAdapterContext]:
    rule = AccessRule(roles=("scribe",), **fields)
    policy = Policy(limits=TurnLimits(settle=timedelta(0)), access={FAKE: rule})
    world = await begin(policy=policy, adapters=[guild], agent=Scenes({"wait": [TextDelta("w")]}))
    service = world.node.service
    return world, await adapter_listener.open_context(
        world.hub, guild, service.platform_status, service.roles
    )


async def test_whoever_has_a_role_may_talk_and_nobody_else(begin: Begin) -> None:
    guild = Guild()
    world, door = await opened(begin, guild)
    let_in = await door.receive(said("hello"))
    assert (await door.receive(said("hello", "bob"))).session is None
    guild.ranks["bob"] = ("chief",)
    assert (await door.receive(said("hello", "bob"))).session is None
    await world.settle(let_in)
    assert let_in.turn
    author = await world.read(turns.get_author, let_in.turn)
    assert author and author.by_role and author.roles == ("scribe",)
    assert await door.is_allowed(said("").source) and not await door.is_allowed(said("", "bob").source)


async def test_a_role_is_asked_for_only_where_it_decides(begin: Begin) -> None:
    guild = Guild()
    _, door = await opened(begin, guild, allow=("eve",))
    await door.receive(said("hello", "eve"))
    await door.receive(said("talk among others", "bob", addressed=False))
    await door.receive(inbound("hello", user="cyd", principal=None))
    assert guild.asked == []
    for _ in range(3):
        await door.receive(said("hello", "ann"))
    assert guild.asked == ["ann"]


async def test_a_role_that_was_lost_opens_nothing_half_a_minute_later(begin: Begin) -> None:
    guild = Guild()
    world, door = await opened(begin, guild)
    assert (await door.receive(said("hello"))).session
    guild.ranks.clear()
    world.advance(ROLE_TTL_SECONDS + 1)
    assert (await door.receive(said("hello again"))).session is None


async def test_what_waits_is_not_answered_once_the_role_is_lost(begin: Begin) -> None:
    guild, pause = Guild(), Pause()
    world, door = await opened(begin, guild)
    world.agent = Scenes({"wait": [pause]})
    await door.receive(said("wait"))
    await pause.reached()
    waiting = await door.receive(said("and then?"))
    guild.ranks.clear()
    world.advance(ROLE_TTL_SECONDS + 1)
    pause.go_on()
    turn = await world.settle(waiting)
    assert (turn.state, turn.error) == (TurnState.FAILED, access.REVOKED_NOTICE)


async def test_nobody_steers_by_a_role_that_is_lost(begin: Begin) -> None:
    guild, pause, given = Guild(), Pause(), list[str]()

    async def steered(context: TurnContext) -> None:
        given.extend(m.text for m in await context.fetch_new_messages())

    world, door = await opened(begin, guild)
    world.agent = Scenes({"wait": [pause, steered]})
    first = await door.receive(said("wait"))
    await pause.reached()
    kept = await door.receive(said("left", busy=BusyMode.STEER))
    guild.ranks.clear()
    world.advance(ROLE_TTL_SECONDS + 1)
    pause.go_on()
    await world.settle(first)
    assert given == []
    assert (await world.settle(kept)).state is TurnState.CANCELLED


async def test_a_platform_that_cannot_tell_lets_the_event_come_again(begin: Begin) -> None:
    guild = Guild()
    world, door = await opened(begin, guild)
    guild.away = True
    event = said("hello")
    with pytest.raises(Unavailable, match="does not answer"):
        await door.receive(event)
    guild.away = False
    assert not (await door.receive(event)).duplicate
    guild.away = True
    world.advance(ROLE_TTL_SECONDS + 1)
    with pytest.raises(Unavailable):
        await door.receive(said("more"))


async def test_a_turn_is_not_run_while_nobody_can_tell_who_may_talk(begin: Begin) -> None:
    guild, pause = Guild(), Pause()
    world, door = await opened(begin, guild)
    world.agent = Scenes({"wait": [pause]})
    await door.receive(said("wait"))
    await pause.reached()
    waiting = await door.receive(said("and then?"))
    guild.away = True
    world.advance(ROLE_TTL_SECONDS + 1)
    pause.go_on()
    turn = await world.settle(waiting)
    assert turn.error == "Keryx cannot check now who may talk here: fake does not answer. /retry asks again."


async def test_a_platform_may_tell_the_roles_with_each_event(begin: Begin) -> None:
    rule = {"webhook": AccessRule(roles=("support",), pairing=False)}
    world = await begin(policy=Policy(limits=TurnLimits(settle=timedelta(0)), access=rule))
    for roles, let_in in ((("support", "x"), True), (("boss",), False), ((), False)):
        source = Source(platform="webhook", chat="t1", user="ann", roles=roles, by_role=True)
        receipt = await world.hub.receive(inbound("hello", source=source, principal=None, reply=None))
        assert bool(receipt.session) is let_in


IDS = PlatformIds(person=IdFormat(r"\d+", "a number"), chat=IdFormat(r"g\d+", "a g and a number"))


@pytest.mark.parametrize(
    ("rule", "able", "why"),
    [
        (AccessRule(roles=("chief",)), Capabilities(), "there are no roles on fake: take `roles` out"),
        (
            AccessRule(roles=("boss",)),
            Capabilities(roles=("chief", "scribe")),
            "'boss' is no role .* chief or scribe",
        ),
        (
            AccessRule(allow=("7", "@ann")),
            Capabilities(ids=IDS),
            "'@ann' is no person on fake: the id of one is a num",
        ),
        (AccessRule(operators=("ann",)), Capabilities(ids=IDS), "'ann' is no person"),
        (AccessRule(groups=("7",)), Capabilities(ids=IDS), "'7' is no chat on fake"),
    ],
)
def test_a_rule_that_could_let_nobody_in_is_refused(rule: AccessRule, able: Capabilities, why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        check_access({FAKE: rule}, [RecordingAdapter(FAKE, capabilities=able)])
    assert str(caught.value).startswith("[access.fake] is wrong: ")


def test_rules_that_can_be_are_taken() -> None:
    rule = AccessRule(allow=("7", "*"), groups=("*", "g1"), roles=("*", "chief"))
    able = Capabilities(ids=IDS, roles=("chief",))
    check_access({FAKE: rule, "other": AccessRule(roles=("x",))}, [RecordingAdapter(FAKE, capabilities=able)])
    check_access(
        {FAKE: AccessRule(roles=("x",))}, [RecordingAdapter(FAKE, capabilities=Capabilities(roles=("*",)))]
    )
