/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what tells a library's file from the program's: it lies among installed packages, or it has
 * a place and a name that only the library's sources have. */
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

/* The files of CPython's sources that a stack of a program goes through. */
static const char *const python_objects[] = {"abstract.c",      "boundmethod",
                                             "call.c",          "classobject.c",
                                             "codeobject.c",    "descrobject.c",
                                             "dictobject.c",    "enumobject.c",
                                             "exceptions.c",    "funcobject.c",
                                             "genericalias",    "genobject.c",
                                             "iterobject.c",    "listobject.c",
                                             "methodobject.c",  "moduleobject.c",
                                             "object.c",        "setobject.c",
                                             "stringlib/",      "tupleobject.c",
                                             "typeobject.c",    "typevar",
                                             "unionobject.",    "unicodeobject.",
                                             "weakrefobject.c", NULL};
static const char *const python_core[] = {
    "_warnings.c",       "bltinmodule.c", "bytecodes.c",     "ceval",        "context.c",
    "executor_cases.c.", "errors.c",      "frozenmain.c",    "gc.c",         "generated_cases.c.",
    "import.c",          "importdl.c",    "instrumentation", "intrinsics.c", "legacy_tracing.c",
    "optimizer.c",       "pylifecycle.c", "pystate.c",       "pythonrun.c",  "specialize.c",
    "sysmodule.c",       "thread.c",      "thread_pthread",  "Python-ast.c", NULL};
static const char *const python_modules[] = {"_abc.c",
                                             "_asynciomodule.c",
                                             "_bisectmodule.c",
                                             "_collectionsmodule.c",
                                             "_contextvars",
                                             "_ctypes/",
                                             "_datetimemodule",
                                             "_elementtree.c",
                                             "_functoolsmodule",
                                             "_heapqmodule.c",
                                             "_io/",
                                             "_json.c",
                                             "_operator.c",
                                             "_pickle.c",
                                             "_queuemodule.c",
                                             "_struct.c",
                                             "_threadmodule.c",
                                             "_weakref.c",
                                             "atexitmodule.c",
                                             "arraymodule.c",
                                             "gcmodule.c",
                                             "itertoolsmodule.c",
                                             "main.c",
                                             "mathmodule.c",
                                             "posixmodule.c",
                                             "selectmodule.c",
                                             "signalmodule.c",
                                             "socketmodule.c",
                                             "timemodule.c",
                                             NULL};

/* What stands behind the last `folder` ("torch/") in which something begins with one of the parts.
 * NULL: there is none. */
static const char *part_in(const char *file, const char *folder, const char *const *parts)
{
    const char *found = NULL;
    for (const char *at = file; (at = strstr(at, folder)); at++) {
        const char *part = at + strlen(folder);
        for (size_t i = 0; parts[i] && (at == file || at[-1] == '/'); i++)
            if (strncmp(part, parts[i], strlen(parts[i])) == 0)
                found = part;
    }
    return found;
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
    return part_in(file, "torch/", torch_parts);
}

bool library_has_file(const char *file)
{
    return strstr(file, "site-packages/") || strstr(file, "dist-packages/") ||
           in_standard_library(file) || library_torch_part(file) ||
           part_in(file, "Objects/", python_objects) || part_in(file, "Python/", python_core) ||
           part_in(file, "Modules/", python_modules);
}
