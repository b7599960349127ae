"""Encrypted posts: what Feishu sends is taken, and what anybody else sends is not."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.fakes.feishu import (
    APP_ID,
    APP_SECRET,
    ENCRYPT_KEY,
    VERIFICATION_TOKEN,
    build_post,
    encrypt,
)
from tests.gateway.feishu.tenant import Tenant, cancel, until

from keryx.core.errors import Invalid, Unavailable
from keryx.core.ports.adapter import InboundEvent, LinkState, Receipt, WebhookRequest, WebhookResponse
from keryx.core.questions import Button
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.feishu import MAX_POST_AGE_SECONDS, build_decryptor, make, sign

CHALLENGE = {"challenge": "ajls384k", "token": VERIFICATION_TOKEN, "type": "url_verification"}


@asynccontextmanager
async def listen(tenant: Tenant) -> AsyncGenerator[None]:
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: (LinkState.CONNECTED, "") in tenant.context.link_states)
    try:
        yield
    finally:
        await cancel(task)


async def post(tenant: Tenant, request: WebhookRequest) -> WebhookResponse:
    hook = tenant.adapter.hook
    assert hook is not None
    return await hook.handle(request)


def take(tenant: Tenant, text: str = "hello") -> bytes:
    """Return the payload of a message."""
    tenant.feishu.say(text)
    return tenant.feishu.waiting.pop()[1]


def test_what_feishu_documents_is_decrypted() -> None:
    # The example of the page "Receive events": key and text.
    wire = "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="
    assert build_decryptor("test key")(wire) == b"hello world"


@pytest.mark.parametrize(
    "text", ["", "x", "AAAA", "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk", "ä", "A" * 64]
)
def test_what_was_not_made_with_the_key_is_invalid(text: str) -> None:
    with pytest.raises(Invalid, match="not encrypted with the key"):
        build_decryptor("another key")(text)


async def test_the_address_is_verified_before_keryx_listens(posts: Tenant) -> None:
    answer = await post(posts, build_post(json.dumps(CHALLENGE).encode(), signed=False))
    assert (answer.status, json.loads(answer.body)) == (200, {"challenge": "ajls384k"})
    assert answer.mime.startswith("application/json")


@pytest.mark.parametrize(
    "request_",
    [
        build_post(json.dumps({**CHALLENGE, "token": "another"}).encode(), signed=False),
        build_post(json.dumps(CHALLENGE).encode(), key="another", signed=False),
        WebhookRequest(headers={}, body=json.dumps(CHALLENGE).encode()),
    ],
)
async def test_a_challenge_of_anybody_else_is_refused(posts: Tenant, request_: WebhookRequest) -> None:
    assert (await post(posts, request_)).status == 401


async def test_a_message_is_stored_before_its_post_is_answered(posts: Tenant) -> None:
    async with listen(posts):
        answer = await post(posts, build_post(take(posts)))
        assert (answer.status, answer.body) == (200, b"{}") and len(posts.context.events) == 1


async def test_posts_come_again_while_keryx_does_not_listen_or_cannot_store(posts: Tenant) -> None:
    payload = take(posts)
    assert (await post(posts, build_post(payload))).status == 503

    async def refuse(inbound: InboundEvent) -> Receipt:
        raise Unavailable("the disk is full")

    posts.context.set_receive(refuse)
    async with listen(posts):
        assert (await post(posts, build_post(payload))).status == 503


async def test_forged_posts_are_refused(posts: Tenant) -> None:
    payload = take(posts)
    good = build_post(payload)
    now = int(posts.now.timestamp())
    forged = [
        build_post(payload, signed=False),
        msgspec.structs.replace(good, headers={**good.headers, "x-lark-signature": "0" * 64}),
        msgspec.structs.replace(good, headers={**good.headers, "x-lark-signature": "ä"}),
        msgspec.structs.replace(good, headers={**good.headers, "x-lark-request-nonce": "other"}),
        msgspec.structs.replace(good, headers={**good.headers, "x-lark-request-timestamp": "soon"}),
        msgspec.structs.replace(good, body=good.body + b" "),
        build_post(payload.replace(VERIFICATION_TOKEN.encode(), b"another-token")),
        build_post(payload, key="another"),
        build_post(payload, at=now - MAX_POST_AGE_SECONDS - 60),
        build_post(payload, at=now + MAX_POST_AGE_SECONDS + 60),
        msgspec.structs.replace(good, body=payload),
        msgspec.structs.replace(good, body=b"{no json"),
        msgspec.structs.replace(good, body=b"[" * 100_000),
        msgspec.structs.replace(good, body=b'{"encrypt": 5}'),
        build_post(b"{no json"),
        build_post(b"[]"),
    ]
    async with listen(posts):
        assert [(await post(posts, request)).status for request in forged] == [401] * len(forged)
        assert posts.context.events == []
        assert (await post(posts, good)).status == 200


async def test_a_replayed_post_is_the_same_event_and_clocks_may_differ(posts: Tenant) -> None:
    payload = take(posts)
    async with listen(posts):
        for seconds in (0, 0, -3600, 3600):
            request = build_post(payload, at=int(posts.now.timestamp()) + seconds)
            assert (await post(posts, request)).status == 200
    assert len({event.event for event in posts.context.events}) == 1


async def test_a_press_is_answered_in_the_response(posts: Tenant) -> None:
    await posts.send("May I?", buttons=(Button("Yes", "/answer 1 1"),))
    posts.feishu.press("Yes")

    async def receive(inbound: InboundEvent) -> Receipt:
        return Receipt(duplicate=False, reply="Taken. " * 100)

    posts.context.set_receive(receive)
    async with listen(posts):
        answer = await post(posts, build_post(posts.feishu.waiting.pop()[1]))
    toast = json.loads(answer.body)["toast"]
    assert toast["type"] == "info" and len(toast["content"]) == 200 and toast["content"].endswith("…")


def test_the_signature_is_that_of_the_documentation() -> None:
    # SHA-256 of timestamp, nonce, key and body.
    assert sign("key", "1", "n", b"{}") == sign("y", "1nk", "e", b"{}")
    assert len(sign("key", "1", "n", b"{}")) == 64


def build_setup(home: Path, **table: str) -> AdapterSetup:
    environ = {"SECRET": APP_SECRET, "KEY": ENCRYPT_KEY, "TOKEN": VERIFICATION_TOKEN}
    full = {"app_id": APP_ID, "app_secret": "env:SECRET", **table}
    return AdapterSetup(platform="feishu", name="work", home=home, table=full, environ=environ)


def test_posts_need_both_keys(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"feishu.work.encrypt_key is missing"):
        make(build_setup(tmp_path, mode="webhook"))
    with pytest.raises(Invalid, match=r"feishu.work.verification_token is missing"):
        make(build_setup(tmp_path, mode="webhook", encrypt_key="env:KEY"))
    adapter = make(
        build_setup(tmp_path, mode="webhook", encrypt_key="env:KEY", verification_token="env:TOKEN")
    )
    assert adapter is not None and adapter.hook is not None
    assert (adapter.account, adapter.hook.path) == (APP_ID, "feishu/work")


def test_without_the_extra_posts_are_refused_with_the_command_and_the_connection_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(Invalid, match=r"feishu.*or use the long connection"):
        make(build_setup(tmp_path, mode="webhook", encrypt_key="env:KEY", verification_token="env:TOKEN"))
    adapter = make(build_setup(tmp_path))
    assert adapter is not None and adapter.hook is None


def test_settings_that_are_wrong_are_named(tmp_path: Path) -> None:
    assert make(AdapterSetup(platform="feishu", home=tmp_path)) is None
    with pytest.raises(Invalid, match=r"feishu.app_id is missing.*KERYX_FEISHU_APP_ID"):
        make(AdapterSetup(platform="feishu", home=tmp_path, table={"domain": "lark"}))
    with pytest.raises(Invalid, match="App ID"):
        make(build_setup(tmp_path, app_id="5"))
    with pytest.raises(Invalid, match="base_url"):
        make(build_setup(tmp_path, base_url="open.feishu.cn"))
    with pytest.raises(Invalid, match="domain"):
        make(build_setup(tmp_path, domain="wechat"))


async def test_a_body_is_decrypted_whatever_its_length(posts: Tenant) -> None:
    for length in range(40):
        text = "x" * length
        assert build_decryptor(ENCRYPT_KEY)(encrypt(text.encode())) == text.encode()
