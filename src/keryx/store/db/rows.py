"""Maps rows to structs and back by the fields of the struct. The code for each struct is built once, at import."""

import types
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from enum import Enum
from operator import attrgetter
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

import msgspec

from keryx.core import codec, source
from keryx.core.clock import from_micros, to_micros
from keryx.core.source import Source
from keryx.store.db import Row

S = TypeVar("S", bound=msgspec.Struct)


class RowMapper(Generic[S]):
    """Reads and writes structs whose fields are columns.

    Booleans are stored as 0 or 1, times in microseconds, enums by their value, structs and collections as JSON. So is
    the text of the fields in `json`, which may have characters that a database cannot store. None is NULL."""

    def __init__(
        self,
        kind: type[S],
        *,
        table: str = "",
        json: Collection[str] = (),
        columns: Mapping[str, str] = types.MappingProxyType({}),
        without: Collection[str] = (),
    ) -> None:
        """Build the code. `table` is the alias that column names are qualified with, `columns` the SQL expressions of
        fields without a column of their own name; the fields `without` are not in the row."""
        fields = {
            f.name: _choose_conversion(f.type, json=f.name in json)
            for f in msgspec.structs.fields(kind)
            if f.name not in without
        }
        prefix = f"{table}." if table else ""
        self.columns = ", ".join(columns.get(name, f"{prefix}{name}") for name in fields)
        self.width = len(fields)
        # Build a struct from a row that begins with `columns`, and from the fields that are not in the row.
        self.decode: Callable[..., S] = _compile_decoder(kind, fields, without)
        self._without = without
        self._encoders = [(name, found.encode) for name, found in fields.items() if found.encode]

    def decode_all(self, rows: Iterable[Row]) -> list[S]:
        return [self.decode(row) for row in rows]

    def decode_optional(self, row: Row | None) -> S | None:
        return None if row is None else self.decode(row)

    def encode(self, struct: S) -> dict[str, Any]:
        """Return the parameters of a statement that writes the struct, by the names of its fields."""
        values = msgspec.structs.asdict(struct)
        for name in self._without:
            del values[name]
        for name, convert in self._encoders:
            if values[name] is not None:
                values[name] = convert(values[name])
        return values


class _Conversion(NamedTuple):
    decode: str = "{value}"  # an expression of the value and of `helper`
    helper: Any = None
    encode: Callable[[Any], Any] | None = None  # None: stored as it is


class _EnumMembers(dict[object, Enum]):
    """The members of an enum by value: a lookup takes a fifth of the time of a call of the enum."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__({member.value: member for member in kind})
        self._kind = kind

    def __missing__(self, value: object) -> Enum:
        return self._kind(value)


def _choose_conversion(annotation: Any, *, json: bool) -> _Conversion:
    kind, optional = _strip(annotation)
    if kind is int or (kind is str and not json):
        return _Conversion()
    if kind is str:
        found = _Conversion("loads({value}, {helper}) if {value} else ''", str, codec.dumps)
    elif kind is bool:
        found = _Conversion("{value} != 0", None, int)
    elif kind is datetime:
        found = _Conversion("{helper}({value})", from_micros, to_micros)
    elif kind is Source:
        found = _Conversion("{helper}({value})", source.decode, source.encode)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        found = _Conversion("{helper}[{value}]", _EnumMembers(kind), attrgetter("value"))
    else:
        found = _Conversion("loads({value}, {helper})", kind, codec.dumps)
    return found._replace(decode=f"None if {{value}} is None else {found.decode}") if optional else found


def _strip(annotation: Any) -> tuple[Any, bool]:
    """Return the type of a field without metadata and the name of a `NewType`, and whether it may be None."""
    if isinstance(annotation, NewType):
        return _strip(annotation.__supertype__)
    if get_origin(annotation) is Annotated:
        return _strip(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [kind for kind in get_args(annotation) if kind is not type(None)]
        return (_strip(rest[0])[0] if len(rest) == 1 else annotation), len(rest) < len(get_args(annotation))
    return annotation, False


def _compile_decoder(
    kind: type[S], fields: Mapping[str, _Conversion], others: Collection[str]
) -> Callable[..., S]:
    """Return the function that one would write by hand: a loop over the fields takes half as long again."""
    scope: dict[str, Any] = {"kind": kind, "loads": codec.loads}
    arguments = [f"{name}={name}" for name in others]
    for n, (name, found) in enumerate(fields.items()):
        scope[f"helper{n}"] = found.helper
        arguments.append(f"{name}={found.decode.format(value=f'value{n}', helper=f'helper{n}')}")
    parameters = ", ".join(["row", *(["*", *others] if others else [])])
    values = ", ".join(f"value{n}" for n in range(len(fields)))
    exec(f"def decode({parameters}):\n  {values}, *_ = row\n  return kind({', '.join(arguments)})", scope)
    return scope["decode"]
