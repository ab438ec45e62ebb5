"""The shape of the code: sizes, unique names and imports."""

from __future__ import annotations

import ast
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/makai"
OTHER_LANGUAGES = ("web/src/**/*", "sdk/**/*.ts")
NOT_OURS = frozenset({"node_modules", "dist"})
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MEDIAN_FILE_LINES = (120, 250)
MAX_LINES = {"src/makai": 104_600, "tests": 118_200}
"""A ratchet: raise it for a new ability only, by what that needs, and lower it when code goes."""
SIDEWAYS = {"transports": {"sessions", "providers"}, "sessions": {"transports"}, "providers": {"transports"}}
"""Folders that may not know each other, although the order of layers would allow it: `server` joins them."""


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name. A package has the name of its folder."""
    found: dict[str, ast.Module] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(("makai", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module, known: Mapping[str, object]) -> set[str]:
    """Modules of the package that running this code may import, in functions too; not those for type checkers only."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        match waiting.pop():
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=instead):
                waiting += instead
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                submodules = {f"{module}.{alias.name}" for alias in names} & known.keys()
                found |= submodules or {module}
            case node:
                waiting += ast.iter_child_nodes(node)
    return found & known.keys()


def cycles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> Iterator[list[str]]:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                yield from visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[-len(group) :]
            if len(group) > 1:
                yield sorted(group)

    for name in graph:
        if name not in index:
            yield from visit(name)


def test_no_source_file_is_longer_than_500_lines() -> None:
    others = [path for pattern in OTHER_LANGUAGES for path in ROOT.glob(pattern) if path.is_file()]
    files = [*PACKAGE.rglob("*.py"), *(path for path in others if NOT_OURS.isdisjoint(path.relative_to(ROOT).parts))]

    assert {str(path.relative_to(ROOT)): lines(path) for path in files if lines(path) > MAX_FILE_LINES} == {}


def test_the_median_file_is_neither_a_fragment_nor_a_heap() -> None:
    median = statistics.median(lines(path) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")

    assert MEDIAN_FILE_LINES[0] <= median <= MEDIAN_FILE_LINES[1]


def test_the_code_stays_within_its_budget() -> None:
    sizes = {folder: sum(map(lines, (ROOT / folder).rglob("*.py"))) for folder in MAX_LINES}

    assert {folder: size for folder, size in sizes.items() if size > MAX_LINES[folder]} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    long = {
        f"{name}.{node.name}": size
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if (size := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    }

    assert long == {}


def test_public_class_names_are_unique() -> None:
    found = defaultdict[str, list[str]](list)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)

    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_no_modules_import_each_other_even_inside_functions() -> None:
    known = modules()
    graph = {name: imported(tree, known) - {name} for name, tree in known.items()}

    assert list(cycles(graph)) == []


def test_transports_do_not_know_sessions_or_providers_and_the_other_way_round() -> None:
    known = modules()
    found = {
        name: sorted(wrong)
        for name, tree in known.items()
        if (folder := name.split(".")[1] if "." in name else "") in SIDEWAYS
        if (wrong := {target for target in imported(tree, known) if target.split(".")[1] in SIDEWAYS[folder]})
    }

    assert found == {}


def test_the_search_for_cycles_finds_them() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set[str]()}

    assert list(cycles(graph)) == [["a", "b", "c"]]
