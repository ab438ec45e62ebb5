"""The typed shapes of `models_request` and `models_response`, shared by both protocols (MK-MODEL-026)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from makai.core.model import ModelCapability, ReasoningEffort


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
