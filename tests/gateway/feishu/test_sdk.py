"""Feishu's own client library against the fake, so that the fake does not drift from what Feishu's clients send and read."""

import asyncio
import importlib
import io
import json
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest
from tests import left_out
from tests.fakes.feishu import (
    APP_ID,
    APP_SECRET,
    BOT,
    DIRECT,
    ENCRYPT_KEY,
    VERIFICATION_TOKEN,
    FakeFeishu,
    build_post,
)

from keryx.surfaces.gateway.feishu.message_sender import build_card

if find_spec("lark_oapi") is None:
    pytest.skip(
        left_out.reason(
            "lark_oapi",
            why="lark_oapi is not installed",
            # Its requirements ask for an old version of websockets, with which it does not need to be installed.
            command=".venv/bin/pip install --no-deps lark-oapi requests_toolbelt pycryptodome requests urllib3 charset-normalizer",
        ),
        allow_module_level=True,
    )


pytestmark = pytest.mark.filterwarnings("ignore")
CARD = json.dumps(build_card("**hello**", "hello"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdk:
    """The modules of the library. Its types are not complete."""

    lark: Any
    im: Any
    ws: Any
    tokens: Any
    models: Any
    callbacks: Any


@pytest.fixture(scope="module")
def sdk() -> Sdk:
    """Import the library, which takes seconds, only in the process that runs these tests."""
    names = {
        "lark": "lark_oapi",
        "im": "lark_oapi.api.im.v1",
        "ws": "lark_oapi.ws.client",
        "tokens": "lark_oapi.core.token.manager",
        "models": "lark_oapi.core.model",
        "callbacks": "lark_oapi.event.callback.model.p2_card_action_trigger",
    }
    # It uses the event loop that is current when it is imported, or makes one that stays open.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = {name: importlib.import_module(path) for name, path in names.items()}
    asyncio.set_event_loop(None)
    loop.close()
    return Sdk(**modules)


@pytest.fixture
def feishu() -> Iterator[FakeFeishu]:
    with FakeFeishu() as feishu:
        yield feishu


@pytest.fixture
def client(sdk: Sdk, feishu: FakeFeishu) -> Any:
    # Tokens are kept for all clients of an app, and each fake grants its own.
    sdk.tokens.TokenManager.cache = type(sdk.tokens.TokenManager.cache)()
    return sdk.lark.Client.builder().app_id(APP_ID).app_secret(APP_SECRET).domain(feishu.url).build()


def create(sdk: Sdk, client: Any, kind: str, content: str, uuid: str = "u1") -> Any:
    body = (
        sdk.im.CreateMessageRequestBody.builder()
        .receive_id(DIRECT)
        .msg_type(kind)
        .content(content)
        .uuid(uuid)
    )
    request = sdk.im.CreateMessageRequest.builder().receive_id_type("chat_id").request_body(body.build())
    return client.im.v1.message.create(request.build())


def test_the_sdk_sends_edits_replies_and_recalls(sdk: Sdk, feishu: FakeFeishu, client: Any) -> None:
    sent = create(sdk, client, "interactive", CARD)
    assert sent.success() and create(sdk, client, "interactive", CARD).data.message_id == sent.data.message_id
    id_ = sent.data.message_id
    changed = sdk.im.PatchMessageRequestBody.builder().content(json.dumps(build_card("changed", "changed")))
    patch = sdk.im.PatchMessageRequest.builder().message_id(id_).request_body(changed.build()).build()
    assert client.im.v1.message.patch(patch).success() and feishu.texts() == ["changed"]
    body = (
        sdk.im.ReplyMessageRequestBody.builder().msg_type("interactive").content(CARD).reply_in_thread(True)
    )
    reply = sdk.im.ReplyMessageRequest.builder().message_id(id_).request_body(body.uuid("u2").build()).build()
    answer = client.im.v1.message.reply(reply)
    assert answer.success() and answer.data.thread_id.startswith("omt_")
    found = client.im.v1.message.get(sdk.im.GetMessageRequest.builder().message_id(id_).build())
    assert [item.chat_id for item in found.data.items] == [DIRECT]
    assert found.data.items[0].sender.id == APP_ID
    client.im.v1.message.delete(sdk.im.DeleteMessageRequest.builder().message_id(id_).build())
    gone = client.im.v1.message.patch(patch)
    assert (gone.success(), gone.code) == (False, 230011)


def test_the_sdk_edits_rich_texts_and_reacts(sdk: Sdk, feishu: FakeFeishu, client: Any) -> None:
    content = json.dumps({"zh_cn": {"content": [[{"tag": "md", "text": "hello"}]]}})
    id_ = create(sdk, client, "post", content).data.message_id
    body = sdk.im.UpdateMessageRequestBody.builder().msg_type("post").content(content.replace("hello", "bye"))
    update = sdk.im.UpdateMessageRequest.builder().message_id(id_).request_body(body.build()).build()
    assert client.im.v1.message.update(update).success() and feishu.texts() == ["bye"]
    emoji = sdk.im.Emoji.builder().emoji_type("OnIt").build()
    reaction = sdk.im.CreateMessageReactionRequestBody.builder().reaction_type(emoji).build()
    request = (
        sdk.im.CreateMessageReactionRequest.builder().message_id(feishu.say("hi")).request_body(reaction)
    )
    assert client.im.v1.message_reaction.create(request.build()).success() and len(feishu.reactions) == 1


def test_the_sdk_uploads_and_fetches_files(sdk: Sdk, feishu: FakeFeishu, client: Any) -> None:
    body = sdk.im.CreateImageRequestBody.builder().image_type("message").image(io.BytesIO(b"png"))
    image = client.im.v1.image.create(sdk.im.CreateImageRequest.builder().request_body(body.build()).build())
    assert image.success(), image.msg
    assert create(sdk, client, "image", json.dumps({"image_key": image.data.image_key})).success()
    assert feishu.posts[0].file == b"png"
    form = (
        sdk.im.CreateFileRequestBody.builder().file_type("stream").file_name("a.txt").file(io.BytesIO(b"txt"))
    )
    file = client.im.v1.file.create(sdk.im.CreateFileRequest.builder().request_body(form.build()).build())
    assert file.success(), file.msg
    assert create(sdk, client, "file", json.dumps({"file_key": file.data.file_key}), "u2").success()
    message = feishu.attach("look", "a.pdf", b"%PDF", mime="application/pdf")
    [key] = feishu.files
    request = (
        sdk.im.GetMessageResourceRequest.builder().message_id(message).file_key(key).type("file").build()
    )
    assert client.im.v1.message_resource.get(request).file.read() == b"%PDF"


def build_handler(sdk: Sdk, heard: list[str]) -> Any:
    def receive(data: Any) -> None:
        heard.append(json.loads(data.event.message.content)["text"])

    def press(data: Any) -> Any:
        heard.append(data.event.action.value["keryx"])
        return sdk.callbacks.P2CardActionTriggerResponse({"toast": {"type": "info", "content": "taken"}})

    builder = sdk.lark.EventDispatcherHandler.builder(ENCRYPT_KEY, VERIFICATION_TOKEN)
    builder = builder.register_p2_im_message_receive_v1(receive)
    return builder.register_p2_card_action_trigger(press).build()


def test_the_sdk_reads_and_acknowledges_the_frames_of_the_fake(sdk: Sdk, feishu: FakeFeishu) -> None:
    heard: list[str] = []
    feishu.fragment_bytes = 300
    feishu.say("in several frames")
    loop = asyncio.new_event_loop()
    sdk.ws.loop = loop
    # The lock and a task of the client belong to the loop that is current.
    asyncio.set_event_loop(loop)
    client = sdk.ws.Client(APP_ID, APP_SECRET, event_handler=build_handler(sdk, heard), domain=feishu.url)
    asyncio.set_event_loop(None)

    async def run() -> None:
        await client._connect()
        await client._write_message(sdk.ws._new_ping_frame(int(client._service_id)).SerializeToString())
        await asyncio.sleep(3600)

    def serve() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(run())
        except asyncio.CancelledError:
            pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        assert feishu.wait_for(lambda: not feishu.waiting), feishu.problems
        with feishu.lock:
            post = next(iter(feishu.posts), None)
        assert post is None
        event = {
            "operator": {"open_id": "ou_1"},
            "action": {"value": {"keryx": "/answer 1 2"}, "tag": "button"},
            "context": {"open_message_id": "om_1", "open_chat_id": DIRECT},
        }
        feishu.push("card.action.trigger", event)
        assert feishu.wait_for(lambda: len(feishu.toasts) == 1)
        assert feishu.wait_for(lambda: feishu.pings == 1)
    finally:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        thread.join(10)
        if ended := asyncio.all_tasks(loop):
            loop.run_until_complete(asyncio.wait(ended))
        loop.close()
    assert heard == ["in several frames", "/answer 1 2"]
    assert feishu.toasts == [{"toast": {"type": "info", "content": "taken"}}]
    assert feishu.problems == []


def test_the_sdk_reads_the_posts_of_the_fake(sdk: Sdk, feishu: FakeFeishu) -> None:
    heard: list[str] = []
    handler = build_handler(sdk, heard)
    feishu.say("by post")
    [(_, payload)] = feishu.waiting
    for post, status in ((build_post(payload), 200), (build_post(payload, key="another"), 500)):
        request = sdk.models.RawRequest()
        request.uri, request.body = "/hooks/feishu", post.body
        names = ("X-Lark-Request-Timestamp", "X-Lark-Request-Nonce", "X-Lark-Signature")
        request.headers = {name: post.headers[name.lower()] for name in names}
        assert handler.do(request).status_code == status
    assert heard == ["by post"] and BOT not in heard
