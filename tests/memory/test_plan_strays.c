/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Plans and memory that is short: that a plan never takes memory from the request at hand. Each test runs in a child, since a plan counts for a process. The device has 256 MiB. */
#include "plan_test.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define UNITS(bytes) ((uint32_t)((bytes) / TARN_BLOCK_UNIT))
#define REQUEST(size, offset, end)        \
    {                                     \
        UNITS(size), UNITS(offset), (end) \
    }

/* Follows a plan of one arena, of the default pool or, with 1, of a private one. */
static void use_plan(uint32_t pool, const struct plan_request *requests, size_t count, uint64_t arena)
{
    struct plan_header header = {.version = htole32(PLAN_VERSION_POOLS),
                                 .count = htole32((uint32_t)count),
                                 .arena = htole64(arena),
                                 .pool = htole32(pool)};
    FILE *file = fopen(path, "wb");
    memcpy(header.magic, PLAN_MAGIC, sizeof header.magic);
    header.checksum = htole64(plan_checksum(&header, requests));
    CHECK(file && fwrite(&header, sizeof header, 1, file) == 1);
    CHECK(fwrite(requests, sizeof *requests, count, file) == count && fclose(file) == 0);
    use_file();
}

/* With memory for one request and no more. A pool that is captured moves no memory, so nothing may be spent on the next request, whose place
 * is at `next`. */
static void capture_one(size_t next)
{
    const struct plan_request requests[] = {REQUEST(4 * MIB, 500 * MIB, 3), REQUEST(2 * MIB, next, 3),
                                            REQUEST(2 * MIB, next + 4 * MIB, 3)};
    use_plan(1, requests, LENGTH(requests), 512 * MIB);
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    void *graph = NULL, *block = NULL;
    OK(tarn_device_limit_set(0, 4 * MIB));
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    OK(tarn_alloc_on(stream, 4 * MIB, &block));
    CHECK(ledger_of(0).created == 4 * MIB && plan_counts().planned == 1);
    OK(tarn_capture_end(stream, &graph));
    verify(0);
    OK(tarn_free(block));
    OK(driver->graph_destroy(0, graph));
    OK(tarn_device_synchronize(0));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_request_comes_before_what_is_next_below(void)
{
    capture_one(0);
}

static void a_request_comes_before_what_is_next_behind(void)
{
    capture_one(504 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_request_comes_before_what_is_next_below),
        CHILD_TEST(a_request_comes_before_what_is_next_behind),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
