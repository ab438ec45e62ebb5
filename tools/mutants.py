"""Mutants: for each clause of the specification, small changes of the code that the tests of the clause must notice.

    python -m tools.mutants                      all rows of tests/mutants
    python -m tools.mutants --clause MK-ENV-005  the rows of a clause, `--area MK-ENV` those of an area
    python -m tools.mutants --sample 30          another sample for each commit

Each row is applied by itself to a copy of the working tree, then the tests that carry the clause's id run. A failing
test kills the mutant when it passes without the mutation. A mutant that survives fails the run, unless its row explains
why nothing can notice it.

Each worker has one copy of what git would commit, with uncommitted changes, and an environment whose `makai` is that
copy, so that servers and commands which the tests start are mutated too. A copy stays warm: between mutants only the
changed file is restored. All copies and processes are gone when `judge_all` ends, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import IO

import msgspec

from tools.clause_tests import Outcome
from tools.mutant_rows import (
    Language,
    Mutant,
    Run,
    Status,
    Suite,
    Verdict,
    confirmed,
    default_seed,
    failures,
    files_by_clause,
    judged,
    not_killed,
    read_mutants,
    sample,
    suites,
    summary,
)
from tools.pytest_forks import Asked, Ended
from tools.requirements import ROOT, area_of

TEST_TIMEOUT_S = 60
SUITE_TIMEOUT_S = 300
BUILD_TIMEOUT_S = 180
LINKED = ("sdk/typescript/node_modules", "web/node_modules", "tests/oauth/node_modules", "tests/acp_sdks/node_modules")
PAGE = "src/makai/server/page"
DROPPED_VARIABLES = ("PYTEST_", "MAKAI_FAULTS", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "COVERAGE_", "COV_CORE_")


class Processes:
    """The programs that run now, each with its own process group, so that all can be ended at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._answering: list[subprocess.Popen[bytes]] = []
        self._closed = False

    def run(self, command: Sequence[str], folder: Path, timeout_s: float, **variables: str) -> tuple[int | None, str]:
        """The exit code, None after the timeout, and the end of what the program wrote."""
        with tempfile.TemporaryFile() as output:
            with self._lock:
                if self._closed:
                    return None, "ended"
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=_environ() | variables,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
                with self._lock:
                    self._running.discard(process)
            return code, _tail(output)

    def start(self, command: Sequence[str], folder: Path, **variables: str) -> subprocess.Popen[bytes] | None:
        """A program that answers on its pipes until `close`; None after it."""
        with self._lock:
            if self._closed:
                return None
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=_environ() | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._answering.append(process)
            return process

    def close(self) -> None:
        """End every program, and start no more."""
        with self._lock:
            self._closed = True
            for process in self._running:
                _end(process)
            for process in self._answering:
                assert process.stdin is not None
                with suppress(OSError):
                    process.stdin.close()  # it ends what it started, then itself
            for process in self._answering:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                _end(process)
                assert process.stdout is not None
                process.stdout.close()


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(DROPPED_VARIABLES)}


def _tail(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - 3000))
    return output.read().decode(errors="replace").strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the program with its whole group; what it started may still run after it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Tree:
    """A copy of the working tree with its own environment. One thread uses it at a time."""

    def __init__(self, root: Path, folder: Path, processes: Processes) -> None:
        self._root = root
        self._folder = folder
        self._processes = processes
        self._changes = count(1)
        self._built = ""
        self._forks: subprocess.Popen[bytes] | None = None
        _copy(root, folder)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True, timeout=60)
        self.python = folder / ".venv" / "bin" / "python"
        packages = [path for path in sys.path if path.endswith("site-packages")]
        lines = [str(folder / "src"), *(f"import site; site.addsitedir({path!r})" for path in packages)]
        (_packages(folder / ".venv") / "mutant.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Apply a row, and restore the file.

        Every mutation has a modification time of its own: compiled files are found by it, and only to the second.
        """
        path = self._folder / mutant.file
        before = path.stat()
        text = path.read_text(encoding="utf-8")
        path.write_text(mutant.applied(text), encoding="utf-8")
        os.utime(path, (before.st_atime, before.st_mtime + 10 * next(self._changes)))
        self._built = ""
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, (before.st_atime, before.st_mtime))
            self._built = ""
            if mutant.file.startswith("web/"):
                _copy_page(self._root, self._folder)

    def run(self, suite: Suite, mutant: Mutant) -> Run:
        """Run tests, after a build where the tests run what was built. Stops at the first failure. Without what `npm`
        installs, tests that need it are skipped."""
        needed = "sdk/typescript" if suite.language is Language.SDK else "web"
        needs_npm = suite.language is not Language.PYTHON or mutant.file.startswith("web/")
        if needs_npm and not (self._folder / needed / "node_modules").exists():
            return Run(Outcome(skipped=1))
        match suite.language:
            case Language.PYTHON:
                broken = self._page() if mutant.file.startswith("web/") else None
                return broken or self._pytest(suite)
            case Language.SDK:
                return self._sdk() or self._node(suite)
            case Language.PAGE:
                names = [str(Path(file).relative_to("web")) for file in suite.files]
                command = ["node", "node_modules/vitest/vitest.mjs", "run", "--reporter=tap-flat", "-t", suite.clause]
                return self._tap([*command, *names], "web", suite)

    def _pytest(self, suite: Suite) -> Run:
        return self._tested(["-x", "--clause", suite.clause, *suite.files], SUITE_TIMEOUT_S)

    def failing(self, names: Sequence[str]) -> set[str]:
        """Which of these tests do not pass. One that fails beside the others has another chance by itself."""
        if not names:
            return set()
        together = self._tested(names, SUITE_TIMEOUT_S + len(names)).outcome
        suspects = names if together is None else together.failed
        alone = {name: self._tested([name], SUITE_TIMEOUT_S).outcome for name in suspects}
        return {name for name, outcome in alone.items() if outcome is None or outcome.failed}

    def _tested(self, selection: Sequence[str], timeout_s: float) -> Run:
        told = self._folder / "outcome.json"
        told.unlink(missing_ok=True)
        options = ["-q", "-n0", "-p", "no:cacheprovider", "--assert=plain", "--hypothesis-seed=0"]
        options += ["-p", "tools.clause_tests", "--outcome", str(told), f"--timeout={TEST_TIMEOUT_S}"]
        code, output = self._forked([*options, *selection], timeout_s)
        outcome = msgspec.json.decode(told.read_bytes(), type=Outcome) if told.exists() else None
        # 2: a file of tests could not be imported, 5: no tests. A process that ends badly after a failure had its say.
        if code in (0, 1) or (outcome is not None and outcome.failed):
            return Run(outcome, output=output)
        return Run(None, hung=code is None, output=output)

    def _forked(self, arguments: list[str], timeout_s: float) -> tuple[int | None, str]:
        """Run pytest in a fork of a process that has its imports."""
        if self._forks is None or self._forks.poll() is not None:
            command = [str(self.python), "-m", "tools.pytest_forks"]
            self._forks = self._processes.start(command, self._folder, MAKAI_TEST_SEED="0")
        if self._forks is None or self._forks.stdin is None or self._forks.stdout is None:
            return None, "ended"
        written = self._folder / "output.txt"
        self._forks.stdin.write(msgspec.json.encode(Asked(tuple(arguments), str(written), timeout_s)) + b"\n")
        self._forks.stdin.flush()
        answer = self._forks.stdout.readline()
        with written.open("rb") as output:
            return msgspec.json.decode(answer, type=Ended).code if answer else 3, _tail(output)

    def _sdk(self) -> Run | None:
        """Compile the SDK with its tests, unless that is done. An SDK that does not compile is no mutant; tests that do
        not compile against it have noticed it, because some of them are about types."""
        if self._built == "sdk":
            return None
        command = ["node", "node_modules/typescript/bin/tsc", "-p", "tsconfig.test.json"]
        code, output = self._processes.run(command, self._folder / "sdk" / "typescript", BUILD_TIMEOUT_S)
        if code == 0:
            self._built = "sdk"
            return None
        if code is None or any(line.startswith("src/") for line in output.splitlines()):
            return Run(None, output=output)
        return Run(Outcome(failed=("sdk/typescript/tsconfig.test.json",)), output=output)

    def _page(self) -> Run | None:
        code, output = self._processes.run(["npm", "run", "--silent", "build"], self._folder / "web", BUILD_TIMEOUT_S)
        return None if code == 0 else Run(None, output=output)

    def _node(self, suite: Suite) -> Run:
        names = [f"build/test/{Path(file).stem}.js" for file in suite.files]
        command = ["node", "--test", "--test-reporter=tap", f"--test-name-pattern={suite.clause}", *names]
        return self._tap(command, "sdk/typescript", suite)

    def _tap(self, command: list[str], folder: str, suite: Suite) -> Run:
        """Run Node tests that answer in the Test Anything Protocol."""
        code, output = self._processes.run(
            command, self._folder / folder, SUITE_TIMEOUT_S, MAKAI_TEST_PYTHON=str(self.python)
        )
        if code is None:
            return Run(None, hung=True, output=output)
        return Run(Outcome(passed=1) if code == 0 else Outcome(failed=(suite.files[0],)), output=output)


def _packages(environment: Path) -> Path:
    scheme = {"base": str(environment), "platbase": str(environment)}
    return Path(sysconfig.get_path("purelib", scheme="venv", vars=scheme))


def _copy(root: Path, folder: Path) -> None:
    """Copy what git would commit, link what `npm` installed, and take the built page along."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    for name in LINKED:
        if (root / name).is_dir():
            (folder / name).symlink_to(root / name)
    _copy_page(root, folder)


def _copy_page(root: Path, folder: Path) -> None:
    if (root / PAGE).is_dir():
        shutil.rmtree(folder / PAGE, ignore_errors=True)
        shutil.copytree(root / PAGE, folder / PAGE)


def judge(tree: Tree, mutant: Mutant, chosen: Sequence[Suite]) -> Verdict:
    """Try one mutant against the suites that can notice it, until one does."""
    runs: list[Run] = []
    for suite in chosen:
        with tree.mutated(mutant):
            run = tree.run(suite, mutant)
        runs.append(run)
        verdict = judged(mutant, suite, run, None)
        if verdict is None and (run.hung or (run.outcome is not None and run.outcome.failed)):
            verdict = judged(mutant, suite, run, tree.run(suite, mutant))
        if verdict is not None:
            return verdict
    return not_killed(mutant, runs)


def judge_all(
    root: Path, mutants: Sequence[Mutant], jobs: int | None = None, report: Callable[[Verdict], object] = bool
) -> list[Verdict]:
    """Judge every mutant, `jobs` at a time, and `report` each verdict when it is known.

    Tests that killed a mutant have to pass without it; they run together at the end, which is quicker than one by one.
    """
    workers = max(1, min(jobs or len(os.sched_getaffinity(0)), len(mutants)))
    files = files_by_clause(root)
    trees = SimpleQueue[Tree]()
    processes = Processes()

    def one(mutant: Mutant) -> Verdict:
        tree = trees.get()
        try:
            return judge(tree, mutant, suites(mutant, files.get(mutant.clause, {})))
        except (ValueError, OSError) as error:
            return Verdict(mutant, Status.ERROR, str(error))
        finally:
            trees.put(tree)

    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="makai-mutants-", ignore_cleanup_errors=True) as folder:
        for number in range(workers):
            trees.put(Tree(root, Path(folder) / str(number), processes))
        with ThreadPoolExecutor(workers) as pool:
            waiting: list[Future[Verdict]] = [pool.submit(one, mutant) for mutant in mutants]
            try:
                for done in as_completed(waiting):
                    verdicts.append(done.result())
                    report(verdicts[-1])
                killers = sorted({verdict.killer for verdict in verdicts if verdict.killer})
                return confirmed(verdicts, trees.get().failing(killers))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                processes.close()


def _selected(mutants: Sequence[Mutant], options: argparse.Namespace) -> list[Mutant]:
    chosen = [
        mutant
        for mutant in mutants
        if not (options.clause or options.area)
        or mutant.clause in options.clause
        or area_of(mutant.clause) in options.area
    ]
    return sample(chosen, options.sample, options.seed) if options.sample else chosen


def main() -> int:
    """Run the chosen rows; 1 when a mutant survives or cannot be judged."""
    parser = argparse.ArgumentParser(description="Run mutants against the tests of their clauses.")
    parser.add_argument("--clause", nargs="+", default=(), metavar="ID", help="only the rows of these clauses")
    parser.add_argument("--area", nargs="+", default=(), help="only the rows of these areas, such as MK-ENV")
    parser.add_argument("--sample", type=int, metavar="N", help="only N rows, which the seed decides")
    parser.add_argument("--seed", default=default_seed(ROOT), help="what is committed unless given")
    parser.add_argument("--jobs", type=int, help="how many run at once; all cores unless given")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = _selected(read_mutants(ROOT), options)
    start = time.monotonic()
    print(f"{len(chosen)} mutants of the working tree, uncommitted changes included; seed {options.seed}", flush=True)
    verdicts = judge_all(ROOT, chosen, options.jobs, report=lambda verdict: print(verdict.line(), flush=True))
    for verdict in failures(verdicts):
        print(verdict.line())
    print(f"MUTANTS  {summary(verdicts)}, seed {options.seed}, {time.monotonic() - start:.0f} s")
    return 1 if failures(verdicts) or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
