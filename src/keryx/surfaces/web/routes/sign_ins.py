"""Routes of sign-ins: exchange a password or token for a cookie, list and revoke browsers, and connect them to notifications while the page is closed; and of the keys of programs."""

from msgspec import UNSET
from starlette.responses import Response

from keryx.core import codec
from keryx.core.errors import Forbidden, KeryxError
from keryx.core.ids import OPERATOR
from keryx.core.sessions import Viewer
from keryx.core.texts import DEFAULT_LANGUAGE, Phrase
from keryx.engine.hub.api_turns import ApiKeySummary
from keryx.surfaces.web import auth, request_schema, schema
from keryx.surfaces.web.auth import SIGN_IN_PATH, Caller
from keryx.surfaces.web.operations import ApiRouter, RequiredRole
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.responses import Unauthenticated
from keryx.surfaces.web.sign_in_limits import BROWSER_COOKIE_NAME, build_browser_cookie_header

router = ApiRouter()
_MAX_FORM_BYTES = 16_384


@router.post(
    SIGN_IN_PATH,
    summary="Exchange the password or the token for a cookie.",
    response=schema.Who,
    role=RequiredRole.NONE,
    body_limit=_MAX_FORM_BYTES,
)
async def sign_in(request: ApiRequest, body: request_schema.SignInForm) -> Response:
    """Return the caller with a cookie, and mark the browser as a known one. Raise `Throttled` after too many wrong secrets."""
    services, name = request.services, body.name.strip().lower()
    if name == OPERATOR:
        name = ""
    if not services.authenticator.required:
        raise Unauthenticated(Phrase("web.open"))
    browser = find_browser(request)
    async with services.guesses.attempt(request.http.state.address, browser, user=name) as mark_right:
        viewer = await services.authenticator.check_secret(body.secret, name=name)
        if viewer is None:
            raise Unauthenticated(Phrase("web.wrong_user" if name else "web.wrong_password"))
        mark_right()
    return await begin(request, viewer, browser)


def find_browser(request: ApiRequest) -> str | None:
    """Return the id of a browser that has signed in before."""
    cookies = auth.find_cookies(request.http.headers, BROWSER_COOKIE_NAME)
    return next(filter(None, map(request.services.browsers.find, cookies)), None)


async def begin(request: ApiRequest, viewer: Viewer, browser: str | None) -> Response:
    """Sign a viewer in: return who they are with a cookie, and mark the browser as a known one."""
    services, http = request.services, request.http
    id_, secret = await request.hub.sign_ins.create(viewer, browser=http.headers.get("user-agent", ""))
    who = present_caller(request, Caller(viewer, id_))
    response = Response(codec.dumps(who), media_type="application/json")
    secure = services.secure_cookies
    cookies = (
        auth.build_cookie_header(services.cookies.encode(id_, secret), secure=secure),
        build_browser_cookie_header(services.browsers.issue(browser), path=SIGN_IN_PATH, secure=secure),
    )
    for cookie in cookies:
        response.headers.append("Set-Cookie", cookie)
    return response


@router.post("/api/sign-out", summary="Give up the cookie.")
async def sign_out(request: ApiRequest) -> Response:
    if request.caller.sign_in:
        await request.hub.sign_ins.end(request.caller.account, request.caller.sign_in)
    response = Response(status_code=204)
    response.headers["Set-Cookie"] = auth.build_cookie_header("", secure=request.services.secure_cookies)
    return response


@router.get("/api/sign-ins", summary="The viewer's browsers that are signed in.")
async def sign_ins(request: ApiRequest) -> schema.SignIns:
    sign_ins = await request.hub.sign_ins.list_all(request.caller.account)
    return schema.SignIns(
        sign_ins=[
            schema.SignedIn(
                id=s.id,
                created_at=s.created_at,
                seen_at=s.seen_at,
                expires_at=s.expires_at,
                browser=s.browser,
                current=s.id == request.caller.sign_in,
            )
            for s in sign_ins
        ]
    )


@router.delete("/api/sign-ins/{sign_in}", summary="End a sign-in. Its streams are cut within seconds.")
async def revoke(request: ApiRequest) -> None:
    await request.hub.sign_ins.end(request.caller.account, request.path_param("sign_in"))


@router.get("/api/push", summary="Whether browsers are told while the page is closed, and the key for it.")
async def push(request: ApiRequest) -> schema.PushStatus:
    """Return the key, or in `problem` why there is none."""
    try:
        key = await request.hub.push_subscriptions.read_key()
    except KeryxError as exc:
        return schema.PushStatus(key="", problem=request.texts.render(exc.text))
    return schema.PushStatus(key=key)


@router.put("/api/push", summary="Tell a browser what happens while the page is closed.")
async def subscribe(request: ApiRequest, body: request_schema.PushForm) -> schema.PushSubscribed:
    """Connect a browser of the viewer, or renew it. It is forgotten with the sign-in of the browser."""
    caller = request.caller
    if caller.key is not None or (request.services.authenticator.required and caller.sign_in is None):
        raise Forbidden(Phrase("push.no_browser"))
    saved = await request.hub.push_subscriptions.save(
        request.viewer,
        endpoint=body.endpoint,
        public_key=body.public_key,
        secret=body.secret,
        sign_in=caller.sign_in,
        prefix=request.http.state.prefix,
        language=request.language or DEFAULT_LANGUAGE,
        with_text=None if body.with_text is UNSET else body.with_text,
    )
    return schema.PushSubscribed(id=saved.id, with_text=saved.with_text)


@router.delete("/api/push/{push}", summary="Tell a browser nothing more while the page is closed.")
async def unsubscribe(request: ApiRequest) -> None:
    await request.hub.push_subscriptions.remove(request.viewer, request.path_param("push"))


@router.get("/api/keys", summary="The keys of programs: the viewer's, for the operator everybody's.")
async def keys(request: ApiRequest) -> schema.Keys:
    return schema.Keys(keys=list(map(_present_key, await request.hub.api_keys.list_all(request.viewer))))


@router.post("/api/keys", summary="Make a key for a program. The secret is shown this once.", status=201)
async def add_key(request: ApiRequest, body: request_schema.AddKeyForm) -> schema.NewKey:
    if request.caller.key:
        raise Forbidden("a key makes no keys: sign in on the page, or use `keryx keys add`")
    platform, _, handle = (body.person or "").partition(":")
    person = (platform, handle) if body.person else None
    key, secret = await request.hub.api_keys.add(
        request.viewer, body.name, person=person, may_speak=body.may_speak
    )
    return schema.NewKey(key=_present_key(key), secret=secret)


@router.delete("/api/keys/{key}", summary="Revoke the key of a program.")
async def revoke_key(request: ApiRequest) -> None:
    await request.hub.api_keys.revoke(request.viewer, request.path_param("key"))


def _present_key(key: ApiKeySummary) -> schema.KeySchema:
    return schema.KeySchema(
        id=key.id,
        name=key.name,
        principal=key.principal,
        person=key.person,
        created_at=key.created_at,
        seen_at=key.seen_at,
        may_speak=key.may_speak,
    )


def present_caller(request: ApiRequest, caller: Caller, name: str = "") -> schema.Who:
    return schema.Who(
        principal=caller.viewer.principal,
        profile=caller.viewer.profile,
        operator=caller.viewer.principal == OPERATOR,
        signed_in=caller.sign_in is not None,
        password=request.services.authenticator.required,
        name=name,
    )
