"""Replay: recognises what an agent tells again of turns that are over, so that nothing is stored twice."""

from collections.abc import Sequence

from keryx.agents.acp.rpc import Json, table, text
from keryx.core.ids import TurnId
from keryx.core.messages import Message, Role


class Replay:
    """Old messages are known by their ids; where an agent gives none, by a question of an earlier turn, after which
    the words of its answer are expected."""

    def __init__(self, known: set[str], history: Sequence[Message], turn: TurnId) -> None:
        self._known = frozenset(known)
        self._answers = _answers([m for m in history if m.turn != turn])
        self._asked = ""
        self._expected = ""

    def repeats(self, update: Json) -> bool:
        """Whether an update belongs to the past."""
        if any(
            text(update.get(key)) in self._known for key in ("messageId", "toolCallId") if update.get(key)
        ):
            return True
        chunk = text(table(update.get("content")).get("text"))
        match update.get("sessionUpdate"):
            case "user_message_chunk":
                self._asked += chunk
                # What it was asked began with what Keryx told it besides, such as its place.
                fitting = (a for q, a in self._answers.items() if self._asked.strip().endswith(q))
                self._expected = next(fitting, self._expected)
                return True
            case "agent_message_chunk" if chunk and self._expected:
                self._asked = ""
                if self._expected.startswith(chunk):
                    self._expected = self._expected[len(chunk) :]
                    return True
                self._expected = ""
                return False
            case _:
                return False


def _answers(history: Sequence[Message]) -> dict[str, str]:
    """Each question of the past with the words that followed it."""
    found: dict[str, str] = {}
    asked = ""
    for message in history:
        if message.role is Role.USER:
            asked = message.text.strip()
            found[asked] = ""
        elif message.role is Role.ASSISTANT and asked:
            found[asked] += message.text
    return {question: answer for question, answer in found.items() if question and answer}
