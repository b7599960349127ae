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
