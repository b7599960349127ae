"""The search backend of PostgreSQL: a table of text vectors in the same database. A long message is split over several rows."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, assert_never

from keryx.core import codec
from keryx.core.ids import SessionId
from keryx.core.search import And, Expr, Not, Or, Prefix, Term, WordSequence
from keryx.store import inbox
from keryx.store.db import NEVER_PREPARE, Database, Transaction
from keryx.store.search.documents import IndexDocument
from keryx.store.search.indexing import IndexBatch, IndexPage, IndexQuery, list_terms

CURSOR_NAME = "search"
_MAX_POSITIONS = 8_000
_MAX_OCCURRENCES = 250
_MAX_BYTES = 400_000
_MAX_MARKS = 1_000
# Phrases of up to this many words are found across a split.
_OVERLAP = 60
_USUAL_RANK = 0.1
_SPLIT_LEXEME = "':split'"


class TsvectorBackend:
    def __init__(self, database: Database) -> None:
        self._database = database

    def read_state(self, tx: Transaction) -> str | None:
        return inbox.get_cursor(tx, CURSOR_NAME)

    async def apply(self, batch: IndexBatch) -> bool:
        rows = codec.dumps([row for entry in batch.documents for row in _build_rows(entry)])
        titles = codec.dumps([row for entry in batch.titles for row in _build_rows(entry)])
        done = await self._database.write("search.put", lambda tx: _apply_batch(tx, batch, rows, titles))
        if done and batch.complete:
            await self._database.write("search.analyse", lambda tx: tx.count("analyze search"))
        return done

    def find_messages(self, tx: Transaction, ask: IndexQuery, *, below: int, limit: int) -> IndexPage:
        # The plan depends on how common the words are.
        rows = tx.rows(
            f"""
            {NEVER_PREPARE}
            select id, split, ts_rank(vector, cast(:words as tsquery), 1)
            from (
              select id, split, vector from search
              where id > 0 and id < :below and vector @@ cast(:query as tsquery)
              order by id desc limit :limit
            ) found
            """,
            {**_build_query_params(ask), "below": below, "limit": limit},
        )
        found: dict[int, float] = {}
        for id_, _, rank in rows:
            found[id_] = max(found.get(id_, 0), rank / (rank + _USUAL_RANK))
        for id_ in _find_mismatches(tx, ask, {id_ for id_, split, _ in rows if split}):
            del found[id_]
        return IndexPage(found, rows[-1][0] if len(rows) == limit else None)

    def find_titles(self, tx: Transaction, ask: IndexQuery, *, limit: int) -> dict[SessionId, float]:
        rows = tx.rows(
            """
            select session, ts_rank(vector, cast(:words as tsquery), 1) from search
            where id < 0 and vector @@ cast(:query as tsquery)
            order by id limit :limit
            """,
            {**_build_query_params(ask), "limit": limit},
        )
        return {session: rank / (rank + _USUAL_RANK) for session, rank in rows}

    def list_message_ids(self, tx: Transaction, *, above: int, upto: int) -> list[int]:
        rows = tx.rows(
            "select distinct id from search where id > :above and id <= :upto", {"above": above, "upto": upto}
        )
        return [row[0] for row in rows]

    def check(self) -> None:
        """Nothing to do: PostgreSQL looks after its tables."""

    def reset(self) -> None:
        """Nothing to do: PostgreSQL looks after its tables."""

    def close(self) -> None:
        pass


def compile_query(ask: IndexQuery) -> str:
    """Return the query as a tsquery. A row of a split message need match only one part of it: the rest may be in its
    other rows."""
    tags = " & ".join(_join_or([_quote(f":{tag}") for tag in group]) for group in ask.tags)
    if ask.expr is None:
        return tags
    if not isinstance(ask.expr, And | Or | Not):
        return f"{tags} & {_compile_expr(ask.expr)}"
    parts = [_compile_expr(atom) for atom in list_terms(ask.expr)]
    loose = f"{_SPLIT_LEXEME} & {_join_or(parts)}" if parts else _SPLIT_LEXEME
    return f"{tags} & (!{_SPLIT_LEXEME} & {_compile_expr(ask.expr)} | {loose})"


def _compile_expr(expr: Expr) -> str:
    match expr:
        case And(items):
            return f"({' & '.join(map(_compile_expr, items))})"
        case Or(items):
            return _join_or([_compile_expr(item) for item in items])
        case Not(item):
            return f"!{_join_or([_compile_expr(item)])}"
        case Term(words, mark):
            ways = [_quote_phrase(words)] if words else []
            return _join_or([*ways, _quote(f"={mark}")] if mark else ways)
        case WordSequence(words):
            return _quote_phrase(words)
        case Prefix(words):
            return _quote_phrase(words, ":*")
        case _:
            assert_never(expr)


def _join_or(ways: list[str]) -> str:
    return f"({' | '.join(ways)})"


def _quote_phrase(words: tuple[str, ...], last: str = "") -> str:
    return f"({' <-> '.join(map(_quote, words))}{last})"


def _quote(token: str) -> str:
    return "'" + token.replace("\\", "\\\\").replace("'", "''") + "'"


def _build_query_params(ask: IndexQuery) -> dict[str, Any]:
    """The query, and its words for ranking."""
    atoms = [_compile_expr(atom) for atom in list_terms(ask.expr)]
    return {"query": compile_query(ask), "words": _join_or(atoms) if atoms else ""}


def _find_mismatches(tx: Transaction, ask: IndexQuery, split: set[int]) -> list[int]:
    """Return the split messages that do not match as a whole. Each part of the query is looked up in all their rows."""
    if not split or ask.expr is None or not isinstance(ask.expr, And | Or | Not):
        return []
    atoms = list(dict.fromkeys(list_terms(ask.expr, negated=True)))
    rows = tx.rows(
        f"""
        select distinct s.id, a.n
        from search s, unnest(cast(:atoms as text[])) with ordinality a (query, n)
        where s.vector @@ cast(a.query as tsquery) and s.id {tx.in_ids}
        """,
        {"atoms": [_compile_expr(atom) for atom in atoms], "ids": codec.dumps(list(split))},
    )
    has: set[tuple[int, Expr]] = {(id_, atoms[n - 1]) for id_, n in rows}
    expr = ask.expr
    return [id_ for id_ in split if not _matches(expr, lambda atom, id_=id_: (id_, atom) in has)]


def _matches(expr: Expr, has: Callable[[Expr], bool]) -> bool:
    match expr:
        case And(items):
            return all(_matches(item, has) for item in items)
        case Or(items):
            return any(_matches(item, has) for item in items)
        case Not(item):
            return not _matches(item, has)
        case _:
            return has(expr)


def _apply_batch(tx: Transaction, batch: IndexBatch, rows: str, titles: str) -> bool:
    # Sets the state and locks it until the end of the transaction, unless another process was faster.
    if batch.previous_state is None:
        sql = "insert into cursors (name, value, moved_at) values (:name, :state, 0) on conflict do nothing"
    else:
        sql = "update cursors set value = :state where name = :name and value = :seen"
    params = {
        "name": CURSOR_NAME,
        "state": codec.dumps(batch.state),
        "seen": codec.dumps(batch.previous_state),
    }
    if tx.count(sql, params) != 1:
        return False
    if batch.reset:
        tx.run("truncate search")
    for session in batch.removed_sessions:
        tx.run("delete from search where session = :session", {"session": session})
    tx.run(
        f"delete from search where id {tx.in_ids}",
        {"ids": codec.dumps([entry.id for entry in batch.documents])},
    )
    for entry in batch.titles:
        tx.run("delete from search where session = :session and id < 0", {"session": entry.session})
    _insert_rows(tx, "id", rows)
    _insert_rows(tx, "-nextval('search_titles')", titles)
    return True


def _insert_rows(tx: Transaction, number: str, rows: str) -> None:
    tx.run(
        f"""
        insert into search (id, part, session, split, vector)
        select {number}, part, session, split, cast(vector as tsvector)
        from json_to_recordset(cast(:rows as json))
          as given (id bigint, part bigint, session text, split boolean, vector text)
        """,
        {"rows": rows},
    )


def _build_rows(entry: IndexDocument) -> Iterator[dict[str, Any]]:
    spans = list(_split_words(entry.words))
    count = max(len(spans), -(-len(entry.marks) // _MAX_MARKS))
    for part in range(count):
        start, end = spans[part] if part < len(spans) else (0, 0)
        positions: dict[str, list[int]] = {}
        for position, word in enumerate(entry.words[start:end], start=1):
            positions.setdefault(word, []).append(position)
        lexemes = [f"{_quote(word)}:{','.join(map(str, places))}" for word, places in positions.items()]
        marks = entry.marks[part * _MAX_MARKS : (part + 1) * _MAX_MARKS]
        lexemes += [_quote(f"={mark}") for mark in marks]
        lexemes += [_quote(f":{tag}") for tag in entry.tags]
        if count > 1:
            lexemes.append(_SPLIT_LEXEME)
        yield {
            "id": entry.id,
            "part": part,
            "session": entry.session,
            "split": count > 1,
            "vector": " ".join(lexemes),
        }


def _split_words(words: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the ranges to split into, so that each row keeps all positions of its words, with some overlap."""
    start, size = 0, 0
    often: Counter[str] = Counter()
    for place, word in enumerate(words):
        often[word] += 1
        size += len(word.encode())
        if place - start >= _MAX_POSITIONS or often[word] > _MAX_OCCURRENCES or size > _MAX_BYTES:
            yield start, place
            start = place - _OVERLAP
            often = Counter(words[start : place + 1])
            size = sum(len(w.encode()) for w in words[start : place + 1])
    yield start, len(words)
