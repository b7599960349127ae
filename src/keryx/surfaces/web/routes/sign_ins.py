"""Routes of sign-ins: exchange a password or token for a cookie, list and revoke browsers."""

from starlette.responses import Response

from keryx.core import codec
from keryx.core.ids import OPERATOR
from keryx.surfaces.web import auth, request_schema, schema
from keryx.surfaces.web.auth import Caller
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.responses import Unauthenticated


async def sign_in(ask: ApiRequest) -> Response:
    """The right password or token gives a cookie; too many wrong ones make everybody wait."""
    place, request = ask.services, ask.request
    address = request.client.host if request.client else ""
    if not place.authenticator.required:
        raise Unauthenticated("nobody needs to sign in here: ask without a token")
    with place.attempts.attempt(address) as right:
        viewer = await place.authenticator.check_secret(ask.body(request_schema.SignIn).secret)
        if viewer is None:
            raise Unauthenticated(
                "this is not right: use the password or the token that Keryx was started with"
            )
        right()
    id_, secret = await ask.hub.sign_ins.create(viewer, browser=request.headers.get("user-agent", ""))
    answer = Response(codec.dumps(present_caller(ask, Caller(viewer, id_))), media_type="application/json")
    answer.headers["Set-Cookie"] = auth.build_cookie_header(
        place.cookies.encode(id_, secret), secure=place.secure_cookies
    )
    return answer


async def sign_out(ask: ApiRequest) -> Response:
    if ask.caller.sign_in:
        await ask.hub.sign_ins.end(ask.viewer, ask.caller.sign_in)
    answer = Response(status_code=204)
    answer.headers["Set-Cookie"] = auth.build_cookie_header("", secure=ask.services.secure_cookies)
    return answer


async def sign_ins(ask: ApiRequest) -> schema.SignIns:
    found = await ask.hub.sign_ins.list_all(ask.viewer)
    return schema.SignIns(
        sign_ins=[
            schema.SignedIn(
                id=s.id,
                created_at=s.created_at,
                seen_at=s.seen_at,
                expires_at=s.expires_at,
                browser=s.browser,
                current=s.id == ask.caller.sign_in,
            )
            for s in found
        ]
    )


async def revoke(ask: ApiRequest) -> None:
    await ask.hub.sign_ins.end(ask.viewer, ask.path_param("sign_in"))


def present_caller(ask: ApiRequest, caller: Caller) -> schema.Who:
    return schema.Who(
        principal=caller.viewer.principal,
        profile=caller.viewer.profile,
        operator=caller.viewer.principal == OPERATOR,
        signed_in=caller.sign_in is not None,
        password=ask.services.authenticator.required,
    )
