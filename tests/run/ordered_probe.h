/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the programs for the tests of stream-ordered memory share: ordered_probe.c and
 * stores_probe.c. */
#ifndef TARN_TESTS_ORDERED_PROBE_H
#define TARN_TESTS_ORDERED_PROBE_H

#include "pool_probe.h"

enum { OPPORTUNISTIC = 2, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH, USED, USED_HIGH };
#define LEGACY ((cu_stream)1)
#define PER_THREAD ((cu_stream)2)
#define S ((cu_stream)0x51)
#define T ((cu_stream)0x52)
#define PEER_STREAM ((cu_stream)0xa001) /* of device 1 */

static cu_pool first; /* the default pool */

static inline cu_address take(size_t size, cu_stream stream)
{
    cu_address address = 0;
    CHECK(cu.cuMemAllocAsync(&address, size, stream) == CU_OK && address);
    return address;
}

static inline cu_address take_of(size_t size, cu_pool pool, cu_stream stream)
{
    cu_address address = 0;
    CHECK(cu.cuMemAllocFromPoolAsync(&address, size, pool, stream) == CU_OK && address);
    return address;
}

static inline void give(cu_address address, cu_stream stream)
{
    CHECK(cu.cuMemFreeAsync(address, stream) == CU_OK);
}

static inline uint64_t get(cu_pool pool, unsigned attribute)
{
    uint64_t value = 0;
    CHECK(cu.cuMemPoolGetAttribute(pool, attribute, &value) == CU_OK);
    return value;
}

static inline void set(cu_pool pool, unsigned attribute, uint64_t value)
{
    CHECK(cu.cuMemPoolSetAttribute(pool, attribute, &value) == CU_OK);
}

/* Whether one more request of a stream needs no call of the driver. */
static inline bool is_served(cu_pool pool, cu_stream stream)
{
    cu_address one = take_of(4096, pool, stream);
    unsigned before = cu.cuFakeLive();
    cu_address two = take_of(4096, pool, stream);
    bool served = cu.cuFakeLive() == before;
    give(one, stream);
    give(two, stream);
    return served;
}

/* Whether a block that was given is among the next ones of a stream. */
static inline bool comes_again(cu_address block, cu_stream stream)
{
    cu_address others[64];
    bool again = false;
    for (int i = 0; i < 64; i++)
        again = (others[i] = take(4096, stream)) == block || again;
    for (int i = 0; i < 64; i++)
        give(others[i], stream);
    return again;
}

#endif
