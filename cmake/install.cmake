# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# What is installed: libraries, headers, the CMake package, tarn.pc and tarn-static.pc, the licence, the documents and the
# examples. The program, its manual pages and its completions are installed by tools/.
# The whole tree may be moved after installation: both packages find it from where they lie.

if(NOT TARN_INSTALL)
    return()
endif()
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tarn)

install(TARGETS tarn_shared tarn_static EXPORT tarn-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tarn-targets NAMESPACE tarn:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tarn-config.cmake.in ${PROJECT_BINARY_DIR}/tarn-config.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tarn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tarn-config.cmake ${PROJECT_BINARY_DIR}/tarn-config-version.cmake
    DESTINATION ${package_dir})

if(EXISTS ${PROJECT_SOURCE_DIR}/include/tarn)
    install(DIRECTORY include/tarn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
endif()

if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    set(pc_prefix ${CMAKE_INSTALL_PREFIX})
    set(pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
    file(RELATIVE_PATH up /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
    string(REGEX REPLACE "/$" "" up "${up}")
    set(pc_prefix "\${pcfiledir}/${up}")
    set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
    set(pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
else()
    set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
foreach(name tarn tarn-static)
    configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# Documents keep their places relative to each other, and their links lead to what is installed. Without Python they are installed as they are.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_FOUND)
    set(include_from_docs ${CMAKE_INSTALL_INCLUDEDIR})
    if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR} AND NOT IS_ABSOLUTE ${CMAKE_INSTALL_DOCDIR})
        file(RELATIVE_PATH include_from_docs /p/${CMAKE_INSTALL_DOCDIR} /p/${CMAKE_INSTALL_INCLUDEDIR})
    endif()
    set(documents ${PROJECT_BINARY_DIR}/documents)
    file(GLOB_RECURSE document_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/* ${PROJECT_SOURCE_DIR}/examples/*)
    add_custom_command(OUTPUT ${documents}/README.md
        COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/scripts/installed-docs ${documents} ${include_from_docs}
        DEPENDS ${document_sources} README.md CHANGELOG.md SECURITY.md LICENSE scripts/installed-docs VERBATIM
        COMMENT "Copying the documents that are installed")
    add_custom_target(documents ALL DEPENDS ${documents}/README.md)
    install(DIRECTORY ${documents}/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
else()
    install(FILES LICENSE README.md CHANGELOG.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
    install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
        FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "costs-h200.txt" PATTERN "man" EXCLUDE)
    install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "traces" EXCLUDE)
endif()
