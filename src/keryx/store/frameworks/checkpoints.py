"""Checkpoints of LangGraph. A list is stored once and grows: a checkpoint refers to it with a length. Values are opaque bytes here."""

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

from keryx.core import codec
from keryx.core.clock import to_micros
from keryx.core.errors import Conflict, StoreDamaged
from keryx.core.sessions import Viewer
from keryx.store import frameworks
from keryx.store.db import Row, Transaction

Version: TypeAlias = str | int | float
Pieces: TypeAlias = list[bytes | int]
# A value of a channel: of a list each item by itself.
Value: TypeAlias = bytes | tuple[bytes, ...]

# A whole value with no more bytes than this beside its texts is stored in its checkpoint.
_LARGEST_INLINE = 512
# A list that continues others over more steps than this is stored anew.
_DEEPEST_LIST = 32


class _InlineValue(msgspec.Struct, frozen=True, tag=0, array_like=True):
    version: Version | None
    pieces: Pieces


class _WholeValue(msgspec.Struct, frozen=True, tag=1, array_like=True):
    version: Version | None
    list: int


class _ListValue(msgspec.Struct, frozen=True, tag=2, array_like=True):
    version: Version | None
    list: int
    length: int


_StoredValue: TypeAlias = _InlineValue | _WholeValue | _ListValue


class _CheckpointBody(msgspec.Struct, frozen=True, array_like=True):
    pieces: Pieces
    channels: dict[str, _StoredValue]


class _TaskWrite(msgspec.Struct, frozen=True, array_like=True):
    channel: str
    pieces: Pieces


class _TaskBody(msgspec.Struct, array_like=True):
    path: str
    writes: dict[int, _TaskWrite]


class NewCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    thread: str
    namespace: str
    id: str
    parent: str | None
    run: str | None
    # The checkpoint without the values of its channels, and its metadata.
    body: bytes
    # The values that are new, with their versions; those that the parent has too are only named.
    values: Mapping[str, tuple[Version | None, Value]]
    kept: Mapping[str, Version]


class NewWrite(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    channel: str
    value: bytes
    # Replaces what the task has written at this index before.
    replace: bool


class StoredWrite(msgspec.Struct, frozen=True, kw_only=True):
    task: str
    channel: str
    value: bytes


class CheckpointKey(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a checkpoint, with the number of its thread."""

    number: int
    thread: str
    namespace: str
    id: str
    parent: str | None


class StoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    key: CheckpointKey
    body: bytes
    values: dict[str, Value]
    writes: list[StoredWrite]


class CheckpointQuery(msgspec.Struct, frozen=True, kw_only=True):
    thread: str | None = None
    namespace: str | None = None
    id: str | None = None
    # Only checkpoints with lower ids.
    before: str | None = None
    limit: int | None = None


def put(tx: Transaction, viewer: Viewer, new: NewCheckpoint) -> bool:
    """Store a checkpoint, in place of one with the same id. Return False, and change nothing, if the parent does not
    have all values that are named: they must be given then."""
    thread = _Thread(tx, viewer, new.thread)
    known = thread.read_channels(new.namespace, new.parent)
    if any(name not in known or known[name].version != version for name, version in new.kept.items()):
        return False
    channels = {name: known[name] for name in new.kept}
    for name, (version, value) in new.values.items():
        channels[name] = thread.put_value(version, value, known.get(name))
    body = _CheckpointBody(thread.split(new.body), channels)
    key = {
        "thread": thread.number,
        "namespace": new.namespace,
        "checkpoint": frameworks.pack_id(new.id),
    }
    early = tx.rows(
        """
        delete from graph_writes
        where thread = :thread and checkpoint = :checkpoint and namespace = :namespace
        returning task, body
        """,
        key,
    )
    writes = {task: _decode(packed, _TaskBody) for task, packed in early}
    tx.run(
        """
        insert into graph_checkpoints (thread, namespace, id, parent, run, body, writes)
        values (:thread, :namespace, :checkpoint, :parent, :run, :body, :writes)
        on conflict (thread, namespace, id)
        do update set parent = excluded.parent, run = excluded.run, body = excluded.body,
                      writes = coalesce(excluded.writes, graph_checkpoints.writes)
        """,
        {
            **key,
            "parent": _pack_optional(new.parent),
            "run": _pack_optional(new.run),
            "body": _encode(body),
            "writes": _encode({**(_read_tasks(tx, key) or {}), **writes}) if writes else None,
        },
    )
    thread.save()
    return True


def put_writes(
    tx: Transaction,
    viewer: Viewer,
    *,
    thread: str,
    namespace: str,
    checkpoint: str,
    task: str,
    path: str,
    writes: Iterable[NewWrite],
) -> None:
    """Add what a task has written to a checkpoint, which may be stored later. It is kept beside a checkpoint that is there."""
    found = _Thread(tx, viewer, thread)
    packed_task = frameworks.pack_id(task)
    key = {
        "thread": found.number,
        "namespace": namespace,
        "checkpoint": frameworks.pack_id(checkpoint),
    }
    early = tx.row(
        """
        select body from graph_writes
        where thread = :thread and checkpoint = :checkpoint and namespace = :namespace and task = :task
        """,
        {**key, "task": packed_task},
    )
    beside = None if early else _read_tasks(tx, key)
    body = _decode(early[0], _TaskBody) if early else (beside or {}).get(packed_task)
    body = body or _TaskBody(path, {})
    for write in writes:
        if write.replace or write.index not in body.writes:
            body.writes[write.index] = _TaskWrite(write.channel, found.split(write.value))
    if beside is None:
        tx.run(
            """
            insert into graph_writes (thread, namespace, checkpoint, task, body)
            values (:thread, :namespace, :checkpoint, :task, :body)
            on conflict (thread, checkpoint, namespace, task) do update set body = excluded.body
            """,
            {**key, "task": packed_task, "body": _encode(body)},
        )
    else:
        tx.run(
            """
            update graph_checkpoints set writes = :writes
            where thread = :thread and namespace = :namespace and id = :checkpoint
            """,
            {**key, "writes": _encode({**beside, packed_task: body})},
        )
    found.save()


def list_keys(tx: Transaction, viewer: Viewer, query: CheckpointQuery) -> list[CheckpointKey]:
    """Return the keys of checkpoints, those with the highest ids first."""
    params: dict[str, Any] = {"profile": viewer.profile, "owner": viewer.principal}
    if query.thread is None:
        conditions = ["t.profile = :profile", "t.owner = :owner"]
    else:
        # The number first: the index of checkpoints has them in order for one thread.
        row = tx.row(
            "select number from graph_threads where profile = :profile and owner = :owner and name = :name",
            {**params, "name": query.thread},
        )
        if row is None:
            return []
        conditions, params = ["c.thread = :number"], {"number": row[0]}
    if query.namespace is not None:
        conditions.append("c.namespace = :namespace")
        params["namespace"] = query.namespace
    if query.id is not None:
        conditions.append("c.id = :id")
        params["id"] = frameworks.pack_id(query.id)
    if query.before is not None:
        conditions.append("c.id < :before")
        params["before"] = frameworks.pack_id(query.before)
    limit = f"limit {int(query.limit)}" if query.limit is not None else ""
    rows = tx.rows(
        f"""
        select t.number, t.name, c.namespace, c.id, c.parent
        from graph_checkpoints c join graph_threads t on t.number = c.thread
        where {" and ".join(conditions)}
        order by c.id desc {limit}
        """,
        params,
    )
    return [_decode_key(row) for row in rows]


def load_body(tx: Transaction, key: CheckpointKey) -> bytes | None:
    """Return the body of a checkpoint, `None` if it was deleted."""
    found = _read(tx, key)
    return found and _join_values(tx, key.number, [found[0].pieces])[0]


def load(tx: Transaction, key: CheckpointKey) -> StoredCheckpoint | None:
    """Return a checkpoint with the values of its channels and what tasks have written to it, `None` if it was deleted."""
    found = _read(tx, key)
    if found is None:
        return None
    body, writes = found
    values = {
        name: [value.pieces] if isinstance(value, _InlineValue) else _read_items(tx, key.number, value)
        for name, value in body.channels.items()
    }
    joined = iter(
        _join_values(
            tx,
            key.number,
            [body.pieces, *(p for value in values.values() for p in value), *(w.pieces for _, w in writes)],
        )
    )
    return StoredCheckpoint(
        key=key,
        body=next(joined),
        values={
            name: tuple(next(joined) for _ in value)
            if isinstance(body.channels[name], _ListValue)
            else next(joined)
            for name, value in values.items()
        },
        writes=[StoredWrite(task=task, channel=w.channel, value=next(joined)) for task, w in writes],
    )


def find_damaged(tx: Transaction) -> Iterator[tuple[str, str]]:
    """Yield the name of each thread whose last checkpoints cannot be read, and why."""
    rows = tx.rows(
        """
        select number, name, namespace, id, parent from (
          select t.number, t.name, c.namespace, c.id, c.parent,
                 row_number() over (partition by c.thread, c.namespace order by c.id desc) as place
          from graph_checkpoints c join graph_threads t on t.number = c.thread
        ) ranked
        where place = 1
        """
    )
    for row in rows:
        try:
            load(tx, _decode_key(row))
        except (StoreDamaged, msgspec.DecodeError, zlib.error, ValueError) as exc:
            yield str(row[1]), f"its last checkpoint cannot be read: {exc}"


def remove_thread(tx: Transaction, viewer: Viewer, thread: str) -> None:
    tx.run(
        "delete from graph_threads where profile = :profile and owner = :owner and name = :name",
        {"profile": viewer.profile, "owner": viewer.principal, "name": thread},
    )


def remove_older_threads(tx: Transaction, viewer: Viewer, *, before: datetime) -> int:
    """Remove the threads that have not changed since a time. Return how many."""
    return tx.count(
        "delete from graph_threads where profile = :profile and owner = :owner and changed_at < :before",
        {"profile": viewer.profile, "owner": viewer.principal, "before": to_micros(before)},
    )


def remove_runs(tx: Transaction, viewer: Viewer, runs: Iterable[str]) -> None:
    """Remove the checkpoints of runs, with what was written to them."""
    removed: dict[int, list[CheckpointKey]] = {}
    for run in runs:
        rows = tx.rows(
            """
            select t.number, t.name, c.namespace, c.id, c.parent
            from graph_checkpoints c join graph_threads t on t.number = c.thread
            where c.run = :run and t.profile = :profile and t.owner = :owner
            """,
            {"run": frameworks.pack_id(run), "profile": viewer.profile, "owner": viewer.principal},
        )
        for key in map(_decode_key, rows):
            removed.setdefault(key.number, []).append(key)
    for number in sorted(removed):
        _lock(tx, number)
        _remove_checkpoints(tx, number, removed[number])


def remove_checkpoints(tx: Transaction, keys: Sequence[CheckpointKey]) -> None:
    """Remove checkpoints of one thread, with what was written to them."""
    if keys:
        _lock(tx, keys[0].number)
        _remove_checkpoints(tx, keys[0].number, keys)


def copy_thread(tx: Transaction, viewer: Viewer, source: str, target: str) -> None:
    """Copy everything of a thread. Raise `Conflict` if the target has anything."""
    found = _find_thread(tx, viewer, source)
    if found is None:
        return
    if _find_thread(tx, viewer, target) is not None:
        raise Conflict(
            f"the thread {target[:80]!r} is there already: delete it first, or choose another name"
        )
    made = _Thread(tx, viewer, target)
    params = {"source": found[0], "target": made.number}
    for table, columns in _COPIED_COLUMNS.items():
        tx.run(
            f"""
            insert into {table} (thread, {columns})
            select cast(:target as bigint), {columns} from {table} where thread = :source
            """,
            params,
        )
    made.last_n = found[1]
    made.save()


_COPIED_COLUMNS = {
    "graph_checkpoints": "namespace, id, parent, run, body, writes",
    "graph_writes": "namespace, checkpoint, task, body",
    "graph_lists": "n, parent, parent_length",
    "graph_items": "list, position, chain, body",
    "graph_texts": "n, hash, body",
}


class _Thread:
    """A thread that is written to. It is created if it is not there, and locked until the transaction ends."""

    def __init__(self, tx: Transaction, viewer: Viewer, name: str) -> None:
        self._tx = tx
        found = _find_thread(tx, viewer, name)
        if found is None:
            tx.run(
                """
                insert into graph_threads (profile, owner, name, changed_at)
                values (:profile, :owner, :name, :now)
                on conflict (profile, owner, name) do nothing
                """,
                {
                    "profile": viewer.profile,
                    "owner": viewer.principal,
                    "name": name,
                    "now": to_micros(tx.now),
                },
            )
            found = _find_thread(tx, viewer, name)
            assert found is not None, "the thread was just inserted"
        self.number, self.last_n = found

    def next_n(self) -> int:
        self.last_n += 1
        return self.last_n

    def save(self) -> None:
        self._tx.run(
            "update graph_threads set last_n = :n, changed_at = :now where number = :number",
            {"number": self.number, "n": self.last_n, "now": to_micros(self._tx.now)},
        )

    def read_channels(self, namespace: str, checkpoint: str | None) -> dict[str, _StoredValue]:
        if checkpoint is None:
            return {}
        row = self._tx.row(
            "select body from graph_checkpoints where thread = :thread and namespace = :namespace and id = :id",
            {"thread": self.number, "namespace": namespace, "id": frameworks.pack_id(checkpoint)},
        )
        return _decode(row[0], _CheckpointBody).channels if row else {}

    def split(self, data: bytes) -> Pieces:
        return frameworks.split(data, self._add_text)

    def put_value(self, version: Version | None, value: Value, known: _StoredValue | None) -> _StoredValue:
        if isinstance(value, tuple):
            before = known.list if isinstance(known, _ListValue) else None
            return _ListValue(version, self._put_items(value, before), len(value))
        pieces = self.split(value)
        if sum(len(piece) for piece in pieces if isinstance(piece, bytes)) <= _LARGEST_INLINE:
            return _InlineValue(version, pieces)
        return _WholeValue(version, self._put_items((value,), None))

    def _put_items(self, items: Sequence[bytes], before: int | None) -> int:
        """Store a list. What it shares with the list `before` is not stored again. Return its number."""
        chains: list[bytes] = []
        for item in items:
            chains.append(frameworks.digest(item, after=chains[-1] if chains else b""))
        spans = _read_spans(self._tx, self.number, before) if before is not None else []
        shared, end = self._count_shared(spans, chains)
        if before is not None and shared == len(items):
            return before
        if before is not None and shared == end:
            number = before
        elif before is not None and shared and len(spans) <= _DEEPEST_LIST:
            # The span that has the last shared item, so that the starts of spans rise.
            number = self._branch_list(next(s.list for s in reversed(spans) if s.start < shared), shared)
        else:
            number, shared = self.next_n(), 0
        for position in range(shared, len(items)):
            self._tx.run(
                """
                insert into graph_items (thread, list, position, chain, body)
                values (:thread, :list, :position, :chain, :body)
                """,
                {
                    "thread": self.number,
                    "list": number,
                    "position": position,
                    "chain": chains[position],
                    "body": frameworks.compress(msgspec.msgpack.encode(self.split(items[position]))),
                },
            )
        return number

    def _branch_list(self, parent: int, length: int) -> int:
        """Return the number of a new list that begins with items of another."""
        number = self.next_n()
        self._tx.run(
            """
            insert into graph_lists (thread, n, parent, parent_length)
            values (:thread, :n, :parent, :length)
            """,
            {"thread": self.number, "n": number, "parent": parent, "length": length},
        )
        return number

    def _count_shared(self, spans: Sequence["_ListSpan"], chains: Sequence[bytes]) -> tuple[int, int]:
        """Return how many items a stored list has in common with new items at their beginning, and how many it has."""
        if not spans:
            return 0, 0
        last = self._tx.row(
            "select max(position) from graph_items where thread = :thread and list = :list",
            {"thread": self.number, "list": spans[-1].list},
        )
        end = spans[-1].start if last is None or last[0] is None else int(last[0]) + 1

        def differs(position: int) -> bool:
            span = next(s for s in reversed(spans) if s.start <= position)
            row = self._tx.row(
                "select chain from graph_items where thread = :thread and list = :list and position = :position",
                {"thread": self.number, "list": span.list, "position": position},
            )
            return row is None or row[0] != chains[position]

        limit = min(end, len(chains))
        if limit == 0 or not differs(limit - 1):
            return limit, end
        # The chain of an item depends on all items before it: from the first difference on all differ.
        return bisect_left(range(limit - 1), True, key=differs), end

    def _add_text(self, text: bytes) -> int | None:
        hash_ = frameworks.hash_text(text)
        row = self._tx.row(
            "select n, body from graph_texts where thread = :thread and hash = :hash",
            {"thread": self.number, "hash": hash_},
        )
        if row is not None:
            return row[0] if frameworks.decompress(row[1]) == text else None
        number = self.next_n()
        self._tx.run(
            "insert into graph_texts (thread, n, hash, body) values (:thread, :n, :hash, :body)",
            {"thread": self.number, "n": number, "hash": hash_, "body": frameworks.compress(text)},
        )
        return number


class _ListSpan(msgspec.Struct, frozen=True):
    """The items of a list from `start` on are stored under this number, those before in the span before."""

    list: int
    start: int


def _read_spans(tx: Transaction, thread: int, number: int) -> list[_ListSpan]:
    """Return where the items of a list are stored, in order."""
    spans: list[_ListSpan] = []
    while number:
        row = tx.row(
            "select parent, parent_length from graph_lists where thread = :thread and n = :n",
            {"thread": thread, "n": number},
        )
        parent, start = row or (0, 0)
        spans.insert(0, _ListSpan(number, start))
        number = parent
    return spans


def _read_items(tx: Transaction, thread: int, value: _WholeValue | _ListValue) -> list[Pieces]:
    length = value.length if isinstance(value, _ListValue) else 1
    spans = _read_spans(tx, thread, value.list)
    items: list[Pieces] = []
    for span, following in zip(spans, [*spans[1:], None], strict=True):
        end = min(length, following.start) if following else length
        rows = tx.rows(
            """
            select body from graph_items
            where thread = :thread and list = :list and position >= :start and position < :end order by position
            """,
            {"thread": thread, "list": span.list, "start": span.start, "end": end},
        )
        items += [frameworks.unpack(body) for (body,) in rows]
    if len(items) != length:
        raise StoreDamaged(
            f"list {value.list} of thread {thread} has {len(items)} items of {length}: restore a backup"
        )
    return items


def _read(tx: Transaction, key: CheckpointKey) -> tuple[_CheckpointBody, list[tuple[str, _TaskWrite]]] | None:
    """Return the body of a checkpoint, and what tasks have written to it in the order in which it is applied, each with its
    task."""
    params = {
        "thread": key.number,
        "checkpoint": frameworks.pack_id(key.id),
        "namespace": key.namespace,
    }
    row = tx.row(
        """
        select body, writes from graph_checkpoints
        where thread = :thread and namespace = :namespace and id = :checkpoint
        """,
        params,
    )
    if row is None:
        return None
    early = tx.rows(
        """
        select task, body from graph_writes
        where thread = :thread and checkpoint = :checkpoint and namespace = :namespace
        """,
        params,
    )
    found = {**_decode_tasks(row[1]), **{task: _decode(body, _TaskBody) for task, body in early}}
    tasks = [(frameworks.unpack_id(task), body) for task, body in found.items()]
    tasks.sort(key=lambda found: (found[1].path, found[0]))
    writes = [(task, body.writes[index]) for task, body in tasks for index in sorted(body.writes)]
    return _decode(row[0], _CheckpointBody), writes


def _read_tasks(tx: Transaction, key: Mapping[str, Any]) -> dict[bytes, _TaskBody] | None:
    """Return what is kept beside a checkpoint of what tasks have written, `None` if the checkpoint is not there."""
    row = tx.row(
        """
        select writes from graph_checkpoints
        where thread = :thread and namespace = :namespace and id = :checkpoint
        """,
        key,
    )
    return _decode_tasks(row[0]) if row else None


def _decode_tasks(packed: bytes | None) -> dict[bytes, _TaskBody]:
    return {} if packed is None else _decode(packed, dict[bytes, _TaskBody])


def _join_values(tx: Transaction, thread: int, values: Sequence[Pieces]) -> list[bytes]:
    numbers = frameworks.list_texts(values)
    texts: dict[int, bytes] = {}
    if numbers:
        rows = tx.rows(
            f"select n, body from graph_texts where thread = :thread and n {tx.in_ids}",
            {"thread": thread, "ids": codec.dumps(sorted(numbers))},
        )
        texts = {n: frameworks.decompress(body) for n, body in rows}
    if len(texts) != len(numbers):
        raise StoreDamaged(f"thread {thread} lacks {len(numbers) - len(texts)} texts: restore a backup")
    return [frameworks.join(pieces, texts) for pieces in values]


def _find_thread(tx: Transaction, viewer: Viewer, name: str) -> tuple[int, int] | None:
    """Return the number of a thread and the last number given out in it, locked."""
    row = tx.row(
        f"""
        select number, last_n from graph_threads
        where profile = :profile and owner = :owner and name = :name {tx.for_update}
        """,
        {"profile": viewer.profile, "owner": viewer.principal, "name": name},
    )
    return (row[0], row[1]) if row else None


def _lock(tx: Transaction, number: int) -> None:
    tx.row(f"select 1 from graph_threads where number = :number {tx.for_update}", {"number": number})


def _remove_checkpoints(tx: Transaction, thread: int, keys: Iterable[CheckpointKey]) -> None:
    for key in keys:
        params = {
            "thread": thread,
            "checkpoint": frameworks.pack_id(key.id),
            "namespace": key.namespace,
        }
        tx.run(
            """
            delete from graph_checkpoints
            where thread = :thread and namespace = :namespace and id = :checkpoint
            """,
            params,
        )
        tx.run(
            """
            delete from graph_writes
            where thread = :thread and checkpoint = :checkpoint and namespace = :namespace
            """,
            params,
        )
    _remove_unused(tx, thread)


def _remove_unused(tx: Transaction, thread: int) -> None:
    """Remove items and texts of a thread that nothing refers to any more."""
    params = {"thread": thread}
    values: list[Pieces] = []
    lengths: dict[int, int] = {}
    tasks: list[_TaskBody] = []
    for packed, writes in tx.rows(
        "select body, writes from graph_checkpoints where thread = :thread", params
    ):
        body = _decode(packed, _CheckpointBody)
        values.append(body.pieces)
        tasks += _decode_tasks(writes).values()
        for value in body.channels.values():
            if isinstance(value, _InlineValue):
                values.append(value.pieces)
            else:
                length = value.length if isinstance(value, _ListValue) else 1
                lengths[value.list] = max(lengths.get(value.list, 0), length)
    for number, length in list(lengths.items()):
        spans = _read_spans(tx, thread, number)
        for span, following in pairwise(spans):
            lengths[span.list] = max(lengths.get(span.list, 0), min(length, following.start))
    for (number,) in tx.rows("select distinct list from graph_items where thread = :thread", params):
        tx.run(
            "delete from graph_items where thread = :thread and list = :list and position >= :length",
            {**params, "list": number, "length": lengths.get(number, 0)},
        )
    for (number,) in tx.rows("select n from graph_lists where thread = :thread", params):
        if number not in lengths:
            tx.run("delete from graph_lists where thread = :thread and n = :n", {**params, "n": number})
    for (packed,) in tx.rows("select body from graph_items where thread = :thread", params):
        values.append(frameworks.unpack(packed))
    for (packed,) in tx.rows("select body from graph_writes where thread = :thread", params):
        tasks.append(_decode(packed, _TaskBody))
    values += [write.pieces for task in tasks for write in task.writes.values()]
    used = frameworks.list_texts(values)
    for (number,) in tx.rows("select n from graph_texts where thread = :thread", params):
        if number not in used:
            tx.run("delete from graph_texts where thread = :thread and n = :n", {**params, "n": number})


def _decode_key(row: Row) -> CheckpointKey:
    number, thread, namespace, id_, parent = row
    return CheckpointKey(
        number=number,
        thread=thread,
        namespace=namespace,
        id=frameworks.unpack_id(id_),
        parent=None if parent is None else frameworks.unpack_id(parent),
    )


def _pack_optional(text: str | None) -> bytes | None:
    return None if text is None else frameworks.pack_id(text)


def _encode(body: object) -> bytes:
    return frameworks.compress(msgspec.msgpack.encode(body))


def _decode(packed: bytes, kind: Any) -> Any:
    return msgspec.msgpack.decode(frameworks.decompress(packed), type=kind)
