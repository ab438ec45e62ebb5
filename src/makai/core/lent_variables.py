"""Variables of another process, as the owner of the sessions keeps them: in memory, hidden from `repr` and encoders,
and only for as long as that process is connected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from makai.core.secret import Secret


class LentVariables(dict[str, Secret]):
    """What came over one link. `clear` when the link ends: every `CallerVariables` made of it is empty from then on."""

    __slots__ = ("__weakref__", "inherited")

    def __init__(self, variables: Mapping[str, Secret], inherited: Iterable[str] = ()) -> None:
        """`inherited` are the names that no one chose for the run: they are of the environment of that process."""
        super().__init__(variables)
        self.inherited = frozenset(inherited)


class CallerVariables(Mapping[str, str]):
    """The variables of the caller of a run. It is a view: what its source loses is gone here too."""

    __slots__ = ("_had_some", "_source")

    def __init__(self, source: Mapping[str, Secret]) -> None:
        self._source = source
        self._had_some = bool(source)

    @property
    def have_ended(self) -> bool:
        """Whether there were variables and the process that lent them has gone."""
        return self._had_some and not self._source

    @property
    def inherited(self) -> frozenset[str]:
        return self._source.inherited if isinstance(self._source, LentVariables) else frozenset()

    def __getitem__(self, name: str) -> str:
        return self._source[name].reveal()

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)

    def __repr__(self) -> str:
        return f"CallerVariables({', '.join(sorted(self._source))})"


class LayeredVariables(Mapping[str, str]):
    """Some variables over others. A view: it follows the changes of both."""

    __slots__ = ("_below", "_over")

    def __init__(self, over: Mapping[str, str], below: Mapping[str, str]) -> None:
        self._over = over
        self._below = below

    def __getitem__(self, name: str) -> str:
        return self._over[name] if name in self._over else self._below[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._over, *self._below)))

    def __len__(self) -> int:
        return len({*self._over, *self._below})

    def __repr__(self) -> str:
        return f"LayeredVariables({self._over!r} over {len(self._below)} variables)"


NO_CALLER: CallerVariables = CallerVariables({})
