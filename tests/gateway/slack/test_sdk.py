"""Slack's own client library against the fake, so that the fake does not drift from what Slack's clients send."""

import importlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests import left_out
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, TEAM, FakeSlack, build_post

# Its types are not complete, and it may be absent.
try:
    sdk: Any = importlib.import_module("slack_sdk")
    errors: Any = importlib.import_module("slack_sdk.errors")
    signature: Any = importlib.import_module("slack_sdk.signature")
    socket_mode: Any = importlib.import_module("slack_sdk.socket_mode")
    response: Any = importlib.import_module("slack_sdk.socket_mode.response")
except ImportError:
    pytest.skip(
        left_out.reason("slack_sdk", why="slack_sdk is not installed", command="scripts/setup dev"),
        allow_module_level=True,
    )

THREAD = "1690000000.000001"


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with FakeSlack() as slack:
        yield slack


@pytest.fixture
def client(slack: FakeSlack) -> Any:
    return sdk.WebClient(BOT_TOKEN, base_url=f"{slack.api_url}/")


def test_the_sdk_posts_edits_and_deletes(slack: FakeSlack, client: Any) -> None:
    assert client.auth_test()["team_id"] == TEAM
    metadata = {"event_type": "keryx_part", "event_payload": {"key": "k"}}
    ts = client.chat_postMessage(channel="D0000001", text="hello", metadata=metadata)["ts"]
    client.chat_update(channel="D0000001", ts=ts, text="changed", metadata=metadata)
    assert slack.texts() == ["changed"]
    history = client.conversations_history(channel="D0000001", include_all_metadata="true")
    assert history["messages"][0]["metadata"] == metadata
    client.chat_delete(channel="D0000001", ts=ts)
    with pytest.raises(errors.SlackApiError) as caught:
        client.chat_update(channel="D0000001", ts=ts, text="gone")
    assert caught.value.response["error"] == "message_not_found"


def test_the_sdk_streams(slack: FakeSlack, client: Any) -> None:
    stream = client.chat_stream(channel="D0000001", thread_ts=THREAD, buffer_size=1)
    stream.append(markdown_text="**hello wo")
    stream.append(markdown_text="rld!**")
    assert slack.count_open("D0000001") == 1
    stream.stop()
    assert slack.texts() == ["**hello world!**"] and slack.count_open("D0000001") == 0


def test_the_sdk_streams_tool_calls(slack: FakeSlack, client: Any) -> None:
    task = {"type": "task_update", "id": "c1", "title": "search", "status": "in_progress"}
    started = client.chat_startStream(channel="D0000001", thread_ts=THREAD, chunks=[task])
    said = [{**task, "status": "complete"}, {"type": "markdown_text", "text": "hello"}]
    client.chat_appendStream(channel="D0000001", ts=started["ts"], chunks=said)
    assert (slack.posts[0].text, slack.posts[0].tasks) == ("hello", {"search": "complete"})
    for wrong, code in (
        ({"markdown_text": "!"}, "streaming_mode_mismatch"),
        ({"markdown_text": "!", "chunks": [task]}, "cannot_provide_both_markdown_text_and_chunks"),
    ):
        with pytest.raises(errors.SlackApiError) as caught:
            client.api_call("chat.appendStream", json={"channel": "D0000001", "ts": started["ts"], **wrong})
        assert caught.value.response["error"] == code


def test_the_sdk_uploads_a_file(slack: FakeSlack, client: Any) -> None:
    place = client.files_getUploadURLExternal(filename="a.txt", length=3)
    assert str(place["upload_url"]).startswith(slack.url)
    slack.uploads[place["file_id"]] = b"abc"
    done = client.files_completeUploadExternal(files=[{"id": place["file_id"], "title": "a.txt"}])
    assert done["files"][0]["permalink"]


def test_the_sdk_shows_status_prompts_and_reactions(slack: FakeSlack, client: Any) -> None:
    said = slack.say("hello")
    client.assistant_threads_setStatus(channel_id="D0000001", thread_ts=THREAD, status="is thinking…")
    client.assistant_threads_setSuggestedPrompts(
        channel_id="D0000001", thread_ts=THREAD, prompts=[{"title": "a", "message": "b"}]
    )
    client.assistant_threads_setTitle(channel_id="D0000001", thread_ts=THREAD, title="t")
    client.reactions_add(channel="D0000001", timestamp=said, name="eyes")
    assert (len(slack.statuses), len(slack.prompts), len(slack.titles), len(slack.reactions)) == (1, 1, 1, 1)


def test_the_sdk_refreshes_a_token(slack: FakeSlack) -> None:
    slack.refresh_tokens["xoxe-1-a"] = True
    answer = sdk.WebClient(base_url=f"{slack.api_url}/").oauth_v2_access(
        client_id="1.2", client_secret="client-secret", grant_type="refresh_token", refresh_token="xoxe-1-a"
    )
    assert answer["access_token"] in slack.valid_tokens and answer["expires_in"] == 43200


def test_the_sdk_receives_by_socket_mode(slack: FakeSlack, client: Any) -> None:
    heard: list[Any] = []
    done = threading.Event()

    def listen(socket: Any, request: Any) -> None:
        heard.append(request)
        socket.send_socket_mode_response(response.SocketModeResponse(envelope_id=request.envelope_id))
        done.set()

    socket = socket_mode.SocketModeClient(app_token=APP_TOKEN, web_client=client)
    socket.socket_mode_request_listeners.append(listen)
    socket.connect()
    try:
        slack.say("hello slack")
        assert done.wait(60)
        assert slack.wait_for(lambda: not slack.waiting)
    finally:
        socket.close()
    assert heard[0].type == "events_api" and heard[0].payload["event"]["text"] == "hello slack"


def test_the_sdk_verifies_the_signature_of_a_post(slack: FakeSlack) -> None:
    slack.say("hello")
    request = build_post(slack.waiting[0])
    verifier = signature.SignatureVerifier(SIGNING_SECRET)
    assert verifier.is_valid_request(request.body, dict(request.headers))
    assert not verifier.is_valid_request(request.body + b" ", dict(request.headers))
