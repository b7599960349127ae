# The type stubs of apsw name a type that Python 3.11 does not have.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Floor: a plain connection with the same schema, indexes and durability, and nothing of Keryx around it."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, LiteralString, Protocol, cast

import apsw
import psycopg

from keryx.store.db import SESSION_NAME

Statement = tuple[str, Mapping[str, Any]]
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class Floor(Protocol):
    def write(self, statements: Sequence[Statement]) -> None:
        """Run the statements in one transaction with one commit."""
        ...

    def rows(self, sql: str, params: Mapping[str, Any]) -> list[Any]: ...

    def close(self) -> None: ...


class SqliteFloor:
    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), statementcachesize=400)
        for setting in (
            "foreign_keys = on",
            "synchronous = full",
            "cache_size = -16000",
            "wal_autocheckpoint = 2000",
        ):
            self._connection.execute(f"pragma {setting}")
        self._cursor = self._connection.cursor()

    def write(self, statements: Sequence[Statement]) -> None:
        self._cursor.execute("begin immediate")
        for sql, params in statements:
            self._cursor.execute(sql, params)
        self._cursor.execute("commit")

    def rows(self, sql: str, params: Mapping[str, Any]) -> list[Any]:
        return self._cursor.execute(sql, params).fetchall()

    def close(self) -> None:
        self._connection.close()


class PostgresFloor:
    def __init__(self, dsn: str, schema: str) -> None:
        self._connection = psycopg.connect(
            dsn, options=f"-c search_path={schema}", application_name=SESSION_NAME, autocommit=True
        )

    def write(self, statements: Sequence[Statement]) -> None:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for sql, params in statements:
                cursor.execute(_placeholders(sql), params)

    def rows(self, sql: str, params: Mapping[str, Any]) -> list[Any]:
        return self._connection.execute(_placeholders(sql), params).fetchall()

    def close(self) -> None:
        self._connection.close()


@cache
def _placeholders(sql: str) -> LiteralString:
    return cast(LiteralString, _PARAMETER.sub(r"%(\1)s", sql))
