"""Every error that Keryx raises on purpose.

    KeryxError
    ├── Invalid            the input is wrong; the message says how to mend it
    ├── NotFound           what was named does not exist, or is not yours
    ├── Forbidden          it exists, and you may not
    ├── Conflict           the state changed under the caller
    │   ├── LeaseLost      another worker owns this turn or delivery now
    │   └── Ambiguous      a name fits several things
    ├── CursorExpired      the feed was trimmed past this cursor: open again
    ├── AgentFailed        the agent ended a turn with an error meant for a person
    ├── SendError          a part of a delivery did not arrive, or may not have
    │   ├── NotSent        the platform was never reached: safe to repeat
    │   ├── Throttled      the platform asks to wait until `after`
    │   ├── Refused        the platform will never take this
    │   ├── Gone           the message to edit is no longer there: send it afresh
    │   └── Uncertain      nobody knows whether it arrived
    └── Unavailable        a part outside Keryx does not work now
        ├── Retryable      try again, not before `after`
        │   └── DiskFull   nothing can be written until space is freed
        └── StoreBroken    the database is damaged, foreign, newer, or cannot be opened

Messages are for people: one sentence that says what is wrong and what to do next.
"""

from datetime import timedelta


class KeryxError(Exception):
    """Root of the tree. `str(error)` is fit to be shown to a person."""


class Invalid(KeryxError):
    pass


class NotFound(KeryxError):
    pass


class Forbidden(KeryxError):
    pass


class Conflict(KeryxError):
    pass


class LeaseLost(Conflict):
    pass


class Ambiguous(Conflict):
    pass


class CursorExpired(KeryxError):
    pass


class AgentFailed(KeryxError):
    pass


class SendError(KeryxError):
    pass


class NotSent(SendError):
    pass


class Throttled(SendError):
    """`account`: the whole account is asked to wait, not one chat."""

    def __init__(self, message: str, *, after: timedelta, account: bool = False) -> None:
        super().__init__(message)
        self.after = after
        self.account = account


class Refused(SendError):
    pass


class Gone(SendError):
    pass


class Uncertain(SendError):
    pass


class Unavailable(KeryxError):
    pass


class Retryable(Unavailable):
    def __init__(self, message: str, *, after: timedelta = timedelta(0)) -> None:
        super().__init__(message)
        self.after = after


class StoreBroken(Unavailable):
    pass


class DiskFull(Retryable):
    pass
