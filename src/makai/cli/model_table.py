"""Models as a table for people. Pure.

In: descriptors, how their providers stand, a width. Out: lines. One heading per provider with what is missing to use
it; below it one line per model, whose first word is what `-m` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeAlias

import click

from makai.catalog.descriptors import ModelDescriptor, ModelLifecycle
from makai.cli.access import Access
from makai.core.model import ModelCapability

Paint: TypeAlias = Callable[..., str]
"""`click.style`, or something with its shape that leaves the text as it is."""

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


def plain(text: str, **_style: object) -> str:
    """The `Paint` of a pipe."""
    return text


def model_table(
    models: Sequence[ModelDescriptor],
    access: Sequence[Access],
    *,
    paint: Paint = plain,
    width: int | None = None,
) -> list[str]:
    """The lines of the table; a line longer than `width` is cut, and never when there is none."""
    by_provider = {
        provider: list(group)
        for provider, group in groupby(sorted(models, key=_provider_order(access)), lambda model: model.provider_id)
    }
    rows = {model.model_ref: _cells(model) for model in models}
    widths = [max(len(cells[column]) for cells in (_HEADER, *rows.values())) for column in range(len(_HEADER))]
    lines = [paint(_clipped(_line(_HEADER, widths), width), dim=True)]
    for one in access:
        lines += ["", _heading(one, paint, width)]
        found = by_provider.get(one.provider, [])
        lines += [_clipped(_line(rows[model.model_ref], widths), width) for model in found]
        if not found:
            lines.append(_clipped(f"{one.provider}/MODEL takes any model it serves", width))
    return lines


def _provider_order(access: Iterable[Access]) -> Callable[[ModelDescriptor], int]:
    order = {one.provider: position for position, one in enumerate(access)}
    return lambda model: order[model.provider_id]


def _heading(one: Access, paint: Paint, width: int | None) -> str:
    colour = "green" if one.ready else "yellow"
    text = _clipped(f"{one.name}: {one.status}", width)
    name, separator, status = text.partition(": ")
    return f"{paint(name, bold=True)}{separator}{paint(status, fg=colour)}"


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


def _clipped(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: max(1, width - 1)] + "…"


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
    """Dollars per million tokens; at least two decimals, more where the price has them."""
    stated = model.metadata.get(f"price_{kind}_usd_per_mtok")
    if stated is None:
        return "-"
    amount = float(stated)
    if amount == 0:
        return "free"
    return f"{amount:.2f}" if round(amount, 2) == amount else f"{amount:g}"


def model_details(model: ModelDescriptor, access: Access | None) -> list[str]:
    """What `models resolve` prints: the canonical ref alone on the first line, then what is known."""
    prices = {kind: _price(model, kind) for kind in ("input", "output")}
    facts = {
        "name": model.display_name,
        "use as": f"{model.provider_id}/{model.model_id}",
        "provider": f"{model.provider_id} ({access.status})" if access else model.provider_id,
        "api": model.api,
        "base url": model.base_url or "known when it runs",
        "lifecycle": str(model.lifecycle),
        "context": _tokens(model.context_window),
        "longest answer": _tokens(model.max_output_tokens),
        "price": f"{prices['input']} in, {prices['output']} out (US dollars per million tokens)",
        "can": ", ".join(model.capabilities),
    }
    return [model.model_ref, *(f"  {name:<15} {value}" for name, value in facts.items())]


def _tokens(count: int | None) -> str:
    return "unknown" if count is None else f"{count} tokens"


def painter(coloured: bool) -> Paint:
    """`click.style` where colour belongs."""
    return click.style if coloured else plain
