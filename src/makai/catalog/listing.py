"""Descriptors of models, and which of them a `models_request` gets. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from makai.catalog.model_ref import format_model_ref
from makai.catalog.models import (
    AuthStatus,
    ModelDescriptor,
    ModelLifecycle,
    ModelRow,
    ModelSource,
    ModelsRequest,
    ModelsResponse,
)
from makai.core.errors import InvalidRequest, ModelNotFound

DYNAMIC_MAX_AGE_MS = 300_000
STATIC_MAX_AGE_MS = 3_600_000


def descriptor_of(
    row: ModelRow, api: str, auth_status: AuthStatus, source: ModelSource, *, base_url: str = ""
) -> ModelDescriptor:
    return ModelDescriptor(
        model_ref=format_model_ref(row.provider, api, row.id),
        model_id=row.id,
        display_name=row.name,
        provider_id=row.provider,
        api=api,
        auth_status=auth_status,
        lifecycle=row.lifecycle,
        capabilities=row.capabilities,
        source=source,
        base_url=base_url,
        context_window=row.context_window,
        max_output_tokens=row.max_output_tokens,
        reasoning_default=row.reasoning_default,
        metadata=_price_metadata(row),
    )


def _price_metadata(row: ModelRow) -> dict[str, str]:
    if row.price is None:
        return {}
    prices = msgspec.structs.asdict(row.price)
    return {f"price_{kind}_usd_per_mtok": f"{value:g}" for kind, value in prices.items() if value is not None}


def list_models(
    request: ModelsRequest, candidates: Iterable[ModelDescriptor], *, fetched_at_ms: int, fetched: bool = False
) -> ModelsResponse:
    """The answer to a `models_request`. `fetched`: a vendor was asked for it, so that an empty list is news too.

    A request with `model_id` is a resolve: several matches without `api` (MK-MODEL-011) and no match (MK-MODEL-012)
    are errors. Without it, no match is an empty list (MK-MODEL-008).
    """
    named = [model for model in candidates if _is_named(request, model)]
    matches = tuple(model for model in named if _is_wanted(request, model))
    if request.model_id:
        _check_resolved(request, named, matches)
    is_dynamic = any(model.source is ModelSource.DYNAMIC for model in matches) if matches else fetched
    max_age_ms = DYNAMIC_MAX_AGE_MS if is_dynamic else STATIC_MAX_AGE_MS
    return ModelsResponse(models=matches, fetched_at_ms=fetched_at_ms, cache_max_age_ms=max_age_ms)


def _is_named(request: ModelsRequest, model: ModelDescriptor) -> bool:
    return (
        request.provider_id in ("", model.provider_id)
        and request.api in ("", model.api)
        and request.model_id in ("", model.model_id)
    )


def _is_wanted(request: ModelsRequest, model: ModelDescriptor) -> bool:
    if model.lifecycle is ModelLifecycle.DEPRECATED and not request.include_deprecated:
        return False
    return request.include_login_required or model.auth_status is not AuthStatus.LOGIN_REQUIRED


def _check_resolved(request: ModelsRequest, named: list[ModelDescriptor], matches: tuple[ModelDescriptor, ...]) -> None:
    if not matches:
        hidden = [model for model in named if model.lifecycle is ModelLifecycle.DEPRECATED]
        why = " is deprecated; ask with include_deprecated" if hidden and not request.include_deprecated else ""
        raise ModelNotFound(f"model not found: {request.model_id}{why}")
    if len(matches) > 1 and not request.api:
        choices = ", ".join(model.model_ref for model in matches)
        raise InvalidRequest(f"model_id matches several models; specify api: {choices}")
