"""Routes of users and passkeys: the operator adds users, everybody changes their own password and passkeys."""

import anyio.to_thread
from starlette.responses import Response

from keryx.core import codec
from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.ids import OPERATOR
from keryx.core.ports.setup import WrongField
from keryx.core.texts import Phrase
from keryx.surfaces.web import request_schema, schema, webauthn
from keryx.surfaces.web import settings as web_settings
from keryx.surfaces.web.operations import ApiRouter, RequiredRole
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.responses import Unauthenticated
from keryx.surfaces.web.routes import sign_ins

router = ApiRouter()
PASSKEY_PATH = "/api/sign-in/passkey"
_SIGN_IN = "sign in"


@router.get("/api/users", summary="Who can sign in, beside the operator.", role=RequiredRole.OPERATOR)
async def users(request: ApiRequest) -> schema.Users:
    found = await request.hub.users.list_all(request.viewer)
    listed: list[schema.UserSchema] = []
    for user, passkeys in found:
        browsers = await request.hub.sign_ins.list_all(user.viewer)
        listed.append(
            schema.UserSchema(
                name=user.name,
                principal=user.viewer.principal,
                created_at=user.created_at,
                passkeys=passkeys,
                seen_at=max((b.seen_at for b in browsers), default=None),
            )
        )
    return schema.Users(users=listed)


@router.post(
    "/api/users", summary="Let somebody sign in with a password.", status=201, role=RequiredRole.OPERATOR
)
async def add_user(request: ApiRequest, body: request_schema.AddUserForm) -> schema.UserSchema:
    if not request.services.authenticator.required:
        raise Invalid(Phrase("user.open"))
    user = await request.hub.users.add(request.viewer, body.name, await _hash(body.password))
    return schema.UserSchema(name=user.name, principal=user.viewer.principal, created_at=user.created_at)


@router.put(
    "/api/users/{user}/password", summary="Change the password of a user, and end their other sign-ins."
)
async def set_user_password(request: ApiRequest, body: request_schema.PasswordForm) -> None:
    _refuse_keys(request)
    name, viewer = request.path_param("user"), request.viewer
    if viewer.principal != OPERATOR:
        own = await request.hub.users.find_of(viewer)
        if own is None or own.name != name:
            raise NotFound(Phrase("user.unknown", name=repr(name[:80])))
        # A browser that has signed in is not locked out by the failures of others.
        browser = sign_ins.find_browser(request) or request.caller.sign_in
        async with request.services.guesses.attempt(
            request.http.state.address, browser, user=name
        ) as mark_right:
            if not await request.services.authenticator.check_hash(body.current, own.password):
                raise WrongField("current", Phrase("user.wrong_current"))
            mark_right()
    keep = request.caller.sign_in if viewer.principal != OPERATOR else None
    await request.hub.users.set_password(viewer, name, await _hash(body.password), keep=keep)


@router.delete(
    "/api/users/{user}",
    summary="Let a user sign in no longer; with `erase`, erase everything of them.",
    role=RequiredRole.OPERATOR,
)
async def remove_user(request: ApiRequest, query: request_schema.EraseQuery) -> None:
    await request.hub.users.remove(request.viewer, request.path_param("user"), erase=query.erase)
    if query.erase:
        await request.hub.catch_up_index()


@router.get("/api/passkeys", summary="The viewer's passkeys.")
async def passkeys(request: ApiRequest) -> schema.Passkeys:
    found = await request.hub.users.list_passkeys(request.caller.account)
    return schema.Passkeys(
        passkeys=[
            schema.PasskeySchema(id=p.id, name=p.name, created_at=p.created_at, seen_at=p.seen_at)
            for p in found
        ],
        available=_is_available(request),
    )


@router.post("/api/passkeys/options", summary="What a browser needs to make a passkey.")
async def passkey_options(request: ApiRequest) -> schema.PasskeyOptions:
    _refuse_keys(request)
    account = request.caller.account
    if not _is_available(request):
        raise Invalid(Phrase("passkey.unavailable"))
    user = await request.hub.users.find_of(account)
    known = await request.hub.users.list_passkeys(account)
    return schema.PasskeyOptions(
        challenge=request.services.challenges.issue(account.principal),
        host=webauthn.find_name(request.http.headers["host"]),
        user=codec.encode_base64url(f"{account.profile}\0{account.principal}".encode()[:64]),
        user_name=user.name if user else "operator",
        known=[p.id for p in known],
    )


@router.post("/api/passkeys", summary="Keep a passkey that the browser has made.", status=201)
async def add_passkey(request: ApiRequest, body: request_schema.NewPasskeyForm) -> schema.PasskeySchema:
    _refuse_keys(request)
    account = request.caller.account
    made = webauthn.check_new(
        client_data=body.client_data,
        attestation=body.attestation,
        challenge=request.services.challenges.redeem(body.challenge, account.principal),
        host=request.http.headers["host"],
    )
    kept = await request.hub.users.add_passkey(
        account, id_=made.id, public_key=made.public_key, uses=made.uses, name=body.name
    )
    return schema.PasskeySchema(id=kept.id, name=kept.name, created_at=kept.created_at)


@router.delete("/api/passkeys/{passkey}", summary="Remove a passkey: it signs in no longer.")
async def remove_passkey(request: ApiRequest) -> None:
    await request.hub.users.remove_passkey(request.caller.account, request.path_param("passkey"))


@router.post(
    f"{PASSKEY_PATH}/options",
    summary="What a browser needs to use a passkey.",
    role=RequiredRole.NONE,
    response=schema.PasskeyOptions,
)
async def sign_in_options(request: ApiRequest) -> schema.PasskeyOptions:
    if not request.services.authenticator.required:
        raise Unauthenticated(Phrase("web.open"))
    if not _is_available(request):
        raise Invalid(Phrase("passkey.unavailable"))
    return schema.PasskeyOptions(
        challenge=request.services.challenges.issue(_SIGN_IN),
        host=webauthn.find_name(request.http.headers["host"]),
    )


@router.post(
    PASSKEY_PATH,
    summary="Exchange the proof of a passkey for a cookie.",
    response=schema.Who,
    role=RequiredRole.NONE,
    body_limit=65_536,
)
async def sign_in_with_passkey(request: ApiRequest, body: request_schema.PasskeySignInForm) -> Response:
    services = request.services
    if not services.authenticator.required:
        raise Unauthenticated(Phrase("web.open"))
    browser = sign_ins.find_browser(request)
    async with services.guesses.attempt(request.http.state.address, browser) as mark_right:
        challenge = services.challenges.redeem(body.challenge, _SIGN_IN)
        found = await request.hub.users.find_passkey(body.id)
        if found is None:
            raise Unauthenticated(Phrase("passkey.unknown"))
        uses = webauthn.check_use(
            client_data=body.client_data,
            authenticator_data=body.authenticator_data,
            signature=body.signature,
            public_key=found.public_key,
            challenge=challenge,
            host=request.http.headers["host"],
        )
        if not await request.hub.users.use_passkey(found.id, uses=uses):
            raise Unauthenticated(Phrase("passkey.copied"))
        mark_right()
    return await sign_ins.begin(request, found.viewer, browser)


def _is_available(request: ApiRequest) -> bool:
    return webauthn.is_available(request.http.headers.get("host", ""), secure=request.services.secure_cookies)


def _refuse_keys(request: ApiRequest) -> None:
    if request.caller.key is not None:
        raise Forbidden(Phrase("user.by_key"))


async def _hash(password: str) -> str:
    if len(password) < web_settings.MIN_PASSWORD_CHARS:
        raise WrongField("password", Phrase("user.short_password", count=web_settings.MIN_PASSWORD_CHARS))
    return await anyio.to_thread.run_sync(web_settings.hash_password, password)
