"""Counters and histograms: what they count, that labels cannot grow them, and that one step costs next to nothing."""

import time
from collections.abc import Callable

import pytest

from keryx import metrics
from keryx.metrics import MAX_SERIES, OTHER, Counter, Histogram, Metric


@pytest.fixture
def registry() -> list[Metric]:
    return metrics.REGISTRY


@pytest.fixture(autouse=True)
def _registry_kept(registry: list[Metric]) -> object:
    kept = registry[:]
    yield
    registry[:] = kept


def test_a_counter_has_a_line_for_each_label() -> None:
    counter = Counter("fruit_total", "Fruit.", "kind", "state")
    counter.add("apple", "ripe")
    counter.add("apple", "ripe", by=2.5)
    counter.add('p"e\\ar\n', "green")
    assert list(counter.format_values()) == [
        'keryx_fruit_total{kind="apple",state="ripe"} 3.5',
        'keryx_fruit_total{kind="p\\"e\\\\ar\\n",state="green"} 1',
    ]


def test_a_counter_without_labels_begins_at_zero() -> None:
    assert list(Counter("plain_total", "Plain.").format_values()) == ["keryx_plain_total 0"]


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram("wait_seconds", "Waits.", "who", buckets=(0.1, 1))
    for seconds in (0.05, 0.1, 0.5, 7, -3):
        histogram.observe(seconds, "a")
    assert list(histogram.format_values()) == [
        'keryx_wait_seconds_bucket{who="a",le="0.1"} 3',
        'keryx_wait_seconds_bucket{who="a",le="1"} 4',
        'keryx_wait_seconds_bucket{who="a",le="+Inf"} 5',
        'keryx_wait_seconds_sum{who="a"} 7.65',
        'keryx_wait_seconds_count{who="a"} 5',
    ]
    assert histogram.count("a") == 5


def test_a_stranger_cannot_make_a_metric_grow() -> None:
    counter = Counter("names_total", "Names.", "name")
    histogram = Histogram("names_seconds", "Names.", "name", buckets=(1,))
    for number in range(3 * MAX_SERIES):
        counter.add(f"name {number}")
        histogram.observe(1, f"name {number}")
    counter.add("x" * 10_000)
    assert len(list(counter.format_values())) == MAX_SERIES + 1
    assert counter.get(OTHER) == 2 * MAX_SERIES + 1
    assert len(list(histogram.format_values())) == (MAX_SERIES + 1) * 4


def test_a_long_label_is_cut_and_counted_as_one() -> None:
    counter = Counter("long_total", "Long.", "name")
    counter.add("x" * 10_000)
    counter.add("x" * 20_000)
    assert counter.get("x" * 80) == 2


def measure(step: Callable[[], None], rounds: int = 20_000) -> float:
    began = time.thread_time()
    for _ in range(rounds):
        step()
    return (time.thread_time() - began) / rounds


def test_one_step_takes_microseconds_of_cpu() -> None:
    counter = Counter("steps_total", "Steps.", "a", "b")
    histogram = Histogram("steps_seconds", "Steps.", "a", buckets=(0.1, 1, 10, 100))
    assert measure(lambda: counter.add("one", "two")) < 50e-6
    assert measure(lambda: histogram.observe(2.5, "one")) < 50e-6


def test_names_are_unique_and_counters_say_so(registry: list[Metric]) -> None:
    names = [name for metric in registry for name in metric.series]
    assert len(names) == len(set(names))
    for metric in registry:
        assert metric.name.startswith("keryx_") and metric.about.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind is metrics.MetricKind.COUNTER), metric.name
