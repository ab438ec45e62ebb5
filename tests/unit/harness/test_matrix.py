"""The matrix: pure, sorted, allowed by its manifests, and the same as the pages that are checked in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from makai.core.errors import EndpointError, InvalidRequest
from makai.harness import (
    CapabilityMatrix,
    EndpointBinding,
    MatrixCell,
    ProviderName,
    build_matrix,
    check_binding,
    decode,
    encode,
    endpoint_manifests,
    harness_manifests,
)
from makai.harness.matrix import CELLS, CellRow
from tools.harness_matrix import DIRECTORY, PAGES

CLAUDE = next(row for row in CELLS if (row.harness, row.host) == ("claude-code", "direct"))
RESERVED = {"spring-ai", "a2a", "jules"}


def changed(**fields: Any) -> list[CellRow]:
    return [msgspec.structs.replace(CLAUDE, **fields)]


@pytest.mark.parametrize("name", PAGES)
def test_the_checked_in_pages_are_what_the_tables_say(name: str) -> None:
    checked_in = (DIRECTORY / name).read_bytes()

    assert checked_in == PAGES[name]().encode(), "run `make schema` and review the change"


def test_building_twice_gives_the_same_sorted_bytes_whatever_the_order_of_the_rows() -> None:
    matrix = build_matrix()
    places = [(cell.harness, cell.company, cell.host, cell.protocol) for cell in matrix.cells]

    assert encode(matrix) == encode(build_matrix(rows=CELLS[::-1], harnesses=harness_manifests()[::-1]))
    assert places == sorted(places)
    assert decode(encode(matrix), CapabilityMatrix) == matrix


def test_every_cell_follows_from_its_manifests() -> None:
    harnesses = {manifest.name: manifest.caps for manifest in harness_manifests()}
    for cell in build_matrix().cells:
        caps = harnesses[cell.harness]
        rows = endpoint_manifests()[cell.company].hosts
        (desc,) = [row for row in rows if (row.host, row.protocol) == (cell.host, cell.protocol)]

        assert cell.protocol in caps.drives
        assert cell.host in caps.drives_hosts
        assert set(cell.auth_modes) <= set(desc.auth_modes) != set()
        assert (cell.needs_api_key, cell.brings_own_auth) == (desc.needs_api_key, desc.brings_own_auth)
        assert not (cell.needs_api_key and cell.brings_own_auth)
        assert (cell.structured_via == "spawn-collect") == (not caps.native_json_mode)


def test_every_harness_and_company_is_in_a_cell() -> None:
    cells = build_matrix().cells

    assert {cell.harness for cell in cells} == {manifest.name for manifest in harness_manifests()}
    assert {cell.company for cell in cells} == set(endpoint_manifests())


@pytest.mark.req("DM-PROV-014")
def test_every_provider_name_means_one_cell_and_reserved_ones_none() -> None:
    aliases = [cell.alias for cell in build_matrix().cells if cell.alias]

    assert sorted(aliases) == sorted(set(get_args(ProviderName)) - RESERVED)


def test_a_cell_can_only_narrow_the_logins_of_its_host() -> None:
    (amp,) = [cell for cell in build_matrix().cells if cell.harness == "amp"]

    assert (amp.auth_modes, amp.needs_api_key, amp.brings_own_auth) == (("metered",), True, False)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (changed(harness="nothing"), "has no manifest"),
        (changed(company="acme"), "has no manifest"),
        (changed(company="openai"), "does not speak this protocol on this host"),
        (changed(host="azure"), "does not drive this host"),
        (changed(protocol="openai-chat"), "does not drive this protocol"),
        (changed(auth_modes=("host-session",)), "does not offer these logins"),
        (changed(structured_via="spawn-collect"), "native JSON mode"),
        (changed(harness="amp"), "native JSON mode"),
        ([*changed(), *changed()], "occurs 2 times"),
        ([*changed(alias="jules"), *changed(host="vertex", alias="jules")], "jules means 2 cells"),
        (changed(alias="sonnet"), "sonnet is not a provider name"),
    ],
)
def test_a_row_that_the_manifests_do_not_allow_is_refused(rows: list[CellRow], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        build_matrix(rows)


def test_a_denied_cell_and_a_host_with_two_kinds_of_login_are_refused() -> None:
    anthropic = endpoint_manifests()["anthropic"]
    both = [msgspec.structs.replace(desc, needs_api_key=True, brings_own_auth=True) for desc in anthropic.hosts]
    endpoints = {"anthropic": msgspec.structs.replace(anthropic, hosts=tuple(both))}

    with pytest.raises(InvalidRequest, match="is denied"):
        build_matrix(changed(), denied={("claude-code", "anthropic", "direct")})
    with pytest.raises(InvalidRequest, match="needs a key and brings its own login"):
        build_matrix(changed(), endpoints=endpoints)


def binding_of(cell: MatrixCell) -> EndpointBinding:
    return EndpointBinding(
        company=cell.company, host=cell.host, protocol=cell.protocol, auth=cell.auth_modes[0], model="m"
    )


@pytest.mark.parametrize("cell", build_matrix().cells, ids=lambda cell: f"{cell.harness}-{cell.company}-{cell.host}")
def test_the_binding_of_a_cell_is_accepted_for_its_harness(cell: MatrixCell) -> None:
    assert check_binding(cell.harness, binding_of(cell)) == cell


@pytest.mark.parametrize(
    "foreign",
    [
        lambda binding: msgspec.structs.replace(binding, company="openai"),
        lambda binding: msgspec.structs.replace(binding, host="azure"),
        lambda binding: msgspec.structs.replace(binding, protocol="openai-chat"),
        lambda binding: msgspec.structs.replace(binding, auth="host-session"),
        lambda _: EndpointBinding(),
    ],
)
def test_a_binding_that_a_harness_cannot_use_is_refused(foreign: Callable[[EndpointBinding], EndpointBinding]) -> None:
    (cell,) = build_matrix(changed()).cells
    with pytest.raises(EndpointError, match="claude-code does not work with") as refusal:
        check_binding("claude", foreign(binding_of(cell)))

    assert refusal.value.kind == "not_in_matrix"
    assert refusal.value.hint is not None
    assert "anthropic on bedrock" in refusal.value.hint
