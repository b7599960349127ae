"""The page's rule of what it knows, written a second time: both must agree on every fixture and on random events."""

from collections.abc import Callable
from datetime import datetime
from functools import cmp_to_key
from typing import Any

State = dict[str, Any]
Event = dict[str, Any]

WINDOW = 1200
EMPTY: State = {
    "sessions": [],
    "next": None,
    "filter": {},
    "projects": [],
    "tags": [],
    "sections": {},
    "turns": {},
    "questions": {},
    "troubled": 0,
    "marks": {},
    "open": None,
}


def reduce(state: State, event: Event) -> State:
    rule = _RULES.get(event["type"])
    return rule(state, event) if rule else state


def shown(session: State, filter_: State) -> bool:
    if bool(session.get("deleted_at")) != bool(filter_.get("deleted")):
        return False
    if filter_.get("deleted"):
        return True
    if session.get("archived", False) != filter_.get("archived", False):
        return False
    if filter_.get("pinned") and not session.get("pinned"):
        return False
    if not set(filter_.get("tags", [])) <= set(session.get("tags", [])):
        return False
    if filter_.get("project") and session.get("project") != filter_["project"]:
        return False
    if filter_.get("activity") and session.get("activity", "idle") != filter_["activity"]:
        return False
    if filter_.get("surface"):
        return session["surface"] == filter_["surface"]
    return session["surface"] != "job" or bool(filter_.get("project"))


def _start(state: State, event: Event) -> State:
    start = event["start"]
    page = start["sessions"]
    return state | {
        "sessions": _sorted([s for s in page["sessions"] if shown(s, state["filter"])]),
        "next": page.get("next"),
        "projects": start["projects"],
        "tags": start.get("tags", []),
        "sections": {project: _to_section(page) for project, page in start.get("sections", {}).items()},
        "marks": {id_: _UNMARKED | {"last": 1} for id_ in start.get("unread", [])},
        "turns": {t["id"]: t for t in start["turns"]},
        "questions": {q["id"]: q for q in start["questions"] if q["state"] == "open"},
        "troubled": start["deliveries"],
    }


def _page(state: State, event: Event) -> State:
    filter_ = event.get("filter")
    kept: list[State] = state["sessions"] if filter_ is None else []
    known = {s["id"] for s in kept}
    fresh = [s for s in event["page"]["sessions"] if s["id"] not in known]
    chosen: State = state["filter"] if filter_ is None else filter_
    return state | {
        "filter": state["filter"] if filter_ is None else filter_,
        "sessions": [*kept, *fresh] if chosen.get("deleted") else _sorted([*kept, *fresh]),
        "next": event["page"].get("next"),
    }


def _open(state: State, event: Event) -> State:
    given = event["snapshot"]
    before = state["open"] if state["open"] and state["open"]["id"] == given["session"]["id"] else None
    opened = {
        "id": given["session"]["id"],
        "session": given["session"],
        "messages": given["messages"],
        "earlier": given.get("earlier", False),
        "later": given.get("later", False),
        "stale": False,
        "running": given.get("running"),
        "draft": _drawn(given["draft"]) if given.get("draft") else None,
        "queue": given.get("queue", []),
        "deliveries": given.get("deliveries", []),
        "epochs": given.get("epochs", []),
        "questions": [q for q in given.get("questions", []) if q["state"] == "open"],
        "lanes": given.get("lanes", []),
        "answers": {a["turn"]: a for a in given.get("answers", [])},
        "versions": given.get("versions", {}),
        "pending": _unsettled(before["pending"], given["messages"]) if before else [],
        "replies": before["replies"] if before else [],
    }
    return state | {"open": opened}


def _window(before: State, event: Event) -> State:
    answers = before["answers"] | {a["turn"]: a for a in event.get("answers", [])}
    opened = before | {"answers": answers, "versions": event.get("versions", before["versions"])}
    messages, side = event["messages"], event["side"]
    earlier, later = event.get("earlier", False), event.get("later", False)
    pending = _unsettled(opened["pending"], messages)
    if side == "all":
        return opened | {
            "messages": messages,
            "earlier": earlier,
            "later": later,
            "stale": False,
            "pending": pending,
        }
    shown_now = opened["messages"]
    if side == "earlier":
        every = [m for m in messages if not shown_now or m["seq"] < shown_now[0]["seq"]] + shown_now
        return opened | {
            "messages": every[:WINDOW],
            "earlier": earlier,
            "later": opened["later"] or len(every) > WINDOW,
        }
    every = shown_now + [m for m in messages if m["seq"] > _last(shown_now)]
    return opened | {
        "messages": every[-WINDOW:],
        "earlier": opened["earlier"] or len(every) > WINDOW,
        "later": later,
        "pending": pending,
    }


def _session(state: State, event: Event) -> State:
    session = event["session"]
    known = next((s for s in state["sessions"] if s["id"] == session["id"]), None)
    if known is None and state["open"] and state["open"]["id"] == session["id"]:
        known = state["open"]["session"]
    if known and "read" in known and "read" not in session:
        session = session | {"read": known["read"]}
    placed = state | {"sessions": _placed(state, session), "sections": _filed(state["sections"], session)}
    aside = not shown(session, {})
    if aside or session["id"] in state["marks"]:
        placed |= {"marks": _mark(state, session["id"], aside=aside)}
    return _within(placed, session["id"], lambda o: o | {"session": session})


def _gone(state: State, event: Event) -> State:
    id_ = event["session"]
    closed = state["open"] and state["open"]["id"] == id_
    return state | {
        "sessions": [s for s in state["sessions"] if s["id"] != id_],
        "sections": _filed(state["sections"], {"id": id_}),
        "marks": {k: v for k, v in state["marks"].items() if k != id_},
        "open": None if closed else state["open"],
    }


def _fresh(state: State, message: State) -> State:
    """Where it is not known how far was read, what is said from now on is unread."""

    def seen(session: State) -> State:
        new = (
            session["id"] == message["session"]
            and "read" not in session
            and session.get("last_seq") == message["seq"]
        )
        return session | {"read": message["seq"] - 1} if new else session

    return state | {"sessions": [seen(s) for s in state["sessions"]]}


def _message(opened: State, message: State) -> State:
    told = opened | {
        "pending": _unsettled(opened["pending"], [message]),
        "queue": [
            w | {"message": message} if w["turn"]["input_seq"] == message["seq"] else w
            for w in opened["queue"]
        ],
    }
    draft = opened["draft"]
    if (
        draft
        and message.get("turn") == draft["turn"]
        and message["role"] != "user"
        and message.get("mark") != "late"
    ):
        told["draft"] = draft | {"parts": []}
    messages = opened["messages"]
    if any(m["seq"] == message["seq"] for m in messages):
        told["messages"] = [message if m["seq"] == message["seq"] else m for m in messages]
    elif message["seq"] > _last(messages) and not opened["later"]:
        told["messages"] = [*messages, message]
    return told


def _draft(draft: State | None, event: Event) -> State | None:
    known = draft if draft and draft["turn"] == event["turn"] else _begun(event["turn"])
    if event["n"] <= known["n"]:
        return draft
    parts = _parts(known, event)
    at: int = event["part"]
    part = parts[at]
    text: str = event.get("text", "")
    if event.get("blocks") is not None:
        blocks: list[str] = part["blocks"][: event.get("keep", 0)] + event["blocks"]
        part = part | {"text": part["text"] + text, "blocks": blocks, "tail": ""}
    else:
        part = part | {"text": part["text"] + text, "tail": part["tail"] + text}
    parts[at] = part
    return {"turn": event["turn"], "n": event["n"], "parts": parts}


def _parts(known: State, event: Event) -> list[State]:
    """The parts so far, with as many new ones as the event needs."""
    parts: list[State] = []
    if not event.get("fresh"):
        parts += known["parts"]
    while len(parts) <= event["part"]:
        parts.append(
            {
                "thought": event.get("thought", False),
                "text": "",
                "blocks": [],
                "tail": "",
                "media": event.get("media"),
            }
        )
    return parts


def _begun(turn: str) -> State:
    return {"turn": turn, "n": 0, "parts": []}


def _turn(state: State, event: Event) -> State:
    turn = event["turn"]
    turns = {k: v for k, v in state["turns"].items() if k != turn["id"]}
    if turn["state"] in ("queued", "running"):
        turns = state["turns"] | {turn["id"]: turn}
    answers = {turn["id"]: event["answer"]} if event.get("answer") else {}
    return _within(
        state | {"turns": turns},
        turn["session"],
        lambda o: _moved(o, turn) | {"answers": o["answers"] | answers},
    )


def _moved(opened: State, turn: State) -> State:
    out = dict(opened)
    waiting = next((w for w in opened["queue"] if w["turn"]["id"] == turn["id"]), None)
    queue = [w for w in opened["queue"] if w["turn"]["id"] != turn["id"]]
    if turn["state"] == "queued":
        found = next((m for m in opened["messages"] if m["seq"] == turn["input_seq"]), None)
        message = waiting["message"] if waiting and waiting["message"] else found
        queue = sorted([*queue, {"turn": turn, "message": message}], key=_asked_at)
    out["queue"] = queue
    if turn["state"] == "running":
        out["running"] = turn
    else:
        if opened["running"] and opened["running"]["id"] == turn["id"]:
            out["running"] = None
        if opened["draft"] and opened["draft"]["turn"] == turn["id"]:
            out["draft"] = None
    return out


def _asked_at(waiting: State) -> int:
    return waiting["turn"]["input_seq"]


def _delivery(opened: State, delivery: State) -> State:
    others = [d for d in opened["deliveries"] if d["id"] != delivery["id"]]
    over = delivery["state"] in ("sent", "discarded")
    return opened | {"deliveries": others if over else [*others, delivery]}


def _lane(state: State, event: Event) -> State:
    opened, lane = state["open"], event["lane"]
    if not opened:
        return state
    others = [x for x in opened["lanes"] if x["id"] != lane["id"]]
    if lane.get("session") == opened["id"]:
        others.append(lane)
    return state | {"open": opened | {"lanes": others}}


def _project(state: State, event: Event) -> State:
    project = event["project"]
    others = [p for p in state["projects"] if p["id"] != project["id"]]
    return state | {"projects": sorted([*others, project], key=lambda p: p["name"])}


def _question(state: State, event: Event) -> State:
    question = event["question"]
    waits = question["state"] == "open"
    questions = {k: v for k, v in state["questions"].items() if k != question["id"]}
    if waits:
        questions = state["questions"] | {question["id"]: question}

    def asked(opened: State) -> State:
        others = [q for q in opened["questions"] if q["id"] != question["id"]]
        return opened | {"questions": [*others, question] if waits else others}

    return _within(state | {"questions": questions}, question["session"], asked)


def _read(state: State, event: Event) -> State:
    def seen(session: State) -> State:
        return session | {"read": max(event["seq"], session.get("read") or 0)}

    read = _within(state, event["session"], lambda o: o | {"session": seen(o["session"])})
    known = state["marks"].get(event["session"], _UNMARKED)
    return read | {
        "sessions": [seen(s) if s["id"] == event["session"] else s for s in state["sessions"]],
        "marks": _mark(state, event["session"], read=max(event["seq"], known["read"])),
    }


def _pending(change: Callable[[State, Event], State]) -> Callable[[State, Event], State]:
    def changed(state: State, event: Event) -> State:
        def one(opened: State) -> State:
            return opened | {
                "pending": [
                    change(p, event) if p["client"] == event["client"] else p for p in opened["pending"]
                ]
            }

        return _within(state, event["session"], one)

    return changed


def _sending(state: State, event: Event) -> State:
    pending = event["pending"]

    def one(opened: State) -> State:
        others = [p for p in opened["pending"] if p["client"] != pending["client"]]
        return opened | {"pending": [*others, pending]}

    return _within(state, event["session"], one)


def _dropped(state: State, event: Event) -> State:
    return _within(
        state,
        event["session"],
        lambda o: o | {"pending": [p for p in o["pending"] if p["client"] != event["client"]]},
    )


def _replied(state: State, event: Event) -> State:
    reply = event["reply"]

    def one(opened: State) -> State:
        others = [r for r in opened["replies"] if r["client"] != reply["client"]]
        return opened | {"replies": [*others, reply][-5:]}

    return _within(state, event["session"], one)


def _within(state: State, session: str | None, change: Callable[[State], State]) -> State:
    opened = state["open"]
    return state | {"open": change(opened)} if opened and opened["id"] == session else state


def _last(messages: list[State]) -> int:
    return messages[-1]["seq"] if messages else 0


def _drawn(draft: State) -> State:
    parts = [
        {
            "thought": p.get("thought", False),
            "text": p.get("text", ""),
            "blocks": p.get("blocks", []),
            "tail": "",
            "media": p.get("media"),
        }
        for p in draft.get("parts", [])
    ]
    return {"turn": draft["turn"], "n": draft.get("n", 0), "parts": parts}


def _unsettled(pending: list[State], messages: list[State]) -> list[State]:
    arrived = {m["client"] for m in messages if m.get("client")}
    return [p for p in pending if p["client"] not in arrived]


def _before(a: State, b: State) -> int:
    pinned = int(b.get("pinned", False)) - int(a.get("pinned", False))
    moment = datetime.fromisoformat(b["active_at"]) - datetime.fromisoformat(a["active_at"])
    return pinned or int(moment.total_seconds() * 1000) or (b["id"] > a["id"]) - (b["id"] < a["id"])


def _sorted(sessions: list[State]) -> list[State]:
    return sorted(sessions, key=cmp_to_key(_before))


def _placed(state: State, session: State) -> list[State]:
    others = [s for s in state["sessions"] if s["id"] != session["id"]]
    filter_ = state["filter"]
    if filter_.get("deleted") or filter_.get("fixed"):
        return [
            session if s["id"] == session["id"] else s
            for s in state["sessions"]
            if s["id"] != session["id"] or shown(session, filter_)
        ]
    if not shown(session, filter_):
        return others
    placed = _sorted([*others, session])
    if placed[-1] is session and others and state["next"]:
        return others
    return placed


def _filed(sections: State, session: State) -> State:
    def file(project: str, section: State) -> State:
        others = [s for s in section["sessions"] if s["id"] != session["id"]]
        here = (
            session.get("project") == project
            and not session.get("archived")
            and not session.get("deleted_at")
        )
        placed = _sorted([*others, session]) if here else others
        below = section["more"] and others and placed[-1] is session
        return section | {"sessions": others if below else placed}

    return {project: file(project, section) for project, section in sections.items()}


def _section(state: State, event: Event) -> State:
    page = event["page"]
    return state | {"sections": state["sections"] | {event["project"]: _to_section(page)}}


def _to_section(page: State) -> State:
    return {"sessions": _sorted(page["sessions"]), "more": bool(page.get("next"))}


_UNMARKED: State = {"last": 0, "read": 0, "aside": False}


def _mark(state: State, session: str, **change: int | bool) -> State:
    return state["marks"] | {session: state["marks"].get(session, _UNMARKED) | change}


def _told(state: State, event: Event) -> State:
    message = event["message"]
    known = state["marks"].get(message["session"], _UNMARKED)
    marks = _mark(state, message["session"], last=max(known["last"], message["seq"]))
    return _within(
        _fresh(state, message) | {"marks": marks}, message["session"], lambda o: _message(o, message)
    )


def _tag(state: State, event: Event) -> State:
    others = [tag for tag in state["tags"] if tag["id"] != event["tag"]["id"]]
    return state | {"tags": sorted([*others, event["tag"]], key=lambda tag: tag["name"])}


_RULES: dict[str, Callable[[State, Event], State]] = {
    "start": _start,
    "page": _page,
    "open": _open,
    "close": lambda state, _: state | {"open": None},
    "window": lambda state, event: _within(state, event["session"], lambda o: _window(o, event)),
    "troubled": lambda state, event: state | {"troubled": event["count"]},
    "sending": _sending,
    "sent": _pending(lambda p, _: p | {"sent": True}),
    "unsent": _pending(lambda p, event: p | {"error": event["error"]}),
    "dropped": _dropped,
    "replied": _replied,
    "session": _session,
    "gone": _gone,
    "revised": lambda state, event: _within(state, event["session"], lambda o: o | {"stale": True}),
    "message": _told,
    "draft": lambda state, event: _within(
        state, event["session"], lambda o: o | {"draft": _draft(o["draft"], event)}
    ),
    "turn": _turn,
    "delivery": lambda state, event: _within(
        state, event["delivery"].get("session"), lambda o: _delivery(o, event["delivery"])
    ),
    "lane": _lane,
    "project": _project,
    "project_gone": lambda state, event: (
        state | {"projects": [p for p in state["projects"] if p["id"] != event["project"]]}
    ),
    "section": _section,
    "tag": _tag,
    "tag_gone": lambda state, event: state | {"tags": [t for t in state["tags"] if t["id"] != event["tag"]]},
    "question": _question,
    "read": _read,
}
