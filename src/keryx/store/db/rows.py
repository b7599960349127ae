"""Maps rows to structs and back by the fields of the struct. The converters of each struct are built once, at import."""

import types
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Annotated, Any, Generic, NewType, TypeVar, Union, get_args, get_origin

import msgspec

from keryx.core import codec, source
from keryx.core.clock import from_micros, to_micros
from keryx.core.source import Source
from keryx.store.db.database import Row

S = TypeVar("S", bound=msgspec.Struct)
Converter = Callable[[Any], Any]


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
        """`table` is the alias to qualify names with, `columns` holds the expression of each field that is not a
        column of its own name, and fields in `without` are no part of the row."""
        converters = {
            f.name: _build_converters(f.type, json=f.name in json)
            for f in msgspec.structs.fields(kind)
            if f.name not in without
        }
        prefix = f"{table}." if table else ""
        self.width = len(converters)
        self.columns = ", ".join(columns.get(name, f"{prefix}{name}") for name in converters)
        # Build a struct from a row that begins with `columns`, and from the fields that are not in the row.
        self.decode: Callable[..., S] = _compile_decoder(kind, converters, without)
        self._without = without
        self._encoders = [(name, found[1]) for name, found in converters.items() if found]

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


def _compile_decoder(
    kind: type[S],
    converters: Mapping[str, tuple[Converter, Converter] | None],
    others: Collection[str],
) -> Callable[..., S]:
    """Return a function as it would be written by hand: a loop over the fields takes half as long again."""
    scope: dict[str, Any] = {"kind": kind}
    arguments: list[str] = []
    for n, (name, found) in enumerate(converters.items()):
        if found:
            scope[f"convert{n}"] = found[0]
        arguments.append(
            f"{name}=value{n} if value{n} is None else convert{n}(value{n})" if found else f"{name}=value{n}"
        )
    values = ", ".join(f"value{n}" for n in range(len(converters)))
    arguments += [f"{name}={name}" for name in others]
    parameters = ", ".join(["row", *(["*", *others] if others else [])])
    exec(
        f"def decode({parameters}):\n  {values}, *_ = row\n  return kind({', '.join(arguments)})",
        scope,
    )
    return scope["decode"]


class _EnumMembers(dict[object, Enum]):
    """The members of an enum by value. A lookup takes a fifth of the time of a call of the enum."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__({member.value: member for member in kind})
        self._kind = kind

    def __missing__(self, value: object) -> Enum:
        return self._kind(value)


def _build_converters(annotation: Any, *, json: bool) -> tuple[Converter, Converter] | None:
    """Return the functions that decode and encode a field, or `None` for one that is stored as it is."""
    kind = _strip(annotation)
    if kind is str:
        return (_load_text, codec.dumps) if json else None
    if kind is bool:
        return bool, int
    if kind is int:
        return None
    if kind is datetime:
        return from_micros, to_micros
    if kind is Source:
        return source.decode, source.encode
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _EnumMembers(kind).__getitem__, _get_value
    return partial(codec.loads, kind=kind), codec.dumps


def _strip(annotation: Any) -> Any:
    """Return the type of a field without `None`, metadata and the name of a `NewType`."""
    if isinstance(annotation, NewType):
        return _strip(annotation.__supertype__)
    if get_origin(annotation) is Annotated:
        return _strip(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [kind for kind in get_args(annotation) if kind is not type(None)]
        return _strip(rest[0]) if len(rest) == 1 else annotation
    return annotation


def _load_text(text: str) -> str:
    return codec.loads(text, str) if text else ""


def _get_value(member: Enum) -> Any:
    return member.value
