/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Which files of a stack belong to Python, PyTorch or an installed package. A folder of the program
 * may be called "torch" or "Python" too, so a folder's name alone proves nothing. */
#ifndef TOOLS_ANALYSIS_LIBRARY_FILES_H
#define TOOLS_ANALYSIS_LIBRARY_FILES_H

#include <stdbool.h>

/* The part of the path below PyTorch's package: "nn/functional.py". NULL if the file is not
 * PyTorch's. */
const char *library_torch_part(const char *file);

/* True for a file of Python, PyTorch or an installed package. */
bool library_has_file(const char *file);

#endif
