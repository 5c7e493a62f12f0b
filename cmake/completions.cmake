# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Completions for bash, zsh and fish, made of what the program's --help says and installed where each shell looks. The target
# is `completions`.

if(NOT TARN_AS_SHIPPED OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
    return() # a program that a package would not have, or that cannot be run here
endif()
set(completions ${PROJECT_BINARY_DIR}/completions)
add_custom_command(
    OUTPUT ${completions}/tarn.bash ${completions}/_tarn ${completions}/tarn.fish
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/completions $<TARGET_FILE:tarn> ${completions}
    DEPENDS tarn ${PROJECT_SOURCE_DIR}/scripts/completions VERBATIM
    COMMENT "Making the completions of the shells")
add_custom_target(completions ALL DEPENDS ${completions}/tarn.bash ${completions}/_tarn ${completions}/tarn.fish)
if(TARN_INSTALL)
    install(FILES ${completions}/tarn.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME tarn)
    install(FILES ${completions}/_tarn DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${completions}/tarn.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
