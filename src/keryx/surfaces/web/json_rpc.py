"""JSON-RPC over HTTP, as A2A and MCP use it: one call in the body of a request, and the objects that answer it."""

from typing import Any, TypeAlias, cast

import msgspec

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.jsonrpc import INVALID_REQUEST, PARSE_ERROR, RpcError

Json: TypeAlias = dict[str, Any]
CallId: TypeAlias = str | int | None

_LONGEST_ID = 500


class RpcCall(msgspec.Struct, frozen=True):
    method: str
    params: Json
    id: CallId = None
    # The client does not wait for an answer.
    notification: bool = False


class RpcFailure(RpcError):
    """An error that belongs to a call whose id is known."""

    def __init__(self, id_: CallId, code: int, message: str) -> None:
        super().__init__(code, message)
        self.id = id_


def parse_call(raw: bytes) -> RpcCall:
    """Read one call or notification. Raise `RpcFailure` if it is anything else, such as a batch or a response."""
    try:
        value = codec.loads_foreign(raw, object)
    except Invalid as exc:
        raise RpcFailure(None, PARSE_ERROR, f"the body is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise RpcFailure(None, INVALID_REQUEST, "the body is not one JSON-RPC object: send calls one by one")
    call = cast(Json, value)
    id_ = call.get("id")
    if isinstance(id_, bool) or not isinstance(id_, str | int | None):
        raise RpcFailure(None, INVALID_REQUEST, "`id` is a text or a whole number")
    if isinstance(id_, str) and len(id_) > _LONGEST_ID:
        raise RpcFailure(None, INVALID_REQUEST, f"`id` has more than {_LONGEST_ID} characters")
    method, params = call.get("method"), call.get("params")
    if call.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise RpcFailure(id_, INVALID_REQUEST, '`jsonrpc` is "2.0", and `method` is a text')
    if not isinstance(params, dict | None):
        raise RpcFailure(id_, INVALID_REQUEST, "`params` is an object")
    return RpcCall(method, cast(Json, params) or {}, id_, "id" not in call)


def build_result(id_: CallId, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def build_error(id_: CallId, code: int, message: str, data: object = None) -> Json:
    error: Json = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id_, "error": error}
