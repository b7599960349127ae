"""The rate limits of Discord as its responses tell them."""

from keryx.surfaces.gateway.discord.route_limits import MAX_INVALID_REQUESTS, Route, RouteDelay, RouteLimits

SEND = Route("POST", "/channels/{}/messages", ("1",))
ELSEWHERE = Route("POST", "/channels/{}/messages", ("2",))
OTHER = Route("PATCH", "/channels/{}/messages/{}", ("1", "9"))


class Limits:
    """Limits with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.limits = RouteLimits(lambda: self.now)

    def record(self, route: Route, status: int = 200, *, retry_after: float = 0, **headers: object) -> None:
        named = {f"x-ratelimit-{name.replace('_', '-')}": str(value) for name, value in headers.items()}
        self.limits.record(route, status, named, retry_after=retry_after)

    def delay(self, route: Route) -> RouteDelay | None:
        return self.limits.find_delay(route)


def test_an_unknown_route_may_be_used_at_once() -> None:
    assert Limits().delay(SEND) is None


def test_an_exhausted_bucket_waits_until_it_is_reset() -> None:
    limits = Limits()
    limits.record(SEND, remaining=0, reset_after=2.5, bucket="a")
    assert limits.delay(SEND) == RouteDelay(2.5, account=False)
    assert limits.delay(ELSEWHERE) is None
    limits.now += 2.5
    assert limits.delay(SEND) is None


def test_requests_under_way_count() -> None:
    limits = Limits()
    limits.record(SEND, remaining=2, reset_after=5, bucket="a")
    assert [limits.delay(SEND) for _ in range(2)] == [None, None]
    assert limits.delay(SEND) == RouteDelay(5, account=False)
    limits.record(SEND, remaining=1, reset_after=5, bucket="a")
    assert limits.delay(SEND) is not None


def test_routes_of_one_bucket_share_it() -> None:
    limits = Limits()
    limits.record(OTHER, remaining=5, reset_after=5, bucket="a")
    limits.record(SEND, remaining=0, reset_after=5, bucket="a")
    assert limits.delay(OTHER) == RouteDelay(5, account=False)


def test_a_limit_of_the_account_holds_for_all_routes() -> None:
    limits = Limits()
    limits.record(SEND, 429, retry_after=3, **{"global": "true"})
    assert limits.delay(ELSEWHERE) == RouteDelay(3, account=True)
    limits.now += 3
    assert limits.delay(ELSEWHERE) is None


def test_a_refused_request_waits_as_long_as_it_is_told() -> None:
    limits = Limits()
    limits.record(SEND, 429, retry_after=64.5, scope="user", remaining=0, reset_after=64.5, bucket="a")
    assert limits.delay(SEND) == RouteDelay(64.5, account=False)
    limits.record(ELSEWHERE, 429, retry_after=7, scope="shared", remaining=9, reset_after=1, bucket="a")
    assert limits.delay(ELSEWHERE) == RouteDelay(7, account=False)


def test_headers_that_make_no_sense_are_ignored() -> None:
    limits = Limits()
    limits.record(SEND, remaining="many", reset_after="soon")
    assert limits.delay(SEND) is None


def test_too_many_invalid_requests_stop_all_until_the_window_has_passed() -> None:
    limits = Limits()
    for status in (401, 403) * (MAX_INVALID_REQUESTS // 2):
        limits.record(SEND, status)
    assert limits.delay(ELSEWHERE) == RouteDelay(600, account=True)
    limits.now += 600
    assert limits.delay(ELSEWHERE) is None


def test_the_resource_of_a_route_is_its_channel_server_or_webhook() -> None:
    assert (SEND.resource, SEND.path) == ("1", "/channels/1/messages")
    assert Route("GET", "/guilds/{}/members/{}", ("5", "7")).resource == "5"
    assert Route("POST", "/webhooks/{}/{}", ("43", "token")).resource == "43/token"
    assert Route("GET", "/gateway/bot").resource == ""
