"""All errors that Keryx raises deliberately, in one tree. Every message is written for the user."""

import json
import sys
from datetime import datetime, timedelta
from importlib.metadata import distribution
from urllib.parse import unquote, urlsplit

THREADS_EXHAUSTED = (
    "the system allows no more threads or processes: end some, or raise the limit (`ulimit -u`, TasksMax of the service;"
    " `ulimit -v` and `ulimit -s` bound threads too)"
)
DESCRIPTORS_EXHAUSTED = (
    "no more files can be opened: raise the limit (`ulimit -n`, LimitNOFILE of the service; 1024 are enough)"
)


class KeryxError(Exception):
    """The root of the tree. `str(error)` is for operators and programs, in English. `text` is for people; if it is a
    phrase, a surface renders it in their language."""

    def __init__(self, message: str = "", text: str | None = None) -> None:
        super().__init__(message)
        self.text = message if text is None else text


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


class AgentRefused(AgentFailed):
    """The question cannot be answered as it is. The conversation without it may go on."""


class ModelUnavailable(AgentFailed):
    """A model cannot answer now. Another one may."""


class QuotaReached(ModelUnavailable):
    """A limit of use is reached. The turn can go on at `until`."""

    def __init__(self, message: str, text: str | None = None, *, until: datetime, model: str) -> None:
        super().__init__(message, text)
        self.until = until
        # The name of the model or agent whose limit it is.
        self.model = model


class SendError(KeryxError):
    pass


class NotSent(SendError):
    pass


class CredentialsRefused(NotSent):
    """The platform does not accept the credentials any more. The status of the account shows it until something is sent."""


class Throttled(SendError):
    def __init__(self, message: str, *, after: timedelta, account: bool = False) -> None:
        super().__init__(message)
        self.after = after
        # The limit holds for the whole account, not for one chat.
        self.account = account


class Held(SendError):
    """The platform does not accept a message to this person now. It is sent when the person has written."""


class Refused(SendError):
    pass


class TargetGone(Refused):
    """The chat takes no messages any more: it was deleted, or the bot was blocked or removed."""


class MessageGone(SendError):
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


class StoreDamaged(StoreBroken):
    """What is in the store is wrong. Every other `StoreBroken` says only that the store cannot be used now."""


class DiskFull(Retryable):
    pass


def format_install_command(extra: str) -> str:
    """Return the command that installs an extra for the Python that runs now, from any folder, for error messages."""
    keryx = distribution("keryx")
    source = json.loads(keryx.read_text("direct_url.json") or "{}")
    if source.get("dir_info", {}).get("editable"):
        clone = unquote(urlsplit(str(source["url"])).path)
        return f"{sys.executable} -m pip install -e '{clone}[{extra}]'"
    # This version is installed, so pip asks no index for it and adds only what the extra needs.
    requirement = f"keryx[{extra}]=={keryx.version}"
    return f"{sys.executable} -m pip install '{requirement}'"
