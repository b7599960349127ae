"""How targets are written and read."""

import pytest

from keryx.core.deliveries import Target, parse_targets


@pytest.mark.parametrize("chat", ["!abc:example.org", "100%", "a,b", "%3A", "@x"])
def test_a_target_reads_back_as_it_is_written(chat: str) -> None:
    target = Target("matrix", chat=chat, thread="$t:1")
    assert parse_targets(str(target)) == [target]
