from typing import Any

import msgspec
from hypothesis import assume, example, given
from hypothesis import strategies as st

from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, ProfileId
from keryx.core.lanes import LaneAddress, LaneSharing, build_address
from keryx.core.source import ChatType, Source, decode, encode

ODD = st.text(alphabet=":%@1\x00\udc80é", max_size=2)
SOME = ODD | st.sampled_from(["", "1", "2", "%", "%25", "%3A", "1:2", "dm", "main"])
OPTIONAL = st.none() | SOME
SHARINGS = st.builds(LaneSharing, groups_per_person=st.booleans(), threads_shared=st.booleans())
SOURCES = st.builds(
    Source,
    platform=SOME,
    account=SOME,
    chat=OPTIONAL,
    chat_type=st.sampled_from(ChatType),
    user=OPTIONAL,
    user_alt=OPTIONAL,
    thread=OPTIONAL,
    profile=st.sampled_from([DEFAULT_PROFILE, ProfileId("default2"), ProfileId("dm")]),
)


def found(source: Source, sharing: LaneSharing) -> LaneAddress:
    try:
        return build_address(source, sharing=sharing)
    except Invalid:
        assume(False)
        raise


def place(source: Source, sharing: LaneSharing) -> tuple[Any, ...]:
    """What makes a lane, as plain parts: the oracle for the key."""
    user = source.user_alt or source.user
    threaded = bool(source.thread) or source.chat_type == "thread"
    if source.chat_type == "dm":
        keep = not source.chat
    else:
        keep = not sharing.threads_shared if threaded else sharing.groups_per_person
    person = (user,) if keep and user is not None else ()
    return (
        source.profile,
        source.platform,
        source.account,
        source.chat_type,
        source.chat,
        source.thread,
        person,
    )


@given(one=SOURCES, other=SOURCES, sharing=SHARINGS)
def test_two_sources_have_one_key_exactly_when_they_are_one_place(
    one: Source, other: Source, sharing: LaneSharing
) -> None:
    same = found(one, sharing).key == found(other, sharing).key
    assert same == (place(one, sharing) == place(other, sharing))


@given(
    source=SOURCES,
    changes=st.dictionaries(st.sampled_from(["chat", "thread", "user"]), OPTIONAL),
    sharing=SHARINGS,
)
@example(
    source=Source(platform="x", chat_type=ChatType.GROUP, chat="1"),
    changes={"user": "2"},
    sharing=LaneSharing(),
)
def test_a_small_change_of_place_changes_the_key(
    source: Source, changes: dict[str, Any], sharing: LaneSharing
) -> None:
    other = msgspec.structs.replace(source, **changes)
    same = found(source, sharing).key == found(other, sharing).key
    assert same == (place(source, sharing) == place(other, sharing))


@given(source=SOURCES, sharing=SHARINGS)
def test_a_key_is_plain_printable_text(source: Source, sharing: LaneSharing) -> None:
    key = found(source, sharing).key
    assert key.isascii()
    assert key.isprintable()


@given(source=SOURCES, sharing=SHARINGS)
def test_a_stored_source_finds_its_lane_again(source: Source, sharing: LaneSharing) -> None:
    assert found(decode(encode(source)), sharing) == found(source, sharing)


@given(source=SOURCES, sharing=SHARINGS, name=OPTIONAL)
def test_names_do_not_move_a_lane(source: Source, sharing: LaneSharing, name: str | None) -> None:
    renamed = msgspec.structs.replace(source, user_name=name, chat_name=name, topic=name, message=name)
    assert found(renamed, sharing) == found(source, sharing)


@given(source=SOURCES, user=st.sampled_from(["ann", "bob"]), sharing=SHARINGS)
def test_a_lane_is_shared_exactly_when_another_person_would_come_to_it(
    source: Source, user: str, sharing: LaneSharing
) -> None:
    assume(source.chat_type is not ChatType.DM)
    ann, bob = (msgspec.structs.replace(source, user=name, user_alt=None) for name in (user, "eve"))
    assert found(ann, sharing).shared == (found(ann, sharing).key == found(bob, sharing).key)
