"""Send: give the agent one message, and if wanted wait for its answer."""

import asyncio
import os
import re
import sys
from typing import Annotated

import anyio
import msgspec
from cyclopts import Parameter

from keryx.app import App
from keryx.cli import ending, output
from keryx.cli.access import Access, Json, settings, warn_if_alone
from keryx.cli.conversation import fresh, source
from keryx.core.changes import Change, Kind
from keryx.core.errors import Invalid, Unavailable
from keryx.core.ids import OPERATOR, Cursor, QuestionId, SessionId, TurnId
from keryx.core.messages import Message, Role, words
from keryx.core.ports import Inbound, Receipt
from keryx.core.questions import QuestionState
from keryx.core.turns import Turn, TurnState

_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?\Z")
_FLAG = Parameter(negative="", show_default=False)


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message. `answer`, `state` and `error` are null until its turn has ended."""

    session: SessionId | None
    turn: TurnId | None
    message: str | None
    duplicate: bool
    state: TurnState | None = None
    answer: str | None = None
    error: str | None = None


def send(
    *text: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="The message; `-` reads it from the input.")
    ],
    session: Annotated[
        str | None, Parameter(help="The session to send to; without it a new one begins.")
    ] = None,
    wait: Annotated[bool, _FLAG, Parameter(help="Wait for the answer and print it.")] = False,
    timeout: Annotated[float, Parameter(help="How many seconds to wait at most.")] = 300,
    target: Annotated[
        str | None,
        Parameter(
            help="Where the answer is sent too: local, local:NAME, PLATFORM:CHAT, or PLATFORM for its home."
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
        git diff | keryx send --wait --session review -
        keryx send --event backup-2026-03-01 --target local:reports "sum up the night"
    """
    # Read before any loop runs, so that Ctrl-C ends the reading.
    said = words(_text(text))
    app = App(settings())
    inbound = Inbound(
        event=event or fresh(),
        source=source(app),
        parts=said,
        surface="cli",
        principal=OPERATOR,
        cwd=os.getcwd(),
        commands=False,
    )
    if wait:
        return asyncio.run(_and_wait(app, inbound, session, target, timeout, json))
    return asyncio.run(_only(app, inbound, session, target, json))


async def _only(app: App, inbound: Inbound, ref: str | None, to: str | None, json: bool) -> int:
    async with app.hub() as hub:
        access = Access(hub, app.viewer)
        inbound = await _addressed(app, access, inbound, to)
        receipt = await hub.receive(await _directed(access, inbound, ref))
        _report(_sent(receipt), json)
        warn_if_alone(await hub.nodes())
    return 0


async def _and_wait(
    app: App, inbound: Inbound, ref: str | None, to: str | None, timeout: float, json: bool
) -> int:
    async with ending.service(app, "send") as service:
        access = Access(service.hub, app.viewer)
        inbound = await _addressed(app, access, inbound, to)
        cursor = await access.hub.now()
        receipt = await access.hub.receive(await _directed(access, inbound, ref))
        assert receipt.session is not None and receipt.turn is not None
        service.runner.serve(receipt.session)
        turn = await _ended(access, receipt.session, receipt.turn, cursor, timeout)
        answer = await _answer(access, turn)
        sent = msgspec.structs.replace(_sent(receipt), state=turn.state, answer=answer, error=turn.error)
        _report_answer(sent, json)
    return 0 if turn.state is TurnState.DONE else 1


async def _directed(access: Access, inbound: Inbound, ref: str | None) -> Inbound:
    return inbound if ref is None else msgspec.structs.replace(inbound, session=await access.id(ref))


async def _addressed(app: App, access: Access, inbound: Inbound, to: str | None) -> Inbound:
    """The message with the place that its answer is sent to, checked before anything is said."""
    if to is None:
        return inbound
    targets = await access.hub.deliveries.targets(access.viewer, to, accounts=app.accounts)
    if len(targets) != 1:
        raise Invalid(f"{to[:80]!r} names several targets: give one")
    return msgspec.structs.replace(inbound, reply=targets[0])


async def _ended(access: Access, session: SessionId, turn: TurnId, cursor: Cursor, timeout: float) -> Turn:
    with anyio.move_on_after(timeout):
        found = await access.hub.turn(access.viewer, turn)
        changes = access.hub.follow(access.viewer, cursor, session=session)
        while not found.state.finished or found.merged_into:
            turn = found.merged_into or turn
            if not found.merged_into:
                await _tell_question(access, await anext(changes))
            found = await access.hub.turn(access.viewer, turn)
        return found
    raise Unavailable(
        f"no answer within {timeout:g} seconds; the message is kept: `keryx sessions show {session}` shows how it goes"
    )


async def _tell_question(access: Access, change: Change) -> None:
    """Say that somebody must answer before the turn can go on."""
    if change.kind is Kind.QUESTION and change.note == QuestionState.OPEN.value:
        asked = (await access.hub.questions.get(access.viewer, QuestionId(change.subject))).question
        options = "|".join(o.id for o in asked.options) or "TEXT"
        output.warn(
            f"keryx: the agent asks: {asked.title} {asked.detail} `keryx questions answer {change.subject} {options}` answers it"
        )


async def _answer(access: Access, turn: Turn) -> str:
    """The words of every step of the answer, without what an interrupted attempt had begun."""
    found = await access.hub.messages(access.viewer, turn.session, after=turn.input_seq)
    return "\n\n".join(m.text for m in found if m.turn == turn.id and _counts(m))


def _counts(message: Message) -> bool:
    return message.role is Role.ASSISTANT and message.mark is None and bool(message.text)


def _sent(receipt: Receipt) -> Sent:
    return Sent(
        session=receipt.session,
        turn=receipt.turn,
        message=f"{receipt.session}.{receipt.seq}" if receipt.seq else None,
        duplicate=receipt.duplicate,
    )


def _report(sent: Sent, json: bool) -> None:
    if json:
        output.json(sent)
        return
    again = "yes: it was taken in before" if sent.duplicate else ""
    output.fields(
        [
            ("session", sent.session or ""),
            ("turn", sent.turn or ""),
            ("message", sent.message or ""),
            ("repeated", again),
        ]
    )


def _report_answer(sent: Sent, json: bool) -> None:
    if json:
        output.json(sent)
    elif sent.state is TurnState.DONE:
        output.write(output.plain(sent.answer or ""))
    else:
        output.warn(f"keryx: the turn ended as {sent.state}{f': {sent.error}' if sent.error else ''}")


def _text(given: tuple[str, ...]) -> str:
    """The message, from the words given or from the input."""
    stray = next((word for word in given if _OPTION.match(word)), None)
    if stray:
        raise Invalid(f"unknown option {stray}: `keryx send --help` lists them; send such a text through `-`")
    if given == ("-",) or (not given and not sys.stdin.isatty()):
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
        text = text.removesuffix("\n")
    else:
        text = " ".join(given)
    if not text.strip():
        raise Invalid("there is nothing to send: give a text, or `-` and something on the input")
    return text
