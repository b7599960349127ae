"""Raw: the rows of a message and of a whole exchange, as bare statements."""

import itertools
import secrets
import time
from typing import Any

from bench.floor import Statement
from keryx.core.ids import DEFAULT_PROFILE

PARTS = '[{"type":"text","text":"how long does this take?"}]'
_REPLY = '{"platform":"bench","account":"bot","chat":"1"}'
_numbers = itertools.count(1)

_INBOX = """
insert into inbox (platform, account, event, receipt, received_at) values ('bench', 'bot', :event, :receipt, :now)
"""
_LANE = "update lanes set active_at = :now where key = :lane"
_SESSION = """
update sessions set last_seq = last_seq + 1, messages = messages + 1, active_at = :now where id = :session
"""
_MESSAGE = """
insert into messages (session, seq, role, parts, at, turn, surface)
values (:session, (select last_seq from sessions where id = :session), :role, :parts, :now, :turn, 'bench')
"""
_TURN = """
insert into turns (id, session, profile, owner, asker, surface, state, mode, input_seq, reply, created_at)
values (:turn, :session, :profile, :owner, :owner, 'bench', 'queued', 'queue', 1, :reply, :now)
"""
_CHANGE = """
insert into changes (at, kind, profile, owner, subject, session, turn, n, note)
values (:now, :kind, :profile, :owner, :turn, :session, :turn, 1, :note)
"""
_CURSOR = """
insert into cursors (name, value, moved_at) values ('raw', :event, :now)
on conflict (name) do update set value = excluded.value, moved_at = excluded.moved_at
"""
_CLAIM = """
update turns set state = 'running', attempts = attempts + 1, worker = 'raw', lease = :lease, lease_until = :now,
  started_at = :now
where id = :turn
"""
_SERVED = "update sessions set turns = turns + 1, served_at = :now where id = :session"
_DONE = (
    "update turns set state = 'done', lease = null, lease_until = null, finished_at = :now where id = :turn"
)
_USAGE = """
insert into usage (turn, session, profile, owner, surface, model, input, output, at)
values (:turn, :session, :profile, :owner, 'bench', 'echo', 5, 5, :now)
"""
_TOKENS = "update sessions set tokens_input = tokens_input + 5, tokens_output = tokens_output + 5 where id = :session"
_DELIVERY = """
insert into deliveries
  (id, profile, owner, session, turn, target, target_key, platform, account, body, state, created_at)
values
  (:turn, :profile, :owner, :session, :turn, :reply, :lane, 'raw', 'bot', :parts, 'ready', :now)
"""
_SENDING = """
update deliveries set state = 'sending', attempts = attempts + 1, worker = 'raw', lease = :lease, lease_until = :now
where id = :turn
"""
_SENT = """
update deliveries
set state = 'sent', lease = null, lease_until = null, parts_sent = 1, receipts = '["1"]', sent_at = :now
where id = :turn
"""


def values(lane: str, session: str, owner: str) -> dict[str, Any]:
    """What the statements are filled with: a fresh event and turn in a lane that exists."""
    number = next(_numbers)
    turn = secrets.token_hex(9)
    return {
        "event": f"raw-{number}",
        "receipt": f'{{"duplicate":false,"session":"{session}","turn":"{turn}","seq":1,"reply":null}}',
        "now": time.time_ns() // 1000,
        "lane": lane,
        "session": session,
        "profile": DEFAULT_PROFILE,
        "owner": owner,
        "turn": turn,
        "parts": PARTS,
        "reply": _REPLY,
        "lease": turn,
    }


def receive(v: dict[str, Any]) -> list[Statement]:
    """One transaction: the rows that taking a message in writes."""
    return [
        (_INBOX, v),
        (_LANE, v),
        (_SESSION, v),
        (_MESSAGE, {**v, "role": "user"}),
        (_CHANGE, {**v, "kind": "message", "note": "added"}),
        (_TURN, v),
        (_CHANGE, {**v, "kind": "turn", "note": "queued"}),
        (_CURSOR, v),
    ]


def exchange(v: dict[str, Any]) -> list[list[Statement]]:
    """The five transactions from a message taken in to its answer sent."""
    return [
        receive(v),
        [(_CLAIM, v), (_SERVED, v), (_CHANGE, {**v, "kind": "turn", "note": "running"})],
        [
            (_USAGE, v),
            (_TOKENS, v),
            (_SESSION, v),
            (_MESSAGE, {**v, "role": "assistant"}),
            (_CHANGE, {**v, "kind": "message", "note": "added"}),
            (_DONE, v),
            (_CHANGE, {**v, "kind": "turn", "note": "done"}),
            (_DELIVERY, v),
            (_CHANGE, {**v, "kind": "delivery", "note": "ready"}),
        ],
        [(_SENDING, v)],
        [(_SENT, v), (_CHANGE, {**v, "kind": "delivery", "note": "sent"})],
    ]
