/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of plans share: the file of the plan, a process that follows it on a device of 256
 * MiB, and requests of which a step fails. */
#ifndef TESTS_MEMORY_PLAN_TEST_H
#define TESTS_MEMORY_PLAN_TEST_H

#include "base/pages.h"
#include "memory/plan/plan.h"
#include "support/host.h"

#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/config.h>
#include <tarn/pool.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)
#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define UNITS(bytes) ((uint32_t)((bytes) / TARN_BLOCK_UNIT))
#define REQUEST(size, offset, end)        \
    {                                     \
        UNITS(size), UNITS(offset), (end) \
    }

static char path[] = "/tmp/tarn-test-plan.XXXXXX";

/* Before all tests, and after them. */
static int make_file(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

/* A plan of four blocks: the second and the third take turns at one place. */
static const struct plan_request four[] = {
    REQUEST(8 * MIB, 0, 4),
    REQUEST(4 * MIB, 8 * MIB, 2),
    REQUEST(6 * MIB, 8 * MIB, 4),
    REQUEST(2 * MIB, 14 * MIB, 4),
};

static inline struct plan_header header_of(size_t count, uint64_t arena, uint64_t small)
{
    struct plan_header header = {.version = htole32(PLAN_VERSION),
                                 .count = htole32((uint32_t)count),
                                 .arena = htole64(arena),
                                 .small = htole64(small)};
    memcpy(header.magic, PLAN_MAGIC, sizeof header.magic);
    return header;
}

static inline void write_file(const void *header, size_t header_size, const void *requests,
                              size_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(header, 1, header_size, file) == header_size);
    CHECK(size == 0 || fwrite(requests, 1, size, file) == size);
    CHECK(fclose(file) == 0);
}

/* Writes a plan with a checksum that is right. */
static inline void write_plan(struct plan_header header, const struct plan_request *requests,
                              size_t count)
{
    header.checksum = htole64(plan_checksum(&header, requests));
    write_file(&header, sizeof header, requests, count * sizeof *requests);
}

/* A plan of two arenas, `four` in each; what is wrong with it is said to be where it is in the
 * file. */
struct two {
    struct plan_header first;
    struct plan_request requests[LENGTH(four)];
    struct plan_header second;
    struct plan_request others[LENGTH(four)];
};

static inline struct two two_of_four(uint32_t behind)
{
    struct two two = {.first = header_of(LENGTH(four), 16 * MIB, 2 * MIB),
                      .second = header_of(LENGTH(four), 16 * MIB, 2 * MIB)};
    two.first.version = two.second.version = htole32(PLAN_VERSION_SEVERAL);
    two.first.behind = htole32(behind);
    memcpy(two.requests, four, sizeof four);
    memcpy(two.others, four, sizeof four);
    return two;
}

static inline void write_two(struct two two, size_t size)
{
    two.first.checksum = htole64(plan_checksum(&two.first, two.requests));
    two.second.checksum = htole64(plan_checksum(&two.second, two.others));
    write_file(&two, size, NULL, 0);
}

/* Follows the plan that is in the file. */
static inline void use_file(void)
{
    char text[64];
    snprintf(text, sizeof text, "plan:%s", path);
    OK(tarn_configuration_set(text));
    host_start_with(1, MEMORY);
}

/* A request during which the n-th driver call, or host allocation, fails. It is served all the
 * same, or gives NULL. */
static inline void *alloc_with_failure(tarn_pool *pool, tarn_stream stream, size_t bytes,
                                       uint64_t n, bool host)
{
    void *block = NULL;
    if (host)
        pages_fail(n, false);
    else
        OK(tarn_host_fail_set(-1, n, false, TARN_ERROR_OUT_OF_MEMORY));
    tarn_status status =
        pool ? tarn_pool_alloc(pool, stream, bytes, &block) : tarn_alloc_on(stream, bytes, &block);
    pages_fail(0, false);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK((status == TARN_OK) == (block != NULL));
    verify(0);
    return block;
}

#endif
