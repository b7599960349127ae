"""Files that are fetched after their message is stored: placeholders, the claim of what to fetch, and its outcome. The turn of the message waits."""

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from keryx.core.deliveries import Target
from keryx.core.errors import NotFound
from keryx.core.ids import TurnId, WorkerId
from keryx.core.media import Media, clean_name
from keryx.core.messages import Message, Part, Text
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.texts import Phrase
from keryx.core.turns import TurnState
from keryx.engine.units import answers
from keryx.store import downloads, messages, sessions, turns
from keryx.store.db import Transaction
from keryx.store.downloads import Download

_KEEP_TRYING = timedelta(days=1)


def add_placeholders(inbound: InboundMessage) -> InboundMessage:
    """Return an event whose parts name its files until they are fetched."""
    if not inbound.files:
        return inbound
    named = tuple(Text(file.placeholder) for file in inbound.files)
    return msgspec.structs.replace(inbound, parts=(*inbound.parts, *named))


def begin(tx: Transaction, inbound: InboundMessage, receipt: Receipt) -> None:
    """Make the turn of a message that was just stored wait for its files. Earlier files of an edited message are replaced."""
    if not inbound.files or receipt.session is None or receipt.seq is None or receipt.turn is None:
        return
    stored = messages.get(tx, receipt.session, receipt.seq)
    named = tuple(Text(file.placeholder) for file in inbound.files)
    # A message without placeholders, such as that of a command, gets its files at its end.
    first = len(stored.parts) - (len(named) if stored.parts[-len(named) :] == named else 0)
    downloads.remove_for_message(tx, stored.session, stored.seq)
    downloads.add(
        tx,
        stored.session,
        stored.seq,
        turn=receipt.turn,
        platform=inbound.source.platform,
        account=inbound.source.account,
        files=inbound.files,
        first=first,
    )
    turns.wait_for_files(tx, receipt.turn)


def claim(
    tx: Transaction,
    *,
    worker: WorkerId,
    platform: str,
    account: str,
    most: int,
    share: int,
    active: Collection[int],
    lease: timedelta,
) -> tuple[list[Download], datetime | None]:
    """Take files to fetch, and return when to look again for those that wait for another attempt. `active` are the positions
    of those that the worker fetches already."""
    claimed = downloads.claim(
        tx,
        worker,
        platform=platform,
        account=account,
        most=most,
        share=share,
        active=active,
        alive_since=tx.now - lease,
    )
    return claimed, downloads.get_next_attempt_at(tx, platform=platform, account=account)


def find_typing_target(tx: Transaction, download: Download) -> Target | None:
    """Return where to show that the message of a file is being worked on, unless its turn waits no more or nothing may be sent
    there now."""
    turn = turns.find(tx, download.turn)
    waits = turn is not None and turn.state is TurnState.QUEUED and answers.may_type(tx, turn)
    return turn.reply if turn and waits else None


def complete(tx: Transaction, download: Download, part: Media) -> None:
    """Put a file that was fetched into its message. The turn goes on when it was the last one."""
    _settle(tx, download, part)


def give_up(tx: Transaction, download: Download, reason: Phrase) -> None:
    """Put a sentence into the message instead of a file. The turn goes on when it was the last one."""
    name = clean_name(download.file.name) or "file"
    turn = turns.find(tx, download.turn)
    texts = answers.speak(tx, turn) if turn else tx.texts.speak()
    _settle(tx, download, Text(texts.say("file.missing", name=name, reason=texts.render(reason))))


def _settle(tx: Transaction, download: Download, part: Part) -> None:
    sessions.lock(tx, download.session)
    # An edit or a deletion may have been faster, or another worker.
    if not downloads.remove(tx, download):
        return
    try:
        message = messages.get(tx, download.session, download.seq)
    except NotFound:
        return
    parts, place = message.parts, download.part
    if place < len(parts) and parts[place] == Text(download.file.placeholder):
        parts = (*parts[:place], part, *parts[place + 1 :])
    else:
        # The message was changed meanwhile.
        parts = (*parts, part)
    messages.replace_parts(tx, message, parts)
    _resume_turn(tx, download.turn)


def _resume_turn(tx: Transaction, id_: TurnId) -> None:
    """Continue a turn that waits for no more files."""
    turn = turns.find(tx, id_)
    if turn is not None and not downloads.has_any(tx, id_):
        turns.resume(tx, turn)


def cancel(tx: Transaction, message: Message) -> None:
    """Fetch no more files of a message that was deleted or erased."""
    sessions.lock(tx, message.session)
    if downloads.remove_for_message(tx, message.session, message.seq) and message.turn:
        _resume_turn(tx, message.turn)


def give_up_old(tx: Transaction) -> int:
    """Give up files that no process has fetched for a day, for instance because their platform was removed from the
    settings. Return how many."""
    old = downloads.list_old(tx, before=tx.now - _KEEP_TRYING)
    for download in old:
        give_up(tx, download, Phrase("file.not_in_time"))
    return len(old)
