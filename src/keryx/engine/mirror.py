"""Mirrors: chats that show what is said to their session elsewhere, marked with where it was said."""

from collections.abc import Sequence
from datetime import datetime

from keryx.core.deliveries import Target
from keryx.core.ids import SessionId, TurnId
from keryx.core.media import Media
from keryx.core.sessions import Session
from keryx.core.turns import Turn
from keryx.store import deliveries, lanes
from keryx.store.database import Transaction


def question(
    tx: Transaction,
    session: Session,
    text: str,
    *,
    author: str,
    surface: str,
    reply: Target | None,
    turn: TurnId | None,
    now: datetime,
) -> None:
    """Show what a person said in every other chat that mirrors the session. Part of the unit that stores it."""
    if text:
        who = f" {author}:" if author else ""
        _show(
            tx,
            session.id,
            f"[{_where(reply, surface)}]{who} {text}",
            reply,
            session.profile,
            session.owner,
            turn,
            now,
        )


def answer(tx: Transaction, turn: Turn, text: str, *, now: datetime, media: Sequence[Media] = ()) -> None:
    """Show an answer, or why there is none, in every chat that mirrors the session and did not ask."""
    mark = f"[{_where(turn.reply, turn.surface)}]"
    _show(
        tx,
        turn.session,
        f"{mark} {text}",
        turn.reply,
        turn.profile,
        turn.owner,
        turn.id,
        now,
        media,
    )


def aside(tx: Transaction, turn: Turn, text: str, *, now: datetime) -> None:
    """Show what became of the conversation itself, wherever it was said, in every chat that mirrors it and did not ask."""
    _show(tx, turn.session, text, turn.reply, turn.profile, turn.owner, turn.id, now)


def _where(reply: Target | None, surface: str) -> str:
    return reply.platform if reply else surface


def _show(
    tx: Transaction,
    session: SessionId,
    text: str,
    asked: Target | None,
    profile: str,
    owner: str,
    turn: TurnId | None,
    now: datetime,
    media: Sequence[Media] = (),
) -> None:
    shown = {asked.key} if asked else set[str]()
    for lane in lanes.mirrors(tx, session):
        if lane.target.key not in shown:
            shown.add(lane.target.key)
            deliveries.enqueue(
                tx,
                lane.target,
                text,
                profile=profile,
                owner=owner,
                session=session,
                turn=turn,
                media=media,
                now=now,
            )
