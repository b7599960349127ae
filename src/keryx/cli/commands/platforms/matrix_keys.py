"""`keryx matrix`: the encryption of Matrix accounts. The process that holds the keys, `keryx serve`, does what is asked here."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import Json, Yes, confirm, load_settings, report
from keryx.core.errors import Conflict, Invalid, NotFound, Unavailable
from keryx.core.text import format_count
from keryx.surfaces.gateway.matrix.encryption.control_files import (
    AcceptRequest,
    ConfirmRequest,
    EncryptionReport,
    OperatorRequest,
    RestoreRequest,
    add_request,
    list_account_folders,
    read_report,
)

matrix_app = App(name="matrix", help="The encryption of Matrix accounts: verify, back up, restore.")

_POLL_SECONDS = 0.2
# A sync that waits for events lasts half a minute.
_ANSWER_SECONDS = 60.0
_VERIFY_SECONDS = 300.0

_Account = Annotated[
    str, Parameter(show_default=False, help="The account, such as @keryx:example.org, if there are several.")
]


@matrix_app.command
@matrix_app.default
async def status(*, account: _Account = "", json: Json = False) -> None:
    """Show the device of Keryx, who is verified, and what does not work.

    For example:

        keryx matrix status
    """
    _, found = _find_account(account)
    if json:
        fields = msgspec.structs.asdict(found)
        output.write_json({name: value for name, value in fields.items() if name != "recovery_key"})
        return
    key = found.fingerprint
    output.write_fields(
        [
            ("account", found.user),
            ("device", found.device),
            ("fingerprint", " ".join(key[start : start + 4] for start in range(0, len(key), 4))),
            ("verified", ", ".join(found.verified) or "nobody"),
            ("identity changed", ", ".join(found.replaced) or "nobody's"),
            ("waiting for keys", format_count(found.unread, "message")),
        ]
    )
    for problem in found.problems:
        output.write(output.wrap(problem))


@matrix_app.command
async def verify(*, account: _Account = "", yes: Yes = False, json: Json = False) -> None:
    """Verify a person: compare the emoji that their client shows with those
    that are shown here.

    Begin in your client: open the profile of Keryx's account, and choose to
    verify it by emoji.

    For example:

        keryx matrix verify
    """
    folder, _ = _find_account(account)
    if not json:
        output.write(output.wrap("Choose to verify Keryx in your Matrix client now."))
        output.flush()
    found = await _wait(folder, lambda r: bool(r.comparisons), _VERIFY_SECONDS, "No verification was begun")
    comparison = found.comparisons[0]
    if not json:
        shown = "\n".join(f"  {emoji}  {name}" for emoji, name in comparison.emoji)
        output.write(f"{output.sanitize(comparison.user, one_line=True)} compares:\n\n{shown}\n")
    try:
        confirm(f"Does {comparison.user} see the same?", yes)
    except Conflict:
        await _ask(folder, ConfirmRequest(comparison.id, same=False))
        raise
    await _ask(folder, ConfirmRequest(comparison.id, same=True))
    done = await _wait(
        folder,
        lambda r: "confirm" not in r.outcome,
        _VERIFY_SECONDS,
        f"{comparison.user} has not confirmed",
    )
    if "is verified" not in done.outcome:
        raise Conflict(done.outcome.removesuffix("."))
    report(done.outcome, json, user=comparison.user)


@matrix_app.command
async def accept(
    user: Annotated[str, Parameter(help="A person whose identity has changed, such as @ann:example.org.")],
    /,
    *,
    account: _Account = "",
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Accept the new encryption identity of a person who has reset theirs.

    Ask the person first: a homeserver that wants to read along could make one,
    too. `keryx matrix verify` is safer.

    For example:

        keryx matrix accept @ann:example.org
    """
    folder, found = _find_account(account)
    if user not in found.replaced:
        raise NotFound(f"the identity of {user[:100]} has not changed: `keryx matrix status` lists whose has")
    confirm(f"Has {user} reset their encryption identity?", yes)
    done = await _ask(folder, AcceptRequest(user))
    report(done.outcome, json, user=user)


@matrix_app.command(name="recovery-key")
async def recovery_key(*, account: _Account = "", json: Json = False) -> None:
    """Show the recovery key of the key backup. Keep it where you keep
    passwords: it reads all messages.

    For example:

        keryx matrix recovery-key
    """
    _, found = _find_account(account)
    if not found.recovery_key:
        raise NotFound("there is no key backup: `keryx matrix status` says why")
    output.write_result(found.recovery_key, {"recovery_key": found.recovery_key}, json)


@matrix_app.command
async def restore(
    file: Annotated[Path, Parameter(help="A file with the recovery key.")],
    /,
    *,
    account: _Account = "",
    json: Json = False,
) -> None:
    """Read the encryption identity of the account and the keys of the backup, after Keryx got a new device.

    For example:

        keryx matrix restore recovery-key.txt
    """
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise Invalid(f"{file} cannot be read") from exc
    folder, _ = _find_account(account)
    done = await _ask(folder, RestoreRequest(text))
    if "restored" not in done.outcome:
        raise Invalid(done.outcome.removesuffix("."))
    report(done.outcome, json)


def _find_account(account: str) -> tuple[Path, EncryptionReport]:
    """Return the folder of an account, and its report. Raise `NotFound` or `Invalid`."""
    found = [(folder, read_report(folder)) for folder in list_account_folders(load_settings().folder)]
    chosen = [entry for entry in found if account in ("", entry[1].user)]
    if not chosen:
        raise NotFound(
            "no account uses encryption: connect one with `keryx gateway setup matrix`, and start `keryx serve`"
        )
    if len(chosen) > 1:
        raise Invalid(f"choose one with --account: {', '.join(r.user for _, r in chosen)}")
    return chosen[0]


async def _ask(folder: Path, request: OperatorRequest) -> EncryptionReport:
    """Hand over a request, and return the report after it was done."""
    before = read_report(folder).requests
    add_request(folder, request)
    return await _wait(
        folder,
        lambda r: r.requests > before,
        _ANSWER_SECONDS,
        "Keryx does not answer: `keryx serve` must run, and be connected to Matrix",
    )


async def _wait(
    folder: Path, condition: Callable[[EncryptionReport], bool], seconds: float, message: str
) -> EncryptionReport:
    deadline = time.monotonic() + seconds
    while not condition(found := read_report(folder)):
        if time.monotonic() > deadline:
            raise Unavailable(message)
        await asyncio.sleep(_POLL_SECONDS)
    return found
