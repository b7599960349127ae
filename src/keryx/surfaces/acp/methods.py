"""The ACP methods that an editor may call, one short function each."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from keryx.core import ids
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId
from keryx.core.ports.agent import EditorToolServer
from keryx.core.sessions import SessionFilter, SessionSettings
from keryx.jsonrpc import METHOD_NOT_FOUND, PROTOCOL_VERSION, Json, RpcError
from keryx.jsonrpc.peer import IncomingRequest
from keryx.surfaces.acp import protocol, session_options, session_updates
from keryx.surfaces.acp.context import SURFACE, EditorContext
from keryx.surfaces.acp.editor_workspace import EditorWorkspace, parse_server
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

PAGE_SIZE = 50

MethodFunction = Callable[[IncomingRequest], Awaitable[object]]


class EditorMethods:
    """The agent side of the protocol for one editor."""

    def __init__(self, context: EditorContext, login: LoginCommand, *, version: str) -> None:
        self._context = context
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
        raise RpcError(METHOD_NOT_FOUND, f"there is no method {request.method[:100]!r}")

    async def handle_notification(self, method: str, params: Json) -> None:
        if method == "session/cancel":
            session = self._sessions.get(parse_params(params, SessionParams).session_id)
            if session:
                await session.cancel()

    async def _initialize(self, request: IncomingRequest) -> Json:
        params = parse_params(request.params, InitializeParams)
        self._context.capabilities = protocol.parse_capabilities(params.client_capabilities)
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {"name": "keryx", "title": "Keryx", "version": self._version},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {
                    **{name: {} for name in ("list", "resume", "fork", "close", "delete")},
                    "additionalDirectories": {},
                },
            },
            "authMethods": self._login.list_methods(),
        }

    async def _authenticate(self, request: IncomingRequest) -> Json:
        await self._login.run(parse_params(request.params, AuthenticateParams).method_id)
        return {}

    async def _new_session(self, request: IncomingRequest) -> None:
        params = parse_params(request.params, NewSessionParams)
        cwd, servers = params.normalized_cwd, _parse_servers(params)
        id_ = SessionId(ids.new(self._context.now()))
        session = self._sessions[id_] = OpenSession(self._context, id_, settings=SessionSettings())
        await session.set_folder(cwd)
        await session.reserve()
        self._attach_workspace(session, servers, params.folders)
        await request.respond(
            {"sessionId": id_, **session_options.build_settings(session.settings, self._context.choices)}
        )
        await self._context.send_updates(
            id_, session_updates.build_commands_update(self._context.hub.texts.speak())
        )
        await session.warn_if_read_only()

    async def _load_session(self, request: IncomingRequest) -> None:
        await self._open_session(parse_params(request.params, LoadSessionParams), request, replay=True)

    async def _resume_session(self, request: IncomingRequest) -> None:
        await self._open_session(parse_params(request.params, LoadSessionParams), request, replay=False)

    async def _open_session(
        self, params: LoadSessionParams, request: IncomingRequest, *, replay: bool
    ) -> None:
        """Open a stored session. One that is open already stays as it is, unless it is to be replayed."""
        cwd, servers = params.normalized_cwd, _parse_servers(params)
        session = await self._find_open_session(params.session_id)
        if session and not (session.stored and replay):
            if session.stored:
                await self._context.hub.session(self._context.viewer, session.id)
            await session.set_folder(cwd)
            self._attach_workspace(session, servers, params.folders)
            await request.respond(session_options.build_settings(session.settings, self._context.choices))
            await session.warn_if_read_only()
            return
        session = session or OpenSession(self._context, params.session_id)
        await session.set_folder(cwd)
        snapshot = await session.load(replay=replay)
        self._sessions[session.id] = session
        self._attach_workspace(session, servers, params.folders)
        await request.respond(session_options.build_settings(session.settings, self._context.choices))
        await self._context.send_updates(
            session.id, session_updates.build_commands_update(self._context.hub.texts.speak())
        )
        await session.start_following(snapshot)
        await session.warn_if_read_only()

    async def _find_open_session(self, id_: SessionId) -> OpenSession | None:
        """Return a session that is open here, or one without a message that any process has given out. What another process
        has stored meanwhile is opened anew."""
        session = self._sessions.get(id_)
        if session and session.stored:
            return session
        reserved = await self._context.hub.find_reserved(self._context.viewer, id_)
        if reserved is None:
            return None
        if session is None:
            session = self._sessions[id_] = OpenSession(self._context, id_, settings=reserved.settings)
        return session

    async def _fork_session(self, request: IncomingRequest) -> None:
        params = parse_params(request.params, LoadSessionParams)
        context, cwd, servers = self._context, params.normalized_cwd, _parse_servers(params)
        fork = await context.hub.fork(context.viewer, params.session_id, surface=SURFACE, cwd=cwd)
        session = OpenSession(context, fork.id)
        await session.set_folder(cwd)
        snapshot = await session.load(replay=False)
        self._sessions[fork.id] = session
        self._attach_workspace(session, servers, params.folders)
        await request.respond(
            {"sessionId": fork.id, **session_options.build_settings(session.settings, context.choices)}
        )
        await context.send_updates(
            fork.id, session_updates.build_commands_update(self._context.hub.texts.speak())
        )
        await session.start_following(snapshot)
        await session.warn_if_read_only()

    async def _list_sessions(self, request: IncomingRequest) -> Json:
        params = parse_params(request.params, ListSessionsParams)
        cwd = None if params.cwd is None else normalize_folder(params.cwd)
        listing = SessionFilter(cwd=cwd, after=params.cursor, limit=PAGE_SIZE)
        items, next_cursor = await self._context.hub.list_sessions(self._context.viewer, listing)
        entries: list[Json] = []
        for item in items:
            session = item.session
            entry: Json = {
                "sessionId": session.id,
                "cwd": session.cwd or str(Path.home()),
                "updatedAt": session.active_at.isoformat(),
                "_meta": {"keryx": {"surface": session.surface, "activity": item.activity.value}},
            }
            entries.append({**entry, "title": session.title} if session.title else entry)
        return {"sessions": entries, "nextCursor": next_cursor} if next_cursor else {"sessions": entries}

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
            return {}  # It is deleted already.
        return {}

    async def _prompt(self, request: IncomingRequest) -> None:
        params = parse_params(request.params, PromptParams)
        context = self._context
        store = partial(context.hub.media.save, context.viewer)
        await self._get_open_session(params).prompt(
            partial(protocol.parse_prompt, params.prompt, store), request
        )

    async def _set_mode(self, request: IncomingRequest) -> None:
        params = parse_params(request.params, SetModeParams)
        await self._set_legacy_option(params, request, session_options.MODE, params.mode_id)

    async def _set_model(self, request: IncomingRequest) -> None:
        params = parse_params(request.params, SetModelParams)
        await self._set_legacy_option(params, request, session_options.MODEL, params.model_id)

    async def _set_legacy_option(
        self, params: SessionParams, request: IncomingRequest, option: str, value: str
    ) -> None:
        """Set an option by an older method. The list of options follows as an update."""
        settings = await self._get_open_session(params).set_option(option, value)
        await request.respond({})
        await self._context.send_updates(
            params.session_id, session_updates.build_options_update(settings, self._context.choices)
        )

    async def _set_option(self, request: IncomingRequest) -> None:
        params = parse_params(request.params, SetOptionParams)
        settings = await self._get_open_session(params).set_option(params.config_id, params.value)
        await request.respond(
            {"configOptions": session_options.list_options(settings, self._context.choices)}
        )
        if params.config_id == session_options.MODE:
            await self._context.send_updates(params.session_id, session_updates.build_mode_update(settings))

    def _attach_workspace(
        self, session: OpenSession, servers: list[EditorToolServer], folders: tuple[str, ...]
    ) -> None:
        workspace = EditorWorkspace(self._context, session.id, show_terminal=session.show_terminal)
        self._context.workspaces.attach(session.id, workspace, servers, cwd=session.cwd, folders=folders)

    async def _close_open_session(self, id_: SessionId) -> bool:
        """Close a session if it is open, and return whether it was."""
        session = self._sessions.pop(id_, None)
        if session:
            await session.close()
            self._context.workspaces.detach(id_)
        return session is not None

    def _get_open_session(self, params: SessionParams) -> OpenSession:
        session = self._sessions.get(params.session_id)
        if session is None:
            raise NotFound(f"session {params.session_id[:80]!r} is not open: load it first")
        return session


def _parse_servers(params: NewSessionParams) -> list[EditorToolServer]:
    return [parse_server(server) for server in params.mcp_servers or ()]
