from typing import Any, Self

class EventActions:
    state_delta: dict[str, Any]

    def __init__(self, *, state_delta: dict[str, Any] = ...) -> None: ...

class Event:
    id: str
    author: str
    timestamp: float
    partial: bool | None
    content: Any
    actions: EventActions

    def __init__(
        self,
        *,
        author: str,
        id: str = ...,
        invocation_id: str = ...,
        timestamp: float = ...,
        partial: bool | None = ...,
        content: Any = ...,
        actions: EventActions = ...,
    ) -> None: ...
    @classmethod
    def model_validate_json(cls, json_data: str) -> Self: ...
    def model_dump_json(self, *, exclude_none: bool = ...) -> str: ...
