"""A Synapse for the whole session, started when a test first asks for it, and people on it."""

from collections.abc import Iterator

import pytest
from tests import left_out
from tests.gateway.matrix.person import Person
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


@pytest.fixture
def ann(synapse: Synapse) -> Person:
    return synapse.person("ann", display="Ann")


@pytest.fixture
def bob(synapse: Synapse) -> Person:
    return synapse.person("bob", display="Bob")


@pytest.fixture
def bot(synapse: Synapse) -> Person:
    return synapse.person("keryx", display="Keryx")
