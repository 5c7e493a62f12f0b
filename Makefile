# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# A front for CMake and the scripts. `make help` lists what there is.

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
PRESET ?= release
# What `make test` builds. `elsewhere`: the product, and what the tests in tests/elsewhere.txt need.
TEST_TARGET ?= all
# Passed to CMake when it configures, such as -DTARN_WERROR=ON or -DCMAKE_C_COMPILER=clang.
CMAKE_FLAGS ?=
FUZZ_SECONDS ?= 60
# libfuzzer, or afl.
ENGINE ?= libfuzzer
# Of make wheels and make release; none: both.
PROCESSORS ?=
# Parts of make portability and of make nightly; none: all.
PARTS ?=
SOAK_SECONDS ?= 3600

build_dir = $(if $(filter release,$(PRESET)),build,build-$(PRESET))
# CMake prints errors and warnings to stderr; the rest says nothing new.
quiet = --log-level=WARNING >/dev/null
# Tests wait more than they compute.
test_jobs = $(shell expr 2 '*' $(JOBS))
configure = cmake --preset $(PRESET) $(CMAKE_FLAGS)
compile = cmake --build $(build_dir) --parallel $(JOBS)
# In CI a declaration that no header was compared with is an error, and cuDSS's header is in no package.
cudss_headers = $(if $(filter true,$(CI)),scripts/cudss-headers build/cudss,true)
# What the adaptors are compiled with.
adaptor_packages = $(if $(filter true,$(CI)),scripts/adaptor-packages,true)
# The MPI of the test gpu.mpi.
mpi_packages = $(if $(filter true,$(CI)),scripts/mpi-packages,true)
export CUDSS_DIR ?= $(CURDIR)/build/cudss
export TARN_ADAPTOR_PACKAGES ?= $(CURDIR)/build/adaptor-packages

.PHONY: all build demo test docs bench wheels dist release mutants models fuzz fuzz-coverage soak mixed mixed-worth nightly portability coverage lint format install uninstall clean help require-cmake

all: build

build: require-cmake ## Build the library and the program into build/ (the default; PRESET=debug|asan|ubsan|tsan for others)
	@$(configure) $(quiet)
	@$(compile) --target product

demo: override PRESET = release
demo: ## Install what the build needs, build the program, and replay four recorded traces
	@scripts/setup demo
	@$(configure) $(quiet)
	@$(compile) --target tarn
	@scripts/demo

test: ## Install what the tests need, build, and run every test (PRESET=..., TESTS=<regular expression>)
	@scripts/setup demo test docs
	@$(cudss_headers)
	@$(adaptor_packages)
	@$(mpi_packages)
	@$(configure) -DTARN_TESTS=ON $(quiet)
	@$(compile) --target $(TEST_TARGET)
	@scripts/run-tests $(build_dir) -j $(test_jobs) $(if $(TESTS),-R '$(TESTS)')

docs: ## Make the site of documents, headers and Python package, with a search, build/docs/html/index.html
	@scripts/setup demo docs
	@$(configure) $(quiet)
	@$(compile) --target tarn
	@scripts/docs build/docs $(build_dir)/tarn
	@echo build/docs/html/index.html

bench: override PRESET = release
bench: ## Build the release and run every benchmark
	@scripts/setup demo bench
	@$(configure) $(quiet)
	@cmake --build build --parallel $(JOBS) --target product benchmarks
	@scripts/bench build

wheels: ## Build the Python package for x86-64 and aarch64 into build/wheels/wheel, and test it (PROCESSORS=x86_64)
	@scripts/setup demo wheel
	@scripts/wheels build/wheels $(PROCESSORS)

dist: ## Pack the sources of the last commit as build/dist/tarn-VERSION.tar.xz
	@scripts/dist build/dist

release: ## Make every file of a release from a clean clone, with checksums, in build/release (PROCESSORS=x86_64)
	@scripts/release build/release $(PROCESSORS)

mutants: ## Check that tests notice each deliberate fault in tests/mutants/ (MUTANTS=<names>, MUTANTS_PART=0/12 for a twelfth)
	@scripts/setup demo test docs
	@$(cudss_headers)
	@$(adaptor_packages)
	@scripts/mutants $(if $(MUTANTS_PART),--part $(MUTANTS_PART)) $(MUTANTS)

models: ## Let a model checker try all executions of the code without locks (MODELS_LONG=1 for a larger scope, MODELS=<names>)
	@scripts/setup demo models
	@scripts/models $(MODELS)

fuzz: ## Fuzz for FUZZ_SECONDS, divided among the targets (ENGINE=afl for AFL++)
	@scripts/setup demo fuzz
	@scripts/fuzz $(FUZZ_SECONDS) $(ENGINE)

fuzz-coverage: ## Show how much of each reader its fuzzer's stored inputs reach; fail below 90 %
	@scripts/setup demo fuzz
	@scripts/fuzz-coverage

soak_tests = test.mixed.model test.mixed.threads tarn tarn_sims test.memory.model test.memory.storm test.memory.pool_storm
soak_failures = $(if $(shell [ $(SOAK_SECONDS) -lt 600 ] || echo long), \
    $(subst /test_,.,$(patsubst tests/%.c,test.%,$(wildcard tests/*/test_*failures*.c tests/*/test_first_use.c))))
soak: ## Run everything at once for SOAK_SECONDS, after the models and storms with random seeds
	@scripts/setup demo test bench
	@cmake --preset release $(CMAKE_FLAGS) -DTARN_TESTS=ON $(quiet)
	@cmake --build build --parallel $(JOBS) --target $(soak_tests) $(soak_failures) test.soak.short
	@cmake --preset asan $(CMAKE_FLAGS) -DTARN_TESTS=ON $(quiet)
	@cmake --build build-asan --parallel $(JOBS) --target $(soak_tests) $(soak_failures)
	@scripts/soak $(SOAK_SECONDS) build build-asan

# Beside those of soak: what threads do to each other shows under the thread sanitizer.
mixed: ## Run the model in which features meet for SOAK_SECONDS, with random seeds, sanitizers and every driver
	@scripts/setup demo test
	@for preset in release asan tsan; do \
	    cmake --preset $$preset $(CMAKE_FLAGS) -DTARN_TESTS=ON $(quiet) && \
	    cmake --build build$$([ $$preset = release ] || echo -$$preset) --parallel $(JOBS) --target test.mixed.model test.mixed.threads tarn tarn_sims || exit 1; \
	done
	@scripts/seeds $(SOAK_SECONDS) build/mixed 'mixed.model mixed.model_cuda mixed.model_hip mixed.threads mixed.threads_cuda mixed.threads_hip' build build-asan build-tsan

mixed-worth: ## Measure how long that model takes to find faults that are put back (MUTANTS=<names>)
	@scripts/setup demo test
	@lab/mixed-worth $(MUTANTS)

NIGHTLY_SECONDS ?= 3600
nightly: ## Run what takes too long for each change, NIGHTLY_SECONDS each for soak and fuzz (PARTS=<names>)
	@scripts/nightly $(NIGHTLY_SECONDS) $(PARTS)

portability: ## Try other compilers, C libraries and processors, and compare the ABI with its baseline (PARTS=<names>)
	@scripts/setup demo test portability
	@scripts/portability $(PARTS)

coverage: override PRESET = coverage
coverage: ## Show what the tests run of src/, in build-coverage/coverage.html and by file (TESTS=<regular expression>)
	@scripts/setup demo test coverage
	@$(cudss_headers)
	@$(configure) -DTARN_TESTS=ON $(quiet)
	@$(compile)
	@find $(build_dir) -name '*.gcda' -delete
	@scripts/run-tests $(build_dir) -j $(test_jobs) $(if $(TESTS),-R '$(TESTS)')
	@scripts/coverage $(build_dir)

lint: override PRESET = release
lint: ## Check layout, analysers, layers, language, and what each file must have (LINT_NODES=8000: faster, less deep)
	@scripts/setup demo test lint
	@$(cudss_headers)
	@$(configure) -DTARN_TESTS=ON $(quiet)
	@scripts/lint build

format: ## Lay out the C sources as .clang-format says
	@scripts/sources c | xargs -r -d '\n' clang-format -i

install: build ## Install into PREFIX (/usr/local), below DESTDIR if set
	@DESTDIR='$(DESTDIR)' cmake --install $(build_dir) --prefix '$(PREFIX)' || { [ -w '$(DESTDIR)$(PREFIX)' ] || \
	    echo 'make: $(DESTDIR)$(PREFIX) cannot be written: run it as root, or with a PREFIX of your own, such as $$HOME/.local' >&2; exit 1; }
	@[ -n '$(DESTDIR)' ] || scripts/after-install $(build_dir)

uninstall: ## Remove what `make install` installed (give it the same DESTDIR)
	@DESTDIR='$(DESTDIR)' cmake -DMANIFEST=$(build_dir)/install_manifest.txt -P cmake/uninstall.cmake

clean: ## Remove every build folder
	rm -rf build build-*/

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

require-cmake:
	@command -v cmake >/dev/null && command -v ninja >/dev/null || { \
	    echo 'make: CMake and Ninja are needed; `scripts/setup demo` installs what the build needs' >&2; exit 1; }
