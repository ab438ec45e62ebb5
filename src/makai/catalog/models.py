"""What is known about models: the built-in rows (`builtin_models.json`), and the typed shapes of `models_request` and
`models_response`, shared by both protocols (MK-MODEL-026).

Rows are facts from the vendors' documentation as of the file's `as_of`; a price that was not found is left out, never
guessed.
"""

from __future__ import annotations

import os.path
from enum import StrEnum
from functools import cache

import msgspec

from makai.core.model import ModelCapability, ReasoningEffort
from makai.core.usage import Price


class AuthStatus(StrEnum):
    """Whether the provider can be used now."""

    AUTHENTICATED = "authenticated"
    LOGIN_REQUIRED = "login_required"
    EXPIRED = "expired"
    REFRESHING = "refreshing"
    LOGIN_IN_PROGRESS = "login_in_progress"
    FAILED = "failed"
    UNKNOWN = "unknown"


class ModelLifecycle(StrEnum):
    """How long a model can be counted on."""

    STABLE = "stable"
    PREVIEW = "preview"
    DEPRECATED = "deprecated"


class ModelSource(StrEnum):
    """Whether the model comes from the vendor's own list or from the built-in one."""

    DYNAMIC = "dynamic"
    STATIC_FALLBACK = "static_fallback"


class ModelDescriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model as a client sees it. Fields without a default are always on the wire, the others only when known."""

    model_ref: str
    model_id: str
    display_name: str
    provider_id: str
    api: str
    auth_status: AuthStatus
    lifecycle: ModelLifecycle
    capabilities: tuple[ModelCapability, ...]
    source: ModelSource
    base_url: str = ""
    context_window: int | None = None
    max_output_tokens: int | None = None
    reasoning_default: ReasoningEffort | None = None
    metadata: dict[str, str] = {}


class ModelsRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The filters of `models_request`. An empty string is an absent filter."""

    provider_id: str = ""
    api: str = ""
    model_id: str = ""
    include_deprecated: bool = False
    include_login_required: bool = True


class ModelsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Every matching model in one answer; there is no pagination (MK-MODEL-028)."""

    models: tuple[ModelDescriptor, ...]
    fetched_at_ms: int
    """When this response was made, also when its data is older (MK-MODEL-016)."""
    cache_max_age_ms: int


class ModelRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the catalog knows about one model of one vendor, whichever of its APIs is used."""

    provider: str
    id: str
    """The vendor's own name, byte for byte."""
    name: str
    api: str = ""
    """Only where the model is not served by the vendor's default API."""
    also: tuple[str, ...] = ()
    """Other ids the vendor takes for the same model, such as dated snapshots; sent as the caller wrote them."""
    capabilities: tuple[ModelCapability, ...] = (ModelCapability.CHAT, ModelCapability.STREAMING)
    context_window: int | None = None
    max_output_tokens: int | None = None
    lifecycle: ModelLifecycle = ModelLifecycle.STABLE
    reasoning_default: ReasoningEffort | None = None
    efforts: tuple[str, ...] = ()
    """Effort levels this model accepts, where they differ from its vendor's."""
    price: Price | None = None
    """The standard tariff of a short prompt; surcharges for long contexts are not modelled."""
    retired: bool = False
    successor: str = ""
    """The ref to use instead of a retired model."""


class Builtin(msgspec.Struct, frozen=True, kw_only=True):
    as_of: str
    models: tuple[ModelRow, ...]
    aliases: dict[str, str]
    """Legacy ref -> canonical ref (MK-MODEL-023)."""
    names: dict[str, tuple[str, ...]]
    """Short name -> patterns `provider/model id`, best first. Of the rows that match one the first is the newest."""


@cache
def builtin() -> Builtin:
    with open(os.path.join(os.path.dirname(__file__), "builtin_models.json"), "rb") as file:
        return msgspec.json.decode(file.read(), type=Builtin)
