"""The options of a session as an editor shows them: model, mode and effort."""

import msgspec

from keryx.core import sessions
from keryx.core.errors import Invalid
from keryx.core.sessions import EFFORTS, PermissionMode, SessionSettings
from keryx.jsonrpc import Json

MODEL = "model"
MODE = "mode"
EFFORT = "effort"
DEFAULT = "default"


class ModelChoices(msgspec.Struct, frozen=True, kw_only=True):
    models: tuple[str, ...] = ()
    # The model of a session that has chosen none.
    model: str = ""


def list_options(settings: SessionSettings, choices: ModelChoices) -> list[Json]:
    """Return every option with its current value."""
    mode = sessions.parse_mode(settings.mode).value
    modes = _list_modes("value")
    efforts = _build_values(EFFORTS, settings.effort, "Default")
    options = [
        _build_option(MODE, "Mode", "mode", mode, modes),
        _build_option(EFFORT, "Effort", "thought_level", settings.effort or DEFAULT, efforts),
    ]
    if choices.models:
        default = f"Default ({choices.model})" if choices.model else "Default"
        models = _build_values(choices.models, settings.model, default)
        options.insert(0, _build_option(MODEL, "Model", "model", settings.model or DEFAULT, models))
    return options


def build_mode_state(settings: SessionSettings) -> Json:
    """Return the mode for editors that do not know options."""
    return {
        "currentModeId": sessions.parse_mode(settings.mode).value,
        "availableModes": _list_modes("id"),
    }


def build_settings(settings: SessionSettings, choices: ModelChoices) -> Json:
    """Return the settings as part of the response that opens a session."""
    return {"modes": build_mode_state(settings), "configOptions": list_options(settings, choices)}


def set_option(
    settings: SessionSettings, choices: ModelChoices, option: str, value: object
) -> SessionSettings:
    """Return the settings with one option changed. Raise `Invalid` if the option or its value is not offered."""
    known = {o["id"]: [v["value"] for v in o["options"]] for o in list_options(settings, choices)}
    if option not in known:
        raise Invalid(f"there is no option {option!r}: the options are {', '.join(known)}")
    if not isinstance(value, str) or value not in known[option]:
        raise Invalid(f"{value!r} is no value of {option!r}: choose one of {', '.join(known[option])}")
    return msgspec.structs.replace(settings, **{option: None if value == DEFAULT else value})


def _build_option(id_: str, name: str, category: str, current: str, values: list[Json]) -> Json:
    return {
        "id": id_,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": current,
        "options": values,
    }


def _list_modes(key: str) -> list[Json]:
    """Return all modes, with their id under `key`."""
    return [
        {key: m.value, "name": sessions.MODE_TITLES[m], "description": sessions.MODE_DESCRIPTIONS[m]}
        for m in PermissionMode
    ]


def _build_values(names: tuple[str, ...], current: str | None, default: str) -> list[Json]:
    # The current value is listed even if it is no longer offered, so that the editor can show it.
    names = names if current is None or current in names else (*names, current)
    return [{"value": DEFAULT, "name": default}, *({"value": n, "name": n} for n in names)]
