import asyncio

import pytest
from tests.builders import ODD_TEXTS, Store

from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.store import people
from keryx.testing import START_TIME


async def resolve(
    store: Store, person: str, *, name: str = "Ann", platform: str = "telegram", profile: str = "default"
) -> PrincipalId:
    return await store.at(START_TIME).write(
        people.resolve,
        profile=ProfileId(profile),
        platform=platform,
        person=person,
        name=name,
    )


async def test_an_identity_is_one_principal_for_ever(store: Store) -> None:
    ann = await resolve(store, "7")
    assert await resolve(store, "7", name="Anna") == ann
    assert await store.read(people.get_name, ann) == "Ann"


async def test_other_people_platforms_and_profiles_are_other_principals(store: Store) -> None:
    found = {
        await resolve(store, "7"),
        await resolve(store, "8"),
        await resolve(store, "7", platform="slack"),
        await resolve(store, "7", profile="work"),
    }
    assert len(found) == 4


async def test_an_identity_and_its_name_may_be_any_text(store: Store, subtests: pytest.Subtests) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            principal = await resolve(store, text, name=text, platform=text)
            assert await resolve(store, text, platform=text) == principal
            assert await store.read(people.get_name, principal) == text


async def test_a_first_contact_in_many_places_at_once_makes_one_principal(store: Store) -> None:
    assert len(set(await asyncio.gather(*(resolve(store, "7") for _ in range(12))))) == 1


async def test_the_operator_has_a_name_without_being_stored(store: Store) -> None:
    assert await store.read(people.get_name, OPERATOR) == "operator"
    assert await store.read(people.get_name, PrincipalId("nobody")) == ""
