# Set-up, training, tests and checks. `make help` lists the targets.
PYTHON ?= python3
BIN := .venv/bin
CORE_SOURCES := CMakeLists.txt $(shell find csrc -name '*.cpp' -o -name '*.hpp')
# More flags for `make train` and `make lock`, e.g. ARGS="--steps 100".
ARGS ?=
# Seconds that `make fuzz` gives each harness and each kind of file; its further arguments (FUZZ_ARGS=pgn_fuzz).
FUZZ_SECONDS ?= 60
FUZZ_ARGS ?=
# The interpreter of test-gpu and bench-gpu, which set nothing up: .venv's where there is one (docs/gpu.md).
GPU_PYTHON ?= $(if $(BUNDLE)$(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
# A folder of wheels from `make bundle`, which `make setup` and `make test-gpu` then install from instead of the network.
BUNDLE ?=
# 1: the packages of PYTHON itself, torch among them, are used where the bundle has none.
SYSTEM_TORCH ?=
# Of `make bundle`: where to, for which Python, with which extra of pyproject.toml, without what the target has
# (a file as pip freeze prints it), 1: with torch.
OUT ?= build/bundle
PYTHON_VERSION ?=
EXTRA ?= test
HAVE ?=
TORCH ?=
# How many compilers run in parallel.
JOBS ?= $(shell nproc)
# How many processes run the tests, each a file of tests at a time. Many tests wait, or start jobs of several ranks.
TEST_PROCESSES ?= 3

.PHONY: help setup lock bundle train demo test test-slow test-packages test-wheel wheel lint format sanitize fuzz bench test-gpu bench-gpu architecture clean

help:
	@echo "make setup         create .venv, install the dependencies, build the C++ core (BUNDLE=DIR: without network)"
	@echo "make lock          write requirements.lock anew (needs uv; ARGS=--upgrade takes newer versions)"
	@echo "make bundle        fetch wheels for a machine without network (PYTHON_VERSION=3.12 HAVE=FILE; docs/gpu.md)"
	@echo "make train         set up, then train on the embedded games (ARGS=... adds flags)"
	@echo "make demo          learn Connect Four from zero in some 15 minutes on two cores, and plot it"
	@echo "make test          set up, then run the fast tests"
	@echo "make test-slow     run the slow tests"
	@echo "make test-packages install what the multi-node tests need (as root; Debian, Ubuntu)"
	@echo "make wheel         build dist/alphazero-VERSION-*.whl, for this Python and Linux"
	@echo "make test-wheel    install that wheel in an empty environment and try every command, in two minutes"
	@echo "make lint          check style, types, imports and shell scripts"
	@echo "make format        format the Python and C++ sources"
	@echo "make sanitize      run the C++ tests under the address, undefined-behaviour and thread sanitizers"
	@echo "make fuzz          feed damaged and hostile input to every reader (FUZZ_SECONDS=60; needs clang)"
	@echo "make bench         measure the figures of docs/performance.md"
	@echo "make test-gpu      run every test that needs a GPU, within nine minutes (GPU_PYTHON=...; docs/gpu.md)"
	@echo "make bench-gpu     measure this machine's GPU, within nine minutes; JSON in build/gpu"
	@echo "make architecture  draw the diagram in docs/architecture.md from the imports"
	@echo "make clean         delete .venv and everything that was built"

setup: .venv/core.stamp

ifdef BUNDLE
define install_packages
	@echo "make: 1-4 of 5: an environment for Python in .venv, with the packages of $(BUNDLE)"
	$(PYTHON) -m tools.bundle install $(BUNDLE) .venv $(if $(SYSTEM_TORCH),--system)
endef
else
define install_packages
	@echo "make: 1 of 5: an environment for Python in .venv"
	$(PYTHON) -m venv .venv
	@# What builds packages first: pip would fetch it for each of them, of any version.
	@echo "make: 2 of 5: the packages of requirements.lock (a minute or two)"
	awk '/^[a-z]/ {wanted = /^(pip|setuptools|wheel|packaging)==/} wanted' requirements.lock | \
		$(BIN)/pip install --quiet --require-hashes --requirement /dev/stdin
	$(BIN)/pip install --quiet --require-hashes --no-build-isolation --requirement requirements.lock
	@echo "make: 3 of 5: torch (hundreds of megabytes, with CUDA gigabytes: it takes minutes, and pip is silent)"
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	@# Its build imports torch. Its setup.py looks for a CUDA toolkit where torch sees a GPU, and fails without one.
	@# Nothing here compiles with nvcc, so a GPU machine needs none.
	@echo "make: 4 of 5: DeepSpeed (a wheel is built)"
	DS_IGNORE_CUDA_DETECTION=1 $(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation deepspeed
endef
endif

.venv/dependencies.stamp: requirements.lock constraints.txt $(wildcard $(BUNDLE:%=%/SHA256SUMS))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "make: $(PYTHON) is older than Python 3.10; install Python 3.10-3.13 or call make PYTHON=python3.x"; exit 1; }
	@$(PYTHON) -c 'import venv$(if $(BUNDLE),,; import ensurepip)' || \
		{ echo "make: $(PYTHON) has no venv module; install it (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_config_var("INCLUDEPY") + "/Python.h"))' || \
		{ echo "make: $(PYTHON) has no headers; install them (Debian, Ubuntu: apt install python3-dev; Fedora: dnf install python3-devel)"; exit 1; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || \
		{ echo "make: no C++ compiler; install g++ 10 or newer (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++)"; exit 1; }
	$(install_packages)
	@touch $@

.venv/core.stamp: .venv/dependencies.stamp pyproject.toml $(CORE_SOURCES)
	@echo "make: 5 of 5: the C++ core is compiled (a minute or two)"
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

# Without torch, its CUDA libraries and DeepSpeed: see constraints.txt.
lock:
	@command -v uv >/dev/null || { echo "make: no uv; install it (pip install uv)"; exit 1; }
	uv pip compile --quiet pyproject.toml --extra dev --group build --universal --python-version 3.10 --generate-hashes \
		--constraint constraints.txt --no-header --no-annotate --output-file requirements.lock $(ARGS)
	awk 'BEGIN {print "# By make lock: all that make setup installs, but for what constraints.txt names."} \
		/^[a-z]/ {kept = /^nvidia-ml-py==/ || !/^(torch|triton|deepspeed|cuda-|nvidia-)/} kept' \
		requirements.lock >requirements.lock.new
	mv requirements.lock.new requirements.lock

# The wheels of another Python, hashes checked; see docs/gpu.md.
bundle: setup
	@$(BIN)/python -m tools.make_bundle $(OUT) $(PYTHON_VERSION:%=--python-version=%) $(EXTRA:%=--extra=%) \
		$(HAVE:%=--have=%) $(if $(TORCH),--torch)

train: setup
	./launch_distributed_training.sh $(ARGS)

# Connect Four from zero in some 15 minutes on two cores, and a page that shows how it learned.
demo: setup
	./launch_distributed_training.sh --config connect4 --gpus 2 --device cpu --generations 22 --run-name demo $(ARGS)
	$(BIN)/alphazero report runs/demo

test: setup
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile

test-slow: setup
	$(BIN)/python -m pytest -m slow --timeout 1800

test-packages:
	tools/install_test_packages.sh

# Beside what setup has compiled: a wheel takes seconds.
wheel: setup
	rm -f dist/alphazero-*.whl
	$(BIN)/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .

test-wheel: wheel
	$(BIN)/python -m tools.walk_wheel dist/alphazero-*.whl

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(filter-out CMakeLists.txt,$(CORE_SOURCES))
	$(BIN)/hadolint Dockerfile
	$(BIN)/shellcheck launch_distributed_training.sh tools/install_test_packages.sh .ci/run

format: setup
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter-out CMakeLists.txt,$(CORE_SOURCES))

sanitize: setup
	$(BIN)/cmake -S . -B build/sanitize -DALPHAZERO_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/sanitize --parallel $(JOBS)
	$(BIN)/ctest --test-dir build/sanitize --output-on-failure --parallel $(JOBS)
	@# Threads meet in the loader and in the search.
	$(BIN)/cmake -S . -B build/sanitize-thread -DALPHAZERO_SANITIZE=thread -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/sanitize-thread --parallel $(JOBS) --target encoding_test search_test game_search_test
	$(BIN)/ctest --test-dir build/sanitize-thread --output-on-failure --parallel $(JOBS) -R 'encoding_test|search_test'

# The harnesses of csrc/fuzz under libFuzzer, then the files that Python reads. Inputs at fault are kept in
# build/fuzz/found.
fuzz: setup
	@command -v clang++ >/dev/null || \
		{ echo "make: no clang++; install clang 14 or newer (Debian, Ubuntu: apt install clang)"; exit 1; }
	$(BIN)/cmake -S . -B build/fuzz -DALPHAZERO_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/fuzz --parallel $(JOBS)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_ARGS)

bench: setup
	$(BIN)/alphazero bench all

test-gpu: $(if $(BUNDLE),setup)
	$(GPU_PYTHON) -m tools.gpu_proof test $(ARGS)

bench-gpu: $(if $(BUNDLE),setup)
	$(GPU_PYTHON) -m tools.gpu_proof bench $(ARGS)

architecture: setup
	$(BIN)/python -m tools.draw_architecture

clean:
	rm -rf .venv build dist alphazero/_core*.so alphazero/_core.pyi
