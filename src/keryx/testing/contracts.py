"""The contract suites for adapters and agents. Needs pytest, which the extra `testing` installs."""

import pytest

# Before they are imported, so that a failed assertion shows its values.
pytest.register_assert_rewrite("keryx.testing.adapter_contract", "keryx.testing.agent_contract")

from keryx.testing.adapter_contract import AdapterContract, AdapterHarness, Trait  # noqa: E402
from keryx.testing.agent_contract import AgentContract, AgentHarness, Behaviour  # noqa: E402

__all__ = ["AdapterContract", "AdapterHarness", "AgentContract", "AgentHarness", "Behaviour", "Trait"]
