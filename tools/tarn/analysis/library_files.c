/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what tells a library's file from the program's: it lies among installed packages, or as only
 * the library's sources lie. */
#include "analysis/library_files.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* What PyTorch's package begins with. */
static const char *const torch_parts[] = {"_",
                                          "accelerator/",
                                          "amp/",
                                          "ao/",
                                          "autograd/",
                                          "backends/",
                                          "csrc/",
                                          "cuda/",
                                          "distributed/",
                                          "distributions/",
                                          "export/",
                                          "fft/",
                                          "func/",
                                          "functional.py",
                                          "fx/",
                                          "hub.py",
                                          "include/",
                                          "jit/",
                                          "library.py",
                                          "linalg/",
                                          "masked/",
                                          "multiprocessing/",
                                          "nested/",
                                          "nn/",
                                          "onnx/",
                                          "optim/",
                                          "overrides.py",
                                          "profiler/",
                                          "quantization/",
                                          "random.py",
                                          "serialization.py",
                                          "sparse/",
                                          "special/",
                                          "storage.py",
                                          "testing/",
                                          "utils/",
                                          NULL};

/* What stands behind the last "torch/" in which something begins with one of these. NULL: there is
 * none. */
static const char *torch_part(const char *file)
{
    static const char folder[] = "torch/";
    const char *found = NULL;
    for (const char *at = file; (at = strstr(at, folder)); at++) {
        const char *part = at + strlen(folder);
        for (size_t i = 0; torch_parts[i] && (at == file || at[-1] == '/'); i++)
            if (strncmp(part, torch_parts[i], strlen(torch_parts[i])) == 0)
                found = part;
    }
    return found;
}

/* True for a file of CPython's sources, which are in C. */
static bool in_python_sources(const char *file)
{
    static const char *const folders[] = {"Objects/", "Python/", "Modules/"};
    size_t length = strlen(file);
    bool found = false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !found; i++) {
        const char *at = strstr(file, folders[i]);
        found = at && (at == file || at[-1] == '/');
    }
    return found && length > 2 && file[length - 2] == '.' && strchr("ch", file[length - 1]);
}

/* True below "lib/python3" or "lib/python3.12". */
static bool in_standard_library(const char *file)
{
    static const char folder[] = "/lib/python";
    for (const char *at = file; (at = strstr(at, folder)); at++)
        if (isdigit((unsigned char)at[sizeof folder - 1]))
            return true;
    return false;
}

const char *library_torch_part(const char *file)
{
    static const char *const packages[] = {"site-packages/torch/", "dist-packages/torch/"};
    for (size_t i = 0; i < sizeof packages / sizeof *packages; i++) {
        const char *package = strstr(file, packages[i]);
        if (package)
            return package + strlen(packages[i]);
    }
    return torch_part(file);
}

bool library_has_file(const char *file)
{
    return strstr(file, "site-packages/") || strstr(file, "dist-packages/") ||
           in_standard_library(file) || in_python_sources(file) || library_torch_part(file);
}
