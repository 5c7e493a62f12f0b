# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# cmake -DPAGES=FOLDER -DLIBRARY=FILE -DOUTPUT=FILE -P join-page.cmake
# Joins the page of `tarn report`: our HTML, style and scripts, and the drawing library; and writes it as an array of C.
# With an empty LIBRARY the array is empty, and the program says what is missing.

cmake_minimum_required(VERSION 3.25)

set(scripts format data filter model frame timeline events map calls tables range compare ranks save link pickle stacks recording open main)

set(page "")
if(LIBRARY)
    file(READ ${PAGES}/page.html page)
    file(READ ${PAGES}/style.css style)
    file(READ ${LIBRARY} library)
    set(script "")
    foreach(name ${scripts})
        file(READ ${PAGES}/${name}.js part)
        string(APPEND script "${part}\n")
    endforeach()
    if("${library}${script}" MATCHES "</script|<!--")
        message(FATAL_ERROR "A script of the page would end its element: it has </script or <!--")
    endif()
    string(REPLACE "@STYLE@" "${style}" page "${page}")
    string(REPLACE "@LIBRARY@" "${library}" page "${page}")
    string(REPLACE "@SCRIPT@" "${script}" page "${page}")
endif()

set(joined ${OUTPUT}.html)
file(WRITE ${joined} "${page}")
file(READ ${joined} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"analysis/report_page.h\"\n\nconst unsigned char report_page[] = {\n${bytes}0};\n")
