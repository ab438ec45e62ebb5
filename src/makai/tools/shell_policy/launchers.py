"""Where the program stands that another program runs: `pytest` in `timeout -k 1 5 pytest` or `docker exec app pytest`.

A rule ends inside a launcher unless its own words name that program, so the words before it must be known exactly. Not
here, and so never covered by a `:*`, are launchers that hand their words to a shell (ssh, watch, parallel, su), and
those whose programs take other options than the ones listed by name (busybox).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from makai.tools.shell_policy.option_parsing import OptionList
from makai.tools.shell_policy.programs import SHELLS, WRAPPERS, is_option, program_name


class LauncherUsage(msgspec.Struct, frozen=True, kw_only=True):
    options: str = ""
    """In the notation of `OptionList`."""
    operands: int = 0
    """How many stand before the program, such as the seconds of timeout."""
    takes_assignments: bool = False
    needs_double_dash: bool = False
    """Without `--` its operands are something else than a program."""


_NO_OPTIONS: Final = LauncherUsage()
_CONDA: Final = LauncherUsage(options="-n:p: --name= --prefix= --no-capture-output --live-stream")
_IN_CONTAINER: Final = LauncherUsage(
    options="-itdT -e:u:w: --interactive --tty --detach --no-TTY --env= --user= --workdir=", operands=1
)
_NEW_CONTAINER: Final = LauncherUsage(
    options="-itdT -e:u:w:v:p: --interactive --tty --detach --rm --init --no-deps --env= --user= --workdir= --volume= "
    "--publish= --name= --network= --platform= --entrypoint=",
    operands=1,
)
_CONTAINERS: Final = ("docker", "podman", "nerdctl", "docker compose", "podman compose", "docker-compose")
_LAUNCHERS: Final[Mapping[str, LauncherUsage]] = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh"), LauncherUsage(options="-euxv -o!")),
    **dict.fromkeys(("nohup", "eatmydata", "fakeroot", "tini", "dumb-init", "pnpx"), _NO_OPTIONS),
    "env": LauncherUsage(options="-i -u: --ignore-environment --unset=", takes_assignments=True),
    "timeout": LauncherUsage(
        options="-vfp -s:k: --signal= --kill-after= --preserve-status --foreground --verbose", operands=1
    ),
    "nice": LauncherUsage(options="-# -n: --adjustment="),
    "ionice": LauncherUsage(options="-t -c:n:"),
    "chrt": LauncherUsage(options="-bfior", operands=1),
    "taskset": LauncherUsage(options="-ac", operands=1),
    "setsid": LauncherUsage(options="-cfw --ctty --fork --wait"),
    "stdbuf": LauncherUsage(options="-i:o:e: --input= --output= --error="),
    "time": LauncherUsage(options="-p"),
    "flock": LauncherUsage(options="-nexsu -w: --nonblock --exclusive --shared --wait= --timeout=", operands=1),
    "sudo": LauncherUsage(
        options="-EHnbk -u:g: --user= --group= --preserve-env --non-interactive", takes_assignments=True
    ),
    "doas": LauncherUsage(options="-n -u:"),
    "xargs": LauncherUsage(
        options="-0rtx -n:L:P:I:d:s: --null --no-run-if-empty --max-args= --max-procs= --delimiter="
    ),
    "npx": LauncherUsage(options="-yq --yes --no --no-install --quiet"),
    "bunx": LauncherUsage(options="--bun"),
    "uvx": LauncherUsage(options="-q --quiet --offline"),
    "uv tool run": LauncherUsage(options="-q --quiet --offline"),
    "pipx run": LauncherUsage(options="-q --quiet"),
    "uv run": LauncherUsage(
        options="-qp: --quiet --python= --frozen --locked --no-sync --offline --isolated --no-project --no-dev "
        "--all-extras --all-groups --all-packages --extra= --group= --package="
    ),
    **{f"{name} run": _NO_OPTIONS for name in ("hatch", "rye", "pipenv", "volta", "mise", "turbo", "nx")},
    **{f"{name} exec": _NO_OPTIONS for name in ("bundle", "pyenv", "rbenv", "nodenv", "asdf")},
    **dict.fromkeys(("poetry run", "pdm run"), LauncherUsage(options="-qv --quiet --verbose")),
    **dict.fromkeys(("conda run", "mamba run", "micromamba run"), _CONDA),
    **dict.fromkeys(("direnv exec", "faketime", "setuidgid"), LauncherUsage(operands=1)),
    **dict.fromkeys(("mise exec", "mise x", "opam exec", "stack exec"), LauncherUsage(needs_double_dash=True)),
    **{f"{name} exec": _IN_CONTAINER for name in _CONTAINERS},
    **{f"{name} run": _NEW_CONTAINER for name in _CONTAINERS},
    **dict.fromkeys(("lxc exec", "incus exec"), LauncherUsage(operands=1, needs_double_dash=True)),
    "kubectl exec": LauncherUsage(
        options="-itn:c: --stdin --tty --namespace= --container=", operands=1, needs_double_dash=True
    ),
}
_LAUNCHING_SUBCOMMANDS: Final = frozenset({"run", "exec", "dlx", "shell", "ssh"})
"""Of any program: what follows may be a program, a script or the name of a container in which one runs."""


def launches(words: Sequence[str]) -> bool:
    """Whether a command runs a program, or what may be one, that its words name."""
    name = program_name(words[0])
    return name in WRAPPERS or name in SHELLS or _launching_words(words) is not None


def inner_program(words: Sequence[str], fixed: int) -> int | None:
    """Where the launched program stands, if that is one of the first `fixed` words, which a rule's author wrote."""
    name = program_name(words[0])
    index = _launching_words(words)
    if index is None:
        return None
    launcher = _LAUNCHERS.get(" ".join((name, *words[1:index])))
    if launcher is None:
        return None
    options = OptionList(options=launcher.options).leading(words[index:fixed])
    if options is None:
        return None
    index += options
    has_double_dash = words[index : index + 1] == ["--"]
    index += has_double_dash
    if any(map(is_option, words[index : index + launcher.operands])):
        return None
    index += launcher.operands
    if not has_double_dash and words[index : index + 1] == ["--"]:
        has_double_dash = True
        index += 1
    while launcher.takes_assignments and index < fixed and "=" in words[index]:
        index += 1
    if launcher.needs_double_dash and not has_double_dash:
        return None
    return index if index < fixed and not is_option(words[index]) else None


def _launching_words(words: Sequence[str]) -> int | None:
    """How many words say that something is launched: the program, or the program and its subcommand."""
    name = program_name(words[0])
    for count in (2, 1):
        if count < len(words) and " ".join((name, *words[1 : 1 + count])) in _LAUNCHERS:
            return 1 + count
    if name in WRAPPERS or name in SHELLS:
        return 1
    return next((index + 1 for index, word in enumerate(words) if index and word in _LAUNCHING_SUBCOMMANDS), None)
