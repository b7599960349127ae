"""Bindings: which session of an outside agent continues a session of Keryx, so that a restart finds it again."""

import msgspec

from keryx.core.ids import TurnId


class Meter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent's own count of its use stands at, over all turns of its session. Costs are in millionths."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: int | None = None


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`id` is the agent's own name for its session, which works in `cwd`. The agent knows everything up to message `seq`,
    and what belongs to `turn`. `place` is the digest of what it was told about its place."""

    agent: str
    id: str
    cwd: str
    turn: TurnId | None = None
    seq: int = 0
    place: str = ""
    model: str = ""
    mode: str = ""
    meter: Meter = Meter()
