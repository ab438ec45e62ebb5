"""The built-in models: `builtin_models.json`, read once and only when needed.

Rows are facts from the vendors' documentation as of the file's `as_of`; a price that was not found is left out, never
guessed.
"""

from __future__ import annotations

import os.path
from functools import cache

import msgspec

from makai.catalog.descriptors import ModelLifecycle
from makai.core.model import ModelCapability, ReasoningEffort
from makai.core.usage import Price


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


@cache
def builtin() -> Builtin:
    with open(os.path.join(os.path.dirname(__file__), "builtin_models.json"), "rb") as file:
        return msgspec.json.decode(file.read(), type=Builtin)
