"""Convert values of the hub to types of the API schema."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from keryx.core import compaction
from keryx.core import messages as core
from keryx.core.access import Grant, Pairing
from keryx.core.changes import DraftChunk
from keryx.core.deliveries import Delivery
from keryx.core.errors import NotFound
from keryx.core.media import Media
from keryx.core.messages import Message, Part
from keryx.core.questions import AskedQuestion
from keryx.core.sessions import Session, SessionListItem
from keryx.core.source import Source
from keryx.core.turns import Turn
from keryx.core.usage import UsageTotal
from keryx.engine.hub.trace import MessageTrace
from keryx.engine.hub.views import (
    ActiveTurn,
    Epoch,
    Lane,
    LineageEntry,
    Project,
    SessionListPage,
    SpendingReport,
    UnsentMessage,
)
from keryx.markdown import html
from keryx.surfaces.web import schema
from keryx.surfaces.web.stream.incremental_renderer import IncrementalRenderer

_MAX_TOOL_CHARS = 4_000
_MAX_INPUT_LINE_CHARS = 120
_MAX_SUMMARY_CHARS = 2_000


def session(listed: SessionListItem, *, read: int | None = None) -> schema.SessionSchema:
    found = listed.session
    origin = found.origin or Source(platform=found.surface)
    return schema.SessionSchema(
        id=found.id,
        surface=found.surface,
        created_at=found.created_at,
        active_at=found.active_at,
        title=found.title,
        title_by=found.title_by,
        platform=origin.platform,
        place=_chat_label(origin),
        activity=listed.activity,
        read=read,
        project=found.project,
        pinned=found.pinned,
        archived=found.archived,
        deleted_at=found.deleted_at,
        ended_at=found.ended_at,
        end_reason=found.end_reason,
        parent=found.parent,
        parent_seq=found.parent_seq,
        cwd=found.cwd,
        settings=found.settings,
        epoch=found.epoch,
        last_seq=found.last_seq,
        messages=found.messages,
        turns=found.turns,
        tokens=found.tokens,
        cost=found.cost,
        cost_status=found.cost_status,
        context_used=found.context_used,
        context_limit=found.context_limit,
    )


def session_page(found: SessionListPage) -> schema.SessionPage:
    return schema.SessionPage(
        sessions=[session(e, read=found.read[e.session.id]) for e in found.listed], next=found.next
    )


def message(found: Message, *, full: bool = False) -> schema.MessageSchema:
    """A message with its html. Long tool input and output is cut unless it is asked for in `full`."""
    return schema.MessageSchema(
        id=found.id,
        session=found.session,
        seq=found.seq,
        role=found.role,
        at=found.at,
        parts=[_part(p, None if full else _MAX_TOOL_CHARS) for p in found.parts],
        turn=found.turn,
        epoch=found.epoch,
        author=found.author,
        surface=found.surface,
        client=found.platform_id if found.surface == "web" else "",
        mark=found.mark,
        observed=found.observed,
        undone=found.undone,
    )


def turn(found: Turn) -> schema.TurnSchema:
    return schema.TurnSchema(
        id=found.id,
        session=found.session,
        state=found.state,
        mode=found.mode,
        created_at=found.created_at,
        input_seq=found.input_seq,
        surface=found.surface,
        attempts=found.attempts,
        started_at=found.started_at,
        finished_at=found.finished_at,
        cancelling=found.cancelling,
        error=found.error,
        merged_into=found.merged_into,
        to=str(found.reply) if found.reply else "",
    )


def queued_turn(found: Turn, asked: Message) -> schema.Waiting:
    return schema.Waiting(turn=turn(found), message=message(asked))


def draft(running: Turn, pieces: list[DraftChunk]) -> schema.Draft:
    """What a turn has said so far, cut into blocks as the stream goes on cutting it."""
    parts: list[schema.DraftPart] = []
    for step in IncrementalRenderer().add(pieces):
        shown = media(step.media) if step.media else None
        parts.append(
            schema.DraftPart(thought=step.thought, text=step.text, blocks=step.blocks or [], media=shown)
        )
    return schema.Draft(turn=running.id, n=pieces[-1].n if pieces else 0, parts=parts)


def delivery(found: Delivery) -> schema.DeliverySchema:
    return schema.DeliverySchema(
        id=found.id,
        target=str(found.target),
        platform=found.target.platform,
        text=found.text[:_MAX_TOOL_CHARS],
        state=found.state,
        attempts=found.attempts,
        created_at=found.created_at,
        session=found.session,
        turn=found.turn,
        parts_sent=found.parts_sent,
        not_before=found.not_before if found.not_before > found.created_at else None,
        error=found.error,
        sent_at=found.sent_at,
    )


def question(found: AskedQuestion) -> schema.QuestionSchema:
    return schema.QuestionSchema(
        id=found.id,
        session=found.session,
        turn=found.turn,
        title=found.question.title,
        state=found.state.value,
        asked_at=found.created_at,
        detail=found.question.detail,
        tool=found.question.tool,
        options=[
            schema.OptionSchema(id=o.id, label=o.label, consent=o.consent) for o in found.question.options
        ],
        answer=found.answer,
        note=found.note,
        expires_at=found.expires_at,
    )


def epoch(found: Epoch) -> schema.EpochSchema:
    return schema.EpochSchema(
        number=found.number,
        first_seq=found.first_seq,
        summary=found.summary,
        html=html.render(found.summary),
        created_at=found.created_at,
    )


def project(found: Project) -> schema.ProjectSchema:
    return schema.ProjectSchema(
        id=found.id,
        name=found.name,
        created_at=found.created_at,
        colour=found.colour,
        sessions=found.sessions,
    )


def lane(found: Lane, *, title: str = "") -> schema.LaneSchema:
    return schema.LaneSchema(
        id=encode_lane_id(found.key),
        key=found.key,
        platform=found.source.platform,
        chat_type=found.source.chat_type.value,
        shared=found.shared,
        suspended=found.suspended,
        created_at=found.created_at,
        active_at=found.active_at,
        session=found.session,
        title=title,
        place=found.source.chat_name or "",
        person=found.source.user_name or "",
        topic=found.source.topic or "",
        expires_at=found.expires_at,
    )


def encode_lane_id(key: str) -> str:
    """A lane's key as a part of an address."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def decode_lane_id(id_: str) -> str:
    return _decode_id(id_)


def message_trace(found: MessageTrace) -> schema.Story:
    return schema.Story(
        message=found.message.id,
        outcome=found.outcome,
        events=[schema.StoryEvent(at=e.at, what=e.what) for e in found.events],
    )


def board_row(found: ActiveTurn) -> schema.Running:
    step = found.step
    return schema.Running(
        turn=turn(found.turn),
        session=session(found.listed),
        asked=found.input_text,
        step=f"{step.name} {_first_input_value(step.input)}".strip() if step else "",
        question=question(found.question) if found.question else None,
    )


def branch(found: LineageEntry) -> schema.Branch:
    it: Session = found.listed.session
    return schema.Branch(
        id=it.id,
        title=it.title,
        created_at=it.created_at,
        active_at=it.active_at,
        last_seq=it.last_seq,
        parent=it.parent,
        parent_seq=it.parent_seq,
        activity=found.listed.activity,
        archived=it.archived,
        ended_at=it.ended_at,
        end_reason=it.end_reason,
        epochs=[
            epoch(msgspec.structs.replace(e, summary=e.summary[:_MAX_SUMMARY_CHARS])) for e in found.epochs
        ],
        after=found.after,
        why=found.why,
    )


def usage(found: SpendingReport) -> schema.UsageSchema:
    return schema.UsageSchema(
        days=[
            schema.UsageRow(
                day=row.day.isoformat(),
                model=row.model,
                surface=row.surface,
                turns=row.turns,
                input=row.tokens.input,
                output=row.tokens.output,
                reasoning=row.tokens.reasoning,
                cache_read=row.tokens.cache_read,
                cache_write=row.tokens.cache_write,
                cost=row.cost,
                estimated=row.estimated,
            )
            for row in found.days
        ],
        people=[_usage_share(row) for row in found.people],
        sessions=[_usage_share(row) for row in found.sessions],
    )


def _usage_share(row: UsageTotal) -> schema.Spent:
    tokens = row.tokens
    return schema.Spent(
        id=row.key,
        name=row.label,
        calls=row.calls,
        tokens=tokens.input + tokens.output + tokens.reasoning + tokens.cache_read + tokens.cache_write,
        cost=row.cost if row.unpriced < row.calls else None,
        estimated=row.estimated,
    )


def composer(found: UnsentMessage, known: Mapping[str, Media]) -> schema.Composer:
    return schema.Composer(text=found.text, media=[media(known[m]) for m in found.media if m in known])


def pairing(found: Pairing) -> schema.PairingSchema:
    return schema.PairingSchema(
        id=encode_person_id(found.platform, found.person),
        platform=found.platform,
        person=found.person,
        created_at=found.told_at,
        expires_at=found.expires_at,
        name=found.name,
    )


def grant(found: Grant) -> schema.GrantSchema:
    return schema.GrantSchema(
        id=encode_person_id(found.platform, found.person),
        platform=found.platform,
        person=found.person,
        at=found.at,
        name=found.name,
        by=found.by,
        operator=found.operator,
    )


def encode_person_id(platform: str, person: str) -> str:
    """Somebody on a platform as a part of an address."""
    return encode_lane_id(f"{platform}\0{person}")


def decode_person_id(id_: str) -> tuple[str, str]:
    platform, _, person = _decode_id(id_).partition("\0")
    return platform, person


def media(part: Media) -> schema.Media:
    match part:
        case core.Image():
            kind = "image"
        case core.Audio():
            kind = "audio"
        case core.File():
            kind = "file"
    transcript = part.transcript if isinstance(part, core.Audio) else ""
    return schema.Media(
        media=part.media,
        url=f"/media/{part.media}",
        kind=kind,
        mime=part.mime,
        name=part.name,
        transcript=transcript,
    )


def _decode_id(id_: str) -> str:
    try:
        return base64.b64decode(id_ + "=" * (-len(id_) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as exc:
        raise NotFound(f"there is nothing called {id_[:80]!r}: ask for the list, which has the ids") from exc


def _chat_label(source: Source) -> str:
    return source.chat_name or source.topic or source.user_name or ""


def _part(part: Part, cut: int | None) -> schema.PartSchema:
    match part:
        case core.Text(text):
            shown = text if cut is None else text[: html.MAX_CHARS]
            return schema.TextSchema(text=shown, html=html.render(shown), cut=len(shown) < len(text))
        case core.Reasoning(text):
            return schema.ReasoningSchema(text=text, html=html.render(text))
        case core.Notice(kind=kind):
            return schema.NoticeSchema(text=compaction.describe_notice(part), kind=kind)
        case core.ToolCall(id_, name, given):
            return schema.ToolCallSchema(
                id=id_,
                name=name,
                input=given[:cut],
                main=_first_input_value(given),
                cut=cut is not None and len(given) > cut,
            )
        case core.ToolResult(id_, name, output, failed):
            long = cut is not None and len(output) > cut
            return schema.ToolResultSchema(id=id_, name=name, output=output[:cut], failed=failed, cut=long)
        case core.Image() | core.File() | core.Audio():
            return media(part)
        case _:
            assert_never(part)


def _first_input_value(given: str) -> str:
    """The first short value of a tool's input, for one line."""
    try:
        value: Any = msgspec.json.decode(given[:20_000])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return given[:_MAX_INPUT_LINE_CHARS]
    values: list[object] = list(value.values()) if isinstance(value, dict) else [value]  # pyright: ignore[reportUnknownArgumentType]
    words = [str(v) for v in values if isinstance(v, str | int | float) and str(v).strip()]
    return " ".join(words[0].split())[:_MAX_INPUT_LINE_CHARS] if words else ""
