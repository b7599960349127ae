# Schemathesis has types for a part of itself only.
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The OpenAPI document: it fits the routes, and every answer fits it, whatever a tool makes up to ask."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema
from tests.cli.driver import Cli, Node

from keryx.surfaces.web import openapi, routes
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.routes import OPERATIONS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
KNOWN: dict[str, str] = {}

# The stream does not end, and is tested where its events are read. A restart cuts what the others ask.
LEFT_OUT = ("stream", "restart")


@pytest.fixture(scope="module")
def schema() -> OpenApiSchema:
    made = schemathesis.openapi.from_dict(openapi.build_document("1"))
    assert isinstance(made, OpenApiSchema)
    return made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A real node with a few conversations."""
    keryx = Cli(Path(tmp_path_factory.mktemp("home")))
    KNOWN["session"] = keryx.session("hello")
    KNOWN["message"] = f"{KNOWN['session']}.1"
    KNOWN["lane"] = "YWdlbnQ6bWFpbjpjbGk"
    with keryx.serving() as made:
        yield made


@pytest.mark.parametrize("operation", [o.name for o in OPERATIONS if o.name not in LEFT_OUT])
def test_every_answer_fits_the_document(operation: str, schema: OpenApiSchema, node: Node) -> None:
    # The cases are made here and not by schemathesis' own parametrization, which makes them while tests are collected.
    @given(case=schema.find_operation_by_id(operation).as_strategy())
    @settings(
        max_examples=8,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    def validate(case: schemathesis.Case) -> None:
        response = case.call(base_url=node.address, timeout=15)
        case.validate_response(response, checks=CHECKS)
        known = {name: KNOWN[name] for name in case.path_parameters if name in KNOWN}
        if known and case.method != "DELETE":
            case.path_parameters.update(known)
            case.validate_response(case.call(base_url=node.address, timeout=15), checks=CHECKS)

    validate()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_limit_of_the_document_is_tried(node: Node, tmp_path: Path) -> None:
    """With the values at the limits of every parameter and field, wrong ones among them."""
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(openapi.build_document("1")))
    checks = ",".join(check.__name__ for check in CHECKS)
    command = [Path(sys.executable).with_name("schemathesis"), "run", document, "--url", node.address]
    command += [
        "--phases",
        "examples,coverage",
        "--checks",
        checks,
        "--no-color",
        "--generation-deterministic",
    ]
    for operation in LEFT_OUT:
        command += ["--exclude-operation-id", operation]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_operations_of_every_route_module_are_served() -> None:
    modules = [import_module(f"{routes.__name__}.{m.name}") for m in iter_modules(routes.__path__)]
    routers = [v for m in modules for v in vars(m).values() if isinstance(v, ApiRouter)]
    assert {o.name for router in routers for o in router.operations} <= {o.name for o in OPERATIONS}
    assert len(routers) == len(modules) - 1, "hooks alone has no operations"


def test_every_operation_has_a_name_and_a_path_of_its_own() -> None:
    assert len({o.name for o in OPERATIONS}) == len(OPERATIONS)
    assert len({(o.method, o.path) for o in OPERATIONS}) == len(OPERATIONS)


def test_the_document_names_every_operation_once() -> None:
    document = openapi.build_document("1")
    named = [(m.upper(), path) for path, by in document["paths"].items() for m in by]
    assert sorted(named) == sorted((o.method, o.path) for o in OPERATIONS)
    schemas = document["components"]["schemas"]
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    assert not [name for name in schemas if "." in name]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield str(inner)
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)
