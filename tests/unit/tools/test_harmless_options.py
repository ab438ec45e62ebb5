"""The lists of harmless options: only exact names pass, and values stand where the programs look for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from makai.tools.shell_policy.coverage import is_harmless
from makai.tools.shell_policy.harmless_options import HARMLESS
from makai.tools.shell_policy.harmless_subcommands import SUBCOMMANDS, TOOLS
from makai.tools.shell_policy.option_parsing import OptionList, compiled

CLEAR = OptionList(options="-ab -c:d? -L! -f<t> -# --flag --value= --maybe? --file< --into> --pair==")


def rows() -> Iterator[tuple[tuple[str, ...], OptionList]]:
    """Every listed program, with its subcommand."""
    for name, usage in {**HARMLESS, **TOOLS}.items():
        yield (name,), usage
    for program, subcommands in SUBCOMMANDS.items():
        for subcommand, usage in subcommands.items():
            yield (program, *subcommand.split()), usage


def known(usage: OptionList) -> tuple[set[str], set[str]]:
    short, long = compiled(usage.options)
    return set(short), set(long)


BY_OPTIONS = [pytest.param(words, usage, id=" ".join(words)) for words, usage in rows() if usage.reader is None]


@pytest.mark.parametrize(("words", "usage"), BY_OPTIONS)
def test_an_option_that_is_not_listed_is_asked_about(words: tuple[str, ...], usage: OptionList) -> None:
    short, long = known(usage)
    unknown = [f"-{letter}" for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in short]
    unknown += ["--unknown", "--unknown=x", *(f"--no-{name}" for name in long if f"no-{name}" not in long)]

    assert [option for option in unknown if is_harmless([*words, option, "x"], len(words))] == []


@pytest.mark.parametrize(("words", "usage"), BY_OPTIONS)
def test_a_prefix_of_an_option_is_asked_about(words: tuple[str, ...], usage: OptionList) -> None:
    _, long = known(usage)
    prefixes = {name[:end] for name in long for end in range(1, len(name))} - long

    assert [prefix for prefix in prefixes if is_harmless([*words, f"--{prefix}", "x"], len(words))] == []
    assert [prefix for prefix in prefixes if is_harmless([*words, f"--{prefix}=x"], len(words))] == []


@pytest.mark.parametrize(
    ("text", "options", "operands", "reads", "writes"),
    [
        ("-ab x", {"a": "", "b": ""}, ["x"], ["x"], []),
        ("-acv x", {"a": "", "c": "v"}, ["x"], ["x"], []),
        ("-ac v x", {"a": "", "c": "v"}, ["x"], ["x"], []),
        ("-c -a x", {"c": "-a"}, ["x"], ["x"], []),
        ("-dv x", {"d": "v"}, ["x"], ["x"], []),
        ("-d v", {"d": ""}, ["v"], ["v"], []),
        ("-L v x", {"L": "v"}, ["x"], ["x"], []),
        ("-f g -th x", {"f": "g", "t": "h"}, ["x"], ["g", "x"], ["h"]),
        ("-12 x", {}, ["x"], ["x"], []),
        ("x --flag", {"flag": ""}, ["x"], ["x"], []),
        ("--value=a --value b x", {"value": "b"}, ["x"], ["x"], []),
        ("--maybe x --maybe=y", {"maybe": "y"}, ["x"], ["x"], []),
        ("--file g --into=h", {"file": "g", "into": "h"}, [], ["g"], ["h"]),
        ("--pair a b x", {"pair": "b"}, ["x"], ["x"], []),
        ("-a -- -b --flag", {"a": ""}, ["-b", "--flag"], ["--flag", "-b"], []),
        ("-c -- -b", {"c": "--", "b": ""}, [], [], []),
        ("- x", {}, ["-", "x"], ["-", "x"], []),
    ],
)
def test_values_stand_where_the_program_looks_for_them(
    text: str, options: dict[str, str], operands: list[str], reads: list[str], writes: list[str]
) -> None:
    found = CLEAR.read(text.split())

    assert found is not None
    assert (found.options, found.operands, sorted(found.reads), found.writes) == (options, operands, reads, writes)


@pytest.mark.parametrize(
    "text", ["-z", "-az", "-c", "-aL v", "-La v", "--flag=x", "--value", "--fla", "--pair a", "-1a", "--", "-x -- -z"]
)
def test_what_cannot_be_read_for_certain_is_refused(text: str) -> None:
    found = CLEAR.read(text.split())

    assert found is None or text == "--"


def test_an_option_after_an_operand_counts_only_where_the_program_takes_it() -> None:
    stops = OptionList(options="-a", options_first=True, max_operands=1)

    assert stops.read(["-a", "x"]) is not None
    assert [stops.read(words) for words in (["x", "-a"], ["x", "y"], ["x", "--", "-a"])] == [None] * 3
    assert OptionList(options="-a", trusts_double_dash=False).read(["--", "-a"]) is None


def test_the_lists_cover_more_than_eighty_programs_and_subcommands() -> None:
    assert len({words[0] for words, _ in rows()}) >= 80
    assert len(list(rows())) >= 150
