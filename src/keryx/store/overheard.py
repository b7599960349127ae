"""What people said in a group without addressing the agent: the last messages of each chat, until somebody asks there."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from keryx.core import codec, ids
from keryx.core.clock import to_micros
from keryx.core.ids import LaneKey, PrincipalId, ProfileId
from keryx.core.source import Source
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

_IN_CHAT = """
platform = :platform and account = :account and chat = :chat and thread = :thread and profile = :profile
"""


class OverheardMessage(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    # The platform's id of the message.
    platform_id: str
    author: str
    said_by: PrincipalId
    text: str
    at: datetime


_ROWS = RowMapper(OverheardMessage, json={"author", "text"})


def add(tx: Transaction, source: Source, text: str, *, event: str, said_by: PrincipalId, keep: int) -> None:
    """Store what was said in the chat of a source. Older messages of the chat than the last `keep` are removed."""
    chat = _encode_chat(source)
    tx.run(
        """
        insert into overheard
          (profile, platform, account, chat, thread, event, platform_id, author, said_by, text, at)
        values
          (:profile, :platform, :account, :chat, :thread, :event, :platform_id, :author, :said_by, :text, :now)
        """,
        {
            **chat,
            "event": ids.escape(event),
            "platform_id": ids.escape(source.message or ""),
            "author": codec.dumps(source.user_name or ""),
            "said_by": said_by,
            "text": codec.dumps(text),
            "now": to_micros(tx.now),
        },
    )
    tx.run(
        f"""
        delete from overheard where {_IN_CHAT} and position <= (
          select position from overheard where {_IN_CHAT} order by position desc limit 1 offset :keep
        )
        """,
        {**chat, "keep": keep},
    )


def take(tx: Transaction, source: Source, lane: LaneKey) -> Sequence[OverheardMessage]:
    """Return what was said in the chat of a source and was not taken for this lane before, oldest first. Other lanes of
    the chat can still take it."""
    rows = tx.rows(
        f"""
        select {_ROWS.columns} from overheard
        where {_IN_CHAT} and position > (select overheard from lanes where key = :lane)
        order by position
        """,
        {**_encode_chat(source), "lane": lane},
    )
    found = _ROWS.decode_all(rows)
    if found:
        tx.run(
            "update lanes set overheard = :last where key = :lane",
            {"lane": lane, "last": found[-1].position},
        )
    return found


def rewrite(tx: Transaction, source: Source, platform_id: str, text: str) -> bool:
    """Replace the text of a message that was edited; false if it is not stored."""
    return bool(
        tx.count(
            f"update overheard set text = :text where {_IN_CHAT} and platform_id = :id",
            {**_encode_chat(source), "id": ids.escape(platform_id), "text": codec.dumps(text)},
        )
    )


def remove(tx: Transaction, *, platform: str, account: str, event: str) -> None:
    """Remove the message that an event brought."""
    tx.run(
        "delete from overheard where platform = :platform and account = :account and event = :event",
        {"platform": ids.escape(platform), "account": ids.escape(account), "event": ids.escape(event)},
    )


def move_chat(tx: Transaction, *, platform: str, account: str, old: str, new: str) -> None:
    """Set the chat of what was said in a chat that has a new id."""
    tx.run(
        "update overheard set chat = :new where platform = :platform and account = :account and chat = :old",
        {
            "platform": ids.escape(platform),
            "account": ids.escape(account),
            "old": ids.escape(old),
            "new": ids.escape(new),
        },
    )


def list_for_person(tx: Transaction, *, profile: ProfileId, person: PrincipalId) -> list[OverheardMessage]:
    rows = tx.rows(
        f"select {_ROWS.columns} from overheard where profile = :profile and said_by = :person order by position",
        {"profile": profile, "person": person},
    )
    return _ROWS.decode_all(rows)


def trim(tx: Transaction, *, before: datetime) -> int:
    """Remove what was said before a moment; return how much."""
    return tx.count("delete from overheard where at < :before", {"before": to_micros(before)})


def _encode_chat(source: Source) -> dict[str, str]:
    return {
        "profile": source.profile,
        "platform": ids.escape(source.platform),
        "account": ids.escape(source.account),
        "chat": ids.escape(source.chat or ""),
        "thread": ids.escape(source.thread or ""),
    }
