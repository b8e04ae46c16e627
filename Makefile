PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/installed
RUN := runs/demo
SEED ?= 1
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# every shape in a signature is checked: four times slower, so it is done where each part runs once, and in test-slow
SHAPES := --jaxtyping-packages=regard.data,regard.nn,regard.models,regard.decoding,regard.training,regard.evaluation,regard.run,regard.insight,regard.lab,beartype.beartype

unexport PYTHONDONTWRITEBYTECODE  # dozens of processes import the tests: they are compiled once

.PHONY: install demo test test-shuffled test-slow test-gpu check bench clean

install: $(STAMP)

# torch first, by its pin and through pip: a bare `torch` would pull gigabytes of CUDA
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[data,figures,tensorboard,tune,test]"
	touch $(STAMP)

# train on generated Latin, score the three test sets, show where the model looked
demo: $(STAMP)
	rm -rf $(RUN)
	$(BIN)/regard train demo --run $(RUN)
	$(BIN)/regard evaluate $(RUN)
	$(BIN)/regard look $(RUN) "Caecilius est in horto , quod servi in atrio laborant ." --png $(RUN)/attention.png

test: $(STAMP)
	scripts/apt.sh
	$(PYTEST) -m "not slow and not gpu"
	$(PYTEST) $(SHAPES) -m "not slow and not gpu" tests/models/test_laws.py tests/models/test_kinds.py tests/nn/test_attention.py tests/nn/test_recurrent.py tests/decoding/test_search.py tests/training/test_objective.py tests/training/test_penalties.py -k "(stepping and not tanh- and not lstm-) or equation or objective or penalt or formula"

# in an order drawn from SEED: a test that needs another to run before it fails here
test-shuffled: $(STAMP)
	$(PYTEST) --shuffle $(SEED) -m "not slow and not gpu"

test-slow: $(STAMP)
	$(PYTEST) -m "slow and not gpu"
	$(PYTEST) $(SHAPES) -m "not slow and not gpu" tests/data tests/decoding tests/evaluation tests/insight tests/models tests/nn tests/training --ignore tests/nn/test_interpreted.py

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -o addopts=-q -m gpu  # without checked shapes: Triton reads its functions' own source

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

# prints JSON rows; data.py and recipes on real data want REGARD_DATA, the folder of data sets
bench: $(STAMP)
	$(BIN)/python benchmarks/products.py
	$(BIN)/python benchmarks/scores.py
	$(BIN)/python benchmarks/dropout.py
	$(BIN)/python benchmarks/cells.py
	$(BIN)/python benchmarks/decoder.py
	$(BIN)/python benchmarks/transformer.py
	$(BIN)/python benchmarks/experts.py
	$(BIN)/python benchmarks/long.py --lengths 256 512
	$(BIN)/python benchmarks/pictures.py
	$(BIN)/python benchmarks/kills.py
	$(BIN)/python benchmarks/crash_points.py
	$(BIN)/python benchmarks/rank_kills.py
	$(BIN)/python benchmarks/fuzz_recipes.py
	$(BIN)/python benchmarks/fuzz_models.py
	test -z "$$REGARD_DATA" || $(BIN)/python benchmarks/data.py
	test -z "$$REGARD_DATA" || $(BIN)/python benchmarks/choices.py

clean:
	rm -rf runs .pytest_cache .mypy_cache .ruff_cache
