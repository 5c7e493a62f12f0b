/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The library in namespaces of the loader (dlmopen), each with a C library of its own, beside one
 * in the program's.
 *
 * spaces LIBRARY */
#include "life.h"

#include <pthread.h>

static struct calls spaces[3];

static void *use(void *argument)
{
    (void)argument;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 3; i++) {
            void *block = spaces[i].tarn_malloc(10000);
            NEED(block);
            NEED(spaces[(i + 1) % 3].tarn_free(block) == TARN_ERROR_INVALID_POINTER);
            NEED(spaces[i].tarn_free(block) == TARN_OK);
        }
    }
    return NULL;
}

int main(int count, char **arguments)
{
    NEED(count == 2);
    calls_find(open_library(arguments[1], RTLD_NOW), &spaces[0]);
    for (int i = 1; i < 3; i++) {
        void *library = dlmopen(LM_ID_NEWLM, arguments[1], RTLD_NOW | RTLD_LOCAL);
        if (!library)
            fprintf(stderr, "%s\n", dlerror());
        NEED(library);
        calls_find(library, &spaces[i]);
    }
    use(NULL);
    for (int i = 0; i < 20; i++) {
        pthread_t threads[3];
        for (int j = 0; j < 3; j++)
            NEED(pthread_create(&threads[j], NULL, use, NULL) == 0);
        for (int j = 0; j < 3; j++)
            NEED(pthread_join(threads[j], NULL) == 0);
    }
    for (int i = 0; i < 3; i++)
        NEED(spaces[i].tarn_device_trim(0, 0) == TARN_OK);
    for (int i = 0; i < 3; i++)
        NEED(spaces[i].tarn_shutdown() == TARN_OK);
    return 0;
}
