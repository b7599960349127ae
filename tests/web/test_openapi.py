# Schemathesis has types for a part of itself only.
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The OpenAPI document: it fits the routes, and every answer fits it, whatever a tool makes up to ask."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
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
schema = schemathesis.openapi.from_dict(openapi.build_document("1")).exclude(
    operation_id=["stream", "restart"]
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A real node with a few conversations."""
    keryx = Cli(Path(tmp_path_factory.mktemp("home")))
    KNOWN["session"] = keryx.session("hello")
    KNOWN["message"] = f"{KNOWN['session']}.1"
    KNOWN["lane"] = "YWdlbnQ6bWFpbjpjbGk"
    with keryx.serving() as made:
        yield made


@schema.parametrize()
@settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_every_answer_fits_the_document(case: schemathesis.Case, node: Node) -> None:
    response = case.call(base_url=node.address, timeout=15)
    case.validate_response(response, checks=CHECKS)
    known = {name: KNOWN[name] for name in case.path_parameters if name in KNOWN}
    if known and case.method != "DELETE":
        case.path_parameters.update(known)
        case.validate_response(case.call(base_url=node.address, timeout=15), checks=CHECKS)


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
