"""The npm package as its README says: installed in an empty folder of a user who has only npm and makai."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pytest
from support.npm import SDK, Npm, node22, require_registry

pytestmark = pytest.mark.timeout(600)

README: Final = (SDK / "README.md").read_text(encoding="utf-8")
PROGRAMS: Final = re.findall(r"```ts\n(.*?)```", README, re.DOTALL)
COMMANDS: Final = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
PINNED: Final = {"typescript": "7.0.2", "@types/node": "22.19.3", "zod": "4.6.7"}
"""What the README installs without a version."""
HELLO: Final = "Say hello in five words."
ECHO: Final = "scripted echo"
TYPED: Final = """\
import { createMakaiClient, type MakaiClient, type ModelDescriptor, tool } from "makai";
const client: MakaiClient = await createMakaiClient();
const model: ModelDescriptor = (await client.models.resolve({ provider_id: "a", model_id: "b" })).model;
// @ts-expect-error: the types are found, so a wrong one is noticed
const wrong: number = model.model_ref;
const parameters = { type: "object", properties: { days: { type: "integer" } }, required: ["days"] } as const;
// @ts-expect-error: the types of arguments follow from their schema
export const counted = tool({ name: "t", description: "", parameters, run: ({ days }) => days.length });
export { wrong };
"""
REQUIRED: Final = """\
import makai = require("makai");
export const make: () => Promise<makai.MakaiClient> = makai.createMakaiClient;
// @ts-expect-error: the types are found, so a wrong one is noticed
export const wrong: number = makai.parseModelRef;
"""


@pytest.fixture(scope="module")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Npm:
    npm = Npm(tmp_path_factory.mktemp("npm"))
    require_registry(npm)
    return npm


@pytest.fixture(scope="module")
def package(npm: Npm) -> Path:
    return npm.package()


@pytest.fixture(scope="module")
def installed(npm: Npm, package: Path) -> Path:
    """A project that was made with the first command of the README."""
    project = npm.project("hello")
    npm(COMMANDS[0].replace("path/to/makai/sdk/typescript", f'"{package}"'), project)
    return project


@pytest.fixture(scope="module")
def typescript(npm: Npm, installed: Path) -> Path:
    """The same project after the commands for TypeScript."""
    npm(pinned(COMMANDS[1]), installed)
    (installed / "hello.ts").write_text(PROGRAMS[0])
    return installed


@pytest.fixture(scope="module")
def with_zod(npm: Npm, installed: Path) -> Path:
    """The same project after the command for the program with zod."""
    npm(pinned(COMMANDS[4]), installed)
    return installed


def pinned(command: str) -> str:
    """A command of the README with a version for each package that it installs."""
    for name, version in PINNED.items():
        command = re.sub(rf" {name}\b", f" {name}@{version}", command)
    assert "@" in command
    return command


@pytest.fixture(scope="module")
def packed(npm: Npm, package: Path, installed: Path) -> Path:
    """The file that `npm pack` makes."""
    npm(f'npm pack --silent --pack-destination "{npm.folder}"', package)
    (file,) = npm.folder.glob("makai-*.tgz")
    return file


def test_the_first_program_runs_in_a_folder_where_the_package_was_installed(npm: Npm, installed: Path) -> None:
    assert "`node hello.mjs`" in README
    (installed / "hello.mjs").write_text(PROGRAMS[0])

    assert npm(f"node hello.mjs {ECHO}", installed) == HELLO


def test_the_program_with_an_agent_uses_its_tool(npm: Npm, installed: Path) -> None:
    (npm.folder / "scenario.txt").write_text("tool: clock {}\n---\nsay: Noon.\n")
    (installed / "agent.mjs").write_text(PROGRAMS[1])

    assert npm("node agent.mjs scripted/scripted@scenario", installed) == "Noon."


def test_the_program_with_zod_checks_arguments_and_gets_an_answer_of_its_type(npm: Npm, with_zod: Path) -> None:
    answers = ('tool: weather {"city": "Rome"}', "say: A hat.", 'say: {"pack": ["a hat", "a map"]}')
    (npm.folder / "scenario.txt").write_text("\n---\n".join(answers))
    (with_zod / "trip.mjs").write_text(PROGRAMS[2])

    assert npm("node trip.mjs scripted/scripted@scenario", with_zod) == "a hat, a map\n"


def test_every_program_of_the_readme_is_short_and_has_no_wrong_type(npm: Npm, typescript: Path, with_zod: Path) -> None:
    for number, program in enumerate(PROGRAMS):
        (typescript / f"program{number}.ts").write_text(program)

    assert npm("npx tsc --strict --noEmit --target es2022 --module nodenext --types node program*.ts", with_zod) == ""
    assert (len(PROGRAMS), max(len(program.splitlines()) for program in PROGRAMS)) == (3, 15)


def test_the_program_as_typescript_runs_compiled(npm: Npm, typescript: Path) -> None:
    compiling, running = COMMANDS[2].splitlines()

    assert npm(compiling, typescript) == ""
    assert npm(f"{running} {ECHO}", typescript) == HELLO


def test_the_program_as_typescript_runs_as_it_is_on_a_newer_node(npm: Npm, typescript: Path) -> None:
    command = f'PATH="{node22()}{os.pathsep}$PATH"; {COMMANDS[3].strip()} {ECHO}'

    assert npm(f"{command.partition(';')[0]}; node --version", typescript).startswith("v22.")
    assert npm(command, typescript) == HELLO


def test_the_packed_file_is_whole_and_needs_no_script_when_it_is_installed(npm: Npm, packed: Path) -> None:
    project = npm.project("from a file")
    npm(f'npm install --ignore-scripts "{packed}"', project)
    (project / "hello.mjs").write_text(PROGRAMS[0])

    assert npm(f"node hello.mjs {ECHO}", project) == HELLO
    assert npm("""node -e 'console.log(typeof require("makai").createMakaiClient)'""", project) == "function\n"
    assert sorted(path.name for path in (project / "node_modules" / "makai").iterdir()) == [
        *("LICENSE", "README.md", "dist", "package.json")
    ]


def test_a_linked_package_can_be_imported_and_required_on_both_versions_of_node(npm: Npm, installed: Path) -> None:
    programs = {
        "a.mjs": 'import * as makai from "makai"; console.log(typeof makai.createMakaiClient);',
        "b.cjs": 'console.log(typeof require("makai").createMakaiClient);',
    }
    for name, program in programs.items():
        (installed / name).write_text(program)
        assert npm(f"node {name}", installed) == "function\n"
        assert npm(f'"{node22() / "node"}" {name}', installed) == "function\n"


@pytest.mark.parametrize("compiler", ["the newest", "the one of the package"])
@pytest.mark.parametrize(
    "settings", ["--module node16", "--module nodenext", "--module preserve --moduleResolution bundler"]
)
def test_the_types_are_found_with_every_way_to_resolve_modules(
    compiler: str, settings: str, npm: Npm, package: Path, typescript: Path
) -> None:
    (typescript / "typed.mts").write_text(TYPED)
    (typescript / "typed.cts").write_text(REQUIRED)
    program = typescript if compiler == "the newest" else package
    tsc = f'node "{program / "node_modules" / "typescript" / "bin" / "tsc"}"'

    own = "--strict --noEmit --target es2022 --types node"
    faster = "" if compiler == "the newest" else "--skipLibCheck"  # it takes long to check the types of browsers

    assert npm(f"{tsc} {own} {faster} {settings} typed.mts typed.cts", typescript) == ""


def test_without_scripts_the_documented_commands_build_the_package(npm: Npm, tmp_path: Path) -> None:
    package, project = Npm(tmp_path).package(), tmp_path / "project"
    project.mkdir()
    (project / "hello.mjs").write_text(PROGRAMS[0])
    npm(f'npm install --ignore-scripts "{package}"', project)

    assert "ERR_MODULE_NOT_FOUND" in npm("node hello.mjs", project, ok=False)
    assert "run `npm ci && npm run build` in\n`sdk/typescript` once" in README
    npm("npm ci --ignore-scripts && npm run build", package)
    assert npm(f"node hello.mjs {ECHO}", project) == HELLO


def test_a_second_installation_needs_no_registry_and_a_changed_source_is_built(
    npm: Npm, package: Path, installed: Path
) -> None:
    built = package / "dist" / "esm" / "index.js"
    before = built.stat().st_mtime_ns
    npm(f'npm install --offline "{package}"', npm.project("second"))
    assert built.stat().st_mtime_ns == before

    (package / "src" / "added.ts").write_text("export const added = 1;\n")
    npm(f'npm install --offline "{package}"', npm.project("third"))
    assert (package / "dist" / "cjs" / "added.js").is_file()
    assert [path.name for path in package.iterdir() if path.name.startswith(".dist")] == []


def test_an_installation_that_cannot_download_the_compiler_fails_and_says_what_to_do(tmp_path: Path) -> None:
    npm = Npm(tmp_path)
    package = npm.package()

    said = npm(f'npm install --offline "{package}"', npm.project("project"), ok=False)

    assert "makai: the compiler could not be installed." in said
    assert f"run `npm ci && npm run build` in its folder: {package}" in said
    assert "ENOTCACHED" in said
