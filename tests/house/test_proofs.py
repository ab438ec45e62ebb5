"""Every promise of tests/security/proofs.toml has a test that names it, or a reason; no test names an unknown one."""

from __future__ import annotations

import pytest

from tools.proofs import PAGE, Proof, page, problems, read_markers, read_proofs
from tools.requirements import Marker


def test_every_promise_has_a_test_and_every_mark_a_promise() -> None:
    found = problems(read_proofs(), read_markers())

    assert not found, "\n".join(found)


def test_the_documentation_lists_every_promise_with_its_bar() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert text == page(text, read_proofs()), "run `.venv/bin/python -m tools.proofs`"


def proof(id: str, reason: str = "") -> Proof:
    return Proof(id=id, promise="It holds.", bar="0", tier="push", reason=reason)


@pytest.mark.parametrize(
    ("proofs", "ids", "problem"),
    [
        ((proof("A"),), ("A",), []),
        ((proof("A", "It needs a network."),), None, []),
        ((proof("A"),), None, ["A has neither a test nor a reason: It holds."]),
        ((proof("A", "It needs a network."),), ("A",), ["A has a test and a reason why it has none"]),
        ((proof("A"), proof("A")), ("A",), ["A is listed twice"]),
        ((proof("A"),), ("A", "B"), ["test_a.py:1: B is no promise"]),
        ((), (), ["test_a.py:1: the mark names no promise"]),
    ],
)
def test_what_does_not_agree_is_named(
    proofs: tuple[Proof, ...], ids: tuple[str, ...] | None, problem: list[str]
) -> None:
    markers = () if ids is None else (Marker("test_a.py:1", ids),)

    assert problems(proofs, markers) == problem
