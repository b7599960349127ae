"""Models that are known by name, and what counts for one that is not."""

import pytest

from keryx.agents.llm import Model
from keryx.agents.llm.known_models import DEFAULT_CONTEXT
from keryx.core.compaction import CompactionPolicy


def a_model(id_: str, **fields: bool | int) -> Model:
    return Model(name="m", base_url="http://127.0.0.1:1/v1", id=id_, **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("id_", "context", "reads"),
    [
        ("gpt-4o-mini", 128_000, "images files"),
        ("openai/gpt-5-mini", 400_000, "images files"),
        ("gpt-4o-audio-preview", 128_000, "audio"),
        ("anthropic/Claude-Sonnet-4.5", 200_000, "images"),
        ("google/gemini-2.5-flash", 1_000_000, "images audio"),
        ("llama3.2-vision:11b", 128_000, "images"),
        ("llama3.1:8b", 128_000, ""),
        ("qwen2.5vl:7b", 32_000, "images"),
        ("gpt-4", 8_000, ""),
        ("somebody/mystery-7b", DEFAULT_CONTEXT, ""),
    ],
)
def test_a_model_is_known_by_the_beginning_of_its_name(id_: str, context: int, reads: str) -> None:
    model = a_model(id_)
    assert model.context == context
    assert [
        n for n, can in (("images", model.images), ("files", model.files), ("audio", model.audio)) if can
    ] == (reads.split())


def test_what_the_settings_say_counts_before_what_is_known() -> None:
    model = a_model("gpt-4o", images=False, audio=True, context=9_000)
    assert (model.images, model.files, model.audio, model.context) == (False, True, True, 9_000)


def test_a_long_conversation_is_compacted_although_nothing_is_known_of_the_model() -> None:
    policy = CompactionPolicy()
    assert a_model("mystery").context == 32_000
    assert policy.is_due(DEFAULT_CONTEXT, a_model("mystery").context)
    assert not policy.is_due(DEFAULT_CONTEXT // 2, a_model("mystery").context)
