# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The CUDA toolkit, for the tests alone: its headers, which our own declarations are compared with, and its stub of libcuda.
# Nothing that is shipped is built with it. cuDSS's header comes apart from it: scripts/cudss-headers. TARN_REQUIRE_ABI_CHECKS, on in CI, makes its absence an error.

if(DEFINED ENV{CI} AND "$ENV{CI}" STREQUAL "true")
    set(required ON)
else()
    set(required OFF)
endif()
option(TARN_REQUIRE_ABI_CHECKS "Fail where the vendors' headers, which declarations are checked against, are missing" ${required})

find_program(TARN_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
set(hints "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda)
if(TARN_NVCC)
    file(REAL_PATH ${TARN_NVCC} nvcc)
    cmake_path(GET nvcc PARENT_PATH nvcc)
    cmake_path(GET nvcc PARENT_PATH nvcc)
    list(PREPEND hints ${nvcc})
endif()
set(target targets/${CMAKE_SYSTEM_PROCESSOR}-linux)
find_path(TARN_CUDA_INCLUDE cudaTypedefs.h HINTS ${hints} PATH_SUFFIXES include ${target}/include)
find_file(TARN_CUDA_STUB libcuda.so PATHS ${hints} NO_DEFAULT_PATH
    PATH_SUFFIXES lib64/stubs lib/stubs ${target}/lib/stubs)
mark_as_advanced(TARN_NVCC TARN_CUDA_INCLUDE TARN_CUDA_STUB)
if(TARN_REQUIRE_ABI_CHECKS AND NOT (TARN_CUDA_INCLUDE AND TARN_CUDA_STUB))
    message(FATAL_ERROR "TARN_REQUIRE_ABI_CHECKS: the CUDA toolkit's cudaTypedefs.h or its stub libcuda.so was not found; "
        "set CUDA_HOME")
endif()

find_path(TARN_CUDSS_INCLUDE cudss.h HINTS ENV CUDSS_DIR ${PROJECT_BINARY_DIR}/cudss ${PROJECT_SOURCE_DIR}/build/cudss
    ${TARN_CUDA_INCLUDE} PATH_SUFFIXES include)
mark_as_advanced(TARN_CUDSS_INCLUDE)
if(TARN_REQUIRE_ABI_CHECKS AND NOT TARN_CUDSS_INCLUDE)
    message(FATAL_ERROR "TARN_REQUIRE_ABI_CHECKS: cudss.h was not found; `scripts/cudss-headers` downloads it, or set CUDSS_DIR")
endif()
