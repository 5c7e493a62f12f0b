# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Everything a user may switch, and the target `tarn_flags` that carries how all our own code is compiled.

set(TARN_TESTS AUTO CACHE STRING "Build the tests: ON, OFF, or AUTO (when tarn is the top-level project and cmocka is found)")
option(TARN_PROGRAM "Build the program `tarn`" ${PROJECT_IS_TOP_LEVEL})
option(TARN_SIM "Build the simulated vendor libraries" ${PROJECT_IS_TOP_LEVEL})
option(TARN_INSTALL "Create the install rules" ${PROJECT_IS_TOP_LEVEL})
option(TARN_PYTHON "Create the install rules of the Python package too (component python)" OFF)
option(TARN_WERROR "Treat warnings as errors" OFF)
option(TARN_DEBUG_CHECKS "Compile the internal checks of the invariants in" OFF)
option(TARN_LTO "Optimise across files when linking (GCC)" OFF)
option(TARN_COVERAGE "Count which lines and branches run (GCC)" OFF)
option(TARN_FUZZ "Build the fuzz targets (clang with libFuzzer)" OFF)
set(TARN_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig)

if(TARN_TESTS STREQUAL "AUTO")
    if(PROJECT_IS_TOP_LEVEL AND PkgConfig_FOUND)
        pkg_check_modules(cmocka QUIET IMPORTED_TARGET cmocka)
    endif()
    if(cmocka_FOUND)
        set(TARN_TESTS ON)
    else()
        set(TARN_TESTS OFF)
    endif()
endif()

add_library(tarn_flags INTERFACE)
target_compile_features(tarn_flags INTERFACE c_std_11)
target_compile_definitions(tarn_flags INTERFACE _GNU_SOURCE $<$<BOOL:${TARN_DEBUG_CHECKS}>:TARN_DEBUG_CHECKS=1>)
target_compile_options(tarn_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wpedantic)
if(TARN_WERROR)
    target_compile_options(tarn_flags INTERFACE -Werror)
endif()

# What makes a mistake harder to use: a guard behind arrays on the stack, checks of the C library's calls where the size of a buffer is known
# (glibc: where the compiler optimises), and on x86 the processor's check of indirect jumps. The shim of `tarn run` has no such beginnings of
# functions (run/CMakeLists.txt). Sanitizers look closer, and wrap the same calls.
include(CheckCCompilerFlag)
set(TARN_HARDENING "")
check_c_compiler_flag(-fstack-protector-strong TARN_HAVE_STACK_PROTECTOR)
check_c_compiler_flag(-fcf-protection=full TARN_HAVE_CF_PROTECTION_FULL)
if(NOT TARN_SANITIZE AND NOT TARN_COVERAGE AND NOT TARN_FUZZ)
    if(TARN_HAVE_STACK_PROTECTOR)
        list(APPEND TARN_HARDENING -fstack-protector-strong)
    endif()
    list(APPEND TARN_HARDENING
        "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3>")
    target_compile_options(tarn_flags INTERFACE ${TARN_HARDENING})
    if(TARN_HAVE_CF_PROTECTION_FULL AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        target_compile_options(tarn_flags INTERFACE -fcf-protection=full)
    endif()
endif()
if(TARN_SANITIZE)
    target_compile_options(tarn_flags INTERFACE -fsanitize=${TARN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(tarn_flags INTERFACE -fsanitize=${TARN_SANITIZE})
    if(TARN_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # GCC says that the thread sanitizer does not model fences; that is known, and no reason to have none.
        target_compile_options(tarn_flags INTERFACE -Wno-tsan)
    endif()
endif()
if(TARN_COVERAGE)
    target_compile_definitions(tarn_flags INTERFACE TARN_COVERAGE)
    target_compile_options(tarn_flags INTERFACE --coverage -fprofile-update=atomic)
    target_link_options(tarn_flags INTERFACE --coverage)
endif()
if(TARN_FUZZ)
    target_compile_options(tarn_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(TARN_LTO)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
        message(FATAL_ERROR "TARN_LTO needs GCC: the static library is made of the native half of its fat objects")
    endif()
    target_compile_options(tarn_flags INTERFACE -flto=auto)
    target_link_options(tarn_flags INTERFACE -flto=auto)
endif()

# `ld -r` makes one object of many, and objcopy its names local: both need machine code, also where CFLAGS has -flto, as distributions set it.
# TARN_LTO alone says whether there is more.
set(TARN_MACHINE_CODE $<IF:$<BOOL:${TARN_LTO}>,-ffat-lto-objects,-fno-lto>)

# Whether what is built may be installed: nothing in it but our own code.
if(TARN_SANITIZE OR TARN_COVERAGE OR TARN_FUZZ)
    set(TARN_AS_SHIPPED OFF)
else()
    set(TARN_AS_SHIPPED ON)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
# Whatever a project around this one wants for itself: files have static functions of the same names, and TARN_LTO says how to link.
set(CMAKE_UNITY_BUILD OFF)
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)
