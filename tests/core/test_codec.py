import json
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.texts import Phrase

LONE = "\ud800"
ANY_CHARACTER = st.characters(codec=None, exclude_categories=())
ODD_CHARACTER = st.sampled_from(
    ["\x00", "\ud83d", "\ude00", "\udcff", "\x7f", "\u2028", '"', "\\", "😀", "é"]
)
TEXT = st.text(ANY_CHARACTER | ODD_CHARACTER).map(
    lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
TREE = st.recursive(SCALAR, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=12)


class Colour(StrEnum):
    RED = "red"


class Leaf(msgspec.Struct, frozen=True, tag="leaf", omit_defaults=True, forbid_unknown_fields=True):
    text: str
    colour: Colour = Colour.RED
    at: datetime = datetime(2024, 2, 29, 12, 30, 15, 250, UTC)
    wait: timedelta = timedelta(seconds=90)
    raw: bytes = b"\x00\xff"
    names: dict[int, str] = {}


class Branch(msgspec.Struct, frozen=True, tag="branch"):
    leaves: tuple["Leaf | Branch", ...] = ()
    label: str | None = None


LEAF = st.builds(
    Leaf,
    text=TEXT,
    at=st.datetimes(timezones=st.just(UTC)),
    wait=st.integers(-(10**6), 10**6).map(lambda seconds: timedelta(seconds=seconds)),
    raw=st.binary(),
    names=st.dictionaries(st.integers(-9, 9), TEXT),
)
BRANCH = st.builds(Branch, leaves=st.lists(LEAF, max_size=3).map(tuple), label=st.none() | TEXT)


@given(value=TREE)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    assert codec.loads(codec.dumps(value), object) == value


@given(value=BRANCH)
def test_structs_come_back_as_they_were(value: Branch) -> None:
    assert codec.loads(codec.dumps(value), Branch) == value
    assert codec.loads(codec.dumps(value).encode(), Branch) == value


@given(value=TREE)
def test_what_is_written_is_json_that_any_database_can_store(value: object) -> None:
    text = codec.dumps(value)
    assert "\x00" not in text
    assert json.loads(text.encode().decode()) == value


@given(value=BRANCH)
def test_a_lone_surrogate_does_not_change_the_rest_of_the_text(value: Branch) -> None:
    plain, odd = codec.dumps([value]), codec.dumps([value, LONE])
    assert json.loads(odd) == [*json.loads(plain), LONE]


def test_two_surrogates_of_a_pair_become_the_character_they_spell() -> None:
    assert codec.loads(codec.dumps("\ud83d\ude00"), str) == "😀"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beside", ["plain", LONE])
def test_numbers_that_json_lacks_become_null(number: float, beside: str) -> None:
    assert codec.loads(codec.dumps([number, beside]), list[object]) == [None, beside]


@pytest.mark.parametrize(
    "text", ["", "{", "nul", "[1,]", "NaN", '"\x00"', '"\\ud800', '["\\ud800", NaN]', "[" * 100_000]
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not JSON: "):
        codec.loads(text, object)
    with pytest.raises(Invalid):
        codec.loads(text.encode(), object)


def test_json_of_another_shape_is_not_called_malformed() -> None:
    with pytest.raises(Invalid, match=r"^not a valid int: Expected `int`, got `str`"):
        codec.loads('"seven"', int)


@pytest.mark.parametrize("text", [b"\xff", b'"\xff"', b'["\\ud800", "\xff"]', b'"\\ud800' + b"[" * 100_000])
def test_bytes_that_are_not_utf8_are_refused(text: bytes) -> None:
    with pytest.raises(Invalid):
        codec.loads(text, object)


def test_deep_nesting_beside_a_surrogate_is_refused() -> None:
    with pytest.raises(Invalid):
        codec.loads('["\\ud800",' + "[" * 100_000, object)


@pytest.mark.parametrize("odd", ["plain", "\\ud800"])
def test_a_wrong_type_is_refused_with_its_place(odd: str) -> None:
    with pytest.raises(Invalid, match=r"Expected `str`, got `int` - at `\$.text`"):
        codec.loads(f'{{"type":"leaf","names":{{"1":"{odd}"}},"text":1}}', Leaf)


@pytest.mark.parametrize("key", ["other", "\\ud800"])
def test_unknown_keys_are_refused(key: str) -> None:
    with pytest.raises(Invalid):
        codec.loads(f'{{"type":"leaf","text":"","{key}":1}}', Leaf)


def test_the_reason_of_a_refusal_is_short() -> None:
    with pytest.raises(Invalid) as refusal:
        codec.loads(f'{{"type":"leaf","text":"","{"x" * 5000}":1}}', Leaf)
    assert len(str(refusal.value)) < 300


def test_numbers_in_strings_are_read_only_when_asked() -> None:
    assert codec.loads('["1"]', list[int], strict=False) == [1]
    with pytest.raises(Invalid):
        codec.loads('["1"]', list[int])


def test_raw_surrogates_in_the_text_are_read() -> None:
    assert codec.loads(f'"{LONE}"', str) == LONE


@pytest.mark.parametrize("unit", ["[],", "{},", '{"a":[0]},', "0,", '",",'])
def test_json_from_outside_may_not_have_very_many_values(unit: str) -> None:
    def build(values: int) -> str:
        return f"[{unit * (values // sum(map(unit.count, '[{,')))}0]"

    assert codec.loads_foreign(build(100_000), list[object])
    with pytest.raises(Invalid, match="may have at most 400,000 values"):
        codec.loads_foreign(build(codec.MAX_FOREIGN_VALUES + 100), list[object])


def test_long_json_from_outside_may_not_have_half_a_character() -> None:
    assert codec.loads_foreign(r'["\ud800"]', list[str]) == ["\ud800"]
    assert codec.loads_foreign(r'["\ud83d\ude00"]', list[str]) == ["😀"]
    for document in (r'["\ud800"' + ",0" * 50_000 + "]", r'["\ud800", "' + "a" * 2_000_000 + '"]'):
        with pytest.raises(Invalid):
            codec.loads_foreign(document, list[object])


# A struct whose types take Python code to find out, so that another thread may come in between.
_THREADS = """
import sys, threading, msgspec
from keryx.core import codec

sys.setswitchinterval(1e-6)


def define(n):
    inner = [msgspec.defstruct(f"Inner{n}_{k}", [("x", int, 0)]) for k in range(10)]
    fields = [(f"d{k}", inner[k] | None, None) for k in range(10)]
    shared = msgspec.defstruct(f"Shared{n}", [*fields, ("last", list[int], ())])
    return [msgspec.defstruct(f"Outer{n}_{k}", [("a", shared), ("b", list[shared])]) for k in range(4)]


def read(kind, barrier):
    barrier.wait()
    codec.loads('{"a": {"last": [1]}, "b": [{"last": []}]}', kind)


for n in range(100):
    kinds = define(n)
    if PREPARED:
        codec.resolve_struct_types()
    barrier = threading.Barrier(len(kinds))
    threads = [threading.Thread(target=read, args=(kind, barrier)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.parametrize("prepared", [True, False])
def test_threads_that_read_a_struct_for_the_first_time_do_not_end_the_process(prepared: bool) -> None:
    program = f"PREPARED = {prepared}\n{_THREADS}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_phrase_is_written_as_its_text() -> None:
    assert codec.dumps({"why": [Phrase("move.new")]}) == '{"why":["new"]}'
    assert codec.dumps({"why": [Phrase("move.new"), "\ud800"]}) == '{"why":["new","\\ud800"]}'
    with pytest.raises(TypeError):
        codec.dumps(object())
