"""Convert values of the hub to types of the API schema."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, assert_never

import msgspec

from keryx.core import codec, compaction
from keryx.core import messages as core
from keryx.core.access import Grant, Pairing
from keryx.core.changes import DraftChunk
from keryx.core.deliveries import Delivery, Wait
from keryx.core.errors import NotFound
from keryx.core.ids import is_temporary
from keryx.core.media import Media, filter_media
from keryx.core.messages import Message, Part, TurnVersion
from keryx.core.questions import AskedQuestion
from keryx.core.sessions import SessionListItem, Tag
from keryx.core.source import Source
from keryx.core.texts import ENGLISH, ERROR_AREAS, StoredPhrase, Texts
from keryx.core.turns import Turn
from keryx.core.usage import Tokens, UsageTotal
from keryx.engine.hub.trace import MessageTrace
from keryx.engine.hub.views import (
    ActiveTurn,
    AnswerFacts,
    Answering,
    Epoch,
    Lane,
    LineageEntry,
    Project,
    SessionListPage,
)
from keryx.engine.units.usage import SpendingReport
from keryx.markdown import MAX_CHARS, html
from keryx.surfaces.web import schema
from keryx.surfaces.web.stream.incremental_renderer import IncrementalRenderer

Render: TypeAlias = Callable[[str], str]
_MAX_TOOL_CHARS = 4_000
_MAX_TEXT_CHARS = 300_000
# Markup of this length takes a few milliseconds at most, so the event loop may render it.
_QUICK_CHARS = 400
_MAX_INPUT_LINE_CHARS = 120
_MAX_SUMMARY_CHARS = 2_000
_MAX_ASKED_CHARS = 200


class RenderBudget:
    """Renders the texts of one response in one thread. When its processor time is used up, or the time that another process
    may take, it returns further texts without markup, so that a conversation full of long texts opens, too."""

    def __init__(self, seconds: float = 1.0, *, elapsed: float = 3.0) -> None:
        self._end = time.thread_time() + seconds
        self._deadline = time.monotonic() + elapsed

    def render(self, text: str) -> str:
        in_time = time.thread_time() < self._end and time.monotonic() < self._deadline
        return html.render(text) if in_time else html.render_plain(text)


def session(listed: SessionListItem, *, read: int | None = None) -> schema.SessionSchema:
    value = listed.session
    origin = value.origin or Source(platform=value.surface)
    return schema.SessionSchema(
        id=value.id,
        surface=value.surface,
        created_at=value.created_at,
        active_at=value.active_at,
        title=value.title or listed.opening,
        title_by=value.title_by,
        platform=origin.platform,
        place=origin.chat_name or origin.topic or origin.user_name or "",
        activity=listed.activity,
        read=read,
        project=value.project,
        tags=list(listed.tags),
        pinned=value.pinned,
        archived=value.archived,
        temporary=is_temporary(value.id),
        deleted_at=value.deleted_at,
        erase_at=value.erase_at,
        ended_at=value.ended_at,
        end_reason=value.end_reason,
        parent=value.parent,
        parent_seq=value.parent_seq,
        cwd=value.cwd,
        settings=value.settings,
        epoch=value.epoch,
        last_seq=value.last_seq,
        messages=value.messages,
        turns=value.turns,
        tokens=value.tokens,
        cost=value.cost,
        cost_status=value.cost_status,
        context_used=value.context_used,
        context_limit=value.context_limit,
    )


def session_page(page: SessionListPage) -> schema.SessionPage:
    return schema.SessionPage(
        sessions=[session(e, read=page.read[e.session.id]) for e in page.listed], next=page.next
    )


def is_quick(message: Message) -> bool:
    """Return whether the HTML of a message is made so quickly that the event loop may do it."""
    return (
        sum(len(part.text) for part in message.parts if isinstance(part, core.Text | core.Reasoning))
        <= _QUICK_CHARS
    )


def message(
    message: Message,
    *,
    full: bool = False,
    render: Render = html.render,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> schema.MessageSchema:
    """Present a message with its HTML. Long text, tool input and output are truncated unless `full`."""
    return schema.MessageSchema(
        id=message.id,
        session=message.session,
        seq=message.seq,
        role=message.role,
        at=message.at,
        parts=[_part(p, None if full else _MAX_TOOL_CHARS, render, sizes) for p in message.parts],
        turn=message.turn,
        epoch=message.epoch,
        author=message.author,
        surface=message.surface,
        client=message.platform_id if message.surface == "web" else "",
        mark=message.mark,
        observed=message.observed,
        undone=message.undone,
    )


def answer(facts: AnswerFacts) -> schema.AnswerFactsSchema:
    used, begin, end = facts.usage, facts.started_at, facts.finished_at
    return schema.AnswerFactsSchema(
        turn=facts.turn,
        model=used.model if used else "",
        seconds=round((end - begin).total_seconds(), 1) if begin and end else None,
        tokens=used.tokens if used else Tokens(),
        cost=used.cost if used else None,
        estimated=used is not None and used.cost is not None and used.estimated,
    )


def answering(found: Answering) -> schema.AnsweringSchema:
    return schema.AnsweringSchema(
        agent=found.agent, models={agent: list(names) for agent, names in found.models.items()}
    )


def versions(known: Sequence[TurnVersion]) -> schema.Versions:
    return schema.Versions(
        questions=[
            [schema.Version(turn=v.turn, seq=v.seq) for v in group] for group in core.group_versions(known)
        ],
        hidden=sorted(core.find_hidden_undos(known)),
    )


def turn(turn: Turn) -> schema.TurnSchema:
    return schema.TurnSchema(
        id=turn.id,
        session=turn.session,
        state=turn.state,
        mode=turn.mode,
        created_at=turn.created_at,
        input_seq=turn.input_seq,
        surface=turn.surface,
        attempts=turn.attempts,
        started_at=turn.started_at,
        finished_at=turn.finished_at,
        cancelling=turn.cancelling,
        error=turn.error,
        merged_into=turn.merged_into,
        to=str(turn.reply) if turn.reply else "",
        held_until=turn.hold.until if turn.hold else None,
        held_by=turn.hold.model if turn.hold else "",
    )


def queued_turn(queued: Turn, input: Message, *, render: Callable[[str], str]) -> schema.Waiting:
    return schema.Waiting(turn=turn(queued), message=message(input, render=render))


def draft(running: Turn, pieces: list[DraftChunk]) -> schema.Draft:
    """Present the draft of a turn, split into blocks as the stream splits it."""
    parts: list[schema.DraftPart] = []
    for step in IncrementalRenderer(MAX_CHARS).add(pieces):
        parts.append(
            schema.DraftPart(
                thought=step.thought,
                text=step.text,
                blocks=step.blocks or [],
                media=media(step.media) if step.media else None,
            )
        )
    return schema.Draft(turn=running.id, n=pieces[-1].n if pieces else 0, parts=parts)


def delivery(delivery: Delivery, texts: Texts = ENGLISH, wait: Wait | None = None) -> schema.DeliverySchema:
    return schema.DeliverySchema(
        id=delivery.id,
        target=str(delivery.target),
        platform=delivery.target.platform,
        text=delivery.text[:_MAX_TOOL_CHARS],
        state=delivery.state,
        attempts=delivery.attempts,
        created_at=delivery.created_at,
        session=delivery.session,
        turn=delivery.turn,
        parts_sent=delivery.parts_sent,
        not_before=delivery.not_before if delivery.not_before > delivery.created_at else None,
        error=texts.render_stored(delivery.error, *ERROR_AREAS) if delivery.error else delivery.error,
        sent_at=delivery.sent_at,
        account=delivery.target.account,
        waits=wait.reason if wait else None,
        waits_until=wait.until if wait else None,
    )


def question(question: AskedQuestion) -> schema.QuestionSchema:
    return schema.QuestionSchema(
        id=question.id,
        session=question.session,
        turn=question.turn,
        title=question.question.title,
        phrase=_phrase(question.question.phrase),
        state=question.state.value,
        asked_at=question.created_at,
        detail=question.question.detail,
        tool=question.question.tool,
        options=[
            schema.OptionSchema(id=o.id, label=o.label, consent=o.consent, phrase=_phrase(o.phrase))
            for o in question.question.options
        ],
        answer=question.answer,
        note=str(question.note),
        expires_at=question.expires_at,
    )


def _phrase(phrase: StoredPhrase | None) -> schema.PhraseSchema | None:
    return schema.PhraseSchema(key=phrase.key, fields=dict(phrase.fields)) if phrase else None


def epoch(epoch: Epoch, *, render: Callable[[str], str]) -> schema.EpochSchema:
    return schema.EpochSchema(
        number=epoch.number,
        first_seq=epoch.first_seq,
        summary=epoch.summary,
        html=render(epoch.summary),
        created_at=epoch.created_at,
    )


def project(project: Project) -> schema.ProjectSchema:
    return schema.ProjectSchema(
        id=project.id,
        name=project.name,
        created_at=project.created_at,
        colour=project.colour,
        sessions=project.sessions,
    )


def tag(tag: Tag) -> schema.TagSchema:
    return schema.TagSchema(
        id=tag.id, name=tag.name, created_at=tag.created_at, colour=tag.colour, sessions=tag.sessions
    )


def lane(lane: Lane, *, title: str = "") -> schema.LaneSchema:
    return schema.LaneSchema(
        id=encode_lane_id(lane.key),
        key=lane.key,
        platform=lane.source.platform,
        chat_type=lane.source.chat_type.value,
        shared=lane.shared,
        suspended=lane.suspended,
        created_at=lane.created_at,
        active_at=lane.active_at,
        session=lane.session,
        title=title,
        place=lane.source.chat_name or "",
        chat=lane.source.chat or "",
        account=lane.source.account or "",
        person=lane.source.user_name or "",
        topic=lane.source.topic or "",
        expires_at=lane.expires_at,
    )


def encode_lane_id(key: str) -> str:
    """Encode the key of a lane as a URL path segment."""
    return codec.encode_base64url(key.encode())


def decode_lane_id(id_: str) -> str:
    return _decode_id(id_)


def message_trace(trace: MessageTrace, texts: Texts) -> schema.Story:
    return schema.Story(
        message=trace.message.id,
        outcome=texts.render(trace.outcome),
        events=[schema.StoryEvent(at=e.at, what=texts.render(e.what)) for e in trace.events],
    )


def board_row(active: ActiveTurn, texts: Texts) -> schema.Running:
    step = active.step
    return schema.Running(
        turn=turn(active.turn),
        session=session(active.listed),
        asked=core.read_text(active.message, texts)[:_MAX_ASKED_CHARS],
        step=f"{step.name} {_first_input_value(step.input)}".strip() if step else "",
        question=question(active.question) if active.question else None,
    )


def branch(entry: LineageEntry, *, render: Callable[[str], str]) -> schema.Branch:
    value = entry.listed.session
    return schema.Branch(
        id=value.id,
        title=value.title,
        created_at=value.created_at,
        active_at=value.active_at,
        last_seq=value.last_seq,
        parent=value.parent,
        parent_seq=value.parent_seq,
        activity=entry.listed.activity,
        archived=value.archived,
        ended_at=value.ended_at,
        end_reason=value.end_reason,
        epochs=[
            epoch(msgspec.structs.replace(e, summary=e.summary[:_MAX_SUMMARY_CHARS]), render=render)
            for e in entry.epochs
        ],
        after=entry.after,
        why=entry.why,
    )


def usage(report: SpendingReport) -> schema.UsageSchema:
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
            for row in report.days
        ],
        people=[_usage_share(row) for row in report.people],
        sessions=[_usage_share(row) for row in report.sessions],
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


def composer(text: str, files: Sequence[Part]) -> schema.Composer:
    return schema.Composer(text=text, media=[media(part) for part in filter_media(files)])


def pairing(pairing: Pairing) -> schema.PairingSchema:
    return schema.PairingSchema(
        id=encode_person_id(pairing.platform, pairing.person),
        platform=pairing.platform,
        person=pairing.person,
        created_at=pairing.told_at,
        expires_at=pairing.expires_at,
        name=pairing.name,
    )


def grant(grant: Grant) -> schema.GrantSchema:
    return schema.GrantSchema(
        id=encode_person_id(grant.platform, grant.person),
        platform=grant.platform,
        person=grant.person,
        at=grant.at,
        name=grant.name,
        by=grant.by,
        operator=grant.operator,
    )


def encode_person_id(platform: str, person: str) -> str:
    """Encode a person on a platform as a URL path segment."""
    return encode_lane_id(f"{platform}\0{person}")


def decode_person_id(id_: str) -> tuple[str, str]:
    platform, _, person = _decode_id(id_).partition("\0")
    return platform, person


def media(part: Media, *, size: int = 0) -> schema.Media:
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
        size=size,
    )


def _decode_id(id_: str) -> str:
    try:
        return codec.decode_base64url(id_).decode()
    except ValueError as exc:
        raise NotFound(f"there is nothing called {id_[:80]!r}: ask for the list, which has the ids") from exc


def _part(part: Part, cut: int | None, render: Render, sizes: Mapping[str, int]) -> schema.PartSchema:
    match part:
        case core.Text(text, phrase):
            visible = text if cut is None else text[:_MAX_TEXT_CHARS]
            return schema.TextSchema(
                text=visible, html=render(visible), cut=len(visible) < len(text), phrase=_phrase(phrase)
            )
        case core.Reasoning(text):
            visible = text if cut is None else text[:MAX_CHARS]
            return schema.ReasoningSchema(text=visible, html=render(visible), cut=len(visible) < len(text))
        case core.Notice(kind=kind):
            request = compaction.build_request(part)
            return schema.NoticeSchema(
                text=compaction.describe_notice(part, ENGLISH),
                kind=kind,
                phrase=_phrase(request.store()) if request else None,
            )
        case core.ToolCall(id_, name, input):
            return schema.ToolCallSchema(
                id=id_,
                name=name,
                input=input[:cut],
                main=_first_input_value(input),
                cut=cut is not None and len(input) > cut,
            )
        case core.ToolResult(id_, name, output, failed):
            long = cut is not None and len(output) > cut
            return schema.ToolResultSchema(id=id_, name=name, output=output[:cut], failed=failed, cut=long)
        case core.Image() | core.File() | core.Audio():
            return media(part, size=sizes.get(part.media, 0))
        case _:
            assert_never(part)


def _first_input_value(input: str) -> str:
    """Return the first value of a tool's input on one line, truncated."""
    try:
        value: Any = msgspec.json.decode(input[:20_000])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return input[:_MAX_INPUT_LINE_CHARS]
    values: list[object] = list(value.values()) if isinstance(value, dict) else [value]  # pyright: ignore[reportUnknownArgumentType]
    words = [str(v) for v in values if isinstance(v, str | int | float) and str(v).strip()]
    return " ".join(words[0].split())[:_MAX_INPUT_LINE_CHARS] if words else ""
