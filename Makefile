# Everything a developer types. `make help` lists the targets; CI runs `make test`.

PYTHON ?= python3
MODEL := smollm2
BIN := .venv/bin
BENCH_BIN := .venv-bench/bin
BENCH_LITELLM_BIN := .venv-bench-litellm/bin
# Not compiled: Python compiles what is used, when it is used; pip would compile everything, which takes longer than all else.
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --no-compile
# Only files with a hash in a lock file, and no code of a package runs while it is installed.
PIP_LOCKED := $(PIP_INSTALL) --require-hashes --only-binary :all:
# makai itself, with the build backend that is installed already; nothing is downloaded.
PIP_MAKAI := $(PIP_INSTALL) --no-index --no-deps --no-build-isolation
NPM_CI := npm ci --silent --no-audit --no-fund --ignore-scripts
# Building the page needs less than testing it.
PAGE_PACKAGES := $(if $(filter test checkpage faults mutants,$(MAKECMDGOALS)),,--omit=dev)

.DEFAULT_GOAL := help
.PHONY: help run test test-real test-postgres check faults mutants bench schema docs picture screenshots requirements lock dependencies sbom release clean lint model weights sdk sdkpackages page checkpage packages removevenv python-is-new-enough

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

run: python-is-new-enough ## serve the page on a model on this machine, and print its address; no account needed; ARGS="--port 0" for options
	@$(MAKE) --no-print-directory -j2 weights page # pip on one core, npm on another
	@$(BIN)/makai serve --show-token $(ARGS)

test: lint model sdk checkpage packages .venv-docs/.ready ## everything CI runs: lint, types, house rules, all tests
	@$(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadfile --no-loadscope-reorder # tests wait more than they compute

test-real: .venv/.ready ## real coding agents (Claude Code, Codex, opencode, Gemini CLI) and acpx with makai on a scripted model, and official MCP servers; downloads them first
	@mkdir -p build/agents && cp tests/agents/package*.json tests/agents/.npmrc build/agents && cd build/agents && $(NPM_CI)
	@mkdir -p build/mcp-servers && cp tests/mcp_servers/package*.json build/mcp-servers && cd build/mcp-servers && $(NPM_CI)
	@MAKAI_TEST_AGENTS=1 $(BIN)/python -m pytest tests/real -m agents --timeout=600

test-postgres: .venv/.ready packages page ## the tests of sessions, servers and their clients once more, with the sessions in PostgreSQL
	@MAKAI_TEST_STORE=postgres $(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadfile --no-loadscope-reorder \
	tests/unit/sessions tests/unit/server tests/interaction tests/e2e

check: lint ## the quick part of `make test`: lint, types, house rules
	@$(BIN)/python -m pytest tests/house

LONG := faults or hypothesis or scaled
MAKAI_SOAK_MINUTES ?= 30

faults: .venv/.ready model page sdkpackages ## long tests: fault injection, and property tests with many more inputs; ends in a table, also in build/faults.md
	@$(BIN)/python tools/system_packages.py faults
	@rm -f build/faults.md
	@export MAKAI_FAULTS=1 MAKAI_SOAK_MINUTES=$(MAKAI_SOAK_MINUTES); \
	$(BIN)/python -m pytest -m "($(LONG)) and not alone" -n 2 --dist loadfile --no-loadscope-reorder --timeout=1800; together=$$?; \
	$(BIN)/python -m pytest -m "($(LONG)) and alone" --timeout=1800; alone=$$?; \
	cat build/faults.md; test $$together -eq 0 -a $$alone -eq 0 # the first part on two cores, tests that measure time one by one

mutants: .venv/.ready page sdkpackages ## break the code clause by clause and see that tests notice; ARGS="--area MK-ENV" for some
	@$(BIN)/python -m tools.mutants $(ARGS)

bench: .venv/.ready .venv-bench/.ready .venv-bench-litellm/.ready ## compare speed and memory with other libraries; results in benchmarks/results
	@$(BENCH_BIN)/python tools/system_packages.py bench
	@$(BENCH_BIN)/python benchmarks/run.py

schema: .venv/.ready ## regenerate schema/, docs/harness-matrix.* and the manual page from the types, tables and commands
	@$(BIN)/python tools/schema.py
	@$(BIN)/python tools/typescript_types.py
	@$(BIN)/python tools/harness_matrix.py
	@$(BIN)/python tools/man_page.py

docs: .venv/.ready .venv-docs/.ready ## regenerate transcripts (needs curl) and docs/reference/, and build the documentation site into build/site
	@$(BIN)/python tools/transcripts.py
	@$(BIN)/python -m tools.reference
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "The site is in build/site/index.html."

picture: .venv/.ready ## draw docs/screenshots/terminal-day.svg from a real terminal (needs bubblewrap)
	@MAKAI_TEST_WRITES_DOCS=1 $(BIN)/python -m pytest -q -n0 tests/e2e/test_day_at_the_terminal.py

screenshots: .venv/.ready page ## take pictures of every view of the page: docs/screenshots/page, the others in test-artifacts (needs chromium)
	@MAKAI_FAULTS=1 MAKAI_TEST_WRITES_DOCS=1 $(BIN)/python -m pytest -q -n0 tests/browser/test_views.py

requirements: .venv/.ready ## covered, diverging and open requirements per area
	@$(BIN)/python tools/requirements.py

lock: .venv/.ready ## write the hashes of all packages into the lock files; UPGRADE=yes takes the newest versions
	@$(BIN)/python -m tools.lock $(if $(UPGRADE),--upgrade)

dependencies: .venv/.ready ## run the fast tests with the lowest and with the newest versions of all packages (needs an index)
	@$(BIN)/python -m tools.dependencies lowest
	@$(BIN)/python -m tools.dependencies newest

sbom: .venv/.ready ## write what makai is made of to build/: sbom.cdx.json and licences.md; fails on a licence that is not allowed
	@$(BIN)/python -m tools.sbom

release: .venv/.ready sdkpackages ## build and check everything that is published, into dist/; REHEARSAL=yes before the changelog has the version
	@$(BIN)/python -m tools.release $(if $(REHEARSAL),--rehearsal)

clean: ## remove environments, caches and builds (not your ~/.makai)
	rm -rf .venv .venv-* build dist src/makai/server/page web/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

lint: .venv/.ready
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

sdkpackages:
	@if command -v npm >/dev/null; then cd sdk/typescript && $(NPM_CI); fi

sdk: .venv/.ready sdkpackages
	@if command -v npm >/dev/null; then cd sdk/typescript && \
	MAKAI_TEST_PYTHON="$(CURDIR)/$(BIN)/python" npm test --silent; \
	else echo "SKIPPED: npm is not installed; the TypeScript SDK was not tested"; fi

PAGE := src/makai/server/page/index.html
PAGE_SOURCES := $(shell find web -type f -not -path '*/node_modules/*' -not -path 'web/test/*')

page: $(PAGE) ## build the page into the package (needs npm)

$(PAGE): $(PAGE_SOURCES)
	@if command -v npm >/dev/null; then echo "Building the page ..." && cd web && $(NPM_CI) $(PAGE_PACKAGES) && \
	npm run build --silent && touch ../$(PAGE); \
	else echo "SKIPPED: npm is not installed; the page was not built"; fi

checkpage: page
	@if command -v npm >/dev/null; then cd web && { test -d node_modules/vitest || $(NPM_CI); } && \
	npm run check --silent && npm test --silent; fi

packages: .venv/.ready
	@$(BIN)/python tools/system_packages.py

weights: .venv/.run
	@$(BIN)/makai models pull $(MODEL)

model: .venv/.run
	@$(BIN)/makai models pull $(MODEL) || echo "SKIPPED: could not pull $(MODEL); tests that talk to a real local model will be skipped"

# A PYTHON that was named and is not the one in .venv: start over with it.
VERSION := -c 'import sys; print(sys.version_info[:2])'
ifneq ($(origin PYTHON),file)
ifneq ($(shell $(PYTHON) $(VERSION) 2>/dev/null),$(shell $(BIN)/python $(VERSION) 2>/dev/null))
.venv/.run: removevenv
endif
endif

removevenv: python-is-new-enough
	@rm -rf .venv

.venv/.run: pyproject.toml constraints-run.txt | python-is-new-enough
	@echo "Installing makai into .venv (about half a minute the first time) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python $(PIP_LOCKED) -r constraints-run.txt
	@$(BIN)/python $(PIP_MAKAI) -e .
	@touch $@

.venv/.ready: .venv/.run constraints.txt
	@echo "Installing the tools for tests and builds into .venv (about half a minute the first time) ..."
	@$(BIN)/python $(PIP_LOCKED) -r constraints.txt
	@touch $@

.venv-docs/.ready: tools/docs-requirements.lock | python-is-new-enough
	@$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python $(PIP_LOCKED) -r tools/docs-requirements.lock
	@touch $@

.venv-bench/.ready: benchmarks/requirements.lock pyproject.toml | python-is-new-enough
	@echo "Installing makai and the libraries it is compared with into .venv-bench ..."
	@$(PYTHON) -m venv .venv-bench
	@$(BENCH_BIN)/python $(PIP_LOCKED) -r benchmarks/requirements.lock
	@$(BENCH_BIN)/python $(PIP_MAKAI) -e .
	@touch $@

.venv-bench-litellm/.ready: benchmarks/requirements-litellm.lock | python-is-new-enough
	@echo "Installing LiteLLM and any-llm, which need older SDKs, into .venv-bench-litellm ..."
	@$(PYTHON) -m venv .venv-bench-litellm
	@$(BENCH_LITELLM_BIN)/python $(PIP_LOCKED) -r benchmarks/requirements-litellm.lock
	@touch $@

python-is-new-enough:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("makai needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...")'
