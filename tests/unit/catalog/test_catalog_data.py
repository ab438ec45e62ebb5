"""The vendor table and the built-in list are consistent with themselves."""

from __future__ import annotations

import os
import subprocess
import sys

from makai.auth.credentials import origin_of
from makai.catalog.model_ref import format_model_ref, parse_model_ref
from makai.catalog.models import ModelLifecycle, ModelRow, builtin
from makai.catalog.resolver import DEFAULT_ORDER
from makai.catalog.vendor_table import builtin_vendors
from makai.core.model import ModelCapability


def ref_of(row: ModelRow) -> str:
    return format_model_ref(row.provider, row.api or builtin_vendors()[row.provider].api, row.id)


def test_every_vendor_the_issue_names_has_a_row() -> None:
    assert set(builtin_vendors()) == {
        *("openai", "anthropic", "google", "google-gemini-cli", "azure", "ollama", "groq", "deepseek", "mistral"),
        *("xai", "openrouter", "together", "fireworks", "cerebras", "vllm", "llama.cpp", "lmstudio", "local"),
        *("openai-codex", "github-copilot", "scripted"),
    }


def test_vendor_names_and_aliases_lead_to_one_vendor_each() -> None:
    names = [name for vendor in builtin_vendors().values() for name in (vendor.id, *vendor.aliases)]
    assert len(names) == len(set(names))
    assert [builtin_vendors().find(name) is not None for name in names] == [True] * len(names)
    for vendor in builtin_vendors().values():
        for api in vendor.apis:
            format_model_ref(vendor.id, api, "any")


def test_a_vendor_speaks_its_own_default_and_only_known_apis() -> None:
    assert builtin_vendors().apis == {
        *("anthropic-messages", "openai-completions", "openai-responses", "azure-openai-responses"),
        *("google-generative-ai", "google-gemini-cli", "ollama", "scripted"),
    }
    assert [vendor.id for vendor in builtin_vendors().values() if vendor.api not in vendor.paths] == []


def test_every_remote_vendor_is_reached_by_https_and_has_a_variable_for_its_key_or_a_login() -> None:
    only_by_login = {"openai-codex", "github-copilot"}
    for vendor in builtin_vendors().values():
        if vendor.needs_key:
            assert bool(vendor.key_variables) != (vendor.id in only_by_login), vendor.id
            assert vendor.root == "" or origin_of(vendor.root).startswith("https://"), vendor.id


def test_only_the_runtimes_own_vendors_are_closed() -> None:
    assert {vendor.id for vendor in builtin_vendors().values() if not vendor.open_ended} == {"local", "scripted"}


def test_no_model_has_two_rows() -> None:
    ids = [(row.provider, model_id) for row in builtin().models for model_id in (row.id, *row.also)]
    assert len(ids) == len(set(ids))


def test_every_row_belongs_to_a_vendor_and_has_a_ref() -> None:
    for row in builtin().models:
        assert row.provider in builtin_vendors()
        assert parse_model_ref(ref_of(row)).model_id == row.id


def test_facts_of_live_rows_are_plausible() -> None:
    for row in builtin().models:
        if row.retired:
            continue
        assert row.capabilities[:2] == (ModelCapability.CHAT, ModelCapability.STREAMING), row.id
        assert len(row.capabilities) == len(set(row.capabilities)), row.id
        assert row.context_window is None or 1_000 <= row.context_window <= 10_000_000, row.id
        if row.max_output_tokens and row.context_window:
            assert row.max_output_tokens <= row.context_window, row.id
        if row.price:
            assert 0 <= row.price.input <= row.price.output <= 1_000, row.id
            assert row.price.cache_read is None or row.price.cache_read <= row.price.input, row.id
        thinks = ModelCapability.REASONING in row.capabilities
        assert thinks or not (row.efforts or row.reasoning_default), row.id


def test_a_retired_row_names_a_live_successor_and_a_live_row_names_none() -> None:
    live = {ref_of(row) for row in builtin().models if not row.retired}
    assert {row.id: row.successor for row in builtin().models if row.retired and row.successor not in live} == {}
    assert [row.id for row in builtin().models if not row.retired and row.successor] == []


def test_aliases_lead_from_no_row_to_a_live_row_in_one_step() -> None:
    by_id = {(row.provider, model_id): row for row in builtin().models for model_id in (row.id, *row.also)}
    for alias, target in builtin().aliases.items():
        source, destination = parse_model_ref(alias), parse_model_ref(target)
        assert (source.provider_id, source.model_id) not in by_id
        assert not by_id[destination.provider_id, destination.model_id].retired
        assert source.api == destination.api


def test_default_models_exist_and_are_not_on_their_way_out() -> None:
    rows = {(row.provider, row.id): row for row in builtin().models}
    for provider in (*DEFAULT_ORDER, "local"):
        row = rows[provider, builtin_vendors()[provider].default_model]
        assert not row.retired
        assert row.lifecycle is ModelLifecycle.STABLE


def test_importing_the_resolver_imports_no_http_library() -> None:
    code = (
        "import sys, makai.catalog.resolver as r; r.Resolver({}).resolve('openai/gpt-6.1-sol');"
        "print(sorted({'aiohttp', 'asyncio', 'ssl', 'difflib', 'makai.providers'} & set(sys.modules)))"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True, env=environ
    )
    assert done.stdout == "[]\n"
