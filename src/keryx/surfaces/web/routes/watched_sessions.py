"""Routes of sessions that other programs keep: takeover, and what watchers on other machines send."""

from keryx.engine.hub.watched_sessions import WatchStatus
from keryx.engine.takeover import ProgramStateChange
from keryx.surfaces.web import request_schema, schema
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest, read_body

router = ApiRouter()

_MAX_PUSH_BYTES = 64 << 20


@router.get(
    "/api/sessions/{session}/program",
    summary="The program that keeps a conversation, and whether it can be continued here now.",
)
async def program(request: ApiRequest) -> schema.ProgramStatus:
    return _present_status(request, await request.hub.watched.get_status(request.viewer, request.session_id))


@router.post(
    "/api/sessions/{session}/takeover",
    summary="Continue a conversation here although its program is open in a terminal.",
)
async def take_over(request: ApiRequest) -> schema.ProgramStatus:
    await request.hub.watched.take_over(request.viewer, request.session_id)
    return _present_status(request, await request.hub.watched.get_status(request.viewer, request.session_id))


def _present_status(request: ApiRequest, status: WatchStatus | None) -> schema.ProgramStatus:
    if status is None:
        return schema.ProgramStatus()
    return schema.ProgramStatus(
        program=status.watched.program,
        title=status.watched.title,
        machine=status.watched.machine,
        state=status.state,
        refusal=request.texts.render(status.refusal),
        can_take_over=status.can_take_over,
    )


@router.get(
    "/api/watch/files", summary="The files of a machine that were pushed as a whole, with their stamps."
)
async def watched_files(request: ApiRequest, query: request_schema.WatchedFilesQuery) -> schema.WatchedFiles:
    files = await request.hub.watched.load_files(request.viewer, query.machine, query.program)
    return schema.WatchedFiles(files=files)


@router.post("/api/watch/known", summary="What is here of a conversation of a program.")
async def known_records(request: ApiRequest, body: request_schema.KnownRecordsForm) -> schema.PushedRecords:
    known = await request.hub.watched.load_known(request.viewer, body.program, body.id)
    return schema.PushedRecords(fingerprint=known.fingerprint, records=[f"{r:016x}" for r in known.records])


@router.post(
    "/api/watch/sessions",
    summary="Add what a program on another machine wrote. `keryx watch --to` sends it; repeating it is safe.",
    body_media_type="application/json",
)
async def push_session(request: ApiRequest) -> schema.Pushed:
    report = await request.hub.watched.take(request.viewer, await read_body(request.http, _MAX_PUSH_BYTES))
    return schema.Pushed(
        created=report.created, extended=report.extended, messages=report.messages, usage=report.usage
    )


@router.put(
    "/api/watch/states", summary="Say what the programs on another machine do with their conversations."
)
async def push_states(request: ApiRequest, body: request_schema.ProgramStatesForm) -> None:
    changes = [ProgramStateChange(change.program, change.id, change.state) for change in body.states]
    await request.hub.watched.set_states(request.viewer, changes)
