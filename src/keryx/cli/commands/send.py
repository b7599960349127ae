"""`keryx send`: send one message, and wait for its answer if asked to."""

import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated

import anyio
import msgspec
from cyclopts import Parameter

from keryx.app import App
from keryx.cli import is_stdout_missing, output, shutdown
from keryx.cli.options import (
    FLAG,
    Attach,
    HubAccess,
    Json,
    check_words,
    join_input,
    load_settings,
    parse_timeout,
    warn_without_node,
)
from keryx.cli.terminal import attachments
from keryx.cli.terminal.terminal_chat import build_source, new_id
from keryx.core.changes import ChangeKind
from keryx.core.durations import format_duration
from keryx.core.errors import Invalid, Unavailable
from keryx.core.ids import OPERATOR, Cursor, QuestionId, SessionId, TurnId
from keryx.core.messages import Role, text_parts
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.questions import QuestionState
from keryx.core.sessions import SessionChange, SessionSettings, SettingsChange
from keryx.core.turns import Turn, TurnState
from keryx.engine.hub.views import MessageRange

_MAX_ANSWER_MESSAGES = 1000


class SendReport(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId | None
    turn: TurnId | None
    message: str | None
    duplicate: bool
    # Null until the turn has ended.
    state: TurnState | None = None
    answer: str | None = None
    error: str | None = None


def send(
    *text: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True, help="The message; `-` at its end adds what comes on the input."
        ),
    ],
    session: Annotated[
        str | None, Parameter(help="The session to send to; without it a new one begins.")
    ] = None,
    attach: Attach = None,
    model: Annotated[
        str | None, Parameter(help="The model of the session; it stays with a session that exists.")
    ] = None,
    wait: Annotated[bool, FLAG, Parameter(help="Wait for the answer and print it.")] = False,
    timeout: Annotated[str, Parameter(help="How long to wait at most.")] = "5m",
    target: Annotated[
        str | None,
        Parameter(
            help="Where the answer is sent too: local, local:NAME, PLATFORM:CHAT, PLATFORM.ACCOUNT:CHAT, or PLATFORM for its home."
        ),
    ] = None,
    event: Annotated[
        str | None, Parameter(help="An id of your own: a message with the same id is taken in once.")
    ] = None,
    json: Json = False,
) -> int:
    """Send one message; it is kept before the command returns.

    The text is taken as it is: a leading slash gives no command. With --wait the
    exit code is 1 if the turn failed.

        keryx send --wait "what is new?"
        keryx send --wait --attach photo.jpg "what is this?"
        git diff | keryx send --wait --session review "anything wrong?" -
        keryx send --event backup-2026-03-01 --target local:reports "sum up the night"
    """
    patience = parse_timeout(timeout)
    # Read before the event loop runs, so that Ctrl-C interrupts the read.
    parts = text_parts(_read_text(text)) if text or not attach else ()
    app = App(load_settings())
    outgoing = _Outgoing(ref=session, target=target, files=tuple(attach or ()), model=model)
    inbound = InboundMessage(
        event=event or new_id(),
        source=build_source(app),
        parts=parts,
        surface="cli",
        principal=OPERATOR,
        cwd=os.getcwd(),
        commands=False,
    )
    if wait:
        return asyncio.run(_send_and_wait(app, inbound, outgoing, patience, json))
    return asyncio.run(_send(app, inbound, outgoing, json))


class _Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say about a message."""

    # The session; `None` for a new one.
    ref: str | None
    target: str | None
    files: tuple[str, ...]
    model: str | None

    async def complete(self, app: App, access: HubAccess, inbound: InboundMessage) -> InboundMessage:
        """Return the message with its session, target, files and model, each checked before the message is sent."""
        hub, viewer = access.hub, access.viewer
        if self.target is not None:
            reachable = app.reachable_platforms
            targets = await hub.deliveries.resolve_targets(viewer, self.target, accounts=reachable)
            if len(targets) != 1:
                raise Invalid(f"{self.target[:80]!r} names several targets: give one")
            inbound = msgspec.structs.replace(inbound, reply=targets[0])
        files = [attachments.read_attachment(name, limit=hub.media.limit) for name in self.files]
        if self.ref is not None:
            id_ = await access.find_id(self.ref)
            inbound = msgspec.structs.replace(inbound, session=id_)
            if self.model:
                change = SessionChange(settings=SettingsChange(model=self.model))
                await hub.change(viewer, id_, change)
        elif self.model:
            await hub.check_model(viewer, inbound.source, self.model)
            inbound = msgspec.structs.replace(inbound, settings=SessionSettings(model=self.model))
        saved = [await hub.media.save(viewer, file) for file in files]
        return msgspec.structs.replace(inbound, parts=(*inbound.parts, *saved))


async def _send(app: App, inbound: InboundMessage, outgoing: _Outgoing, json: bool) -> int:
    async with app.hub() as hub:
        access = HubAccess(hub, app.viewer)
        receipt = await hub.receive(await outgoing.complete(app, access, inbound))
        sent = _build_report(receipt)
        with _tell_where_it_is_kept(sent.session):
            if json:
                output.write_json(sent)
            else:
                output.write_fields(
                    [
                        ("session", sent.session or ""),
                        ("turn", sent.turn or ""),
                        ("message", sent.message or ""),
                        ("repeated", "yes: it was taken in before" if sent.duplicate else ""),
                    ]
                )
        warn_without_node(await hub.list_nodes())
    return 0


@contextmanager
def _tell_where_it_is_kept(session: SessionId | None) -> Generator[None]:
    """Say on stderr how to see the message and its answer if the block cannot print them."""
    kept = f"the message is kept: `keryx sessions show {session}` shows it and its answer"
    if is_stdout_missing():
        output.warn(f"keryx: the output is closed; {kept}")
    try:
        yield
        output.flush()
    except BrokenPipeError:
        output.discard_rest()
        output.warn(f"keryx: nobody reads the output; {kept}")
        raise
    except Unavailable as exc:
        raise Unavailable(f"{exc}; {kept}") from exc


async def _send_and_wait(
    app: App, inbound: InboundMessage, outgoing: _Outgoing, patience: timedelta, json: bool
) -> int:
    async with shutdown.open_service(app, "send") as service:
        access = HubAccess(service.hub, app.viewer)
        inbound = await outgoing.complete(app, access, inbound)
        cursor = await access.hub.head_cursor()
        receipt = await access.hub.receive(inbound)
        assert receipt.session is not None and receipt.turn is not None
        service.runner.serve(receipt.session)
        turn = await _wait_for_end(access, receipt.session, receipt.turn, cursor, patience)
        window = MessageRange(after=turn.input_seq, limit=_MAX_ANSWER_MESSAGES)
        found = (await access.hub.page(access.viewer, turn.session, window)).messages
        # The text of the agent, without that of an interrupted attempt.
        answer = "\n\n".join(
            m.text
            for m in found
            if m.turn == turn.id and m.role is Role.ASSISTANT and m.mark is None and m.text
        )
        sent = msgspec.structs.replace(
            _build_report(receipt), state=turn.state, answer=answer, error=turn.error
        )
        with _tell_where_it_is_kept(sent.session):
            if json:
                output.write_json(sent)
            elif turn.state is TurnState.DONE:
                output.write(output.sanitize(answer))
            else:
                why = f": {output.adapt_hints(turn.error, turn.session)}" if turn.error else ""
                output.warn(f"keryx: the turn ended as {turn.state}{why}")
    return 0 if turn.state is TurnState.DONE else 1


async def _wait_for_end(
    access: HubAccess, session: SessionId, turn: TurnId, cursor: Cursor, patience: timedelta
) -> Turn:
    with anyio.move_on_after(patience.total_seconds()):
        found = await access.hub.turn(access.viewer, turn)
        changes = access.hub.follow(access.viewer, cursor, session=session)
        while not found.state.finished or found.merged_into:
            turn = found.merged_into or turn
            if not found.merged_into:
                change = await anext(changes)
                # Warn of a question that blocks the turn.
                if change.kind is ChangeKind.QUESTION and change.note == QuestionState.OPEN.value:
                    stored = await access.hub.questions.get(access.viewer, QuestionId(change.subject))
                    question = stored.question
                    options = "|".join(o.id for o in question.options) or "TEXT"
                    output.warn(
                        f"keryx: the agent asks: {question.title} {question.detail} `keryx questions answer {change.subject} {options}` answers it"
                    )
            found = await access.hub.turn(access.viewer, turn)
        return found
    raise Unavailable(
        f"no answer within {format_duration(patience)}; the message is kept: `keryx sessions show {session}` shows how it goes"
    )


def _build_report(receipt: Receipt) -> SendReport:
    return SendReport(
        session=receipt.session,
        turn=receipt.turn,
        message=f"{receipt.session}.{receipt.seq}" if receipt.seq else None,
        duplicate=receipt.duplicate,
    )


def _read_text(words: tuple[str, ...]) -> str:
    """Join the words, with stdin for a `-` at their end and in a pipe."""
    check_words(words, "send")
    if words[-1:] == (output.STDIO,) or (not words and not sys.stdin.isatty()):
        text = join_input(words[:-1], sys.stdin.buffer.read().decode("utf-8", "surrogateescape"))
    else:
        text = " ".join(words)
    if not text.strip():
        raise Invalid("there is nothing to send: give a text, or `-` and something on the input")
    return text
