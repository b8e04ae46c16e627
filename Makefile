PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: install demo test test-slow check bench clean

install: $(STAMP)

# torch first, by its pin and through pip: a bare `torch` would pull gigabytes of CUDA
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[figures,tensorboard,test]"
	touch $(STAMP)

