"""The setup of Slack: the manifest of the app, the questions to a person, and the check of the tokens."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.http_clients import check_url
from keryx.surfaces.gateway.slack import SlackMode, check_app_token, check_base_url, check_bot_token
from keryx.surfaces.gateway.slack.event_parser import IDS, PLATFORM
from keryx.surfaces.gateway.slack.payloads import SlackIdentity
from keryx.surfaces.gateway.slack.socket_mode import BAD_APP_TOKEN
from keryx.surfaces.gateway.slack.web_api import (
    DEFAULT_URL,
    FixedToken,
    SlackApi,
    SlackApiError,
    SlackNoResponse,
    SlackUnreachable,
    check_access,
)

COMMAND = "/keryx"
BOT_SCOPES = (
    "app_mentions:read",
    "assistant:write",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "mpim:read",
    "reactions:read",
    "reactions:write",
    "users:read",
)
BOT_EVENTS = (
    "app_mention",
    "assistant_thread_started",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
    "reaction_removed",
)


def build_manifest(*, url: str = "", rotation: bool = False) -> str:
    """Return the manifest of the app as JSON: for Socket Mode, or for the Events API at the address of a hook."""
    address = {"request_url": url} if url else {}
    command = {
        "command": COMMAND,
        "description": "A command of Keryx, or a question",
        "usage_hint": "help | new | status | a question",
        "should_escape": True,
    }
    manifest: dict[str, Any] = {
        "display_information": {"name": "Keryx"},
        "features": {
            "app_home": {"messages_tab_enabled": True, "messages_tab_read_only_enabled": False},
            "bot_user": {"display_name": "Keryx", "always_online": True},
            "assistant_view": {"assistant_description": "Talk to the agent.", "suggested_prompts": []},
            "slash_commands": [{**command, **({"url": url} if url else {})}],
        },
        "oauth_config": {"scopes": {"bot": list(BOT_SCOPES)}},
        "settings": {
            "event_subscriptions": {**address, "bot_events": list(BOT_EVENTS)},
            "interactivity": {"is_enabled": True, **address},
            "socket_mode_enabled": not url,
            "token_rotation_enabled": rotation,
            "org_deploy_enabled": False,
        },
    }
    return json.dumps(manifest, indent=2)


# They are given together.
_ROTATION = ("refresh_token", "client_id", "client_secret")
_INTRO = Phrase("connect.slack_intro", manifest=build_manifest())


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask Slack who the bot is, and whether the app token opens a connection."""
    mode = SlackMode(answers.get("mode") or SlackMode.SOCKET)
    token = check_bot_token(answers.get("token", ""))
    secrets = {"token": token}
    if mode is SlackMode.SOCKET:
        secrets["app_token"] = check_app_token(answers.get("app_token", ""))
    elif answers.get("signing_secret"):
        secrets["signing_secret"] = answers["signing_secret"]
    else:
        raise Invalid(Phrase("connect.slack_no_secret"))
    rotation = {name: answers[name] for name in _ROTATION if answers.get(name)}
    if rotation and len(rotation) < len(_ROTATION):
        raise Invalid(Phrase("connect.slack_rotation"))
    client_id = rotation.pop("client_id", "")
    secrets |= rotation
    base_url = check_base_url(answers.get("base_url") or DEFAULT_URL)
    url = answers.get("url", "")
    if url:
        url = _check_public_address(url)
    api = SlackApi(FixedToken(token), base_url)
    try:
        me, scopes = await _ask(api, secrets.get("app_token", ""))
    finally:
        await api.close()
    missing = sorted(set(BOT_SCOPES) - scopes) if scopes else []
    settings: dict[str, str | list[str]] = {} if base_url == DEFAULT_URL else {"base_url": base_url}
    if mode is not SlackMode.SOCKET:
        settings["mode"] = mode.value
    if client_id:
        settings["client_id"] = client_id
    return SetupOutcome(
        summary=Phrase("connect.slack_bot", name=me.user or me.user_id, workspace=me.team or me.team_id),
        settings=settings,
        secrets=secrets,
        steps=_list_steps(dialog.label, mode, url),
        note=Phrase("connect.slack_scopes", scopes=", ".join(missing)) if missing else "",
        details={"team": me.team_id, "user": me.user_id, "workspace": me.team, "name": me.user},
    )


async def _ask(api: SlackApi, app_token: str) -> tuple[SlackIdentity, frozenset[str]]:
    try:
        me = msgspec.convert(await api.call("auth.test"), SlackIdentity)
        scopes = await api.find_scopes()
        if app_token:
            await api.call_as(app_token, "apps.connections.open")
    except SlackApiError as exc:
        if exc.method == "apps.connections.open" and exc.code in ("invalid_auth", "missing_scope"):
            raise Forbidden(BAD_APP_TOKEN) from None
        check_access(exc)
        raise Unavailable(str(exc)) from None
    except (SlackUnreachable, SlackNoResponse, msgspec.ValidationError) as exc:
        raise Unavailable(Phrase("connect.tokens_unchecked", reason=exc)) from None
    return me, scopes


def _list_steps(label: str, mode: SlackMode, url: str) -> tuple[str, ...]:
    hook = f"{url or 'https://YOUR-ADDRESS'}/hooks/{label.replace('.', '/')}"
    first = () if mode is SlackMode.SOCKET else (Phrase("connect.slack_hook", address=hook),)
    return (
        Phrase("connect.start"),
        *first,
        Phrase("connect.slack_write"),
        Phrase("connect.pair", platform=PLATFORM),
    )


def _check_public_address(url: str) -> str:
    return check_url(url, Phrase("connect.public_address_missing"))


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Slack",
    summary=Phrase("connect.slack"),
    intro=_INTRO,
    fields=(
        SetupField(
            name="token",
            label=Phrase("connect.slack_token"),
            help=Phrase("connect.slack_token_help"),
            secret=True,
            accept=check_bot_token,
        ),
        SetupField(
            name="app_token",
            label=Phrase("connect.slack_app_token"),
            help=Phrase("connect.slack_app_token_help"),
            secret=True,
            when={"mode": SlackMode.SOCKET.value},
            accept=check_app_token,
        ),
        SetupField(
            name="mode",
            label=Phrase("connect.slack_mode"),
            help=Phrase("connect.slack_mode_help"),
            optional=True,
            ask=False,
            default=SlackMode.SOCKET.value,
            choices=tuple(mode.value for mode in SlackMode),
        ),
        SetupField(
            name="signing_secret",
            label=Phrase("connect.slack_signing_secret"),
            help=Phrase("connect.slack_signing_secret_help"),
            secret=True,
            when={"mode": SlackMode.EVENTS.value},
        ),
        SetupField(
            name="refresh_token",
            label=Phrase("connect.slack_refresh_token"),
            help=Phrase("connect.slack_refresh_token_help"),
            secret=True,
            optional=True,
            ask=False,
        ),
        SetupField(
            name="client_id",
            label=Phrase("connect.slack_client_id"),
            help=Phrase("connect.slack_client_help"),
            optional=True,
            ask=False,
        ),
        SetupField(
            name="client_secret",
            label=Phrase("connect.slack_client_secret"),
            help=Phrase("connect.slack_client_help"),
            secret=True,
            optional=True,
            ask=False,
        ),
        SetupField(
            name="url",
            label=Phrase("connect.public_address"),
            help=Phrase("connect.slack_url_help"),
            optional=True,
            ask=False,
            accept=_check_public_address,
        ),
        SetupField(
            name="base_url",
            label=Phrase("connect.slack_api"),
            help=Phrase("connect.slack_api_help"),
            optional=True,
            ask=False,
            default=DEFAULT_URL,
        ),
    ),
    person=IDS.person,
    check=check,
)
