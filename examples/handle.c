/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles of a library, pooled: here of one that the program itself registers, so that no GPU is
 * needed. cuBLAS and the other built-in ones are asked for in the same way. */
#include <stdio.h>
#include <stdlib.h>
#include <tarn/tarn.h>

static void must(tarn_status status)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

/* The library: its handle is where it keeps its stream. */
static int counter_create(void **handle)
{
    *handle = calloc(1, sizeof(void *));
    return *handle ? 0 : 1;
}

static int counter_destroy(void *handle)
{
    free(handle);
    return 0;
}

static int binds;
static int counter_set_stream(void *handle, void *stream)
{
    binds++;
    *(void **)handle = stream;
    return 0;
}

int main(void)
{
    const tarn_library_row row = {
        .size = sizeof row,
        .name = "counter",
        .create = counter_create,
        .destroy = counter_destroy,
        .set_stream = counter_set_stream,
    };
    tarn_handle_stats stats = {.size = sizeof stats};
    tarn_library counter;
    tarn_stream streams[2];
    void *handle;

    must(tarn_library_register(&row, &counter));
    for (int i = 0; i < 2; i++)
        must(tarn_stream_lease(0, 0, &streams[i]));

    for (int i = 0; i < 2; i++) {
        must(tarn_stream_set(streams[i])); /* the thread's current stream */
        for (int j = 0; j < 1000; j++)
            must(tarn_handle_get(counter, TARN_STREAM_CURRENT,
                                 &handle)); /* this thread's handle, bound to that stream */
    }
    must(tarn_handle_stats_get(counter, 0, &stats));
    printf("2000 gets: %d handle, bound %d times\n", (int)stats.created, binds);
    must(tarn_shutdown()); /* destroys it */
    return 0;
}
