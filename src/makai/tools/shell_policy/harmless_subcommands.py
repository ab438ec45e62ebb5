"""The harmless options of programs with subcommands: git 2.39, npm 9, cargo 1.7x, go 1.2x, pytest 7 and the like.

The same notation and the same rules as `harmless_options`. A key is one subcommand or two; what has no row is asked
about. Values of git's long options count as words of their own where git takes them detached: that is the stricter
reading, and `trusts_double_dash` is False for it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from makai.tools.shell_policy import option_checks as checks
from makai.tools.shell_policy.option_parsing import OptionList


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DIFF_OPTIONS: Final = (
    "-puswbzaRDW -U?M?B?C?l?I?X? -S:G: --patch --no-patch --stat? --shortstat --numstat --name-only --name-status "
    "--summary --raw --dirstat? --compact-summary --patch-with-stat --patch-with-raw --no-textconv --no-ext-diff "
    "--no-color --color? --word-diff? --color-words? --color-moved? --no-color-moved --ignore-space-change "
    "--ignore-all-space --ignore-space-at-eol --ignore-cr-at-eol --ignore-blank-lines --find-renames? --find-copies? "
    "--find-copies-harder --no-renames --diff-filter? --diff-algorithm? --minimal --patience --histogram "
    "--indent-heuristic --unified? --full-index --abbrev? --relative? --no-relative --no-prefix --src-prefix? "
    "--dst-prefix? --inter-hunk-context? --function-context --text --exit-code --quiet --check --pickaxe-regex "
    "--pickaxe-all --ws-error-highlight? --stat-width? --stat-count? --stat-name-width? --binary --cc "
    "--ignore-submodules? --line-prefix?"
)
_REVISION_OPTIONS: Final = (
    "-cmrtiEFPg# -n: --max-count? --skip? --since? --after? --until? --before? --author? --committer? --grep? "
    "--grep-reflog? --all --branches? --tags? --remotes? --first-parent --merges --no-merges --reverse --topo-order "
    "--date-order --author-date-order --cherry --cherry-pick --cherry-mark --left-right --left-only --right-only "
    "--ancestry-path? --no-walk? --full-history --simplify-by-decoration --simplify-merges --all-match --invert-grep "
    "--regexp-ignore-case --extended-regexp --fixed-strings --perl-regexp --basic-regexp --children --parents "
    "--boundary --walk-reflogs --reflog --glob? --exclude? --not --date? --format? --pretty? --oneline --abbrev-commit "
    "--no-abbrev-commit --min-parents? --max-parents? --relative-date --merge --count"
)
_LOG_OPTIONS: Final = (
    f"{_DIFF_OPTIONS} {_REVISION_OPTIONS} -L: -q --graph --no-graph --decorate? --no-decorate --follow --full-diff "
    "--source --show-pulls --no-notes --notes? --combined-all-paths --diff-merges? --log-size --show-linear-break? "
    "--mailmap --use-mailmap --encoding? --decorate-refs? --decorate-refs-exclude?"
)

_git = functools.partial(OptionList, trusts_double_dash=False)
_looks = functools.partial(_git, looks=True)
_LOG: Final = _looks(options=_LOG_OPTIONS, clusters=False, check=checks.git_formats)
_DIFF: Final = _looks(
    options=f"{_DIFF_OPTIONS} -q012 --cached --staged --merge-base --ours --theirs --base -r -t", clusters=False
)
_REFS: Final = (
    "--list --contains= --no-contains= --merged= --no-merged= --points-at= --sort= --format= --column? --no-column "
    "--color? --no-color -i --ignore-case"
)
"""With exact values, for `git branch --sort --list name` sorts by `--list` and makes a branch."""
GIT: Final[Mapping[str, OptionList]] = {
    **dict.fromkeys(("log", "show", "stash list", "stash show", "whatchanged"), _LOG),
    **dict.fromkeys(("diff", "diff-tree", "diff-index", "diff-files"), _DIFF),
    "reflog": _looks(options=_LOG_OPTIONS, clusters=False, check=checks.git_shows_reflog),
    "rev-list": _looks(
        options=f"{_REVISION_OPTIONS} --objects --timestamp --header", clusters=False, check=checks.git_formats
    ),
    "shortlog": _looks(
        options="-nsec -w? --numbered --summary --email --committer --group? --since? --until? --after? --before? "
        "--author? --all --no-merges --format? --grep?",
        check=checks.git_formats,
    ),
    "status": _looks(
        options="-sbz -u? --short --branch --porcelain? --long --untracked-files? --ignored? --ignore-submodules? "
        "--show-stash --ahead-behind --no-ahead-behind --renames --no-renames --column? --no-column",
        names_only=True,
    ),
    "ls-files": _looks(
        options="-cdmosiutvfkz -x: --cached --deleted --modified --others --ignored --stage --unmerged --full-name "
        "--exclude? --exclude-standard --error-unmatch --abbrev? --deduplicate --eol --directory --no-empty-directory",
        names_only=True,
        recursive="*",
    ),
    "ls-tree": _looks(
        options="-drtlz --name-only --name-status --full-name --full-tree --long --abbrev? --object-only",
        names_only=True,
        recursive="*",
    ),
    "blame": _looks(
        options="-lswtfnebpck -M?C? -L: --porcelain --line-porcelain --show-email --show-name --show-number --root "
        "--show-stats --date? --since? --abbrev? --first-parent --color-lines --color-by-age --minimal",
    ),
    "annotate": _looks(options="-lt -L:"),
    "grep": _looks(
        options="-nilcwvEFPGhHaIopqrLWz# -e:A:B:C:m: --cached --untracked --text --ignore-case --word-regexp "
        "--invert-match --full-name --extended-regexp --basic-regexp --fixed-strings --perl-regexp --line-number "
        "--files-with-matches --name-only --files-without-match --count --max-depth? --break --heading --column "
        "--color? --no-color --show-function --function-context --context? --after-context? --before-context? --and "
        "--or --not --all-match --quiet --threads? --recursive --no-recursive --only-matching --null",
        operands="pattern",
        pattern_options="e",
    ),
    "describe": _looks(
        options="--tags --all --long --always --abbrev? --dirty? --contains --match? --exact-match --candidates? "
        "--first-parent --exclude?",
        operands="text",
        asks_to_look="dirty",  # it writes the index
        names_only=True,
    ),
    "rev-parse": _looks(
        options="-q --short? --abbrev-ref? --show-toplevel --verify --quiet --git-dir --git-common-dir "
        "--absolute-git-dir --is-inside-work-tree --is-inside-git-dir --is-bare-repository --is-shallow-repository "
        "--symbolic --symbolic-full-name --all --branches? --tags? --remotes? --show-prefix --show-cdup "
        "--show-object-format? --since? --until?",
        operands="text",
        names_only=True,
    ),
    "merge-base": _looks(
        options="-a --all --is-ancestor --fork-point --octopus --independent", operands="text", names_only=True
    ),
    "name-rev": _looks(options="--tags --name-only --always", operands="text", names_only=True),
    "cat-file": _looks(options="-tspe", operands="text"),
    "show-ref": _looks(
        options="-dsq --head --heads --tags --dereference --hash? --verify --quiet --abbrev?",
        operands="text",
        names_only=True,
    ),
    "show-branch": _looks(options="-ar --all --remotes --list --current", operands="text", names_only=True),
    "for-each-ref": _looks(
        options=f"{_REFS} --count= --exclude=", operands="text", names_only=True, check=checks.git_formats
    ),
    "branch": _looks(
        options=f"{_REFS} -arv --all --remotes --verbose --show-current --abbrev? --no-abbrev",
        operands="text",
        names_only=True,
        check=checks.git_lists,
    ),
    "tag": _looks(options=f"{_REFS} -l -n?", operands="text", names_only=True, check=checks.git_lists),
    "remote": _looks(options="-v --verbose", max_operands=0, names_only=True, shows_addresses="v verbose"),
    "remote get-url": _looks(options="--all --push", operands="text", names_only=True, shows_addresses="*"),
    "worktree list": _looks(options="-vz --porcelain", max_operands=0, names_only=True),
    "config": _looks(
        options="-lz --list --get --get-all --get-regexp --show-origin --show-scope --name-only --local --global "
        "--system --worktree --includes --null --bool --int --path --type?",
        operands="text",
        max_operands=1,
        check=checks.git_reads_config,
        asks_to_look="global system includes",
        must_have_to_look="local worktree",  # the user's own configuration may hold tokens
        shows_addresses="*",
    ),
    "config get": _git(options="--all --show-origin --local", operands="text", max_operands=1),
    "config list": _git(options="--show-origin --local", operands="text", max_operands=0),
    "check-ignore": _looks(options="-vqn --verbose --quiet --non-matching", names_only=True),
    "count-objects": _looks(options="-vH --verbose --human-readable", max_operands=0, names_only=True),
    "version": _looks(options="", max_operands=0, names_only=True),
    # Subcommands that change something, for rules that name them. Hooks are the repository's own, and read-only.
    "add": _git(
        options="-Aunvf --all --update --verbose --dry-run --force --ignore-errors --no-all --intent-to-add -N",
        operands="text",
    ),
    "commit": _git(
        options="-aqvsoi -m: -F< --all --message= --quiet --verbose --signoff --file< --amend --no-edit --allow-empty "
        "--author= --date= --only --include --dry-run --short --reset-author",
        operands="text",
        check=checks.has_message,
    ),
    "push": _git(
        options="-uqvn --set-upstream --quiet --verbose --dry-run --tags --follow-tags --porcelain",
        operands="text",
        check=checks.plain_remote,
    ),
    "fetch": _git(
        options="-pqvt --prune --quiet --verbose --tags --all --dry-run --no-tags",
        operands="text",
        check=checks.plain_remote,
    ),
    "pull": _git(
        options="-qv --ff-only --rebase --no-rebase --prune --quiet --tags", operands="text", check=checks.plain_remote
    ),
    "checkout": _git(options="-q -b:B: --quiet --no-track --detach", operands="write"),
    "switch": _git(options="-q -c:C: --quiet --create= --no-track --detach -d", operands="text"),
    "merge": _git(
        options="-q --ff-only --no-ff --ff --no-edit --quiet --abort --squash",
        operands="text",
        check=checks.plain_names,
    ),
    "restore": _git(options="-SWq --staged --worktree --quiet", operands="write"),
    "reset": _git(options="-q --quiet --soft --mixed", operands="text"),
    "stash": _git(options="-uq --include-untracked --quiet --keep-index", max_operands=0),
    "stash push": _git(options="-uq -m: --include-untracked --quiet --keep-index --message=", operands="text"),
    "rm": _git(options="-rfnq --cached --force --dry-run --quiet", operands="write"),
    "mv": _git(options="-fkvn --force --dry-run --verbose", operands="write"),
}
GIT_LEADING: Final = frozenset({"--no-pager", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"})
"""What may stand before the subcommand: `-c` and `-C` name any program or another repository."""

_VERSION: Final = OptionList(options="-v --version --help", operands="text", max_operands=0)
_SCRIPTS: Final[Mapping[str, OptionList]] = {
    "test": OptionList(options="-s --silent --if-present", operands="text", max_operands=0),
    **dict.fromkeys(  # bun also runs a file
        ("run", "run-script"), OptionList(options="-s --silent --if-present", operands="run", max_operands=1)
    ),
    **dict.fromkeys(
        ("ls", "list"),
        OptionList(options="-al --all --long --json --parseable --depth= --omit= --prod --dev", operands="text"),
    ),
    **dict.fromkeys(("root", "prefix", "bin"), OptionList(operands="text", max_operands=0)),
    "explain": OptionList(options="--json", operands="text", check=checks.packages),
    "why": OptionList(operands="text", check=checks.packages),
    **dict.fromkeys(
        ("install", "i", "add", "ci"),
        OptionList(
            options="-DEPO --save-dev --save-exact --save --no-save --ignore-scripts --legacy-peer-deps --no-audit "
            "--no-fund --silent --frozen-lockfile",
            operands="text",
            check=checks.packages,
        ),
    ),
    "pkg get": OptionList(operands="text"),
}
_CARGO_BUILD: Final = OptionList(
    options="-qvr -p:j: --release --lib --bins --bin= --tests --test= --examples --example= --benches --all "
    "--workspace --all-targets --all-features --no-default-features --features= --package= --quiet --verbose --locked "
    "--offline --frozen --no-run --no-fail-fast --doc --message-format= --keep-going",
    operands="text",
    trusts_double_dash=False,
)
_CARGO: Final[Mapping[str, OptionList]] = {
    **dict.fromkeys(("build", "b", "check", "c", "test", "t", "clippy", "run", "bench", "doc"), _CARGO_BUILD),
    "fmt": OptionList(options="-v --all --check --quiet", operands="text", max_operands=0),
    "tree": OptionList(options="-de -p:i: --duplicates --depth= --edges= --all-features --package=", operands="text"),
    "version": _VERSION,
}
_GO_FLAGS: Final = _names("v race cover short failfast json work trimpath a m u compiled deps test find")
_GO_VALUES: Final = _names("run skip bench count timeout parallel cpu tags p benchtime f")
_GO_RUN: Final = OptionList(
    reader=functools.partial(checks.single_dash, flags=_GO_FLAGS, values=_GO_VALUES), operands="text"
)
_GO: Final[Mapping[str, OptionList]] = {
    **dict.fromkeys(("test", "build", "vet", "list", "fmt"), _GO_RUN),
    "version": _VERSION,
}
_RUFF: Final[Mapping[str, OptionList]] = {
    "check": OptionList(
        options="-qvsneh --fix --diff --no-cache --statistics --select= --ignore= --extend-select= --output-format= "
        "--show-files --exit-zero --preview --line-length= --quiet",
        operands="run",
    ),
    "format": OptionList(options="-qvsnh --check --diff --no-cache --line-length= --preview --quiet", operands="run"),
}
_PYTEST: Final = OptionList(
    options="-qvxslh -k:m:n:r: --lf --last-failed --ff --failed-first --nf --sw --stepwise --maxfail= --tb= "
    "--durations= --co --collect-only --no-header --no-summary --quiet --verbose --exitfirst --timeout= --dist= "
    "--color= --version --show-capture= --strict-markers",
    operands="run",
)
_PYTHON: Final = OptionList(
    reader=functools.partial(checks.script, flags=_names("-u -B -E -s -S -I -O -q -P")), operands="run"
)
_SCRIPT: Final = OptionList(reader=functools.partial(checks.script, flags=frozenset()), operands="run")

SUBCOMMANDS: Final[Mapping[str, Mapping[str, OptionList]]] = {
    "git": {**GIT, "": OptionList(options="--version", max_operands=0, looks=True, names_only=True)},
    **{name: {**_SCRIPTS, "": _VERSION} for name in ("npm", "pnpm", "yarn", "bun")},
    "cargo": {**_CARGO, "": OptionList(options="-V --version --list", max_operands=0)},
    "go": _GO,
    "deno": {**dict.fromkeys(("run", "test", "check", "lint", "fmt"), _SCRIPT), "": _VERSION},
    "ruff": {**_RUFF, "": _VERSION},
}
"""By program, then by subcommand; "" is the program without one."""
TOOLS: Final[Mapping[str, OptionList]] = {
    **dict.fromkeys(("pytest", "py.test"), _PYTEST),
    "python": _PYTHON,
    **dict.fromkeys(
        ("node", "ruby", "perl", "php", "lua", "luajit", "Rscript", "julia", "tclsh", "pypy"),
        _SCRIPT,
    ),
    "make": OptionList(
        options="-kswBin -j?l? --silent --quiet --keep-going --jobs? --dry-run --always-make --no-print-directory "
        "--version",
        operands="text",
        check=checks.targets,
    ),
    "mypy": OptionList(
        options="-v -p:m: --strict --pretty --show-error-codes --ignore-missing-imports --no-error-summary --version",
        operands="run",
    ),
    # Linters and test runners obey configuration files of the project: that is what a rule for them allows.
    "isort": OptionList(options="-qvc --check-only --diff --profile= --quiet --version", operands="run"),
    "flake8": OptionList(
        options="-qv --select= --ignore= --extend-ignore= --max-line-length= --count --statistics", operands="run"
    ),
    "pylint": OptionList(options="-E -j: --errors-only --disable= --enable= --score= --version", operands="run"),
    "tsc": OptionList(options="-v --noEmit --pretty --strict --skipLibCheck --listFiles --version", operands="run"),
    "eslint": OptionList(options="--fix --quiet --ext= --max-warnings= --no-color --version", operands="run"),
    "prettier": OptionList(options="-cwl --check --write --list-different --version", operands="run"),
    "jest": OptionList(
        options="-i -t:w: --runInBand --testNamePattern= --maxWorkers= --silent --verbose --bail --ci --coverage "
        "--passWithNoTests --version",
        operands="run",
    ),
    "vitest": OptionList(options="-t: --run --coverage --reporter= --testNamePattern= --version", operands="run"),
    "black": OptionList(options="-qv -l: --check --diff --quiet --line-length= --version", operands="run"),
}
SAY_THEIR_VERSION: Final = _names(
    "bash clang cmake curl docker fd g++ gcc git java javac jq kubectl make node npm perl php pip python ruby rg "
    "sqlite3 tar wget"
)
"""`--version` alone prints and ends, whatever else the program can do. Not those that a file of the project can replace
even then: yarn by `.yarnrc`, cargo and rustc by `rust-toolchain.toml`, pytest by `addopts`."""
