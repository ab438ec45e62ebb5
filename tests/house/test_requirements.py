"""The requirement tables agree with the tests, in both directions, and the check that says so works."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tools.requirements import (
    ROOT,
    Choice,
    Divergence,
    Finished,
    Ledger,
    Marker,
    Requirement,
    problems,
    python_markers,
    read_ledger,
    table,
    typescript_markers,
)


def requirement(id: str, level: str = "must", source: str = "000") -> Requirement:
    return Requirement(id=id, source=source, level=level, text="It works.")


def choice(id: str, **fields: str) -> Choice:
    given = {"id": id, "documents": "open", "section": "000 §1", "why": "It is plain."} | fields
    return msgspec.convert(given, Choice)


LEDGER = Ledger(
    requirements=(
        requirement("A-X-001", source="000; choice"),
        requirement("A-X-002", source="000; decision"),
        requirement("A-X-003", "should"),
        requirement("B-001", source="000; decision"),
    ),
    divergences=(Divergence(id="A-X-002", reason="We do better."),),
    finished=(Finished(area="A-X"),),
    markers=(Marker("tests/test_a.py:1", ("A-X-001",)),),
    choices=(choice("A-X-001"),),
)


def test_the_tables_of_this_project_agree_with_its_tests() -> None:
    found = problems(read_ledger(ROOT))

    assert not found, "\n".join(found)


def test_a_finished_area_may_leave_only_a_should_open() -> None:
    assert problems(LEDGER) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"markers": ()}, "A-X-001 is listed as finished, but no test carries it: It works."),
        ({"markers": (*LEDGER.markers, Marker("t.py:7", ("A-X-009",)))}, "t.py:7: A-X-009 is not a requirement"),
        ({"markers": (*LEDGER.markers, Marker("t.py:7", ()))}, "t.py:7: the marker names no requirement"),
        (
            {"divergences": (*LEDGER.divergences, Divergence(id="C-001", reason="no"))},
            "divergences.toml: C-001 is not a requirement",
        ),
        ({"divergences": (Divergence(id="A-X-002", reason=" "),)}, "divergences.toml: A-X-002 has no reason"),
        ({"divergences": LEDGER.divergences * 2}, "divergences.toml: A-X-002 is listed twice"),
        ({"requirements": (*LEDGER.requirements, requirement("B-001"))}, "requirements.toml: B-001 is listed twice"),
        ({"finished": (Finished(area="C"),)}, "finished.toml: C is not an area"),
        (
            {"finished": (Finished(area="A-X", ids=("B-001",)),), "choices": (choice("B-001"),)},
            "finished.toml: B-001 is not a requirement of A-X",
        ),
        (
            {"finished": (Finished(area="B", ids=("B-001",)),), "choices": (choice("B-001"),)},
            "B-001 is listed as finished, but no test carries it: It works.",
        ),
        ({"choices": ()}, "A-X-001 rests on a decision: judge it in choices.toml or divergences.toml"),
        ({"choices": LEDGER.choices * 2}, "choices.toml: A-X-001 is listed twice"),
        ({"choices": (*LEDGER.choices, choice("A-X-002"))}, "choices.toml: A-X-002 is in divergences.toml too"),
        ({"choices": (*LEDGER.choices, choice("C-001"))}, "choices.toml: C-001 is not a requirement"),
        ({"choices": (choice("A-X-001", why=" "),)}, "choices.toml: A-X-001 has no section or no reason"),
        ({"choices": (choice("A-X-001", section=""),)}, "choices.toml: A-X-001 has no section or no reason"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_agree_is_named(changed: dict[str, object], problem: str) -> None:
    assert problems(msgspec.structs.replace(LEDGER, **changed)) == [problem]


def test_the_table_counts_each_requirement_once() -> None:
    assert table(LEDGER).splitlines() == [
        "area  total  covered  left to us  diverging  open  finished",
        "A-X       3        1           1          1     1       yes",
        "B         1        0           0          0     1",
        "all       4        1           1          1     2         3",
    ]


def test_markers_are_found_wherever_pytest_takes_them(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_toy.py").write_text(
        "import pytest\n"
        'pytestmark = [pytest.mark.slow, pytest.mark.req("A-001")]\n'
        '@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.req("A-002", "A-003"))])\n'
        "def test_one(n): ...\n"
        "@pytest.mark.req(IDS)\n"
        "def test_two(): \"pytest.mark.req('A-004')\"\n"
    )

    assert sorted(python_markers(tests), key=lambda marker: marker.where) == [
        Marker("tests/test_toy.py:2", ("A-001",)),
        Marker("tests/test_toy.py:3", ("A-002", "A-003")),
        Marker("tests/test_toy.py:5", ("IDS",)),
    ]


def test_markers_are_found_in_typescript_tests(tmp_path: Path) -> None:
    (tmp_path / "a.test.ts").write_text("test('x', () => {\n  req(\"A-001\", 'A-002');\n  required('A-003');\n});\n")

    assert list(typescript_markers(tmp_path)) == [Marker("a.test.ts:2", ("A-001", "A-002"))]
