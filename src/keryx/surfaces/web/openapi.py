"""The OpenAPI document, built from the operations and their types."""

import re
from typing import Any, cast

import msgspec

from keryx.core.ids import DEFAULT_PROFILE
from keryx.surfaces.web.operations import Operation, RequiredRole
from keryx.surfaces.web.responses import OPENAI_PATH, PROBLEM_TYPE
from keryx.surfaces.web.routes import OPERATIONS
from keryx.surfaces.web.schema import Problem
from keryx.surfaces.web.stream import events

_REF_PREFIX = "#/components/schemas/"
_REF = f"{_REF_PREFIX}{{name}}"
# Response types have a suffix where core has a class of the same name, and bodies always; published names have none.
_PRIVATE_SUFFIX = re.compile(r"(Schema|Form)\Z")
_PUBLISHED_NAMES = {"SessionSettings": "Settings"}
_PARAMETER = re.compile(r"\{(\w+)\}")
_IDEMPOTENCY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same for every repetition of one request, so that it takes effect once. 409 for another message.",
    "schema": {"type": "string", "pattern": r"^[A-Za-z0-9_.~-]{1,100}$"},
}
_SERVERS = [
    {"url": "/"},
    {
        "url": "/p/{profile}",
        "description": "The same in another profile, for the operator.",
        "variables": {"profile": {"default": DEFAULT_PROFILE}},
    },
]
_PROBLEM = {
    "description": "What went wrong, and what to do next.",
    "content": {PROBLEM_TYPE: {"schema": {"$ref": f"{_REF_PREFIX}Problem"}}},
}

_OPENAI_ERROR = {
    "description": "What went wrong, and what to do next, in the shape of OpenAI's API.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "error": {
                        "type": "object",
                        "properties": {
                            "message": {"type": "string"},
                            "type": {"type": "string"},
                            "param": {"type": ["string", "null"]},
                            "code": {"type": ["string", "null"]},
                        },
                        "required": ["message", "type", "param", "code"],
                    }
                },
                "required": ["error"],
            }
        }
    },
}


def build_document(version: str) -> dict[str, Any]:
    """Build the OpenAPI 3.1 document of all operations."""
    types: list[Any] = [events.Event, Problem]
    types += [o.response_type for o in OPERATIONS if o.response_type]
    types += [o.body for o in OPERATIONS if o.body]
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        built: dict[str, Any] = {
            "operationId": operation.name,
            "summary": operation.summary,
            "parameters": _build_parameters(operation),
            "responses": _build_responses(operation),
        }
        if operation.body:
            built["requestBody"] = {"required": True, "content": _build_json_content(operation.body)}
        if operation.body_media_type:
            built["requestBody"] = {"required": True, "content": {operation.body_media_type: {"schema": {}}}}
        if operation.role is RequiredRole.NONE:
            built["security"] = []
        paths.setdefault(operation.path, {})[operation.method.lower()] = built
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Keryx",
            "version": version,
            "description": "Conversations of every surface, to be seen and steered.",
        },
        "servers": _SERVERS,
        "paths": paths,
        "components": {
            "schemas": _build_schemas(types),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "keryx"},
            },
        },
        "security": [{"bearer": []}, {"cookie": []}],
    }


def build_type_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Build the JSON schema of one type, with references to the types it contains."""
    return _build_schemas([kind])[publish_name(kind.__name__)]


def publish_name(class_name: str) -> str:
    """Return the name that a type has in the document."""
    return _PUBLISHED_NAMES.get(class_name) or _PRIVATE_SUFFIX.sub("", class_name)


def describe_type(schema: dict[str, Any]) -> str:
    """Describe the type of a field in words, for the reference."""
    if "anyOf" in schema:
        return " or ".join(describe_type(option) for option in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {describe_type(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("format") or schema.get("type", "anything"))


def _build_schemas(kinds: list[Any]) -> dict[str, Any]:
    """Build the schemas of types and of the types they contain, by published name."""
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    return {publish_name(name): _publish(schema) for name, schema in components.items()}


def _publish(schema: Any) -> Any:
    """Replace class names by published names in the titles and references of a schema."""
    if isinstance(schema, list):
        return [_publish(item) for item in cast(list[Any], schema)]
    if isinstance(schema, dict):
        published = {key: _publish(value) for key, value in cast(dict[str, Any], schema).items()}
        if isinstance(title := published.get("title"), str):
            published["title"] = publish_name(title)
        return published
    if isinstance(schema, str) and schema.startswith(_REF_PREFIX):
        return _REF_PREFIX + publish_name(schema.removeprefix(_REF_PREFIX))
    return schema


def _build_json_content(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF_PREFIX + publish_name(kind.__name__)}}}


def _build_parameters(operation: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(operation.path)
    ]
    if operation.query:
        (_,), components = msgspec.json.schema_components([operation.query], ref_template=_REF)
        schema = components[operation.query.__name__]
        for name, kind in schema.get("properties", {}).items():
            # Without null, which a URL cannot express, and without references.
            options = [o for o in kind.get("anyOf", ()) if o != {"type": "null"}]
            if options:
                kind = {**options[0], **{k: v for k, v in kind.items() if k not in ("anyOf", "default")}}
            if reference := kind.get("$ref"):
                kind = components[reference.rpartition("/")[2]]
            required = name in schema.get("required", ())
            parameters.append({"name": name, "in": "query", "required": required, "schema": kind})
    return [*parameters, _IDEMPOTENCY_HEADER] if operation.idempotent else parameters


def _build_responses(operation: Operation) -> dict[str, Any]:
    problem: dict[str, Any] = _OPENAI_ERROR if operation.path.startswith(OPENAI_PATH) else _PROBLEM
    if operation.error_media_types:
        shapes: dict[str, Any] = {kind: {"schema": {}} for kind in operation.error_media_types}
        problem = {**problem, "content": {**problem["content"], **shapes}}
    problems = {"4XX": problem, "5XX": problem}
    if operation.media_types:
        content: dict[str, Any] = {kind: {"schema": {}} for kind in operation.media_types}
        return {"200": {"description": operation.summary, "content": content}, **problems}
    if operation.response_type is None:
        return {"204": {"description": "Done."}, **problems}
    success = {"description": operation.summary, "content": _build_json_content(operation.response_type)}
    unchanged = {"304": {"description": "The caller has it already."}} if operation.etag else {}
    return {str(operation.status): success, **unchanged, **problems}
