"""Web: the page and the API of this installation, put together by its settings."""

import ipaddress
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from starlette.routing import BaseRoute

from keryx.app import App
from keryx.cli import settings as cli_settings
from keryx.config import Settings
from keryx.core.errors import Invalid
from keryx.core.shapes import Reach
from keryx.engine.hub import Hub
from keryx.surfaces.web import wire
from keryx.surfaces.web.ask import Facts
from keryx.surfaces.web.credentials import read_key
from keryx.surfaces.web.server import Web
from keryx.surfaces.web.settings import PASSWORD, TOKEN, password, token


def web(app: App, hub: Hub, *, beside: Sequence[BaseRoute] = ()) -> Web:
    """The web over a hub; `beside` are the routes of other parts. Makes the key of its cookies at first."""
    settings = app.settings
    return Web(
        hub,
        app.clock,
        operator=app.viewer,
        key=read_key(settings.folder),
        token=token(settings.web),
        password=password(settings.web),
        hosts=settings.web.hosts,
        secure=settings.web.https,
        facts=_facts(settings, app.accounts),
        beside=beside,
    )


def refuse_the_world(settings: Settings) -> None:
    """Raise `Invalid` if other machines could reach a place that asks nobody for a password or a token."""
    if not loopback(settings.host) and not token(settings.web) and not password(settings.web):
        raise Invalid(
            f"{settings.host!r} can be reached by other machines, and neither a password nor a token is set: set "
            f"{PASSWORD}, or {TOKEN} to a long secret, or use 127.0.0.1"
        )


def loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _facts(settings: Settings, accounts: Mapping[str, Reach]) -> Facts:
    models = settings.named_models
    default = settings.model or (models[0].name if models else "")
    shown = cli_settings.shown().items()
    return Facts(
        version=version("keryx"),
        agent=settings.brain,
        accounts=accounts,
        models=tuple(
            wire.Model(
                name=m.name, host=m.host, context=m.context, images=m.images, default=m.name == default
            )
            for m in models
        ),
        settings=tuple(
            wire.Setting(name=name, value=cli_settings.config_json(origin.value), source=origin.source)
            for name, origin in shown
        ),
    )
