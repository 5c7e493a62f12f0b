/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Two models share a process. One works, the other has nothing to do: its memory goes back by
 * itself, and comes again with its next request. */
#include <stdio.h>
#include <stdlib.h>
#include <tarn/tarn.h>

enum { MIB = 1 << 20 };
static tarn_pool *quiet, *busy;
static tarn_stream stream;

static void must(tarn_status status)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

/* What a request needs comes from the model's pool. */
static void serve(tarn_pool *pool, size_t bytes)
{
    void *block = NULL;
    must(tarn_pool_alloc(pool, stream, bytes, &block));
    must(tarn_free(block));
    must(tarn_stream_synchronize(stream));
}

static size_t reserved(tarn_pool *pool)
{
    tarn_stats stats = {.size = sizeof stats};
    must(tarn_pool_stats_get(pool, &stats));
    return (size_t)stats.reserved_bytes[TARN_STAT_ALL].current;
}

static void show(const char *when)
{
    printf("%-26s quiet: %2zu MiB, busy: %2zu MiB\n", when, reserved(quiet) / MIB,
           reserved(busy) / MIB);
}

int main(void)
{
    tarn_pool_options options = {.size = sizeof options, .idle_release = 20};
    must(tarn_stream_lease(0, 0, &stream));
    must(tarn_pool_create(&options, &quiet));
    must(tarn_pool_create(&options, &busy));
    serve(quiet, 40 * MIB);
    serve(busy, 20 * MIB);
    show("both have served");

    while (reserved(quiet)) /* for 20 ms or more */
        serve(busy, 20 * MIB);
    serve(busy, 20 * MIB);
    show("one of them went on");
    serve(quiet, 40 * MIB);
    show("the other is asked again");

    must(tarn_pool_release(quiet));
    must(tarn_pool_release(busy));
    must(tarn_stream_return(stream));
    return 0;
}
