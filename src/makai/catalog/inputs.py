"""Which kinds of content a model takes, and which model takes them instead. What the catalog does not know is sent: the
vendor decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from makai.catalog.models import AuthStatus
from makai.catalog.resolver import DEFAULT_ORDER, Resolver
from makai.core.content import Audio, Image
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.model import Model, ModelCapability

Medium: TypeAlias = Image | Audio

CAPABILITIES: Final[dict[type[Medium], ModelCapability]] = {
    Image: ModelCapability.VISION,
    Audio: ModelCapability.AUDIO_INPUT,
}
WORDS: Final[dict[type[Medium], tuple[str, str]]] = {Image: ("picture", "pictures"), Audio: ("recording", "audio")}
"""One of a kind, and the kind."""
AUDIO_FORMATS: Final = {
    "openai-completions": ("audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3"),
    "google-generative-ai": ("audio/",),
    "google-gemini-cli": ("audio/",),
    "scripted": ("audio/",),
}
"""API -> how the types of recordings begin that it can carry. The other APIs carry none."""


def is_taken(resolver: Resolver, model: Model, part: Medium) -> bool:
    """Whether a resolved model takes this part, or may take it."""
    if isinstance(part, Audio) and not part.mime_type.startswith(AUDIO_FORMATS.get(model.api, ())):
        return False
    return model.can(CAPABILITIES[type(part)]) or not resolver.knows(model, CAPABILITIES[type(part)])


def not_taken(resolver: Resolver, model: Model, part: Medium) -> InvalidRequest:
    """The refusal of a message with a part that the model does not take."""
    one, kind = WORDS[type(part)]
    other = next(_models_with(resolver, model, CAPABILITIES[type(part)]), "")
    message = f"{model.id} takes no {kind}; {other} does." if other else f"{model.id} takes no {kind}."
    return InvalidRequest(message, hint=f"Change the model, or send the message without the {one}.")


def placeholder(model: Model, part: Medium) -> str:
    """What a model reads in the place of a part that it does not take."""
    one, kind = WORDS[type(part)]
    return f"[A {one} was here ({part.mime_type}). {model.id} takes no {kind}.]"


def _models_with(resolver: Resolver, model: Model, capability: ModelCapability) -> Iterator[str]:
    """Models with a capability: those of the same vendor first, then of vendors with a credential, then any."""
    ready = [name for name in DEFAULT_ORDER if _is_ready(resolver, name)]
    rows = resolver.offered_rows()
    for provider in (model.provider, *ready, *DEFAULT_ORDER):
        vendor = resolver.vendors.find(provider)
        if vendor is None:
            continue
        found = [row for row in rows if row.provider == vendor.id and capability in row.capabilities]
        if capability is ModelCapability.AUDIO_INPUT:
            found = [row for row in found if (row.api or vendor.api) in AUDIO_FORMATS]
        for row in sorted(found, key=lambda row: row.id != vendor.default_model):
            yield f"{vendor.id}/{row.id}"


def _is_ready(resolver: Resolver, provider: str) -> bool:
    try:
        return resolver.auth_status(provider) is AuthStatus.AUTHENTICATED
    except MakaiError:
        return False
