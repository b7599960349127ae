"""Slack's Web API: calls, file transfer, typed errors without a token in them, and the budgets of methods that Slack limits by the minute."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
import msgspec

from keryx.core.durations import parse_retry_after
from keryx.core.errors import Forbidden, Invalid, KeryxError
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.http_clients import HttpClientPool, build_timeout, read_body, translate_errors
from keryx.surfaces.gateway.slack.payloads import SlackFile

DEFAULT_URL = "https://slack.com/api"
_CONNECT_SECONDS = 10.0
_TIMEOUT_SECONDS = 20.0
_FILE_TIMEOUT_SECONDS = 60.0
_DEFAULT_RETRY_AFTER = timedelta(seconds=30)
# These take JSON; all others take forms.
_JSON_FAMILIES = ("chat.", "assistant.", "reactions.")
_SLACK_HOST = ".slack.com"
_HTML = "text/html"
# What Slack allows in a minute in one workspace, for the methods whose use Keryx can choose.
METHOD_BUDGETS: Mapping[str, int] = {
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "chat.appendStream": 100,
    "chat.update": 50,
}
_MINUTE_SECONDS = 60.0

AUTH_ERRORS: Mapping[str, str] = {
    "invalid_auth": Phrase("connect.slack_invalid_auth"),
    "not_authed": Phrase("connect.slack_not_authed"),
    "token_revoked": Phrase("connect.slack_token_revoked"),
    "token_expired": Phrase("connect.slack_token_expired"),
    "account_inactive": Phrase("connect.slack_account_inactive"),
    "invalid_refresh_token": Phrase("connect.slack_invalid_refresh_token"),
    "bad_client_secret": Phrase("connect.slack_bad_client_secret"),
    "invalid_client_id": Phrase("connect.slack_invalid_client_id"),
    "not_allowed_token_type": Phrase("connect.slack_not_allowed_token_type"),
    "org_login_required": Phrase("connect.slack_org_login_required"),
    "ekm_access_denied": Phrase("connect.slack_ekm_access_denied"),
    "team_access_not_granted": Phrase("connect.slack_team_access_not_granted"),
    "app_uninstalled": Phrase("connect.slack_app_uninstalled"),
}
# Slack may have done what it was asked to.
_UNCERTAIN_CODES = frozenset({"fatal_error", "internal_error", "service_unavailable", "request_timeout"})


class SlackApiError(KeryxError):
    """A refusal. `code` is Slack's word for it, `needed` the scope that is missing."""

    def __init__(
        self, method: str, code: str, *, needed: str = "", retry_after: timedelta | None = None
    ) -> None:
        super().__init__(f"Slack refuses {method}: {AUTH_ERRORS.get(code) or code}" + describe_scope(needed))
        self.method = method
        self.code = code
        self.needed = needed
        # Set if Slack asks to wait.
        self.retry_after = retry_after

    @property
    def throttled(self) -> bool:
        return self.retry_after is not None

    @property
    def uncertain(self) -> bool:
        return self.code in _UNCERTAIN_CODES

    @property
    def unauthorized(self) -> bool:
        return self.code in AUTH_ERRORS


class SlackUnreachable(KeryxError):
    pass


class SlackNoResponse(KeryxError):
    pass


SLACK_ERRORS = (SlackApiError, SlackUnreachable, SlackNoResponse)


def describe_scope(scope: str) -> str:
    """Return what to do about a missing scope, as the end of a sentence; empty for none."""
    return (
        f": the app lacks the scope {scope}. Add it on the page OAuth & Permissions of the app and install it again"
        if scope
        else ""
    )


def check_access(error: SlackApiError) -> None:
    """Raise `Forbidden` for a refusal of the credentials or of a scope."""
    if error.unauthorized:
        raise Forbidden(AUTH_ERRORS[error.code]) from None
    if error.code == "missing_scope":
        raise Forbidden(f"Slack refuses {error.method}{describe_scope(error.needed)}") from None


class TokenSource(Protocol):
    """Where the bot token comes from."""

    async def read(self, *, refused: str = "") -> str:
        """Return the token to use; another one than `refused`, if there is one."""
        ...


class FixedToken:
    """A token that does not expire."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def read(self, *, refused: str = "") -> str:
        return self._token


class _ApiAnswer(msgspec.Struct, frozen=True):
    ok: bool
    error: str = ""
    needed: str = ""


class SlackApi:
    """The calls of one workspace. Opens its connections when they are needed."""

    def __init__(self, token: TokenSource, base_url: str = DEFAULT_URL) -> None:
        self._token = token
        self._base = base_url.rstrip("/")
        self._clients = HttpClientPool(lambda trusted: httpx.AsyncClient(verify=trusted))

    async def close(self) -> None:
        await self._clients.close()

    async def call(
        self, method: str, *, seconds: float = _TIMEOUT_SECONDS, **params: object
    ) -> dict[str, Any]:
        """Return the answer of a method. Parameters that are `None` are left out. A token that has expired is replaced."""
        token = await self._token.read()
        try:
            return await self.call_as(token, method, seconds=seconds, **params)
        except SlackApiError as exc:
            if exc.code != "token_expired":
                raise
            fresh = await self._token.read(refused=token)
            if fresh == token:
                raise
        return await self.call_as(fresh, method, seconds=seconds, **params)

    async def call_as(
        self, token: str, method: str, *, seconds: float = _TIMEOUT_SECONDS, **params: object
    ) -> dict[str, Any]:
        """Call a method with another token than the bot's; with an empty one, without any."""
        sent = {name: value for name, value in params.items() if value is not None}
        headers = {"authorization": f"Bearer {token}"} if token else {}
        request: dict[str, Any]
        if method.startswith(_JSON_FAMILIES):
            headers["content-type"] = "application/json; charset=utf-8"
            request = {"content": json.dumps(sent).encode()}
        else:
            fields = {n: value if isinstance(value, str) else json.dumps(value) for n, value in sent.items()}
            request = {"data": fields}
        answer = await self._post(f"{self._base}/{method}", seconds, headers=headers, **request)
        return _read_answer(method, answer)

    async def find_scopes(self) -> frozenset[str]:
        """Return the scopes of the bot token; none if Slack does not name them."""
        headers = {"authorization": f"Bearer {await self._token.read()}"}
        answer = await self._post(f"{self._base}/auth.test", _TIMEOUT_SECONDS, headers=headers)
        _read_answer("auth.test", answer)
        named = answer.headers.get("x-oauth-scopes", "").split(",")
        return frozenset(scope.strip() for scope in named if scope.strip())

    async def upload(self, url: str, body: bytes) -> None:
        """Send the bytes of a file to the address that Slack has named for them."""
        answer = await self._post(
            url, _FILE_TIMEOUT_SECONDS, headers={"content-type": "application/octet-stream"}, content=body
        )
        if answer.status_code != 200:
            raise SlackApiError("the upload of a file", f"status {answer.status_code}")

    async def find_file(self, id_: str) -> SlackFile:
        """Return what Slack says about a file now. Raise `SlackNoResponse` if that cannot be read."""
        answer = await self.call("files.info", file=id_)
        try:
            return msgspec.convert(answer.get("file"), SlackFile)
        except msgspec.ValidationError:
            raise SlackNoResponse(Phrase("delivery.no_file_address", platform="Slack")) from None

    async def download(self, file: SlackFile, *, limit: int) -> bytes:
        """Return the bytes of a file. Raise `Invalid` for one that has more than `limit` bytes or is not on Slack."""
        if not self._is_own_host(file.url):
            raise Invalid(Phrase("file.elsewhere", platform="Slack"))
        token = await self._token.read()
        try:
            async with (
                self._clients.acquire() as client,
                client.stream(
                    "GET",
                    file.url,
                    headers={"authorization": f"Bearer {token}"},
                    timeout=build_timeout(_FILE_TIMEOUT_SECONDS),
                ) as answer,
            ):
                # Raise `SlackApiError` if the answer is not the file, which may be a page itself.
                _check_available("the file", answer)
                # Slack answers with a page for signing in if the app may not read files.
                page = file.mimetype != _HTML and answer.headers.get("content-type", "").startswith(_HTML)
                if answer.status_code == 302 or (answer.status_code == 200 and page):
                    raise SlackApiError("the file", "missing_scope", needed="files:read")
                if answer.status_code != 200:
                    raise SlackApiError("the file", f"status {answer.status_code}")
                return await read_body(answer, limit)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise SlackNoResponse(Phrase("delivery.not_fetched", kind=type(exc).__name__)) from None

    def _is_own_host(self, url: str) -> bool:
        """Whether the token may be sent there."""
        try:
            parts, base = urlsplit(url), urlsplit(self._base)
        except ValueError:
            return False
        if (parts.scheme, parts.netloc) == (base.scheme, base.netloc):
            return True
        hosts = (_SLACK_HOST, f".{base.hostname}")
        return parts.scheme == "https" and f".{parts.hostname or ''}".endswith(hosts)

    async def _post(self, url: str, seconds: float, **request: Any) -> httpx.Response:
        with translate_errors("Slack", SlackUnreachable, SlackNoResponse):
            async with self._clients.acquire() as client:
                return await client.post(url, timeout=build_timeout(seconds), **request)


def _check_available(method: str, answer: httpx.Response) -> None:
    if answer.status_code == 429:
        wait = parse_retry_after(answer.headers, now=datetime.now(UTC))
        raise SlackApiError(method, "ratelimited", retry_after=wait or _DEFAULT_RETRY_AFTER)
    if answer.status_code >= 500:
        raise SlackApiError(method, "service_unavailable")


def _read_answer(method: str, answer: httpx.Response) -> dict[str, Any]:
    _check_available(method, answer)
    try:
        found = json.loads(answer.content)
        status = msgspec.convert(found, _ApiAnswer)
    except (ValueError, RecursionError):
        if answer.status_code == 200:
            raise SlackNoResponse(Phrase("delivery.unreadable", platform="Slack")) from None
        raise SlackApiError(method, f"status {answer.status_code}") from None
    if status.ok:
        return found
    wait = _DEFAULT_RETRY_AFTER if status.error in ("ratelimited", "rate_limited") else None
    raise SlackApiError(method, status.error or "no reason is given", needed=status.needed, retry_after=wait)


class MethodBudget:
    """Counts the calls of limited methods, so that what has a substitute is not asked for too often."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._calls: dict[str, list[float]] = {}
        self._closed_until: dict[str, float] = {}

    def has_room(self, *methods: str) -> bool:
        """Whether each of these methods may be called now."""
        now = self._now()
        for method in methods:
            calls = [at for at in self._calls.get(method, ()) if at > now - _MINUTE_SECONDS]
            self._calls[method] = calls
            if len(calls) >= METHOD_BUDGETS[method] or self._closed_until.get(method, now) > now:
                return False
        return True

    def count(self, method: str) -> None:
        self._calls.setdefault(method, []).append(self._now())

    def close(self, method: str, wait: timedelta) -> None:
        """Slack has refused the method for some time."""
        self._closed_until[method] = self._now() + wait.total_seconds()
