# Needs python3 >= 3.11 and nothing else; uv is taken from PATH or fetched into .uv.
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
BIN := .venv/bin
WHEEL := build/wheel
RELEASE := build/release
# Where people's own programs are, for `supaclaw` to be found from any folder.
LINK := $(HOME)/.local/bin/supaclaw
# Compiled imports halve the time to start; what is installed is compiled once, our own code when it is first used.
unexport PYTHONDONTWRITEBYTECODE
# A virtual environment that happens to be active is not ours to fill.
unexport VIRTUAL_ENV

define LOOPBACK_UP
import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 0x49))  # SIOCSIFFLAGS: up, running, loopback
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
endef
export LOOPBACK_UP

.PHONY: run dev test setup test-offline fmt check wheel release bounds lint-workflows site check-image bench attack chaos soak live clients mcp agentdojo test-openclaw
.DEFAULT_GOAL := run

run: setup  ## Set up and start the gateway.
	@if [ ! -e "$(LINK)" ] || readlink "$(LINK)" | grep -q '/\.venv/bin/supaclaw$$'; then \
	  mkdir -p "$(dir $(LINK))" && ln -sfn "$(CURDIR)/$(BIN)/supaclaw" "$(LINK)"; fi 2>/dev/null || true
	@command -v supaclaw >/dev/null || echo "\`supaclaw\` is $(CURDIR)/$(BIN)/supaclaw here"
	@exec $(BIN)/supaclaw up

dev: setup  ## The same, started again whenever the code changes.
	@exec $(BIN)/watchfiles --filter python --sigint-timeout 30 "$(BIN)/supaclaw up" gateway channels integrations

test: check  ## Every check, in some ten minutes; .ci/run adds thorough tests (THOROUGH=1), the wheel and the coverage.
	$(if $(COVERAGE),$(BIN)/coverage erase)
	$(BIN)/python tests/repeat_failures.py $(if $(THOROUGH),--thorough) $(if $(COVERAGE),--coverage) $(if $(REPEATS),--most $(REPEATS))
	$(if $(COVERAGE),$(BIN)/coverage combine -q)
	$(if $(COVERAGE),$(BIN)/coverage json -q -o build/coverage.json)
	$(if $(COVERAGE),$(BIN)/python tests/coverage_gate.py build/coverage.json --lines 85 --branches 80)

setup: $(filter .uv/bin/uv,$(UV))  ## Install what uv.lock names.
	@test -d .venv || echo "Setting up; the first time takes a minute …"
	@$(UV) sync --locked --quiet $(if $(wildcard .venv/.compiled),,--compile-bytecode) \
	  $(if $(wildcard gateway/llm/embedding/e5_small/made-by),,--reinstall-package supaclaw)
	@touch .venv/.compiled

check: setup  ## Format, lint, types, floors.
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-logo

fmt: setup  ## Put the code in shape.
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

wheel: setup  ## Build the wheel, install it on its own (PYTHON=python3.14) and start it from elsewhere.
	@rm -rf $(WHEEL) && mkdir -p $(WHEEL)
	@$(UV) build --quiet --wheel --out-dir $(WHEEL)
	@$(UV) export --quiet --locked --no-dev --no-emit-project --output-file $(WHEEL)/requirements.txt
	@$(UV) venv --quiet $(if $(PYTHON),--python $(PYTHON)) $(WHEEL)/venv
	@$(UV) pip install --quiet --python $(WHEEL)/venv --requirements $(WHEEL)/requirements.txt
	@$(UV) pip install --quiet --python $(WHEEL)/venv --no-deps $(WHEEL)/supaclaw-*.whl
	@cd / && "$(CURDIR)/$(WHEEL)/venv/bin/python" -I -c "import gateway.app.start; from gateway.store.migrate import read_migrations; assert read_migrations()"
	@cd / && "$(CURDIR)/$(WHEEL)/venv/bin/python" -I -c "from integrations.openclaw.installer.state import DATA; assert (DATA / 'SUPACLAW.md').is_file()"
	@cd / && "$(CURDIR)/$(WHEEL)/venv/bin/supaclaw" openclaw --help >/dev/null
	@! find $(WHEEL)/venv/lib -name '*.pth' -not -name _virtualenv.pth | grep . || { echo "a package brings code that runs at every start" >&2; exit 1; }
	@echo "the wheel installs and starts on $$($(WHEEL)/venv/bin/python --version)"

release: setup  ## Make what a release consists of: wheel, lock, bill of materials, install script, formula (REPOSITORY=address).
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	@$(UV) export --quiet --locked --no-dev --no-emit-project --no-header --no-annotate --output-file gateway/requirements.txt
	@$(UV) export --quiet --locked --no-dev --format cyclonedx1.5 --preview-features sbom-export --output-file $(RELEASE)/supaclaw.cdx.json
	@SUPACLAW_REPOSITORY="$(REPOSITORY)" $(UV) build --quiet --wheel --out-dir $(RELEASE)
	@rm $(RELEASE)/.gitignore
	@$(UV) tool run --quiet --from twine==6.2.0 twine check --strict $(RELEASE)/*.whl
	@rm -rf build/unpacked && $(BIN)/python -m zipfile -e $(RELEASE)/*.whl build/unpacked
	@! grep -E '\]\((docs|gateway|[A-Z]+\.md)' build/unpacked/*.dist-info/METADATA || { echo "a link of README leads nowhere" >&2; exit 1; }
	@set -- $$(cd $(RELEASE) && sha256sum *.whl); version=$${2#supaclaw-}; \
	  for file in install.sh deploy/supaclaw.rb; do \
	    sed -e "s|@VERSION@|$${version%%-*}|; s|@SHA256@|$$1|; s|@REPOSITORY@|$(REPOSITORY)|" $$file >$(RELEASE)/$${file##*/}; done
	@chmod +x $(RELEASE)/install.sh
	@cd $(RELEASE) && sha256sum supaclaw* install.sh >SHA256SUMS && ls -l

site: setup  ## Build the documentation as a site, strictly: build/site/index.html (SUPACLAW_REPOSITORY=address for links to code).
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint-workflows: setup  ## Look for weaknesses in .github.
	@$(BIN)/zizmor --offline --quiet --no-progress --persona auditor .github

bounds: setup  ## Resolve with the lowest versions that pyproject.toml allows.
	@mkdir -p build
	@if $(UV) pip compile --quiet pyproject.toml --python-version 3.11 --only-binary :all: --resolution lowest-direct \
	  --output-file build/lowest.txt 2>build/lowest.log; then echo "the lowest versions resolve: build/lowest.txt"; \
	elif grep -q "Failed to fetch\|error sending request" build/lowest.log; then \
	  echo "skipped the lowest versions: the package registry does not answer" >&2; \
	else cat build/lowest.log >&2; exit 1; fi

check-image: setup  ## Build the container image without an engine, and use it (root and apt; a few minutes).
	@UV="$(UV)" $(BIN)/python -m docker.check

chaos: setup  ## Break everything that can be broken; the table goes into docs/reliability.md (an hour).
	SUPACLAW_CHAOS=full SUPACLAW_CHAOS_REPORT=docs/reliability.md $(BIN)/pytest -q -n 2 --dist worksteal tests/chaos tests/interleavings \
	  $$($(BIN)/python -m tests.chaos.faults) $$(grep -rlE "one_of_a_class|import FULL" tests/journeys)

test-offline: setup  ## A local set-up works in a network namespace that has nothing but the loopback.
	@SUPACLAW_OFFLINE=1 unshare --net $(if $(filter-out 0,$(shell id -u)),--user --map-current-user --keep-caps) \
	  $(BIN)/python -c "$$LOOPBACK_UP" -m pytest -q -n 0 tests/journeys/test_offline.py

attack: setup  ## Attack the jail of commands in every way; prints the table of docs/security.md.
	@$(BIN)/python -m tests.security.workshop

soak: setup  ## Half an hour of steady load: does anything grow?
	$(BIN)/python -m tests.chaos.soak --minutes 30

bench: setup  ## Measure the budgets.
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.channels
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.takeover
	$(BIN)/python -m benchmarks.schedules
	$(BIN)/python -m benchmarks.jail
	$(BIN)/python -m benchmarks.files
	$(BIN)/python -m benchmarks.long_chat
	$(BIN)/python -m benchmarks.years

live: setup  ## Ask the real providers and messengers whose keys are in the environment.
	$(BIN)/pytest -m live tests/live

clients: setup  ## Drive real client libraries of the OpenAI API against the gateway; installs them in build/.
	$(BIN)/python -m tests.clients $(ONLY)

mcp: setup  ## The reference server of the Model Context Protocol, driven by our client; installs it in build/.
	npm install --silent --no-audit --no-fund --prefix build/mcp @modelcontextprotocol/server-everything
	$(BIN)/pytest -m live tests/live/test_mcp_everything.py

test-openclaw: setup  ## Our memory inside the real OpenClaw, which npm installs in build/ (ONLY=use, hooks or kills).
	$(BIN)/python -m tests.openclaw $(ONLY)

agentdojo: setup  ## AgentDojo's worst case, attackers who know the rule, and a week of requests; installs it in build/.
	@test -d build/agentdojo || $(UV) venv --quiet build/agentdojo
	@$(UV) pip install --quiet --python build/agentdojo --require-hashes --requirement tests/agentdojo/requirements.txt
	@status=0; $(BIN)/python -W ignore -m tests.agentdojo.own_gateway || status=1; \
	  $(BIN)/python -W ignore -m tests.week || status=1; \
	  PYTHONPATH=. build/agentdojo/bin/python -W ignore -m tests.agentdojo || status=1; exit $$status

.uv/bin/uv:
	@python3 -m venv .uv
	@.uv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement docker/uv.txt
