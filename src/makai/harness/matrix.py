"""Which harness works with which company and host: the cells that makai stands for, checked against the manifests.

Cells are written by hand, because that two things speak one protocol does not mean that they were tried together.
`build_matrix` is pure and sorted, and refuses a table that its manifests do not allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from makai.core.errors import EndpointError, InvalidRequest
from makai.harness.contract.endpoint import (
    AuthMode,
    Company,
    CostModel,
    EndpointBinding,
    HarnessManifest,
    HostDesc,
    ModelEndpointManifest,
    ProviderName,
    ServingHost,
    TransportKind,
    WireProtocol,
)
from makai.harness.contract.shapes import ContractShape
from makai.harness.endpoints.companies import endpoint_manifests
from makai.harness.manifests import harness_declaration, harness_manifests

StructuredVia: TypeAlias = Literal["spawn-collect", "output-schema", "json-schema", "response-schema", "format-json"]
"""How an answer follows a schema: asked for and checked afterwards (spawn-collect), or promised by agent or model."""
Stability: TypeAlias = Literal["stable", "beta", "experimental"]
Place: TypeAlias = tuple[str, Company, ServingHost]


class CellRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cell as it is written down; the rest follows from the manifests."""

    harness: str
    company: Company
    host: ServingHost
    protocol: WireProtocol
    structured_via: StructuredVia = "spawn-collect"
    stability: Stability = "beta"
    smoked: bool = False
    auth_modes: tuple[AuthMode, ...] = ()
    """Fewer than the host offers. Empty: all of these."""
    alias: str = ""


class MatrixCell(ContractShape, frozen=True, kw_only=True, omit_defaults=False):
    """A harness with the models of a company on a host."""

    harness: str
    company: Company
    host: ServingHost
    protocol: WireProtocol
    transport: TransportKind
    auth_modes: tuple[AuthMode, ...]
    brings_own_auth: bool
    needs_api_key: bool
    cost_model: CostModel
    structured_via: StructuredVia
    stability: Stability
    """stable: supported. beta: the vendor documents it, and it was not tried. experimental: may not work."""
    smoked: bool
    """The real program was run this way, against a scripted or local model server."""
    alias: str
    """The provider name that means this cell, or nothing."""


class CapabilityMatrix(ContractShape, frozen=True, kw_only=True, omit_defaults=False):
    contract_abi: Literal["capability-matrix/v1"] = "capability-matrix/v1"
    harnesses: tuple[HarnessManifest, ...]
    endpoints: tuple[ModelEndpointManifest, ...]
    cells: tuple[MatrixCell, ...]


def _rows(
    harness: str,
    company: Company,
    *rows: tuple[ServingHost, WireProtocol, Stability, bool, str],
    via: StructuredVia = "spawn-collect",
    auth_modes: tuple[AuthMode, ...] = (),
) -> tuple[CellRow, ...]:
    """Cells of one harness and company: host, protocol, stability, whether it was tried, and the provider name."""
    return tuple(
        CellRow(
            harness=harness,
            company=company,
            host=host,
            protocol=protocol,
            structured_via=via,
            stability=stability,
            smoked=smoked,
            auth_modes=auth_modes,
            alias=alias,
        )
        for host, protocol, stability, smoked, alias in rows
    )


CELLS: Final = (
    *_rows("amp", "anthropic", ("direct", "anthropic-messages", "experimental", False, "amp"), auth_modes=("metered",)),
    *_rows("antigravity", "google", ("oauth-cli", "antigravity-oauth", "experimental", False, "agy-cli")),
    *_rows(
        *("claude-code", "anthropic"),
        ("oauth-cli", "anthropic-messages", "beta", False, "claude"),
        ("direct", "anthropic-messages", "stable", True, ""),
        ("bedrock", "anthropic-messages", "beta", False, ""),
        ("vertex", "anthropic-messages", "beta", False, ""),
        via="json-schema",
    ),
    *_rows("claude-code", "bedrock", ("bedrock", "anthropic-messages", "beta", False, ""), via="json-schema"),
    *_rows("codex", "azure", ("azure", "openai-responses", "beta", False, ""), via="output-schema"),
    *_rows(
        *("codex", "openai"),
        ("oauth-cli", "openai-responses", "beta", False, "codex"),
        ("direct", "openai-responses", "stable", True, ""),
        ("azure", "openai-responses", "beta", False, ""),
        via="output-schema",
    ),
    *_rows(
        *("gemini", "google"),
        ("direct", "gemini-generate", "stable", True, "gemini"),
        ("vertex", "gemini-generate", "beta", False, ""),
    ),
    *_rows("gemini", "vertex", ("vertex", "gemini-generate", "beta", False, "")),
    *_rows("opencode", "anthropic", ("direct", "anthropic-messages", "stable", True, "")),
    *_rows("opencode", "local", ("local", "openai-chat", "experimental", False, "")),
    *_rows(
        *("opencode", "openai"),
        ("direct", "openai-chat", "stable", True, "opencode"),
        ("direct", "openai-responses", "stable", True, ""),
    ),
    *_rows("opencode", "openrouter", ("direct", "openai-chat", "beta", False, "")),
    *_rows("raw", "anthropic", ("direct", "anthropic-messages", "stable", False, ""), via="json-schema"),
    *_rows("raw", "azure", ("azure", "openai-responses", "stable", False, ""), via="json-schema"),
    *_rows("raw", "google", ("direct", "gemini-generate", "stable", False, ""), via="response-schema"),
    *_rows("raw", "local", ("local", "ollama", "stable", False, "ollama"), via="format-json"),
    *_rows("raw", "local", ("local", "openai-chat", "stable", True, ""), via="json-schema"),
    *_rows(
        *("raw", "openai"),
        ("direct", "openai-chat", "stable", False, ""),
        ("direct", "openai-responses", "stable", False, ""),
        ("azure", "openai-responses", "stable", False, ""),
        via="json-schema",
    ),
    *_rows("raw", "openrouter", ("direct", "openai-chat", "stable", False, ""), via="json-schema"),
    *_rows("stub", "stub", ("local", "stub", "stable", True, "stub"), via="json-schema"),
)
DENIED: Final[frozenset[Place]] = frozenset()
"""Cells that are refused although the manifests allow them."""


def build_matrix(
    rows: Sequence[CellRow] = CELLS,
    harnesses: Sequence[HarnessManifest] | None = None,
    endpoints: Mapping[Company, ModelEndpointManifest] | None = None,
    denied: Collection[Place] = DENIED,
) -> CapabilityMatrix:
    """The manifests and the cells, sorted. `InvalidRequest` names every row that breaks a rule."""
    by_name = {manifest.name: manifest for manifest in (harness_manifests() if harnesses is None else harnesses)}
    companies = endpoint_manifests() if endpoints is None else endpoints
    if problems := list(_problems(rows, by_name, companies, denied)):
        raise InvalidRequest(f"The matrix of harnesses is wrong: {'; '.join(problems)}.")
    cells = [_cell(row, by_name[row.harness], companies[row.company]) for row in rows]
    return CapabilityMatrix(
        harnesses=tuple(by_name[name] for name in sorted(by_name)),
        endpoints=tuple(companies[company] for company in sorted(companies)),
        cells=tuple(sorted(cells, key=lambda cell: (cell.harness, cell.company, cell.host, cell.protocol))),
    )


def check_binding(harness: str, binding: EndpointBinding) -> MatrixCell:
    """The cell of a binding. `EndpointError` when this harness does not work with the binding's company and host."""
    name = harness_declaration(harness).name
    cells = [cell for cell in build_matrix().cells if cell.harness == name]
    for cell in cells:
        wanted = (binding.company, binding.host, binding.protocol)
        if (cell.company, cell.host, cell.protocol) == wanted and binding.auth in cell.auth_modes:
            return cell
    offered = ", ".join(dict.fromkeys(f"{cell.company} on {cell.host}" for cell in cells))
    raise EndpointError(
        f"{name} does not work with {binding.company} on {binding.host} ({binding.protocol}, {binding.auth}).",
        kind="not_in_matrix",
        hint=f"It works with {offered}.",
    )


def _cell(row: CellRow, harness: HarnessManifest, endpoint: ModelEndpointManifest) -> MatrixCell:
    desc = _host(row, endpoint)
    assert desc is not None
    return MatrixCell(
        harness=row.harness,
        company=row.company,
        host=row.host,
        protocol=row.protocol,
        transport=harness.caps.transport,
        auth_modes=row.auth_modes or desc.auth_modes,
        brings_own_auth=desc.brings_own_auth,
        needs_api_key=desc.needs_api_key,
        cost_model=desc.cost_model,
        structured_via=row.structured_via,
        stability=row.stability,
        smoked=row.smoked,
        alias=row.alias,
    )


def _host(row: CellRow, endpoint: ModelEndpointManifest) -> HostDesc | None:
    return next((desc for desc in endpoint.hosts if (desc.host, desc.protocol) == (row.host, row.protocol)), None)


def _problems(
    rows: Sequence[CellRow],
    harnesses: Mapping[str, HarnessManifest],
    endpoints: Mapping[Company, ModelEndpointManifest],
    denied: Collection[Place],
) -> Iterator[str]:
    for company, endpoint in endpoints.items():
        for desc in endpoint.hosts:
            if desc.needs_api_key and desc.brings_own_auth:
                yield f"{company} on {desc.host} needs a key and brings its own login"
    for row in rows:
        where = f"{row.harness} with {row.company} on {row.host} ({row.protocol})"
        if row.harness not in harnesses or row.company not in endpoints:
            yield f"{where}: the harness or the company has no manifest"
            continue
        yield from (f"{where}: {why}" for why in _row_problems(row, harnesses[row.harness], endpoints[row.company]))
        if (row.harness, row.company, row.host) in denied:
            yield f"{where}: the cell is denied"
    places = Counter((row.harness, row.company, row.host, row.protocol) for row in rows)
    yield from (f"{' '.join(place)}: the cell occurs {count} times" for place, count in places.items() if count > 1)
    aliases = Counter(row.alias for row in rows if row.alias)
    yield from (f"the name {name} means {count} cells" for name, count in aliases.items() if count > 1)
    yield from (f"{name} is not a provider name" for name in aliases if name not in get_args(ProviderName))


def _row_problems(row: CellRow, harness: HarnessManifest, endpoint: ModelEndpointManifest) -> Iterator[str]:
    caps = harness.caps
    desc = _host(row, endpoint)
    if desc is None:
        yield "the company does not speak this protocol on this host"
    elif not set(row.auth_modes) <= set(desc.auth_modes):
        yield "the host does not offer these logins"
    if row.protocol not in caps.drives:
        yield "the harness does not drive this protocol"
    if row.host not in caps.drives_hosts:
        yield "the harness does not drive this host"
    if caps.native_json_mode == (row.structured_via == "spawn-collect"):
        yield "structured output does not fit the harness' native JSON mode"
