import pytest
from tests.agents.talk import VARIABLE

from keryx.testing.endpoint import KEY


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
