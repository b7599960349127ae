"""A Synapse for the whole run, started when a test first asks for it, and people on it."""

from collections.abc import Iterator

import pytest
from tests import left_out
from tests.gateway.matrix.person import Person
from tests.gateway.matrix.synapse import Synapse, installed
from tests.shared_server import get_run_folder, share


@pytest.fixture(scope="session")
def synapse(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Synapse]:
    if not installed():
        left_out.skip(
            "tests with a Matrix homeserver", why="matrix-synapse is not installed", command=left_out.SYNAPSE
        )
    folder = get_run_folder(tmp_path_factory, worker_id) / "synapse"
    server = Synapse(folder)
    with share(folder, start=server.start, stop=server.stop):
        yield server
        server.close()


@pytest.fixture
def ann(synapse: Synapse) -> Person:
    return synapse.person("ann", display="Ann")


@pytest.fixture
def bob(synapse: Synapse) -> Person:
    return synapse.person("bob", display="Bob")


@pytest.fixture
def bot(synapse: Synapse) -> Person:
    return synapse.person("keryx", display="Keryx")
