import pytest
from tests.builders import (
    ANN,
    ANNS,
    BOBS,
    ODD_TEXTS,
    OPERATORS,
    WORKER,
    Store,
    a_running_turn,
    after,
    at_time,
)

from keryx.core.errors import Conflict, NotFound
from keryx.core.ids import WorkerId
from keryx.core.questions import AskedQuestion, Consent, Question, QuestionState
from keryx.core.sessions import Session
from keryx.core.turns import Turn, TurnState
from keryx.store import questions, sessions, turns
from keryx.store.admin.verify import verify
from keryx.store.db import Transaction
from keryx.testing import START_TIME

QUESTION = Question(key="call-1", title="May it?", detail="rm x", tool="shell")


def put(tx: Transaction, turn: Turn, question: Question = QUESTION) -> AskedQuestion:
    return questions.add(at_time(tx, START_TIME), turn, question, shared=False, expires_at=after(600))


async def test_a_question_is_found_by_its_key_and_comes_back_as_it_was_put(store: Store) -> None:
    turn = await store.write(a_running_turn)
    for text in ODD_TEXTS:
        question = Question(key=text, title=text, detail=text)
        asked = await store.write(put, turn, question)
        assert await store.read(questions.find_by_key, turn.id, text) == asked
        assert asked.question == question
    assert await store.read(questions.find_by_key, turn.id, "other") is None
    assert len(await store.read(questions.list_open, turn.session)) == len(ODD_TEXTS)


async def test_only_an_open_question_can_be_closed(store: Store) -> None:
    asked = await store.write(put, await store.write(a_running_turn))
    await store.at(START_TIME).write(questions.close, asked, QuestionState.ANSWERED, answer="allow", by=ANN)
    with pytest.raises(Conflict, match="is closed"):
        await store.at(START_TIME).write(questions.close, asked, QuestionState.EXPIRED)
    closed = await store.read(questions.get, asked.id)
    assert (closed.state, closed.answer, closed.answered_by) == (QuestionState.ANSWERED, "allow", ANN)


async def test_a_question_ends_with_its_turn_and_not_with_an_interruption(store: Store) -> None:
    turn = await store.write(a_running_turn)
    asked = await store.write(put, turn)
    await store.at(START_TIME).write(turns.requeue, turn)
    assert (await store.read(questions.get, asked.id)).state is QuestionState.OPEN
    await store.at(START_TIME).write(turns.close, await store.read(turns.get, turn.id), TurnState.CANCELLED)
    assert (await store.read(questions.get, asked.id)).state is QuestionState.CANCELLED
    assert await store.read(questions.list_open, turn.session) == []


@pytest.mark.parametrize("pin", [None, WORKER])
async def test_a_question_is_left_only_by_a_program_that_went_away(
    store: Store, pin: WorkerId | None
) -> None:
    turn = await store.write(a_running_turn)
    await store.write(lambda tx: tx.run("update turns set pin = :pin", {"pin": pin}))
    asked = await store.write(put, turn)
    assert not asked.left
    await store.at(START_TIME).write(turns.finish, turn, TurnState.CANCELLED, left=True)
    found = await store.read(questions.get, asked.id)
    assert (found.state, found.left) == (QuestionState.OPEN, pin is not None)
    assert bool(await verify(store.database)) is (pin is None)


async def test_others_do_not_see_a_question(store: Store) -> None:
    asked = await store.write(put, await store.write(a_running_turn))
    assert (
        await store.read(questions.list_open_for_viewer, ANNS)
        == [asked]
        == await store.read(questions.list_open_for_viewer, OPERATORS)
    )
    assert await store.read(questions.list_open_for_viewer, BOBS) == []
    with pytest.raises(NotFound):
        await store.read(questions.get, asked.id, viewer=BOBS)


async def test_a_lasting_consent_is_of_one_session_and_one_tool(store: Store) -> None:
    turn = await store.write(a_running_turn)
    for given in (Consent.ALLOW_ALWAYS, Consent.DENY_ALWAYS):
        await store.at(START_TIME).write(questions.set_consent, turn.session, "shell", given, by=ANN)
        assert await store.read(questions.find_consent, turn.session, ["shell"]) is given
    assert await store.read(questions.find_consent, turn.session, ["mail"]) is None
    assert [c.tool for c in await store.read(questions.list_consents, ANNS)] == ["shell"]
    assert await store.read(questions.list_consents, BOBS) == []
    assert await store.write(questions.remove_consent, turn.session, "shell")
    assert not await store.write(questions.remove_consent, turn.session, "shell")
    assert await store.read(questions.find_consent, turn.session, ["shell"]) is None


async def test_erasing_a_session_takes_its_questions_along(store: Store) -> None:
    turn = await store.write(a_running_turn)
    asked = await store.write(put, turn)
    await store.at(START_TIME).write(
        questions.set_consent, turn.session, "shell", Consent.ALLOW_ALWAYS, by=ANN
    )

    def erase(tx: Transaction) -> Session:
        found = sessions.get(tx, turn.session)
        sessions.erase(at_time(tx, START_TIME), found)
        return found

    await store.write(erase)
    with pytest.raises(NotFound):
        await store.read(questions.get, asked.id)
    assert await store.read(questions.find_consent, turn.session, ["shell"]) is None


async def test_a_question_whose_turn_is_over_is_named_by_verify(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.write(put, turn)
    assert not await verify(store.database)
    await store.at(START_TIME).write(turns.finish, turn, TurnState.DONE)
    await store.write(lambda tx: tx.run("update questions set state = 'open', closed_at = null"))
    assert [p.check for p in await verify(store.database)] == ["questions"]
