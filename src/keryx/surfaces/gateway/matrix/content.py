"""Content: what Keryx sends into a room, as events of Matrix. Pure."""

from collections.abc import Mapping
from typing import Any

from keryx.core.deliveries import AGAIN, Target
from keryx.core.ports import Attachment
from keryx.surfaces.gateway.matrix.parse import REPLACE, THREAD
from keryx.surfaces.gateway.render.matrix import Rendered

HTML = "org.matrix.custom.html"
_LONGEST_FALLBACK = 1000
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


def text(part: Rendered, *, again: bool = False) -> dict[str, Any]:
    """A message that mentions nobody, whatever its words look like."""
    return {
        "msgtype": "m.text",
        "body": (AGAIN if again else "") + part.body,
        "format": HTML,
        "formatted_body": _marked(part.formatted_body) if again else part.formatted_body,
        "m.mentions": {},
    }


def notice(words: str) -> dict[str, Any]:
    """Something that Keryx says by itself. Other bots leave notices alone."""
    return {"msgtype": "m.notice", "body": words, "m.mentions": {}}


def file(attachment: Attachment, mxc: str, *, again: bool = False) -> dict[str, Any]:
    """A file that has been uploaded to this address."""
    return {
        "msgtype": _KINDS.get(attachment.mime.partition("/")[0], "m.file"),
        "body": (AGAIN if again else "") + attachment.name,
        "filename": attachment.name,
        "url": mxc,
        "info": {"mimetype": attachment.mime, "size": len(attachment.body)},
        "m.mentions": {},
    }


def placed(content: Mapping[str, Any], target: Target, *, first: bool) -> dict[str, Any]:
    """The message in its thread; outside of threads, the first part is a reply to the message that asked."""
    if target.thread:
        relation = {
            "rel_type": THREAD,
            "event_id": target.thread,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": target.reply_to or target.thread},
        }
    elif target.reply_to and first:
        relation = {"m.in_reply_to": {"event_id": target.reply_to}}
    else:
        return dict(content)
    return {**content, "m.relates_to": relation}


def edit(content: Mapping[str, Any], event: str) -> dict[str, Any]:
    """The message in the place of an earlier one. Clients that know no edits show its beginning."""
    return {
        "msgtype": content["msgtype"],
        "body": f"* {content['body'][:_LONGEST_FALLBACK]}",
        "m.mentions": {},
        "m.new_content": dict(content),
        "m.relates_to": {"rel_type": REPLACE, "event_id": event},
    }


def _marked(html: str) -> str:
    return f"<p>{AGAIN}{html[3:]}" if html.startswith("<p>") else f"<p>{AGAIN}</p>{html}"
