"""A small ACP agent for tests, in raw JSON-RPC: it does what the prompt says, and misbehaves as it is told to.

python scripted_agent.py STORE [can=load,resume,...] [bad=noise,...]
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

STORE = Path(sys.argv[1])
OPTIONS = {name: value for name, _, value in (given.partition("=") for given in sys.argv[2:])}
CAN = OPTIONS.get("can", "load,resume").split(",")
BAD = OPTIONS.get("bad", "").split(",")
MODELS = [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]


class Player:
    def __init__(self) -> None:
        self.sessions: dict[str, list[list[str]]] = {}
        self.models: dict[str, str] = {}
        self.modes: dict[str, str] = {}
        self.running: dict[str, asyncio.Task[None]] = {}
        self.waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.last = 0

    def send(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def update(self, session: str, what: str, **body: Any) -> None:
        update = {"sessionUpdate": what, **body}
        self.send({"method": "session/update", "params": {"sessionId": session, "update": update}})

    def say(self, session: str, text: str, **more: Any) -> None:
        if self.sessions[session]:
            self.sessions[session][-1][1] += text
        self.update(session, "agent_message_chunk", content={"type": "text", "text": text}, **more)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.last += 1
        number = 1000 + self.last
        waiting = self.waiting[number] = asyncio.get_running_loop().create_future()
        self.send({"id": number, "method": method, "params": params})
        return await waiting

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        if "noise" in BAD:
            print("Welcome!\n42\n[1]\n{}\nnull", flush=True)
        if "babble" in BAD:
            for n in range(2000):
                print(f"babble {n}", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            message = json.loads(line)
            if "method" in message:
                await self.take(message)
            elif waiting := self.waiting.pop(message["id"], None):
                waiting.set_result(message.get("result") or {"error": message.get("error")})
        if "deaf" in BAD:
            await asyncio.Event().wait()

    async def take(self, message: dict[str, Any]) -> None:
        method: str = message["method"]
        params: dict[str, Any] = message.get("params") or {}
        if "mute" in BAD and method != "initialize":
            return
        if method == "session/prompt":
            self.running[params["sessionId"]] = asyncio.create_task(self.prompt(message["id"], params))
        elif method == "session/cancel":
            if "deaf" not in BAD and (task := self.running.get(params["sessionId"])):
                task.cancel()
        else:
            result = self.answer(method, params)
            key = "error" if "code" in result else "result"
            nothing = "null" in BAD and method in ("session/load", "session/resume")
            self.send({"id": message["id"], key: None if nothing else result})
            if "late" in BAD and method == "session/load":
                await asyncio.sleep(0.3)
                self.replay(params["sessionId"])

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                return self.about()
            case "session/new":
                if "login" in BAD:
                    return {"code": -32000, "message": "Authentication required"}
                name = f"own-{len(list(STORE.glob('own-*'))) + 1}"
                self.sessions[name] = []
                self.keep(name)
                self.mark_open(name)
                return {"sessionId": name, **self.settings(name)}
            case "session/resume" if "unknown" in BAD:
                return {"code": -32601, "message": "Method not found"}
            case "session/load" | "session/resume":
                name = params["sessionId"]
                if not (STORE / name).exists():
                    return {"code": -32002, "message": "Resource not found"}
                self.sessions[name] = json.loads((STORE / name).read_text())
                self.mark_open(name)
                if method == "session/load" and "late" not in BAD:
                    self.replay(name)
                if "twice" in BAD or (method == "session/resume" and "replays" in BAD):
                    self.replay(name)
                return self.settings(name)
            case "session/set_config_option":
                self.models[params["sessionId"]] = params["value"]
                return self.settings(params["sessionId"])
            case "session/set_model" if "old" in CAN:
                self.models[params["sessionId"]] = params["modelId"]
                return {}
            case "session/set_mode" if "old" in CAN:
                self.modes[params["sessionId"]] = params["modeId"]
                return {}
            case "session/close" if "close" in CAN and "unclosed" not in BAD:
                (STORE / f"open-{params['sessionId']}").unlink()
                return {}
            case "authenticate":
                return {}
            case _:
                return {"code": -32601, "message": f"no {method}"}

    def about(self) -> dict[str, Any]:
        session: dict[str, Any] = {name: {} for name in CAN if name != "load"}
        logins = [
            {"id": "key", "name": "API key", "description": "set PLAYER_KEY"},
            {"id": "browser", "name": "Browser", "type": "terminal", "args": ["login"]},
        ]
        return {
            "protocolVersion": 7 if "future" in BAD else 1,
            "agentInfo": {"name": "player", "title": "Player", "version": "1.2"},
            "agentCapabilities": {
                "loadSession": "load" in CAN,
                "sessionCapabilities": session,
                "promptCapabilities": {"image": True},
            },
            "authMethods": logins if "login" in BAD else [],
        }

    def settings(self, name: str) -> dict[str, Any]:
        if "old" in CAN:
            models = [{"modelId": m["value"], "name": m["name"]} for m in MODELS]
            modes = [{"id": mode, "name": mode} for mode in ("code", "plan")]
            return {
                "models": {"currentModelId": self.models.get(name, "small"), "availableModels": models},
                "modes": {"currentModeId": self.modes.get(name, "code"), "availableModes": modes},
            }
        option = {"id": "model", "name": "Model", "category": "model", "type": "select", "options": MODELS}
        return {"configOptions": [{**option, "currentValue": self.models.get(name, "small")}]}

    def keep(self, name: str) -> None:
        STORE.mkdir(exist_ok=True)
        (STORE / name).write_text(json.dumps(self.sessions[name]))

    def mark_open(self, name: str) -> None:
        """As Codex does: no other process may open the session until it is closed."""
        (STORE / f"open-{name}").touch()

    def replay(self, name: str) -> None:
        for n, (asked, said) in enumerate(self.sessions[name]):
            if not said:
                continue
            ids = {} if "nameless" in BAD else {"messageId": f"old-{n}"}
            self.update(name, "user_message_chunk", content={"type": "text", "text": asked})
            self.update(name, "agent_message_chunk", content={"type": "text", "text": said}, **ids)
            self.update(name, "tool_call", toolCallId=f"old-{n}", title="Old", status="completed")

    async def prompt(self, id_: int, params: dict[str, Any]) -> None:
        session = params["sessionId"]
        text = "\n".join(b["text"] for b in params["prompt"] if b["type"] == "text")
        self.sessions[session].append([text, ""])
        self.keep(session)
        try:
            result = await self.play(session, text)
        except asyncio.CancelledError:
            result = {"stopReason": "cancelled", "usage": {"inputTokens": 20, "outputTokens": 1}}
        self.keep(session)
        if "code" in result:
            self.send({"id": id_, "error": result})
        else:
            self.send({"id": id_, "result": result})

    async def play(self, session: str, text: str) -> dict[str, Any]:
        word, _, rest = text.splitlines()[-1].partition(" ")
        end: dict[str, Any] = {"stopReason": "end_turn"}
        match word:
            case "hello":
                self.say(session, "Hello.")
                end["usage"] = {"totalTokens": 5, "inputTokens": 2, "outputTokens": 3}
            case "think":
                self.update(session, "agent_thought_chunk", content={"type": "text", "text": "Hm."})
                self.say(session, "Hello.")
            case "stream":
                for piece in ("one ", "two ", "three"):
                    self.say(session, piece)
                    await asyncio.sleep(0.01)
            case "messages":
                self.say(session, "First.", messageId="m1")
                self.say(session, "Second.", messageId="m2")
            case "tool":
                self.tool(session, "t1", "Read notes", rawInput={"path": "notes"})
                self.done(session, "t1", "found")
                self.say(session, "Found.")
                self.update(
                    session, "usage_update", used=10, size=100, cost={"amount": 0.01, "currency": "USD"}
                )
            case "spend":
                # As claude-agent-acp does: tokens of the turn in the response, cost of the session so far in updates.
                turn = 0.01 * len(self.sessions[session]) if rest != "anew" else 0.004
                for used in (10, 20):
                    self.update(
                        session, "usage_update", used=used, size=100, cost={"amount": turn, "currency": "USD"}
                    )
                self.update(session, "usage_update", used=30, size=100)
                self.say(session, "Spent.")
                end["usage"] = {"totalTokens": 12, "inputTokens": 2, "outputTokens": 3, "cachedReadTokens": 7}
            case "opencode":
                # The call is pending without input, runs with it, is asked about without it, and ends with another title.
                call = {"toolCallId": "t1", "title": "bash", "kind": "execute"}
                self.update(session, "tool_call", **call, status="pending", locations=[], rawInput={})
                ran = {"command": rest, "description": "List"}
                if "slow" not in BAD:
                    self.update(session, "tool_call_update", **call, status="in_progress", rawInput=ran)
                asked: dict[str, Any] = {**call, "status": "pending", "rawInput": {}, "locations": []}
                own = {"sessionId": session, "toolCall": asked, "options": OPTIONS_}
                await self.ask("session/request_permission", own)
                content = [{"type": "content", "content": {"type": "text", "text": "a b"}}]
                end_ = {**call, "title": "List", "status": "completed", "content": content, "rawInput": ran}
                self.update(session, "tool_call_update", **end_)
                self.say(session, "Listed.")
            case "tools":
                for n in ("a", "b", "c"):
                    self.tool(session, n, f"Step {n}")
                for n in ("c", "a", "b"):
                    self.done(session, n, n)
                self.say(session, "Done.")
            case "ask":
                await self.permit(session, rest or "rm x")
            case "plan":
                steps = [{"content": "look", "priority": "high", "status": "completed"}, {"content": "leap"}]
                self.update(session, "plan", entries=steps)
                self.update(session, "plan", entries=steps)
                self.say(session, "Planned.")
            case "fail":
                return {"code": -32603, "message": rest or "No credit\nleft."}
            case "limited":
                reached = STORE / "reached"
                if not reached.exists():
                    reached.touch()
                    return {"code": -32603, "message": f"You've hit your usage limit. Try again in {rest}."}
                self.say(session, "Back again.")
            case "say":
                self.say(session, rest)
            case "silence":
                await asyncio.Event().wait()
            case "empty":
                pass
            case "refuse":
                return {"stopReason": "refusal"}
            case "history":
                self.say(session, " | ".join(asked for asked, _ in self.sessions[session]))
            case "model":
                self.say(session, self.models.get(session, "small"))
            case "mode":
                self.say(session, self.modes.get(session, "code"))
            case "session":
                self.say(session, f"{session} {os.getpid()}")
            case "env":
                self.say(session, os.environ.get(rest, "(unset)"))
            case "call":
                method, _, given = rest.partition(" ")
                answer = await self.ask(method, {"sessionId": session, **json.loads(given)})
                self.say(session, json.dumps(answer))
            case "terminal":
                made = await self.ask("terminal/create", {"sessionId": session, "command": rest})
                own = {"sessionId": session, "terminalId": made["terminalId"]}
                ended = await self.ask("terminal/wait_for_exit", own)
                output = await self.ask("terminal/output", own)
                self.say(session, f"{output['output'].strip()} {ended['exitCode']}")
            case "leave":
                made = await self.ask("terminal/create", {"sessionId": session, "command": rest})
                self.say(session, "Left.")
            case "unknown":
                self.update(session, "dance_update", steps=[1])
                self.update(session, "tool_call", toolCallId="u", title=None, kind="sing", status="humming")
                self.say(session, "Still here.")
                return {"stopReason": "bored"}
            case "storm":
                answers = await asyncio.gather(
                    *(self.ask(f"_odd/{n}", {"sessionId": session}) for n in range(500))
                )
                self.say(session, str(sum(1 for a in answers if a["error"]["code"] == -32601)))
            case "permits":
                own = {
                    "sessionId": session,
                    "toolCall": {"toolCallId": "p", "title": "P"},
                    "options": OPTIONS_,
                }
                asks = [self.ask("session/request_permission", own) for _ in range(100)]
                answers = await asyncio.gather(*asks)
                self.say(session, str(sum(1 for a in answers if "error" in a)))
            case "huge":
                self.say(session, "x" * 33_000_000)
                self.say(session, "After.")
            case "exit":
                self.say(session, "Going. ")
                print("out of cheese", file=sys.stderr, flush=True)
                await asyncio.sleep(0.05)
                os.kill(os.getpid(), signal.SIGKILL)
            case "replay":
                self.replay(session)
                self.say(session, "New.")
            case _:
                self.say(session, f"You said: {text.splitlines()[-1]}")
        return end

    def tool(self, session: str, id_: str, title: str, **more: Any) -> None:
        self.update(session, "tool_call", toolCallId=id_, title=title, kind="read", status="pending", **more)

    def done(self, session: str, id_: str, text: str, status: str = "completed") -> None:
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        self.update(session, "tool_call_update", toolCallId=id_, status=status, content=content)

    async def permit(self, session: str, command: str) -> None:
        call = {"toolCallId": "t1", "title": "Run a command", "rawInput": {"command": command}}
        self.update(session, "tool_call", **call, kind="execute", status="pending")
        answer = await self.ask(
            "session/request_permission", {"sessionId": session, "toolCall": call, "options": OPTIONS_}
        )
        outcome = answer["outcome"]
        allowed = outcome.get("optionId") in ("allow", "always")
        self.done(session, "t1", "ran" if allowed else "not run", "completed" if allowed else "failed")
        self.say(session, f"It was {outcome.get('optionId') or outcome['outcome']}.")


OPTIONS_ = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "deny", "name": "Deny", "kind": "reject_once"},
]

if __name__ == "__main__":
    if "deaf" in BAD:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asyncio.run(Player().serve())
