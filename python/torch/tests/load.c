/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Loads a shim beside the libc10_cuda of its release, with every symbol bound, and asks it for its
 * version. libc10_cuda's own calls are bound when they are made: there is no whole CUDA runtime
 * here. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    void *shim = NULL;

    if (count == 3 && dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_GLOBAL))
        shim = dlopen(arguments[1], RTLD_NOW);
    if (!shim)
        return fprintf(stderr, "load: %s\n", dlerror()), 1;
    int (*version)(void) = (int (*)(void))dlsym(shim, "tarn_torch_version");
    if (!version || version() != atoi(arguments[2]))
        return fprintf(stderr, "load: %s is not for %s\n", arguments[1], arguments[2]), 1;
    return 0;
}
