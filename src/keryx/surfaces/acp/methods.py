"""The ACP methods that an editor may call, one short function each."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from keryx.core import ids
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId
from keryx.core.ports.agent import EditorToolServer
from keryx.core.sessions import SessionFilter, SessionListItem, SessionSettings
from keryx.jsonrpc import errors
from keryx.jsonrpc.errors import RpcError
from keryx.jsonrpc.peer import IncomingRequest
from keryx.jsonrpc.values import Json
from keryx.surfaces.acp import protocol, session_options, session_updates
from keryx.surfaces.acp.context import SURFACE, EditorContext
from keryx.surfaces.acp.editor_workspace import EditorWorkspace, parse_servers
from keryx.surfaces.acp.login import LoginCommand
from keryx.surfaces.acp.open_sessions import OpenSession
from keryx.surfaces.acp.protocol import (
    AuthenticateParams,
    InitializeParams,
    ListSessionsParams,
    LoadSessionParams,
    NewSessionParams,
    PromptParams,
    SessionParams,
    SetModelParams,
    SetModeParams,
    SetOptionParams,
    normalize_folder,
    parse_params,
)

PROTOCOL_VERSION = 1
PAGE_SIZE = 50

MethodFunction = Callable[[IncomingRequest], Awaitable[object]]


class EditorMethods:
    """The agent side of the protocol, for one editor."""

    def __init__(self, desk: EditorContext, login: LoginCommand, *, version: str) -> None:
        self._context = desk
        self._login = login
        self._version = version
        self._sessions: dict[SessionId, OpenSession] = {}
        self._public_methods: Mapping[str, MethodFunction] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
        }
        self._login_methods: Mapping[str, MethodFunction] = {
            "session/new": self._new_session,
            "session/load": self._load_session,
            "session/resume": self._resume_session,
            "session/fork": self._fork_session,
            "session/list": self._list_sessions,
            "session/close": self._close_session,
            "session/delete": self._delete_session,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_model": self._set_model,
            "session/set_config_option": self._set_option,
        }

    async def handle_request(self, request: IncomingRequest) -> object:
        if method := self._public_methods.get(request.method):
            return await method(request)
        if method := self._login_methods.get(request.method):
            self._login.check()
            return await method(request)
        raise RpcError(errors.METHOD_NOT_FOUND, f"there is no method {request.method[:100]!r}")

    async def handle_notification(self, method: str, params: Json) -> None:
        if method == "session/cancel":
            opened = self._sessions.get(parse_params(params, SessionParams).session_id)
            if opened:
                await opened.cancel()

    async def _initialize(self, request: IncomingRequest) -> Json:
        asked = parse_params(request.params, InitializeParams)
        self._context.capabilities = protocol.parse_capabilities(asked.client_capabilities)
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {"name": "keryx", "title": "Keryx", "version": self._version},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "fork": {}, "close": {}, "delete": {}},
            },
            "authMethods": self._login.list_methods(),
        }

    async def _authenticate(self, request: IncomingRequest) -> Json:
        await self._login.run(parse_params(request.params, AuthenticateParams).method_id)
        return {}

    async def _new_session(self, request: IncomingRequest) -> None:
        place = parse_params(request.params, NewSessionParams)
        cwd, given = place.normalized_cwd, parse_servers(place.mcp_servers)
        id_ = SessionId(ids.new(self._context.now()))
        opened = self._sessions[id_] = OpenSession(self._context, id_, settings=SessionSettings())
        await opened.set_folder(cwd)
        self._lend_workspace(opened, given)
        await request.respond(
            {"sessionId": id_, **session_options.build_settings(opened.settings, self._context.choices)}
        )
        await self._context.send_updates(id_, session_updates.build_commands_update())
        await opened.warn_if_read_only()

    async def _load_session(self, request: IncomingRequest) -> None:
        await self._open_session(parse_params(request.params, LoadSessionParams), request, replay=True)

    async def _resume_session(self, request: IncomingRequest) -> None:
        await self._open_session(parse_params(request.params, LoadSessionParams), request, replay=False)

    async def _open_session(
        self, asked: LoadSessionParams, request: IncomingRequest, *, replay: bool
    ) -> None:
        """Open a session of the store. One that is open already, and need not be shown, stays as it is."""
        cwd, given = asked.normalized_cwd, parse_servers(asked.mcp_servers)
        opened = self._sessions.get(asked.session_id)
        if opened and not (opened.stored and replay):
            if opened.stored:
                await self._context.hub.session(self._context.viewer, opened.id)
            await opened.set_folder(cwd)
            self._lend_workspace(opened, given)
            await request.respond(session_options.build_settings(opened.settings, self._context.choices))
            await opened.warn_if_read_only()
            return
        opened = opened or OpenSession(self._context, asked.session_id)
        await opened.set_folder(cwd)
        snapshot = await opened.load(replay=replay)
        self._sessions[opened.id] = opened
        self._lend_workspace(opened, given)
        await request.respond(session_options.build_settings(opened.settings, self._context.choices))
        await self._context.send_updates(opened.id, session_updates.build_commands_update())
        await opened.start_following(snapshot)
        await opened.warn_if_read_only()

    async def _fork_session(self, request: IncomingRequest) -> None:
        asked = parse_params(request.params, LoadSessionParams)
        desk, cwd, given = self._context, asked.normalized_cwd, parse_servers(asked.mcp_servers)
        made = await desk.hub.fork(desk.viewer, asked.session_id, surface=SURFACE, cwd=cwd)
        opened = OpenSession(desk, made.id)
        await opened.set_folder(cwd)
        snapshot = await opened.load(replay=False)
        self._sessions[made.id] = opened
        self._lend_workspace(opened, given)
        await request.respond(
            {"sessionId": made.id, **session_options.build_settings(opened.settings, desk.choices)}
        )
        await desk.send_updates(made.id, session_updates.build_commands_update())
        await opened.start_following(snapshot)
        await opened.warn_if_read_only()

    async def _list_sessions(self, request: IncomingRequest) -> Json:
        asked = parse_params(request.params, ListSessionsParams)
        cwd = None if asked.cwd is None else normalize_folder(asked.cwd)
        listing = SessionFilter(cwd=cwd, after=asked.cursor, limit=PAGE_SIZE)
        found, following = await self._context.hub.sessions(self._context.viewer, listing)
        page: Json = {"sessions": [_build_list_entry(entry) for entry in found]}
        return {**page, "nextCursor": following} if following else page

    async def _close_session(self, request: IncomingRequest) -> Json:
        id_ = parse_params(request.params, SessionParams).session_id
        if not await self._close_open_session(id_):
            await self._context.hub.session(self._context.viewer, id_)
        return {}

    async def _delete_session(self, request: IncomingRequest) -> Json:
        id_ = parse_params(request.params, SessionParams).session_id
        await self._close_open_session(id_)
        try:
            await self._context.hub.delete(self._context.viewer, id_)
        except NotFound:
            return {}  # It is gone already, which is what was asked for.
        return {}

    async def _prompt(self, request: IncomingRequest) -> None:
        asked = parse_params(request.params, PromptParams)
        desk = self._context
        keep = partial(desk.hub.media.save, desk.viewer)
        await self._get_open_session(asked).prompt(
            partial(protocol.parse_prompt, asked.prompt, keep), request
        )

    async def _set_mode(self, request: IncomingRequest) -> None:
        asked = parse_params(request.params, SetModeParams)
        await self._set_legacy_option(asked, request, session_options.MODE, asked.mode_id, {})

    async def _set_model(self, request: IncomingRequest) -> None:
        asked = parse_params(request.params, SetModelParams)
        await self._set_legacy_option(asked, request, session_options.MODEL, asked.model_id, {})

    async def _set_legacy_option(
        self, asked: SessionParams, request: IncomingRequest, option: str, value: str, result: Json
    ) -> None:
        """The older ways to choose: the list of options follows as an update."""
        settings = await self._get_open_session(asked).set_option(option, value)
        await request.respond(result)
        await self._context.send_updates(
            asked.session_id, session_updates.build_options_update(settings, self._context.choices)
        )

    async def _set_option(self, request: IncomingRequest) -> None:
        asked = parse_params(request.params, SetOptionParams)
        settings = await self._get_open_session(asked).set_option(asked.config_id, asked.value)
        await request.respond(
            {"configOptions": session_options.list_options(settings, self._context.choices)}
        )
        if asked.config_id == session_options.MODE:
            await self._context.send_updates(asked.session_id, session_updates.build_mode_update(settings))

    def _lend_workspace(self, opened: OpenSession, given: list[EditorToolServer]) -> None:
        workspace = EditorWorkspace(self._context, opened.id)
        self._context.lender.attach(opened.id, workspace, given, cwd=opened.cwd)

    async def _close_open_session(self, id_: SessionId) -> bool:
        """Close a session if it is open; gives whether it was."""
        opened = self._sessions.pop(id_, None)
        if opened:
            await opened.close()
            self._context.lender.detach(id_)
        return opened is not None

    def _get_open_session(self, asked: SessionParams) -> OpenSession:
        found = self._sessions.get(asked.session_id)
        if found is None:
            raise NotFound(f"session {asked.session_id[:80]!r} is not open: load it first")
        return found


def _build_list_entry(entry: SessionListItem) -> Json:
    session = entry.session
    found: Json = {
        "sessionId": session.id,
        "cwd": session.cwd or str(Path.home()),
        "updatedAt": session.active_at.isoformat(),
        "_meta": {"keryx": {"surface": session.surface, "activity": entry.activity.value}},
    }
    return {**found, "title": session.title} if session.title else found
