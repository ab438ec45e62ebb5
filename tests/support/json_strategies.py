"""Hypothesis strategies for JSON that `makai.wire.strict_json` accepts, and for bytes that nearly are JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

# No lone surrogates and no NUL: strict JSON refuses both.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
numbers = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts


def _nested(max_leaves: int) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=max_leaves,
    )


values = _nested(12)
objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(texts, values, max_size=5)

_small_values = _nested(4)
_fragments = st.one_of(
    st.sampled_from(
        [b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"-", b"tru", b"\n", b"\0", b"\xff", b"\xef\xbb\xbf"]
    ),
    st.sampled_from([b"\\u0000", b"\\ud800", b"1e400", b"NaN", b"[" * 3000, b'{"a":' * 3000, b"9" * 5000]),
)


@st.composite
def mutated_json(draw: st.DrawFn) -> bytes:
    """A valid document with one span replaced by arbitrary bytes or by a fragment known to be troublesome."""
    document = msgspec.json.encode(draw(_small_values))
    start = draw(st.integers(0, len(document)))
    end = draw(st.integers(start, min(len(document), start + 4)))
    return document[:start] + draw(st.binary(max_size=4) | _fragments) + document[end:]
