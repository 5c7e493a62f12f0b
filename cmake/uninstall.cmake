# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# cmake -DMANIFEST=FILE -P cmake/uninstall.cmake
# Removes the files that MANIFEST names, which `cmake --install` wrote, below DESTDIR if that is set, and then the folders of
# tarn's own that are empty. Fails, and removes nothing, where there is no manifest.

if(NOT EXISTS "${MANIFEST}")
    message(FATAL_ERROR "There is no ${MANIFEST}, so nothing was installed from this build folder. `make install` writes it; "
        "uninstall from the folder that you installed from.")
endif()
file(STRINGS "${MANIFEST}" files)
set(removed 0)
set(folders)
foreach(file IN LISTS files)
    set(path "$ENV{DESTDIR}${file}")
    cmake_path(GET path PARENT_PATH folder)
    list(APPEND folders "${folder}")
    if(EXISTS "${path}" OR IS_SYMLINK "${path}")
        file(REMOVE "${path}")
        if(EXISTS "${path}" OR IS_SYMLINK "${path}")
            message(FATAL_ERROR "${path} cannot be removed; run this as the user who installed it")
        endif()
        math(EXPR removed "${removed} + 1")
    endif()
endforeach()

# Folders that are named after tarn, the innermost first; others belong to the system. rmdir fails where something is left.
list(REMOVE_DUPLICATES folders)
list(SORT folders ORDER DESCENDING)
foreach(folder IN LISTS folders)
    while(folder MATCHES "/tarn(/|$)")
        execute_process(COMMAND rmdir "${folder}" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
        if(failed)
            break()
        endif()
        cmake_path(GET folder PARENT_PATH folder)
    endwhile()
endforeach()
message(STATUS "${removed} files removed")
