"""The search index of PostgreSQL: a table of text vectors in the same database.

A vector has room for 16,383 positions and for 255 of one word, so a long message is split over several rows.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, assert_never

from keryx.core import wire
from keryx.core.ids import SessionId
from keryx.core.query import And, Expr, Not, Or, Phrase, Prefix, Term
from keryx.store import cursors
from keryx.store.database import AMONG_IDS, PLANNED_ANEW, Database, Transaction
from keryx.store.entries import Entry
from keryx.store.indexing import Ask, Batch, Page

NAME = "search"
_LONGEST = 8_000
_OFTENEST = 250
_LARGEST = 400_000
_MOST_MARKS = 1_000
# Side by side is found over a border as long as this.
_OVERLAP = 60
_USUAL_RANK = 0.1
_SPLIT = "':split'"


class PostgresSearch:
    def __init__(self, database: Database) -> None:
        self._database = database

    def state(self, tx: Transaction) -> str | None:
        return cursors.get(tx, NAME)

    async def put(self, batch: Batch) -> bool:
        rows = wire.dumps([row for entry in batch.entries for row in _rows(entry)])
        titles = wire.dumps([row for entry in batch.titles for row in _rows(entry)])
        done = await self._database.write("search.put", lambda tx: _put(tx, batch, rows, titles))
        if done and batch.complete:
            await self._database.write("search.analyse", lambda tx: tx.count("analyze search"))
        return done

    def messages(self, tx: Transaction, ask: Ask, *, below: int, limit: int) -> Page:
        # The plan depends on how common the words are.
        rows = tx.rows(
            f"""
            {PLANNED_ANEW}
            select id, split, ts_rank(vector, cast(:words as tsquery), 1)
            from (
              select id, split, vector from search
              where id > 0 and id < :below and vector @@ cast(:query as tsquery)
              order by id desc limit :limit
            ) found
            """,
            {**_queries(ask), "below": below, "limit": limit},
        )
        found: dict[int, float] = {}
        for id_, _, rank in rows:
            found[id_] = max(found.get(id_, 0), rank / (rank + _USUAL_RANK))
        for id_ in _unfit(tx, ask, {id_ for id_, split, _ in rows if split}):
            del found[id_]
        return Page(found, rows[-1][0] if len(rows) == limit else None)

    def titles(self, tx: Transaction, ask: Ask, *, limit: int) -> dict[SessionId, float]:
        rows = tx.rows(
            """
            select session, ts_rank(vector, cast(:words as tsquery), 1) from search
            where id < 0 and vector @@ cast(:query as tsquery)
            order by id limit :limit
            """,
            {**_queries(ask), "limit": limit},
        )
        return {session: rank / (rank + _USUAL_RANK) for session, rank in rows}

    def numbers(self, tx: Transaction, *, above: int, upto: int) -> list[int]:
        rows = tx.rows(
            "select distinct id from search where id > :above and id <= :upto", {"above": above, "upto": upto}
        )
        return [row[0] for row in rows]

    def check(self) -> None:
        """Nothing to do: PostgreSQL looks after its tables."""

    def mend(self) -> None:
        """Nothing to do: PostgreSQL looks after its tables."""

    def close(self) -> None:
        pass


def compiled(ask: Ask) -> str:
    """The query in the language of PostgreSQL. A row of a split message needs any part of it only: what is
    not in this row may be in another one."""
    tags = " & ".join(_any([_quoted(f":{tag}") for tag in group]) for group in ask.tags)
    if ask.expr is None:
        return tags
    if not isinstance(ask.expr, And | Or | Not):
        return f"{tags} & {_compiled(ask.expr)}"
    parts = [_compiled(atom) for atom in _positive(ask.expr)]
    loose = f"{_SPLIT} & {_any(parts)}" if parts else _SPLIT
    return f"{tags} & (!{_SPLIT} & {_compiled(ask.expr)} | {loose})"


def _compiled(expr: Expr) -> str:
    match expr:
        case And(items):
            return f"({' & '.join(map(_compiled, items))})"
        case Or(items):
            return _any([_compiled(item) for item in items])
        case Not(item):
            return f"!{_any([_compiled(item)])}"
        case Term(words, mark):
            ways = [_side_by_side(words)] if words else []
            return _any([*ways, _quoted(f"={mark}")] if mark else ways)
        case Phrase(words):
            return _side_by_side(words)
        case Prefix(words):
            return _side_by_side(words, ":*")
        case _:
            assert_never(expr)


def _any(ways: list[str]) -> str:
    return f"({' | '.join(ways)})"


def _side_by_side(words: tuple[str, ...], last: str = "") -> str:
    return f"({' <-> '.join(map(_quoted, words))}{last})"


def _quoted(token: str) -> str:
    return "'" + token.replace("\\", "\\\\").replace("'", "''") + "'"


def _queries(ask: Ask) -> dict[str, Any]:
    """The query, and its words for ranking."""
    atoms = [_compiled(atom) for atom in _positive(ask.expr)] if ask.expr else []
    return {"query": compiled(ask), "words": _any(atoms) if atoms else ""}


def _positive(expr: Expr) -> Iterator[Expr]:
    match expr:
        case And(items) | Or(items):
            for item in items:
                yield from _positive(item)
        case Not():
            return
        case _:
            yield expr


def _unfit(tx: Transaction, ask: Ask, split: set[int]) -> list[int]:
    """Those of the split messages that do not fit as a whole, each part of the query being looked for in all rows."""
    if not split or ask.expr is None or not isinstance(ask.expr, And | Or | Not):
        return []
    atoms = list(dict.fromkeys(_atoms(ask.expr)))
    rows = tx.rows(
        f"""
        select distinct s.id, a.n
        from search s, unnest(cast(:atoms as text[])) with ordinality a (query, n)
        where s.vector @@ cast(a.query as tsquery) and s.id {AMONG_IDS[tx.engine]}
        """,
        {"atoms": [_compiled(atom) for atom in atoms], "ids": wire.dumps(list(split))},
    )
    has: set[tuple[int, Expr]] = {(id_, atoms[n - 1]) for id_, n in rows}
    expr = ask.expr
    return [id_ for id_ in split if not _holds(expr, lambda atom, id_=id_: (id_, atom) in has)]


def _atoms(expr: Expr) -> Iterator[Expr]:
    match expr:
        case And(items) | Or(items):
            for item in items:
                yield from _atoms(item)
        case Not(item):
            yield from _atoms(item)
        case _:
            yield expr


def _holds(expr: Expr, has: Callable[[Expr], bool]) -> bool:
    match expr:
        case And(items):
            return all(_holds(item, has) for item in items)
        case Or(items):
            return any(_holds(item, has) for item in items)
        case Not(item):
            return not _holds(item, has)
        case _:
            return has(expr)


def _put(tx: Transaction, batch: Batch, rows: str, titles: str) -> bool:
    if not _advance(tx, batch):
        return False
    if batch.reset:
        tx.run("truncate search")
    for session in batch.gone:
        tx.run("delete from search where session = :session", {"session": session})
    tx.run(
        f"delete from search where id {AMONG_IDS[tx.engine]}",
        {"ids": wire.dumps([entry.id for entry in batch.entries])},
    )
    for entry in batch.titles:
        tx.run("delete from search where session = :session and id < 0", {"session": entry.session})
    _insert(tx, "id", rows)
    _insert(tx, "-nextval('search_titles')", titles)
    return True


def _advance(tx: Transaction, batch: Batch) -> bool:
    """Move the state, and hold it until the end of the transaction, unless somebody else was faster."""
    params = {"name": NAME, "state": wire.dumps(batch.state), "seen": wire.dumps(batch.seen)}
    if batch.seen is None:
        sql = "insert into cursors (name, value, moved_at) values (:name, :state, 0) on conflict do nothing"
    else:
        sql = "update cursors set value = :state where name = :name and value = :seen"
    return tx.count(sql, params) == 1


def _insert(tx: Transaction, number: str, rows: str) -> None:
    tx.run(
        f"""
        insert into search (id, part, session, split, vector)
        select {number}, part, session, split, cast(vector as tsvector)
        from json_to_recordset(cast(:rows as json))
          as given (id bigint, part bigint, session text, split boolean, vector text)
        """,
        {"rows": rows},
    )


def _rows(entry: Entry) -> Iterator[dict[str, Any]]:
    spans = list(_spans(entry.words))
    heaps = list(_heaps(entry.marks))
    count = max(len(spans), len(heaps))
    for part in range(count):
        start, end = spans[part] if part < len(spans) else (0, 0)
        marks = heaps[part] if part < len(heaps) else []
        vector = _vector(entry.words[start:end], marks, entry.tags)
        yield {
            "id": entry.id,
            "part": part,
            "session": entry.session,
            "split": count > 1,
            "vector": f"{vector} {_SPLIT}" if count > 1 else vector,
        }


def _spans(words: list[str]) -> Iterator[tuple[int, int]]:
    """Where to split so that each row keeps all positions of its words, with some overlap."""
    start, size = 0, 0
    often: Counter[str] = Counter()
    for place, word in enumerate(words):
        often[word] += 1
        size += len(word.encode())
        if place - start >= _LONGEST or often[word] > _OFTENEST or size > _LARGEST:
            yield start, place
            start = place - _OVERLAP
            often = Counter(words[start : place + 1])
            size = sum(len(w.encode()) for w in words[start : place + 1])
    yield start, len(words)


def _heaps(marks: list[str]) -> Iterator[list[str]]:
    return (marks[start : start + _MOST_MARKS] for start in range(0, len(marks), _MOST_MARKS))


def _vector(words: list[str], marks: list[str], tags: list[str]) -> str:
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words, start=1):
        places.setdefault(word, []).append(place)
    parts = [f"{_quoted(word)}:{','.join(map(str, found))}" for word, found in places.items()]
    parts += [_quoted(f"={mark}") for mark in marks]
    parts += [_quoted(f":{tag}") for tag in tags]
    return " ".join(parts)
