"""A person of Matrix: writes, edits, uploads and reads rooms through the client-server API."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

WAIT = 40.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One message as a person sees it: with the last edit in its place."""

    id: str
    sender: str
    text: str
    kind: str
    thread: str
    reply_to: str
    content: dict[str, Any]


class Person:
    def __init__(self, url: str, user: str, token: str) -> None:
        self.user = user
        self.token = token
        self._numbers = itertools.count()
        self._client = httpx.Client(
            base_url=f"{url}/_matrix", headers={"authorization": f"Bearer {token}"}, timeout=20, verify=False
        )

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, **params: str) -> Any:
        answer = self._client.request(method, path, json=body, params=params)
        assert answer.status_code == 200, (method, path, answer.text)
        return answer.json()

    def room(self, *invited: "Person", direct: bool = False, **more: Any) -> str:
        body = {"invite": [p.user for p in invited], "is_direct": direct, **more}
        preset = "trusted_private_chat" if direct else "private_chat"
        return str(self.call("POST", "/client/v3/createRoom", {"preset": preset, **body})["room_id"])

    def invite(self, room: str, person: "Person") -> None:
        self.call("POST", f"{_room(room)}/invite", {"user_id": person.user})

    def join(self, room: str) -> None:
        self.call("POST", f"{_room(room)}/join", {})

    def send(self, room: str, content: dict[str, Any], kind: str = "m.room.message") -> str:
        transaction = f"t{next(self._numbers)}-{time.monotonic_ns()}"
        return str(self.call("PUT", f"{_room(room)}/send/{kind}/{transaction}", content)["event_id"])

    def say(self, room: str, text: str, *, thread: str = "", reply_to: str = "", mention: str = "") -> str:
        content: dict[str, Any] = {"msgtype": "m.text", "body": text}
        if mention:
            content["m.mentions"] = {"user_ids": [mention]}
        if thread:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        elif reply_to:
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply_to}}
        return self.send(room, content)

    def edit(self, room: str, event: str, text: str) -> str:
        new = {"msgtype": "m.text", "body": text}
        relation = {"rel_type": "m.replace", "event_id": event}
        return self.send(
            room, {"msgtype": "m.text", "body": f"* {text}", "m.new_content": new, "m.relates_to": relation}
        )

    def upload(self, body: bytes, *, name: str, mime: str) -> str:
        answer = self._client.post(
            "/media/v3/upload", params={"filename": name}, content=body, headers={"content-type": mime}
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["content_uri"])

    def download(self, mxc: str) -> bytes:
        answer = self._client.get(f"/client/v1/media/download/{mxc.removeprefix('mxc://')}")
        assert answer.status_code == 200, answer.text
        return answer.content

    def members(self, room: str) -> set[str]:
        return set(self.call("GET", f"{_room(room)}/joined_members")["joined"])

    def sync(self) -> Any:
        """Everything at once. The time differs from call to call, because homeservers keep answers for a while."""
        return self.call("GET", "/client/v3/sync", timeout=str(next(self._numbers)))

    def has_read(self, room: str, event: str) -> bool:
        data = self.sync()["rooms"]["join"][room]["account_data"]["events"]
        return event in [e["content"].get("event_id") for e in data if e["type"] == "m.fully_read"]

    def events(self, room: str) -> list[dict[str, Any]]:
        """All events of a room, oldest first."""
        found: list[dict[str, Any]] = []
        start = ""
        while True:
            params: dict[str, Any] = {"dir": "b", "limit": "100", **({"from": start} if start else {})}
            page = self.call("GET", f"{_room(room)}/messages", **params)
            found += page["chunk"]
            start = page.get("end", "")
            if not start:
                return found[::-1]

    def sees(self, room: str) -> list[Seen]:
        """The messages of a room in order, edits in the place of what they replace, deleted ones left out."""
        shown: dict[str, Seen] = {}
        for event in self.events(room):
            content = event["content"]
            if event["type"] != "m.room.message" or not content:
                continue
            relation: dict[str, Any] = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                first = shown.get(relation["event_id"])
                if first and first.sender == event["sender"]:
                    shown[first.id] = _seen(event, content["m.new_content"], first)
            else:
                shown[event["event_id"]] = _seen(event, content, None)
        return list(shown.values())

    def answers(self, room: str, *, by: "Person") -> list[str]:
        return [seen.text for seen in self.sees(room) if seen.sender == by.user]

    def wait_for(self, condition: Callable[[], bool], seconds: float = WAIT) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not come in time"
            time.sleep(0.1)

    def close(self) -> None:
        self._client.close()


def _seen(event: dict[str, Any], content: dict[str, Any], first: Seen | None) -> Seen:
    relation: dict[str, Any] = content.get("m.relates_to", {})
    reply: dict[str, Any] = relation.get("m.in_reply_to", {})
    return Seen(
        id=first.id if first else event["event_id"],
        sender=event["sender"],
        text=content.get("body", ""),
        kind=content.get("msgtype", ""),
        thread=first.thread if first else (relation.get("event_id", "") if "rel_type" in relation else ""),
        reply_to=first.reply_to if first else reply.get("event_id", ""),
        content=content,
    )


def _room(room: str) -> str:
    return f"/client/v3/rooms/{quote(room, safe='')}"
