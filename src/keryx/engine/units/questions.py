"""Questions of agents: ask one, record and take its answer, match a message to an open question, forget consents, and the buttons under a question."""

from datetime import timedelta

from keryx.core import questions as core
from keryx.core import sessions as core_sessions
from keryx.core.deliveries import Delivery
from keryx.core.errors import Conflict, Forbidden, Invalid, NotFound
from keryx.core.ids import DeliveryId, QuestionId, SessionId, TurnId
from keryx.core.messages import Parts, Text
from keryx.core.questions import AskedQuestion, Button, Consent, Question, QuestionState
from keryx.core.sessions import JOB_SURFACE, PermissionMode, Session, Viewer
from keryx.core.texts import Phrase
from keryx.core.turns import Turn
from keryx.engine.units import answers
from keryx.store import deliveries, people, questions, sessions, turns
from keryx.store.db import Transaction

ALL_TOOLS = "all"


def forget_consents(tx: Transaction, session: Session, tool: str) -> list[str]:
    """Remove the lasting consents for a tool, or one by its rule, or all of a session with `ALL_TOOLS`. Return the rules.

    Raise `NotFound` if none exists."""
    owner = Viewer(session.profile, session.owner)
    tools = [c.tool for c in questions.list_consents(tx, owner, session=session.id)]
    removed = [rule for rule in tools if tool == ALL_TOOLS or core.is_about(rule, tool)]
    for name in removed:
        questions.remove_consent(tx, session.id, name)
    if not removed:
        if not tools:
            raise NotFound(Phrase("consent.unknown_none", name=repr(tool[:80])))
        raise NotFound(Phrase("consent.unknown", name=repr(tool[:80]), choices=", ".join(tools)))
    return removed


def ask(tx: Transaction, turn: Turn, question: Question, *, shared: bool, limit: timedelta) -> None:
    """Store a question of a running turn and send it to the chat that asked. A lasting consent answers it at once, and
    nothing is sent. Idempotent."""
    turns.lock(tx, turn)
    earlier_question = questions.find_by_key(tx, turn.id, question.key)
    if earlier_question is not None:
        if earlier_question.state is QuestionState.OPEN:
            questions.set_expiry(tx, earlier_question, tx.now + limit)
        return
    for earlier in questions.list_open(tx, turn.session):
        # The same question of an earlier turn is replaced by this one.
        if earlier.left and core.is_same(earlier.question, question):
            questions.close(tx, earlier, QuestionState.CANCELLED)
    consent = _find_consent(tx, turn, question)
    answer = (
        core.find_remembered_answer(question, consent)
        if consent
        else _take_earlier_answer(tx, turn, question)
    )
    expires_at = tx.now + limit
    asked = questions.add(tx, turn, question, shared=shared, expires_at=expires_at, answer=answer)
    if turn.reply and answer is None:
        texts = answers.speak(tx, turn)
        text = core.format_question(question, texts)
        if turn.surface == JOB_SURFACE:
            # The chat that a scheduled run sends to is in another conversation.
            text = f"{text}\n\n{texts.say('question.job')}"
        delivery = deliveries.enqueue(tx, turn.reply, text, id=DeliveryId(asked.id), of=turn)
        deliveries.withdraw_preview(tx, turn.id, delivery)


def _find_consent(tx: Transaction, turn: Turn, question: Question) -> Consent | None:
    """Return what was decided beforehand, by the mode of the session or for this tool in this session."""
    session = sessions.get(tx, turn.session, deleted=True)
    lasting = questions.find_consent(tx, session.id, _list_rules(question))
    match core_sessions.parse_mode(session.settings.mode):
        case PermissionMode.READ:
            return Consent.DENY_ONCE
        case PermissionMode.AUTO:
            return lasting or (None if question.about_program else Consent.ALLOW_ONCE)
        case PermissionMode.ASK:
            return lasting


def _list_rules(question: Question) -> tuple[str, ...]:
    return question.rules or ((question.tool,) if question.tool else ())


def _take_earlier_answer(tx: Transaction, turn: Turn, question: Question) -> str | None:
    """Return the permission or refusal that the same question got after its turn had ended. It counts once."""
    for asked in questions.list_orphaned_answers(tx, turn.session):
        consent = core.find_consent(asked.question, asked.answer)
        if core.is_same(asked.question, question) and consent is not Consent.OTHER:
            questions.mark_taken(tx, asked)
            return asked.answer
    return None


def take_answer(tx: Transaction, turn: Turn, question: Question, *, expired: bool) -> AskedQuestion:
    """Return a question of a running turn as it is now, closed if it has `expired`. Its agent may act on a closed one
    from then on."""
    turns.lock(tx, turn)
    asked = questions.find_by_key(tx, turn.id, question.key)
    assert asked is not None
    if asked.state is QuestionState.OPEN and expired:
        questions.close(tx, asked, QuestionState.EXPIRED)
        asked = questions.get(tx, asked.id)
    if asked.state is not QuestionState.OPEN:
        questions.mark_taken(tx, asked)
    return asked


def expire(tx: Transaction, asked: AskedQuestion) -> None:
    """Close an overdue question whose turn has ended. That is not a consent."""
    sessions.lock(tx, asked.session)
    questions.close(tx, asked, QuestionState.EXPIRED)


def record_answer(tx: Transaction, asked: AskedQuestion, viewer: Viewer, answer: str) -> AskedQuestion:
    """Record a viewer's answer to a question, with the consent if it is a lasting one. Return the closed question."""
    if not asked.answerable_by(viewer):
        raise Forbidden(Phrase("question.forbidden"))
    # Every unit of work locks the session first.
    sessions.lock(tx, asked.session)
    current = questions.get(tx, asked.id)
    if current.state is not QuestionState.OPEN:
        raise Conflict(Phrase("question.not_open", title=asked.question.display_title))
    if current.left and current.expires_at <= tx.now:
        raise Conflict(Phrase("question.overdue", title=asked.question.display_title))
    parsed = core.parse_answer(asked.question, answer)
    questions.close(tx, asked, QuestionState.ANSWERED, answer=parsed, by=viewer.principal)
    consent = core.find_consent(asked.question, parsed)
    rules = _list_rules(asked.question)
    if consent.lasts and rules:
        questions.set_consent(tx, asked.session, rules[0], consent, by=viewer.principal)
    return questions.get(tx, asked.id)


def match_message(
    tx: Transaction, session: SessionId, viewer: Viewer, parts: Parts
) -> tuple[AskedQuestion, str] | None:
    """Return the question that an ordinary message answers, and the answer; `None` for a message that is none.

    It must be the only open question for which an agent waits, or else the only one that was left open, and the viewer
    must be allowed to answer it."""
    if len(parts) != 1 or not isinstance(parts[0], Text):
        return None
    candidates = core.prefer_waiting(questions.list_open(tx, session))
    if len(candidates) != 1 or not candidates[0].answerable_by(viewer):
        return None
    try:
        core.parse_answer(candidates[0].question, parts[0].text)
    except Invalid:
        return None
    return candidates[0], parts[0].text


def list_taken_keys(tx: Transaction, turn: TurnId) -> frozenset[str]:
    """Return the keys of a turn's questions whose outcome the agent has received."""
    return frozenset(a.question.key for a in questions.list_for_turn(tx, turn) if a.taken)


def list_buttons(tx: Transaction, delivery: Delivery, *, max_label: int = 0) -> tuple[Button, ...]:
    """Return the buttons under a delivery: the options of its question while that is open."""
    asked = questions.find_by_id(tx, QuestionId(delivery.id)) if delivery.turn else None
    if asked is None or asked.state is not QuestionState.OPEN:
        return ()
    texts = tx.texts.speak(people.get_language(tx, asked.turn))
    return core.build_buttons(asked, texts, max_label=max_label)


def lock_session(tx: Transaction, delivery: Delivery) -> None:
    """Lock the session of a delivery, so that its question cannot be closed meanwhile."""
    if delivery.session is not None:
        sessions.lock(tx, delivery.session)


def record_buttons(tx: Transaction, delivery: Delivery, receipt: str) -> None:
    """Record that a question was sent with buttons. They are removed again if it was closed meanwhile."""
    asked = questions.get(tx, QuestionId(delivery.id))
    questions.save_buttons(tx, asked.id, receipt)
    if asked.state is not QuestionState.OPEN:
        questions.close_buttons(tx, asked)
