"""Routes of turns and of the questions that they ask: stop, queue, board, answer."""

from keryx.core.ids import QuestionId, TurnId
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest

router = ApiRouter()


@router.post("/api/sessions/{session}/stop", summary="Ask the running turn to stop. What was said stays.")
async def stop(request: ApiRequest, body: request_schema.StopForm) -> schema.Stopped:
    turn = await request.hub.stop(request.viewer, request.session_id, queue=body.queue)
    return schema.Stopped(turn=presenters.turn(turn) if turn else None)


@router.get("/api/sessions/{session}/queue", summary="What waits in a conversation.")
async def queue(request: ApiRequest) -> schema.Queue:
    waiting = await request.hub.views.queue(request.viewer, request.session_id)
    return schema.Queue(waiting=[presenters.queued_turn(*pair) for pair in waiting])


@router.delete("/api/turns/{turn}", summary="Take one waiting turn out of the queue.")
async def drop(request: ApiRequest) -> None:
    await request.hub.drop(request.viewer, TurnId(request.path_param("turn")))


@router.get("/api/turns", summary="Every turn that runs or waits.")
async def board(request: ApiRequest) -> schema.Board:
    return schema.Board(
        turns=[presenters.board_row(t) for t in await request.hub.views.load_board(request.viewer)]
    )


@router.get("/api/questions", summary="What agents ask and nobody has answered.")
async def questions(request: ApiRequest) -> schema.Questions:
    return schema.Questions(
        questions=[presenters.question(q) for q in await request.hub.questions.list_open(request.viewer)]
    )


@router.post("/api/questions/{question}/answer", summary="Answer a question.")
async def answer(request: ApiRequest, body: request_schema.AnswerForm) -> schema.QuestionSchema:
    return presenters.question(
        await request.hub.questions.answer(
            request.viewer, QuestionId(request.path_param("question")), body.answer
        )
    )
