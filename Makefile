# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# A front for CMake and the scripts. `make help` lists what there is.

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
PRESET ?= release
# Passed to CMake when it configures, such as -DTARN_WERROR=ON or -DCMAKE_C_COMPILER=clang.
CMAKE_FLAGS ?=
FUZZ_SECONDS ?= 60
# libfuzzer, or afl.
ENGINE ?= libfuzzer
# Parts of make portability and of make nightly; none: all.
PARTS ?=
SOAK_SECONDS ?= 3600

build_dir = $(if $(filter release,$(PRESET)),build,build-$(PRESET))
# CMake prints errors and warnings to stderr; the rest says nothing new.
quiet = --log-level=WARNING >/dev/null
configure = cmake --preset $(PRESET) $(CMAKE_FLAGS)
compile = cmake --build $(build_dir) --parallel $(JOBS)
# In CI a declaration that no header was compared with is an error, and cuDSS's header is in no package.
cudss_headers = $(if $(filter true,$(CI)),scripts/cudss-headers build/cudss,true)
# What the adaptors are compiled with.
adaptor_packages = $(if $(filter true,$(CI)),scripts/adaptor-packages,true)
export CUDSS_DIR ?= $(CURDIR)/build/cudss
export TARN_ADAPTOR_PACKAGES ?= $(CURDIR)/build/adaptor-packages

.PHONY: all build demo test docs bench wheel mutants models fuzz fuzz-coverage soak mixed mixed-worth nightly portability coverage lint format install uninstall clean help require-cmake

all: build

build: require-cmake ## Build the library and the program into build/ (the default; PRESET=debug|asan|ubsan|tsan for others)
	@$(configure) $(quiet)
	@$(compile) --target product

demo: ## Install what the build needs, build, and replay the recorded traces
	@scripts/setup demo
	@$(MAKE) --no-print-directory build PRESET=release
	@scripts/demo

test: ## Install what the tests need, build, and run every test (PRESET=..., TESTS=<regular expression>)
	@scripts/setup demo test docs
	@$(cudss_headers)
	@$(adaptor_packages)
	@$(configure) -DTARN_TESTS=ON $(quiet)
	@$(compile)
	@scripts/run-tests $(build_dir) -j $(JOBS) $(if $(TESTS),-R '$(TESTS)')

docs: ## Make the searchable reference of the headers and the documents, build/docs/html/index.html
	@scripts/setup docs
	@scripts/docs build/docs
	@echo build/docs/html/index.html

bench: override PRESET = release
bench: ## Build the release and run every benchmark
	@scripts/setup demo bench
	@$(configure) $(quiet)
	@cmake --build build --parallel $(JOBS) --target product benchmarks
	@scripts/bench build

wheel: ## Build the Python package as pip does, install it into build/python, and run its tests there
	@scripts/setup demo wheel
	@scripts/wheel build/python

mutants: ## Check that the tests notice each deliberate fault in tests/mutants/ (MUTANTS=<names> for some, MUTANTS_PART=0/6 for a sixth)
	@scripts/setup demo test docs
	@$(cudss_headers)
	@$(adaptor_packages)
	@scripts/mutants $(if $(MUTANTS_PART),--part $(MUTANTS_PART)) $(MUTANTS)

models: ## Have a model checker try all executions of the parts that take no lock (MODELS_LONG=1: in a larger scope too, MODELS=<names> for some)
	@scripts/setup demo models
	@scripts/models $(MODELS)

fuzz: ## Fuzz for FUZZ_SECONDS in all, divided among the targets (ENGINE=afl: by AFL++)
	@scripts/setup demo fuzz
	@scripts/fuzz $(FUZZ_SECONDS) $(ENGINE)

fuzz-coverage: ## How much of each reader the inputs stored for its fuzzer reach; below 90 % is a failure
	@scripts/setup demo fuzz
	@scripts/fuzz-coverage

soak_tests = test.mixed.model tarn_sims test.memory.model test.memory.storm test.memory.pool_storm
soak_failures = $(if $(shell [ $(SOAK_SECONDS) -lt 600 ] || echo long), \
    $(subst /test_,.,$(patsubst tests/%.c,test.%,$(wildcard tests/*/test_*failures*.c tests/*/test_first_use.c))))
soak: ## Everything at once at full speed for SOAK_SECONDS, beside mimalloc, and before it the models and the storms with random seeds
	@scripts/setup demo test bench
	@cmake --preset release $(CMAKE_FLAGS) -DTARN_TESTS=ON $(quiet)
	@cmake --build build --parallel $(JOBS) --target $(soak_tests) $(soak_failures) test.soak.short
	@cmake --preset asan $(CMAKE_FLAGS) -DTARN_TESTS=ON $(quiet)
	@cmake --build build-asan --parallel $(JOBS) --target $(soak_tests) $(soak_failures)
	@scripts/soak $(SOAK_SECONDS) build build-asan

# Beside those of soak: what threads do to each other shows under the thread sanitizer.
mixed: ## The model in which features meet, with random seeds for SOAK_SECONDS: release, address and thread sanitizer, every driver
	@scripts/setup demo test
	@for preset in release asan tsan; do \
	    cmake --preset $$preset $(CMAKE_FLAGS) -DTARN_TESTS=ON $(quiet) && \
	    cmake --build build$$([ $$preset = release ] || echo -$$preset) --parallel $(JOBS) --target test.mixed.model tarn_sims || exit 1; \
	done
	@scripts/seeds $(SOAK_SECONDS) build/mixed 'mixed.model mixed.model_cuda mixed.model_hip' build build-asan build-tsan

mixed-worth: ## How long the model in which features meet takes to find faults that are put back (MUTANTS=<names> for some)
	@scripts/setup demo test
	@scripts/mixed-worth $(MUTANTS)

NIGHTLY_SECONDS ?= 3600
nightly: ## What takes too long for each change, part by part; soak and fuzz for NIGHTLY_SECONDS each (PARTS=<names> for some)
	@scripts/nightly $(NIGHTLY_SECONDS) $(PARTS)

portability: ## Other compilers, C libraries and processors, and the ABI beside its baseline (PARTS=<names> for some)
	@scripts/setup demo test portability
	@scripts/portability $(PARTS)

coverage: override PRESET = coverage
coverage: ## What of src/ the tests run: build-coverage/coverage.html and a summary by file (TESTS=<regular expression>)
	@scripts/setup demo test coverage
	@$(cudss_headers)
	@$(configure) -DTARN_TESTS=ON $(quiet)
	@$(compile)
	@find $(build_dir) -name '*.gcda' -delete
	@scripts/run-tests $(build_dir) -j $(JOBS) $(if $(TESTS),-R '$(TESTS)')
	@scripts/coverage $(build_dir)

lint: override PRESET = release
lint: ## Check layout, warnings of the analysers, layers, and what each file must have (LINT_NODES=40000: in half the time, less deep)
	@scripts/setup demo test lint
	@$(cudss_headers)
	@$(configure) -DTARN_TESTS=ON $(quiet)
	@scripts/lint build

format: ## Lay out the C sources as .clang-format says
	@scripts/sources c | xargs -r -d '\n' clang-format -i

install: build ## Install into PREFIX (/usr/local), below DESTDIR if set
	@DESTDIR='$(DESTDIR)' cmake --install $(build_dir) --prefix '$(PREFIX)'

uninstall: ## Remove what `make install` put there (the same DESTDIR; the build folder remembers PREFIX)
	@DESTDIR='$(DESTDIR)' cmake -DMANIFEST=$(build_dir)/install_manifest.txt -P cmake/uninstall.cmake

clean: ## Remove every build folder
	rm -rf build build-*/

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

require-cmake:
	@command -v cmake >/dev/null && command -v ninja >/dev/null || { \
	    echo 'make: CMake and Ninja are needed; `scripts/setup demo` installs what the build needs' >&2; exit 1; }
