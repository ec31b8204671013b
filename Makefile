# Every daily command of pccl; each works from a bare clone. `make help` lists them.
#   make                  builds the core and runs its unit tests: quick, and needs no Python
#   make setup            Debian packages (as root; else it names them), .venv, pccl installed in it as editable
#   make test TORCH=2.11.0   all tests with another torch, in a second environment next to the first
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := fast
MAKEFLAGS += --no-builtin-rules --no-print-directory
.NOTPARALLEL:  # the tools below use all cores by themselves, and two of them must not work in one folder

PYTHON ?= /usr/bin/python3.11
TORCH_NEWEST := 2.15.0
TORCH_OLDEST := 2.11.0
TORCH ?= $(TORCH_NEWEST)
# The amount of simulation: minutes in `make test`, seeds in `make asan`.
SIM_MINUTES ?= 1
SEEDS ?= 200
JOBS ?= $(shell nproc)
export MAX_JOBS := $(JOBS)

comma := ,
VENV := .venv$(if $(filter-out $(TORCH_NEWEST),$(TORCH)),-torch-$(TORCH))
BIN := $(VENV)/bin
packages = tools/debian-packages.sh
cpp_files = find benchmarks csrc cuda master cmake tests -name '*.cc' -o -name '*.h' -o -name '*.cu'

# Stamps: one file for each completed step, newer than all inputs of the step. SOURCES lists folders and files, so that
# a new or removed file counts as a change. The slashes keep the folder cuda/ apart from the target cuda.
VENV_READY := $(VENV)/.ready
BUILT := $(VENV)/.built
INSTALLED := $(VENV)/.installed
SOURCES := CMakeLists.txt setup.py $(shell find cmake/ csrc/ cuda/ master/ tests/doubles/ ! -name '*.md')

.PHONY: help fast setup cuda demo test conformance torchft sim scenarios wheel release docs diagrams stress churn bench \
  deadlock-table page compare compare-base lint fmt types \
  gpu-bundle asan tsan aarch64 fuzz fuzz-add ci nightly clean packages packages-netns packages-test packages-bench \
  core
help:             ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## */\t/' | expand -t 14

# --- Building ------------------------------------------------------------------------------------------------------
packages:
	@$(packages) setup
packages-netns:   # installs all packages together, before anything is built
	@$(packages) setup netns
packages-test:
	@$(packages) setup netns shell
packages-bench:
	@$(packages) setup netns wan bench

fast: core        ## build the core, run its unit tests
	ctest --test-dir build/core -L unit -j$$((2 * $(JOBS))) --output-on-failure --no-tests=error

build/core/build.ninja: | packages
	cmake -S . -B build/core -G Ninja
core: build/core/build.ninja
	@cmake --build build/core -j$(JOBS)

$(VENV_READY): tools/requirements.txt | packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==$(TORCH) -r $<
	touch $@

# The compilation runs first, with visible output. Then pip finds it done.
$(BUILT): $(SOURCES) $(VENV_READY)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@
$(INSTALLED): pyproject.toml | $(BUILT)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $@
	@echo "pccl for torch $(TORCH) is in $(VENV): $(BIN)/pccl, $(BIN)/python"
setup: packages $(BUILT) $(INSTALLED)   ## packages, .venv, pccl installed: .venv/bin/pccl

# A folder of its own, because torch pins other versions of these packages.
CUDA_TOOLKIT := build/cuda-toolkit
$(CUDA_TOOLKIT)/.ready: tools/requirements-cuda.txt | packages
	rm -rf $(CUDA_TOOLKIT)
	$(PYTHON) -m venv build/pip
	build/pip/bin/pip install --quiet --disable-pip-version-check --no-deps --target $(CUDA_TOOLKIT) -r $<
	touch $@

# CMake looks for nvcc again: an earlier run may have found none. The package finds the library beside its module.
cuda: $(CUDA_TOOLKIT)/.ready   ## the CUDA kernels, libpccl_cuda.so: no GPU is needed
	cmake -S . -B build/core -G Ninja -DPCCL_NVCC= >/dev/null
	cmake --build build/core -j$(JOBS) --target pccl_cuda
	install build/core/libpccl_cuda.so pccl_backend/

# GPU_PYTHON: the Python of the machine with the GPU; it needs its headers here.
GPU_PYTHON ?= python3.12
GPU_TORCH ?= 2.11.0
build/gpu-venv/.ready: tools/requirements.txt
	$(GPU_PYTHON) -m venv build/gpu-venv
	build/gpu-venv/bin/pip install --quiet --disable-pip-version-check torch==$(GPU_TORCH) ninja \
	  $$(grep -oE '^(setuptools|numpy)==[0-9.]+' $<)
	touch $@
gpu-bundle: cuda build/gpu-venv/.ready   ## build/gpu-bundle, for tests/gpu/run.sh on a machine with a GPU
	cmake --build build/core -j$(JOBS) --target pccl_host_hash
	PATH="$(CURDIR)/build/gpu-venv/bin:$$PATH" tools/gpu-bundle.sh build/gpu-venv/bin/python

# --- Running -------------------------------------------------------------------------------------------------------
demo: setup       ## train on 3 peers, kill one, let one join
	$(BIN)/pccl demo

sim: core         ## simulate: SEED=n one seed, MINUTES=m that long, CAMPAIGN=n runs with many faults
	build/core/pccl-sim $(if $(SEED),--seed $(SEED),$(if $(MINUTES),--minutes $(MINUTES),$(if \
	  $(CAMPAIGN),--campaign $(CAMPAIGN),--seeds 500)))

scenarios: core   ## scenario transcripts; UPDATE=1 rewrites them
	build/core/pccl-scenarios $(if $(UPDATE),--update) tests/scenarios

# For this Python and this torch only, so that a change of the package is tried in minutes.
wheel: setup cuda ## a wheel that needs no compiler and no libraries, in dist/, and its test
	@$(packages) wheel
	$(BIN)/python packaging/wheel.py --torch $(VENV)/lib/python3*/site-packages/torch
	$(BIN)/pytest -n0 -m nightly tests/python/test_package.py

# The Pythons need their headers. A Python that does not run here is left out.
PYTHONS ?= $(foreach minor,10 11 12 13 14,$(shell python3.$(minor) -c 'import sys; print(sys.executable)' 2>/dev/null))
TORCHES ?= 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
RELEASE_PACKAGES := build/release-packages
$(RELEASE_PACKAGES)/.ready: tools/requirements-release.txt $(VENV_READY)
	rm -rf $(RELEASE_PACKAGES)
	$(BIN)/pip install --quiet --disable-pip-version-check --target $(RELEASE_PACKAGES) -r $<
	touch $@
release: export PYTHONPATH = $(RELEASE_PACKAGES)
release: $(VENV_READY) $(CUDA_TOOLKIT)/.ready $(RELEASE_PACKAGES)/.ready   ## all wheels and the source distribution, each tried: hours, needs root
	@$(packages) wheel release
	rm -rf dist
	$(BIN)/python -m check_manifest
	$(BIN)/python -m build --sdist --no-isolation --outdir dist
	$(BIN)/python packaging/wheel.py --python $(PYTHONS) --torch $(TORCHES)
	$(BIN)/python -m twine check --strict dist/*
	for torch in $(TORCH_OLDEST) $(TORCH_NEWEST); do \
	  $(BIN)/python packaging/try_wheel.py dist/*-cp311-*.whl --torch $$torch; done
	$(BIN)/python packaging/wheel_tests.py dist --python $(PYTHONS) --torch $(TORCH_OLDEST) $(TORCH_NEWEST)
	cd dist && sha256sum *.whl *.tar.gz > SHA256SUMS

# A folder of its own: the packages of .venv stay as they are. A page that loads anything from a network is an error.
DOCS_PACKAGES := build/docs-packages
$(DOCS_PACKAGES)/.ready: tools/requirements-docs.txt $(VENV_READY)
	rm -rf $(DOCS_PACKAGES)
	$(BIN)/pip install --quiet --disable-pip-version-check --target $(DOCS_PACKAGES) -r $<
	touch $@
docs: setup $(DOCS_PACKAGES)/.ready   ## the documentation site, in build/docs; reading it needs no network
	PYTHONPATH=$(DOCS_PACKAGES) $(BIN)/python -m sphinx -n -W --keep-going -q -d build/docs-cache docs build/docs
	! grep -rnE '<(script|img|link)[^>]* (src|href)="(https?:)?//' --include='*.html' build/docs

diagrams: core    ## draw docs/state-machines.md from the tables of the state machines
	build/core/pccl-diagrams --update docs/state-machines.md

stress: packages-netns setup  ## kill, pause, isolate and start processes: MINUTES=m SEED=n
	tools/stock-network.sh $(BIN)/python tests/stress/run.py --minutes $(or $(MINUTES),3) $(if $(SEED),--seed $(SEED))

churn: packages-netns setup   ## the same with trainers: MINUTES=m each SEED=n KINDS="blocking overlapped carry streaming ddp"
	for kind in $(or $(KINDS),blocking overlapped streaming ddp); do tools/stock-network.sh $(BIN)/python tests/stress/run.py \
	  --kind $$kind --minutes $(or $(MINUTES),3) $(if $(SEED),--seed $(SEED)); done

# The wide-area parts need root (namespaces, TUN). Without root they are skipped, with a message.
bench: packages-bench setup   ## speed, into RESULTS.md: an hour; QUICK=1: 5 minutes, into build/bench; PARTS="curve worlds"
	$(BIN)/python benchmarks/bench.py $(if $(QUICK),--quick) $(if $(PARTS),--parts $(PARTS))

# A row takes at most 20 s on one core, and Y5 five minutes.
deadlock-table: core   ## how easily collectives deadlock if their order matters: ROWS="S1 Y5" ROUNDS=n
	@$(PYTHON) benchmarks/deadlock_table/deadlock_table.py $(if $(ROWS),--rows $(ROWS)) $(if $(ROUNDS),--rounds $(ROUNDS))

# BASE is built only once, under build/compare. CASES='"64 MiB" calls' WORLDS="2 4" selects rows.
compare-base:     # checks BASE before anything is built
	@[ -n "$(BASE)" ] || { echo "Compare with which revision? For example: make compare BASE=HEAD~1" >&2; exit 2; }
	@git rev-parse --verify --quiet --end-of-options "$(BASE)^{commit}" >/dev/null || \
	  { echo "git knows no revision \"$(BASE)\" here" >&2; exit 2; }
compare: compare-base packages-netns setup   ## is this tree slower than BASE=REV? 20 minutes; fails if a row is
	$(BIN)/python benchmarks/compare.py "$(BASE)" $(if $(CASES),--cases $(CASES)) $(if $(WORLDS),--worlds $(WORLDS))

# All parts run, also after one that has failed. The simulation runs beside pytest and uses the time in which pytest's
# processes wait for each other.
test: packages-test setup core  ## unit, scenarios, a minute of simulation, tidy, multi-process
	failed=; \
	  ctest --test-dir build/core -j$$(($(JOBS) + 1)) --output-on-failure --no-tests=error || failed+=" ctest"; \
	  build/core/pccl-sim --minutes $(SIM_MINUTES) > build/sim.log 2>&1 & simulation=$$!; \
	  trap 'kill $$simulation 2>/dev/null || true; exit 1' INT TERM; \
	  $(BIN)/pytest -n $$(($(JOBS) + 1)) || failed+=" pytest"; \
	  wait $$simulation || failed+=" simulation"; cat build/sim.log; \
	  if [ -n "$$failed" ]; then echo "make test: failed:$$failed" >&2; exit 1; fi; \
	  echo "make test: ctest, pytest and the simulation passed"

# TESTS selects by a part of a test's name. UPDATE=1 rewrites the list of expected results, in tests/conformance/expected.
WORLD ?= 4
MODE ?= pccl as-gloo as-mpi
# MODE=reconfigure FILE=path runs another file of PyTorch's repository (tests/conformance/fault_tolerance.py).
conformance: setup   ## torch's own tests of a backend: WORLD=n, MODE="pccl as-gloo as-mpi gloo", TESTS=text, UPDATE=1
ifeq ($(MODE),reconfigure)
	FAULT_TOLERANCE_TESTS="$(FILE)" WORLD_SIZE=$(WORLD) $(BIN)/python -m unittest discover -v -s tests/conformance \
	  -p fault_tolerance.py
else
	broken=0; for mode in $(MODE); do $(BIN)/python tests/conformance/run.py --mode $$mode --world $(WORLD) \
	  $(if $(TESTS),--tests $(TESTS)) $(if $(UPDATE),--update) || broken=1; done; exit $$broken
endif

# torchft requires a torch, so pip installs it without its dependencies. It has wheels for x86-64 only: elsewhere its tests
# are skipped.
TORCHFT ?= torchft==0.2.0; platform_machine == "x86_64"
TORCHFT_PACKAGES := build/torchft-packages
$(TORCHFT_PACKAGES)/.ready: tools/requirements-torchft.txt $(VENV_READY)
	rm -rf $(TORCHFT_PACKAGES)
	$(BIN)/pip install -qq --disable-pip-version-check --target $(TORCHFT_PACKAGES) --no-deps '$(TORCHFT)'
	$(BIN)/pip install -qq --disable-pip-version-check --target $(TORCHFT_PACKAGES) -r $<
	touch $@
torchft: setup $(TORCHFT_PACKAGES)/.ready   ## tests that need torchft: process group, checkpoint transport, recipe
	PYTHONPATH=$(CURDIR)/$(TORCHFT_PACKAGES) $(BIN)/pytest tests/python/test_torchft.py tests/python/test_recipes.py

PAGE_PACKAGES := build/page-packages
$(PAGE_PACKAGES)/.ready: tools/requirements-page.txt $(VENV_READY)
	rm -rf $(PAGE_PACKAGES)
	$(BIN)/pip install -qq --disable-pip-version-check --target $(PAGE_PACKAGES) -r $<
	touch $@
page: setup $(PAGE_PACKAGES)/.ready   ## the page of a master in Chromium, and its metrics by promtool
	@$(packages) page
	BROWSER_TESTS=1 PYTHONPATH=$(CURDIR)/$(PAGE_PACKAGES) $(BIN)/pytest -n0 tests/python/test_page_browser.py \
	  tests/python/test_page_live.py tests/tidy/test_metrics.py

# --- Checking ------------------------------------------------------------------------------------------------------
# clang-tidy parses the code as clang does, so its run replaces a build with the second compiler. It gets a few large
# units, which take an eighth of the time of many small ones. The ordinary build checks that each file includes what it
# needs. The torch layer is left out: its headers take a minute per file.
lint: $(VENV_READY)   ## formatting, names, the project's own rules
	@$(packages) clang
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(cpp_files) | xargs clang-format --dry-run -Werror
	$(BIN)/pytest -q tests/tidy
	cmake -S . -B build/clang -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DPCCL_TESTS=OFF \
	  -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=12 >/dev/null
	clang-tidy --list-checks csrc/base/ids.cc -- | grep -q identifier-naming  # it does not fail on an unreadable config
	run-clang-tidy -quiet -p build/clang -j$(JOBS) /Unity/ 2> >(grep -v 'warnings* generated' >&2)

fmt: $(VENV_READY)    ## reformat everything
	@$(packages) clang
	$(cpp_files) | xargs clang-format -i
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV_READY)  ## mypy, strict
	$(BIN)/mypy

# $(call sanitized,folder,compiler,cmake options,tests left out): the core's tests under a sanitizer. LAYERS selects
# folders of tests/cpp.
space := $(subst ,, )
define sanitized
	cmake -S . -B build/$1 -G Ninja -DCMAKE_CXX_COMPILER=$2 $3 >/dev/null
	cmake --build build/$1 -j$(JOBS) $(if $(LAYERS),--target pccl-sim $(LAYERS:%=test_%))
	ctest --test-dir build/$1 -j$$(($(JOBS) + 1)) --output-on-failure --no-tests=error -E '$4' \
	  $(if $(LAYERS),-R '^($(subst $(space),|,$(strip $(LAYERS))))[.]')
endef
asan: export LSAN_OPTIONS := suppressions=$(CURDIR)/tests/leaks.supp:print_suppressions=0
asan: | packages  ## core tests and SEEDS seeds with the sanitizers for addresses and undefined behaviour: LAYERS="net"
	@$(packages) clang
	$(call sanitized,asan,clang++,"-DPCCL_SANITIZE=address$(comma)undefined",^sim)
	build/asan/pccl-sim --seeds $$(($(SEEDS) / 2)) & other=$$! \
	  && build/asan/pccl-sim --seeds $$(($(SEEDS) / 2)) --first $$(($(SEEDS) / 2 + 1)) && wait $$other

# The simulator and the tests of pure cores have one thread only.
one_thread := ^(sim|scenarios|protocol)|^[a-z]*\.[^.]*(Core|Engine|Worlds|SameBits|Quantized|Schedule|PartsOfThree|OverTime|GroupsCost)
tsan: | packages  ## core tests with the thread sanitizer
	@$(packages) clang
	$(call sanitized,tsan,clang++,-DPCCL_SANITIZE=thread -DPCCL_OPENMP=OFF,$(one_thread))

# With the libraries of a wheel, because Debian has none of another processor here. qemu 7.2 cannot run some tests, which
# run in every other build. A child of a process with threads ends in an assertion of qemu. It refuses
# madvise(MADV_POPULATE_WRITE) and filters of sockets, and has no values for TCP_INFO and the pacing rate. A program that
# counts its pages, looks into its heap, or ends by a timer of CPU time finds those of qemu.
OF_TCP_INFO := Socket\.(KeepsItsWindow|KnowsHowFar)|Greeting\.IsRefusedByAMaster|ProbeEnd\.(MeasuresUnder|BothEndsNeed)
OF_SOCKETS := Lane\.(KeepsItsWindow|KnowsWhenLargePackets)|$(OF_TCP_INFO)
OF_MEMORY := ForkedChild|ALogThatIsNotReadDoesNotDelayAnAbort|Prefaulter|Pool\.Clears|Tls\.KeysAreWiped
NOT_IN_QEMU := $(OF_MEMORY)|$(OF_SOCKETS)
ARM := build/aarch64
aarch64: setup    ## core tests, scenarios and a master on 64-bit ARM, compiled here and run by qemu
	@$(packages) aarch64 wheel
	packaging/bundled.sh $(ARM)/bundled aarch64-linux-gnu
	cmake -S . -B $(ARM)/core -G Ninja --toolchain cmake/aarch64.cmake -DPCCL_BUNDLED=$(CURDIR)/$(ARM)/bundled \
	  -DPCCL_UNITY=ON -DPCCL_NVCC=OFF >/dev/null
	cmake --build $(ARM)/core -j$(JOBS)
	ctest --test-dir $(ARM)/core -j$(JOBS) --output-on-failure --no-tests=error -E '$(NOT_IN_QEMU)'
	MASTER_OF_TESTS="qemu-aarch64 -L /usr/aarch64-linux-gnu $(ARM)/core/pccl-master" \
	  $(BIN)/pytest tests/python/test_collectives.py tests/python/test_membership.py

fuzz: | packages  ## the parsers and the cores under libFuzzer: MINUTES=m each, JOBS at a time
	@$(packages) clang
	cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DPCCL_FUZZ=ON -DPCCL_TESTS=OFF -DPCCL_OPENMP=OFF \
	  "-DPCCL_SANITIZE=address$(comma)undefined" >/dev/null
	cmake --build build/fuzz -j$(JOBS)
	PYTHON=$(PYTHON) tools/fuzz.sh build/fuzz $(or $(SECONDS_EACH),$$(awk 'BEGIN { print 60 * $(or $(MINUTES),1) }')) $(JOBS)

fuzz-add:         ## keep one input of a fuzz target for good: TARGET=codec FILE=input
	@$(PYTHON) tools/fuzz_corpus.py add "$(TARGET)" "$(FILE)"

ci:               ## all checks of CI
	.ci/run

# What takes longer than a minute and is not the first to find a fault. Each line may be run alone.
nightly: core     ## hours: the oldest torch, torchft, a wheel, long simulation, quantized trainings, stress, fuzzing, both sanitizers
	$(MAKE) test TORCH=$(TORCH_OLDEST) SIM_MINUTES=10
	$(MAKE) setup
	SECURED_TESTS=1 $(BIN)/pytest -n $$(($(JOBS) + 1)) tests/python  # all traffic is encrypted
	$(BIN)/pytest -n0 -m nightly tests/python --ignore=tests/python/test_package.py
	$(MAKE) torchft
	$(MAKE) page
	PYTHONPATH=$(CURDIR)/$(TORCHFT_PACKAGES) tools/stock-network.sh $(BIN)/python benchmarks/replicas.py --rounds 1
	$(BIN)/python benchmarks/quality.py quantized
	$(MAKE) wheel
	$(MAKE) sim CAMPAIGN=5000
	build/core/verdict_model
	build/core/pccl-sim --seeds 1000 --insider alone
	$(MAKE) deadlock-table
	$(MAKE) deadlock-table ROWS=Y5
	$(MAKE) stress MINUTES=30
	$(MAKE) churn MINUTES=30
	$(MAKE) fuzz SECONDS_EACH=600
	$(MAKE) asan SEEDS=1000
	$(MAKE) tsan
	$(MAKE) aarch64

clean:            ## delete what was built, except the Python environments
	rm -rf build $(wildcard .venv*/.built) pccl_backend/*.so pccl_backend/bin \
	  pccl_backend/_limits.py
