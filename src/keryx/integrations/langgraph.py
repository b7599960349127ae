"""A checkpointer and a memory store for LangGraph on the store of Keryx. Needs the extra `langgraph`."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from keryx.core.errors import Invalid
from keryx.core.sessions import Viewer
from keryx.integrations import StoreThread
from keryx.store.db import Transaction
from keryx.store.frameworks import checkpoints, memories
from keryx.store.frameworks.checkpoints import (
    CheckpointKey,
    CheckpointQuery,
    NewCheckpoint,
    NewWrite,
    StoredCheckpoint,
    Value,
)
from keryx.store.frameworks.memories import GraphMemory

KEEP_LATEST, DELETE = "keep_latest", "delete"
_DELTA_COUNTERS = "counters_since_delta_snapshot"


class KeryxSaver(BaseCheckpointSaver[int]):
    """Keeps the checkpoints of graphs. Lists in the state, such as messages, are stored once, however many checkpoints
    refer to them."""

    def __init__(self, store: StoreThread | str = "", *, serde: SerializerProtocol | None = None) -> None:
        """Use the store at a path or a PostgreSQL address; without one, that of the settings of Keryx."""
        super().__init__(serde=serde)
        self.store = store if isinstance(store, StoreThread) else StoreThread(store)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = self.store.read("graph.get", self._get(config))
        return found and self._decode(found)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await self.store.read_async("graph.get", self._get(config))
        return found and self._decode(found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        for key in self.store.read("graph.list", self._list(config, filter, before, limit)):
            found = self.store.read("graph.get", lambda tx, key=key: checkpoints.load(tx, key))
            if found:
                yield self._decode(found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for key in await self.store.read_async("graph.list", self._list(config, filter, before, limit)):
            found = await self.store.read_async("graph.get", lambda tx, key=key: checkpoints.load(tx, key))
            if found:
                yield self._decode(found)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        for new in self._encode(config, checkpoint, metadata, new_versions):
            if self.store.write("graph.put", lambda tx, new=new: checkpoints.put(tx, self.store.viewer, new)):
                break
        return _build_config(config, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        for new in self._encode(config, checkpoint, metadata, new_versions):
            if await self.store.write_async(
                "graph.put", lambda tx, new=new: checkpoints.put(tx, self.store.viewer, new)
            ):
                break
        return _build_config(config, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self.store.write("graph.writes", self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await self.store.write_async("graph.writes", self._put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self.store.write("graph.delete", self._delete(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        await self.store.write_async("graph.delete", self._delete(thread_id))

    def delete_older_threads(self, age: timedelta) -> int:
        """Delete the threads that have not changed for this long. Return how many."""

        def work(tx: Transaction) -> int:
            return checkpoints.remove_older_threads(tx, self.store.viewer, before=tx.now - age)

        return self.store.write("graph.delete", work)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.store.write("graph.delete", self._delete_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self.store.write_async("graph.delete", self._delete_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.store.write("graph.copy", self._copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self.store.write_async("graph.copy", self._copy(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = KEEP_LATEST) -> None:
        """Delete all checkpoints of threads but the latest of each namespace, or all of them. What the latest needs to
        rebuild channels that are stored as differences stays too."""
        for thread in thread_ids:
            self.store.write("graph.prune", self._prune(thread, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = KEEP_LATEST) -> None:
        for thread in thread_ids:
            await self.store.write_async("graph.prune", self._prune(thread, strategy))

    def _get(self, config: RunnableConfig) -> Callable[[Transaction], StoredCheckpoint | None]:
        query = CheckpointQuery(
            thread=_read_thread(config),
            namespace=_read_namespace(config),
            id=get_checkpoint_id(config),
            limit=1,
        )

        def work(tx: Transaction) -> StoredCheckpoint | None:
            keys = checkpoints.list_keys(tx, self.store.viewer, query)
            return checkpoints.load(tx, keys[0]) if keys else None

        return work

    def _list(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Callable[[Transaction], "list[CheckpointKey]"]:
        wanted: dict[str, Any] = config.get("configurable", {}) if config else {}
        query = CheckpointQuery(
            thread=str(wanted["thread_id"]) if "thread_id" in wanted else None,
            namespace=wanted.get("checkpoint_ns"),
            id=wanted.get("checkpoint_id"),
            before=get_checkpoint_id(before) if before else None,
            limit=None if filter else limit,
        )

        def matches(tx: Transaction, key: CheckpointKey) -> bool:
            body = checkpoints.load_body(tx, key)
            if body is None:
                return False
            _, metadata = self._load(body)
            return all(name in metadata and metadata[name] == value for name, value in (filter or {}).items())

        def work(tx: Transaction) -> "list[CheckpointKey]":
            keys = checkpoints.list_keys(tx, self.store.viewer, query)
            if not filter:
                return keys
            chosen: list[CheckpointKey] = []
            for key in keys:
                if limit is not None and len(chosen) >= limit:
                    break
                if matches(tx, key):
                    chosen.append(key)
            return chosen

        return work

    def _encode(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Iterator[NewCheckpoint]:
        """Yield a checkpoint that refers to the values of its parent where they have not changed, then one that has all
        values: for a parent that is not there, or has others."""
        parent, versions = get_checkpoint_id(config), checkpoint["channel_versions"]
        stored = dict(get_serializable_checkpoint_metadata(config, metadata))
        rest = {name: value for name, value in checkpoint.items() if name not in ("id", "channel_values")}
        run = stored.get("run_id")
        new = NewCheckpoint(
            thread=_read_thread(config),
            namespace=_read_namespace(config),
            id=checkpoint["id"],
            parent=parent,
            run=None if run is None else str(run),
            body=self._dump((rest, stored)),
            values={},
            kept={},
        )
        kept = {
            name: versions[name]
            for name in checkpoint["channel_values"]
            if parent is not None and name in versions and name not in new_versions
        }
        values = {
            name: (versions.get(name), self._dump_value(value))
            for name, value in checkpoint["channel_values"].items()
            if name not in kept
        }
        yield msgspec.structs.replace(new, kept=kept, values=values)
        for name in kept:
            values[name] = versions[name], self._dump_value(checkpoint["channel_values"][name])
        yield msgspec.structs.replace(new, values=values)

    def _decode(self, found: StoredCheckpoint) -> CheckpointTuple:
        rest, metadata = self._load(found.body)
        key = found.key
        values = {name: self._load_value(value) for name, value in found.values.items()}
        names = {"thread_id": key.thread, "checkpoint_ns": key.namespace}
        return CheckpointTuple(
            config={"configurable": {**names, "checkpoint_id": key.id}},
            checkpoint=cast(Checkpoint, {**rest, "id": key.id, "channel_values": values}),
            metadata=metadata,
            parent_config={"configurable": {**names, "checkpoint_id": key.parent}} if key.parent else None,
            pending_writes=[(w.task, w.channel, self._load(w.value)) for w in found.writes],
        )

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> Callable[[Transaction], None]:
        checkpoint = get_checkpoint_id(config)
        if checkpoint is None:
            raise Invalid("writes belong to a checkpoint: give its checkpoint_id in the config")
        new = [
            NewWrite(
                index=WRITES_IDX_MAP.get(channel, index),
                channel=channel,
                value=self._dump(value),
                replace=channel in WRITES_IDX_MAP,
            )
            for index, (channel, value) in enumerate(writes)
        ]
        return lambda tx: checkpoints.put_writes(
            tx,
            self.store.viewer,
            thread=_read_thread(config),
            namespace=_read_namespace(config),
            checkpoint=checkpoint,
            task=task,
            path=path,
            writes=new,
        )

    def _delete(self, thread: str) -> Callable[[Transaction], None]:
        return lambda tx: checkpoints.remove_thread(tx, self.store.viewer, str(thread))

    def _delete_runs(self, runs: Sequence[str]) -> Callable[[Transaction], None]:
        return lambda tx: checkpoints.remove_runs(tx, self.store.viewer, [str(run) for run in runs])

    def _copy(self, source: str, target: str) -> Callable[[Transaction], None]:
        return lambda tx: checkpoints.copy_thread(tx, self.store.viewer, str(source), str(target))

    def _prune(self, thread: str, strategy: str) -> Callable[[Transaction], None]:
        if strategy == DELETE:
            return self._delete(thread)
        if strategy != KEEP_LATEST:
            raise Invalid(f"{strategy!r} is no way to prune: use {KEEP_LATEST!r} or {DELETE!r}")

        def work(tx: Transaction) -> None:
            keys = checkpoints.list_keys(tx, self.store.viewer, CheckpointQuery(thread=str(thread)))
            found = {(key.namespace, key.id): key for key in keys}
            kept: set[CheckpointKey] = set()
            for namespace in {key.namespace for key in keys}:
                latest = next(key for key in keys if key.namespace == namespace)
                kept.update(self._list_needed(tx, latest, found))
            checkpoints.remove_checkpoints(tx, [key for key in keys if key not in kept])

        return work

    def _list_needed(
        self, tx: Transaction, latest: CheckpointKey, found: Mapping[tuple[str, str], CheckpointKey]
    ) -> Iterator[CheckpointKey]:
        """Yield a checkpoint, and before it those up to the last whole value of each channel stored as differences."""
        missing: set[str] | None = None
        key: CheckpointKey | None = latest
        while key is not None and missing != set():
            stored = checkpoints.load(tx, key)
            if stored is None:
                return
            if missing is None:
                _, metadata = self._load(stored.body)
                missing = set(metadata.get(_DELTA_COUNTERS) or ())
            missing -= set(stored.values)
            yield key
            key = found.get((key.namespace, key.parent)) if key.parent else None

    def _dump_value(self, value: object) -> Value:
        if type(value) is list:
            return tuple(self._dump(item) for item in cast("list[object]", value))
        return self._dump(value)

    def _load_value(self, value: Value) -> Any:
        return [self._load(item) for item in value] if isinstance(value, tuple) else self._load(value)

    def _dump(self, value: object) -> bytes:
        kind, data = self.serde.dumps_typed(value)
        return kind.encode() + b"\0" + data

    def _load(self, dumped: bytes) -> Any:
        kind, _, data = dumped.partition(b"\0")
        return self.serde.loads_typed((kind.decode(), data))


def _read_thread(config: RunnableConfig) -> str:
    return str(config.get("configurable", {})["thread_id"])


def _read_namespace(config: RunnableConfig) -> str:
    return config.get("configurable", {}).get("checkpoint_ns", "")


def _build_config(config: RunnableConfig, checkpoint: str) -> RunnableConfig:
    names = {"thread_id": _read_thread(config), "checkpoint_ns": _read_namespace(config)}
    return {"configurable": {**names, "checkpoint_id": checkpoint}}


class KeryxMemory(BaseStore):
    """The long-term memory of graphs: values under namespaces and keys, with filters and lifetimes. There is no search
    by meaning: a query is ignored, as in a store without an index."""

    supports_ttl = True

    def __init__(self, store: StoreThread | str = "", *, ttl: TTLConfig | None = None) -> None:
        """Use the store at a path or a PostgreSQL address; without one, that of the settings of Keryx. Reading begins a
        lifetime again only with `ttl`."""
        self.store = store if isinstance(store, StoreThread) else StoreThread(store)
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        batch = _MemoryBatch(self.store.viewer, list(ops), lifetimes=self.ttl_config is not None)
        return (self.store.write if batch.writes else self.store.read)("graph.memory", batch.run)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        batch = _MemoryBatch(self.store.viewer, list(ops), lifetimes=self.ttl_config is not None)
        call = self.store.write_async if batch.writes else self.store.read_async
        return await call("graph.memory", batch.run)

    def sweep_ttl(self) -> int:
        """Delete what has expired. Return how much. It is never returned, whether it was deleted or not."""
        return self.store.write("graph.sweep", memories.remove_expired)


class _MemoryBatch:
    """Operations in one transaction. Reads see what was there before, and of several writes to a key the last counts."""

    def __init__(self, viewer: Viewer, ops: Sequence[Op], *, lifetimes: bool) -> None:
        self._viewer = viewer
        self._ops = ops
        self._lifetimes = lifetimes
        self.writes = lifetimes or any(isinstance(op, PutOp) for op in ops)

    def run(self, tx: Transaction) -> list[Result]:
        results: list[Result] = [self._read(tx, op) for op in self._ops]
        for op in {(op.namespace, op.key): op for op in self._ops if isinstance(op, PutOp)}.values():
            self._put(tx, op)
        return results

    def _read(self, tx: Transaction, op: Op) -> Result:
        match op:
            case GetOp():
                found = memories.get(tx, self._viewer, _join(op.namespace), op.key)
                self._refresh(tx, [found] if found else [], op.refresh_ttl)
                return found and Item(**_describe(found))
            case SearchOp():
                return self._search(tx, op)
            case ListNamespacesOp():
                return self._list_namespaces(tx, op)
            case _:
                return None

    def _search(self, tx: Transaction, op: SearchOp) -> list[SearchItem]:
        wanted = op.filter or {}
        chosen = [
            memory
            for memory in memories.iterate(tx, self._viewer, _join(op.namespace_prefix))
            if all(_matches(memory.value.get(name), value) for name, value in wanted.items())
        ]
        chosen.sort(key=lambda memory: memory.updated_at, reverse=True)
        chosen = chosen[op.offset : op.offset + op.limit]
        self._refresh(tx, chosen, op.refresh_ttl)
        return [SearchItem(**_describe(memory)) for memory in chosen]

    def _list_namespaces(self, tx: Transaction, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        found = [_split(namespace) for namespace in memories.list_namespaces(tx, self._viewer)]
        conditions = op.match_conditions or ()
        names = [name for name in found if all(_matches_namespace(name, c) for c in conditions)]
        if op.max_depth is not None:
            names = list({name[: op.max_depth] for name in names})
        return sorted(names)[op.offset : op.offset + op.limit]

    def _refresh(self, tx: Transaction, found: Sequence[GraphMemory], wanted: bool) -> None:
        if wanted and self._lifetimes:
            memories.refresh(tx, self._viewer, found)

    def _put(self, tx: Transaction, op: PutOp) -> None:
        namespace = _join(op.namespace)
        if op.value is None:
            memories.remove(tx, self._viewer, namespace, op.key)
            return
        memories.put(
            tx,
            self._viewer,
            namespace=namespace,
            key=op.key,
            value=dict(op.value),
            lifetime=None if op.ttl is None else timedelta(minutes=op.ttl),
        )


def _join(namespace: Iterable[str]) -> str:
    return "".join(f"{label}." for label in namespace)


def _split(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split(".")[:-1])


def _describe(memory: GraphMemory) -> dict[str, Any]:
    return {
        "namespace": _split(memory.namespace),
        "key": memory.key,
        "value": memory.value,
        "created_at": memory.created_at,
        "updated_at": memory.updated_at,
    }


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda found, wanted: found == wanted,
    "$ne": lambda found, wanted: found != wanted,
    "$gt": lambda found, wanted: float(found) > float(wanted),
    "$gte": lambda found, wanted: float(found) >= float(wanted),
    "$lt": lambda found, wanted: float(found) < float(wanted),
    "$lte": lambda found, wanted: float(found) <= float(wanted),
}


def _matches(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        conditions = cast("dict[str, Any]", wanted)
        if any(name.startswith("$") for name in conditions):
            if unknown := next((name for name in conditions if name not in _COMPARISONS), None):
                raise ValueError(f"{unknown!r} is no comparison: use one of {', '.join(_COMPARISONS)}")
            return all(_COMPARISONS[name](found, value) for name, value in conditions.items())
        return isinstance(found, dict) and all(
            _matches(cast("dict[str, Any]", found).get(name), value) for name, value in conditions.items()
        )
    if isinstance(wanted, list | tuple):
        items, values = cast("Sequence[Any]", found), cast("Sequence[Any]", wanted)
        return (
            isinstance(found, list | tuple)
            and len(items) == len(values)
            and all(map(_matches, items, values))
        )
    return found == wanted


def _matches_namespace(name: tuple[str, ...], condition: MatchCondition) -> bool:
    path = condition.path
    if len(name) < len(path):
        return False
    part = name[: len(path)] if condition.match_type == "prefix" else name[len(name) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
