"""OpenAPI: the contract as a document for tools, made from the types."""

import re
from typing import Any

import msgspec

from keryx.surfaces.web import events, forms
from keryx.surfaces.web.contract import OPERATIONS, Needs, Operation
from keryx.surfaces.web.problems import TYPE
from keryx.surfaces.web.wire import Problem

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same for every repetition of one request, so that it takes effect once.",
    "schema": {"type": "string", "pattern": r"^[A-Za-z0-9_.~-]{1,100}$"},
}
_PROBLEM = {
    "description": "What went wrong, and what to do next.",
    "content": {TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
}


def document(version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of every operation."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Keryx",
            "version": version,
            "description": "Conversations of every surface, to be seen and steered.",
        },
        "paths": paths,
        "components": {
            "schemas": _components(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "keryx"},
            },
        },
        "security": [{"bearer": []}, {"cookie": []}],
    }


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of one type, with the others by reference."""
    _, components = msgspec.json.schema_components([kind], ref_template=_REF)
    return components[kind.__name__]


def worded(schema: dict[str, Any]) -> str:
    """A type in words, for people."""
    if "anyOf" in schema:
        return " or ".join(worded(option) for option in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {worded(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("format") or schema.get("type", "anything"))


def _components() -> dict[str, Any]:
    named: list[Any] = [events.Event, Problem]
    named += [o.answer for o in OPERATIONS if o.answer]
    named += [o.body for o in OPERATIONS if o.body]
    _, components = msgspec.json.schema_components(named, ref_template=_REF)
    return components


def _operation(operation: Operation) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.body:
        schema = {"$ref": _REF.format(name=operation.body.__name__)}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.takes:
        made["requestBody"] = {"required": True, "content": {operation.takes: {"schema": {}}}}
    if operation.needs is Needs.NOTHING:
        made["security"] = []
    return made


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(operation.path)
    ]
    if operation.query is not forms.Nothing:
        (_,), components = msgspec.json.schema_components([operation.query], ref_template=_REF)
        schema = components[operation.query.__name__]
        for name, kind in schema.get("properties", {}).items():
            found.append(
                {
                    "name": name,
                    "in": "query",
                    "required": name in schema.get("required", ()),
                    "schema": _inlined(kind, components),
                }
            )
    return [*found, _KEY] if operation.key else found


def _inlined(kind: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """A kind of parameter without references; what may be left out is never null in an address."""
    options = [o for o in kind.get("anyOf", ()) if o != {"type": "null"}]
    if options:
        kind = {**options[0], **{k: v for k, v in kind.items() if k not in ("anyOf", "default")}}
    reference = kind.get("$ref")
    return components[reference.rpartition("/")[2]] if reference else kind


def _responses(operation: Operation) -> dict[str, Any]:
    problems = {"4XX": _PROBLEM, "5XX": _PROBLEM}
    if operation.raw:
        content: dict[str, Any] = {kind: {"schema": {}} for kind in operation.raw.split(", ")}
        return {"200": {"description": operation.about, "content": content}, **problems}
    if operation.answer is None:
        return {"204": {"description": "Done."}, **problems}
    schema = {"$ref": _REF.format(name=operation.answer.__name__)}
    body = {"description": operation.about, "content": {"application/json": {"schema": schema}}}
    same = {"304": {"description": "The caller has it already."}} if operation.tagged else {}
    return {str(operation.status): body, **same, **problems}
