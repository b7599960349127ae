"""Who may talk, by rule alone."""

import msgspec
import pytest

from keryx.core import access
from keryx.core.access import CLOSED, AccessRule, Verdict, judge, lacks_mention
from keryx.core.errors import Invalid
from keryx.core.source import ChatType, Source

DM = Source(platform="telegram", chat="7", user="7")
GROUP = Source(platform="telegram", chat="-1", chat_type=ChatType.GROUP, user="7")
ALL = AccessRule(allow=("*",))


@pytest.mark.parametrize(
    ("rule", "source", "verdict"),
    [
        (CLOSED, DM, Verdict.STRANGER),
        (CLOSED, GROUP, Verdict.IGNORED),
        (AccessRule(pairing=False), DM, Verdict.IGNORED),
        (AccessRule(allow=("7",)), DM, Verdict.ALLOWED),
        (AccessRule(allow=("7",)), GROUP, Verdict.ALLOWED),
        (AccessRule(allow=("8",)), DM, Verdict.STRANGER),
        (AccessRule(operators=("7",)), DM, Verdict.ALLOWED),
        (ALL, DM, Verdict.ALLOWED),
        (ALL, GROUP, Verdict.ALLOWED),
        (AccessRule(groups=("-1",)), GROUP, Verdict.ALLOWED),
        (AccessRule(groups=("*",)), GROUP, Verdict.ALLOWED),
        (AccessRule(groups=("*",)), DM, Verdict.STRANGER),
        (AccessRule(groups=("-2",)), GROUP, Verdict.IGNORED),
    ],
)
def test_a_rule_says_who_may_talk(rule: AccessRule, source: Source, verdict: Verdict) -> None:
    assert judge(rule, source, granted=False) is verdict


def test_a_grant_opens_every_place_to_a_person() -> None:
    assert judge(CLOSED, DM, granted=True) is Verdict.ALLOWED
    assert judge(CLOSED, GROUP, granted=True) is Verdict.ALLOWED


def test_bots_are_ignored_unless_they_are_allowed() -> None:
    bot = Source(platform="telegram", chat="7", user="7", bot=True)
    assert judge(ALL, bot, granted=True) is Verdict.IGNORED
    assert judge(AccessRule(allow=("*",), bots=True), bot, granted=False) is Verdict.ALLOWED
    assert judge(AccessRule(bots=True), bot, granted=False) is Verdict.IGNORED


def test_a_role_counts_where_it_is_let_in() -> None:
    member = Source(platform="discord", chat="c", chat_type=ChatType.GROUP, user="7", roles=("staff",))
    claims = msgspec.structs.replace(member, roles=(), by_role=True)
    for names, source, verdict in (
        ((), member, Verdict.IGNORED),
        (("staff",), member, Verdict.ALLOWED),
        (("*",), member, Verdict.ALLOWED),
        (("boss",), member, Verdict.IGNORED),
        (("staff", "*"), claims, Verdict.IGNORED),
    ):
        assert judge(AccessRule(roles=names), source, granted=False) is verdict


def test_a_thread_belongs_to_the_group_around_it() -> None:
    thread = Source(platform="slack", chat="t", parent_chat="c", chat_type=ChatType.THREAD, user="7")
    assert judge(AccessRule(groups=("c",)), thread, granted=False) is Verdict.ALLOWED


def test_a_number_is_the_same_person_however_it_is_written() -> None:
    source = Source(platform="whatsapp", chat="4917:3@s.whatsapp.net", user="4917:3@s.whatsapp.net")
    assert judge(AccessRule(allow=("+4917",)), source, granted=False) is Verdict.ALLOWED


def test_in_groups_only_what_is_addressed_counts_unless_set_otherwise() -> None:
    assert lacks_mention(CLOSED, GROUP, addressed=False)
    assert not lacks_mention(CLOSED, GROUP, addressed=True)
    assert not lacks_mention(CLOSED, DM, addressed=False)
    assert not lacks_mention(AccessRule(mention=False), GROUP, addressed=False)


def test_operators_are_named_one_by_one() -> None:
    with pytest.raises(Invalid, match="name each person by id"):
        AccessRule(operators=("*",))


def test_a_code_is_eight_plain_characters_and_fits_however_it_is_typed() -> None:
    code = access.generate_code()
    assert len(code) == 8 and set(code) <= set(access.CODE_ALPHABET)
    assert not set("01OIL5SBUV") & set(access.CODE_ALPHABET)
    sealed = access.hash_code(code)
    assert sealed.matches(f" {code[:4].lower()}-{code[4:]} ")
    assert not sealed.matches(access.generate_code())
    assert code not in sealed.salt + sealed.digest
    assert access.hash_code(code) != sealed
