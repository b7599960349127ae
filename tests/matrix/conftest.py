"""A Synapse for the whole session, started when a test first asks for it."""

from collections.abc import Iterator

import pytest
from tests.matrix.synapse import Synapse, installed


@pytest.fixture(scope="session")
def synapse() -> Iterator[Synapse]:
    if not installed():
        pytest.skip("NOTHING IS TESTED AGAINST A REAL HOMESERVER: matrix-synapse is not installed")
    server = Synapse()
    try:
        yield server
    finally:
        server.remove()
