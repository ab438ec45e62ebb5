"""What makai promises about durability, attacks and limits, and the tests that hold it.

In: `tests/security/proofs.toml` and the marks `proof(...)` of the tests, read but not run. Out: a list of problems, and
the table of `docs/faults.md`, which `python -m tools.proofs` writes again.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tools.requirements import ROOT, Marker, python_markers

PROOFS = ROOT / "tests" / "security" / "proofs.toml"
PAGE = ROOT / "docs" / "faults.md"
START = "<!-- promises: written by `python -m tools.proofs` -->\n"


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One promise, and the bar that its tests hold it to."""

    id: str
    promise: str
    bar: str
    tier: Literal["push", "faults"]
    reason: str = ""
    """Why no test can hold it here."""


def read_proofs(path: Path = PROOFS) -> tuple[Proof, ...]:
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8"))["proof"], tuple[Proof, ...])


def read_markers(root: Path = ROOT) -> tuple[Marker, ...]:
    return tuple(python_markers(root / "tests", "proof"))


def problems(proofs: Sequence[Proof], markers: Sequence[Marker]) -> list[str]:
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


def page(text: str, proofs: Sequence[Proof]) -> str:
    """The text of the page with the table of all promises at its end."""
    rows = [f"| {proof.id} | {proof.promise} | {proof.reason or proof.bar} | {proof.tier} |" for proof in proofs]
    table = ["| id | promise | bar | whole bar on |", "|---|---|---|---|", *rows]
    return text.partition(START)[0] + START + "\n" + "\n".join(table) + "\n"


def main() -> int:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), read_proofs()), encoding="utf-8")
    found = problems(read_proofs(), read_markers())
    for problem in found:
        print(f"PROBLEM  {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
