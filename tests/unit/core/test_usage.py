import pytest

from makai.core.usage import Price, Usage


def test_usage_adds_up_and_keeps_known_costs() -> None:
    total = Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=1, cost_usd=0.5) + Usage(output=10)
    assert total == Usage(input=1, output=12, cache_read=3, cache_write=4, reasoning=1, cost_usd=0.5)


def test_the_cost_counts_every_kind_of_token_at_its_own_price() -> None:
    usage = Usage(input=1_000_000, output=1_000_000, cache_read=1_000_000, cache_write=1_000_000)
    price = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
    assert usage.priced(price).cost_usd == pytest.approx(22.05)


def test_cache_tokens_without_a_price_of_their_own_cost_what_input_costs() -> None:
    assert Usage(cache_read=2_000_000).priced(Price(input=1, output=5)).cost_usd == pytest.approx(2.0)


def test_an_unknown_price_gives_no_cost_and_a_free_model_costs_nothing() -> None:
    assert Usage(input=5).priced(None).cost_usd is None
    assert Usage(input=5).priced(Price(input=0, output=0)).cost_usd == 0.0
