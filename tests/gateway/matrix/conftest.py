"""A Synapse for the whole session, started when a test first asks for it."""

from collections.abc import Iterator

import pytest
from tests import left_out
from tests.gateway.matrix.synapse import Synapse, installed


@pytest.fixture(scope="session")
def synapse() -> Iterator[Synapse]:
    if not installed():
        left_out.skip(
            "tests with a Matrix homeserver", why="matrix-synapse is not installed", command=left_out.SYNAPSE
        )
    server = Synapse()
    try:
        yield server
    finally:
        server.remove()
