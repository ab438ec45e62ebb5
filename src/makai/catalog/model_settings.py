"""The model of a new session: the one that its creator names, else that of the settings, else the catalog's default."""

from __future__ import annotations

from typing import Final, Protocol

from makai.core.errors import MakaiError
from makai.core.model import Model
from makai.core.settings import MODEL_VARIABLE, Settings, Source

_PLACES: Final[dict[Source, str]] = {
    "environment": MODEL_VARIABLE,
    "project": "`model` in .makai/config.toml",
    "user": "`model` in config.toml",
}


class ModelNames(Protocol):
    """Resolves a model name to a `Model`; None is the default."""

    def resolve(self, model: str | None) -> Model: ...


def model_for(models: ModelNames, settings: Settings, name: str | None = None) -> Model:
    """An error about a model that the settings name says where it is written."""
    if name:
        return models.resolve(settings.expanded(name))
    if settings.model is None:
        return models.resolve(None)
    try:
        return models.resolve(settings.expanded(settings.model))
    except MakaiError as error:
        if place := _PLACES.get(settings.sources.get("model", "default")):
            error.message = f"{place}: {error.message}"
        raise
