"""The setup of Slack: the manifest of the app, the questions to a person, and the check of the tokens."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.surfaces.gateway.http_clients import check_url
from keryx.surfaces.gateway.slack import SlackMode, check_app_token, check_base_url, check_bot_token
from keryx.surfaces.gateway.slack.event_parser import PLATFORM
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
_INTRO = f"""Make an app on Slack first:

  1. open https://api.slack.com/apps, choose Create New App, then From a
     manifest, and paste this:

{build_manifest()}

  2. on the page Basic Information, under App-Level Tokens, make a token with
     the scope connections:write: that is the app token (xapp-…)
  3. on the page Install App, install it to your workspace: Slack shows the
     bot token (xoxb-…)
"""


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
        raise Invalid("the Events API needs the signing secret, from the page Basic Information of the app")
    rotation = {name: answers[name] for name in _ROTATION if answers.get(name)}
    if rotation and len(rotation) < len(_ROTATION):
        raise Invalid(
            "tokens that rotate need the refresh token from the page OAuth & Permissions of the app, and the client id and the client secret from the page Basic Information"
        )
    client_id = rotation.pop("client_id", "")
    secrets |= rotation
    base_url = check_base_url(answers.get("base_url") or DEFAULT_URL)
    url = answers.get("url", "")
    if url:
        url = check_url(url, "write the public address of Keryx, such as https://keryx.example.org")
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
        summary=f"The bot is @{me.user or me.user_id} in the workspace {me.team or me.team_id}.",
        settings=settings,
        secrets=secrets,
        steps=_list_steps(dialog.label, mode, url),
        note=f"The app lacks scopes, so some of what Keryx does will fail: {', '.join(missing)}. Add them on the page OAuth & Permissions of the app and install it again."
        if missing
        else "",
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
        raise Unavailable(f"the tokens could not be checked: {exc}. Try again later") from None
    return me, scopes


def _list_steps(label: str, mode: SlackMode, url: str) -> tuple[str, ...]:
    hook = f"{url or 'https://YOUR-ADDRESS'}/hooks/{label.replace('.', '/')}"
    first = (
        ()
        if mode is SlackMode.SOCKET
        else (
            f"on the pages Event Subscriptions, Interactivity and Slash Commands of the app, set the address {hook}",
        )
    )
    return (
        "start Keryx, or start it again: keryx serve",
        *first,
        "write to the app in Slack, or invite it to a channel with /invite and mention it",
        f"it answers with a code; let yourself in: keryx pairing approve {PLATFORM} CODE --operator",
    )


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Slack",
    intro=_INTRO,
    fields=(
        SetupField(
            name="token",
            label="Bot token",
            help="It is on the page OAuth & Permissions of the app, and begins with xoxb-.",
            secret=True,
            accept=check_bot_token,
        ),
        SetupField(
            name="app_token",
            label="App token",
            help="It is on the page Basic Information of the app, and begins with xapp-.",
            secret=True,
            when={"mode": SlackMode.SOCKET.value},
            accept=check_app_token,
        ),
        SetupField(
            name="mode",
            label="How Slack reaches Keryx",
            help="socket needs no public address; events lets Slack post to Keryx.",
            optional=True,
            ask=False,
            default=SlackMode.SOCKET.value,
            choices=tuple(mode.value for mode in SlackMode),
        ),
        SetupField(
            name="signing_secret",
            label="Signing secret",
            help="For the Events API: it is on the page Basic Information of the app.",
            secret=True,
            when={"mode": SlackMode.EVENTS.value},
        ),
        SetupField(
            name="refresh_token",
            label="Refresh token",
            help="For tokens that rotate: it is beside the bot token, and begins with xoxe-.",
            secret=True,
            optional=True,
            ask=False,
        ),
        SetupField(
            name="client_id",
            label="Client id",
            help="For tokens that rotate: it is on the page Basic Information of the app.",
            optional=True,
            ask=False,
        ),
        SetupField(
            name="client_secret",
            label="Client secret",
            help="For tokens that rotate: it is on the page Basic Information of the app.",
            secret=True,
            optional=True,
            ask=False,
        ),
        SetupField(
            name="url",
            label="Public address of Keryx",
            help="For the Events API, such as https://keryx.example.org.",
            optional=True,
            ask=False,
        ),
        SetupField(
            name="base_url",
            label="Address of the Web API",
            help="Only for another one than Slack's own.",
            optional=True,
            ask=False,
            default=DEFAULT_URL,
        ),
    ),
    check=check,
)
