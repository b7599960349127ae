"""Users of the page beside the operator: their passwords as hashes, and the passkeys of everybody who signs in."""

import re

from keryx.core import ids
from keryx.core.errors import Conflict, Forbidden, Invalid, NotFound
from keryx.core.ids import OPERATOR
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.engine.hub.verbs import HubPart, bind_read, bind_write, read_unit, write_unit
from keryx.engine.units import privacy
from keryx.store import access, api_turns, people
from keryx.store.access import Passkey, User
from keryx.store.db import Transaction

# The platform of the identity of a user.
WEB_PLATFORM = "web"
_USER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}\Z")
_RESERVED_NAMES = frozenset({"operator", "admin", "root"})
_MAX_PASSKEYS = 20


def parse_name(text: str) -> str:
    """Return the name of a user as it is stored. Raise `Invalid` if it cannot be one."""
    name = text.strip().lower()
    if not _USER_NAME.match(name) or name in _RESERVED_NAMES:
        raise Invalid(Phrase("user.wrong_name"))
    return name


class HubUsers(HubPart):
    find = bind_read("user", access.find_user)
    find_of = bind_read("user", access.find_user_of)
    list_passkeys = bind_read("passkeys", access.list_passkeys)
    find_passkey = bind_read("passkey", access.find_passkey)
    remove_passkey = bind_write("passkey.remove", access.remove_passkey)
    # Returns whether the counter of the authenticator shows that it is not a copy.
    use_passkey = bind_write("passkey.use", access.use_passkey)

    @read_unit("users")
    def list_all(self, tx: Transaction, viewer: Viewer) -> list[tuple[User, int]]:
        """Return the users of a profile, each with the number of their passkeys. Raise `Forbidden` unless the viewer is the
        operator."""
        _require_operator(viewer)
        return [
            (user, len(access.list_passkeys(tx, user.viewer)))
            for user in access.list_users(tx, viewer.profile)
        ]

    @write_unit("user.add")
    def add(self, tx: Transaction, viewer: Viewer, name: str, password_hash: str) -> User:
        """Add a user, who is a new person. Raise `Conflict` if the name is taken."""
        _require_operator(viewer)
        login = parse_name(name)
        if access.find_user(tx, login) is not None:
            raise Conflict(Phrase("user.taken", name=repr(login)))
        handle = ids.escape(login)
        if people.find_by_handle(tx, profile=viewer.profile, platform=WEB_PLATFORM, handle=handle):
            people.remove_identity(tx, profile=viewer.profile, platform=WEB_PLATFORM, handle=handle)
        principal = people.resolve(
            tx, profile=viewer.profile, platform=WEB_PLATFORM, person=login, name=name.strip()
        )
        user = User(
            name=login,
            viewer=Viewer(viewer.profile, principal),
            password=password_hash,
            created_at=tx.now,
        )
        access.add_user(tx, user)
        return user

    @write_unit("user.password")
    def set_password(
        self, tx: Transaction, viewer: Viewer, name: str, password_hash: str, *, keep: str | None = None
    ) -> None:
        """Change a password, by the operator or by the user, and end the other sign-ins of the user."""
        user = _get(tx, viewer, name)
        access.set_password(tx, user.name, password_hash)
        access.remove_sign_ins(tx, user.viewer, keep=keep)

    @write_unit("user.remove")
    def remove(self, tx: Transaction, viewer: Viewer, name: str, *, erase: bool = False) -> None:
        """Let a user sign in no longer. Their conversations stay, unless everything of them is to be erased."""
        _require_operator(viewer)
        user = _get(tx, viewer, name)
        access.remove_user(tx, user.name)
        access.remove_sign_ins(tx, user.viewer)
        access.remove_passkeys(tx, user.viewer)
        for key in api_turns.list_keys(tx, user.viewer):
            api_turns.remove_key(tx, user.viewer, key.id)
        if erase:
            privacy.erase(tx, user.viewer.principal, profile=viewer.profile)

    @write_unit("passkey.add")
    def add_passkey(
        self, tx: Transaction, viewer: Viewer, *, id_: str, public_key: str, uses: int, name: str
    ) -> Passkey:
        if len(access.list_passkeys(tx, viewer)) >= _MAX_PASSKEYS:
            raise Conflict(Phrase("passkey.too_many", count=_MAX_PASSKEYS))
        passkey = Passkey(
            id=id_, viewer=viewer, name=name[:100], public_key=public_key, uses=uses, created_at=tx.now
        )
        access.add_passkey(tx, passkey)
        return passkey


def _get(tx: Transaction, viewer: Viewer, name: str) -> User:
    user = access.find_user(tx, name)
    if user is None or user.viewer.profile != viewer.profile:
        raise NotFound(Phrase("user.unknown", name=repr(name[:80])))
    if viewer.principal not in (OPERATOR, user.viewer.principal):
        raise NotFound(Phrase("user.unknown", name=repr(name[:80])))
    return user


def _require_operator(viewer: Viewer) -> None:
    if viewer.principal != OPERATOR:
        raise Forbidden(Phrase("web.operator_only"))
