import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, ProfileId
from keryx.core.source import ChatType, Source, decode, encode

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
