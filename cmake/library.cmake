# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The library, compiled once and linked three ways:
#   tarn_shared    libtarn.so   exports what src/tarn.map names
#   tarn_static    libtarn.a    one object in which every internal symbol is local, so that our `fail` and theirs can meet
#   tarn_internal  libtarn_internal.a, never installed: internal symbols visible, for the tests and the program

set(sources)
foreach(layer base record driver device memory handle sleep report)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${layer}/*.c)
    list(APPEND sources ${found})
endforeach()
if(NOT sources)
    file(WRITE ${PROJECT_BINARY_DIR}/nothing.c "typedef int nothing;\n")
    set(sources ${PROJECT_BINARY_DIR}/nothing.c)
endif()

add_library(tarn_objects OBJECT ${sources})
target_link_libraries(tarn_objects PRIVATE tarn_flags Threads::Threads)
target_compile_options(tarn_objects PRIVATE ${TARN_MACHINE_CODE})
target_include_directories(tarn_objects PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
set_target_properties(tarn_objects PROPERTIES C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)

set(public_include
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

add_library(tarn_shared SHARED $<TARGET_OBJECTS:tarn_objects>)
add_library(tarn::tarn ALIAS tarn_shared)
set_target_properties(tarn_shared PROPERTIES
    OUTPUT_NAME tarn EXPORT_NAME tarn VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LINKER_LANGUAGE C
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/src/tarn.map)
target_include_directories(tarn_shared INTERFACE ${public_include})
target_link_libraries(tarn_shared PRIVATE $<BUILD_INTERFACE:tarn_flags> Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(tarn_shared PRIVATE
    -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro -Wl,--as-needed -Wl,--version-script=${PROJECT_SOURCE_DIR}/src/tarn.map
    -Wl,-Bsymbolic-functions) # a second copy in the process, linked into the program say, must not answer this one's own calls
if(NOT TARN_SANITIZE AND NOT TARN_FUZZ) # a sanitizer's runtime comes with the executable
    target_link_options(tarn_shared PRIVATE -Wl,-z,defs)
endif()

add_library(tarn_archive STATIC $<TARGET_OBJECTS:tarn_objects>)
set_target_properties(tarn_archive PROPERTIES OUTPUT_NAME tarn_internal LINKER_LANGUAGE C)
add_library(tarn_internal INTERFACE) # whole: what registers itself when it is loaded is named by nobody
target_link_libraries(tarn_internal INTERFACE $<LINK_LIBRARY:WHOLE_ARCHIVE,tarn_archive>)
target_include_directories(tarn_internal INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(tarn_internal INTERFACE tarn_flags Threads::Threads ${CMAKE_DL_LIBS})

set(whole ${PROJECT_BINARY_DIR}/tarn-whole.o)
add_custom_command(
    OUTPUT ${whole}
    COMMAND ${CMAKE_LINKER} -r -o ${whole} $<TARGET_OBJECTS:tarn_objects>
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden --wildcard --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_* ${whole}
    DEPENDS tarn_objects $<TARGET_OBJECTS:tarn_objects>
    COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Making the internal symbols of libtarn.a local")
set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(tarn_static STATIC ${whole})
add_library(tarn::tarn_static ALIAS tarn_static)
set_target_properties(tarn_static PROPERTIES
    OUTPUT_NAME tarn LINKER_LANGUAGE C ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
target_include_directories(tarn_static INTERFACE ${public_include})
target_link_libraries(tarn_static INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
