"""Whether and when a failed request is sent again: status x headers x dialect under a clock of the test."""

from __future__ import annotations

import email.utils

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.streams import ask, failed, kinds, model
from support.upstream import Script, answers, chat_stream, refuses, upstream

from makai.core.errors import ContextOverflow, MakaiError, Overloaded, ProviderError, RateLimited
from makai.core.request import StreamOptions
from makai.core.stream_events import Keepalive, Retry, StreamEvent
from makai.providers.failure import Target, http_failure, stream_failure
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.registry import builtin_api
from makai.providers.retries import MAX_DELAY_S, MIN_DELAY_S, PATIENCE_S, Retries, is_transient

ACME = Target(provider_id="acme")
NOW = 1_700_000_000.0
PATIENT = StreamOptions(retry_for_s=PATIENCE_S)
TRANSIENT = (408, 409, 429, 500, 502, 503, 504, 520, 529)
FINAL = (400, 401, 402, 403, 404, 405, 413, 415, 422, 451, 495, 501, 505)
DIALECTS = {
    "openai": b'{"error":{"message":"Slow down","type":"requests","code":"rate_limit_exceeded"}}',
    "anthropic": b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"}}',
    "google": b'{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing '
    b'details.","status":"RESOURCE_EXHAUSTED","details":[{"quotaId":"GenerateRequestsPerMinutePerProject"}]}}',
    "ollama": b'{"error":"Slow down"}',
    "page": b"<html><title>Busy</title></html>",
}
WAITS: dict[str, tuple[dict[str, str], int | None]] = {
    "none": ({}, None),
    "seconds": ({"Retry-After": "30"}, 30_000),
    "fraction": ({"retry-after": "1.5"}, 1_500),
    "milliseconds": ({"retry-after-ms": "1500", "Retry-After": "2"}, 1_500),
    "date": ({"Retry-After": email.utils.formatdate(NOW + 45, usegmt=True)}, 45_000),
    "past date": ({"Retry-After": email.utils.formatdate(NOW - 45, usegmt=True)}, 0),
    "zero": ({"Retry-After": "0"}, 0),
    "nonsense": ({"Retry-After": "soon"}, None),
}
EXHAUSTED = {
    "openai quota": b'{"error":{"message":"You exceeded your current quota","type":"insufficient_quota",'
    b'"code":"insufficient_quota"}}',
    "openai requests per day": b'{"error":{"message":"Rate limit reached for gpt-x on requests per day (RPD): Limit '
    b'200, Used 200. Please try again in 7m12s.","type":"requests","code":"rate_limit_exceeded"}}',
    "anthropic credit": b'{"type":"error","error":{"type":"rate_limit_error","message":"Your credit balance is too '
    b'low to access the API"}}',
    "google per day": b'{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED",'
    b'"details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},'
    b'{"retryDelay":"23s"}]}}',
    "openrouter free models": b'{"error":{"message":"Rate limit exceeded: free-models-per-day","code":429}}',
    "deepseek balance": b'{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request"}}',
    "moonshot quota": b'{"error":{"message":"Your account is suspended","type":"exceeded_current_quota_error"}}',
}


class Time:
    """A clock that moves only when something sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def failure(status: int | None, wait_ms: int | None = None, vendor_code: str | None = None) -> ProviderError:
    return ProviderError("x", status=status, retry_after_ms=wait_ms, vendor_code=vendor_code)


def waits_of(error: MakaiError, options: StreamOptions, jitter: float = 0.5) -> list[float]:
    """The waits after one failure after another, until it gives up."""
    clock = Time()
    retries = Retries(options, clock, lambda: jitter)
    waits: list[float] = []
    while (retry := retries.next_wait(error)) is not None:
        waits.append(retry.wait_ms / 1000)
        clock.now += waits[-1]
        assert len(waits) < 10_000
    return waits


@pytest.mark.parametrize("headers", WAITS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("status", TRANSIENT)
def test_a_passing_fault_is_tried_again_after_the_wait_that_its_vendor_asks_for(
    status: int, dialect: str, headers: str
) -> None:
    given_headers, asked_ms = WAITS[headers]
    error = http_failure(ACME, status, given_headers, DIALECTS[dialect], NOW)
    assert isinstance(error, ProviderError)
    assert error.retry_after_ms == asked_ms
    retry = Retries(PATIENT, Time(), lambda: 0.5).next_wait(error)
    assert retry is not None
    assert retry.wait_ms == max(asked_ms or 0, 250)
    assert (retry.attempt, retry.max_retries) == (2, None)


@pytest.mark.parametrize("headers", WAITS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("status", FINAL)
def test_a_refusal_that_will_not_change_is_never_tried_again(status: int, dialect: str, headers: str) -> None:
    error = http_failure(ACME, status, WAITS[headers][0], DIALECTS[dialect], NOW)
    assert waits_of(error, PATIENT) == []


@pytest.mark.parametrize("wait", [None, "5", "400", "86400"])
@pytest.mark.parametrize("vendor", EXHAUSTED)
def test_an_exhausted_quota_is_never_tried_again(vendor: str, wait: str | None) -> None:
    headers = {} if wait is None else {"Retry-After": wait}
    error = http_failure(ACME, 429, headers, EXHAUSTED[vendor], NOW)
    assert waits_of(error, PATIENT) == waits_of(error, StreamOptions()) == []
    assert error.hint is not None
    assert error.hint.startswith(("The account has no credit left", "A limit per day is used up"))


@pytest.mark.parametrize("vendor", EXHAUSTED)
def test_an_exhausted_quota_inside_a_stream_is_never_tried_again(vendor: str) -> None:
    assert not is_transient(stream_failure(ACME, {"error": {"code": 429, "message": EXHAUSTED[vendor].decode()}}))


def test_without_patience_there_are_three_quick_attempts() -> None:
    assert waits_of(failure(503), StreamOptions()) == [0.25, 0.5, 1.0]
    assert waits_of(failure(None), StreamOptions(max_retries=2)) == [0.25, 0.5]
    assert waits_of(failure(429, 60_000), StreamOptions(max_retries=1)) == [60.0]
    assert waits_of(failure(429, 61_000), StreamOptions()) == []


def test_a_patience_of_zero_takes_the_first_answer_of_a_vendor() -> None:
    none = StreamOptions(retry_for_s=0)
    assert waits_of(RateLimited("x", status=429), none) == []
    assert waits_of(RateLimited("x", status=429, retry_after_ms=1_000), none) == []
    assert waits_of(Overloaded("x", status=529), none) == []
    assert waits_of(failure(500), none) == []
    assert waits_of(failure(None), none) == [0.25, 0.5, 1.0]


def test_with_patience_the_waits_grow_to_a_minute_and_end_after_ten() -> None:
    doubling = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    waits = waits_of(failure(529), PATIENT)
    assert waits == [*doubling, *[60.0] * 8, 56.25]
    assert sum(waits) == PATIENCE_S


def test_a_number_of_retries_limits_the_patience() -> None:
    options = StreamOptions(retry_for_s=PATIENCE_S, max_retries=2)
    assert waits_of(failure(529), options) == [0.25, 0.5]
    assert waits_of(failure(529), StreamOptions(retry_for_s=PATIENCE_S, max_retries=0)) == []


@given(
    status=st.sampled_from([None, *TRANSIENT]),
    asked_ms=st.none() | st.integers(0, 3_600_000),
    jitter=st.floats(0, 1),
    patience_s=st.floats(1, 3_600),
)
def test_patience_is_bounded_and_no_wait_is_shorter_than_asked(
    status: int | None, asked_ms: int | None, jitter: float, patience_s: float
) -> None:
    waits = waits_of(failure(status, asked_ms), StreamOptions(retry_for_s=patience_s), jitter)
    assert sum(waits[:-1]) <= patience_s + 0.1
    assert sum(waits) <= patience_s + max(MIN_DELAY_S, MAX_DELAY_S * 1.25)
    assert all(wait >= (asked_ms or 0) / 1000 for wait in waits)
    assert len(waits) < 40 + patience_s
    if asked_ms is not None and asked_ms / 1000 > patience_s:
        assert waits == []


def test_waits_are_spread_so_that_many_clients_do_not_come_back_together() -> None:
    assert waits_of(failure(500), StreamOptions(max_retries=1), jitter=0.0) == [0.188]
    assert waits_of(failure(500), StreamOptions(max_retries=1), jitter=1.0) == [0.313]


def test_a_success_gives_the_next_request_its_whole_patience() -> None:
    retries = Retries(StreamOptions(max_retries=1), Time(), lambda: 0.5)
    found = [retries.next_wait(failure(500)), retries.next_wait(failure(500))]
    retries.reset()
    found.append(retries.next_wait(failure(500)))
    first = Retry(reason="x.", wait_ms=250, attempt=2, max_retries=1)
    assert found == [first, None, first]


@pytest.mark.parametrize("error", [ContextOverflow("x", status=400), MakaiError("x")])
def test_what_is_no_fault_of_the_vendor_is_not_tried_again(error: MakaiError) -> None:
    assert waits_of(error, PATIENT) == []


@pytest.mark.parametrize(
    ("wait", "hint"),
    [
        ("30", "Try again in 30 s."),
        ("2820", "Try again in 47 min 00 s, after 23:00 UTC."),
        ("86400", "Try again in 24 h 00 min, after 2023-11-15 22:13 UTC."),
    ],
)
@pytest.mark.parametrize("status", [429, 503, 500])
def test_a_refusal_says_when_to_try_again(status: int, wait: str, hint: str) -> None:
    hint = hint.replace("s.", "s, or use another model.") if status == 503 and wait == "30" else hint
    hint = hint.replace("UTC.", "UTC, or use another model.") if status == 503 else hint
    assert http_failure(ACME, status, {"Retry-After": wait}, b"{}", NOW).hint == hint


async def events_of(*scripts: Script, options: StreamOptions = PATIENT) -> tuple[list[StreamEvent], Time]:
    """What a server that follows the scripts is heard to say, without waiting."""
    clock, client = Time(), HttpClient()
    async with upstream(*scripts) as server:
        api = builtin_api("openai-completions")
        provider = HttpProvider(api, client, clock=clock, sleep=clock.sleep)
        request = ask(model("openai-completions", base_url=server.url), options=options)
        events = [event async for event in provider.stream(request)]
    await client.close()
    return events, clock


async def test_a_request_survives_minutes_of_refusals_and_says_how_long_it_waits() -> None:
    busy = [refuses(429, DIALECTS["openai"], **{"Retry-After": "120"}), refuses(529), refuses(503), refuses(500)]
    events, clock = await events_of(*busy, answers(chat_stream("Hello")))
    assert kinds(events)[-1] == "done"
    retries = [event.retry for event in events if isinstance(event, Keepalive)]
    assert [retry and (retry.attempt, retry.max_retries) for retry in retries] == [(n, None) for n in (2, 3, 4, 5)]
    assert retries[0] == Retry(reason="acme refused the request (HTTP 429): Slow down.", wait_ms=120_000, attempt=2)
    assert sum(retry.wait_ms for retry in retries if retry) == round(clock.now * 1000)


async def test_a_wait_that_is_longer_than_the_patience_ends_the_request_at_once() -> None:
    events, clock = await events_of(refuses(429, DIALECTS["openai"], **{"Retry-After": "2820"}))
    failure = failed(events)
    assert (failure.error_code, failure.retry_after_ms, failure.retryable) == ("rate_limited", 2_820_000, False)
    assert failure.hint is not None
    assert failure.hint.startswith("Try again in 47 min 00 s, after ")
    assert clock.now == 0.0


async def test_a_server_on_this_machine_that_is_off_is_not_waited_for() -> None:
    clock, client = Time(), HttpClient()
    async with upstream() as server:
        url = server.url
    provider = HttpProvider(builtin_api("openai-completions"), client, clock=clock, sleep=clock.sleep)
    request = ask(model("openai-completions", base_url=url), options=PATIENT)
    events = [event async for event in provider.stream(request)]
    await client.close()
    assert [event.retry.attempt for event in events if isinstance(event, Keepalive) and event.retry] == [2, 3, 4]
    assert kinds(events)[-1] == "error"
    assert clock.now < 3.0
