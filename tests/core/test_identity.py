from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core.errors import Invalid
from keryx.core.source import Aliases, normalize_user, resolve_user

IDS = st.text(alphabet="+:@12a", max_size=4)
FEW = st.sampled_from(["1", "2", "3", "44", "55", "666"])
PAIRS = st.lists(st.tuples(FEW, FEW), max_size=8)


def learned(pairs: list[tuple[str, str]]) -> Aliases:
    return reduce(lambda aliases, pair: aliases.learn(*pair), pairs, Aliases())


@pytest.mark.parametrize(
    "written",
    [
        "4917012345",
        "+4917012345",
        "4917012345@s.whatsapp.net",
        "4917012345:12@s.whatsapp.net",
        "+4917012345:3",
    ],
)
def test_the_spellings_of_a_whatsapp_number_are_one_id(written: str) -> None:
    assert normalize_user("whatsapp", written) == "4917012345"


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
    aliases = learned(pairs)
    assert aliases.resolve(aliases.resolve(user)) == aliases.resolve(user)


@given(data=st.data(), pairs=PAIRS)
def test_the_order_of_learning_does_not_matter(data: st.DataObject, pairs: list[tuple[str, str]]) -> None:
    shuffled = data.draw(st.permutations(pairs))
    turned = [(b, a) if data.draw(st.booleans()) else (a, b) for a, b in shuffled]
    assert learned(turned) == learned(pairs)


@given(pairs=PAIRS)
def test_ids_resolve_alike_exactly_when_a_chain_of_pairs_joins_them(pairs: list[tuple[str, str]]) -> None:
    aliases = learned(pairs)
    for start in ["1", "2", "3", "44", "55", "666"]:
        joined = reached(start, pairs)
        assert aliases.resolve(start) == min(joined, key=lambda user: (len(user), user))
        assert all(aliases.resolve(user) == aliases.resolve(start) for user in joined)


def reached(start: str, pairs: list[tuple[str, str]]) -> set[str]:
    found = {start}
    for _ in pairs:
        found |= {end for pair in pairs if found & set(pair) for end in pair}
    return found


@given(pairs=PAIRS)
def test_stored_aliases_can_be_loaded_again(pairs: list[tuple[str, str]]) -> None:
    aliases = learned(pairs)
    assert Aliases(dict(aliases.canonical)) == aliases


@pytest.mark.parametrize("mapping", [{"1": "1"}, {"1": "22"}, {"333": "22", "22": "1"}])
def test_aliases_that_learning_could_not_have_made_are_refused(mapping: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="cannot be the canonical id"):
        Aliases(mapping)


def test_learning_leaves_the_old_value_as_it_was() -> None:
    before = Aliases()
    before.learn("1", "2")
    assert before == Aliases()
