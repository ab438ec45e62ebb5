"""ParsedArguments that no list of options describes: the expression of find, programs for sed, awk and jq, formats.

Each function accepts only what it knows. Where programs of one name differ (GNU, busybox, mawk, gawk), what any of
them reads otherwise is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from makai.tools.shell_policy.option_parsing import ParsedArguments


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# find: findutils 4.9 -------------------------------------------------------------------------------------------------

_FIND_ALONE: Final = _names(
    "-print -print0 -ls -prune -empty -true -false -depth -d -mount -xdev -daystart -executable -readable -writable "
    "-nogroup -nouser -noleaf -a -and -o -or -not -quit -warn -nowarn -ignore_readdir_race -noignore_readdir_race "
    "( ) ! , -help -version --help --version"
)
_FIND_WITH_TEXT: Final = _names(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype -size -mtime -mmin "
    "-ctime -cmin -atime -amin -maxdepth -mindepth -perm -user -group -uid -gid -links -inum -fstype -used -regextype "
    "-printf -newermt -newerct -newerat"
)
_FIND_WITH_PATH: Final = _names("-newer -anewer -cnewer -samefile")


def find_expression(words: Sequence[str]) -> ParsedArguments | None:
    """Starting points, then tests and actions; `-exec`, `-delete`, `-fprint` and what is unknown is refused."""
    found, index = ParsedArguments(), 0
    while index < len(words) and (words[index] in ("-H", "-L", "-P") or re.fullmatch(r"-O\d", words[index])):
        found.options[words[index][1:]] = ""
        index += 1
    while index < len(words) and not (words[index].startswith("-") or words[index] in ("(", ")", "!", ",")):
        found.operands.append(words[index])
        found.places.append(index)
        index += 1
    while index < len(words):
        word = words[index]
        index += 1
        if word in _FIND_ALONE:
            continue
        if word == "-follow":
            found.options["L"] = ""
        elif index < len(words) and word in _FIND_WITH_TEXT:
            found.texts.append(words[index])
            index += 1
        elif index < len(words) and word in _FIND_WITH_PATH:
            found.reads.append(words[index])
            index += 1
        else:
            return None
    return found


# sed: GNU sed 4.9, busybox 1.35 --------------------------------------------------------------------------------------

_SED_REGEX: Final = r"(?:\[\^?\]?[^]\\\n/|,:@#]*\]|\\[^\n]|[^][\\\n{end}])*"
_SED_LINE: Final = rf"(?:\d+(?:~\d+)?|\$|/{_SED_REGEX.format(end='/')}/I?)"
_SED_ADDRESS: Final = rf"(?:{_SED_LINE}(?:,(?:\+?\d+|~\d+|{_SED_LINE}))?\s*!?\s*)?"
_SED_SUBSTITUTIONS: Final = "|".join(
    rf"s[{end}]{_SED_REGEX.format(end=end)}[{end}](?:\\[^\n]|[^\\\n{end}])*[{end}][gIip\d]*" for end in "/|,:@#"
)
_SED_COMMAND: Final = re.compile(rf"\s*{_SED_ADDRESS}(?:[pdqnNgGhHxDPl=]|q\s*\d+|{_SED_SUBSTITUTIONS})\s*")
_SED_BETWEEN: Final = re.compile(r"[;\n]\s*")


def sed_script(found: ParsedArguments) -> bool:
    """Lines are printed, deleted and substituted; `e`, `w`, `r` and their flags of `s` are no command here."""
    if not all(_is_sed_script(text) or text.isdecimal() for text in found.texts):
        return False
    return found.has("e expression") or (bool(found.operands) and _is_sed_script(found.operands[0]))


def _is_sed_script(script: str) -> bool:
    position = 0
    while matched := _SED_COMMAND.match(script, position):
        position = matched.end()
        if position == len(script):
            return True
        between = _SED_BETWEEN.match(script, position)
        if between is None:
            return False
        position = between.end()
    return False


# awk: gawk 5.2, mawk 1.3.4, busybox 1.35, one true awk ---------------------------------------------------------------

_AWK_FUNCTIONS: Final = _names(
    "atan2 cos exp gsub gensub index int length log match rand sin split sprintf sqrt srand strftime strtonum sub "
    "substr systime tolower toupper if while for print printf return in exit"
)
_AWK_CALL: Final = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_AWK_REFUSED: Final = re.compile(
    r"[|<>@`\\]|getline|system|close|fflush|func|ARG|ENVIRON|PROCINFO|SYMTAB|FUNCTAB|include|load|nextfile"
)
_AWK_HARMLESS_SIGNS: Final = re.compile(r"\|\||[<>]=|\\[nt\"/.\\|$^*+?()\[\]{}dswb]")


def awk_program(found: ParsedArguments) -> bool:
    """Programs that compute and print: no pipe, no redirection, no function but the known ones, no other input."""
    if not found.operands:
        return False
    program = _AWK_HARMLESS_SIGNS.sub(" ", found.operands[0])
    calls = set(_AWK_CALL.findall(program))
    assigned = (word for word in found.operands[1:] if "=" in word)
    return (
        not _AWK_REFUSED.search(program)
        and "\n" not in program
        and calls <= _AWK_FUNCTIONS
        and not any(assigned)
        and not any(word.startswith("/inet") for word in found.operands)
        and not any(_AWK_REFUSED.search(_AWK_HARMLESS_SIGNS.sub(" ", value)) for value in found.texts)
    )


# grep 3.8 and ripgrep 13 ---------------------------------------------------------------------------------------------


def grep_skips_git(found: ParsedArguments) -> bool:
    return found.options.get("exclude-dir") == ".git"


def rg_skips_hidden(found: ParsedArguments) -> bool:
    """A glob counts more than that a name begins with a dot."""
    return not found.has("hidden u unrestricted g glob iglob")


# jq 1.6 --------------------------------------------------------------------------------------------------------------

_JQ_REFUSED: Final = re.compile(r"\b(?:env|import|include|input_filename|modulemeta|get_search_list)\b|\$ENV|\$__")


def jq_program(found: ParsedArguments) -> bool:
    """Without modules, which are read from files, and without the environment."""
    return bool(found.operands) and not _JQ_REFUSED.search(found.operands[0])


# Builtins of bash 5.2 ------------------------------------------------------------------------------------------------

_PRINTF_FORMAT: Final = re.compile(
    r"(?:[^%]|%%|%[-+ #0']*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?[diouxXeEfFgGaAcsbq]|%\([^()%]*(?:%[A-Za-z][^()%]*)*\)T)*"
)
_TEST_WORDS: Final = _names(
    "-a -b -c -d -e -f -g -h -k -p -r -s -u -w -x -L -N -O -G -S -n -z -o -eq -ne -lt -le -gt -ge -nt -ot -ef ! ( )"
)


def printf_arguments(words: Sequence[str]) -> ParsedArguments | None:
    """bash: `-v` and `%n` assign a variable, PATH for one, and a subscript in its name is evaluated."""
    rest = words[1:] if words[:1] == ["--"] else words
    if not rest or (rest is words and rest[0].startswith("-")) or not _PRINTF_FORMAT.fullmatch(rest[0]):
        return None
    return ParsedArguments(texts=list(rest))


def condition(words: Sequence[str]) -> ParsedArguments | None:
    """bash: `-v` and `-R` evaluate the subscript of a name, with the commands in it."""
    operators = [word for word in words if word.startswith("-")]
    if any(word not in _TEST_WORDS for word in operators) or any("[" in word for word in words):
        return None
    return ParsedArguments(reads=[word for word in words if word not in _TEST_WORDS], texts=list(words))


def any_text(words: Sequence[str]) -> ParsedArguments | None:
    """echo, true and false do nothing with their arguments but print them."""
    return ParsedArguments(texts=list(words))


# Programs with rules of their own ------------------------------------------------------------------------------------

_URL: Final = re.compile(r"(?:https?://)?[A-Za-z0-9][\w.-]*(?::\d+)?(?:[/?#][\w./~%&=?#+:,;@!$*()-]*)?")


def urls(found: ParsedArguments) -> bool:
    """Plain addresses, no `file://`; a value that begins with @ is a file that would be sent."""
    return all(_URL.fullmatch(word) for word in found.operands) and not any("@" in text[:1] for text in found.texts)


def wget_to_output(found: ParsedArguments) -> bool:
    """Otherwise the server chooses the name of the file that is written."""
    outputs = {found.options[name] for name in ("O", "output-document") if name in found.options}
    return outputs <= {"-"} and (bool(outputs) or found.has("spider")) and urls(found)


def date_format(found: ParsedArguments) -> bool:
    """Any operand but a format sets the clock."""
    return all(word.startswith("+") for word in found.operands)


def no_plus(found: ParsedArguments) -> bool:
    """`less +cmd` and `lsof +r` take orders by words that look like operands."""
    return not any(word.startswith("+") for word in found.operands)


def no_response_file(found: ParsedArguments) -> bool:
    """binutils: `@file` stands for the arguments in a file."""
    return not any(word.startswith("@") for word in found.operands)


def tar_list(words: Sequence[str]) -> ParsedArguments | None:
    """`tar -tvf file`; the first word is a cluster also without its dash, and `host:file` is fetched by rsh."""
    if len(words) < 2 or not re.fullmatch(r"-?(?:tv{0,2}f|v{1,2}tf)", words[0]) or ":" in words[1]:
        return None
    if any(word.startswith("-") for word in words[1:]):
        return None
    return ParsedArguments(reads=[words[1]], texts=list(words[2:]))


_SQLITE_OUTPUT: Final = _names("-json -csv -header -noheader -column -line -list -table -markdown -box -html -batch")


def sqlite_query(words: Sequence[str]) -> ParsedArguments | None:
    """In safe mode, which must come first: it takes `.shell`, `writefile()` and ATTACH away, `-readonly` the rest."""
    if sorted(words[:2]) != ["-readonly", "-safe"]:
        return None
    rest = [word for word in words[2:] if word not in _SQLITE_OUTPUT]
    if not 1 <= len(rest) <= 2 or rest[0].startswith("-") or rest[-1].lstrip().startswith(("-", ".")):
        return None
    return ParsedArguments(operands=rest[:1], places=[0], texts=rest[1:])


def lookup_only(found: ParsedArguments) -> bool:
    """`command name` runs it; `command -v name` says where it is."""
    return found.has("v V")


def shows_archive(found: ParsedArguments) -> bool:
    """unzip without one of these options writes files."""
    return found.has("l p v t z")


def has_message(found: ParsedArguments) -> bool:
    """A commit without its message opens an editor."""
    return found.has("m message F file no-edit")


def plain_remote(found: ParsedArguments) -> bool:
    """A remote that is not configured is a folder, whose hooks git runs; so only the usual names of remotes pass."""
    return (not found.operands or found.operands[0] in ("origin", "upstream")) and plain_names(found)


def plain_names(found: ParsedArguments) -> bool:
    """Names of branches: no URL, no `ext::`, no `+` that forces, no `:` that deletes."""
    return all(re.fullmatch(r"[A-Za-z0-9_][\w./-]*", word) for word in found.operands)


def git_formats(found: ParsedArguments) -> bool:
    """`%G`, also with a sign before the letter, and `%(signature)` in a format have git run gpg.program, `%(describe)`
    another git."""
    return not any(re.search(r"%[-+ ]*G|signature|describe", text) for text in found.texts)


def git_lists(found: ParsedArguments) -> bool:
    """`git branch name` and `git tag name` make one; names are patterns only in a list."""
    listed = found.has("l list contains no-contains merged no-merged points-at")
    return (listed or not found.operands) and git_formats(found)


def git_shows_reflog(found: ParsedArguments) -> bool:
    """`git reflog expire` and `delete` are written like a branch."""
    return found.operands[:1] in ([], ["show"]) and git_formats(found)


def git_reads_config(found: ParsedArguments) -> bool:
    """One name is read, a name and a value are written."""
    return found.has("l list") or len(found.operands) == 1


def pages(found: ParsedArguments) -> bool:
    """A page with a slash is a file."""
    return not any("/" in word for word in found.operands)


_PACKAGE: Final = re.compile(r"(?:@[\w.-]+/)?\w[\w.-]*(?:@[\w^~][\w.^~-]*)?")
_ARCHIVE: Final = re.compile(r"\.(?:tgz|tbz2?|txz|tar(?:\.\w+)?|zip|whl|egg|gem|conda|phar)$", re.IGNORECASE)


def is_package(word: str) -> bool:
    """A name in a registry; a folder, an address or an archive, as a version too, is something else."""
    return _PACKAGE.fullmatch(word) is not None and _ARCHIVE.search(word) is None


def packages(found: ParsedArguments) -> bool:
    return all(map(is_package, found.operands))


def script(words: Sequence[str], flags: frozenset[str]) -> ParsedArguments | None:
    """`python [-u] file.py words`: a file below the current folder, and no options for it, for they are not known."""
    options = [word for word in words if word.startswith("-")]
    operands = [word for word in words if not word.startswith("-")]
    if words and set(words) <= {"--version", "-V", "--help"}:
        return ParsedArguments()
    if not operands or any(word not in flags for word in options) or list(words[: len(options)]) != options:
        return None
    if operands[0].startswith("/dev/") or not all(re.fullmatch(r"[\w./,+-]+", word) for word in operands):
        return None
    return ParsedArguments(operands=operands, places=list(range(len(options), len(words))))


def single_dash(words: Sequence[str], flags: frozenset[str], values: frozenset[str]) -> ParsedArguments | None:
    """The options of Go programs: one or two dashes, no clusters, a value after `=` or in the next word."""
    found, index = ParsedArguments(), 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not word.startswith("-"):
            found.operands.append(word)
            found.places.append(index - 1)
        elif name in values and (equals or index < len(words)):
            found.texts.append(value if equals else words[index])
            index += not equals
        elif name not in flags or equals:
            return None
    return found


def targets(found: ParsedArguments) -> bool:
    """`make VAR=value` gives make another shell or program."""
    return not any("=" in word or ":" in word for word in found.operands)
