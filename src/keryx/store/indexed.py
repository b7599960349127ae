"""Indexed: whether a search index has what the messages say. The messages are right, whatever it has."""

import json

from keryx.core.ids import SessionId
from keryx.core.query import Phrase
from keryx.store import entries, messages
from keryx.store.database import AMONG_IDS, Transaction
from keryx.store.indexing import Ask, Backend

_PAGE = 5_000
_SAMPLE = 200
_WORDS = 8
_END = 1 << 62
_LACKING = "messages that it lacks"


def wrong(tx: Transaction, backend: Backend) -> set[tuple[int, str]]:
    """Messages by the numbers of their rows, each with what is wrong: all are looked for, and some of them by their
    words. The index must be up to date."""
    found: set[tuple[int, str]] = set()
    last, count = 0, 0
    while rows := tx.rows(
        "select id from messages where id > :last order by id limit :limit", {"last": last, "limit": _PAGE}
    ):
        ids = {row[0] for row in rows}
        found |= _differing(ids, set(backend.numbers(tx, above=last, upto=rows[-1][0])))
        last, count = rows[-1][0], count + len(ids)
    found |= _differing(set(), set(backend.numbers(tx, above=last, upto=_END)))
    lost = _lost_words(tx, backend, every=max(1, count // _SAMPLE))
    return found | {(id_, kind) for id_, kind in lost if (id_, _LACKING) not in found}


def _differing(ids: set[int], held: set[int]) -> set[tuple[int, str]]:
    return {(id_, _LACKING) for id_ in ids - held} | {(id_, "messages that are gone") for id_ in held - ids}


def _lost_words(tx: Transaction, backend: Backend, *, every: int) -> set[tuple[int, str]]:
    rows = tx.rows("select id from messages where id % :every = 0 order by id", {"every": every})
    rows = tx.rows(
        f"select m.id, {messages.columns('m')} from messages m where m.id {AMONG_IDS[tx.engine]}",
        {"ids": json.dumps([row[0] for row in rows])},
    )
    said = messages.from_rows([row[1:] for row in rows])
    return {
        (row[0], "messages not found by their words")
        for row, message in zip(rows, said, strict=True)
        if not _found(tx, backend, row[0], message.session, entries.document(entries.text(message)).words)
    }


def _found(tx: Transaction, backend: Backend, id_: int, session: SessionId, words: list[str]) -> bool:
    if not words:
        return True
    asked = Ask([[entries.of_session(session)]], Phrase(tuple(words[:_WORDS])))
    return id_ in backend.messages(tx, asked, below=id_ + 1, limit=1).found
