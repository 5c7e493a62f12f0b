/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A library whose constructor calls the function whose address is in the environment: while it
 * runs, its thread has the loader. */
#include <stdint.h>
#include <stdlib.h>

__attribute__((constructor)) static void construct(void)
{
    const char *text = getenv("TARN_TEST_CONSTRUCT");
    void (*function)(void) = text ? (void (*)(void))(uintptr_t)strtoull(text, NULL, 16) : NULL;
    if (function)
        function();
}
