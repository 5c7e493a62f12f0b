# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The manual pages, man/man1/tarn*.1 in the build folder: what the program's --help says and docs/man adds. Every command of
# the program has one, so which there are is known only when they are made. The target is `man`.

if(NOT TARN_AS_SHIPPED OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
    return() # a program that a package would not have, or that cannot be run here
endif()
find_program(TARN_HELP2MAN help2man)
mark_as_advanced(TARN_HELP2MAN)
if(NOT TARN_HELP2MAN)
    message(WARNING "help2man is missing: no manual pages are made or installed; `scripts/setup demo` installs it")
    return()
endif()

set(pages ${PROJECT_BINARY_DIR}/man/man1)
file(GLOB includes CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.h2m)
add_custom_command(
    OUTPUT ${PROJECT_BINARY_DIR}/man/.made
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/man-pages $<TARGET_FILE:tarn> ${pages}
    COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/man/.made
    DEPENDS tarn ${includes} ${PROJECT_SOURCE_DIR}/scripts/man-pages VERBATIM
    COMMENT "Making the manual pages")
add_custom_target(man ALL DEPENDS ${PROJECT_BINARY_DIR}/man/.made)
if(TARN_INSTALL)
    install(DIRECTORY ${pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
endif()
