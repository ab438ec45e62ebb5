"""Which models `makai models` shows, and the table of them.

The only I/O is reading the weights, logins and settings in MAKAI_HOME; `--available` also connects to the user's own
servers, and `--refresh` asks the providers. Without these options no HTTP library is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from makai.catalog.listing import list_models
from makai.catalog.model_ref import ref_of
from makai.catalog.models import (
    AuthStatus,
    ModelDescriptor,
    ModelLifecycle,
    ModelSource,
    ModelsRequest,
    ModelsResponse,
    builtin,
)
from makai.catalog.resolver import Resolver
from makai.catalog.vendors import Vendor, VendorTable
from makai.cli.console import Paint, clip, plain, run_async
from makai.cli.provider_access import ProviderAccess, access_of, access_to
from makai.core.errors import InvalidRequest, ModelNotFound, ModelRetired
from makai.core.home import home_directory
from makai.core.model import ModelCapability
from makai.providers.logins import Logins

_HIDDEN = "scripted"
"""Answers from a file, for tests and demonstrations."""


class ListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of `makai models list`; an empty one does not filter."""

    provider: str = ""
    api: str = ""
    include_deprecated: bool = False
    available: bool = False
    refresh: bool = False
    """Ask the providers for their own lists."""


class ModelListing(msgspec.Struct, frozen=True, kw_only=True):
    response: ModelsResponse
    access: tuple[ProviderAccess, ...]
    default_model: str


def list_now(wanted: ListRequest, environ: Mapping[str, str]) -> ModelListing:
    home = home_directory(environ)
    logins = Logins(environ, home)
    chosen = _chosen_vendors(wanted, logins.vendors)
    resolver = logins.resolver()
    access = access_to(chosen, environ, home, logins)
    if wanted.available:
        access = _only_usable(access)
    known = _asked(wanted, environ) if wanted.refresh else resolver.descriptors(known=logins.statuses())
    shown = {one.provider: one for one in access}
    candidates = [_marked(model, shown[model.provider_id]) for model in known if model.provider_id in shown]
    response = list_models(
        ModelsRequest(api=wanted.api, include_deprecated=wanted.include_deprecated),
        candidates,
        fetched_at_ms=time.time_ns() // 1_000_000,
        fetched=wanted.refresh,
    )
    return ModelListing(
        response=response,
        access=tuple(_worth_showing(access, response, wanted.api, logins.vendors)),
        default_model=_default(resolver),
    )


def _default(resolver: Resolver) -> str:
    try:
        model = resolver.default_model()
    except (InvalidRequest, ModelNotFound, ModelRetired) as error:  # a setting names a model that does not exist
        return f"none ({error.message})"
    return f"{model.provider}/{model.id}"


def _asked(wanted: ListRequest, environ: Mapping[str, str]) -> Sequence[ModelDescriptor]:
    """The models that providers list themselves; built-in rows for those that list none."""
    from makai.providers.runtime import ModelRuntime

    request = ModelsRequest(provider_id=wanted.provider, include_deprecated=wanted.include_deprecated)

    async def ask() -> ModelsResponse:
        async with ModelRuntime(environ) as runtime:
            return await runtime.models(request, refresh=True)

    return run_async(ask()).models


def _chosen_vendors(wanted: ListRequest, vendors: VendorTable) -> list[Vendor]:
    if wanted.api and wanted.api not in vendors.apis:
        raise InvalidRequest(f"there is no API {wanted.api!r}.", hint=f"There are {', '.join(sorted(vendors.apis))}.")
    if not wanted.provider:
        return [vendor for vendor in vendors.values() if vendor.id != _HIDDEN]
    vendor = vendors.find(wanted.provider)
    if vendor is None:
        raise InvalidRequest(f"there is no provider {wanted.provider!r}.", hint=f"There are {', '.join(vendors)}.")
    return [vendor]


def _only_usable(access: list[ProviderAccess]) -> list[ProviderAccess]:
    """Providers that are ready; of the user's own servers, those that listen."""
    from makai.cli.provider_access import reach_all

    ready = [one for one in access if one.ready]
    own = [one.base_url for one in ready if one.is_own_server]
    reached = run_async(reach_all(own)) if own else {}
    return [one for one in ready if not one.is_own_server or not reached[one.base_url].problem]


def _worth_showing(
    access: list[ProviderAccess], response: ModelsResponse, api: str, vendors: VendorTable
) -> list[ProviderAccess]:
    """Providers with a model in the answer, and those without a list that speak the API."""
    listed = {model.provider_id for model in response.models}
    unlisted = set(vendors) - {row.provider for row in builtin().models} - listed
    return [
        one
        for one in access
        if one.provider in listed or (one.provider in unlisted and (not api or api in vendors[one.provider].paths))
    ]


def _marked(model: ModelDescriptor, access: ProviderAccess) -> ModelDescriptor:
    """The local model says whether its weights are installed, which no login tells."""
    if model.provider_id != "local":
        return model
    return msgspec.structs.replace(model, metadata={**model.metadata, "installed": str(access.ready).lower()})


def summary(listed: ModelListing) -> str:
    if not listed.access:
        return "No model matches. `makai doctor` says what can be used and what to do."
    ready = [one for one in listed.access if one.ready and not one.is_own_server]
    return (
        f"{_counted(len(listed.response.models), 'model')} of {_counted(len(listed.access), 'provider')}, "
        f"{len(ready)} ready. Without -m: {listed.default_model}"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def resolve_now(name: str, environ: Mapping[str, str]) -> tuple[ModelDescriptor, ProviderAccess | None]:
    # The runtime's own resolver: it also knows the models that only a running makai has.
    from makai.providers.runtime import ModelRuntime

    runtime = ModelRuntime(environ)
    resolver = runtime.resolver
    model = resolver.resolve(name)
    vendor = resolver.vendors.find(model.provider)
    known = [one for one in resolver.descriptors() if (one.provider_id, one.model_id) == (model.provider, model.id)]
    base = known[0] if known else None
    descriptor = ModelDescriptor(
        model_ref=ref_of(model),
        model_id=model.id,
        display_name=model.name,
        provider_id=model.provider,
        api=model.api,
        auth_status=resolver.auth_status(model.provider) if vendor else AuthStatus.UNKNOWN,
        lifecycle=base.lifecycle if base else ModelLifecycle.STABLE,
        capabilities=model.capabilities,
        source=ModelSource.STATIC_FALLBACK,
        base_url=model.base_url,
        context_window=model.context_window,
        max_output_tokens=model.max_output_tokens,
        reasoning_default=model.reasoning_default,
        metadata=base.metadata if base else {},
    )
    access = None
    if vendor and vendor.id != _HIDDEN:
        access = access_of(vendor, environ, runtime.home, runtime.logins.keychain)
    return (_marked(descriptor, access) if access else descriptor), access


_HEADER = ("MODEL", "CONTEXT", "IN $/M", "OUT $/M", "CAN")
_WORDS = {
    ModelCapability.TOOLS: "tools",
    ModelCapability.VISION: "vision",
    ModelCapability.REASONING: "thinking",
    ModelCapability.PROMPT_CACHE: "cache",
    ModelCapability.AUDIO_INPUT: "audio-in",
    ModelCapability.AUDIO_OUTPUT: "audio-out",
}
"""Chatting and streaming are left out: every model here does both."""


def model_table(
    models: Sequence[ModelDescriptor],
    access: Sequence[ProviderAccess],
    *,
    paint: Paint = plain,
    width: int | None = None,
) -> list[str]:
    """Lines longer than `width` are cut; None never cuts."""
    rows = {model.model_ref: _cells(model) for model in models}
    widths = [max(len(cells[column]) for cells in (_HEADER, *rows.values())) for column in range(len(_HEADER))]
    lines = [paint(clip(_line(_HEADER, widths), width), dim=True)]
    for one in access:
        name, separator, status = clip(f"{one.name}: {one.status}", width).partition(": ")
        colour = "green" if one.ready else "yellow"
        found = [_line(rows[model.model_ref], widths) for model in models if model.provider_id == one.provider]
        lines += ["", f"{paint(name, bold=True)}{separator}{paint(status, fg=colour)}"]
        lines += [clip(text, width) for text in found or [f"{one.provider}/MODEL takes any model it serves"]]
    return lines


def _cells(model: ModelDescriptor) -> tuple[str, ...]:
    can = [word for capability, word in _WORDS.items() if capability in model.capabilities]
    if model.lifecycle is not ModelLifecycle.STABLE:
        can.insert(0, f"({model.lifecycle})")
    return (
        f"{model.provider_id}/{model.model_id}",
        short_count(model.context_window),
        _price(model, "input"),
        _price(model, "output"),
        " ".join(can) or "talk",
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, *numbers, can = cells
    aligned = [number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True)]
    return "  ".join((name.ljust(widths[0]), *aligned, can))


def short_count(tokens: int | None) -> str:
    """1048576 -> 1.05M, 131072 -> 131k, 4096 -> 4.1k; "-" when it is not known."""
    if tokens is None:
        return "-"
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= unit:
            amount = tokens / unit
            return f"{amount:.0f}{name}" if amount >= 100 else f"{round(amount, 2 if name == 'M' else 1):g}{name}"
    return str(tokens)


def _price(model: ModelDescriptor, kind: str) -> str:
    """US dollars per million tokens, with at least two decimals."""
    stated = model.metadata.get(f"price_{kind}_usd_per_mtok")
    if stated is None:
        return "-"
    amount = float(stated)
    if amount == 0:
        return "free"
    return f"{amount:.2f}" if round(amount, 2) == amount else f"{amount:g}"


def model_details(model: ModelDescriptor, access: ProviderAccess | None) -> list[str]:
    """The output of `models resolve`: the canonical model_ref alone on the first line, then details."""
    facts = {
        "name": model.display_name,
        "use as": f"{model.provider_id}/{model.model_id}",
        "provider": f"{model.provider_id} ({access.status})" if access else model.provider_id,
        "api": model.api,
        "base url": model.base_url or "known when it runs",
        "lifecycle": str(model.lifecycle),
        "context": _tokens(model.context_window),
        "longest answer": _tokens(model.max_output_tokens),
        "price": f"{_price(model, 'input')} in, {_price(model, 'output')} out (US dollars per million tokens)",
        "can": ", ".join(model.capabilities),
    }
    return [model.model_ref, *(f"  {name:<15} {value}" for name, value in facts.items())]


def _tokens(count: int | None) -> str:
    return "unknown" if count is None else f"{count} tokens"
