# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# cmake -DINPUT=FILE -DHEADER=HEADER -DNAME=NAME -DOUTPUT=FILE -P embed-text.cmake
# Writes a text as an array of C, which ends with 0 and which HEADER declares as NAME.

cmake_minimum_required(VERSION 3.25)

file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nconst char ${NAME}[] = {\n${bytes}0};\n")
