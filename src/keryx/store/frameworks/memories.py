"""The long-term memory of graphs: values under namespaces and keys. A namespace ends with a period."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from keryx.core import codec
from keryx.core.clock import to_micros
from keryx.core.sessions import Viewer
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

_PAGE_SIZE = 500


class GraphMemory(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime


_ROWS = RowMapper(GraphMemory)
_OWNED = "profile = :profile and owner = :owner"
_ALIVE = "(expires_at is null or expires_at > :now)"


def get(tx: Transaction, viewer: Viewer, namespace: str, key: str) -> GraphMemory | None:
    row = tx.row(
        f"select {_ROWS.columns} from graph_memories where {_OWNED} and namespace = :namespace and key = :key and {_ALIVE}",
        {**_build_params(tx, viewer), "namespace": namespace, "key": key},
    )
    return _ROWS.decode_optional(row)


def iterate(tx: Transaction, viewer: Viewer, namespace: str) -> Iterator[GraphMemory]:
    """Yield everything in a namespace and those below it, in the order of namespaces and keys."""
    params = {
        **_build_params(tx, viewer),
        "begin": namespace,
        # What follows the period, so that this is behind all names that begin with the namespace.
        "end": f"{namespace[:-1]}/" if namespace else "",
        "last_namespace": "",
        "last_key": "",
        "limit": _PAGE_SIZE,
    }
    below = "and namespace >= :begin and namespace < :end" if namespace else ""
    while rows := tx.rows(
        f"""
        select {_ROWS.columns} from graph_memories
        where {_OWNED} {below} and (namespace, key) > (:last_namespace, :last_key) and {_ALIVE}
        order by namespace, key limit :limit
        """,
        params,
    ):
        found = _ROWS.decode_all(rows)
        yield from found
        params |= {"last_namespace": found[-1].namespace, "last_key": found[-1].key}


def list_namespaces(tx: Transaction, viewer: Viewer) -> list[str]:
    rows = tx.rows(
        f"select distinct namespace from graph_memories where {_OWNED} and {_ALIVE}",
        _build_params(tx, viewer),
    )
    return [namespace for (namespace,) in rows]


def put(
    tx: Transaction,
    viewer: Viewer,
    *,
    namespace: str,
    key: str,
    value: dict[str, Any],
    lifetime: timedelta | None,
) -> None:
    tx.run(
        """
        insert into graph_memories
          (profile, owner, namespace, key, value, created_at, updated_at, lifetime, expires_at)
        values (:profile, :owner, :namespace, :key, :value, :now, :now, :lifetime, :expires_at)
        on conflict (profile, owner, namespace, key) do update set
          value = excluded.value, updated_at = excluded.updated_at,
          lifetime = excluded.lifetime, expires_at = excluded.expires_at
        """,
        {
            **_build_params(tx, viewer),
            "namespace": namespace,
            "key": key,
            "value": codec.dumps(value),
            "lifetime": lifetime and lifetime // timedelta(microseconds=1),
            "expires_at": lifetime and to_micros(tx.now + lifetime),
        },
    )


def remove(tx: Transaction, viewer: Viewer, namespace: str, key: str) -> None:
    tx.run(
        f"delete from graph_memories where {_OWNED} and namespace = :namespace and key = :key",
        {**_build_params(tx, viewer), "namespace": namespace, "key": key},
    )


def refresh(tx: Transaction, viewer: Viewer, found: Iterable[GraphMemory]) -> None:
    """Begin the lifetimes of memories again."""
    for memory in found:
        tx.run(
            f"""
            update graph_memories set expires_at = :now + lifetime
            where {_OWNED} and namespace = :namespace and key = :key and lifetime is not null
            """,
            {**_build_params(tx, viewer), "namespace": memory.namespace, "key": memory.key},
        )


def remove_expired(tx: Transaction) -> int:
    return tx.count("delete from graph_memories where expires_at <= :now", {"now": to_micros(tx.now)})


def _build_params(tx: Transaction, viewer: Viewer) -> dict[str, Any]:
    return {"profile": viewer.profile, "owner": viewer.principal, "now": to_micros(tx.now)}
