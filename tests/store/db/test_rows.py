from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import msgspec
import pytest

from keryx.core.deliveries import Target
from keryx.core.ids import TurnId
from keryx.core.source import Source
from keryx.store.db.rows import RowMapper


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    id: TurnId
    size: Annotated[int, msgspec.Meta(ge=0)]
    done: bool
    colour: Colour
    at: datetime
    name: str = ""
    error: str | None = None
    ended_at: datetime | None = None
    other: Colour | None = None
    target: Target | None = None
    targets: tuple[Target, ...] = ()
    source: Source | None = None
    extra: int = 0


AT = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
FULL = Sample(
    id=TurnId("t"),
    size=3,
    done=True,
    colour=Colour.RED,
    at=AT,
    name="a\x00b",
    error="half \ud83d",
    ended_at=AT,
    other=Colour.BLUE,
    target=Target("telegram", chat="1"),
    targets=(Target("matrix"), Target("local")),
    source=Source(platform="telegram", account="bot", chat="1"),
)
BARE = Sample(id=TurnId("t"), size=0, done=False, colour=Colour.BLUE, at=AT)
ROWS = RowMapper(
    Sample, table="s", json={"name", "error"}, columns={"name": "lower(s.name)"}, without={"extra"}
)


def test_a_struct_is_read_as_it_was_written(subtests: pytest.Subtests) -> None:
    for sample in (FULL, BARE):
        with subtests.test(str(sample.done)):
            params = ROWS.encode(sample)
            assert all(isinstance(value, str | int | None) for value in params.values())
            assert "extra" not in params
            assert ROWS.decode([*params.values(), "more columns"], extra=0) == sample


def test_the_columns_are_the_fields_in_order() -> None:
    assert ROWS.columns.split(", ")[:6] == ["s.id", "s.size", "s.done", "s.colour", "s.at", "lower(s.name)"]
    assert len(ROWS.columns.split(", ")) == ROWS.width == 12


def test_a_value_that_an_enum_lacks_is_an_error() -> None:
    params = {**ROWS.encode(BARE), "colour": "green"}
    with pytest.raises(ValueError, match="green"):
        ROWS.decode(list(params.values()), extra=0)
