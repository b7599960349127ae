import pytest
from tests.agents.conversation import VARIABLE
from tests.fakes.endpoint import KEY


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
