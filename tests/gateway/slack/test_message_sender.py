"""What the Slack adapter sends: streams, messages, files and signs that an answer is being written."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.fakes.slack import (
    BOT_TOKEN,
    PERSON,
    FakeSlack,
)
from tests.gateway.slack.workspace import CHANNEL, DIRECT, THREAD, Workspace, build

from keryx.core.deliveries import REPEAT_MARK, Target
from keryx.core.errors import (
    CredentialsRefused,
    Invalid,
    MessageGone,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.media import Attachment
from keryx.core.ports.adapter import StepState, Streaming, ToolStep
from keryx.core.questions import Button
from keryx.surfaces.gateway.slack import (
    SlackStreaming,
)
from keryx.surfaces.gateway.slack.web_api import METHOD_BUDGETS, MethodBudget
from keryx.testing.fault_injection import PlatformFaults


async def test_an_answer_in_a_channel_is_streamed_to_who_asked(workspace: Workspace) -> None:
    ts = await workspace.send("One", chat=CHANNEL, thread=THREAD, final=False)
    await workspace.send("One two", chat=CHANNEL, thread=THREAD, edits=ts, final=False, shown="One")
    await workspace.send("One two three", chat=CHANNEL, thread=THREAD, edits=ts, shown="One two")
    [post] = workspace.slack.posts
    assert post.methods == ["chat.startStream", "chat.appendStream", "chat.stopStream"]
    assert (post.text, post.thread, post.streaming) == ("One two three", THREAD, False)
    start = workspace.slack.calls[0][1]
    assert (start["recipient_user_id"], start["recipient_team_id"]) == (PERSON, "T0000001")
    chunks = [chunk for _, params in workspace.slack.calls for chunk in params["chunks"]]
    assert [chunk["text"] for chunk in chunks] == ["One", " two", " three"]
    assert post.metadata is not None and post.metadata["event_payload"] == {"key": "d1.0"}


SEARCH, READ = ToolStep("c1", "search", StepState.RUNNING), ToolStep("c2", "read", StepState.RUNNING)
SEARCHED = ToolStep("c1", "search", StepState.DONE)


async def test_tool_calls_are_tasks_of_the_stream(workspace: Workspace) -> None:
    ts = await workspace.send("", thread=THREAD, final=False, steps=(SEARCH,))
    [post] = workspace.slack.posts
    assert (post.text, post.tasks, post.streaming) == ("", {"search": "in_progress"}, True)
    await workspace.send("", thread=THREAD, edits=ts, final=False, steps=(SEARCHED, READ))
    assert post.tasks == {"search": "complete", "read": "in_progress"}
    failed = ToolStep("c2", "read", StepState.FAILED)
    await workspace.send("Found", thread=THREAD, edits=ts, final=False, steps=(SEARCHED, failed))
    assert (post.text, post.tasks) == ("Found", {"search": "complete", "read": "error"})
    await workspace.send("Found it.", thread=THREAD, edits=ts)
    assert post.methods == ["chat.startStream", *["chat.appendStream"] * 2, "chat.stopStream"]
    assert (post.text, post.streaming, post.edits) == ("Found it.", False, 0)


async def test_a_tool_call_that_still_runs_is_complete_with_the_answer(workspace: Workspace) -> None:
    ts = await workspace.send("Look", thread=THREAD, final=False, steps=(SEARCH,))
    buttons = (Button("Yes", "/answer 1"),)
    await workspace.send("Look: nothing.", thread=THREAD, edits=ts, buttons=buttons)
    [post] = workspace.slack.posts
    assert (post.text, post.tasks, post.buttons) == (
        "Look: nothing.",
        {"search": "complete"},
        {"Yes": "/answer 1"},
    )


async def test_a_task_of_unknown_outcome_is_repeated_and_the_text_goes_on(workspace: Workspace) -> None:
    ts = await workspace.send("One", thread=THREAD, final=False)
    workspace.slack.lost.add("chat.appendStream")
    with pytest.raises(Uncertain):
        await workspace.send("One", thread=THREAD, edits=ts, final=False, steps=(SEARCH,))
    await workspace.send("One two", thread=THREAD, edits=ts, final=False, steps=(SEARCHED,))
    [post] = workspace.slack.posts
    assert (post.text, post.tasks, post.edits) == ("One two", {"search": "complete"}, 0)


async def test_without_a_stream_tool_calls_are_lines_above_the_text_until_the_answer(
    workspace: Workspace,
) -> None:
    ts = await workspace.send("", final=False, steps=(SEARCH,))
    assert workspace.slack.texts() == ["⏳ `search`"]
    await workspace.send("One", edits=ts, final=False, steps=(SEARCHED, READ))
    assert workspace.slack.texts() == ["✅ `search`  \n⏳ `read`\n\nOne"]
    await workspace.send("One two", edits=ts)
    assert workspace.slack.texts() == ["One two"]


async def test_a_stream_of_tool_calls_whose_start_was_lost_is_found(workspace: Workspace) -> None:
    asked = workspace.slack.say("question", thread_ts=THREAD)
    workspace.slack.lost.add("chat.startStream")
    with pytest.raises(Uncertain):
        await workspace.send("", thread=THREAD, reply_to=asked, final=False, steps=(SEARCH,))
    part = build("The answer", thread=THREAD, reply_to=asked, again=True)
    ts = await workspace.adapter.find_sent(part)
    assert ts == workspace.slack.posts[0].ts
    await workspace.adapter.send(msgspec.structs.replace(part, edits=ts or "", again=False))
    assert workspace.slack.texts() == ["The answer"] and not workspace.slack.count_open(DIRECT)


async def test_without_a_thread_or_a_person_a_message_is_edited(workspace: Workspace) -> None:
    ts = await workspace.send("One", final=False)
    await workspace.send("One two", edits=ts, final=False)
    nobody = build("One", chat=CHANNEL, thread=THREAD, final=False)
    plain = msgspec.structs.replace(nobody, target=msgspec.structs.replace(nobody.target, reply_context=None))
    await workspace.adapter.send(plain)
    assert [p.methods for p in workspace.slack.posts] == [["chat.update"], []]
    assert not workspace.slack.count_calls("chat.startStream")


async def test_where_slack_offers_no_stream_the_answer_is_shown_by_edits(workspace: Workspace) -> None:
    workspace.slack.refusals["chat.startStream"] = "channel_type_not_supported"
    ts = await workspace.send("One", thread=THREAD, final=False)
    await workspace.send("One two", thread=THREAD, edits=ts)
    assert workspace.slack.texts() == ["One two"]
    await workspace.send("Next", thread=THREAD, key="d2.0", final=False)
    assert workspace.slack.count_calls("chat.startStream") == 1


async def test_a_stream_that_is_refused_once_is_offered_again(workspace: Workspace) -> None:
    workspace.slack.refusals["chat.startStream"] = "user_not_found"
    await workspace.send("One", thread=THREAD, final=False)
    del workspace.slack.refusals["chat.startStream"]
    await workspace.send("Two", thread=THREAD, key="d2.0", final=False)
    assert [post.streaming for post in workspace.slack.posts] == [False, True]


async def test_a_limit_on_streams_is_not_one_on_answers(workspace: Workspace) -> None:
    workspace.slack.limited["chat.startStream"] = 30
    await workspace.send("One", thread=THREAD, final=False)
    await workspace.send("Two", thread=THREAD, key="d2.0", final=False)
    assert workspace.slack.texts() == ["One", "Two"]
    assert workspace.slack.count_calls("chat.startStream") == 1


async def test_a_stream_that_slack_has_ended_is_finished_by_an_edit(workspace: Workspace) -> None:
    ts = await workspace.send("One", thread=THREAD, final=False)
    workspace.slack.posts[0].streaming = False
    await workspace.send("One two", thread=THREAD, edits=ts, final=False, shown="One")
    await workspace.send("One two three", thread=THREAD, edits=ts)
    assert workspace.slack.texts() == ["One two three"]
    ts = await workspace.send("A", thread=THREAD, key="d2.0", final=False)
    workspace.slack.posts[1].streaming = False
    await workspace.send("A b", thread=THREAD, key="d2.0", edits=ts)
    assert workspace.slack.texts()[1:] == ["A b"]


async def test_an_append_of_unknown_outcome_doubles_no_text(workspace: Workspace) -> None:
    ts = await workspace.send("One", thread=THREAD, final=False)
    workspace.slack.lost.add("chat.appendStream")
    with pytest.raises(Uncertain):
        await workspace.send("One two", thread=THREAD, edits=ts, final=False, shown="One")
    await workspace.send("One two three", thread=THREAD, edits=ts, final=False, shown="One")
    await workspace.send("One two three.", thread=THREAD, edits=ts)
    assert workspace.slack.texts() == ["One two three."] and not workspace.slack.count_open(DIRECT)


async def test_a_throttled_append_is_made_up_for(workspace: Workspace) -> None:
    ts = await workspace.send("One", thread=THREAD, final=False)
    workspace.slack.limited["chat.appendStream"] = 5
    with pytest.raises(Throttled) as caught:
        await workspace.send("One two", thread=THREAD, edits=ts, final=False, shown="One")
    assert caught.value.after == timedelta(seconds=5) and not caught.value.account
    workspace.slack.limited.clear()
    await workspace.send("One two three", thread=THREAD, edits=ts, shown="One")
    assert workspace.slack.texts() == ["One two three"]


async def test_a_lost_end_of_a_stream_is_repeated_without_doubling_text(workspace: Workspace) -> None:
    ts = await workspace.send("One", thread=THREAD, final=False)
    workspace.slack.lost.add("chat.stopStream")
    with pytest.raises(Uncertain):
        await workspace.send("One two", thread=THREAD, edits=ts)
    assert await workspace.send("One two", thread=THREAD, edits=ts) == ts
    assert workspace.slack.texts() == ["One two"] and not workspace.slack.count_open(DIRECT)


async def test_another_process_finishes_the_stream_of_one_that_has_ended(workspace: Workspace) -> None:
    ts = await workspace.send("One", thread=THREAD, final=False)
    other = Workspace(workspace.slack)
    assert await other.send("Another answer", thread=THREAD, edits=ts) == ts
    assert workspace.slack.texts() == ["Another answer"] and not workspace.slack.count_open(DIRECT)
    await other.adapter.close()


async def test_a_stream_whose_start_was_lost_is_found_by_what_it_shows(workspace: Workspace) -> None:
    asked = workspace.slack.say("question", thread_ts=THREAD)
    await workspace.send("**One** earlier", thread=THREAD, key="d0.0")
    workspace.slack.lost.add("chat.startStream")
    with pytest.raises(Uncertain):
        await workspace.send("**One** `two`", thread=THREAD, key="p1", final=False)
    final = build("**One** `two` three", thread=THREAD, key="p1", reply_to=asked)
    found = await workspace.adapter.find_sent(final)
    assert found == workspace.slack.posts[1].ts
    await workspace.adapter.send(msgspec.structs.replace(final, edits=found, key="d1.0"))
    assert workspace.slack.texts()[1:] == ["**One** `two` three"] and not workspace.slack.count_open(DIRECT)
    other = build("Something else", thread=THREAD, key="d9.0", reply_to=asked)
    assert await workspace.adapter.find_sent(other) is None


async def test_what_was_sent_is_found_behind_many_later_messages(workspace: Workspace) -> None:
    sent = await workspace.send("hello", key="d1.0")
    for number in range(450):
        workspace.slack.say(f"m{number}")
    assert await workspace.adapter.find_sent(build(key="d1.0")) == sent
    assert workspace.slack.count_calls("conversations.history") == 3


async def test_streams_can_be_switched_off() -> None:
    with FakeSlack() as slack:
        workspace = Workspace(slack, streaming=SlackStreaming.EDIT)
        assert workspace.adapter.capabilities.streaming is Streaming.EDIT
        await workspace.send("One", thread=THREAD, final=False)
        assert not slack.count_calls("chat.startStream")
        await workspace.adapter.close()


def test_the_budget_of_a_method_counts_a_minute() -> None:
    now = 0.0
    budget = MethodBudget(lambda: now)
    for _ in range(METHOD_BUDGETS["chat.startStream"]):
        assert budget.has_room("chat.startStream", "chat.stopStream")
        budget.count("chat.startStream")
    assert not budget.has_room("chat.startStream")
    now = 61.0
    assert budget.has_room("chat.startStream")
    budget.close("chat.startStream", timedelta(seconds=5))
    assert not budget.has_room("chat.startStream")
    now = 66.0
    assert budget.has_room("chat.startStream")


async def test_a_message_has_markdown_a_fallback_and_a_key(workspace: Workspace) -> None:
    await workspace.send("**Hi** <@U0000007> & <b>")
    [(_, body)] = workspace.slack.calls
    assert body["blocks"] == [{"type": "markdown", "text": "**Hi** <@U0000007> & <b>"}]
    assert body["text"] == "Hi &lt;@U0000007&gt; &amp; &lt;b&gt;"
    assert body["metadata"] == {"event_type": "keryx_part", "event_payload": {"key": "d1.0"}}
    assert (body["unfurl_links"], body["unfurl_media"]) == (False, False)


async def test_what_slack_refuses_is_sent_as_plain_text(workspace: Workspace) -> None:
    workspace.slack.refuse_blocks = True
    await workspace.send("**bold**", buttons=(Button("Yes", "/answer 1 1"),))
    assert workspace.slack.texts() == ["bold"] and workspace.slack.count_calls("chat.postMessage") == 3


async def test_a_mark_stands_before_a_block_of_its_own(workspace: Workspace) -> None:
    await workspace.send("# Title", again=True)
    await workspace.send("text", again=True, key="d2.0")
    assert workspace.slack.texts() == [f"{REPEAT_MARK.strip()}\n\n# Title", f"{REPEAT_MARK}text"]


async def test_more_buttons_than_slack_shows_are_left_out(workspace: Workspace) -> None:
    buttons = tuple(Button(f"b{n}", f"/answer 1 {n}") for n in range(26))
    await workspace.send("Choose", buttons=buttons)
    assert workspace.slack.posts[0].buttons == {}


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("channel_not_found", TargetGone, "no such channel"),
        ("not_in_channel", TargetGone, "/invite"),
        ("is_archived", TargetGone, "archived"),
        ("msg_too_long", Refused, "too long"),
        ("invalid_auth", CredentialsRefused, "does not accept the token"),
        ("token_revoked", CredentialsRefused, "revoked"),
        ("account_inactive", CredentialsRefused, "deactivated"),
        ("ratelimited", Throttled, "wait 30 s"),
        ("fatal_error", Uncertain, "may have taken"),
        ("some_new_error", Refused, "some_new_error"),
    ],
)
async def test_a_refusal_says_what_to_do(
    workspace: Workspace, code: str, kind: type[SendError], words: str
) -> None:
    workspace.slack.refusals["chat.postMessage"] = code
    with pytest.raises(kind, match=words) as caught:
        await workspace.send()
    assert type(caught.value) is kind and BOT_TOKEN not in str(caught.value)


async def test_a_missing_scope_is_named(workspace: Workspace) -> None:
    workspace.slack.missing["chat.postMessage"] = "chat:write"
    with pytest.raises(NotSent, match="lacks the scope chat:write"):
        await workspace.send()


async def test_a_target_without_a_chat_is_refused(workspace: Workspace) -> None:
    with pytest.raises(Refused, match="slack:<channel id>"):
        await workspace.send(chat="")


async def test_a_failure_of_slack_leaves_the_outcome_open(workspace: Workspace) -> None:
    workspace.slack.set_faults(PlatformFaults(broken=1))
    with pytest.raises(Uncertain, match="service_unavailable"):
        await workspace.send()


async def test_a_message_that_is_gone_cannot_be_removed(workspace: Workspace) -> None:
    workspace.slack.refusals["chat.delete"] = "cant_delete_message"
    with pytest.raises(Refused):
        await workspace.adapter.remove(Target("slack", "", DIRECT), "1.000001")
    del workspace.slack.refusals["chat.delete"]
    with pytest.raises(MessageGone):
        await workspace.adapter.remove(Target("slack", "", DIRECT), "1.000001")
    ts = await workspace.send("One", thread=THREAD, final=False)
    await workspace.adapter.remove(Target("slack", "", DIRECT, THREAD), ts)
    assert workspace.slack.posts == []


async def test_a_file_is_uploaded_and_shown_in_its_thread_with_a_key(workspace: Workspace) -> None:
    attachment = Attachment(name="re|port <1>.txt", mime="text/plain", body=b"abc")
    ts = await workspace.send("", thread=THREAD, attachment=attachment)
    [post] = workspace.slack.posts
    assert (post.files, post.thread, post.ts) == ([b"abc"], THREAD, ts)
    found = build("", thread=THREAD, attachment=attachment)
    assert await workspace.adapter.find_sent(found) == ts


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "files.completeUploadExternal"])
async def test_a_file_whose_upload_is_lost_was_not_sent(workspace: Workspace, method: str) -> None:
    workspace.slack.lost.add(method)
    attachment = Attachment(name="a.txt", mime="text/plain", body=b"abc")
    with pytest.raises(NotSent):
        await workspace.send("", attachment=attachment)
    assert workspace.slack.posts == []


async def fetch(workspace: Workspace, name: str = "a.txt", *, limit: int = 1000, **more: Any) -> Attachment:
    """Send the file of a person, and fetch it by what its event names."""
    workspace.slack.attach("look", name, b"abc", mime=more.pop("mimetype", "text/plain"), **more)
    events = await workspace.hear(len(workspace.context.events) + 1)
    [file] = events[-1].files
    return await workspace.adapter.download(file, limit=limit)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/steal", "https://slack.com.example.org/a", "https://[::"]
)
async def test_the_token_is_sent_to_slack_alone(workspace: Workspace, url: str) -> None:
    with pytest.raises(Invalid, match="it is not on Slack"):
        await fetch(workspace, url_private_download=url)


async def test_a_file_of_another_workspace_is_asked_for(workspace: Workspace) -> None:
    fetched = await fetch(workspace, "b.txt", file_access="check_file_info")
    assert fetched == Attachment(name="b.txt", mime="text/plain", body=b"abc")


async def test_a_page_that_is_shared_is_a_file(workspace: Workspace) -> None:
    assert (await fetch(workspace, "a.html", mimetype="text/html")).body == b"abc"


async def test_a_file_that_cannot_be_read_says_why(workspace: Workspace) -> None:
    with pytest.raises(Invalid, match="lacks the scope files:read"):
        await fetch(workspace, url_private_download=f"{workspace.slack.url}/files/page")
    with pytest.raises(Invalid, match="it was deleted"):
        await fetch(workspace, mode="tombstone")
    with pytest.raises(Invalid, match="does not show files of that age"):
        await fetch(workspace, mode="hidden_by_limit")
    with pytest.raises(Invalid, match="it is larger than 2 bytes"):
        await fetch(workspace, limit=2)
    with pytest.raises(Invalid, match="it is larger than 2 bytes"):
        # Slack does not always say the size.
        await fetch(workspace, limit=2, size=0)
    with pytest.raises(Invalid, match="status 404"):
        await fetch(workspace, url_private_download=f"{workspace.slack.url}/files/unknown")


async def test_a_file_is_tried_again_unless_slack_refuses_it(workspace: Workspace) -> None:
    for status in (429, 503):
        workspace.slack.broken_files = status
        with pytest.raises(Unavailable):
            await fetch(workspace)
    workspace.slack.broken_files = 0
    for code, error in (
        ("internal_error", Unavailable),
        ("ratelimited", Unavailable),
        ("file_not_found", Invalid),
    ):
        workspace.slack.refusals["files.info"] = code
        with pytest.raises(error):
            await fetch(workspace)


async def test_a_slow_file_holds_up_no_event(workspace: Workspace) -> None:
    workspace.slack.attach("look", "a.txt", b"abc", mime="text/plain")
    for file in workspace.slack.files:
        workspace.slack.hold(file)
    workspace.slack.say("hello", channel="D0000002")
    one, other = await workspace.hear(2)
    assert (one.files[0].placeholder, other.files) == ("[a.txt]", ())
    for file in workspace.slack.files:
        workspace.slack.release(file)


async def test_a_status_is_shown_in_a_thread_and_a_reaction_elsewhere(workspace: Workspace) -> None:
    said = workspace.slack.say("hello")
    await workspace.adapter.react(Target("slack", "", DIRECT, THREAD, reply_to=said))
    assert [s["status"] for s in workspace.slack.statuses] == ["is thinking…"]
    workspace.slack.refusals["assistant.threads.setStatus"] = "channel_type_not_supported"
    for _ in range(2):
        await workspace.adapter.react(Target("slack", "", DIRECT, THREAD, reply_to=said))
    assert workspace.slack.reactions == [{"channel": DIRECT, "timestamp": said, "name": "eyes"}]
