"""Feishu's own client library against the fake, so that the fake does not drift from what Feishu's clients send and read."""

import asyncio
import importlib
import io
import json
import threading
import warnings
from collections.abc import Iterator
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

# Its types are not complete, it may be absent, and it sets up an event loop when it is imported.
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lark: Any = importlib.import_module("lark_oapi")
        im: Any = importlib.import_module("lark_oapi.api.im.v1")
        ws: Any = importlib.import_module("lark_oapi.ws.client")
        tokens: Any = importlib.import_module("lark_oapi.core.token.manager")
        models: Any = importlib.import_module("lark_oapi.core.model")
        callbacks: Any = importlib.import_module("lark_oapi.event.callback.model.p2_card_action_trigger")
except ImportError:
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


@pytest.fixture
def feishu() -> Iterator[FakeFeishu]:
    with FakeFeishu() as feishu:
        yield feishu


@pytest.fixture
def client(feishu: FakeFeishu) -> Any:
    # Tokens are kept for all clients of an app, and each fake grants its own.
    tokens.TokenManager.cache = type(tokens.TokenManager.cache)()
    return lark.Client.builder().app_id(APP_ID).app_secret(APP_SECRET).domain(feishu.url).build()


def create(client: Any, kind: str, content: str, uuid: str = "u1") -> Any:
    body = im.CreateMessageRequestBody.builder().receive_id(DIRECT).msg_type(kind).content(content).uuid(uuid)
    request = im.CreateMessageRequest.builder().receive_id_type("chat_id").request_body(body.build())
    return client.im.v1.message.create(request.build())


def test_the_sdk_sends_edits_replies_and_recalls(feishu: FakeFeishu, client: Any) -> None:
    sent = create(client, "interactive", CARD)
    assert sent.success() and create(client, "interactive", CARD).data.message_id == sent.data.message_id
    id_ = sent.data.message_id
    changed = im.PatchMessageRequestBody.builder().content(json.dumps(build_card("changed", "changed")))
    patch = im.PatchMessageRequest.builder().message_id(id_).request_body(changed.build()).build()
    assert client.im.v1.message.patch(patch).success() and feishu.texts() == ["changed"]
    body = im.ReplyMessageRequestBody.builder().msg_type("interactive").content(CARD).reply_in_thread(True)
    reply = im.ReplyMessageRequest.builder().message_id(id_).request_body(body.uuid("u2").build()).build()
    answer = client.im.v1.message.reply(reply)
    assert answer.success() and answer.data.thread_id.startswith("omt_")
    found = client.im.v1.message.get(im.GetMessageRequest.builder().message_id(id_).build())
    assert [item.chat_id for item in found.data.items] == [DIRECT]
    assert found.data.items[0].sender.id == APP_ID
    client.im.v1.message.delete(im.DeleteMessageRequest.builder().message_id(id_).build())
    gone = client.im.v1.message.patch(patch)
    assert (gone.success(), gone.code) == (False, 230011)


def test_the_sdk_edits_rich_texts_and_reacts(feishu: FakeFeishu, client: Any) -> None:
    content = json.dumps({"zh_cn": {"content": [[{"tag": "md", "text": "hello"}]]}})
    id_ = create(client, "post", content).data.message_id
    body = im.UpdateMessageRequestBody.builder().msg_type("post").content(content.replace("hello", "bye"))
    update = im.UpdateMessageRequest.builder().message_id(id_).request_body(body.build()).build()
    assert client.im.v1.message.update(update).success() and feishu.texts() == ["bye"]
    emoji = im.Emoji.builder().emoji_type("OnIt").build()
    reaction = im.CreateMessageReactionRequestBody.builder().reaction_type(emoji).build()
    request = im.CreateMessageReactionRequest.builder().message_id(feishu.say("hi")).request_body(reaction)
    assert client.im.v1.message_reaction.create(request.build()).success() and len(feishu.reactions) == 1


def test_the_sdk_uploads_and_fetches_files(feishu: FakeFeishu, client: Any) -> None:
    body = im.CreateImageRequestBody.builder().image_type("message").image(io.BytesIO(b"png"))
    image = client.im.v1.image.create(im.CreateImageRequest.builder().request_body(body.build()).build())
    assert image.success(), image.msg
    assert create(client, "image", json.dumps({"image_key": image.data.image_key})).success()
    assert feishu.posts[0].file == b"png"
    form = im.CreateFileRequestBody.builder().file_type("stream").file_name("a.txt").file(io.BytesIO(b"txt"))
    file = client.im.v1.file.create(im.CreateFileRequest.builder().request_body(form.build()).build())
    assert file.success(), file.msg
    assert create(client, "file", json.dumps({"file_key": file.data.file_key}), "u2").success()
    message = feishu.attach("look", "a.pdf", b"%PDF", mime="application/pdf")
    [key] = feishu.files
    request = im.GetMessageResourceRequest.builder().message_id(message).file_key(key).type("file").build()
    assert client.im.v1.message_resource.get(request).file.read() == b"%PDF"


def build_handler(heard: list[str]) -> Any:
    def receive(data: Any) -> None:
        heard.append(json.loads(data.event.message.content)["text"])

    def press(data: Any) -> Any:
        heard.append(data.event.action.value["keryx"])
        return callbacks.P2CardActionTriggerResponse({"toast": {"type": "info", "content": "taken"}})

    builder = lark.EventDispatcherHandler.builder(ENCRYPT_KEY, VERIFICATION_TOKEN)
    builder = builder.register_p2_im_message_receive_v1(receive)
    return builder.register_p2_card_action_trigger(press).build()


def test_the_sdk_reads_and_acknowledges_the_frames_of_the_fake(feishu: FakeFeishu) -> None:
    heard: list[str] = []
    feishu.fragment_bytes = 300
    feishu.say("in several frames")
    loop = asyncio.new_event_loop()
    ws.loop = loop
    # The lock of the client belongs to the loop that is current.
    client = ws.Client(APP_ID, APP_SECRET, event_handler=build_handler(heard), domain=feishu.url)

    async def run() -> None:
        await client._connect()
        await client._write_message(ws._new_ping_frame(int(client._service_id)).SerializeToString())
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
        loop.close()
    assert heard == ["in several frames", "/answer 1 2"]
    assert feishu.toasts == [{"toast": {"type": "info", "content": "taken"}}]
    assert feishu.problems == []


def test_the_sdk_reads_the_posts_of_the_fake(feishu: FakeFeishu) -> None:
    heard: list[str] = []
    handler = build_handler(heard)
    feishu.say("by post")
    [(_, payload)] = feishu.waiting
    for post, status in ((build_post(payload), 200), (build_post(payload, key="another"), 500)):
        request = models.RawRequest()
        request.uri, request.body = "/hooks/feishu", post.body
        names = ("X-Lark-Request-Timestamp", "X-Lark-Request-Nonce", "X-Lark-Signature")
        request.headers = {name: post.headers[name.lower()] for name in names}
        assert handler.do(request).status_code == status
    assert heard == ["by post"] and BOT not in heard
