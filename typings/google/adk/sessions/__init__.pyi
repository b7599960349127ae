from typing import Any

from google.adk.events import Event

class Session:
    id: str
    app_name: str
    user_id: str
    state: dict[str, Any]
    events: list[Event]
    last_update_time: float

    def __init__(
        self,
        *,
        id: str,
        app_name: str,
        user_id: str,
        state: dict[str, Any] = ...,
        events: list[Event] = ...,
        last_update_time: float = ...,
    ) -> None: ...
