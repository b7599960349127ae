"""Routes of the set-up: models, tools, agents, profiles and platforms, for the operator only. No secret is ever returned."""

import asyncio
import os
from collections.abc import AsyncGenerator
from concurrent.futures import Future

import anyio
import anyio.to_thread
import msgspec
from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse

from keryx import setup_registry
from keryx.core import codec, ids
from keryx.core.errors import Invalid, KeryxError, NotFound, Unavailable
from keryx.core.ports.setup import (
    AgentCheck,
    AgentEntry,
    ModelEntry,
    ModelTest,
    ProfileEntry,
    SetupService,
    ToolServerCheck,
    ToolServerEntry,
)
from keryx.core.texts import Phrase, Texts
from keryx.setup_registry import SetupSession
from keryx.surfaces.web import request_schema, schema
from keryx.surfaces.web import settings as web_settings
from keryx.surfaces.web.operations import ApiRouter, RequiredRole
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.responses import describe_error
from keryx.surfaces.web.routes.installation import find_home, load_setup, present_outcome

router = ApiRouter()
_DIALOG_SECONDS = 600.0
_OPERATOR = RequiredRole.OPERATOR


@router.get("/api/setup", summary="What is configured: models, tools, agents and profiles.", role=_OPERATOR)
async def setup(request: ApiRequest) -> schema.SetupOverview:
    parts = await _get_service(request).read()
    return schema.SetupOverview(
        path=parts.path,
        models=list(parts.models),
        tools=list(parts.tools),
        agents=list(parts.agents),
        profiles=list(parts.profiles),
        restart=parts.restart,
        password=request.services.authenticator.required,
        problem=parts.problem,
    )


@router.put(
    "/api/setup/models/{model}",
    summary="Add or change a model. It is in force after a restart.",
    role=_OPERATOR,
)
async def save_model(request: ApiRequest, body: request_schema.ModelSetupForm) -> None:
    await _get_service(request).save_model(_read_model(request, body), secret=body.secret)


@router.post(
    "/api/setup/models/{model}/test",
    summary="Ask a model, saved or not, one short question.",
    role=_OPERATOR,
)
async def test_model(request: ApiRequest, body: request_schema.ModelSetupForm) -> ModelTest:
    return await _get_service(request).test_model(_read_model(request, body), secret=body.secret)


@router.delete("/api/setup/models/{model}", summary="Remove a model and the file of its key.", role=_OPERATOR)
async def remove_model(request: ApiRequest, query: request_schema.RevisionQuery) -> None:
    await _get_service(request).remove_model(request.path_param("model"), query.revision)


@router.put(
    "/api/setup/default-model",
    summary="Choose the model of conversations that have chosen none.",
    role=_OPERATOR,
)
async def choose_model(request: ApiRequest, body: request_schema.DefaultModelForm) -> None:
    await _get_service(request).choose_model(body.name)


@router.put(
    "/api/setup/default-agent",
    summary="Choose the agent of conversations that have chosen none. It answers after a restart.",
    role=_OPERATOR,
)
async def choose_agent(request: ApiRequest, body: request_schema.DefaultModelForm) -> None:
    await _get_service(request).choose_agent(body.name)


@router.put(
    "/api/setup/tools/{server}",
    summary="Add or change a server of tools. It is in force after a restart.",
    role=_OPERATOR,
)
async def save_tools(request: ApiRequest, body: request_schema.ToolServerSetupForm) -> None:
    await _get_service(request).save_tools(_read_tools(request, body))


@router.post(
    "/api/setup/tools/{server}/check",
    summary="Start a server of tools, saved or not, and list its tools.",
    role=_OPERATOR,
)
async def check_tools(request: ApiRequest, body: request_schema.ToolServerSetupForm) -> ToolServerCheck:
    return await _get_service(request).check_tools(_read_tools(request, body))


@router.delete(
    "/api/setup/tools/{server}",
    summary="Remove a server of tools and the files of its secrets.",
    role=_OPERATOR,
)
async def remove_tools(request: ApiRequest, query: request_schema.RevisionQuery) -> None:
    await _get_service(request).remove_tools(request.path_param("server"), query.revision)


@router.post(
    "/api/setup/agents/{agent}/check",
    summary="Start the program of an agent, saved or not, and see what it can do. Without a command it is the configured one.",
    role=_OPERATOR,
)
async def check_agent(request: ApiRequest, body: request_schema.AgentSetupForm) -> AgentCheck:
    return await _get_service(request).check_agent(_read_agent(request, body))


@router.put(
    "/api/setup/agents/{agent}",
    summary="Add or change an agent that is a program. It is in force after a restart.",
    role=_OPERATOR,
)
async def save_agent(request: ApiRequest, body: request_schema.AgentSetupForm) -> None:
    await _get_service(request).save_agent(_read_agent(request, body))


@router.delete(
    "/api/setup/agents/{agent}", summary="Remove an agent and the files of its secrets.", role=_OPERATOR
)
async def remove_agent(request: ApiRequest, query: request_schema.RevisionQuery) -> None:
    await _get_service(request).remove_agent(request.path_param("agent"), query.revision)


@router.put(
    "/api/setup/profiles/{name}",
    summary="Add or change a profile. It is in force after a restart.",
    role=_OPERATOR,
)
async def save_profile(request: ApiRequest, body: request_schema.ProfileSetupForm) -> None:
    entry = ProfileEntry(
        name=request.path_param("name"),
        agent=body.agent,
        instructions=body.instructions,
        hide_ids=body.hide_ids,
        revision=body.revision,
    )
    await _get_service(request).save_profile(entry)


@router.delete(
    "/api/setup/profiles/{name}", summary="Remove a profile; its conversations stay.", role=_OPERATOR
)
async def remove_profile(request: ApiRequest, query: request_schema.RevisionQuery) -> None:
    await _get_service(request).remove_profile(request.path_param("name"), query.revision)


@router.put(
    "/api/setup/password",
    summary="Set the operator's password. The page asks for it after a restart.",
    role=_OPERATOR,
)
async def set_operator_password(request: ApiRequest, body: request_schema.PasswordForm) -> None:
    service = _get_service(request)
    if request.services.authenticator.has_password:
        await request.services.authenticator.require_own_password(body.current)
    await service.set_password(await anyio.to_thread.run_sync(web_settings.hash_password, body.password))


@router.post(
    "/api/setup/restart",
    summary="Start again with what is written. Running answers get some time to finish.",
    role=_OPERATOR,
)
async def restart(request: ApiRequest) -> Response:
    service = _get_service(request)
    await service.check_restart()
    # After the response, which would be cut off otherwise.
    return Response(status_code=204, background=BackgroundTask(_restart, service))


async def _restart(service: SetupService) -> None:
    service.restart()


@router.post(
    "/api/platforms/setups/{platform}/dialog",
    summary="Connect an account of a platform step by step: a line of JSON for each text, question and the result.",
    media_types=("application/x-ndjson",),
    role=_OPERATOR,
)
async def set_up_in_dialog(request: ApiRequest, body: request_schema.SetupForm) -> Response:
    platform = await load_setup(request.path_param("platform"))
    home = find_home(request)
    label = setup_registry.build_label(platform.platform, body.name)
    answers = setup_registry.add_allowed(platform, body.answers, body.allow)
    setup_registry.complete_answers(platform, answers)
    configured = await anyio.to_thread.run_sync(setup_registry.read_configured, home, label, dict(os.environ))
    dialog = PageDialog(label, configured, request.services.dialogs, request.texts)

    async def run() -> None:
        try:
            outcome = await setup_registry.check(platform, answers, dialog, seconds=_DIALOG_SECONDS)
            written = await anyio.to_thread.run_sync(setup_registry.write, home, label, outcome, body.allow)
            _get_service(request).note_change()
            dialog.send({"result": present_outcome(label, outcome, written, request.texts)})
        except KeryxError as exc:
            dialog.send({"error": describe_error(exc, request.texts)})
        finally:
            dialog.close()

    async def stream() -> AsyncGenerator[bytes]:
        task = asyncio.create_task(run())
        try:
            while (line := await dialog.lines.get()) is not None:
                yield codec.dumps(line).encode() + b"\n"
        finally:
            task.cancel()
            dialog.close()

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream(), media_type="application/x-ndjson", headers=headers)


@router.post(
    "/api/platforms/dialogs/{dialog}", summary="Answer a question of a setup that runs.", role=_OPERATOR
)
async def answer_dialog(request: ApiRequest, body: request_schema.DialogAnswerForm) -> None:
    dialog = request.services.dialogs.get(request.path_param("dialog"))
    if not isinstance(dialog, PageDialog) or not dialog.answer(body.answer):
        raise NotFound(Phrase("setup.no_question"))


class PageDialog(SetupSession):
    """A setup on the page, which shows at once what the check shows and asks what it asks. The check of another package runs
    in a thread of its own."""

    def __init__(
        self, label: str, configured: dict[str, object], open_dialogs: dict[str, object], texts: Texts
    ) -> None:
        super().__init__(label, configured, lambda text: self.send({"show": texts.render(text)}))
        self._texts = texts
        self.lines = asyncio.Queue[object]()
        self._loop = asyncio.get_running_loop()
        self._id = ids.new_token()
        self._open_dialogs = open_dialogs
        self._waiting: Future[str] | None = None
        open_dialogs[self._id] = self

    async def ask(self, question: str) -> str:
        self._waiting = Future()
        self.send({"ask": self._texts.render(question), "dialog": self._id})
        return await asyncio.wrap_future(self._waiting)

    def answer(self, text: str) -> bool:
        """Answer what was asked last; return whether something was."""
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.done():
            return False
        waiting.set_result(text.strip())
        return True

    def send(self, line: object) -> None:
        self._loop.call_soon_threadsafe(self.lines.put_nowait, line)

    def close(self) -> None:
        self._open_dialogs.pop(self._id, None)
        if self._waiting is not None:
            self._waiting.cancel()
        self.send(None)


def _get_service(request: ApiRequest) -> SetupService:
    if request.services.setup is None:
        raise Unavailable("this process does not change settings: use `keryx config` and keryx.toml instead")
    return request.services.setup


def _read_model(request: ApiRequest, body: request_schema.ModelSetupForm) -> ModelEntry:
    values = {name: v for name, v in msgspec.structs.asdict(body).items() if name != "secret"}
    if body.secret and body.key:
        raise Invalid(Phrase("setup.two_keys"))
    return ModelEntry(name=request.path_param("model"), **values)


def _read_agent(request: ApiRequest, body: request_schema.AgentSetupForm) -> AgentEntry:
    return AgentEntry(name=request.path_param("agent"), kind="acp", **msgspec.structs.asdict(body))


def _read_tools(request: ApiRequest, body: request_schema.ToolServerSetupForm) -> ToolServerEntry:
    return ToolServerEntry(
        name=request.path_param("server"),
        command=body.command,
        url=body.url,
        env=body.env,
        headers=body.headers,
        cwd=body.cwd,
        policy=body.policy,
        profiles=tuple(body.profiles),
        revision=body.revision,
    )
