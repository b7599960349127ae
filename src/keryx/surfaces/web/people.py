"""People: what the HTTP API says of those who look, are signed in, wait at the door or were let in."""

from datetime import datetime

from keryx.surfaces.web.talk import View


class Preferences(View, frozen=True, kw_only=True):
    """How the viewer likes the page: kept on the server, the same in every browser. `model`: what new conversations
    begin with; empty for the one in force."""

    theme: str = "system"
    send_with: str = "enter"
    details: bool = False
    model: str = ""


class Who(View, frozen=True, kw_only=True):
    """The person who looks. `signed_in`: by a cookie, which can be given up. `password`: signing in is required here."""

    principal: str
    profile: str
    operator: bool
    signed_in: bool = False
    password: bool = False


class SignedIn(View, frozen=True, kw_only=True):
    """A browser that is signed in. `current`: the one that asks."""

    id: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    browser: str = ""
    current: bool = False


class SignIns(View, frozen=True, kw_only=True):
    sign_ins: list[SignedIn]


class Pairing(View, frozen=True, kw_only=True):
    """Somebody who waits to be let in."""

    id: str
    platform: str
    person: str
    created_at: datetime
    expires_at: datetime
    name: str = ""


class Grant(View, frozen=True, kw_only=True):
    """Somebody who was let in."""

    id: str
    platform: str
    person: str
    at: datetime
    name: str = ""
    by: str = ""
    operator: bool = False


class Pairings(View, frozen=True, kw_only=True):
    waiting: list[Pairing]
    granted: list[Grant]
