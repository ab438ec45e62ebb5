"""A vendor's own list of models: what to ask, and how the answer becomes rows. Pure.

How vendors' lists differ is data here (`_KINDS` and the tables above it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from makai.catalog.model_ref import MAX_MODEL_ID_LENGTH
from makai.catalog.models import ModelLifecycle, ModelRow
from makai.catalog.vendors import ASSUMED_CAPABILITIES, ListingKind, Vendor
from makai.core.errors import MakaiError, ParseError
from makai.core.model import ModelCapability
from makai.core.secret import Secret
from makai.core.usage import Price

JSON = dict[str, Any]

NOT_CHAT = re.compile(
    r"embed|(^|[-/])(bge|e5|gte|all-minilm)([-:]|$)"  # vectors
    r"|rerank|moderation|prompt-guard|(^|[-/])ocr([-:]|$)"  # judgements about text
    r"|(^|[-/])tts|-tts|whisper|transcribe|speech|realtime|-audio|(^|[-/])lyria"  # sound
    r"|dall-e|(^|[-/])(imagen?|images)([-:]|$)|-image([-:]|$)|imagine|flux|stable-diffusion|(^|[-/])(sora|veo)([-:]|$)"
    r"|(^|[-/])(babbage|davinci)-|gpt-3\.5-turbo-instruct",  # text completion only
    re.IGNORECASE,
)
"""Ids of models that do not chat, for lists that do not say so. A ref to one still resolves; it is only not offered."""

_PREVIEW = re.compile(r"preview|experimental|(^|[-.])(exp|beta)([-.]|$)", re.IGNORECASE)

_CONTEXT_FIELDS = (
    "context_length",  # OpenRouter, Together, Fireworks
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
    "max_model_len",  # vLLM
    "meta.n_ctx",  # llama.cpp
)
_OUTPUT_FIELDS = ("top_provider.max_completion_tokens", "max_completion_tokens")
"""OpenRouter, Groq."""
_WITHDRAWN_FIELDS = ("deprecation", "expiration_date")
"""A date in one of these: the model is on its way out (Mistral, OpenRouter)."""

_FLAGS: tuple[tuple[str, ModelCapability], ...] = (
    ("capabilities.thinking.supported", ModelCapability.REASONING),
    ("capabilities.image_input.supported", ModelCapability.VISION),
    ("thinking", ModelCapability.REASONING),
    ("capabilities.function_calling", ModelCapability.TOOLS),
    ("capabilities.vision", ModelCapability.VISION),
    ("capabilities.reasoning", ModelCapability.REASONING),
    ("supports_tools", ModelCapability.TOOLS),
    ("supports_image_input", ModelCapability.VISION),
)
"""A field that is true or false -> the capability it is about (Anthropic, Google, Mistral, Fireworks)."""

_LISTS: tuple[tuple[str, Mapping[str, ModelCapability]], ...] = (
    ("architecture.input_modalities", {"image": ModelCapability.VISION, "audio": ModelCapability.AUDIO_INPUT}),
    ("supported_parameters", {"tools": ModelCapability.TOOLS, "reasoning": ModelCapability.REASONING}),
)
"""A list of words -> the capability each word stands for; a list that is there and lacks the word denies it."""

_OLLAMA_LISTS: tuple[tuple[str, Mapping[str, ModelCapability]], ...] = (
    (
        "capabilities",
        {
            "tools": ModelCapability.TOOLS,
            "vision": ModelCapability.VISION,
            "thinking": ModelCapability.REASONING,
            "audio": ModelCapability.AUDIO_INPUT,
        },
    ),
)
_NOT_CHAT_FLAGS = ("capabilities.completion_chat", "supports_chat", "active")
"""Fields that are false for what cannot be asked (Mistral, Fireworks, Groq)."""
_NOT_CHAT_TYPES = ("image", "embedding", "moderation", "rerank", "audio", "transcribe", "video")
"""What `type` says of models that cannot be asked (Together)."""

_ANTHROPIC_VERSION = "2023-06-01"
_ANTHROPIC_OAUTH = "sk-ant-oat"


class ListingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A GET that is ready to send. Secrets stay `Secret` until the bytes leave."""

    url: str
    headers: dict[str, str | Secret]


class ListingPage(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[ModelRow, ...]
    next_cursor: str = ""
    """For `listing_request`; empty on the last page."""


class ProviderListing(msgspec.Struct, frozen=True, kw_only=True):
    """What asking one vendor gave: its models, or the error."""

    rows: tuple[ModelRow, ...] = ()
    error: MakaiError | None = None


def listing_request(vendor: Vendor, base_url: str, secret: Secret | None, cursor: str = "") -> ListingRequest:
    kind = _KINDS[vendor.listing]
    query = kind.query(cursor)
    url = base_url.rstrip("/") + kind.path + (f"?{query}" if query else "")
    return ListingRequest(url=url, headers=kind.headers(secret))


def read_listing(vendor: Vendor, body: bytes) -> ListingPage:
    """The rows of one page; `ParseError` when it is not a list of models. One entry that cannot be understood is left
    out: it must not hide the others."""
    try:
        page = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ParseError(f"the list of models is not JSON: {error}") from error
    kind = _KINDS[vendor.listing]
    entries = page if isinstance(page, list) else _at(page, kind.entries)
    if not isinstance(entries, list):
        raise ParseError(f"the list of models has no {kind.entries!r}")
    rows = {row.id: row for row in _rows(vendor, kind, entries)}
    return ListingPage(rows=tuple(rows.values()), next_cursor=kind.next_cursor(page))


def with_known_facts(told: ModelRow, known: ModelRow | None) -> ModelRow:
    """The row for a model the vendor listed: what the catalog knows, else what the vendor told."""
    if known is None:
        return told
    return msgspec.structs.replace(
        known,
        id=told.id,
        name=known.name if known.id == told.id or told.name == told.id else told.name,
        also=(),
        context_window=known.context_window or told.context_window,
        max_output_tokens=known.max_output_tokens or told.max_output_tokens,
        price=known.price or told.price,
    )


def is_offered(vendor: Vendor, told: ModelRow, known: ModelRow | None) -> bool:
    """Whether a model the vendor listed is shown: it can be asked, as far as the catalog or else its name says."""
    if known is not None:
        return not known.retired
    return _KINDS[vendor.listing].tells_chat or NOT_CHAT.search(told.id) is None


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    entries: str
    """The field that holds the models; some servers send the bare list."""
    headers: Callable[[Secret | None], dict[str, str | Secret]]
    query: Callable[[str], str]
    next_cursor: Callable[[Any], str]
    model_id: Callable[[JSON], str]
    is_model: Callable[[JSON], bool]
    tells_chat: bool = False
    """Whether `is_model` knows for certain; otherwise the model's id is looked at too."""
    name_field: str = "name"
    context_fields: tuple[str, ...] = _CONTEXT_FIELDS
    output_fields: tuple[str, ...] = _OUTPUT_FIELDS
    lists: tuple[tuple[str, Mapping[str, ModelCapability]], ...] = _LISTS
    price: Callable[[JSON], Price | None] = lambda entry: None


def _rows(vendor: Vendor, kind: _Kind, entries: list[Any]) -> Iterator[ModelRow]:
    for entry in entries:
        if not isinstance(entry, dict) or not kind.is_model(entry):
            continue
        model_id = kind.model_id(entry)
        if not 0 < len(model_id) <= MAX_MODEL_ID_LENGTH:
            continue
        name = _text(entry.get(kind.name_field))
        withdrawn = any(_text(_at(entry, field)) for field in _WITHDRAWN_FIELDS)
        lifecycle = ModelLifecycle.PREVIEW if _PREVIEW.search(model_id) else ModelLifecycle.STABLE
        yield ModelRow(
            provider=vendor.id,
            id=model_id,
            name=name if name and name.isprintable() else model_id,
            capabilities=_capabilities(entry, kind),
            context_window=_first_count(entry, kind.context_fields),
            max_output_tokens=_first_count(entry, kind.output_fields),
            lifecycle=ModelLifecycle.DEPRECATED if withdrawn else lifecycle,
            price=kind.price(entry),
        )


def _capabilities(entry: JSON, kind: _Kind) -> tuple[ModelCapability, ...]:
    """What we assume of any model, corrected by what the vendor says of this one."""
    told: dict[ModelCapability, bool] = {}
    for field, capability in _FLAGS:
        if isinstance(value := _at(entry, field), bool):
            told[capability] = value
    for field, words in kind.lists:
        if isinstance(value := _at(entry, field), list):
            told |= {capability: word in value for word, capability in words.items()}
    return tuple(
        capability for capability in ModelCapability if told.get(capability, capability in ASSUMED_CAPABILITIES)
    )


def _bearer(secret: Secret | None) -> dict[str, str | Secret]:
    return {"Authorization": Secret(f"Bearer {secret.reveal()}")} if secret else {}


def _anthropic_headers(secret: Secret | None) -> dict[str, str | Secret]:
    version: dict[str, str | Secret] = {"anthropic-version": _ANTHROPIC_VERSION}
    if secret and secret.reveal().startswith(_ANTHROPIC_OAUTH):
        return version | _bearer(secret) | {"anthropic-beta": "oauth-2025-04-20"}
    return version | ({"x-api-key": secret} if secret else {})


def _openrouter_cursor(page: Any) -> str:
    """The query of the next page's link. Never its host: the key belongs to the base URL."""
    return _text(_at(page, "links.next")).partition("?")[2]


def _openrouter_price(entry: JSON) -> Price | None:
    """OpenRouter tells US dollars per token as text; a negative price means that it varies."""
    prompt, completion, cache_read, cache_write = (
        _per_million(_at(entry, f"pricing.{field}"))
        for field in ("prompt", "completion", "input_cache_read", "input_cache_write")
    )
    if prompt is None or completion is None:
        return None
    return Price(input=prompt, output=completion, cache_read=cache_read, cache_write=cache_write)


def _is_compatible_model(entry: JSON) -> bool:
    if any(_at(entry, field) is False for field in _NOT_CHAT_FLAGS):
        return False
    return _text(entry.get("type")) not in _NOT_CHAT_TYPES and _writes_text(entry)


def _writes_text(entry: JSON) -> bool:
    outputs = _at(entry, "architecture.output_modalities")
    return not isinstance(outputs, list) or "text" in outputs


def _is_ollama_model(entry: JSON) -> bool:
    capabilities = entry.get("capabilities")
    return not isinstance(capabilities, list) or "completion" in capabilities


def _generates_content(entry: JSON) -> bool:
    methods = entry.get("supportedGenerationMethods")
    return isinstance(methods, list) and "generateContent" in methods


def _no_text(page: object) -> str:
    return ""


_COMPATIBLE = _Kind(
    path="/models",
    entries="data",
    headers=_bearer,
    query=_no_text,
    next_cursor=_no_text,
    model_id=lambda entry: _text(entry.get("id")),
    is_model=_is_compatible_model,
)

_KINDS: dict[ListingKind, _Kind] = {
    "openai": _COMPATIBLE,
    "openrouter": msgspec.structs.replace(
        _COMPATIBLE,
        query=lambda cursor: cursor,
        next_cursor=_openrouter_cursor,
        is_model=_writes_text,
        tells_chat=True,
        price=_openrouter_price,
    ),
    "anthropic": msgspec.structs.replace(
        _COMPATIBLE,
        path="/v1/models",
        headers=_anthropic_headers,
        query=lambda cursor: "limit=1000" + (f"&after_id={quote(cursor, safe='')}" if cursor else ""),
        next_cursor=lambda page: _text(_at(page, "last_id")) if _at(page, "has_more") is True else "",
        is_model=lambda entry: True,
        tells_chat=True,
        name_field="display_name",
        context_fields=("max_input_tokens",),
        output_fields=("max_tokens",),
    ),
    "google": msgspec.structs.replace(
        _COMPATIBLE,
        path="/v1beta/models",
        entries="models",
        headers=lambda secret: {"x-goog-api-key": secret} if secret else {},
        query=lambda cursor: "pageSize=1000" + (f"&pageToken={quote(cursor, safe='')}" if cursor else ""),
        next_cursor=lambda page: _text(_at(page, "nextPageToken")),
        # The API tells resource names; the model id in its URLs and documentation is what follows the collection.
        model_id=lambda entry: _text(entry.get("name")).removeprefix("models/"),
        is_model=_generates_content,  # true of speech and image models too
        name_field="displayName",
        context_fields=("inputTokenLimit",),
        output_fields=("outputTokenLimit",),
    ),
    "ollama": msgspec.structs.replace(
        _COMPATIBLE,
        path="/api/tags",
        entries="models",
        model_id=lambda entry: _text(entry.get("model")) or _text(entry.get("name")),
        is_model=_is_ollama_model,
        context_fields=("details.context_length",),
        lists=_OLLAMA_LISTS,
    ),
}


def _at(value: Any, path: str) -> Any:
    """The value at a dotted path, or None where there is none."""
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _first_count(entry: JSON, fields: tuple[str, ...]) -> int | None:
    for field in fields:
        value = _at(entry, field)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _per_million(value: object) -> float | None:
    try:
        price = float(value) * 1_000_000 if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        return None
    return round(price, 6) if price is not None and 0 <= price < 1e9 else None
