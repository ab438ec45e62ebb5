"""The table of models, as a pure function."""

from __future__ import annotations

import click
import pytest

from makai.catalog.models import AuthStatus, ModelDescriptor, ModelLifecycle, ModelSource
from makai.cli.model_list import model_details, model_table, short_count
from makai.cli.provider_access import ProviderAccess
from makai.core.model import ModelCapability

ACCESS = (
    ProviderAccess(provider="acme", name="Acme", ready=False, status="set ACME_API_KEY"),
    ProviderAccess(provider="local", name="Here", ready=True, status="ready"),
    ProviderAccess(provider="open", name="Open", ready=True, status="no key needed", is_own_server=True),
)


def model(provider: str, model_id: str, context: int | None = None, **metadata: str) -> ModelDescriptor:
    return ModelDescriptor(
        model_ref=f"{provider}/api@{model_id}",
        model_id=model_id,
        display_name=model_id.title(),
        provider_id=provider,
        api="api",
        auth_status=AuthStatus.UNKNOWN,
        lifecycle=ModelLifecycle.PREVIEW if "preview" in model_id else ModelLifecycle.STABLE,
        capabilities=(ModelCapability.CHAT, ModelCapability.TOOLS, ModelCapability.REASONING)
        if provider == "acme"
        else (ModelCapability.CHAT,),
        source=ModelSource.STATIC_FALLBACK,
        context_window=context,
        metadata={f"price_{kind}_usd_per_mtok": value for kind, value in metadata.items()},
    )


MODELS = (
    model("local", "small", 4096, input="0", output="0"),
    model("acme", "big", 1_048_576, input="2.5", output="10"),
    model("acme", "preview", None, input="0.125"),
)


def test_models_stand_below_their_provider_and_what_it_takes_to_use_it() -> None:
    assert model_table(MODELS, ACCESS) == [
        "MODEL         CONTEXT  IN $/M  OUT $/M  CAN",
        "",
        "Acme: set ACME_API_KEY",
        "acme/big        1.05M    2.50    10.00  tools thinking",
        "acme/preview        -   0.125        -  (preview) tools thinking",
        "",
        "Here: ready",
        "local/small      4.1k    free     free  talk",
        "",
        "Open: no key needed",
        "open/MODEL takes any model it serves",
    ]


def test_a_narrow_terminal_gets_cut_lines_and_a_pipe_whole_ones() -> None:
    narrow = model_table(MODELS, ACCESS, width=30)

    assert max(map(len, narrow)) == 30
    assert narrow[4] == "acme/preview        -   0.125…"
    assert max(map(len, model_table(MODELS, ACCESS))) > 50


def test_colour_does_not_change_the_words() -> None:
    painted = model_table(MODELS, ACCESS, paint=click.style)

    assert painted != model_table(MODELS, ACCESS)
    assert [click.unstyle(line) for line in painted] == model_table(MODELS, ACCESS)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (None, "-"), (512, "512"), (4096, "4.1k"), (8000, "8k"), (131_072, "131k"), (200_000, "200k"),
        (1_000_000, "1M"), (1_048_576, "1.05M"), (10_000_000, "10M"),
    ],
)  # fmt: skip
def test_token_counts_are_short(tokens: int | None, text: str) -> None:
    assert short_count(tokens) == text


def test_details_begin_with_the_canonical_ref_alone() -> None:
    assert model_details(MODELS[0], ACCESS[1]) == [
        "local/api@small",
        "  name            Small",
        "  use as          local/small",
        "  provider        local (ready)",
        "  api             api",
        "  base url        known when it runs",
        "  lifecycle       stable",
        "  context         4096 tokens",
        "  longest answer  unknown",
        "  price           free in, free out (US dollars per million tokens)",
        "  can             chat",
    ]
