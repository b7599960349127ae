import json
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, ProfileId
from keryx.core.source import Aliases, ChatType, Source, decode, encode, normalize_user, resolve_user

TEXT = st.text(
    st.characters(codec=None, exclude_categories=()) | st.sampled_from(["\x00", "\udc80", "\ud800", '"'])
).map(lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
OPTIONAL = st.none() | TEXT | st.just("guild_id") | st.just('"guild_id"')
SOURCES = st.builds(
    Source,
    platform=TEXT,
    account=TEXT,
    chat=OPTIONAL,
    chat_name=OPTIONAL,
    chat_type=st.sampled_from(ChatType),
    user=OPTIONAL,
    user_name=OPTIONAL,
    thread=OPTIONAL,
    topic=OPTIONAL,
    user_alt=OPTIONAL,
    chat_alt=OPTIONAL,
    bot=st.booleans(),
    scope=OPTIONAL,
    parent_chat=OPTIONAL,
    message=OPTIONAL,
    profile=st.sampled_from([DEFAULT_PROFILE, ProfileId("work")]),
    by_role=st.booleans(),
)


@given(source=SOURCES)
def test_a_source_comes_back_as_it_was(source: Source) -> None:
    assert decode(encode(source)) == source


@given(source=SOURCES)
def test_the_text_of_a_source_can_be_stored_anywhere(source: Source) -> None:
    assert "\x00" not in encode(source).encode().decode()


def test_only_what_is_known_is_written() -> None:
    source = Source(platform="telegram", chat="42", chat_type=ChatType.GROUP)
    assert json.loads(encode(source)) == {"platform": "telegram", "chat": "42", "chat_type": "group"}


def test_the_old_name_of_the_scope_is_read() -> None:
    assert decode('{"platform":"discord","guild_id":"9"}') == Source(platform="discord", scope="9")
    assert decode('{"platform":"discord","guild_id":null}') == Source(platform="discord")


def test_the_old_name_is_read_beside_odd_characters() -> None:
    old = '{"platform":"discord","guild_id":"9","chat_name":"\\u0000\\udcff"}'
    assert decode(old) == Source(platform="discord", scope="9", chat_name="\x00\udcff")


def test_a_scope_under_both_names_is_refused() -> None:
    with pytest.raises(Invalid, match="names its scope once"):
        decode('{"platform":"discord","guild_id":"9","scope":"9"}')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "truncated"),
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field `platform`"),
        ('{"platform":"x","colour":"red"}', "unknown field `colour`"),
        ('{"platform":1}', "Expected `str`"),
        ('{"platform":"x","guild_id":9}', r"`\$.scope`"),
        ('{"platform":"x","chat_type":"room"}', "Invalid enum value 'room'"),
        ('{"platform":"x","bot":1}', "Expected `bool`"),
        ('{"platform":"x","trusted":true}', "unknown field `trusted`"),
        ('{"platform":"x","user":"\\ud800","bot":1}', "Expected `bool`"),
    ],
)
def test_a_wrong_text_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        decode(text)


@pytest.mark.parametrize("name", ["main", "", "Work", "a:b", "../x"])
def test_a_source_of_an_impossible_profile_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="not a profile name"):
        Source(platform="x", profile=ProfileId(name))
    with pytest.raises(Invalid, match="not a profile name"):
        decode(json.dumps({"platform": "x", "profile": name}))


def test_trust_is_never_on_the_wire() -> None:
    assert "trusted" not in encode(Source(platform="cli"))
    with pytest.raises(Invalid, match="trusted"):
        decode('{"platform":"cli","trusted":true}')


IDS = st.text(alphabet="+:@12a", max_size=4)
FEW = st.sampled_from(["1", "2", "3", "44", "55", "666"])
PAIRS = st.lists(st.tuples(FEW, FEW), max_size=8)


def learn_all(pairs: list[tuple[str, str]]) -> Aliases:
    return reduce(lambda aliases, pair: aliases.learn(*pair), pairs, Aliases())


@pytest.mark.parametrize(
    "written",
    [
        "4917012345",
        "+4917012345",
        "+49 170 12-345",
        " +49 (170) 12.345 ",
        "4917012345:12",
        "+4917012345:3",
        "4917012345@s.whatsapp.net",
        "4917012345:12@s.whatsapp.net",
        "+49 170-12345@c.us",
        "4917012345@lid",
        "4917012345:7@lid",
    ],
)
def test_the_spellings_of_a_whatsapp_number_are_one_id(written: str) -> None:
    assert normalize_user("whatsapp", written) == "4917012345"


@pytest.mark.parametrize(
    "id_",
    [
        "120363041234567890@g.us",
        "4917012345-1416000000@g.us",
        "status@broadcast",
        "120363041234567890@newsletter",
        "US.13491208655302741918",
        "US.ENT.11815799212886844830",
        "user:509",
        "agent:509",
        "@ann.b",
        "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOToxMjAzNjM0",
        "٤٩١٧",
        "49170x",
        "\ud800+49",
    ],
)
def test_other_ids_of_whatsapp_stay_as_written(id_: str) -> None:
    assert normalize_user("whatsapp", id_) == id_


def test_ids_of_other_platforms_stay_as_written() -> None:
    assert normalize_user("matrix", "@ann:example.org") == "@ann:example.org"
    assert normalize_user("signal", "+4917012345") == "+4917012345"


@pytest.mark.parametrize("odd", ["", "+", "@", ":", "+:1@x", "@lid"])
def test_an_id_with_nothing_left_stays_as_it_was(odd: str) -> None:
    assert normalize_user("whatsapp", odd) == odd


@given(user=st.text(st.characters(codec=None, exclude_categories=())) | IDS)
def test_canonical_never_raises_and_changes_nothing_the_second_time(user: str) -> None:
    once = normalize_user("whatsapp", user)
    assert normalize_user("whatsapp", once) == once
    assert bool(once) == bool(user)


def test_phone_and_lid_of_one_person_lead_to_the_phone() -> None:
    aliases = Aliases().learn("123456789012345", "4917012345")
    assert resolve_user("whatsapp", "123456789012345@lid", aliases=aliases) == "4917012345"
    assert resolve_user("whatsapp", "+4917012345", aliases=aliases) == "4917012345"


def test_whoever_posts_webhooks_may_know_a_person_by_several_ids_as_written() -> None:
    aliases = Aliases().learn("+49:1@x", "ann")
    assert resolve_user("webhook", "+49:1@x", aliases=aliases) == "ann"
    assert resolve_user("webhook", "+49", aliases=aliases) == "+49"


def test_aliases_of_whatsapp_mean_nothing_elsewhere() -> None:
    assert resolve_user("telegram", "123", aliases=Aliases().learn("123", "9")) == "123"


@given(pairs=PAIRS, user=FEW)
def test_resolving_twice_changes_nothing(pairs: list[tuple[str, str]], user: str) -> None:
    aliases = learn_all(pairs)
    assert aliases.resolve(aliases.resolve(user)) == aliases.resolve(user)


@given(data=st.data(), pairs=PAIRS)
def test_the_order_of_learning_does_not_matter(data: st.DataObject, pairs: list[tuple[str, str]]) -> None:
    shuffled = data.draw(st.permutations(pairs))
    turned = [(b, a) if data.draw(st.booleans()) else (a, b) for a, b in shuffled]
    assert learn_all(turned) == learn_all(pairs)


@given(pairs=PAIRS)
def test_ids_resolve_alike_exactly_when_a_chain_of_pairs_joins_them(pairs: list[tuple[str, str]]) -> None:
    aliases = learn_all(pairs)
    for start in ["1", "2", "3", "44", "55", "666"]:
        joined = find_connected(start, pairs)
        assert aliases.resolve(start) == min(joined, key=lambda user: (len(user), user))
        assert all(aliases.resolve(user) == aliases.resolve(start) for user in joined)


def find_connected(start: str, pairs: list[tuple[str, str]]) -> set[str]:
    found = {start}
    for _ in pairs:
        found |= {end for pair in pairs if found & set(pair) for end in pair}
    return found


@given(pairs=PAIRS)
def test_stored_aliases_can_be_loaded_again(pairs: list[tuple[str, str]]) -> None:
    aliases = learn_all(pairs)
    assert Aliases(dict(aliases.canonical)) == aliases


@pytest.mark.parametrize("mapping", [{"1": "1"}, {"1": "22"}, {"333": "22", "22": "1"}])
def test_aliases_that_learning_could_not_have_made_are_refused(mapping: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="cannot be the canonical id"):
        Aliases(mapping)


def test_learning_leaves_the_old_value_as_it_was() -> None:
    before = Aliases()
    before.learn("1", "2")
    assert before == Aliases()
