"""The setup of a Matrix account: turns a password into an access token, or checks the token that is given."""

from collections.abc import Mapping

from keryx.core.errors import Forbidden, Invalid
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.matrix import encryption
from keryx.surfaces.gateway.matrix.homeserver import Homeserver, discover_url
from keryx.surfaces.gateway.matrix.messages import IDS, PLATFORM

DEVICE_NAME = "Keryx"
_INTRO = Phrase("connect.matrix_intro")


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Log in with the password, or ask the homeserver whose token it is."""
    address = await discover_url(answers["homeserver"])
    account, token = await _find_account(address, answers["user"], answers["password"], answers["token"])
    return SetupOutcome(
        summary=Phrase("connect.matrix_account", account=account),
        settings={"homeserver": address, "user": account},
        secrets={"token": token},
        steps=(
            Phrase("connect.start"),
            Phrase(
                "connect.matrix_write" if encryption.is_installed() else "connect.matrix_write_plain",
                account=account,
            ),
        ),
        note=Phrase("connect.matrix_invite"),
        details={"user": account, "homeserver": address},
    )


async def _find_account(address: str, user: str, password: str, token: str) -> tuple[str, str]:
    """Return the full name of the account and its access token."""
    if not token and not password:
        raise Invalid(Phrase("connect.matrix_no_secret"))
    server = Homeserver(address, token)
    try:
        if not token:
            login = await server.login(user, password, device=DEVICE_NAME)
            return login.user_id, login.access_token
        account = await server.whoami()
    finally:
        await server.close()
    if user and account.removeprefix("@").partition(":")[0] != user.removeprefix("@").partition(":")[0]:
        raise Forbidden(Phrase("connect.matrix_other_account", account=account, user=user))
    return account, token


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Matrix",
    summary=Phrase("connect.matrix"),
    intro=_INTRO,
    fields=(
        SetupField(
            name="homeserver",
            label=Phrase("connect.homeserver"),
            help=Phrase("connect.homeserver_help"),
            example="example.org",
        ),
        SetupField(
            name="user",
            label=Phrase("connect.account"),
            help=Phrase("connect.account_help"),
            example="@keryx:example.org",
            unless=("token",),
        ),
        SetupField(
            name="password",
            label=Phrase("connect.password"),
            help=Phrase("connect.password_help"),
            secret=True,
            optional=True,
            unless=("token",),
        ),
        SetupField(
            name="token",
            label=Phrase("connect.access_token"),
            secret=True,
            optional=True,
            unless=("password",),
        ),
    ),
    allow_example="@you:example.org",
    person=IDS.person,
    check=check,
)
