"""The setup of a bot on WeChat: a person logs in by scanning a QR code with WeChat."""

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from keryx.core.errors import Conflict, Forbidden, Unavailable
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome, SupportsQuestions
from keryx.core.texts import Phrase
from keryx.surfaces.gateway import qr_code
from keryx.surfaces.gateway.wechat import check_url
from keryx.surfaces.gateway.wechat.event_parser import IDS, PLATFORM
from keryx.surfaces.gateway.wechat.ilink_api import (
    DEFAULT_CDN_URL,
    DEFAULT_URL,
    ILinkApi,
    WeChatApiError,
    WeChatNoResponse,
    WeChatUnreachable,
    is_own_url,
)
from keryx.surfaces.gateway.wechat.payloads import LoginCode, LoginStatus
from keryx.timing import Sleep

_INTRO = Phrase("connect.wechat_intro")
# What Tencent calls the kind of bot that its plug-in is.
_BOT_TYPE = "3"
_POLL_SECONDS = 45.0
_MAX_CODES = 3
_MAX_LOGIN_SECONDS = 480.0
# A form waits for as long as a request of the page may last.
_MAX_FORM_SECONDS = 90.0
_PAUSE_SECONDS = 1.0


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Log in, and return the token of the bot."""
    base_url = check_url("base_url", answers["base_url"] or DEFAULT_URL)
    cdn_url = check_url("cdn_url", answers["cdn_url"] or DEFAULT_CDN_URL)
    api = ILinkApi(base_url=base_url)
    try:
        login = BotLogin(api, base_url, dialog)
        status = await login.run(code=answers["login"], number=answers["verify_code"])
    except WeChatApiError as exc:
        raise Unavailable(Phrase("connect.later", reason=exc)) from None
    except (WeChatUnreachable, WeChatNoResponse) as exc:
        raise Unavailable(Phrase("connect.check_network", reason=exc)) from None
    finally:
        await api.close()
    own_url = status.baseurl.rstrip("/") or base_url
    if not is_own_url(own_url, base_url):
        raise Forbidden(Phrase("connect.wechat_foreign"))
    settings = {"bot_id": status.ilink_bot_id, "base_url": own_url, "cdn_url": cdn_url}
    return SetupOutcome(
        summary=Phrase("connect.wechat_bot"),
        settings={**settings},
        secrets={"token": status.bot_token},
        allow=(status.ilink_user_id,) if status.ilink_user_id else (),
        steps=(
            Phrase("connect.start"),
            Phrase("connect.wechat_write"),
        ),
        note=Phrase("connect.wechat_note"),
        details={"bot_id": status.ilink_bot_id, "user_id": status.ilink_user_id},
    )


class BotLogin:
    """One login: shows codes and asks WeChat until a person has confirmed one."""

    def __init__(
        self, api: ILinkApi, base_url: str, dialog: SetupDialog, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._api = api
        self._base = base_url
        self._dialog = dialog
        self._sleep = sleep
        # Where the status is asked for; WeChat may name another host.
        self._status_url = base_url

    async def run(self, *, code: str = "", number: str = "") -> LoginStatus:
        """Return the confirmed login. In a terminal the code is shown. In a form, the first call raises `Conflict` with the
        code, and a further one continues with it."""
        person = self._dialog if isinstance(self._dialog, SupportsQuestions) else None
        if person is None and not code:
            begun = await self._begin()
            raise Conflict(
                Phrase("connect.wechat_scan_form", address=begun.qrcode_img_content, code=begun.qrcode)
            )
        limit = _MAX_LOGIN_SECONDS if person else _MAX_FORM_SECONDS
        try:
            async with asyncio.timeout(limit):
                return await self._wait(person, code, number)
        except TimeoutError:
            why = (
                Phrase("connect.wechat_go_on", code=code)
                if person is None
                else Phrase("connect.wechat_again")
            )
            raise Unavailable(
                Phrase("connect.wechat_not_confirmed", seconds=f"{limit:g}", reason=why)
            ) from None

    async def _begin(self) -> LoginCode:
        found = await self._api.post(
            "get_bot_qrcode", {"local_token_list": []}, LoginCode, query={"bot_type": _BOT_TYPE}
        )
        if not found.qrcode or not found.qrcode_img_content:
            raise WeChatNoResponse(Phrase("connect.wechat_no_code"))
        self._status_url = self._base
        return found

    async def _show(self) -> str:
        """Show a new code and return its name."""
        begun = await self._begin()
        link = begun.qrcode_img_content
        self._dialog.show(Phrase("connect.wechat_scan", code=qr_code.render_text(link)))
        self._dialog.show(Phrase("connect.wechat_scan_elsewhere", address=link))
        return begun.qrcode

    async def _wait(self, person: SupportsQuestions | None, code: str, number: str) -> LoginStatus:
        shown, before = 0, ""
        while True:
            if not code:
                code, number, before, shown = await self._show(), "", "", shown + 1
            found = await self._fetch_status(code, number)
            match found.status:
                case "confirmed":
                    return self._check_confirmed(found)
                case "expired" | "verify_code_blocked":
                    if person is None:
                        raise Conflict(Phrase("connect.wechat_expired"))
                    if shown == _MAX_CODES:
                        raise Unavailable(Phrase("connect.wechat_all_expired"))
                    self._dialog.show(Phrase("connect.wechat_next_code"))
                    code = ""
                    continue
                case "need_verifycode":
                    if person is None:
                        raise Conflict(Phrase("connect.wechat_number_form", code=code))
                    key = "connect.wechat_ask_number_again" if number else "connect.wechat_ask_number"
                    number = await person.ask(Phrase(key))
                    continue
                case "binded_redirect":
                    raise Conflict(Phrase("connect.wechat_connected"))
                case "scaned_but_redirect":
                    self._follow(found.redirect_host)
                case "scaned":
                    if before != found.status:
                        self._dialog.show(Phrase("connect.wechat_scanned"))
                    number = ""
                case _:
                    pass
            if found.status == before:
                await self._sleep(_PAUSE_SECONDS)
            before = found.status

    async def _fetch_status(self, code: str, number: str) -> LoginStatus:
        """Ask for the status, which WeChat answers when it changes. A cut connection is asked again."""
        query = {"qrcode": code, **({"verify_code": number} if number else {})}
        try:
            return await self._api.get(
                "get_qrcode_status",
                LoginStatus,
                base_url=self._status_url,
                seconds=_POLL_SECONDS,
                query=query,
            )
        except WeChatNoResponse:
            return LoginStatus(status="wait")

    def _follow(self, host: str) -> None:
        """Ask at another host from now on, if it is one of WeChat."""
        if not host:
            return
        url = f"{urlsplit(self._base).scheme}://{host}"
        if not is_own_url(url, self._base):
            raise Forbidden(Phrase("connect.wechat_foreign_host"))
        self._status_url = url

    def _check_confirmed(self, found: LoginStatus) -> LoginStatus:
        if not found.bot_token or not found.ilink_bot_id:
            raise Unavailable(Phrase("connect.wechat_no_token"))
        return found


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="WeChat",
    summary=Phrase("connect.wechat"),
    intro=_INTRO,
    fields=(
        SetupField(
            name="login",
            label=Phrase("connect.wechat_login"),
            help=Phrase("connect.wechat_login_help"),
            optional=True,
            ask=False,
        ),
        SetupField(
            name="verify_code",
            label=Phrase("connect.wechat_number"),
            help=Phrase("connect.wechat_number_help"),
            optional=True,
            ask=False,
        ),
        SetupField(
            name="base_url",
            label=Phrase("connect.api_address"),
            help=Phrase("connect.wechat_api_help"),
            optional=True,
            ask=False,
        ),
        SetupField(
            name="cdn_url",
            label=Phrase("connect.wechat_cdn"),
            help=Phrase("connect.wechat_api_help"),
            optional=True,
            ask=False,
        ),
    ),
    person=IDS.person,
    check=check,
)
