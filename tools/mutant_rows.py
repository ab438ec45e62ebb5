"""The rows of `tests/mutants/<AREA>.toml`: which tests can notice a mutation, and what their runs say about it.

Nothing here starts a process or writes a file, except that the seed of a sample is asked from git; `tools/mutants.py`
runs the rows.
"""

from __future__ import annotations

import random
import subprocess
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from enum import Enum
from pathlib import Path

import msgspec

from tools.clause_tests import Outcome, cost
from tools.requirements import Ledger, area_of, python_markers, typescript_markers

FOLDER = Path("tests/mutants")
MUTATED = ("src/makai/", "sdk/typescript/src/", "web/src/")


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row. `explained` says why a mutation that no test can notice is harmless."""

    clause: str
    breaks: str
    file: str
    find: str
    replace: str
    explained: str = ""

    def applied(self, text: str) -> str:
        """The mutated text of the file. Raises `ValueError` when `find` does not occur exactly once."""
        if (count := text.count(self.find)) != 1:
            raise ValueError(f"the text to find occurs {count} times in {self.file}")
        return text.replace(self.find, self.replace)


class Language(Enum):
    """Which runner a file of tests needs, and where its files are."""

    PYTHON = "tests"
    SDK = "sdk/typescript/test"
    PAGE = "web/test"


class Suite(msgspec.Struct, frozen=True):
    """Tests of one clause that run together: files with paths from the root, in Python also single test ids."""

    language: Language
    clause: str
    files: tuple[str, ...]


class Status(Enum):
    """What became of a mutant, in the order of the summary."""

    KILLED = "killed"
    EXPLAINED = "explained"
    SKIPPED = "skipped"
    SURVIVED = "survived"
    ERROR = "error"


class Run(msgspec.Struct, frozen=True):
    """How the runner of a suite ended. `outcome` is None when it could not say, `hung` when it was ended from here."""

    outcome: Outcome | None
    hung: bool = False
    output: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """What became of one mutant, and the test or the reason."""

    mutant: Mutant
    status: Status
    reason: str = ""
    killer: str = ""
    """The id of the test in Python that failed."""

    def line(self) -> str:
        """A row of the report."""
        reason = f"\n{'':10}{self.reason}" if self.reason else ""
        return f"{self.status.value:10}{self.mutant.clause}  {self.mutant.breaks}{reason}"


def read_mutants(root: Path) -> tuple[Mutant, ...]:
    """All rows of a checkout. Raises `ValueError` for a row in the file of another area."""
    found: list[Mutant] = []
    for path in sorted((root / FOLDER).glob("*.toml")):
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
        for mutant in msgspec.convert(rows, list[Mutant]):
            if area_of(mutant.clause) != path.stem:
                raise ValueError(f"{path.name}: {mutant.clause} belongs into {area_of(mutant.clause)}.toml")
            found.append(mutant)
    return tuple(found)


def files_by_clause(root: Path) -> dict[str, dict[Language, tuple[str, ...]]]:
    """For every clause the files that have a test with its id, the cheapest first."""
    found: dict[str, dict[Language, set[str]]] = {}
    for language in Language:
        folder = root / language.value
        markers = python_markers(folder) if language is Language.PYTHON else typescript_markers(folder)
        prefix = "" if language is Language.PYTHON else f"{language.value}/"
        for marker in markers:
            for clause in marker.ids:
                file = prefix + marker.where.rpartition(":")[0]
                found.setdefault(clause, {}).setdefault(language, set()).add(file)
    return {
        clause: {language: tuple(sorted(files, key=cost)) for language, files in languages.items()}
        for clause, languages in found.items()
    }


def suites(mutant: Mutant, files: dict[Language, tuple[str, ...]]) -> list[Suite]:
    """What can notice the mutation, the cheapest first.

    Tests of the TypeScript SDK talk to a server in Python, so they count for both. The page is tested by itself and,
    through a browser, by tests in Python.
    """
    python = files.get(Language.PYTHON, ())
    match mutant.file.split("/")[0]:
        case "sdk":
            chosen = {Language.SDK: files.get(Language.SDK, ())}
        case "web":
            browser = tuple(file for file in python if file.startswith("tests/browser/"))
            chosen = {Language.PAGE: files.get(Language.PAGE, ()), Language.PYTHON: browser}
        case _:
            chosen = {Language.PYTHON: python, Language.SDK: files.get(Language.SDK, ())}
    return [Suite(language, mutant.clause, names) for language, names in chosen.items() if names]


def data_problems(mutants: Iterable[Mutant], ledger: Ledger, root: Path) -> list[str]:
    """What is wrong with the rows, one sentence each."""
    known = {requirement.id for requirement in ledger.requirements}
    with_tests = files_by_clause(root)
    found: list[str] = []
    seen: set[tuple[str, ...]] = set()
    for mutant in mutants:
        where = f"{mutant.clause} ({mutant.breaks})"
        change = (mutant.clause, mutant.file, mutant.find, mutant.replace)
        if change in seen:
            found.append(f"{where}: another row of the clause has the same change")
        seen.add(change)
        if mutant.clause not in known:
            found.append(f"{where}: {mutant.clause} is not a requirement")
        elif not suites(mutant, with_tests.get(mutant.clause, {})):
            found.append(f"{where}: no test that can notice a change of {mutant.file} carries {mutant.clause}")
        if not mutant.breaks.strip() or mutant.find == mutant.replace:
            found.append(f"{where}: the row changes nothing, or does not say what it breaks")
        if not mutant.file.startswith(MUTATED) or not (root / mutant.file).is_file():
            found.append(f"{where}: {mutant.file} is not a file of the product")
            continue
        try:
            changed = mutant.applied((root / mutant.file).read_text(encoding="utf-8"))
            if mutant.file.endswith(".py"):
                compile(changed, mutant.file, "exec")
        except (ValueError, SyntaxError) as error:
            found.append(f"{where}: {error}")
    return found


def without_mutant(mutants: Iterable[Mutant], ledger: Ledger) -> list[str]:
    """Finished `must` clauses that no mutant tries."""
    tried = {mutant.clause for mutant in mutants} | ledger.diverging()
    finished = (r for r in ledger.requirements if r.level == "must" and any(row.names(r.id) for row in ledger.finished))
    return [requirement.id for requirement in finished if requirement.id not in tried]


def sample(mutants: Sequence[Mutant], size: int, seed: str) -> list[Mutant]:
    """`size` rows that the seed decides, or all when there are no more."""
    return random.Random(seed).sample(mutants, min(size, len(mutants)))


def judged(mutant: Mutant, suite: Suite, mutated: Run, restored: Run | None) -> Verdict | None:
    """What one suite says about a mutant; None when the next suite has to be asked.

    `restored` is the run without the mutation. A single test that failed needs none yet: `confirmed` looks at it.
    """
    if mutated.outcome is None and not mutated.hung:
        return Verdict(mutant, Status.ERROR, f"the tests could not run with the mutation: {mutated.output}")
    if mutated.outcome is not None and mutated.outcome.failed and suite.language is Language.PYTHON:
        killer = mutated.outcome.failed[0]
        return Verdict(mutant, Status.KILLED, f"hangs in {killer}" if mutated.outcome.timed_out else killer, killer)
    if restored is None:
        return None
    if restored.outcome is None or restored.outcome.failed:
        return Verdict(mutant, Status.ERROR, f"the tests fail without the mutation too: {restored.output}")
    return Verdict(mutant, Status.KILLED, f"{'hangs in ' * mutated.hung}{suite.files[0]}")


def confirmed(verdicts: Iterable[Verdict], failing: Set[str]) -> list[Verdict]:
    """The verdicts, without kills by a test that fails when nothing is mutated."""
    wrong = "the test fails without the mutation too: {}"
    return [
        Verdict(verdict.mutant, Status.ERROR, wrong.format(verdict.killer)) if verdict.killer in failing else verdict
        for verdict in verdicts
    ]


def not_killed(mutant: Mutant, runs: Sequence[Run]) -> Verdict:
    """The verdict when no suite failed. A suite that is skipped on this machine might have killed the mutant."""
    if not all(run.outcome is not None and run.outcome.passed for run in runs):
        return Verdict(mutant, Status.SKIPPED, "a suite of the clause is skipped on this machine")
    if mutant.explained:
        return Verdict(mutant, Status.EXPLAINED, mutant.explained)
    return Verdict(mutant, Status.SURVIVED, f"{mutant.file}: {mutant.find!r} became {mutant.replace!r}")


def summary(verdicts: Sequence[Verdict]) -> str:
    """`318 of 320 killed, 2 explained`."""
    counts = Counter(verdict.status for verdict in verdicts)
    others = [f"{counts[status]} {status.value}" for status in Status if status is not Status.KILLED and counts[status]]
    return ", ".join([f"{counts[Status.KILLED]} of {len(verdicts)} killed", *others])


def failures(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts that fail the run."""
    return [verdict for verdict in verdicts if verdict.status in (Status.SURVIVED, Status.ERROR)]


def default_seed(root: Path) -> str:
    """Stands for the committed files: every change tries another sample, every clone the same one. The day where there
    is no git."""
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD^{tree}"], cwd=root, capture_output=True, text=True, timeout=30
    )
    return asked.stdout.strip() or time.strftime("%Y-%m-%d", time.gmtime())
