"""The manifests of companies that serve models. A host that speaks two protocols has two rows, the usual one first.

The models of a company are those of the catalog, so that there is one list of them. A company whose models have names
that its users choose, such as the deployments of Azure, lists none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import msgspec

from makai.catalog.models import builtin
from makai.core.errors import EndpointError
from makai.core.model import ModelCapability
from makai.harness.contract.endpoint import (
    Company,
    CostModel,
    HostDesc,
    ModelDesc,
    ModelEndpointManifest,
    ServingHost,
    WireProtocol,
)


class _Company(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    hosts: tuple[HostDesc, ...]
    vendor: str = ""
    """The vendor of the catalog whose models these are."""
    model_hosts: tuple[ServingHost, ...] = ()
    """Where these models have the same ids as in the catalog."""
    json_mode: bool = True


def _keyed(host: ServingHost, protocol: WireProtocol, url: str, *variables: str) -> HostDesc:
    """A host that wants a key: the user's own, or one that is paid by use."""
    return HostDesc(
        host=host,
        protocol=protocol,
        auth_modes=("byok", "metered"),
        brings_own_auth=False,
        needs_api_key=True,
        cost_model="metered",
        base_url_tmpl=url,
        env_keys=variables,
    )


def _own(host: ServingHost, protocol: WireProtocol, url: str = "") -> HostDesc:
    """A host without a key: a program that is logged in already, or a model on this machine."""
    cost: CostModel = "local" if host == "local" else "host-subscription"
    return HostDesc(
        host=host,
        protocol=protocol,
        auth_modes=("local",) if host == "local" else ("host-session",),
        brings_own_auth=True,
        needs_api_key=False,
        cost_model=cost,
        base_url_tmpl=url,
    )


_OLLAMA: Final = "http://127.0.0.1:11434"
_AZURE: Final = "https://{resource}.openai.azure.com/openai/v1"
_AZURE_KEYS: Final = ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT")
_BEDROCK: Final = "https://bedrock-runtime.{region}.amazonaws.com"
_BEDROCK_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")
_VERTEX: Final = "https://{region}-aiplatform.googleapis.com"
_CLAUDE_VERTEX_KEYS: Final = ("GOOGLE_APPLICATION_CREDENTIALS", "ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION")
_VERTEX_KEYS: Final = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_VERTEX_PROJECT_ID",
    "GOOGLE_CLOUD_LOCATION",
)

_COMPANIES: Final[Mapping[Company, _Company]] = {
    "anthropic": _Company(
        label="Anthropic",
        hosts=(
            _own("oauth-cli", "anthropic-messages"),
            _keyed("direct", "anthropic-messages", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
            _keyed("bedrock", "anthropic-messages", _BEDROCK, *_BEDROCK_KEYS),
            _keyed("vertex", "anthropic-messages", _VERTEX, *_CLAUDE_VERTEX_KEYS),
        ),
        vendor="anthropic",
        model_hosts=("oauth-cli", "direct"),
        json_mode=False,
    ),
    "azure": _Company(
        label="Azure OpenAI",
        hosts=(
            _keyed("azure", "openai-responses", _AZURE, *_AZURE_KEYS),
            _keyed("azure", "openai-chat", _AZURE, *_AZURE_KEYS),
        ),
    ),
    "bedrock": _Company(
        label="Amazon Bedrock", hosts=(_keyed("bedrock", "anthropic-messages", _BEDROCK, *_BEDROCK_KEYS),)
    ),
    "google": _Company(
        label="Google",
        hosts=(
            _keyed(
                *("direct", "gemini-generate", "https://generativelanguage.googleapis.com"),
                *("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            ),
            _keyed("vertex", "gemini-generate", _VERTEX, *_VERTEX_KEYS),
            _own("oauth-cli", "antigravity-oauth"),
        ),
        vendor="google",
        model_hosts=("direct", "vertex"),
    ),
    "local": _Company(
        label="A model on this machine",
        hosts=(_own("local", "ollama", _OLLAMA), _own("local", "openai-chat", f"{_OLLAMA}/v1")),
    ),
    "openai": _Company(
        label="OpenAI",
        hosts=(
            _own("oauth-cli", "openai-responses"),
            _keyed("direct", "openai-responses", "https://api.openai.com/v1", "OPENAI_API_KEY"),
            _keyed("direct", "openai-chat", "https://api.openai.com/v1", "OPENAI_API_KEY"),
            _keyed("azure", "openai-responses", _AZURE, *_AZURE_KEYS),
            _keyed("azure", "openai-chat", _AZURE, *_AZURE_KEYS),
        ),
        vendor="openai",
        model_hosts=("direct",),
    ),
    "openrouter": _Company(
        label="OpenRouter",
        hosts=(_keyed("direct", "openai-chat", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),),
        vendor="openrouter",
        model_hosts=("direct",),
    ),
    "stub": _Company(label="Stub", hosts=(_own("local", "stub"),)),
    "vertex": _Company(label="Google Vertex AI", hosts=(_keyed("vertex", "gemini-generate", _VERTEX, *_VERTEX_KEYS),)),
}
_STUB_MODEL: Final = ModelDesc(
    id="stub-model",
    human_label="Stub",
    context_window=8192,
    supports_tools=True,
    supports_json_mode=True,
    hosts=("local",),
)

KEY_GROUPS: Final[Mapping[tuple[str, ServingHost], tuple[tuple[str, ...], ...]]] = {
    **{
        (company, "bedrock"): (("AWS_ACCESS_KEY_ID",), ("AWS_SECRET_ACCESS_KEY",))
        for company in ("anthropic", "bedrock")
    },
    **{(company, "azure"): (("AZURE_OPENAI_API_KEY",),) for company in ("openai", "azure")},
    **{
        (company, "vertex"): (("GOOGLE_APPLICATION_CREDENTIALS",), ("GOOGLE_CLOUD_PROJECT", "GOOGLE_VERTEX_PROJECT_ID"))
        for company in ("google", "vertex")
    },
    ("anthropic", "vertex"): (("GOOGLE_APPLICATION_CREDENTIALS",), ("ANTHROPIC_VERTEX_PROJECT_ID",)),
    ("google", "direct"): (("GEMINI_API_KEY", "GOOGLE_API_KEY"),),
}
"""What a host with a key needs, where that is not all of its variables: one variable of every group."""


def _models(company: Company, row: _Company) -> tuple[ModelDesc, ...]:
    if company == "stub":
        return (_STUB_MODEL,)
    known = [model for model in builtin().models if model.provider == row.vendor and not model.retired]
    return tuple(
        ModelDesc(
            id=model.id,
            human_label=model.name,
            context_window=model.context_window or 0,
            supports_tools=ModelCapability.TOOLS in model.capabilities,
            supports_json_mode=row.json_mode,
            hosts=row.model_hosts,
        )
        for model in sorted(known, key=lambda model: model.id)
    )


@cache
def endpoint_manifests() -> Mapping[Company, ModelEndpointManifest]:
    """Every manifest by its company, in alphabetical order."""
    return MappingProxyType(
        {
            company: ModelEndpointManifest(
                company=company,
                human_label=row.label,
                speaks=tuple(dict.fromkeys(desc.protocol for desc in row.hosts)),
                hosts=row.hosts,
                models=_models(company, row),
            )
            for company, row in sorted(_COMPANIES.items())
        }
    )


def endpoint_manifest(company: Company) -> ModelEndpointManifest:
    """The manifest of a company; `EndpointError` for one that makai does not know."""
    manifests = endpoint_manifests()
    if company not in manifests:
        hint = f"Use one of: {', '.join(manifests)}."
        raise EndpointError(f"There are no endpoints of a company {company!r}.", kind="unknown_company", hint=hint)
    return manifests[company]
