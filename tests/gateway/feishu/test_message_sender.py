"""What is sent to Feishu: cards, rich texts, replies, threads, files, and what becomes of refusals."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.fakes.feishu import DIRECT, GROUP, MAX_EDITS, PERSON, FakeFeishu
from tests.gateway.feishu.tenant import Tenant, build

from keryx.core.deliveries import REPEAT_MARK, Target
from keryx.core.errors import (
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
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import AttachmentKind, OutgoingPart
from keryx.core.questions import Button
from keryx.surfaces.gateway.feishu.event_parser import DIRECT_CONTEXT
from keryx.testing.fault_injection import PlatformFaults
from keryx.testing.wire import UNREACHABLE_URL

BUTTONS = (Button("Yes", "/answer 1 1"), Button("No", "/answer 1 2"))


def keyed(tenant: Tenant, text: str = "hello", **fields: Any) -> OutgoingPart:
    part = build(text, **fields)
    return msgspec.structs.replace(part, key=tenant.adapter.create_send_key(part))


async def test_a_text_is_a_card_with_a_summary_for_notifications(tenant: Tenant) -> None:
    [part] = tenant.adapter.parts("# Title\n\n**bold** and\n`code`")
    id_ = await tenant.send(part.text, markup=part.markup)
    [post] = tenant.feishu.posts
    assert (post.id, post.kind) == (id_, "interactive")
    assert (post.text, post.summary) == ("# Title\n\n**bold** and\n`code`", "Title bold and code")


async def test_an_answer_in_a_group_quotes_the_message_and_its_further_parts_do_not(tenant: Tenant) -> None:
    asked = tenant.feishu.say("hello", chat=GROUP, group=True)
    await tenant.send("one", chat=GROUP, reply_to=asked)
    await tenant.send("two", chat=GROUP, reply_to=asked, number=1, key="d1.1")
    assert [post.parent for post in tenant.feishu.posts] == [asked, ""]


async def test_an_answer_in_a_direct_chat_quotes_nothing(tenant: Tenant) -> None:
    asked = tenant.feishu.say("hello")
    part = build("one", reply_to=asked)
    target = msgspec.structs.replace(part.target, reply_context=DIRECT_CONTEXT)
    await tenant.adapter.send(msgspec.structs.replace(part, target=target))
    assert [post.parent for post in tenant.feishu.posts] == [""]


async def test_an_answer_to_a_recalled_message_is_sent_to_the_chat(tenant: Tenant) -> None:
    asked = tenant.feishu.say("hello", chat=GROUP, group=True)
    tenant.feishu.recall(asked, chat=GROUP)
    await tenant.send("answer", chat=GROUP, reply_to=asked)
    assert [(post.text, post.parent) for post in tenant.feishu.posts] == [("answer", "")]


async def test_an_answer_that_may_have_arrived_as_a_quote_has_a_mark_without_it(tenant: Tenant) -> None:
    asked = tenant.feishu.say("hello", chat=GROUP, group=True)
    part = keyed(tenant, chat=GROUP, reply_to=asked)
    tenant.feishu.recall(asked, chat=GROUP)
    tenant.advance(timedelta(seconds=30))
    await tenant.adapter.send(part)
    assert tenant.feishu.texts(GROUP) == [f"{REPEAT_MARK}hello"]


async def test_an_answer_in_a_thread_stays_in_it(tenant: Tenant) -> None:
    root = tenant.feishu.say("root", chat=GROUP, group=True)
    inside = tenant.feishu.say_in_thread("ask", root, chat=GROUP, group=True)
    thread = tenant.feishu.messages[inside]["thread_id"]
    for number in range(2):
        await tenant.send(
            f"p{number}", chat=GROUP, thread=thread, reply_to=inside, number=number, key=f"{number}"
        )
    assert [(p.thread, p.parent) for p in tenant.feishu.posts] == [(thread, inside)] * 2


async def test_a_thread_is_written_to_without_a_message_that_is_answered(tenant: Tenant) -> None:
    root = tenant.feishu.say("root", chat=GROUP, group=True)
    inside = tenant.feishu.say_in_thread("ask", root, chat=GROUP, group=True)
    thread = tenant.feishu.messages[inside]["thread_id"]
    await tenant.send("by a job", chat=GROUP, thread=thread)
    tenant.feishu.recall(inside, chat=GROUP)
    await tenant.send("to a recalled one", chat=GROUP, thread=thread, reply_to=inside, key="d2.0")
    assert [post.thread for post in tenant.feishu.posts] == [thread, thread]
    # The message that was replied to last is gone, too.
    await tenant.adapter.remove(build().target, tenant.feishu.posts[-1].id)
    await tenant.send("to another one", chat=GROUP, thread=thread, key="d4.0")
    assert [post.thread for post in tenant.feishu.posts] == [thread, thread]
    with pytest.raises(TargetGone, match="no such thread"):
        await tenant.send("nowhere", chat=GROUP, thread="omt_none", key="d3.0")


async def test_a_person_can_be_written_to_by_id(tenant: Tenant) -> None:
    await tenant.send("hello", chat=PERSON)
    assert tenant.feishu.texts(PERSON) == ["hello"]


async def test_a_key_tells_its_time_and_a_repetition_arrives_once(tenant: Tenant) -> None:
    part = keyed(tenant)
    tenant.feishu.set_faults(PlatformFaults(lost_reply=1))
    with pytest.raises(Uncertain):
        await tenant.adapter.send(part)
    tenant.feishu.set_faults(PlatformFaults())
    tenant.advance(timedelta(minutes=54))
    await tenant.adapter.send(part)
    assert tenant.feishu.texts() == ["hello"] and len(part.key) <= 50


async def test_after_the_hour_of_its_key_a_repetition_has_a_mark(tenant: Tenant) -> None:
    part, file = keyed(tenant), keyed(tenant, "", number=1)
    file = msgspec.structs.replace(file, attachment=Attachment(name="a.png", mime="image/png", body=b"x"))
    tenant.feishu.uuids_work = False
    tenant.advance(timedelta(minutes=56))
    await tenant.adapter.send(part)
    await tenant.adapter.send(file)
    text, picture = tenant.feishu.posts
    assert text.text == f"{REPEAT_MARK}hello"
    assert (picture.kind, picture.file_name) == ("file", f"{REPEAT_MARK}a.png")


async def test_a_long_key_is_shortened(tenant: Tenant) -> None:
    first = await tenant.send("hello", key="k" * 80)
    assert await tenant.send("hello", key="k" * 80) == first
    assert await tenant.send("hello", key="k" * 81) != first


async def test_a_card_is_edited_at_will_and_keeps_its_buttons_until_then(tenant: Tenant) -> None:
    id_ = await tenant.send("May I?", buttons=BUTTONS)
    assert list(tenant.feishu.posts[0].buttons) == ["Yes", "No"]
    for number in range(30):
        assert await tenant.send(f"v{number}", edits=id_) == id_
    [post] = tenant.feishu.posts
    assert (post.text, post.buttons, post.edits) == ("v29", {}, 30)


async def test_a_rich_text_is_edited_twenty_times_and_then_no_more() -> None:
    with FakeFeishu() as feishu:
        tenant = Tenant(feishu, cards=False)
        able = tenant.adapter.capabilities
        assert (able.max_edits, able.buttons) == (MAX_EDITS, False)
        id_ = await tenant.send("v0")
        for number in range(MAX_EDITS):
            await tenant.send(f"v{number + 1}", edits=id_)
        with pytest.raises(MessageGone):
            await tenant.send("once more", edits=id_)
        await tenant.adapter.close()
        assert (feishu.posts[0].kind, feishu.texts()) == ("post", [f"v{MAX_EDITS}"])


async def test_a_card_that_feishu_refuses_is_sent_as_plain_text(tenant: Tenant) -> None:
    refused = "![x](https://x.org/a.png)"
    id_ = await tenant.send(refused, markup="x (https://x.org/a.png)", buttons=BUTTONS)
    [post] = tenant.feishu.posts
    assert (post.text, list(post.buttons)) == ("x (https://x.org/a.png)", ["Yes", "No"])
    await tenant.send(refused, markup="changed", edits=id_)
    assert post.text == "changed"


async def test_what_a_part_may_hold_fits_into_a_card_in_the_worst_case(tenant: Tenant) -> None:
    text = '"\\\n' * 5000
    for number, part in enumerate(tenant.adapter.parts(f"```\n{text}\n```")):
        buttons = tuple(Button("Y" * 60, "/answer " + "1" * 60) for _ in range(5))
        await tenant.send(part.text, markup=part.markup, number=number, key=f"{number}", buttons=buttons)
    assert len(tenant.feishu.posts) > 2


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (230002, TargetGone, "not in this chat"),
        (230013, TargetGone, "availability"),
        (230018, TargetGone, "settings of the group"),
        (230029, TargetGone, "left the organisation"),
        (230034, TargetGone, "no such chat"),
        (230035, TargetGone, "may not write"),
        (230053, TargetGone, "blocked the bot"),
        (232009, TargetGone, "dissolved"),
        (230006, TargetGone, "no bot"),
        (230025, Refused, "too long"),
        (230022, Refused, "230022"),
        (230028, Refused, "230028"),
        (230027, NotSent, "lacks a permission"),
        (99991672, NotSent, "lacks a permission"),
        (99991663, NotSent, "App Secret"),
        (230020, Throttled, "wait 1 s"),
        (11232, Throttled, "wait 1 s"),
        (230049, Uncertain, "may have taken"),
        (230110, Refused, "230110"),
    ],
)
async def test_a_refusal_is_a_send_error(
    tenant: Tenant, code: int, kind: type[SendError], words: str
) -> None:
    tenant.feishu.refusals["POST /open-apis/im/v1/messages"] = code
    with pytest.raises(kind, match=words):
        await tenant.send()
    assert tenant.feishu.posts == []


async def test_a_limit_of_the_app_holds_for_all_chats_and_one_of_a_chat_does_not(tenant: Tenant) -> None:
    tenant.feishu.set_faults(PlatformFaults(throttle=1, retry_after=52))
    with pytest.raises(Throttled) as caught:
        await tenant.send()
    assert (caught.value.after, caught.value.account) == (timedelta(seconds=52), True)
    tenant.feishu.set_faults(PlatformFaults())
    tenant.feishu.gone[DIRECT] = 230020
    with pytest.raises(Throttled) as caught:
        await tenant.send()
    assert not caught.value.account


async def test_a_failure_while_the_token_is_fetched_has_sent_nothing() -> None:
    with FakeFeishu() as feishu:
        tenant = Tenant(feishu, secret="wrong")
        with pytest.raises(NotSent, match="App Secret"):
            await tenant.send()
        feishu.refusals["tenant_access_token"] = 1500
        with pytest.raises((NotSent, Uncertain)):
            await tenant.send()
        await tenant.adapter.close()
        assert feishu.count_calls("/im/v1/messages") == 0


async def test_errors_name_the_call_and_no_ids(tenant: Tenant) -> None:
    id_ = await tenant.send()
    tenant.feishu.refusals["PATCH"] = 230028
    with pytest.raises(Refused) as caught:
        await tenant.send("changed", edits=id_)
    assert "PATCH /open-apis/im/v1/messages/…: refused" in str(caught.value) and id_ not in str(caught.value)


async def test_a_target_without_a_chat_is_refused(tenant: Tenant) -> None:
    with pytest.raises(Refused, match="feishu:<chat id>"):
        await tenant.send(chat="")
    with pytest.raises(TargetGone, match="no such chat"):
        await tenant.send(chat="general")


async def test_a_message_is_removed_once(tenant: Tenant) -> None:
    id_ = await tenant.send()
    target = build().target
    await tenant.adapter.remove(target, id_)
    with pytest.raises(MessageGone):
        await tenant.adapter.remove(target, id_)
    tenant.feishu.refusals["DELETE"] = 230026
    with pytest.raises(Refused):
        await tenant.adapter.remove(target, "om_1")


async def test_a_reaction_shows_that_a_message_is_being_answered(tenant: Tenant) -> None:
    asked = tenant.feishu.say("hello")
    await tenant.adapter.react(build(reply_to=asked).target)
    assert tenant.feishu.reactions == [(asked, "OnIt")]
    await tenant.adapter.react(Target("feishu", "", DIRECT))
    tenant.feishu.recall(asked)
    with pytest.raises(MessageGone):
        await tenant.adapter.react(build(reply_to=asked).target)
    assert len(tenant.feishu.reactions) == 1


@pytest.mark.parametrize(
    ("mime", "kind", "upload"),
    [
        ("image/png", "image", "message"),
        ("image/svg+xml", "file", "stream"),
        ("video/mp4", "media", "mp4"),
        ("audio/ogg; codecs=opus", "audio", "opus"),
        ("audio/mpeg", "file", "stream"),
        ("application/pdf", "file", "pdf"),
        ("text/plain", "file", "stream"),
        ("", "file", "stream"),
    ],
)
async def test_files_are_shown_by_their_type(tenant: Tenant, mime: str, kind: str, upload: str) -> None:
    await tenant.send("", attachment=Attachment(name="a b.bin", mime=mime, body=b"\0\xff"))
    [post] = tenant.feishu.posts
    assert (post.kind, post.file, tenant.feishu.upload_types) == (kind, b"\0\xff", [upload])


async def test_a_picture_that_feishu_does_not_take_is_a_file(tenant: Tenant) -> None:
    tenant.feishu.refusals["/im/v1/images"] = 234011
    await tenant.send("", attachment=Attachment(name="a.png", mime="image/png", body=b"x"))
    assert [post.kind for post in tenant.feishu.posts] == ["file"]


async def test_an_empty_file_is_refused_and_the_largest_is_declared(tenant: Tenant) -> None:
    with pytest.raises(Refused, match="no empty files"):
        await tenant.send("", attachment=Attachment(name="a", mime="text/plain", body=b""))
    limits = tenant.adapter.capabilities.attachments
    assert limits is not None and limits.kinds == frozenset(AttachmentKind)
    assert limits.find_reason("text/plain", 30_000_001)


async def test_a_file_that_could_not_be_uploaded_was_not_sent(tenant: Tenant) -> None:
    tenant.feishu.refusals["/im/v1/files"] = 99991400
    with pytest.raises(Throttled):
        await tenant.send("", attachment=Attachment(name="a", mime="text/plain", body=b"x"))
    assert tenant.feishu.posts == []


async def fetch(tenant: Tenant, **more: Any) -> Attachment:
    tenant.feishu.attach("look", "a.json", b'{"a": 1}', mime="application/json")
    [event] = await tenant.hear()
    return await tenant.adapter.download(event.files[0], **{"limit": 1000, **more})


async def test_a_file_of_json_is_fetched_as_it_is(tenant: Tenant) -> None:
    found = await fetch(tenant)
    assert (found.name, found.mime, found.body) == ("a.json", "application/json", b'{"a": 1}')


async def test_a_file_that_is_too_large_is_not_fetched(tenant: Tenant) -> None:
    with pytest.raises(Invalid, match="larger than 3 bytes"):
        await fetch(tenant, limit=3)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(234003, Invalid), (234037, Invalid), (99991400, Unavailable), (99991663, Unavailable)],
)
async def test_a_file_that_cannot_be_fetched(tenant: Tenant, code: int, kind: type[Exception]) -> None:
    tenant.feishu.refusals["/resources/"] = code
    with pytest.raises(kind):
        await fetch(tenant)


async def test_a_reference_that_names_no_file_is_invalid(tenant: Tenant) -> None:
    with pytest.raises(Invalid):
        await tenant.adapter.download(RemoteFile(reference="x", name="x"), limit=1)


async def test_nothing_is_sent_to_a_platform_that_cannot_be_reached() -> None:
    with FakeFeishu() as feishu:
        tenant = Tenant(feishu, base_url=UNREACHABLE_URL)
        for call in (tenant.send(), tenant.adapter.react(build(reply_to="om_1").target)):
            with pytest.raises(NotSent, match="cannot be reached"):
                await call
