"""The options of a session as an editor shows them: model, mode and effort."""

import msgspec

from keryx.core import sessions
from keryx.core.errors import Invalid
from keryx.core.sessions import EFFORTS, PermissionMode, SessionSettings
from keryx.jsonrpc.values import Json

MODEL = "model"
MODE = "mode"
EFFORT = "effort"
DEFAULT = "default"


class ModelChoices(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration offers. `model` is the one in force where a session has chosen none."""

    models: tuple[str, ...] = ()
    model: str = ""


def list_options(settings: SessionSettings, choices: ModelChoices) -> list[Json]:
    """Every option with its current value."""
    found = [
        _build_option(MODE, "Mode", "mode", sessions.parse_mode(settings.mode).value, _list_modes()),
        _build_option(EFFORT, "Effort", "thought_level", settings.effort or DEFAULT, _list_efforts(settings)),
    ]
    if choices.models:
        found.insert(
            0,
            _build_option(
                MODEL, "Model", "model", settings.model or DEFAULT, _list_models(settings, choices)
            ),
        )
    return found


def build_mode_state(settings: SessionSettings) -> Json:
    """The mode, as clients know it that have no options yet."""
    return {
        "currentModeId": sessions.parse_mode(settings.mode).value,
        "availableModes": [
            {"id": m.value, "name": sessions.MODE_TITLES[m], "description": sessions.MODE_DESCRIPTIONS[m]}
            for m in PermissionMode
        ],
    }


def build_settings(settings: SessionSettings, choices: ModelChoices) -> Json:
    """What the answer to opening a session tells of its settings."""
    return {"modes": build_mode_state(settings), "configOptions": list_options(settings, choices)}


def set_option(
    settings: SessionSettings, choices: ModelChoices, option: str, value: object
) -> SessionSettings:
    """The settings with one option changed. `Invalid` for an option or a value that is not offered."""
    known = {o["id"]: [v["value"] for v in o["options"]] for o in list_options(settings, choices)}
    if option not in known:
        raise Invalid(f"there is no option {option!r}: the options are {', '.join(known)}")
    if not isinstance(value, str) or value not in known[option]:
        raise Invalid(f"{value!r} is no value of {option!r}: choose one of {', '.join(known[option])}")
    kept = None if value == DEFAULT else value
    return msgspec.structs.replace(settings, **{option: kept})


def _build_option(id_: str, name: str, category: str, current: str, values: list[Json]) -> Json:
    return {
        "id": id_,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": current,
        "options": values,
    }


def _list_modes() -> list[Json]:
    return [
        {"value": m.value, "name": sessions.MODE_TITLES[m], "description": sessions.MODE_DESCRIPTIONS[m]}
        for m in PermissionMode
    ]


def _list_efforts(settings: SessionSettings) -> list[Json]:
    return _build_values(EFFORTS, settings.effort, "Default")


def _list_models(settings: SessionSettings, choices: ModelChoices) -> list[Json]:
    return _build_values(
        choices.models, settings.model, f"Default ({choices.model})" if choices.model else "Default"
    )


def _build_values(names: tuple[str, ...], current: str | None, default: str) -> list[Json]:
    """A value that is set but no longer offered stays in the list, or nobody could see what is in force."""
    kept = names if current is None or current in names else (*names, current)
    return [{"value": DEFAULT, "name": default}, *({"value": n, "name": n} for n in kept)]
