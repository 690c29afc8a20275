# One door for people, pre-commit and CI. `make check test` is what must pass before a change lands.
export OMP_NUM_THREADS ?= 1
PYTHON ?= python
CYCLES ?= 1000

.PHONY: check test bench campaign crash docs format

check:  ## lint, formatting and types
	ruff check .
	ruff format --check .
	mypy

format:  ## what check would complain about, mended where a tool can
	ruff check --fix .
	ruff format .

test:  ## everything but campaigns; two processes
	$(PYTHON) -m pytest -n 2 -m "not slow"

docs:  ## the site, strictly, with its tables rendered from benchmarks/results
	mkdocs build --strict

bench:  ## figures against their targets, at full size, written to benchmarks/results
	$(PYTHON) benchmarks/all.py

crash:  ## kill -9 a writing process CYCLES times
	$(PYTHON) benchmarks/crash.py --cycles $(CYCLES)

campaign: crash  ## the long proofs
	$(PYTHON) benchmarks/fuzz.py --batches 1000000
	$(PYTHON) benchmarks/bitflips.py --flips 2000
	$(PYTHON) -m pytest -n 2 -m slow; status=$$?; test $$status -eq 0 -o $$status -eq 5
