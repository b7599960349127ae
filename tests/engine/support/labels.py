"""The labels of all units of work that write, read from the source of the product."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import keryx

_SOURCE = Path(keryx.__file__).parent
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_PARAMETER = "label"
# What binds a function to a verb of the hub, with the label of the write.
_BINDERS = frozenset({"bind_write", "write_unit"})
_VERBS = "engine/hub/verbs.py"
# A unit of work that is lent to another module under the name of an attribute, and the module that uses it there.
_LENT = {"engine/loops/driver.py": ("_run_unit", "engine/loops/questions.py")}
# These modules pass the labels of others through.
_PASS_THROUGH = frozenset(
    {
        _VERBS,
        "store/db/sqlite.py",
        "store/db/postgres.py",
        "testing/fault_injection.py",
        "integrations/__init__.py",
    }
)
# What writes are asked of: a database, or the thread that has one.
_WRITERS = {"database": ("write",), "store": ("write", "write_async")}


@cache
def written() -> frozenset[str]:
    """Return every label. Raise `LookupError` for a write whose label cannot be determined."""
    return frozenset(
        label
        for path in _SOURCE.rglob("*.py")
        if (name := str(path.relative_to(_SOURCE))) not in _PASS_THROUGH
        for label in _of_module(name)
    )


def _of_module(name: str) -> Iterator[str]:
    text = (_SOURCE / name).read_text()
    # Most modules write nothing, and to parse one takes long.
    if not any(word in text for word in (*_BINDERS, *(f"{writer}.write" for writer in _WRITERS))):
        return
    tree = _parsed(name)
    yield from (str(ast.literal_eval(call.args[0])) for call in _calls(tree) if _called(call) in _BINDERS)
    for function in _functions(tree):
        for given in _given(function):
            if isinstance(given, ast.Constant):
                yield str(given.value)
            elif not isinstance(given, ast.Name) or given.id != _PARAMETER:
                raise LookupError(f"{name}:{given.lineno} writes under a label that cannot be told")
            elif _position(function) is None:
                raise LookupError(f"{name}:{given.lineno} has its label from nowhere")
            else:
                yield from _passed(tree, function, name)


def _given(function: Function) -> Iterator[ast.expr]:
    """Yield what a function passes as labels to `write` of a database."""
    for call in _calls(function):
        if call.args and any(map(_writes, (call.func, *ast.iter_child_nodes(call.func)))):
            yield call.args[0]


def _writes(part: ast.AST) -> bool:
    return isinstance(part, ast.Attribute) and part.attr in _WRITERS.get(
        ast.unparse(part.value).removeprefix("self.").lstrip("_"), ()
    )


def _passed(tree: ast.Module, function: Function, name: str) -> Iterator[str]:
    """Yield the labels that callers pass to a function, in its own module or in the one that borrows it."""
    position = _position(function)
    assert position is not None
    yield from _defaults(function)
    yield from _from_calls(tree, function.name, position)
    if name in _LENT:
        attribute, borrower = _LENT[name]
        yield from _from_calls(_parsed(borrower), attribute, 0)


def _from_calls(tree: ast.Module, callee: str, position: int) -> Iterator[str]:
    for call in _calls(tree):
        if _called(call) != callee or _reads(call):
            continue
        named = [k.value for k in call.keywords if k.arg == _PARAMETER]
        for given in named or call.args[position : position + 1]:
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                yield given.value
            elif chosen := list(_chosen(tree)):
                yield from chosen
            else:
                raise LookupError(f"{callee} is called with a label that cannot be told")


def _chosen(tree: ast.Module) -> Iterator[str]:
    """Yield the labels that functions of a module return together with their work."""
    for found in ast.walk(tree):
        match found:
            case ast.Return(value=ast.Tuple(elts=[ast.Constant(value=str(label)), *_])):
                yield label
            case _:
                continue


def _defaults(function: Function) -> Iterator[str]:
    arguments = function.args
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if parameter.arg == _PARAMETER and isinstance(default, ast.Constant):
            yield str(default.value)


def _position(function: Function) -> int | None:
    """Return the position of the parameter for the label, not counting `self`."""
    names = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
    return names.index(_PARAMETER) - ("self" in names) if _PARAMETER in names else None


def _reads(call: ast.Call) -> bool:
    return any(
        k.arg == "write" and isinstance(k.value, ast.Constant) and not k.value.value for k in call.keywords
    )


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def _parsed(name: str) -> ast.Module:
    return ast.parse((_SOURCE / name).read_text())
