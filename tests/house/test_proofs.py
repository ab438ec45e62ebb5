"""Every promise of tests/security/proofs.toml has a test that names it, or a reason; no test names an unknown one."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tools.requirements import ROOT, Marker, python_markers

PROOFS = ROOT / "tests" / "security" / "proofs.toml"


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One promise, and the bar that its tests hold it to."""

    id: str
    promise: str
    bar: str
    tier: Literal["push", "faults"]
    reason: str = ""
    """Why no test can hold it here."""


def read_proofs(path: Path) -> tuple[Proof, ...]:
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8"))["proof"], tuple[Proof, ...])


def problems(proofs: tuple[Proof, ...], markers: tuple[Marker, ...]) -> list[str]:
    """What does not agree, one sentence each."""
    listed = Counter(proof.id for proof in proofs)
    named = {id for marker in markers for id in marker.ids}
    found = [f"{id} is listed twice" for id, count in listed.items() if count > 1]
    for proof in proofs:
        if proof.id not in named and not proof.reason:
            found.append(f"{proof.id} has neither a test nor a reason: {proof.promise}")
        if proof.id in named and proof.reason:
            found.append(f"{proof.id} has a test and a reason why it has none")
    for marker in markers:
        if not marker.ids:
            found.append(f"{marker.where}: the mark names no promise")
        found += [f"{marker.where}: {id} is no promise" for id in marker.ids if id not in listed]
    return found


def test_every_promise_has_a_test_and_every_mark_a_promise() -> None:
    found = problems(read_proofs(PROOFS), tuple(python_markers(ROOT / "tests", "proof")))

    assert not found, "\n".join(found)


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
