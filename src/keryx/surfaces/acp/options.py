"""Options: what can be chosen per session, as an editor shows it: the model, the mode and the effort."""

import msgspec

from keryx.core import modes
from keryx.core.errors import Invalid
from keryx.core.modes import Mode
from keryx.core.sessions import EFFORTS, Settings
from keryx.surfaces.acp.peer import Json

MODEL = "model"
MODE = "mode"
EFFORT = "effort"
DEFAULT = "default"


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration offers. `model` is the one in force where a session has chosen none."""

    models: tuple[str, ...] = ()
    model: str = ""


def listed(settings: Settings, choices: Choices) -> list[Json]:
    """Every option with its current value."""
    found = [
        _option(MODE, "Mode", "mode", modes.of(settings.mode).value, _modes()),
        _option(EFFORT, "Effort", "thought_level", settings.effort or DEFAULT, _efforts(settings)),
    ]
    if choices.models:
        found.insert(
            0, _option(MODEL, "Model", "model", settings.model or DEFAULT, _models(settings, choices))
        )
    return found


def state(settings: Settings) -> Json:
    """The mode, as clients know it that have no options yet."""
    return {
        "currentModeId": modes.of(settings.mode).value,
        "availableModes": [
            {"id": m.value, "name": modes.TITLES[m], "description": modes.MEANINGS[m]} for m in Mode
        ],
    }


def answer(settings: Settings, choices: Choices) -> Json:
    """What the answer to opening a session tells of its settings."""
    return {"modes": state(settings), "configOptions": listed(settings, choices)}


def chosen(settings: Settings, choices: Choices, option: str, value: object) -> Settings:
    """The settings with one option changed. `Invalid` for an option or a value that is not offered."""
    known = {o["id"]: [v["value"] for v in o["options"]] for o in listed(settings, choices)}
    if option not in known:
        raise Invalid(f"there is no option {option!r}: the options are {', '.join(known)}")
    if not isinstance(value, str) or value not in known[option]:
        raise Invalid(f"{value!r} is no value of {option!r}: choose one of {', '.join(known[option])}")
    kept = None if value == DEFAULT else value
    return msgspec.structs.replace(settings, **{option: kept})


def _option(id_: str, name: str, category: str, current: str, values: list[Json]) -> Json:
    return {
        "id": id_,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": current,
        "options": values,
    }


def _modes() -> list[Json]:
    return [{"value": m.value, "name": modes.TITLES[m], "description": modes.MEANINGS[m]} for m in Mode]


def _efforts(settings: Settings) -> list[Json]:
    return _values(EFFORTS, settings.effort, "Default")


def _models(settings: Settings, choices: Choices) -> list[Json]:
    return _values(
        choices.models, settings.model, f"Default ({choices.model})" if choices.model else "Default"
    )


def _values(names: tuple[str, ...], current: str | None, default: str) -> list[Json]:
    """A value that is set but no longer offered stays in the list, or nobody could see what is in force."""
    kept = names if current is None or current in names else (*names, current)
    return [{"value": DEFAULT, "name": default}, *({"value": n, "name": n} for n in kept)]
