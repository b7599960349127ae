from keryx.core.cache import LruCache


def test_the_least_recently_used_value_is_dropped() -> None:
    cache = LruCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    assert len(cache) == 2


def test_a_value_that_is_put_again_is_replaced_and_counts_as_used() -> None:
    cache = LruCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.put("a", 3)
    cache.put("c", 4)
    assert "b" not in cache
    assert cache.get("a") == 3
    cache.remove("a")
    cache.remove("nothing")
    assert "a" not in cache


def test_values_can_be_limited_by_their_sizes() -> None:
    cache = LruCache[str, str](10, measure=len)
    cache.put("a", "1234")
    cache.put("b", "12345")
    cache.put("a", "12")
    assert (cache.get("a"), cache.get("b")) == ("12", "12345")
    cache.put("c", "1234")
    assert "a" not in cache
    assert cache.get("b") == "12345"
    cache.remove("b")
    cache.put("d", "123456")
    assert (cache.get("c"), cache.get("d")) == ("1234", "123456")


def test_a_value_that_is_larger_than_the_cache_is_not_kept() -> None:
    cache = LruCache[str, str](10, measure=len)
    cache.put("a", "x" * 11)
    assert len(cache) == 0
    cache.put("b", "x" * 10)
    assert "b" in cache


def test_all_values_can_be_read_in_the_order_of_their_use() -> None:
    cache = LruCache[str, int](3)
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        cache.put(name, value)
    assert cache["a"] == 1
    assert dict(cache) == {"b": 2, "c": 3, "a": 1}
    cache.clear()
    assert not cache
    cache.put("d", 4)
    assert list(cache.values()) == [4]
