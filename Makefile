# Needs only make, Python 3.11 or newer and a package index: every target makes its own .venv.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3 python,$(if $(shell \
	$(name) -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null | grep True),$(name))))
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help demo test test-model test-browser test-convert test-clients test-soak lint bench bench-short peers docs notebook clean

help:
	@echo "make demo        answer a prompt twice, plain and speculative, and compare"
	@echo "make test        the tests that need no real model"
	@echo "make test-model  the tests on the default model (pulled on first use)"
	@echo "make test-browser  the tests that look at pages with Chromium"
	@echo "make test-convert  the tests of conversion, in an environment with NNCF and optimum-intel"
	@echo "make test-clients  our server with the clients of others"
	@echo "make test-soak   our server under everything for a minute (WAGER_SOAK_S: seconds)"
	@echo "make lint        ruff, mypy --strict"
	@echo "make bench       measure against plain decoding and peers"
	@echo "make bench-short the same on a few prompts, in two minutes"
	@echo "make peers       an environment for transformers on torch, which make bench finds"
	@echo "make docs        check the documents"
	@echo "make notebook    run docs/notebooks with the default model (QUICK=1: smaller, for CI; nothing is written)"

.venv: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH: install one, or make PYTHON=/path/to/python" >&2; exit 2; }
	@echo "installing into .venv with $(PYTHON) (once; a few minutes with a cold package cache)"
	@test -x $(BIN)/python || $(PYTHON) -m venv --clear .venv || { rm -rf .venv; echo "error: $(PYTHON) cannot make a virtual environment: install its venv module" >&2; exit 2; }
	@$(PIP) install --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/wager demo

test: $(STAMP)
	@$(BIN)/python -m pytest -m "not model and not browser and not convert and not clients and not soak" -n auto --maxprocesses 8

test-browser: $(STAMP)
	@command -v chromium >/dev/null || { echo "error: no chromium on PATH: apt-get install -y --no-install-recommends chromium" >&2; exit 2; }
	@$(BIN)/python -m pytest -m browser

test-model: $(STAMP)
	@$(BIN)/wager pull smollm2-135m
	@$(BIN)/python -m pytest -m "model and not convert"

# Other packages' warnings are not ours to turn into errors. A file of tests stays on one process: exports are shared.
test-convert: .venv-convert/.installed
	@.venv-convert/bin/wager pull smollm2-135m
	@.venv-convert/bin/python -m pytest -m convert tests/convert -W ignore -n 2 --dist loadfile

# torch must not come into .venv. TORCH names another build, such as one without CUDA. optimum-intel goes without its
# dependencies, listed here instead, since torchvision is of no use to language models and wants a torch of its own.
# lm-evaluation-harness is tested here too, as it brings torch.
.venv-convert/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH: install one, or make PYTHON=/path/to/python" >&2; exit 2; }
	@test -x .venv-convert/bin/python || $(PYTHON) -m venv --clear .venv-convert
	@.venv-convert/bin/python -m pip --quiet --disable-pip-version-check install $(or $(TORCH),torch==2.13.0) \
		'transformers>=4.51,<5' 'requests>=2.33,<3' 'lm_eval>=0.4.9,<0.5' 'huggingface-hub>=0.34,<1' \
		pytest pytest-timeout pytest-xdist --editable '.[convert]'
	@.venv-convert/bin/python -m pip --quiet --disable-pip-version-check install --no-deps 'optimum-intel>=2.2,<3' 'optimum>=2.3,<3'
	@touch $@

test-clients: $(STAMP) .venv-clients/.installed
	@$(BIN)/python -m pytest -m clients

.venv-clients/.installed: tests/clients/requirements.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH: install one, or make PYTHON=/path/to/python" >&2; exit 2; }
	@$(PYTHON) -m venv --clear .venv-clients
	@.venv-clients/bin/python -m pip --quiet --disable-pip-version-check install -r tests/clients/requirements.txt
	@touch $@

test-soak: $(STAMP)
	@$(BIN)/python -m pytest -m soak -s

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy

bench: $(STAMP)
	@$(PIP) install --editable '.[dev,bench]'
	@$(BIN)/wager bench $(BENCH)

# What CI runs: every part of a measurement once, and no figure that means much.
bench-short: $(STAMP)
	@rm -rf bench-out/short
	@$(BIN)/wager bench --methods plain,lookup,auto,genai --per-task 1 --tasks multi_turn,qa,math,agent -n 32 \
		--out bench-out/short

peers: .venv-peers/.installed

# torch must not come into .venv. TORCH names another build, such as one without CUDA.
.venv-peers/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH: install one, or make PYTHON=/path/to/python" >&2; exit 2; }
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv --clear .venv-peers
	@.venv-peers/bin/python -m pip --quiet --disable-pip-version-check install $(or $(TORCH),torch==2.13.0) gguf \
		$$($(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['transformers'])")
	@touch $@

docs: $(STAMP)
	@$(BIN)/python -m pytest tests/unit/test_docs.py

notebook: $(STAMP)
	@$(PIP) install --editable '.[dev,notebook]'
	@$(BIN)/wager pull smollm2-135m >/dev/null
	@$(BIN)/python -m wager.bench.notebook docs/notebooks/speculative_sampling.py $(if $(QUICK),--quick)

clean:
	rm -rf .venv .venv-peers .venv-convert .venv-clients build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis bench-out rules-out drafting-out scale-out serve-out
