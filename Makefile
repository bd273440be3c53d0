# make demo: install and see steps scored.  make test: install what tests need and run them all.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-transformers-4 test-vllm lint
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	@$(BIN)/python examples/demo.py

test: $(VENV)/.test
	$(BIN)/python -m pytest

# The same tests of loading and scoring on the older major version, which is put before the newer one on the path.
test-transformers-4: $(VENV)/.transformers-4
	SUREFOOT_EXAMPLES=40 PYTHONPATH=$(VENV)/transformers-4 $(BIN)/python -m pytest tests/test_weights.py tests/test_scorer.py tests/test_render.py tests/test_attention.py tests/test_session.py tests/promises

# vLLM as the engine of a scorer, against its real server. It needs an environment of its own (5 GB), made on first use.
test-vllm: $(VENV)/.test
	SUREFOOT_TEST_VLLM=1 $(BIN)/python -m pytest tests/serve/test_vllm.py

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
