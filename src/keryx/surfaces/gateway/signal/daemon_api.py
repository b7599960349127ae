"""The JSON-RPC interface of the signal-cli daemon over HTTP: calls, download of files, and typed errors."""

import base64
import binascii
import itertools
import json
from datetime import timedelta
from typing import Any

import httpx
import msgspec

from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.core.texts import Phrase
from keryx.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, as_object, as_objects
from keryx.jsonrpc.peer import encode_message
from keryx.surfaces.gateway import http_clients
from keryx.surfaces.gateway.http_clients import HttpClientPool, build_timeout, translate_errors

DEFAULT_URL = "http://127.0.0.1:8080"
_PATH = "/api/v1/rpc"
_TIMEOUT_SECONDS = 60.0
_FILE_TIMEOUT_SECONDS = 120.0
# Error codes of signal-cli.
USER_ERROR, IO_ERROR, UNTRUSTED_KEY, RATE_LIMIT = -1, -3, -4, -5
_RECEIVING = "already being received"
_UNKNOWN_ACCOUNT = "account"
_UNAUTHORIZED = ("authorization failed", "[401]", "[403]")


class SendFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message did not reach one recipient."""

    type: str = ""
    # Of a challenge that a person has to solve.
    token: str | None = None
    retry_after_seconds: float | None = msgspec.field(default=None, name="retryAfterSeconds")


class SignalApiError(KeryxError):
    """A refusal of signal-cli. `failures` are those of a send, one for each recipient."""

    def __init__(self, code: int, description: str, failures: tuple[SendFailure, ...] = ()) -> None:
        super().__init__(f"signal-cli says: {description} ({code})")
        self.code = code
        self.description = description
        self.failures = failures

    @classmethod
    def from_json(cls, value: object) -> "SignalApiError":
        error = RpcError.from_json(value)
        response = as_object(as_object(as_object(value).get("data")).get("response"))
        try:
            failures = msgspec.convert(as_objects(response.get("results")), tuple[SendFailure, ...])
        except msgspec.ValidationError:
            failures = ()
        return cls(error.code, str(error), failures)

    @property
    def receiving(self) -> bool:
        """Another call, or signal-cli itself, receives messages of the account."""
        return self.code == USER_ERROR and _RECEIVING in self.description

    @property
    def unknown_account(self) -> bool:
        """signal-cli does not have the account, or Signal no longer accepts it."""
        text = self.description.lower()
        return (self.code == INVALID_PARAMS and _UNKNOWN_ACCOUNT in text) or (
            self.code == IO_ERROR and any(words in text for words in _UNAUTHORIZED)
        )

    @property
    def wait(self) -> timedelta:
        """How long to wait, zero if Signal does not say it."""
        return timedelta(seconds=max((f.retry_after_seconds or 0 for f in self.failures), default=0))


class SignalUnreachable(KeryxError):
    pass


class SignalNoResponse(KeryxError):
    pass


def check_url(url: str) -> str:
    """Return the address of signal-cli without its trailing slash. Raise `Invalid` for anything else."""
    return http_clients.check_url(
        url, f"signal.url: write the address of the signal-cli daemon, such as {DEFAULT_URL}"
    )


class SignalApi:
    """The calls of one account. Opens its connections when they are needed."""

    def __init__(self, base_url: str, account: str = "") -> None:
        self._url = check_url(base_url) + _PATH
        # A daemon that was started for one account refuses to be told which.
        self._scope = {"account": account} if account else {}
        self._ids = itertools.count(1)
        self._clients = HttpClientPool(lambda trusted: httpx.AsyncClient(verify=trusted))

    async def call(
        self, method: str, *, seconds: float = _TIMEOUT_SECONDS, scoped: bool = True, **params: object
    ) -> Any:
        """Return the result of a method. Parameters that are `None` are left out; `scoped` adds the account."""
        given = {name: value for name, value in params.items() if value is not None}
        request = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": {**(self._scope if scoped else {}), **given},
        }
        with translate_errors("signal-cli", SignalUnreachable, SignalNoResponse, setting="url"):
            async with self._clients.acquire() as client:
                answer = await client.post(
                    self._url,
                    content=encode_message(request),
                    headers={"content-type": "application/json"},
                    timeout=build_timeout(seconds),
                )
        if answer.status_code != 200:
            kind = SignalNoResponse if answer.status_code >= 500 else SignalUnreachable
            raise kind(f"what answers at signal.url is not signal-cli (status {answer.status_code})")
        try:
            message = as_object(json.loads(answer.content))
        except (ValueError, RecursionError):
            raise SignalNoResponse(Phrase("delivery.unreadable", platform="signal-cli")) from None
        if message.get("error") is not None:
            raise SignalApiError.from_json(message["error"])
        if "result" not in message or message.get("id") != request["id"]:
            raise SignalNoResponse(Phrase("delivery.other_answer", platform="signal-cli"))
        return message["result"]

    async def find_accounts(self) -> list[str] | None:
        """Return the numbers of all accounts; `None` if the daemon was started for one account."""
        try:
            found = await self.call("listAccounts", scoped=False)
        except SignalApiError as exc:
            if exc.code == METHOD_NOT_FOUND:
                return None
            raise
        return [str(account.get("number")) for account in as_objects(found) if account.get("number")]

    def drop_account(self) -> None:
        """Leave the account out of calls from now on: the daemon was started for one account."""
        self._scope = {}

    async def download(self, attachment: str, *, limit: int) -> bytes:
        """Return the bytes of a file that a person sent. Raise `Invalid` if it has more than `limit` bytes or is not there,
        and `Unavailable` if another attempt may succeed."""
        try:
            found = await self.call("getAttachment", seconds=_FILE_TIMEOUT_SECONDS, id=attachment)
        except (SignalUnreachable, SignalNoResponse) as exc:
            raise Unavailable(str(exc)) from None
        except SignalApiError as exc:
            reason = Phrase(
                "file.platform_says", platform="signal-cli", reason=f"{exc.description} ({exc.code})"
            )
            raise (Invalid if exc.code == USER_ERROR else Unavailable)(reason) from None
        data = str(as_object(found).get("data") or "")
        if len(data) // 4 * 3 - data[-2:].count("=") > limit:
            raise Invalid(Phrase("file.too_large", limit=limit))
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error:
            raise Unavailable("signal-cli gave bytes that cannot be read") from None

    async def close(self) -> None:
        await self._clients.close()
