# make demo: install and see steps scored.  make test: install what the tests need and run them all.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Small models gain nothing from threads: one worker per core, each with its own files. Skipped tests are listed by name.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile -rs --no-fold-skipped
# CI overrides this with uv, which installs the CPU build of torch.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-transformers-4 test-verl test-verifiers test-vllm lint browser sandbox wheel docs
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	@$(BIN)/python examples/demo.py

test: $(VENV)/.test browser sandbox
	$(PYTEST)

# Browser tests need Chromium. As root or in CI this installs it; elsewhere it says how, and pytest skips those tests.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || test -n "$$CHROMIUM" || \
	if { [ "$$(id -u)" = 0 ] || [ -n "$$CI" ]; } && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null || \
		echo "Chromium could not be installed with apt-get. Install it, or set CHROMIUM to the path of a Chromium or Chrome executable."; \
	else \
		echo "Chromium is not installed: the browser tests are skipped. Install it (Debian: the packages chromium and fonts-dejavu-core),"; \
		echo "or set CHROMIUM to the path of a Chromium or Chrome executable."; \
	fi

# The code of critics runs in bubblewrap. As root or in CI this installs it; elsewhere pytest skips those tests.
sandbox:
	@command -v bwrap >/dev/null || \
	if { [ "$$(id -u)" = 0 ] || [ -n "$$CI" ]; } && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends bubblewrap >/dev/null || \
		echo "bubblewrap could not be installed with apt-get: the tests of code execution are skipped."; \
	else \
		echo "bubblewrap is not installed: the tests of code execution are skipped (Debian: the package bubblewrap)."; \
	fi

# The same tests of loading and scoring on the older major version, which is put before the newer one on the path.
test-transformers-4: $(VENV)/.transformers-4
	SUREFOOT_EXAMPLES=40 PYTHONPATH=$(VENV)/transformers-4 $(PYTEST) tests/engine tests/scoring/test_scorer.py tests/scoring/test_session.py tests/families/test_render.py tests/families/test_families.py tests/train/test_attention.py tests/promises

# Rewards inside trainers whose requirements clash with ours. They are put before ours on the path, in folders of their
# own, without what they only need for GPUs. Not a part of .ci/run: the folders take minutes to fill.
test-verl: $(VENV)/.verl
	PYTHONPATH=$(VENV)/verl $(BIN)/python -c "import verl, openrlhf, aiohttp"
	PYTHONPATH=$(VENV)/verl $(BIN)/python -m pytest tests/integrations/test_verl.py tests/integrations/test_openrlhf.py

test-verifiers: $(VENV)/.verifiers
	PYTHONPATH=$(VENV)/verifiers $(BIN)/python -c "import verifiers.v1"
	PYTHONPATH=$(VENV)/verifiers $(BIN)/python -m pytest tests/integrations/test_verifiers.py tests/integrations/test_examples.py -k verifiers
	PYTHONPATH=$(VENV)/verifiers $(BIN)/python -m pytest tests/integrations/test_prime_rl.py
	PYTHONPATH=$(VENV)/verifiers-0.1:$(VENV)/verifiers $(BIN)/python -c "from verifiers import Rubric"
	PYTHONPATH=$(VENV)/verifiers-0.1:$(VENV)/verifiers $(BIN)/python -m pytest tests/integrations/test_verifiers.py tests/integrations/test_examples.py -k verifiers

# vLLM as the engine of a scorer and as a generator, against its real server. It needs an environment of its own (5 GB), made on first use.
test-vllm: $(VENV)/.test
	SUREFOOT_TEST_VLLM=1 $(BIN)/python -m pytest tests/scoring/test_vllm.py tests/generate/test_vllm.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Build the wheel and the source distribution in dist/ and check what a release needs (docs/releasing.md).
wheel: $(BIN)/python
	$(PIP) build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python .ci/check_wheel.py dist

# Build the documentation site in site/, with warnings as errors, and check that it loads nothing from other hosts.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python .ci/check_site.py site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable ".[bulk,testing]"
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable ".[test]"
	@touch $@

# Without the package itself: the pages are made from its source, so torch is not needed. Ruff formats signatures.
# The pinned versions need Python 3.11 or newer.
$(VENV)/.docs: $(BIN)/python constraints.txt
	$(PIP) mkdocs-material "mkdocstrings[python]" ruff
	@touch $@

$(VENV)/.transformers-4: $(VENV)/.test
	rm -rf $(VENV)/transformers-4
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/transformers-4 \
		"transformers==4.57.6" "huggingface-hub==0.36.0" "tokenizers==0.22.1"
	@touch $@

AIOHTTP := aiohttp==3.14.5 aiohappyeyeballs==2.7.1 aiosignal==1.4.0 attrs==26.1.0 frozenlist==1.8.0 \
	multidict==7.2.1 propcache==0.5.4 yarl==1.25.1
OVERLAY := $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target

$(VENV)/.verl: $(VENV)/.test
	rm -rf $(VENV)/verl
	$(OVERLAY) $(VENV)/verl verl==0.9.1 openrlhf==0.11.2 transformers==5.10.2 tokenizers==0.22.2 huggingface-hub==1.33.0 \
		tensordict==0.10.0 pyvers==0.2.3 orjson==3.13.0 ray==2.60.0 msgpack==1.2.4 protobuf==7.36.2 jsonschema==4.26.0 \
		jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1 codetiming==1.4.0 cachetools==8.0.0 \
		hydra-core==1.3.8 omegaconf==2.4.0 antlr4-python3-runtime==4.9.3 importlib_metadata==10.2.0 zipp==4.1.2 \
		cloudpickle==3.1.2 $(AIOHTTP)
	@touch $@

$(VENV)/.verifiers: $(VENV)/.test
	rm -rf $(VENV)/verifiers $(VENV)/verifiers-0.1
	$(OVERLAY) $(VENV)/verifiers verifiers==0.4.0 anthropic==2.8.0 openai==2.54.0 jiter==0.19.0 distro==1.9.0 \
		docstring_parser==0.18.0 sniffio==1.3.1 aiofiles==25.1.0 connectrpc==0.11.1 protobuf-py==0.1.1 \
		protobuf-py-ext==0.1.1 protobuf==7.36.2 pyqwest==0.12.0 opentelemetry-api==1.45.2 prime-pydantic-config==0.4.3 \
		prime-sandboxes==0.5.1 renderers==0.1.12 tenacity==9.2.1 tomli_w==1.2.0 $(AIOHTTP)
	$(OVERLAY) $(VENV)/verifiers-0.1 verifiers==0.1.14 aiolimiter==1.3.0 msgpack==1.2.4 pyzmq==27.3.0 setproctitle==1.3.8
	@touch $@
