"""Who may talk: rules, grants and pairing codes. Checked before a lane exists, and again before a waiting turn runs."""

from datetime import timedelta

from keryx.core import access, ids
from keryx.core import source as sources
from keryx.core.access import CLOSED, AccessRule, AccessRules, Grant, Pairing, Verdict
from keryx.core.deliveries import Target
from keryx.core.errors import Forbidden, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import Viewer
from keryx.core.source import NO_ALIASES, Aliases, Source
from keryx.core.texts import Phrase
from keryx.store import access as access_store
from keryx.store import deliveries
from keryx.store import people as people_store
from keryx.store.db import Transaction

_CODE_RETENTION = timedelta(days=1)

PAIRING_LIFETIME = timedelta(hours=1)
CODE_INTERVAL = timedelta(minutes=1)
MAX_OPEN_PAIRINGS = 3
# A younger request is not replaced by a new one when `MAX_OPEN_PAIRINGS` are open.
MIN_PAIRING_AGE = timedelta(minutes=5)
REVOKED_NOTICE = Phrase("turn.revoked")
MAX_WRONG_CODES = 5
LOCKOUT = timedelta(hours=1)


def admit(tx: Transaction, inbound: InboundMessage, rules: AccessRules) -> bool:
    """Return whether an event is allowed. A stranger in a direct chat gets a pairing code; nothing else is stored.

    Events of local surfaces, which know their user, are always allowed."""
    if inbound.principal is not None:
        return True
    verdict = judge(tx, inbound.source, rules)
    if verdict is Verdict.STRANGER and inbound.reply is not None and inbound.edits is None:
        _offer_code(tx, inbound.source, inbound.reply)
    return verdict is Verdict.ALLOWED


def judge(tx: Transaction, source: Source, rules: AccessRules) -> Verdict:
    """Apply the current rules and grants to a source."""
    rule, others = _find_rule(tx, source, rules), find_other_ids(tx, source)
    verdict = access.judge(rule, source, granted=False, others=others)
    if verdict is Verdict.ALLOWED or _find_grant(tx, source) is None:
        return verdict
    return access.judge(rule, source, granted=True)


def explain(tx: Transaction, source: Source, rules: AccessRules) -> str:
    """Return which part of the rules lets the author of a message talk, for an operator."""
    rule, others = _find_rule(tx, source, rules), find_other_ids(tx, source)
    parts = {
        "operators": AccessRule(operators=rule.operators, bots=rule.bots, relay=rule.relay),
        "allow": AccessRule(allow=rule.allow, bots=rule.bots, relay=rule.relay),
        "groups": AccessRule(groups=rule.groups, bots=rule.bots, relay=rule.relay),
        "roles": AccessRule(roles=rule.roles, bots=rule.bots, relay=rule.relay),
    }
    for name, part in parts.items():
        if access.judge(part, source, granted=False, others=others) is Verdict.ALLOWED:
            return Phrase("access.by_rule", rule=name, platform=source.platform)
    if judge(tx, source, rules) is Verdict.ALLOWED:
        return Phrase("access.by_operator")
    return Phrase("access.no_longer", platform=source.platform)


def is_operator(tx: Transaction, source: Source, rules: AccessRules) -> bool:
    """Whether the author of a message has the rights of an operator."""
    grant = _find_grant(tx, source)
    listed = access.is_listed(_find_rule(tx, source, rules).operators, source, find_other_ids(tx, source))
    return listed or (grant is not None and grant.operator)


def recheck(tx: Transaction, source: Source | None, rules: AccessRules) -> None:
    """Raise `Forbidden` if the author of a queued message has lost the right to talk since."""
    if source is not None and judge(tx, source, rules) is not Verdict.ALLOWED:
        raise Forbidden(REVOKED_NOTICE)


def discard_pairing(tx: Transaction, pairing: Pairing) -> None:
    """Remove an open request, so that its code is no longer valid."""
    access_store.remove_pairing(tx, profile=pairing.profile, platform=pairing.platform, person=pairing.person)
    access_store.note_change(tx, pairing.profile, pairing.platform, pairing.person, "denied")


def build_lock_key(profile: ProfileId, platform: str) -> str:
    """Return the key of the lock that serialises decisions about the strangers of a platform."""
    return f"door:{profile}:{platform}"


def find_aliases(tx: Transaction, source: Source) -> Aliases:
    """Return the known aliases of the ids in a source."""
    if not sources.supports_aliases(source.platform):
        return NO_ALIASES
    people = {
        sources.normalize_user(source.platform, p) for p in (source.user_alt, source.user, source.chat) if p
    }
    return people_store.find_aliases(tx, profile=source.profile, platform=source.platform, people=people)


def identify(source: Source) -> str | None:
    """Return the id of the author of a message: the stable one if there are two, the chat if there is none."""
    return source.user_alt or source.user or source.chat


def _find_rule(tx: Transaction, source: Source, rules: AccessRules) -> AccessRule:
    """Return the rule of an account: of this node, or else the one published by a node that serves the platform."""
    platform, account = source.platform, source.account
    return (
        access.find_rule(rules, platform, account)
        or access_store.find_rule(tx, access.build_rule_key(platform, account))
        or access_store.find_rule(tx, platform)
        or CLOSED
    )


def find_other_ids(tx: Transaction, source: Source) -> list[str]:
    """Return every known id of the author of a message."""
    person = identify(source)
    if not person or not sources.supports_aliases(source.platform):
        return []
    main = sources.resolve_user(source.platform, person, aliases=find_aliases(tx, source))
    aliases = people_store.list_aliases(tx, profile=source.profile, platform=source.platform, person=main)
    return [main, *aliases]


def _find_handle(tx: Transaction, source: Source) -> str | None:
    person = identify(source)
    return person and sources.build_handle(source.platform, person, aliases=find_aliases(tx, source))


def _find_grant(tx: Transaction, source: Source) -> access.Grant | None:
    handle = _find_handle(tx, source)
    if not handle:
        return None
    return access_store.find_grant(
        tx, profile=source.profile, platform=ids.escape(source.platform), person=handle
    )


def _offer_code(tx: Transaction, source: Source, reply: Target) -> None:
    """Send a stranger a pairing code, unless one was sent a moment ago or too many requests are open.

    A repeated request gets a new code but keeps its expiry, so that it cannot block others for long: once it is old
    enough, the oldest request makes room for a new one."""
    platform, person = ids.escape(source.platform), _find_handle(tx, source)
    if not person:
        return
    access_store.lock_attempts(tx, build_lock_key(source.profile, platform))
    earlier = access_store.find_pairing(tx, profile=source.profile, platform=platform, person=person)
    if earlier is not None and earlier.told_at > tx.now - CODE_INTERVAL:
        return
    waiting = access_store.list_open_pairings(tx, profile=source.profile, platform=platform)
    until = earlier.expires_at if earlier in waiting and earlier else tx.now + PAIRING_LIFETIME
    if earlier not in waiting and len(waiting) >= MAX_OPEN_PAIRINGS:
        if waiting[0].expires_at > tx.now + PAIRING_LIFETIME - MIN_PAIRING_AGE:
            return
        discard_pairing(tx, waiting[0])
    code = access.generate_code()
    pairing = Pairing(
        profile=source.profile,
        platform=platform,
        person=person,
        name=source.user_name or "",
        target=reply,
        told_at=tx.now,
        expires_at=until,
        language=source.language,
    )
    access_store.save_pairing(tx, pairing, access.hash_code(code))
    access_store.note_change(tx, source.profile, platform, person, "asked")
    deliveries.enqueue(
        tx,
        reply,
        tx.texts.speak(source.language, platform).say(
            "person.pairing",
            platform=platform,
            code=code,
            minutes=max(1, (until - tx.now) // timedelta(minutes=1)),
        ),
        of=Viewer(source.profile, OPERATOR),
        secret=True,
    )


def trim_codes(tx: Transaction) -> None:
    """Remove pairing codes, link codes and failed attempts that are too old to matter."""
    access_store.trim_pairings(tx, before=tx.now - _CODE_RETENTION)
    people_store.trim_link_codes(tx, before=tx.now - _CODE_RETENTION)
    access_store.trim_attempts(tx, before=tx.now - _CODE_RETENTION)


def check_wrong_codes(tx: Transaction, key: str) -> None:
    """Raise `Forbidden` while too many wrong codes were tried."""
    if access_store.count_failed_attempts(tx, key, since=tx.now - LOCKOUT) >= MAX_WRONG_CODES:
        raise Forbidden(Phrase("person.locked", count=MAX_WRONG_CODES))


def approve_pairing(tx: Transaction, code: str, *, platform: str, operator: bool, by: PrincipalId) -> Grant:
    """Grant access to the person who got this code, in the profile where they got it, and welcome them. Raise `NotFound`
    for a wrong code.

    Only the operator of this Keryx approves, and may let in anybody anywhere, so wrong codes are not counted."""
    found = access_store.find_pairing_by_code(tx, code, platform=platform)
    if found is not None:
        access_store.lock_attempts(tx, build_lock_key(found.profile, platform))
        # Another process may have approved it, or given out a new code, before the lock was held.
        found = access_store.find_pairing_by_code(tx, code, platform=platform)
    if found is None:
        raise NotFound(
            f"no open request on {platform} has this code: `keryx pairing list` shows who waits; a code holds for one hour at most, and the last one that a person was told counts",
            Phrase("pairing.wrong_code"),
        )
    profile, person = found.profile, found.person
    access_store.remove_pairing(tx, profile=profile, platform=platform, person=person)
    grant = access_store.add_grant(
        tx, profile=profile, platform=platform, person=person, name=found.name, operator=operator, by=by
    )
    welcome = tx.texts.speak(found.language, platform).say("person.welcome")
    deliveries.enqueue(tx, found.target, welcome, of=Viewer(profile, OPERATOR))
    return grant


def deny_pairing(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> None:
    """Discard a stranger's request, without a message to them."""
    if not access_store.remove_pairing(tx, profile=profile, platform=platform, person=person):
        raise NotFound(f"{person} on {platform} has no open request: `keryx pairing list` shows them")
    access_store.note_change(tx, profile, platform, person, "denied")


def clear_pairings(tx: Transaction, *, profile: ProfileId, platform: str | None) -> int:
    """Discard every open request, on one platform or on all, and return their number."""
    pairings = access_store.list_open_pairings(tx, profile=profile, platform=platform)
    for pairing in pairings:
        discard_pairing(tx, pairing)
    return len(pairings)


def revoke_grant(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> None:
    """Revoke the access of a person. Their queued messages are not answered."""
    if not access_store.remove_grant(tx, profile=profile, platform=platform, person=person):
        raise NotFound(
            f"{person} on {platform} was not let in by pairing: `keryx pairing list` shows who was, and"
            f" [access.{platform}] in keryx.toml lists others"
        )
