"""What docstrings say about parameters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.client.docstrings import Docstring, parse_docstring

GOOGLE = """Look up the weather.

    In any city: large or small.

    Args:
        city (str, optional): The name of the city,
            as people write it.
        days: How many days:
            at most 7.

        **unit: In degrees.

    Returns:
        city: not a parameter.
    """
NUMPY = """Look up the weather.

    In any city: large or small.

    Parameters
    ----------
    city : str, optional
        The name of the city,
        as people write it.
    days
        How many days:
        at most 7.

    unit : {"C", "F"}
        In degrees.

    Returns
    -------
    city : str
        not a parameter.
    """
REST = """Look up the weather.

    In any city: large or small.

    :param str city: The name of the city,
        as people write it.
    :type days: int
    :param days: How many days:
        at most 7.
    :param dict[str, int] unit: In degrees.
    :returns: city: not a parameter.
    """
MEANT = Docstring(
    "Look up the weather.\n\nIn any city: large or small.",
    {"city": "The name of the city, as people write it.", "days": "How many days: at most 7.", "unit": "In degrees."},
)


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_the_three_forms_say_the_same(text: str) -> None:
    assert parse_docstring(text) == MEANT


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (None, Docstring("", {})),
        ("", Docstring("", {})),
        ("One line.", Docstring("One line.", {})),
        ("\n    Args:\n        a: First.", Docstring("", {"a": "First."})),
        ("Say.\n\nArgs:\n    a:\n    b: B.", Docstring("Say.", {"b": "B."})),
        ("Say.\n\nRaises:\n    ValueError: never.", Docstring("Say.", {})),
        ("Ends.\n\nParameters\n----------", Docstring("Ends.", {})),
        ("A list:\n- one\n- two", Docstring("A list:\n- one\n- two", {})),
        ("Parameters\n----------\na, b : int\n    Both.", Docstring("", {"a": "Both.", "b": "Both."})),
    ],
    ids=str,
)
def test_unusual_docstrings(text: str | None, meant: Docstring) -> None:
    assert parse_docstring(text) == meant


_LINES = st.sampled_from([*NUMPY.splitlines(), *GOOGLE.splitlines(), *REST.splitlines(), "---", ":", "\t", "a" * 9])


@given(st.one_of(st.text(), st.lists(_LINES).map("\n".join)))
def test_every_text_is_read(text: str) -> None:
    found = parse_docstring(text)
    assert all(found.parameters.values())
