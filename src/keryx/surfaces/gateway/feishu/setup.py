"""The setup of an app on Feishu or Lark: the permissions and events that it needs, what a person is asked, and the check of the credentials."""

import json
import re
from collections.abc import Mapping

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.texts import Phrase
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


_INTRO = Phrase("connect.feishu_intro", scopes=build_scopes())


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Ask Feishu who the bot is, and whether it opens a long connection."""
    mode = FeishuMode(answers.get("mode") or FeishuMode.CONNECTION)
    domain = FeishuDomain(answers.get("domain") or FeishuDomain.FEISHU)
    app_id = check_app_id(answers.get("app_id", "").strip())
    secrets = {"app_secret": answers.get("app_secret", "").strip()}
    if not secrets["app_secret"]:
        raise Invalid(Phrase("connect.feishu_no_secret"))
    if mode is FeishuMode.WEBHOOK:
        for name in ("encrypt_key", "verification_token"):
            secrets[name] = answers.get(name, "").strip()
            if not secrets[name]:
                raise Invalid(Phrase("connect.feishu_no_keys"))
        build_decryptor(secrets["encrypt_key"])
    allow = tuple(re.split(r"[\s,]+", answers.get("allow", "").strip())) if answers.get("allow") else ()
    for person in allow:
        if IDS.person is not None and not IDS.person.matches(person):
            raise Invalid(
                Phrase("connect.no_person", name=repr(person[:80]), platform="Feishu", words=IDS.person.words)
            )
    url = answers.get("url", "")
    if url:
        url = _check_public_address(url)
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
        summary=Phrase("connect.feishu_bot", name=me.app_name or me.open_id, app=app_id),
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
        raise Unavailable(Phrase("connect.credentials_unchecked", reason=exc)) from None
    finally:
        await api.close()
    return me


def _list_steps(label: str, mode: FeishuMode, url: str, *, known: bool) -> tuple[str, ...]:
    way = Phrase("connect.feishu_connection")
    if mode is FeishuMode.WEBHOOK:
        hook = f"{url or 'https://YOUR-ADDRESS'}/hooks/{label.replace('.', '/')}"
        way = Phrase("connect.feishu_server", address=hook)
    paired = Phrase("connect.pair", platform=PLATFORM)
    return (
        Phrase("connect.start"),
        # The platform accepts this only while the program is connected.
        Phrase("connect.feishu_way", way=way),
        Phrase("connect.feishu_events", events=", ".join(EVENTS), callbacks=", ".join(CALLBACKS)),
        Phrase("connect.feishu_write"),
        *(() if known else (paired,)),
    )


def _check_public_address(url: str) -> str:
    return check_url(url, Phrase("connect.public_address_missing"))


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Feishu / Lark",
    summary=Phrase("connect.feishu"),
    intro=_INTRO,
    fields=(
        SetupField(
            name="app_id",
            label=Phrase("connect.feishu_app_id"),
            help=Phrase("connect.feishu_app_id_help"),
            accept=check_app_id,
            example="cli_a1b2c3d4e5f60001",
        ),
        SetupField(
            name="app_secret",
            label=Phrase("connect.feishu_secret"),
            help=Phrase("connect.feishu_secret_help"),
            secret=True,
        ),
        SetupField(
            name="domain",
            label=Phrase("connect.feishu_platform"),
            help=Phrase("connect.feishu_platform_help"),
            optional=True,
            default=FeishuDomain.FEISHU.value,
            choices=tuple(domain.value for domain in FeishuDomain),
        ),
        SetupField(
            name="allow",
            label=Phrase("connect.feishu_allow"),
            help=Phrase("connect.feishu_allow_help"),
            optional=True,
        ),
        SetupField(
            name="mode",
            label=Phrase("connect.feishu_mode"),
            help=Phrase("connect.feishu_mode_help"),
            optional=True,
            ask=False,
            default=FeishuMode.CONNECTION.value,
            choices=tuple(mode.value for mode in FeishuMode),
        ),
        SetupField(
            name="encrypt_key",
            label=Phrase("connect.feishu_key"),
            help=Phrase("connect.feishu_posts_help"),
            secret=True,
            when={"mode": FeishuMode.WEBHOOK.value},
        ),
        SetupField(
            name="verification_token",
            label=Phrase("connect.feishu_token"),
            help=Phrase("connect.feishu_posts_help"),
            secret=True,
            when={"mode": FeishuMode.WEBHOOK.value},
        ),
        SetupField(
            name="url",
            label=Phrase("connect.public_address"),
            help=Phrase("connect.feishu_url_help"),
            optional=True,
            ask=False,
            accept=_check_public_address,
        ),
        SetupField(
            name="base_url",
            label=Phrase("connect.feishu_api"),
            help=Phrase("connect.feishu_api_help"),
            optional=True,
            ask=False,
        ),
    ),
    person=IDS.person,
    check=check,
)
