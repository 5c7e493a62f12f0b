# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# HIP, hipSPARSE and rocSPARSE, for the tests alone: the headers, which our own declarations are compared with, and the
# libraries, which are run on the simulated runtime. Nothing that is shipped is built with them.

find_path(TARN_HIP_INCLUDE hip/hip_runtime_api.h HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES include)
find_path(TARN_HIPSPARSE_INCLUDE hipsparse/hipsparse.h HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES include)
find_path(TARN_ROCSPARSE_INCLUDE rocsparse/rocsparse.h HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES include)
find_file(TARN_HIP_LIBRARY libamdhip64.so.5 PATHS ${CMAKE_SYSTEM_LIBRARY_PATH} /usr/lib /usr/lib64 /opt/rocm/lib
    PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH)
mark_as_advanced(TARN_HIP_INCLUDE TARN_HIPSPARSE_INCLUDE TARN_ROCSPARSE_INCLUDE TARN_HIP_LIBRARY)
if(TARN_HIP_INCLUDE AND TARN_HIPSPARSE_INCLUDE AND TARN_ROCSPARSE_INCLUDE)
    set(TARN_HIP_HEADERS ON)
elseif(TARN_REQUIRE_ABI_CHECKS)
    message(FATAL_ERROR "TARN_REQUIRE_ABI_CHECKS: the headers of HIP, hipSPARSE or rocSPARSE were not found; "
        "`scripts/setup test` installs them")
endif()
if(TARN_REQUIRE_ABI_CHECKS AND NOT TARN_HIP_LIBRARY)
    message(FATAL_ERROR "TARN_REQUIRE_ABI_CHECKS: libamdhip64.so.5 was not found; `scripts/setup test` installs it")
endif()
