"""Turns that programs ask for, through the OpenAI-compatible API or another protocol: recognise a repeated request, find the session that it continues, and queue the turn that answers it; and the conversations and answers that programs look at there."""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from keryx.core import codec, ids
from keryx.core.changes import DraftChunk
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import Cursor, SessionId, TurnId
from keryx.core.messages import (
    Audio,
    File,
    Image,
    Mark,
    Message,
    Notice,
    Part,
    Parts,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    is_active,
    parse_id,
)
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.ports.agent import RequestOptions
from keryx.core.questions import AskedQuestion
from keryx.core.sessions import API_SURFACE, Session, SessionSettings, TitleBy, Viewer
from keryx.core.source import Source
from keryx.core.turns import BusyMode, Turn, TurnState
from keryx.core.usage import Tokens
from keryx.engine.policy import Policy
from keryx.engine.units import control, receive, revisions
from keryx.engine.units import questions as question_units
from keryx.store import api_turns, changes, inbox, messages, questions, sessions, turns, usage
from keryx.store.api_turns import ApiConversation, ApiTurn, ApiTurnFilter, ChangePosition
from keryx.store.db import Transaction

DEFAULT_MODEL = "keryx"
"""The name under which a program asks for the agent and the model that the session or the settings have."""
ITEM_KIND = "item"
"""The kind of a notice that keeps an item of a conversation which is none of ours, as JSON."""
_TASK_TITLE = "Request of a program"
_REPEAT_WINDOW = timedelta(days=1)
_KEEP_TEMPORARY = timedelta(hours=1)


class PastMessage(msgspec.Struct, frozen=True):
    """A message as a program sends it."""

    role: Role
    parts: Parts


class ApiTurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a program asks for."""

    viewer: Viewer
    # The protocol that the program speaks, empty for the OpenAI-compatible API. Requests of different ones are never equal.
    protocol: str = ""
    # The name of a model or agent, or `DEFAULT_MODEL`.
    model: str
    # The messages before the question, as the program has them.
    history: tuple[PastMessage, ...] = ()
    # The results of tools and the messages to answer. The last one begins the turn.
    inputs: tuple[PastMessage, ...]
    options: RequestOptions = RequestOptions()
    # What the answer repeats of the request.
    echo: dict[str, object] = {}
    # The header Idempotency-Key, empty without one.
    key: str = ""
    # The program says that it repeats a request.
    repeated: bool = False
    # An equal request whose answer no client has received is the same one, also under another key.
    rejoins: bool = False
    # The name of the conversation with the kind of the name, empty without one.
    thread: str = ""
    # The program sends the whole conversation each time, so that it can go back in it.
    keeps_history: bool = False
    # The conversation or the answer that is to be continued.
    session: SessionId | None = None
    previous: TurnId | None = None
    # Nothing is to be kept.
    temporary: bool = False
    # The tools of the agent are not offered.
    without_tools: bool = False
    language: str | None = None


class SubmittedTurn(msgspec.Struct, frozen=True):
    turn: TurnId
    session: SessionId
    # The same was asked before.
    duplicate: bool
    # What the program should know about its request.
    note: str = ""


class ApiTurnView(msgspec.Struct, frozen=True, kw_only=True):
    """A turn with its output, all from one read. Following from `cursor` misses nothing."""

    asked: ApiTurn
    turn: Turn
    # What the turn consists of, the question included.
    messages: list[Message]
    draft: list[DraftChunk]
    # Of all calls of models.
    tokens: Tokens
    cursor: Cursor
    # What the agent waits for a person to answer.
    question: AskedQuestion | None = None


class ApiTurnPage(msgspec.Struct, frozen=True):
    views: list[ApiTurnView]
    # How many there are on all pages, at most `MAX_COUNT`.
    total: int
    # Where the next page begins.
    next: ChangePosition | None


MAX_COUNT = 10_000
# Of all turns of a page.
_MAX_PAGE_CHARS = 5_000_000


def submit(tx: Transaction, asked: ApiTurnRequest, *, policy: Policy) -> SubmittedTurn:
    """Queue the turn that answers a request, in the session that it continues or in a new one.

    A repeated request returns the first turn: one with the same key, or an equal one whose answer no client has received
    completely. Raise `Conflict` if the key was used for something else, `NotFound` for an unknown model or conversation."""
    settings = find_settings(policy, asked.model)
    thread = _hash(asked, "thread", asked.thread) if asked.thread else ""
    prefix = hash_messages(asked, (*asked.history, *asked.inputs))
    if place := asked.session or asked.previous or (not asked.keeps_history and thread):
        # The messages are not the whole conversation.
        prefix = _hash(asked, place, prefix)
    fingerprint = _hash(
        asked,
        codec.dumps(
            [prefix, thread, asked.session, asked.previous, asked.model, asked.options, asked.temporary]
        ),
        *filter(None, [asked.protocol]),
    )
    earlier = api_turns.list_by_fingerprint(tx, fingerprint, since=tx.now - _REPEAT_WINDOW)
    event = f"{asked.viewer.principal}:{asked.key or f'{fingerprint}.{len(earlier)}'}"
    digest = fingerprint if asked.key else ""
    receipt = inbox.find_receipt(tx, platform=API_SURFACE, account="", event=event, digest=digest)
    if receipt and receipt.turn and receipt.session:
        if turns.find(tx, receipt.turn) is None:
            raise NotFound("what was asked under this key was deleted: choose a new key")
        return SubmittedTurn(receipt.turn, receipt.session, True)
    known = None if asked.key and not asked.rejoins else _find_repeated(tx, asked, earlier)
    if known:
        return SubmittedTurn(known.turn, known.session, True)
    session = _find_session(tx, asked, thread) or _create_session(tx, asked, settings)
    _apply_settings(tx, session, asked, settings)
    source = _build_source(asked)
    options, note = _limit_options(tx, asked, session, source, policy)
    *context, last = asked.inputs
    _append_all(tx, session, asked, context)
    receipt = receive.receive(
        tx,
        InboundMessage(
            event=event,
            source=source,
            parts=last.parts,
            surface=API_SURFACE,
            session=session,
            principal=asked.viewer.principal,
            busy=BusyMode.QUEUE,
            commands=False,
            digest=digest,
        ),
        policy=policy,
    )
    assert receipt.turn is not None
    if note and not api_turns.list_after(tx, session, after=0):
        messages.append(tx, session, Role.NOTICE, (Notice(note),), turn=receipt.turn, surface=API_SURFACE)
    api_turns.add(
        tx,
        ApiTurn(
            turn=receipt.turn,
            session=session,
            fingerprint=fingerprint,
            prefix=prefix,
            thread=thread,
            options=options,
            echo=asked.echo,
            temporary=asked.temporary,
            created_at=tx.now,
        ),
    )
    return SubmittedTurn(receipt.turn, session, False, note)


def _limit_options(
    tx: Transaction, asked: ApiTurnRequest, session: SessionId, source: Source, policy: Policy
) -> tuple[RequestOptions, str]:
    """Return the options of a request that its agent can heed, and a note about the others. Raise `Invalid` for results of
    tools that it cannot have called."""
    settings = sessions.get(tx, session).settings
    agent = policy.choose_agent(settings, source, profile=asked.viewer.profile)
    if agent in policy.model_agents:
        return asked.options, ""
    if any(isinstance(part, ToolResult) for past in asked.inputs for part in past.parts):
        raise Invalid(f"the agent {agent!r} has called no tool of yours: send a message to it")
    if not asked.options.tools and not asked.options.parameters:
        return asked.options, ""
    note = f"the agent {agent!r} is not a model, so the tools and parameters of the request were ignored"
    return msgspec.structs.replace(asked.options, tools=(), parameters={}), note


def find_settings(policy: Policy, model: str) -> SessionSettings:
    """Return the settings that the name of a model or agent stands for. Raise `NotFound` for an unknown name."""
    if model == DEFAULT_MODEL:
        return SessionSettings()
    if model in policy.agents:
        return SessionSettings(agent=model)
    if model not in policy.models:
        known = ", ".join((DEFAULT_MODEL, *policy.models, *policy.agents))
        raise NotFound(f"there is no model {model[:80]!r}: there are {known}")
    usable = [name for name in policy.agents if name in policy.model_agents]
    return SessionSettings(agent=None if policy.agents[:1] == tuple(usable[:1]) else usable[0], model=model)


def hash_messages(asked: ApiTurnRequest, said: Sequence[PastMessage]) -> str:
    """Return a hash of messages of one person. Space around a text does not count, nor how parts are joined to messages."""
    flat = [(past.role, _describe(part)) for past in said for part in past.parts]
    return _hash(asked, codec.dumps([(role, part) for role, part in flat if part]))


def _hash(asked: ApiTurnRequest, *texts: str) -> str:
    viewer = asked.viewer
    return hashlib.sha256(codec.dumps([viewer.profile, viewer.principal, *texts]).encode()).hexdigest()


def _describe(part: Part) -> object:
    match part:
        case Text(text):
            return text.strip()
        case ToolCall():
            return [part.id, part.name]
        case ToolResult():
            return [part.id, part.output.strip()]
        case Reasoning() | Notice():
            return None
        case Image() | File() | Audio():
            return part.media


def _find_repeated(tx: Transaction, asked: ApiTurnRequest, earlier: Sequence[ApiTurn]) -> ApiTurn | None:
    """Return the last turn of an equal request, unless it failed, or its answer was received and this asks for another."""
    if not earlier or sessions.get(tx, earlier[0].session, deleted=True).deleted_at is not None:
        return None
    turn = turns.get(tx, earlier[0].turn)
    waits = turn.state is TurnState.DONE and (asked.repeated or earlier[0].taken_at is None)
    return earlier[0] if waits or not turn.state.finished else None


def _find_session(tx: Transaction, asked: ApiTurnRequest, thread: str) -> SessionId | None:
    """Return the session that a request continues, perhaps a new copy of its beginning; `None` to begin one."""
    if asked.temporary:
        return None
    if asked.session:
        if sessions.exists(tx, asked.session):
            return sessions.get(tx, asked.session, viewer=asked.viewer).id
        if api_turns.find_conversation(tx, asked.viewer, asked.session) is None:
            raise NotFound(f"there is no conversation {asked.session!r}")
        return None
    if asked.previous:
        known = get(tx, asked.viewer, asked.previous)
        return _continue_after(tx, sessions.get(tx, known.session, viewer=asked.viewer), known, "")
    last = api_turns.find_by_thread(tx, thread) if thread else None
    session = _find_live(tx, asked.viewer, last.session) if last else None
    if session and not asked.keeps_history:
        return session.id
    known = _find_continued(tx, asked, thread if session else None)
    found = _find_live(tx, asked.viewer, known.session) if known else None
    if found:
        return _continue_after(tx, found, known, thread)
    if session and any(past.role is Role.ASSISTANT for past in asked.history):
        # The program has changed what it sends of the past, such as the passages that it found for a question.
        return session.id
    return _continue_after(tx, session, None, thread) if session and _asks_again(tx, session, asked) else None


def _asks_again(tx: Transaction, session: Session, asked: ApiTurnRequest) -> bool:
    """Whether a request wants another answer to the first question of a session."""
    first = next(iter(messages.list_after(tx, session.id, after=0, limit=1)), None)
    said = () if first is None else (PastMessage(first.role, first.parts),)
    return not asked.history and hash_messages(asked, said) == hash_messages(asked, asked.inputs)


def _find_live(tx: Transaction, viewer: Viewer, session: SessionId) -> Session | None:
    found = sessions.get(tx, session, deleted=True)
    return found if found.deleted_at is None and viewer.sees(found.profile, found.owner) else None


def _find_continued(tx: Transaction, asked: ApiTurnRequest, thread: str | None) -> ApiTurn | None:
    """Return the turn whose answer the history of a request ends with, in a thread or in any."""
    end = len(asked.history)
    while end and asked.history[end - 1].role in (Role.ASSISTANT, Role.NOTICE):
        end -= 1
    answer = [part for past in asked.history[end:] for part in past.parts]
    if not answer:
        return None
    for known in api_turns.list_by_prefix(tx, hash_messages(asked, asked.history[:end])):
        if known.temporary or (thread is not None and known.thread != thread):
            continue
        # What the last attempt at a turn has said.
        turn = turns.get(tx, known.turn)
        entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
        said = [
            m for m in entries if m.role is Role.ASSISTANT and m.mark not in (Mark.INTERRUPTED, Mark.LATE)
        ]
        texts = [part.text.strip() for m in said for part in m.parts if isinstance(part, Text)]
        sent = "".join(part.text for part in answer if isinstance(part, Text))
        calls = {part.id for part in answer if isinstance(part, ToolCall)}
        made = {call.id for m in said for call in m.calls}
        if all(text in sent for text in texts) and (texts or not sent.strip()) and calls <= made:
            return known
    return None


def _continue_after(
    tx: Transaction, session: Session, known: ApiTurn | None, thread: str
) -> SessionId | None:
    """Return the session in which a program goes on after a turn, or from the beginning.

    What people said there since on other surfaces stays. If the program itself has gone on from there before, that is undone
    in a conversation that it has named, and else kept: a copy begins there."""
    asked_later = api_turns.list_after(tx, session.id, after=known.position if known else 0)
    questions = [messages.get(tx, session.id, turns.get(tx, asked.turn).input_seq) for asked in asked_later]
    later = next(filter(is_active, questions), None)
    if later is None:
        return session.id
    others = any(
        m.role is Role.USER and m.surface != API_SURFACE and is_active(m)
        for m in messages.list_after(tx, session.id, after=later.seq)
    )
    if thread and not others and all(asked.thread == thread for asked in asked_later):
        control.stop(tx, session.id, queue=True)
        if turns.has_open(tx, session.id):
            return session.id
        try:
            revisions.undo(tx, session, message=later.seq)
            return session.id
        except (Conflict, NotFound):
            # It cannot be undone any more.
            pass
    if known is None:
        return None
    turn = turns.get(tx, known.turn)
    through = messages.list_for_turn(tx, session.id, turn.id, first=turn.input_seq)[-1].seq
    return revisions.fork(tx, session, surface=API_SURFACE, through=through).id


def _build_source(asked: ApiTurnRequest) -> Source:
    viewer = asked.viewer
    return Source(
        platform=API_SURFACE,
        chat=viewer.principal,
        user=viewer.principal,
        profile=viewer.profile,
        language=asked.language,
    )


def _create_session(tx: Transaction, asked: ApiTurnRequest, settings: SessionSettings) -> SessionId:
    """Begin a session with what a program says was said before."""
    if asked.without_tools:
        settings = msgspec.structs.replace(settings, tools=())
    session = sessions.create(
        tx,
        id=asked.session,
        profile=asked.viewer.profile,
        owner=asked.viewer.principal,
        surface=API_SURFACE,
        origin=_build_source(asked),
        settings=settings,
    )
    if asked.temporary:
        # Not in lists, and no model is asked for a title.
        sessions.set_archived(tx, sessions.get(tx, session), True)
        sessions.rename(tx, sessions.get(tx, session), _TASK_TITLE, by=TitleBy.RULE)
    _append_all(tx, session, asked, asked.history)
    return session


def _apply_settings(
    tx: Transaction, session: SessionId, asked: ApiTurnRequest, settings: SessionSettings
) -> None:
    """Give a session the model that a request names."""
    row = sessions.get(tx, session)
    if asked.model == DEFAULT_MODEL:
        return
    wanted = msgspec.structs.replace(row.settings, agent=settings.agent, model=settings.model)
    if wanted != row.settings:
        sessions.set_settings(tx, row, wanted)


def _append_all(
    tx: Transaction, session: SessionId, asked: ApiTurnRequest, entries: Sequence[PastMessage]
) -> list[int]:
    return [
        messages.append(
            tx,
            session,
            past.role,
            past.parts,
            surface=API_SURFACE,
            said_by=asked.viewer.principal if past.role is Role.USER else None,
        )
        for past in entries
    ]


def get(tx: Transaction, viewer: Viewer, turn: TurnId) -> ApiTurn:
    """Return a turn that was asked for through the API. Raise `NotFound` if there is none that the viewer may see."""
    known = api_turns.find(tx, turn)
    session = sessions.get(tx, known.session, deleted=True) if known else None
    if (
        known is None
        or session is None
        or session.deleted_at is not None
        or not viewer.sees(session.profile, session.owner)
    ):
        raise NotFound(f"there is no response {turn[:80]!r}, or it is not yours")
    return known


def load_view(tx: Transaction, viewer: Viewer, turn: TurnId) -> ApiTurnView:
    asked = get(tx, viewer, turn)
    row = turns.get(tx, turn)
    calls = usage.list_for_turn(tx, row) if row.state.finished else []
    return ApiTurnView(
        asked=asked,
        turn=row,
        messages=messages.list_for_turn(tx, row.session, turn, first=row.input_seq),
        draft=turns.list_draft_pieces(tx, turn),
        tokens=Tokens(input=sum(call.input for call in calls), output=sum(call.output for call in calls)),
        cursor=changes.get_head(tx),
        question=None if row.state.finished else _find_question(tx, row),
    )


def _find_question(tx: Transaction, turn: Turn) -> AskedQuestion | None:
    return next((q for q in questions.list_open(tx, turn.session) if q.turn == turn.id), None)


def list_page(
    tx: Transaction, viewer: Viewer, wanted: ApiTurnFilter, *, before: ChangePosition | None, limit: int
) -> ApiTurnPage:
    """Return turns that programs asked for, the one that changed last first; fewer than `limit` if they are very long."""
    found = api_turns.list_changed(tx, viewer, wanted, before=before, limit=limit + 1)
    views: list[ApiTurnView] = []
    chars = 0
    while len(views) < min(limit, len(found)) and chars < _MAX_PAGE_CHARS:
        views.append(load_view(tx, viewer, found[len(views)][0]))
        chars += sum(_measure(part) for m in views[-1].messages for part in m.parts)
    return ApiTurnPage(
        views,
        api_turns.count_changed(tx, viewer, wanted, most=MAX_COUNT),
        found[len(views) - 1][1] if len(found) > len(views) else None,
    )


def _measure(part: Part) -> int:
    """Return about how many characters a part has."""
    match part:
        case Text() | Reasoning():
            return len(part.text)
        case ToolCall():
            return len(part.input)
        case ToolResult():
            return len(part.output)
        case _:
            return 0


def find_context(tx: Transaction, viewer: Viewer, name: str, thread: str = "") -> SessionId | None:
    """Return the session that a program means by its id or, with `thread`, by the name that the program gave to it."""
    try:
        return get_conversation(tx, viewer, SessionId(name)).session
    except NotFound:
        if not thread:
            return None
        asked = ApiTurnRequest(viewer=viewer, model=DEFAULT_MODEL, inputs=())
        last = api_turns.find_by_thread(tx, _hash(asked, "thread", thread))
        found = _find_live(tx, viewer, last.session) if last else None
        return found.id if found else None


def answer_question(tx: Transaction, viewer: Viewer, turn: TurnId, text: str, *, key: str) -> None:
    """Answer what the agent of a turn waits for. A repeated answer, with the same key, has no effect.

    Raise `Conflict` if the agent waits for nothing, `Invalid` for a text that is not an answer."""
    asked = get(tx, viewer, turn)
    event, digest = f"{viewer.principal}:{key}", hashlib.sha256(f"{turn} {text}".encode()).hexdigest()
    if inbox.find_receipt(tx, platform=API_SURFACE, account="", event=event, digest=digest):
        return
    question = _find_question(tx, turns.get(tx, turn))
    if question is None:
        raise Conflict("the agent waits for no answer: send a message of its own")
    question_units.record_answer(tx, question, viewer, text)
    receipt = Receipt(duplicate=False, session=asked.session, turn=turn)
    inbox.record(tx, receipt, platform=API_SURFACE, account="", event=event, digest=digest)


def take(tx: Transaction, viewer: Viewer, turn: TurnId) -> None:
    """Record that a client has received the whole answer. A temporary session is erased now. What is deleted already stays so."""
    asked = get(tx, viewer, turn) if api_turns.find(tx, turn) else None
    if asked is None:
        return
    if asked.temporary:
        sessions.erase(tx, sessions.get(tx, asked.session))
    else:
        api_turns.mark_taken(tx, turn)


def remove(tx: Transaction, viewer: Viewer, turn: TurnId, *, grace: timedelta) -> None:
    """Forget an answer of the API and stop its turn. The session is deleted if it consists of this turn."""
    asked = get(tx, viewer, turn)
    session = sessions.get(tx, asked.session)
    control.cancel(tx, turn)
    api_turns.remove(tx, turn)
    if session.turns <= 1 and not turns.list_queued(tx, session.id):
        control.delete(tx, session, grace=grace)


def erase_abandoned(tx: Transaction, *, now: datetime) -> bool:
    """Erase the temporary sessions that no program has asked about for a while. Return whether there may be more."""
    abandoned = api_turns.list_abandoned(tx, before=now - _KEEP_TEMPORARY)
    ended = {turn.session for turn in turns.get_many(tx, [a.turn for a in abandoned]) if turn.state.finished}
    # Another node may have been faster.
    found = sessions.get_many(tx, ended)
    for session in found:
        sessions.erase(tx, session)
    return bool(found)


def create_conversation(
    tx: Transaction, viewer: Viewer, entries: Sequence[PastMessage], metadata: dict[str, str]
) -> ApiConversation:
    """Create a conversation. Its session begins with the first message."""
    created = ApiConversation(
        session=SessionId(ids.new(tx.now)), viewer=viewer, metadata=metadata, created_at=tx.now
    )
    api_turns.save_conversation(tx, created)
    add_messages(tx, viewer, created.session, entries)
    return created


def get_conversation(tx: Transaction, viewer: Viewer, session: SessionId) -> ApiConversation:
    """Return a conversation, or any session of the viewer as one. Raise `NotFound` if there is neither."""
    found = api_turns.find_conversation(tx, viewer, session)
    if sessions.exists(tx, session):
        row = sessions.get(tx, session, viewer=viewer)
        metadata = found.metadata if found else {}
        return ApiConversation(session=session, viewer=viewer, metadata=metadata, created_at=row.created_at)
    if found is None:
        raise NotFound(f"there is no conversation {session[:80]!r}, or it is not yours")
    return found


def set_metadata(
    tx: Transaction, viewer: Viewer, session: SessionId, metadata: dict[str, str]
) -> ApiConversation:
    changed = msgspec.structs.replace(get_conversation(tx, viewer, session), metadata=metadata)
    api_turns.save_conversation(tx, changed)
    return changed


def remove_conversation(tx: Transaction, viewer: Viewer, session: SessionId, *, grace: timedelta) -> None:
    get_conversation(tx, viewer, session)
    api_turns.remove_conversation(tx, session)
    if sessions.exists(tx, session):
        control.delete(tx, sessions.get(tx, session, viewer=viewer), grace=grace)


def add_messages(
    tx: Transaction, viewer: Viewer, session: SessionId, entries: Sequence[PastMessage]
) -> list[Message]:
    """Append messages that no turn answers, and return them."""
    get_conversation(tx, viewer, session)
    asked = ApiTurnRequest(viewer=viewer, model=DEFAULT_MODEL, inputs=(), session=session)
    if entries and not sessions.exists(tx, session):
        _create_session(tx, asked, SessionSettings())
    added = _append_all(tx, session, asked, entries)
    return [messages.get(tx, session, seq) for seq in added]


def remove_parts(tx: Transaction, viewer: Viewer, message_id: str, parts: Sequence[Part]) -> None:
    """Take parts out of a message. Without any left, the message is withdrawn: the model does not see it."""
    session, seq = parse_id(message_id)
    sessions.lock(tx, session)
    message = messages.get(tx, sessions.get(tx, session, viewer=viewer).id, seq)
    left = tuple(part for part in message.parts if part not in parts)
    if left:
        messages.replace_parts(tx, message, left)
    else:
        messages.set_mark(tx, message, Mark.WITHDRAWN)
