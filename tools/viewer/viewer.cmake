# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The analysis of `tarn report` as a program of WebAssembly, which the page brings: the same files as in the program, with stand-ins (beside
# this file) for the libraries that are not there for it. Sets `viewer` to the file, or to nothing where no compiler makes it.

set(TARN_WASM_CC clang CACHE STRING "What compiles to WebAssembly with WASI's C library; a list, as python3;-m;ziglang;cc")
mark_as_advanced(TARN_WASM_CC)
set(flags --target=wasm32-wasi -std=gnu11 -Os -Wall -Wextra -D_GNU_SOURCE
    -I${CMAKE_CURRENT_SOURCE_DIR}/viewer/include -I${CMAKE_CURRENT_SOURCE_DIR}/tarn -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
    -I${PROJECT_SOURCE_DIR} -Wl,--gc-sections,--strip-all,--max-memory=4294967296,-z,stack-size=1048576)

# Tried once for each compiler.
if(NOT "${TARN_WASM_TRIED}" STREQUAL "${TARN_WASM_CC}")
    set(trial ${CMAKE_CURRENT_BINARY_DIR}/wasm-trial)
    file(WRITE ${trial}.c "#include <stdio.h>\nint main(void)\n{\n    return puts(\"here\") < 0;\n}\n")
    execute_process(COMMAND ${TARN_WASM_CC} ${flags} -o ${trial}.wasm ${trial}.c RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    set(works FALSE)
    if(status EQUAL 0)
        set(works TRUE)
    endif()
    set(TARN_WASM_WORKS ${works} CACHE INTERNAL "Whether TARN_WASM_CC compiles to WebAssembly")
    set(TARN_WASM_TRIED "${TARN_WASM_CC}" CACHE INTERNAL "The compiler that this was tried with")
endif()

set(viewer "")
if(TARN_WASM_WORKS)
    set(viewer ${CMAKE_CURRENT_BINARY_DIR}/viewer.wasm)
    file(GLOB_RECURSE viewer_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/viewer/*.c ${CMAKE_CURRENT_SOURCE_DIR}/tarn/input/*.c
        ${CMAKE_CURRENT_SOURCE_DIR}/tarn/analysis/*.c ${CMAKE_CURRENT_SOURCE_DIR}/tarn/policy/*.c ${CMAKE_CURRENT_SOURCE_DIR}/tarn/replay/least_model.c)
    list(FILTER viewer_sources EXCLUDE REGEX "/(deal|once|vary|analysis_diff|report_(command|fits|json|page|text))[.]c$")
    list(APPEND viewer_sources ${CMAKE_CURRENT_SOURCE_DIR}/tarn/name.c ${CMAKE_CURRENT_SOURCE_DIR}/tarn/table.c ${CMAKE_CURRENT_SOURCE_DIR}/tarn/units.c)
    file(GLOB_RECURSE viewer_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/viewer/*.h ${CMAKE_CURRENT_SOURCE_DIR}/tarn/input/*.h
        ${CMAKE_CURRENT_SOURCE_DIR}/tarn/analysis/*.h ${CMAKE_CURRENT_SOURCE_DIR}/tarn/policy/*.h ${CMAKE_CURRENT_SOURCE_DIR}/tarn/replay/*.h)
    add_custom_command(
        OUTPUT ${viewer}
        COMMAND ${TARN_WASM_CC} ${flags} -o ${viewer} ${viewer_sources} -lm
        DEPENDS ${viewer_sources} ${viewer_headers} VERBATIM
        COMMENT "Compiling the page's analysis")
else()
    message(WARNING "${TARN_WASM_CC} does not compile to WebAssembly, so pages of `tarn report` will open no snapshots, and there will be no viewer; "
        "`scripts/setup demo` installs what does (clang, lld, wasi-libc, libclang-rt-14-dev-wasm32), -DTARN_WASM_CC names another compiler")
endif()
