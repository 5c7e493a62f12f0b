# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# cmake -DPAGES=FOLDER -DLIBRARY=FILE -DOUTPUT=FILE -P join-page.cmake
# Joins the page of `tarn report`: our HTML, style and scripts, and the drawing library; and writes it as an array of C.
# With an empty LIBRARY the array is empty, and the program says what is missing.

cmake_minimum_required(VERSION 3.25)

set(scripts format data filter model frame timeline events map calls tables range compare ranks save link pickle stacks recording open main)

# The bytes of a hexadecimal text in base64.
function(base64 hex result)
    set(letters ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
    string(LENGTH ${hex} digits)
    math(EXPR missing "(6 - ${digits} % 6) % 6")
    string(REPEAT "0" ${missing} zeros)
    string(REGEX MATCHALL "......" groups ${hex}${zeros})
    set(text "")
    foreach(group ${groups})
        foreach(shift 18 12 6 0)
            math(EXPR place "(0x${group} >> ${shift}) & 63")
            string(SUBSTRING ${letters} ${place} 1 letter)
            string(APPEND text ${letter})
        endforeach()
    endforeach()
    math(EXPR missing "${missing} / 2")
    string(LENGTH ${text} length)
    math(EXPR length "${length} - ${missing}")
    string(SUBSTRING ${text} 0 ${length} text)
    string(REPEAT "=" ${missing} padding)
    set(${result} ${text}${padding} PARENT_SCOPE)
endfunction()

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
    # One script, which is the only one that the page's policy lets run: what a recording could smuggle in is another.
    string(CONCAT code "\n" "${library}" "\n;(() => {\n\"use strict\";\n" "${script}" "})();\n")
    string(SHA256 hash "${code}")
    base64(${hash} hash)
    string(REPLACE "@STYLE@" "${style}" page "${page}")
    string(REPLACE "@HASH@" "sha256-${hash}" page "${page}")
    string(REPLACE "@CODE@" "${code}" page "${page}")
endif()

set(joined ${OUTPUT}.html)
file(WRITE ${joined} "${page}")
file(READ ${joined} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"analysis/report_page.h\"\n\nconst unsigned char report_page[] = {\n${bytes}0};\n")
