# make demo   sets up, trains on data that ships with scikit-learn, says what it found
# make test   sets up and passes the tests
.PHONY: docs docs-serve gallery help setup test test-extra check-dist demo bench-tables-peers bench-images bench-pictures bench-scaling bench-speed bench-tables bench-tables-rest clean
.DELETE_ON_ERROR:

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
STAMP := .venv/.installed
PEERS := .venv-peers
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where it is set, each of the many processes that tests start would compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

help:
	@echo 'make setup       build .venv with every extra (done by the others when needed)'
	@echo 'make demo        train on a small data set and show the result'
	@echo 'make test        linters, types, layers and the tests'
	@echo 'make test-extra  slow and heavy tests'
	@echo 'make docs        build the documentation site; make docs-serve shows it'
	@echo 'make gallery     run the worked examples and write their pages and notebooks'
	@echo 'make check-dist  wheel and sdist, each installed into an empty environment with each extra'
	@echo 'make bench-NAME  images, tables, tables-rest, tables-peers (need ESAD_DATA), speed, scaling; see benchmarks/'
	@echo 'make clean       remove .venv and caches'

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'esad needs Python 3.11 or newer. Name one with: make PYTHON=python3.12'; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all,dev]'
	@touch $@

test: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m 'not extra'

test-extra: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[spark,docs]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m extra tests

# The documentation site in site/; a broken link, a page that is out of date or in no menu, or a public name without a docstring fails it.
docs docs-serve: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(filter docs,$@),build --strict,serve)

gallery: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	OMP_NUM_THREADS=1 $(BIN)/python tools/gallery.py

check-dist: setup
	$(BIN)/python -m pytest -m extra tests/test_dist.py

demo: setup
	$(BIN)/esad demo

bench-images: setup
	$(BIN)/python benchmarks/images_fmnist.py

# The paper's tables on the CPU. The stored text is what docs/results.md is written from.
experiment = $(patsubst %,experiments/%.toml,$(1))
TIMED := $(call experiment,classic classic_chosen ablation lambda_norm_tables lambda_assist_tables)
UNTIMED := $(call experiment,as_published leak)
STORED := experiments/results/tables.jsonl
# What the store in $(1) has, and of what it lacks the stored results.
publish = $(BIN)/esad bench merge $(1) $(STORED) && $(BIN)/esad bench export $(1) --out $(STORED) \
	&& $(BIN)/esad bench report $(TIMED) $(UNTIMED) --store $(STORED) --out docs/results.md --figures docs/images/results

# From nothing, 34 minutes on 2 cores.
bench-tables: setup
	rm -f bench-tables.db
	$(BIN)/esad bench $(TIMED) --store bench-tables.db --jobs $(JOBS)
	$(call publish,bench-tables.db)

# What is not stored yet, the paper's own settings and the leak included.
bench-tables-rest: setup
	test ! -e $(STORED) || $(BIN)/esad bench merge bench.db $(STORED)
	$(BIN)/esad bench $(TIMED) $(UNTIMED) --store bench.db --jobs $(JOBS)
	$(call publish,bench.db)

# The paper's pictures, on a GPU; the stored text is what docs/results-pictures.md is written from.
PICTURES := $(call experiment,labelled_ratio_grey labelled_ratio_cifar10 pollution_grey pollution_cifar10 known_classes_grey \
	known_classes_cifar10 unsupervised_grey unsupervised_cifar10 depth_fmnist lambda_norm_grey lambda_norm_cifar10 lambda_assist_mnist)
ON_CPU := $(call experiment,medical_standins codes_pictures codes_nih as_published_pictures)
SEEN := experiments/results/pictures.jsonl
bench-pictures: setup
	$(BIN)/esad bench merge bench-pictures.db $(SEEN)
	$(BIN)/esad bench $(PICTURES) $(ON_CPU) --store bench-pictures.db --jobs 8
	$(BIN)/esad bench export bench-pictures.db --out $(SEEN)
	ESAD_DATA= $(BIN)/esad bench report $(PICTURES) $(ON_CPU) --store $(SEEN) --out docs/results-pictures.md --figures docs/images/results

# The peers live apart: DeepOD's metadata asks for a torch of 2022, so it is installed without its dependencies.
$(PEERS)/.installed: pyproject.toml constraints.txt benchmarks/requirements-peers.txt
	@$(PEERS)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet -c constraints.txt -e . -r benchmarks/requirements-peers.txt
	$(PEERS)/bin/python -m pip install --quiet --no-deps deepod==0.4.1
	@touch $@

bench-tables-peers: $(PEERS)/.installed
	$(PEERS)/bin/python benchmarks/tables.py --labels 1% 3 10 30 none

bench-scaling: setup $(PEERS)/.installed
	$(BIN)/python benchmarks/scaling.py grow train bars plot --peers $(PEERS)/bin/python

bench-speed: $(PEERS)/.installed
	$(PEERS)/bin/python benchmarks/speed.py

clean:
	rm -rf .venv $(PEERS) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
