"""Counters, gauges and histograms in the Prometheus text format (version 0.0.4).

Label values may come from outside (models, tools, providers), so a metric keeps at most `MAX_SERIES` combinations of
them; what comes later is counted as `other`. Not thread-safe: everything happens in the event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

CONTENT_TYPE: Final = "text/plain; version=0.0.4"
MAX_SERIES: Final = 200
"""Combinations of label values per metric."""
MAX_LABEL_LENGTH: Final = 120
OTHER: Final = "other"

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]
Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""The suffix of its name, its labels and its value."""


class Metric:
    """Base of all kinds: a name, a sentence of help, and the names of its labels."""

    kind: Kind

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        self.name = name
        self.text = text
        self.labels = labels

    def samples(self) -> Iterator[Sample]:
        raise NotImplementedError

    def render(self) -> Iterator[str]:
        yield f"# HELP {self.name} {_escaped(self.text)}"
        yield f"# TYPE {self.name} {self.kind}"
        for suffix, labels, value in self.samples():
            pairs = ",".join(f'{name}="{_escaped(text, quoted=True)}"' for name, text in labels.items())
            yield f"{self.name}{suffix}{f'{{{pairs}}}' if pairs else ''} {value!r}"

    def _bounded(self, values: Labels, known: Mapping[Labels, object]) -> Labels:
        """The label values to count under. The first, which may be any name, becomes `other` when there are many."""
        values = tuple(value[:MAX_LABEL_LENGTH] for value in values)
        for found, most in ((values, MAX_SERIES), ((OTHER, *values[1:]), 2 * MAX_SERIES)):
            if found in known or len(known) < most:
                return found
        return (OTHER,) * len(values)


class Counter(Metric):
    kind: Kind = "counter"

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        super().__init__(name, text, labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *values: str, by: float = 1) -> None:
        try:
            self._values[values] += by
        except KeyError:
            values = self._bounded(values, self._values)
            self._values[values] = self._values.get(values, 0) + by

    def value(self, *values: str) -> float:
        return self._values.get(values, 0)

    def samples(self) -> Iterator[Sample]:
        for values, value in self._values.items():
            yield "", dict(zip(self.labels, values, strict=True)), value


class Gauge(Metric):
    """A value that is read when the metrics are asked for. `read` returns None while there is none."""

    kind: Kind = "gauge"

    def __init__(self, name: str, text: str, read: Callable[[], float | None]) -> None:
        super().__init__(name, text)
        self._read = read

    def samples(self) -> Iterator[Sample]:
        if (value := self._read()) is not None:
            yield "", {}, value


class ReadCounter(Gauge):
    """A counter that is kept elsewhere."""

    kind: Kind = "counter"


class LabelledGauge(Metric):
    kind: Kind = "gauge"

    def __init__(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        super().__init__(name, text, (label,))
        self._read = read

    def samples(self) -> Iterator[Sample]:
        for value, number in self._read().items():
            yield "", {self.labels[0]: value}, number


class Info(Metric):
    """A gauge of 1 whose labels say something about the process."""

    kind: Kind = "gauge"

    def __init__(self, name: str, text: str, facts: Mapping[str, str]) -> None:
        super().__init__(name, text, tuple(facts))
        self._facts = facts

    def samples(self) -> Iterator[Sample]:
        yield "", self._facts, 1


class Histogram(Metric):
    kind: Kind = "histogram"

    def __init__(self, name: str, text: str, bounds: Sequence[float], labels: Labels = ()) -> None:
        super().__init__(name, text, labels)
        self._bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not labels:
            self._begin(())

    def observe(self, value: float, *values: str) -> None:
        counts = self._counts.get(values)
        if counts is None:
            values = self._bounded(values, self._counts)
            counts = self._counts.get(values) or self._begin(values)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[values] += value

    def _begin(self, values: Labels) -> list[int]:
        counts = self._counts[values] = [0] * (len(self._bounds) + 1)
        self._sums[values] = 0.0
        return counts

    def samples(self) -> Iterator[Sample]:
        for values, counts in self._counts.items():
            labels = dict(zip(self.labels, values, strict=True))
            total = 0
            for bound, count in zip((*self._bounds, None), counts, strict=True):
                total += count
                yield "_bucket", {**labels, "le": "+Inf" if bound is None else f"{bound:g}"}, total
            yield "_sum", labels, self._sums[values]
            yield "_count", labels, total


def rendered(metrics: Iterable[Metric]) -> str:
    return "".join(f"{line}\n" for metric in metrics for line in metric.render())


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text
