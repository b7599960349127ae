"""The OpenAPI document, built from the operations and their types."""

import re
from typing import Any, cast

import msgspec

from keryx.surfaces.web.operations import Operation, RequiredRole
from keryx.surfaces.web.responses import PROBLEM_TYPE
from keryx.surfaces.web.routes import OPERATIONS
from keryx.surfaces.web.schema import Problem
from keryx.surfaces.web.stream import events

_REF = "#/components/schemas/{name}"
# Types whose published name differs from the name of their class.
_PUBLISHED_NAMES = {"SessionSettings": "Settings"}
_PARAMETER = re.compile(r"\{(\w+)\}")
_IDEMPOTENCY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same for every repetition of one request, so that it takes effect once.",
    "schema": {"type": "string", "pattern": r"^[A-Za-z0-9_.~-]{1,100}$"},
}
_PROBLEM = {
    "description": "What went wrong, and what to do next.",
    "content": {PROBLEM_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
}


def build_document(version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of every operation."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _build_operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Keryx",
            "version": version,
            "description": "Conversations of every surface, to be seen and steered.",
        },
        "paths": paths,
        "components": {
            "schemas": _build_components(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "keryx"},
            },
        },
        "security": [{"bearer": []}, {"cookie": []}],
    }


def build_type_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of one type, with the others by reference."""
    return _build_schemas([kind])[_publish_name(kind)]


def describe_type(schema: dict[str, Any]) -> str:
    """A type in words, for people."""
    if "anyOf" in schema:
        return " or ".join(describe_type(option) for option in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {describe_type(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("format") or schema.get("type", "anything"))


def _build_components() -> dict[str, Any]:
    named: list[Any] = [events.Event, Problem]
    named += [o.response_type for o in OPERATIONS if o.response_type]
    named += [o.body for o in OPERATIONS if o.body]
    return _build_schemas(named)


def _build_schemas(kinds: list[Any]) -> dict[str, Any]:
    """The schemas of types and of all that they contain, by published name."""
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    return {_PUBLISHED_NAMES.get(name, name): _publish(schema) for name, schema in components.items()}


def _publish(schema: Any) -> Any:
    """A schema in which titles and references are published names."""
    if isinstance(schema, list):
        return [_publish(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    published = {key: _publish(value) for key, value in cast(dict[str, Any], schema).items()}
    if isinstance(title := published.get("title"), str):
        published["title"] = _PUBLISHED_NAMES.get(title, title)
    if isinstance(reference := published.get("$ref"), str):
        name = reference.rpartition("/")[2]
        published["$ref"] = _REF.format(name=_PUBLISHED_NAMES.get(name, name))
    return published


def _publish_name(kind: type) -> str:
    return _PUBLISHED_NAMES.get(kind.__name__, kind.__name__)


def _build_operation(operation: Operation) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _build_parameters(operation),
        "responses": _build_responses(operation),
    }
    if operation.body:
        schema = {"$ref": _REF.format(name=_publish_name(operation.body))}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.body_media_type:
        made["requestBody"] = {"required": True, "content": {operation.body_media_type: {"schema": {}}}}
    if operation.role is RequiredRole.NONE:
        made["security"] = []
    return made


def _build_parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(operation.path)
    ]
    if operation.query:
        (_,), components = msgspec.json.schema_components([operation.query], ref_template=_REF)
        schema = components[operation.query.__name__]
        for name, kind in schema.get("properties", {}).items():
            found.append(
                {
                    "name": name,
                    "in": "query",
                    "required": name in schema.get("required", ()),
                    "schema": _inline_schema(kind, components),
                }
            )
    return [*found, _IDEMPOTENCY_HEADER] if operation.idempotent else found


def _inline_schema(kind: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """A kind of parameter without references; what may be left out is never null in an address."""
    options = [o for o in kind.get("anyOf", ()) if o != {"type": "null"}]
    if options:
        kind = {**options[0], **{k: v for k, v in kind.items() if k not in ("anyOf", "default")}}
    reference = kind.get("$ref")
    return components[reference.rpartition("/")[2]] if reference else kind


def _build_responses(operation: Operation) -> dict[str, Any]:
    problems = {"4XX": _PROBLEM, "5XX": _PROBLEM}
    if operation.media_types:
        content: dict[str, Any] = {kind: {"schema": {}} for kind in operation.media_types}
        return {"200": {"description": operation.summary, "content": content}, **problems}
    if operation.response_type is None:
        return {"204": {"description": "Done."}, **problems}
    schema = {"$ref": _REF.format(name=_publish_name(operation.response_type))}
    body = {"description": operation.summary, "content": {"application/json": {"schema": schema}}}
    same = {"304": {"description": "The caller has it already."}} if operation.etag else {}
    return {str(operation.status): body, **same, **problems}
