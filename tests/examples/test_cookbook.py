"""The programs of examples/cookbook run as they stand, against the scripted model."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.locked_packages import locked_packages
from support.machine import slack
from support.transports import eventually

import makai
from makai.testing import ScriptedModel, call, fail, usage

ROOT = Path(__file__).resolve().parents[2]
COOKBOOK = ROOT / "examples" / "cookbook"
PROGRAMS = sorted(path for path in COOKBOOK.iterdir() if path.suffix in (".py", ".ipynb"))
DEADLINE_S = 120.0

RUN_CELLS = """
import ast, json, pathlib, sys
space = {"__name__": "__main__"}
for cell in json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] != "code":
        continue
    body = ast.parse("".join(cell["source"])).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
        if value is not None:
            print(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
"""
"""What a notebook does, without one: every cell in order, and the value of its last expression."""


def environment(model: ScriptedModel, **variables: str) -> dict[str, str]:
    return {**model.environ, "PYTHONPATH": str(ROOT / "src"), **variables}


def run(
    model: ScriptedModel, name: str, *arguments: str, typed: str = "", folder: Path | None = None
) -> tuple[int, str, str]:
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(COOKBOOK / name), *arguments],
        env=environment(model),
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return finished.returncode, finished.stdout, finished.stderr


def results(model: ScriptedModel) -> list[str]:
    """The results of tools, as the one session of the model's home shows them."""
    makai_command = [sys.executable, "-m", "makai", "sessions"]
    listed = again([*makai_command, "list", "--all", "--json"], environment(model), model.home)
    (session,) = json.loads(listed[1])["sessions"]
    shown = again([*makai_command, "show", session["session_id"]], environment(model), model.home)
    return re.findall(r"Result[^\n]*:\n\n```text\n(.*?)\n```", shown[1], re.DOTALL)


def test_stream() -> None:
    with ScriptedModel(["Because of the air.", usage(7, 5)]) as model:
        assert run(model, "stream.py", model.ref) == (0, "Because of the air.\n7 tokens in, 5 out\n", "")
    with ScriptedModel(["Because", fail("context_overflow", "Too long.")]) as model:
        assert run(model, "stream.py", model.ref) == (1, "Because", "\nToo long.\n")


def test_tools() -> None:
    wrong = call("forecast", city="Rome", first_day="soon")
    right = call("forecast", city="Rome", first_day="2026-05-01", days=2)
    with ScriptedModel([wrong, right, call("notes", city="Rome")], "Yes, go.") as model:
        assert run(model, "tools.py", model.ref) == (0, "Yes, go.\n", "")
        assert results(model) == [
            "The arguments do not fit forecast:\n- first_day: Invalid RFC3339 encoded date",
            '[{"day":"2026-05-01","degrees":30.5},{"day":"2026-05-02","degrees":30.5}]',
            "Rome: avoid August.",
        ]


@pytest.mark.parametrize(
    ("typed", "result"),
    [("y\n", "50.00 euros are on their way to Ada"), ("n\n", "The user said no.")],
    ids=["allowed", "denied"],
)
def test_approvals(typed: str, result: str) -> None:
    with ScriptedModel([call("balance", account="main"), call("transfer", to="Ada", amount=50)], "Done.") as model:
        code, out, err = run(model, "approvals.py", model.ref, typed=typed)
        shown = results(model)

    question = "The agent wants to call transfer with {'to': 'Ada', 'amount': 50}"
    assert (code, out, err) == (0, f"{question}\nAllow it? [y/N] Done.\n", "")
    assert [shown[0], result in shown[1]] == ["120.0", True]


def test_structured_output() -> None:
    wrong = '{"mood": "furious", "refund": 25, "topics": []}'
    right = '{"mood": "neutral", "refund": 25, "topics": ["quality", "service"]}'
    with ScriptedModel(wrong, right) as model:
        shown = run(model, "structured_output.py", model.ref)
    with ScriptedModel("No.", repeat_last=True) as model:
        failed = run(model, "structured_output.py", model.ref)

    assert shown == (0, "neutral, 25.00 euros back, about quality and service\n", "")
    assert failed == (1, "", "The model did not manage: The answer holds no JSON value.\n")


def test_several_agents() -> None:
    with ScriptedModel("Quotes a path.", when={"most urgent": "Security."}) as model:
        finished = run(model, "several_agents.py", model.ref)

    assert finished == (0, "security: Quotes a path.\nspeed: Quotes a path.\nSecurity.\n", "")


def test_budget() -> None:
    with ScriptedModel([call("search", query="sea"), usage(10, 20)], repeat_last=True) as model:
        endless = run(model, "budget.py", model.ref)
    with ScriptedModel(["Letter 7.", usage(1, 2)]) as model:
        found = run(model, "budget.py", model.ref)

    assert endless == (0, "(no answer)\nEnded with max_turns; 60 tokens, 0.0000 dollars\n", "")
    assert found == (0, "Letter 7.\nEnded with end_turn; 2 tokens, 0.0000 dollars\n", "")


async def test_resume_after_kill_9(tmp_path: Path) -> None:
    """The model hangs after two steps, the program is killed, and the second start does the rest."""
    script = tmp_path / "script.txt"
    script.write_text('tool: step {"number": 1}\n---\ntool: step {"number": 2}\n---\nsay: Next\nstall\n')
    with ScriptedModel() as model:
        program = [sys.executable, "-W", "error", str(COOKBOOK / "resume.py"), model.ref]
        environ = environment(model, MAKAI_SCENARIO=str(script))
        first = await asyncio.create_subprocess_exec(
            *program, env=environ, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        try:
            await eventually(lambda: text_of(tmp_path / "work.log") == "step 1\nstep 2\n")
        finally:
            first.kill()
        assert first.stdout is not None
        begun = await first.stdout.read()
        await first.wait()

        script.write_text(
            'tool: step {"number": 1}\n---\ntool: step {"number": 2}\n---\ntool: step {"number": 3}\n---\n'
            "say: All done.\n---\nsay: Three steps.\n---\nsay: Still three.\n"
        )
        second = await asyncio.to_thread(again, program, environ, tmp_path)
        third = await asyncio.to_thread(again, program, environ, tmp_path)

    assert (first.returncode, begun) == (-signal.SIGKILL, b"Starting.\n")
    assert second == (0, "Continuing the run that was active.\nThree steps.\n", "")
    assert third == (0, "Still three.\n", "")
    assert text_of(tmp_path / "work.log") == "step 1\nstep 2\nstep 3\n"


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def again(program: list[str], environ: Mapping[str, str], folder: Path) -> tuple[int, str, str]:
    finished = subprocess.run(program, env=environ, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S)
    return finished.returncode, finished.stdout, finished.stderr


@pytest.mark.timeout(400)
async def test_fastapi_endpoint() -> None:
    packages = locked_packages(ROOT / "tests" / "examples" / "fastapi.lock", "cookbook", "FastAPI")
    with ScriptedModel("Hello.", "You said hello.") as model:
        paths = f"{ROOT / 'src'}:{packages}"
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "uvicorn", "--app-dir", str(COOKBOOK), "--port", "0", "fastapi_endpoint:app"],
            env=environment(model, MAKAI_MODEL=model.ref, PYTHONPATH=paths),
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as http:
                address = await listening(process.stderr)
                async with http.post(f"{address}/chat", json={"message": "Hi"}) as answer:
                    first, session = await answer.text(), answer.headers["x-session"]
                async with http.post(f"{address}/chat", json={"message": "What?", "session": session}) as answer:
                    second = await answer.text()
                async with http.post(f"{address}/chat", json={"message": "What?", "session": "mine"}) as answer:
                    refused = answer.status
        finally:
            process.terminate()
            async with asyncio.timeout(30 * slack()):
                await process.communicate()

    assert (first, second, refused) == ("Hello.", "You said hello.", 422)
    assert process.returncode == -signal.SIGTERM  # uvicorn ends by the signal, after it has shut down


async def listening(errors: asyncio.StreamReader) -> str:
    while line := (await errors.readline()).decode():
        if found := re.search(r"running on (http://\S+)", line):
            return found[1]
    raise AssertionError("uvicorn ended")


def test_notebook() -> None:
    table = "| river |\n|---|\n| Rhine |"
    rivers = '[{"name": "Rhine", "kilometres": 1233}]'
    with ScriptedModel(call("length", river="Rhine"), rivers, when={"Write a table": table}) as model:
        finished = subprocess.run(
            [sys.executable, "-W", "error", "-c", RUN_CELLS, str(COOKBOOK / "notebook.ipynb")],
            env=environment(model, MAKAI_MODEL=model.ref),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    assert (finished.returncode, finished.stderr) == (0, "")
    live, _, rest = finished.stdout.partition("<div>")
    assert live == f"{table}\n"
    assert "<td>Rhine</td>" in rest
    assert rest.endswith("[River(name='Rhine', kilometres=1233.0)]\n")


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = json.loads((COOKBOOK / "notebook.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]

    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(cells)


def test_batch(tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.txt", tmp_path / "answers.jsonl"
    questions.write_text("One?\nTwo?\n\nThree?\n")
    with ScriptedModel("Yes.", when={"two": fail("context_overflow", "Too long.")}) as model:
        first = run(model, "batch.py", str(questions), str(answers), model.ref)
        second = run(model, "batch.py", str(questions), str(answers), model.ref)
        without = run(model, "batch.py")

    assert (first[:2], second[:2]) == (
        (0, "2 answered, 0 were there, 1 failed\n"),
        (0, "0 answered, 2 were there, 1 failed\n"),
    )
    assert first[2] == second[2] == "Two?: Too long.\n"
    assert without == (1, "", "Usage: python batch.py QUESTIONS.txt ANSWERS.jsonl [MODEL]\n")
    stored = [json.loads(line) for line in answers.read_text().splitlines()]
    assert sorted(each["question"] for each in stored) == ["One?", "Three?"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_every_program_is_short_public_and_listed_in_the_documentation(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    if program.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    used = {
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "makai"
    }

    assert len(text.splitlines()) <= 60
    assert used <= set(makai.__all__)
    assert f"(../examples/cookbook/{program.name})" in (ROOT / "docs" / "sdks.md").read_text(encoding="utf-8")


async def test_the_test_that_the_documentation_shows_passes() -> None:
    text = (ROOT / "docs" / "sdks.md").read_text(encoding="utf-8")
    shown = re.search(r"### Test your program.*?```python\n(.*?)```", text, re.DOTALL)
    assert shown is not None

    def weather(city: str) -> str:
        """The weather of a city."""
        return "sun"

    space: dict[str, Any] = {"weather": weather}
    exec(shown[1], space)
    await space["test_it_looks_up_the_weather"]()


def test_the_cookbook_has_ten_programs_and_a_test_for_each() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")

    assert len(PROGRAMS) == 10
    assert [program.name for program in PROGRAMS if f"def test_{program.stem}" not in tests] == []
