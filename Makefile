# Everything a newcomer or a CI machine needs. `make demo` and `make test` each work alone on a fresh machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH := torch>=2.4,<2.14
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
DRILL_REPORT ?= .scratch/drills.md

.PHONY: demo test drill test-deps lint clean check-python

# Any data set: make demo DATA=path/to/folder-or-archive, and for so long: EPOCHS=4
demo: $(BIN)/.installed
	$(BIN)/gpucost train templates/quickstart.yaml --cloud sandbox --budget 1 --yes $(if $(EPOCHS),--epochs $(EPOCHS)) $(if $(DATA),--data '$(DATA)' --name demo-data)
	$(BIN)/gpucost report --csv costs.csv

test: $(BIN)/.installed-dev
	$(BIN)/python -m pytest -q -n auto --dist loadfile $(PYTEST_ARGS)

# Whole runs with somebody pulling plugs; not part of CI, see tests/drills/README.md.
drill: $(BIN)/.installed-dev
	@mkdir -p '$(dir $(DRILL_REPORT))'
	PYTHONPATH=tests:tests/fakes $(BIN)/python -m drills --report '$(DRILL_REPORT)' $(DRILL_ARGS) $(DRILLS)

lint: $(BIN)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# System packages that some tests use: a real OpenSSH server. Without them those tests are skipped.
test-deps:
	@if [ "$$(id -u)" = 0 ]; then apt-get update -q && apt-get install -y -q --no-install-recommends openssh-server; \
	else echo "run as root: apt-get install -y --no-install-recommends openssh-server"; fi

clean:
	-[ ! -x $(BIN)/gpucost ] || $(BIN)/gpucost sandbox down
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "gpucost needs Python 3.11 or newer: apt-get install -y python3 python3-venv, or make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv is missing: apt-get install -y python3-venv"; exit 2; }

$(BIN)/python: | check-python
	$(PYTHON) -m venv $(VENV)

# On a machine without a GPU: the CPU build of torch, from PyTorch's own index unless pip finds one by itself.
$(BIN)/.installed: pyproject.toml | $(BIN)/python
	@set -e; pip="$(BIN)/python -m pip --disable-pip-version-check"; \
	if [ "$$(uname -s)" != Linux ] || [ "$$(uname -m)" != x86_64 ] || command -v nvidia-smi >/dev/null \
	  || $$pip install -q --dry-run --no-deps --report - '$(TORCH)' 2>/dev/null | grep -q '+cpu'; then \
	  $$pip install -q '$(TORCH)'; \
	else \
	  $$pip install -q --timeout 20 --retries 1 --index-url $(TORCH_CPU_INDEX) '$(TORCH)' \
	    || { echo "no CPU build of torch: install one into $(VENV) by hand, then run make again"; exit 1; }; \
	fi
	$(BIN)/python -m pip --disable-pip-version-check install -q -e '.[train,sandbox]'
	@touch $@

$(BIN)/.installed-dev: $(BIN)/.installed
	$(BIN)/python -m pip --disable-pip-version-check install -q -e '.[train,sandbox,dev]'
	@touch $@
