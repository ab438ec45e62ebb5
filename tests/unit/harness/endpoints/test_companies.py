"""The table of companies keeps its own rules."""

from __future__ import annotations

import re

import pytest

from makai.catalog.models import builtin
from makai.harness import HostDesc, encode, endpoint_manifests
from makai.harness.endpoints.companies import KEY_GROUPS

HOSTS = [(company, desc) for company, manifest in endpoint_manifests().items() for desc in manifest.hosts]
EACH_HOST = pytest.mark.parametrize(("company", "desc"), HOSTS, ids=lambda value: getattr(value, "host", value))


def test_the_companies_are_these_in_order() -> None:
    assert list(endpoint_manifests()) == [
        *("anthropic", "azure", "bedrock", "google", "local", "openai", "openrouter", "stub", "vertex")
    ]


@EACH_HOST
def test_a_host_wants_a_key_or_brings_its_own_login_and_never_both(company: str, desc: HostDesc) -> None:
    assert desc.needs_api_key != desc.brings_own_auth
    assert bool(desc.env_keys) == desc.needs_api_key
    assert desc.auth_modes
    assert "shared" not in desc.auth_modes


@pytest.mark.req("DM-ENDP-008")
@EACH_HOST
def test_variables_are_names_and_never_values(company: str, desc: HostDesc) -> None:
    assert [name for name in desc.env_keys if not re.fullmatch(r"[A-Z][A-Z0-9_]+", name)] == []


@EACH_HOST
def test_an_address_is_https_unless_it_is_on_this_machine(company: str, desc: HostDesc) -> None:
    assert re.match(r"$|https://|http://127\.0\.0\.1", desc.base_url_tmpl)
    assert set(re.findall(r"{(\w+)}", desc.base_url_tmpl)) <= {"region", "resource"}


@pytest.mark.req("DM-ENDP-007")
def test_a_company_speaks_exactly_what_its_hosts_speak() -> None:
    for company, manifest in endpoint_manifests().items():
        assert manifest.company == company
        assert set(manifest.speaks) == {desc.protocol for desc in manifest.hosts}
        assert len({(desc.host, desc.protocol) for desc in manifest.hosts}) == len(manifest.hosts)


def test_the_models_are_those_of_the_catalog_that_are_not_retired() -> None:
    manifests = endpoint_manifests()
    known = {(row.provider, row.id) for row in builtin().models if not row.retired}

    for company in ("anthropic", "google", "openai", "openrouter"):
        assert {model.id for model in manifests[company].models} == {
            model for provider, model in known if provider == company
        }
    assert [model.id for model in manifests["stub"].models] == ["stub-model"]
    for manifest in manifests.values():
        assert {host for model in manifest.models for host in model.hosts} <= {desc.host for desc in manifest.hosts}
        assert [model.id for model in manifest.models if model.context_window <= 0] == []


def test_every_group_of_keys_names_variables_of_its_host() -> None:
    offered = {(company, desc.host): set(desc.env_keys) for company, desc in HOSTS if desc.needs_api_key}

    assert {place: set().union(*groups) - offered[place] for place, groups in KEY_GROUPS.items()} == {
        place: set() for place in KEY_GROUPS
    }


def test_manifests_are_data_that_no_caller_can_change() -> None:
    with pytest.raises(TypeError):
        endpoint_manifests()["anthropic"] = endpoint_manifests()["stub"]  # type: ignore[index]
    assert b"anthropic-messages" in encode(endpoint_manifests()["anthropic"])
