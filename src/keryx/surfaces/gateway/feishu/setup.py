"""The setup of an app on Feishu or Lark: the permissions and events that it needs, what a person is asked, and the check of the credentials."""

import json
import re
from collections.abc import Mapping

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.surfaces.gateway.feishu import (
    FeishuDomain,
    FeishuMode,
    build_decryptor,
    check_app_id,
    find_base_url,
)
from keryx.surfaces.gateway.feishu.event_parser import (
    CARD_ACTION,
    IDS,
    MESSAGE_RECALLED,
    MESSAGE_RECEIVED,
    PLATFORM,
    REACTION_ADDED,
    REACTION_REMOVED,
)
from keryx.surfaces.gateway.feishu.long_connection import TOO_MANY_CONNECTIONS
from keryx.surfaces.gateway.feishu.open_api import (
    CONNECTION_LIMIT,
    FeishuApi,
    FeishuApiError,
    FeishuNoResponse,
    FeishuUnreachable,
    check_access,
)
from keryx.surfaces.gateway.feishu.payloads import FeishuIdentity
from keryx.surfaces.gateway.http_clients import check_url

SCOPES = (
    "contact:user.base:readonly",
    "contact:user.employee_id:readonly",
    "im:chat:readonly",
    "im:message.group_at_msg:readonly",
    "im:message.p2p_msg:readonly",
    "im:message.reactions:read",
    "im:message.reactions:write_only",
    "im:message:readonly",
    "im:message:recall",
    "im:message:send_as_bot",
    "im:message:update",
    "im:resource",
)
EVENTS = (MESSAGE_RECEIVED, MESSAGE_RECALLED, REACTION_ADDED, REACTION_REMOVED)
CALLBACKS = (CARD_ACTION,)


def build_scopes() -> str:
    """Return the permissions as the page Permissions & Scopes imports them."""
    return json.dumps({"scopes": {"tenant": list(SCOPES), "user": []}}, indent=2)


_INTRO = f"""Make an app on Feishu or Lark first:

  1. open https://open.feishu.cn/app (https://open.larksuite.com/app for Lark),
     choose Create Custom App, and add the feature Bot
  2. on the page Permissions & Scopes, choose Batch import, and paste this:

{build_scopes()}

  3. on the page Version Management & Release, create a version and publish it
  4. the page Credentials & Basic Info shows the App ID and the App Secret
"""


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask Feishu who the bot is, and whether it opens a long connection."""
    mode = FeishuMode(answers.get("mode") or FeishuMode.CONNECTION)
    domain = FeishuDomain(answers.get("domain") or FeishuDomain.FEISHU)
    app_id = check_app_id(answers.get("app_id", "").strip())
    secrets = {"app_secret": answers.get("app_secret", "").strip()}
    if not secrets["app_secret"]:
        raise Invalid("the App Secret is missing: the page Credentials & Basic Info of the app shows it")
    if mode is FeishuMode.WEBHOOK:
        for name in ("encrypt_key", "verification_token"):
            secrets[name] = answers.get(name, "").strip()
            if not secrets[name]:
                raise Invalid(
                    "encrypted posts need the Encrypt Key and the Verification Token, from the page Events & Callbacks, Encryption Strategy"
                )
        build_decryptor(secrets["encrypt_key"])
    allow = tuple(re.split(r"[\s,]+", answers.get("allow", "").strip())) if answers.get("allow") else ()
    for person in allow:
        if IDS.person is not None and not IDS.person.matches(person):
            raise Invalid(f"{person[:80]!r} is no person on Feishu: the id of one is {IDS.person.words}")
    url = answers.get("url", "")
    if url:
        url = check_url(url, "write the public address of Keryx, such as https://keryx.example.org")
    base_url = find_base_url(domain, answers.get("base_url", ""))
    me = await _ask(FeishuApi(app_id, secrets["app_secret"], base_url), mode)
    settings: dict[str, str | list[str]] = {"app_id": app_id}
    if domain is not FeishuDomain.FEISHU:
        settings["domain"] = domain.value
    if answers.get("base_url"):
        settings["base_url"] = base_url
    if mode is not FeishuMode.CONNECTION:
        settings["mode"] = mode.value
    return SetupOutcome(
        summary=f"The bot is {me.app_name or me.open_id} ({app_id}).",
        settings=settings,
        secrets=secrets,
        allow=allow,
        steps=_list_steps(dialog.label, mode, url, known=bool(allow)),
        details={"app": app_id, "bot": me.open_id, "name": me.app_name},
    )


async def _ask(api: FeishuApi, mode: FeishuMode) -> FeishuIdentity:
    try:
        me = await api.identify()
        if mode is FeishuMode.CONNECTION:
            await api.open_connection()
    except FeishuApiError as exc:
        if exc.code == CONNECTION_LIMIT:
            raise Forbidden(TOO_MANY_CONNECTIONS) from None
        check_access(exc)
        raise Unavailable(str(exc)) from None
    except (FeishuUnreachable, FeishuNoResponse) as exc:
        raise Unavailable(f"the credentials could not be checked: {exc}. Try again later") from None
    finally:
        await api.close()
    return me


def _list_steps(label: str, mode: FeishuMode, url: str, *, known: bool) -> tuple[str, ...]:
    way = "receive them through a persistent connection"
    if mode is FeishuMode.WEBHOOK:
        hook = f"{url or 'https://YOUR-ADDRESS'}/hooks/{label.replace('.', '/')}"
        way = f"send them to the developer's server at {hook}"
    paired = f"it answers with a code; let yourself in: keryx pairing approve {PLATFORM} CODE --operator"
    return (
        "start Keryx, or start it again: keryx serve",
        # The platform accepts this only while the program is connected.
        f"while it runs, on the page Events & Callbacks of the app, choose for events and for callbacks: {way}",
        f"add the events {', '.join(EVENTS)} and the callback {', '.join(CALLBACKS)}, and publish a new version of the app",
        "write to the bot, or add it to a group and mention it",
        *(() if known else (paired,)),
    )


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Feishu / Lark",
    summary="Connect an app on Feishu or Lark.",
    intro=_INTRO,
    fields=(
        SetupField(
            name="app_id",
            label="App ID",
            help="It is on the page Credentials & Basic Info of the app, and begins with cli_.",
            accept=check_app_id,
            example="cli_a1b2c3d4e5f60001",
        ),
        SetupField(
            name="app_secret",
            label="App Secret",
            help="It is on the page Credentials & Basic Info of the app.",
            secret=True,
        ),
        SetupField(
            name="domain",
            label="Platform",
            help="feishu is the one in China, lark the one elsewhere.",
            optional=True,
            default=FeishuDomain.FEISHU.value,
            choices=tuple(domain.value for domain in FeishuDomain),
        ),
        SetupField(
            name="allow",
            label="Who may talk to the bot, as ids with commas",
            help="An open id begins with ou_. Whoever is not listed can ask for a pairing code.",
            optional=True,
        ),
        SetupField(
            name="mode",
            label="How Feishu reaches Keryx",
            help="connection needs no public address; webhook lets Feishu post to Keryx.",
            optional=True,
            ask=False,
            default=FeishuMode.CONNECTION.value,
            choices=tuple(mode.value for mode in FeishuMode),
        ),
        SetupField(
            name="encrypt_key",
            label="Encrypt Key",
            help="For posts: it is on the page Events & Callbacks, Encryption Strategy.",
            secret=True,
            when={"mode": FeishuMode.WEBHOOK.value},
        ),
        SetupField(
            name="verification_token",
            label="Verification Token",
            help="For posts: it is on the page Events & Callbacks, Encryption Strategy.",
            secret=True,
            when={"mode": FeishuMode.WEBHOOK.value},
        ),
        SetupField(
            name="url",
            label="Public address of Keryx",
            help="For posts, such as https://keryx.example.org.",
            optional=True,
            ask=False,
        ),
        SetupField(
            name="base_url",
            label="Address of the server API",
            help="Only for another one than that of Feishu or Lark.",
            optional=True,
            ask=False,
        ),
    ),
    check=check,
)
