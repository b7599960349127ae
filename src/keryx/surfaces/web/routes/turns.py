"""Routes of turns and of the questions that they ask: stop, queue, board, answer."""

from keryx.core.ids import QuestionId, TurnId
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest


async def stop(ask: ApiRequest) -> schema.Stopped:
    turn = await ask.hub.stop(ask.viewer, ask.session_id, queue=ask.body(request_schema.Stop).queue)
    return schema.Stopped(turn=presenters.turn(turn) if turn else None)


async def queue(ask: ApiRequest) -> schema.Queue:
    waiting = await ask.hub.views.queue(ask.viewer, ask.session_id)
    return schema.Queue(waiting=[presenters.queued_turn(*pair) for pair in waiting])


async def drop(ask: ApiRequest) -> None:
    await ask.hub.drop(ask.viewer, TurnId(ask.path_param("turn")))


async def board(ask: ApiRequest) -> schema.Board:
    return schema.Board(
        turns=[presenters.board_row(t) for t in await ask.hub.views.list_active_turns(ask.viewer)]
    )


async def questions(ask: ApiRequest) -> schema.Questions:
    return schema.Questions(
        questions=[presenters.question(q) for q in await ask.hub.questions.list_open(ask.viewer)]
    )


async def answer(ask: ApiRequest) -> schema.Question:
    given = ask.body(request_schema.Answer).answer
    return presenters.question(
        await ask.hub.questions.answer(ask.viewer, QuestionId(ask.path_param("question")), given)
    )
