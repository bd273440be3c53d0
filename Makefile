# make demo: install and see steps scored.  make test: install what tests need and run them all.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-transformers-4 lint browser
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	@$(BIN)/python examples/demo.py

test: $(VENV)/.test browser
	$(BIN)/python -m pytest

# Tests of pages open them in Debian's chromium. Without it, and without CI in the environment, they are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || test -n "$$CHROMIUM" || \
	if command -v apt-get >/dev/null; then \
		as=$$([ "$$(id -u)" = 0 ] || command -v sudo || true); \
		$$as apt-get update -qq && $$as apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null || \
		echo "chromium could not be installed; tests that need it are skipped"; \
	else echo "chromium is not installed; tests that need it are skipped"; fi

# The same tests of loading and scoring on the older major version, which is put before the newer one on the path.
test-transformers-4: $(VENV)/.transformers-4
	SUREFOOT_EXAMPLES=40 PYTHONPATH=$(VENV)/transformers-4 $(BIN)/python -m pytest tests/test_weights.py tests/test_scorer.py tests/test_render.py tests/test_attention.py tests/test_session.py tests/promises

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable ".[testing]"
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable ".[test]"
	@touch $@

$(VENV)/.transformers-4: $(VENV)/.test
	rm -rf $(VENV)/transformers-4
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/transformers-4 \
		"transformers==4.57.6" "huggingface-hub==0.36.0" "tokenizers==0.22.1"
	@touch $@
