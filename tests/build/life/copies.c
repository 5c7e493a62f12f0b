/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Two copies of the library in one process, one of which may be linked into the program: each is a
 * tarn of its own, and knows that what the other gave is not its own.
 *
 * copies FIRST SECOND   two files, or "-" for what is linked statically (COPIES_STATIC) */
#include "life.h"

#include <pthread.h>
#include <string.h>

static struct calls first, second;

static void find(const char *path, int mode, struct calls *calls)
{
#ifdef COPIES_STATIC
    if (strcmp(path, "-") == 0) {
#define X(call, result, parameters) calls->call = call;
        CALLS(X)
#undef X
        return;
    }
#endif
    calls_find(open_library(path, mode), calls);
}

static int64_t live_blocks(const struct calls *tarn)
{
    tarn_stats stats = {.size = sizeof stats};
    NEED(tarn->tarn_device_stats_get(0, &stats) == TARN_OK);
    return stats.allocation[TARN_STAT_ALL].current;
}

/* The calls of which one calls another: that one must be the copy's own. */
static void *use(void *argument)
{
    const struct calls *tarn = argument;
    tarn_guard guard = {0};
    tarn_pool *pool = NULL;
    void *blocks[100], *block = NULL;
    for (int round = 0; round < 20; round++) {
        NEED(tarn->tarn_device_guard_set(&guard, 0) == TARN_OK);
        NEED(tarn->tarn_pool_create(NULL, &pool) == TARN_OK);
        NEED(tarn->tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 3 << 20, &block) == TARN_OK);
        for (size_t i = 0; i < 100; i++)
            NEED((blocks[i] = tarn->tarn_malloc((i + 1) * 2000)));
        for (size_t i = 0; i < 100; i++)
            NEED(tarn->tarn_free(blocks[i]) == TARN_OK);
        NEED(tarn->tarn_free(block) == TARN_OK);
        NEED(tarn->tarn_pool_release(pool) == TARN_OK);
        NEED(tarn->tarn_guard_restore(&guard) == TARN_OK);
    }
    return NULL;
}

static void refuse(const struct calls *owner, const struct calls *other, size_t size)
{
    size_t usable = 0;
    void *block = owner->tarn_malloc(size);
    NEED(block);
    NEED(other->tarn_free(block) == TARN_ERROR_INVALID_POINTER);
    NEED(other->tarn_usable_size_get(block, &usable) == TARN_ERROR_INVALID_POINTER);
    NEED(owner->tarn_usable_size_get(block, &usable) == TARN_OK && usable >= size);
    NEED(owner->tarn_free(block) == TARN_OK);
}

int main(int count, char **arguments)
{
    NEED(count == 3);
    /* The first one's names come before the second one's own, where that one does not say that its
     * own are meant. */
    find(arguments[1], RTLD_NOW | RTLD_GLOBAL, &first);
    find(arguments[2], RTLD_NOW | RTLD_LOCAL, &second);
    NEED(first.tarn_malloc != second.tarn_malloc);

    void *of_first = first.tarn_malloc(1000), *of_second = second.tarn_malloc(5000000);
    if (!of_first || !of_second)
        fprintf(stderr, "%s\n", of_first ? second.tarn_last_error() : first.tarn_last_error());
    NEED(of_first && of_second);
    NEED(live_blocks(&first) == 1 && live_blocks(&second) == 1);
    refuse(&first, &second, 100);
    refuse(&second, &first, 100);
    refuse(&first, &second, 10000000);
    refuse(&second, &first, 10000000);

    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        NEED(pthread_create(&threads[i], NULL, use, i % 2 ? &first : &second) == 0);
    for (int i = 0; i < 4; i++)
        NEED(pthread_join(threads[i], NULL) == 0);

    /* Both may show themselves. */
    const tarn_live_options live = {.size = sizeof live};
    NEED(first.tarn_live_start(&live) == TARN_OK);
    NEED(second.tarn_live_start(&live) == TARN_OK);
    NEED(first.tarn_live_stop() == TARN_OK);
    NEED(second.tarn_live_stop() == TARN_OK);

    NEED(first.tarn_free(of_first) == TARN_OK);
    NEED(first.tarn_shutdown() == TARN_OK);
    NEED(!first.tarn_malloc(100));
    use(&second);
    NEED(live_blocks(&second) == 1);
    NEED(second.tarn_free(of_second) == TARN_OK);
    NEED(second.tarn_shutdown() == TARN_OK);
    return 0;
}
