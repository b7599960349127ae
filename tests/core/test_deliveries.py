"""How targets are written and read."""

import pytest

from keryx.core.deliveries import Target, format_progress, parse_targets
from keryx.core.texts import NO_CHANGES


@pytest.mark.parametrize("chat", ["!abc:example.org", "100%", "a,b", "%3A", "@x"])
def test_a_target_reads_back_as_it_is_written(chat: str) -> None:
    target = Target("matrix", chat=chat, thread="$t:1")
    assert parse_targets(str(target)) == [target]


def test_progress_is_told_in_the_language_of_the_person() -> None:
    german = NO_CHANGES.speak("de")
    assert format_progress("grep", 0, german) == "arbeitet: grep …"
    assert format_progress("", 3, german) == "arbeitet noch, 3 min"
