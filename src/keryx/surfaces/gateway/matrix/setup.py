"""The setup of a Matrix account: turns a password into an access token, or checks the token that is given."""

from collections.abc import Mapping

from keryx.core.errors import Forbidden, Invalid
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.surfaces.gateway.matrix import encryption
from keryx.surfaces.gateway.matrix.homeserver import Homeserver, discover_url
from keryx.surfaces.gateway.matrix.messages import PLATFORM

DEVICE_NAME = "Keryx"
_INTRO = """\
Make an account for Keryx first, as for any person. Its password is used once,
to get an access token, and is not kept."""


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Log in with the password, or ask the homeserver whose token it is."""
    address = await discover_url(answers["homeserver"])
    account, token = await _find_account(address, answers["user"], answers["password"], answers["token"])
    return SetupOutcome(
        summary=f"Keryx speaks as {account}.",
        settings={"homeserver": address, "user": account},
        secrets={"token": token},
        steps=(
            "start Keryx, or start it again: keryx serve",
            f"in your Matrix client, begin a chat with {account}"
            f"{' and' if encryption.is_installed() else ', without encryption, and'} write to it",
        ),
        note="Who may talk to it may also invite it into rooms.",
        details={"user": account, "homeserver": address},
    )


async def _find_account(address: str, user: str, password: str, token: str) -> tuple[str, str]:
    """Return the full name of the account and its access token."""
    if not token and not password:
        raise Invalid(
            "the homeserver needs a password or an access token: give --password-file or --token-file"
        )
    server = Homeserver(address, token)
    try:
        if not token:
            login = await server.login(user, password, device=DEVICE_NAME)
            return login.user_id, login.access_token
        account = await server.whoami()
    finally:
        await server.close()
    if user and account.removeprefix("@").partition(":")[0] != user.removeprefix("@").partition(":")[0]:
        raise Forbidden(f"the access token belongs to {account}, not to {user}")
    return account, token


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Matrix",
    summary="Connect an account on Matrix.",
    intro=_INTRO,
    fields=(
        SetupField(
            name="homeserver",
            label="Homeserver",
            help="Its address, or the domain of the account.",
            example="example.org",
        ),
        SetupField(
            name="user",
            label="Account",
            help="The account that Keryx speaks as.",
            example="@keryx:example.org",
            unless=("token",),
        ),
        SetupField(
            name="password",
            label="Password",
            help="It is used once and not kept. Leave it empty to give an access token instead.",
            secret=True,
            optional=True,
            unless=("token",),
        ),
        SetupField(name="token", label="Access token", secret=True, optional=True, unless=("password",)),
    ),
    allow_example="@you:example.org",
    check=check,
)
