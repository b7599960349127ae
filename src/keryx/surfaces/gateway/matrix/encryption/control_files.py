"""The files by which `keryx matrix` controls the process that holds the keys: its requests and the reports of the process. They are beside the keys, and only their owner can read and write them."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from keryx.core import ids
from keryx.core.errors import Invalid

_FOLDER = "matrix-keys"
_STATE = "state.json"
_REQUESTS = "requests"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A verification: both sides compare emoji."""

    id: str
    user: str
    device: str
    # Each with its name.
    emoji: list[tuple[str, str]]


class EncryptionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the process that holds the keys says about them."""

    user: str
    device: str
    # The public key of the device, which clients show.
    fingerprint: str
    recovery_key: str = ""
    # Sentences about what does not work.
    problems: list[str] = []
    comparisons: list[Comparison] = []
    # People whose identity has changed since it was pinned.
    replaced: list[str] = []
    verified: list[str] = []
    # Messages that wait for their key.
    unread: int = 0
    # How many requests were served, and the result of the last one, as a sentence.
    requests: int = 0
    outcome: str = ""


class ConfirmRequest(msgspec.Struct, frozen=True, tag="confirm"):
    """The emoji of a verification are the same, or not."""

    comparison: str
    same: bool


class AcceptRequest(msgspec.Struct, frozen=True, tag="accept"):
    """Take the new identity of a person as theirs."""

    user: str


class RestoreRequest(msgspec.Struct, frozen=True, tag="restore"):
    """Read the key backup."""

    recovery_key: str


OperatorRequest: TypeAlias = ConfirmRequest | AcceptRequest | RestoreRequest


def build_account_folder(home: Path, user: str) -> Path:
    """Return the folder for the keys of an account."""
    return home / _FOLDER / ids.escape(user).replace("/", "%2F")


def list_account_folders(home: Path) -> list[Path]:
    return sorted(path.parent for path in (home / _FOLDER).glob(f"*/{_STATE}"))


def read_report(folder: Path) -> EncryptionReport:
    """Return the last report. Raise `Invalid` if there is none."""
    try:
        return msgspec.json.decode((folder / _STATE).read_bytes(), type=EncryptionReport)
    except (OSError, msgspec.DecodeError) as exc:
        raise Invalid(f"{folder / _STATE} cannot be read: start Keryx, and try again") from exc


def write_report(folder: Path, report: EncryptionReport) -> None:
    """Write a report. Raise `OSError`."""
    _write(folder / _STATE, msgspec.json.encode(report))


def add_request(folder: Path, request: OperatorRequest) -> None:
    """Ask the process that holds the keys for something. It answers within seconds, by a report."""
    try:
        (folder / _REQUESTS).mkdir(mode=0o700, exist_ok=True)
        _write(folder / _REQUESTS / f"{secrets.token_hex(8)}.json", msgspec.json.encode(request))
    except OSError as exc:
        raise Invalid(f"{folder} cannot be written: {exc.strerror}") from exc


def take_requests(folder: Path) -> Iterator[OperatorRequest]:
    """Yield the requests and remove them; malformed ones are left out. Raise `OSError`."""
    for path in sorted((folder / _REQUESTS).glob("*.json")):
        body = path.read_bytes()
        path.unlink()
        try:
            yield msgspec.json.decode(body, type=OperatorRequest)
        except msgspec.DecodeError:
            continue


def _write(path: Path, body: bytes) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
        output.write(body)
    draft.replace(path)
