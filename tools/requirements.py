"""Requirements are tests: which clauses of the specification have one, and which do not.

In: `requirements.toml` (every clause with an id), `tests/divergences.toml` (clauses met in another way, with a
reason), `tests/choices.toml` (clauses that rest on a decision, and what the specification says about its point),
`tests/finished.toml` (what must not be open any more) and the tests themselves, read but not run:
`pytest.mark.req("ID", ...)` in Python, `req("ID", ...)` in TypeScript. Out: a table per area and a list of problems.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

ROOT = Path(__file__).resolve().parent.parent
TYPESCRIPT_CALL = re.compile(r"""\breq\(\s*((?:["'`][^"'`]*["'`]\s*,?\s*)+)\)""")
LEGEND = """
covered     a test carries the clause's id
left to us  of these: the specification leaves a point open, is silent or contradicts itself; see tests/choices.toml
diverging   met in another way than the specification says; see tests/divergences.toml
open        no test yet"""
TYPESCRIPT_STRING = re.compile(r"""["'`]([^"'`]*)["'`]""")


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One clause of the specification documents."""

    id: str
    source: str
    level: str
    text: str


class Divergence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A clause we meet in another way."""

    id: str
    reason: str


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the specification says about the point that a clause decides, and why it was decided so."""

    id: str
    documents: Literal["same", "open", "silent", "disagree"]
    section: str
    why: str


class Finished(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An area, or some clauses of it, in which no `must` may be open."""

    area: str
    ids: tuple[str, ...] = ()
    except_ids: tuple[str, ...] = msgspec.field(default=(), name="except")

    def names(self, requirement_id: str) -> bool:
        """Whether this row finishes the clause."""
        if self.ids:
            return requirement_id in self.ids
        return area_of(requirement_id) == self.area and requirement_id not in self.except_ids


class Marker(msgspec.Struct, frozen=True):
    """One place in a test that names requirements."""

    where: str
    ids: tuple[str, ...]


class Ledger(msgspec.Struct, frozen=True):
    """Everything the check looks at."""

    requirements: tuple[Requirement, ...]
    divergences: tuple[Divergence, ...]
    finished: tuple[Finished, ...]
    markers: tuple[Marker, ...]
    choices: tuple[Choice, ...] = ()

    def covered(self) -> frozenset[str]:
        """Ids that some test carries."""
        return frozenset(id for marker in self.markers for id in marker.ids)

    def diverging(self) -> frozenset[str]:
        """Ids with a written divergence."""
        return frozenset(divergence.id for divergence in self.divergences)

    def chosen(self) -> frozenset[str]:
        """Ids in which the specification leaves a point to us: it is open, silent, or says two things."""
        return frozenset(choice.id for choice in self.choices if choice.documents != "same")


def area_of(requirement_id: str) -> str:
    """`MK-MODEL-018` belongs to `MK-MODEL`."""
    return requirement_id.rpartition("-")[0]


def read_ledger(root: Path) -> Ledger:
    """Read the four tables and the tests of a checkout."""
    typescript = (root / "sdk" / "typescript" / "test", root / "web" / "test")
    tests = [
        *python_markers(root / "tests"),
        *(marker for folder in typescript for marker in typescript_markers(folder)),
    ]
    return Ledger(
        requirements=msgspec.convert(_table(root / "requirements.toml", "requirement"), tuple[Requirement, ...]),
        divergences=msgspec.convert(_table(root / "tests" / "divergences.toml", "divergence"), tuple[Divergence, ...]),
        finished=msgspec.convert(_table(root / "tests" / "finished.toml", "finished"), tuple[Finished, ...]),
        markers=tuple(tests),
        choices=msgspec.convert(_table(root / "tests" / "choices.toml", "choice"), tuple[Choice, ...]),
    )


def _table(path: Path, name: str) -> object:
    return tomllib.loads(path.read_text(encoding="utf-8")).get(name, [])


def python_markers(folder: Path, name: str = "req") -> Iterator[Marker]:
    """Every call of the mark `name` below `folder`: decorators, `pytestmark`, and `marks=` of parameters."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if f"mark.{name}(" not in text:  # most files: reading is much quicker than parsing
            continue
        for node in ast.walk(ast.parse(text, filename=str(path))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr=mark, value=ast.Name(id="mark") | ast.Attribute(attr="mark"))
                ) if mark == name:
                    yield Marker(f"{path.relative_to(folder.parent)}:{node.lineno}", tuple(map(_literal, node.args)))


def _literal(argument: ast.expr) -> str:
    """The id, or the source text of what is not a plain string: that is then reported as an unknown id."""
    match argument:
        case ast.Constant(value=str(text)):
            return text
    return ast.unparse(argument)


def typescript_markers(folder: Path) -> Iterator[Marker]:
    """Every `req("ID", ...)` call below `folder`."""
    for path in sorted(folder.rglob("*.ts")):
        text = path.read_text(encoding="utf-8")
        for call in TYPESCRIPT_CALL.finditer(text):
            line = text.count("\n", 0, call.start()) + 1
            yield Marker(f"{path.relative_to(folder)}:{line}", tuple(TYPESCRIPT_STRING.findall(call[1])))


def problems(ledger: Ledger) -> list[str]:
    """What keeps the check from passing, one sentence each; empty when all is well."""
    known = {requirement.id for requirement in ledger.requirements}
    found = [f"requirements.toml: {id} is listed twice" for id in _repeated(r.id for r in ledger.requirements)]
    found += [f"divergences.toml: {id} is listed twice" for id in _repeated(d.id for d in ledger.divergences)]
    found += [f"divergences.toml: {id} is not a requirement" for id in sorted(ledger.diverging() - known)]
    found += [f"divergences.toml: {d.id} has no reason" for d in ledger.divergences if not d.reason.strip()]
    for marker in ledger.markers:
        if not marker.ids:
            found.append(f"{marker.where}: the marker names no requirement")
        found += [f"{marker.where}: {id} is not a requirement" for id in marker.ids if id not in known]
    for row in ledger.finished:
        found += _unfinished(row, ledger)
    return found + list(_unjudged(ledger))


def _repeated(ids: Iterable[str]) -> list[str]:
    ordered = list(ids)
    return sorted({id for id in ordered if ordered.count(id) > 1})


def _unfinished(row: Finished, ledger: Ledger) -> Iterator[str]:
    """What a row of finished.toml promises and the tests do not keep."""
    in_area = {r.id: r for r in ledger.requirements if area_of(r.id) == row.area}
    if not in_area:
        yield f"finished.toml: {row.area} is not an area"
    for id in (*row.ids, *row.except_ids):
        if id not in in_area:
            yield f"finished.toml: {id} is not a requirement of {row.area}"
    for id, requirement in in_area.items():
        if row.names(id) and requirement.level == "must" and id not in ledger.covered() | ledger.diverging():
            yield f"{id} is listed as finished, but no test carries it: {requirement.text}"


def _unjudged(ledger: Ledger) -> Iterator[str]:
    """Decisions of finished areas without a judgement, and judgements that are not well formed."""
    chosen, diverging = [choice.id for choice in ledger.choices], ledger.diverging()
    known = {requirement.id for requirement in ledger.requirements}
    for id in _repeated(chosen):
        yield f"choices.toml: {id} is listed twice"
    for choice in ledger.choices:
        if choice.id not in known:
            yield f"choices.toml: {choice.id} is not a requirement"
        if choice.id in diverging:
            yield f"choices.toml: {choice.id} is in divergences.toml too"
        if not (choice.section.strip() and choice.why.strip()):
            yield f"choices.toml: {choice.id} has no section or no reason"
    for requirement in ledger.requirements:
        finished = any(row.names(requirement.id) for row in ledger.finished)
        if finished and is_decided(requirement) and requirement.id not in {*chosen, *diverging}:
            yield f"{requirement.id} rests on a decision: judge it in choices.toml or divergences.toml"


def is_decided(requirement: Requirement) -> bool:
    """Whether the clause says more than the specification, by its own account."""
    return any(word in requirement.source for word in ("decision", "choice"))


def table(ledger: Ledger) -> str:
    """Per area: how many clauses there are, covered (in how many of them the specification leaves a point to us),
    diverging, open, and how many are listed as finished."""
    areas: dict[str, list[str]] = {}
    for requirement in ledger.requirements:
        areas.setdefault(area_of(requirement.id), []).append(requirement.id)
    rows = [_row(area, ids, ledger) for area, ids in areas.items()]
    rows.append(_row("all", [requirement.id for requirement in ledger.requirements], ledger))
    return aligned([("area", "total", "covered", "left to us", "diverging", "open", "finished"), *rows])


def _row(name: str, ids: Sequence[str], ledger: Ledger) -> tuple[str, ...]:
    diverging = ledger.diverging() & set(ids)
    covered = (ledger.covered() & set(ids)) - diverging
    finished = {id for id in ids for row in ledger.finished if row.names(id)}
    done = "yes" if len(finished) == len(ids) else str(len(finished) or "")
    left_to_us = covered & ledger.chosen()
    counts = (len(ids), len(covered), len(left_to_us), len(diverging), len(ids) - len(covered) - len(diverging))
    return (name, *map(str, counts), done)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    """Print the table, then the problems; 1 when there are any."""
    ledger = read_ledger(ROOT)
    print(table(ledger))
    print(LEGEND)
    found = problems(ledger)
    for problem in found:
        print(f"PROBLEM  {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
