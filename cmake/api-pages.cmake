# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The manual pages of the public functions, man/man3/tarn_*.3 in the build folder: what the comments of the headers say. The
# target is `api-pages`.

if(NOT TARN_INSTALL OR NOT TARN_AS_SHIPPED)
    return()
endif()
find_package(Python3 COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND)
    message(WARNING "Python 3 is missing: no manual pages of the functions are made or installed; `scripts/setup demo` installs it")
    return()
endif()

set(api_pages ${PROJECT_BINARY_DIR}/man/man3)
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/tarn/*.h)
add_custom_command(
    OUTPUT ${PROJECT_BINARY_DIR}/man/.api-made
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/api-pages ${api_pages}
    COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/man/.api-made
    DEPENDS ${public_headers} ${PROJECT_SOURCE_DIR}/scripts/api-pages VERBATIM
    COMMENT "Making the manual pages of the functions")
add_custom_target(api-pages ALL DEPENDS ${PROJECT_BINARY_DIR}/man/.api-made)
install(DIRECTORY ${api_pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 OPTIONAL)
