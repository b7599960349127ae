"""Access: who may talk is decided here, before a lane or a session exists, and again before a waiting turn runs."""

from datetime import datetime, timedelta

from keryx.core import access, codes, identity, ids
from keryx.core.access import CLOSED, Rule, Rules, Verdict
from keryx.core.deliveries import Target
from keryx.core.errors import Forbidden
from keryx.core.identity import NO_ALIASES, Aliases
from keryx.core.ids import OPERATOR, ProfileId
from keryx.core.ports import Inbound
from keryx.core.source import Source
from keryx.store import deliveries, grants, guesses, handles, pairings
from keryx.store import rules as published
from keryx.store.database import Transaction
from keryx.store.pairings import Pairing

LIFE = timedelta(hours=1)
TELL_AGAIN = timedelta(minutes=1)
MOST_OPEN = 3
YIELD = timedelta(minutes=5)
"""How long a request is safe from being replaced by a newer one, where as many wait as may."""

REVOKED = "This was not answered: the person who asked may no longer talk here."
_HOW = """\
I do not know you yet. To let you in, whoever runs this Keryx types:

keryx pairing approve {platform} {code}

The code holds for {minutes} minutes."""


def admit(tx: Transaction, inbound: Inbound, rules: Rules, *, now: datetime) -> bool:
    """Whether an event may come in. A stranger in a direct chat is told how to be let in; nothing else is kept.

    Local transports know who they speak for and are always let in."""
    if inbound.principal is not None:
        return True
    verdict = judged(tx, inbound.source, rules)
    if verdict is Verdict.STRANGER and inbound.reply is not None and inbound.edits is None:
        _offer(tx, inbound.source, inbound.reply, now=now)
    return verdict is Verdict.ALLOWED


def judged(tx: Transaction, source: Source, rules: Rules) -> Verdict:
    """What the rules and the grants say of a source at this moment."""
    rule, others = _rule(tx, source, rules), _others(tx, source)
    verdict = access.judge(rule, source, granted=False, others=others)
    if verdict is Verdict.ALLOWED or _grant(tx, source) is None:
        return verdict
    return access.judge(rule, source, granted=True)


def operates(tx: Transaction, source: Source, rules: Rules) -> bool:
    """Whether the author of a message has the rights of an operator."""
    grant = _grant(tx, source)
    listed = access.listed(_rule(tx, source, rules).operators, source, _others(tx, source))
    return listed or (grant is not None and grant.operator)


def recheck(tx: Transaction, source: Source | None, rules: Rules) -> None:
    """Raise `Forbidden` if the author of a waiting message has lost the right to talk since."""
    if source is not None and judged(tx, source, rules) is not Verdict.ALLOWED:
        raise Forbidden(REVOKED)


def forget(tx: Transaction, pairing: Pairing, *, now: datetime) -> None:
    """Take an open request away: its code is worth nothing any more."""
    pairings.remove(tx, profile=pairing.profile, platform=pairing.platform, person=pairing.person)
    grants.note(tx, pairing.profile, pairing.platform, pairing.person, "denied", now)


def door(profile: ProfileId, platform: str) -> str:
    """The key of what lets one transaction at a time decide about the strangers of a platform."""
    return f"door:{profile}:{platform}"


def aliases(tx: Transaction, source: Source) -> Aliases:
    """What was learned of the ids in a source."""
    if not identity.aliased(source.platform):
        return NO_ALIASES
    people = {
        identity.canonical(source.platform, p) for p in (source.user_alt, source.user, source.chat) if p
    }
    return handles.known(tx, profile=source.profile, platform=source.platform, people=people)


def identified(source: Source) -> str | None:
    """The id by which the author of a message is known."""
    return source.user_alt or source.user or source.chat


def _rule(tx: Transaction, source: Source, rules: Rules) -> Rule:
    """The rule of a platform: this node's own, else the one of a node that serves the platform."""
    return rules.get(source.platform) or published.find(tx, source.platform) or CLOSED


def _others(tx: Transaction, source: Source) -> list[str]:
    """Every id that the author of a message goes by, as far as it was learned."""
    person = identified(source)
    if not person or not identity.aliased(source.platform):
        return []
    known = identity.person(source.platform, person, aliases=aliases(tx, source))
    found = handles.of_person(tx, profile=source.profile, platform=source.platform, person=known)
    return [known, *found]


def _handle(tx: Transaction, source: Source) -> str | None:
    person = identified(source)
    return person and identity.handle(source.platform, person, aliases=aliases(tx, source))


def _grant(tx: Transaction, source: Source) -> grants.Grant | None:
    handle = _handle(tx, source)
    if not handle:
        return None
    return grants.find(tx, profile=source.profile, platform=ids.plain(source.platform), person=handle)


def _offer(tx: Transaction, source: Source, reply: Target, *, now: datetime) -> None:
    """Tell a stranger a code, unless one was told a moment ago or too many wait already. Who asks again gets another
    code and no more time, so that nobody keeps a place by asking: the oldest request makes room for a new one."""
    platform, person = ids.plain(source.platform), _handle(tx, source)
    if not person:
        return
    guesses.alone(tx, door(source.profile, platform), now=now)
    known = pairings.find(tx, profile=source.profile, platform=platform, person=person)
    if known is not None and known.told_at > now - TELL_AGAIN:
        return
    waiting = pairings.open_(tx, profile=source.profile, now=now, platform=platform)
    until = known.expires_at if known in waiting and known else now + LIFE
    if known not in waiting and len(waiting) >= MOST_OPEN:
        if waiting[0].expires_at > now + LIFE - YIELD:
            return
        forget(tx, waiting[0], now=now)
    code = codes.new()
    pairing = Pairing(
        profile=source.profile,
        platform=platform,
        person=person,
        name=source.user_name or "",
        target=reply,
        told_at=now,
        expires_at=until,
    )
    pairings.put(tx, pairing, codes.sealed(code))
    grants.note(tx, source.profile, platform, person, "asked", now)
    deliveries.enqueue(
        tx,
        reply,
        _HOW.format(platform=platform, code=code, minutes=max(1, (until - now) // timedelta(minutes=1))),
        profile=source.profile,
        owner=OPERATOR,
        now=now,
        secret=True,
    )
