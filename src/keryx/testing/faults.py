"""Faults of a platform, which its fakes play."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often, as a share of requests: an update comes twice, updates come in another order, an answer ends in its
    middle, a send is throttled, the server breaks before it took a message, or the connection breaks after it took
    one. `retry_after` is in seconds."""

    duplicate: float = 0
    reorder: float = 0
    torn: float = 0
    throttle: float = 0
    broken: float = 0
    lost_reply: float = 0
    retry_after: float = 0.05
