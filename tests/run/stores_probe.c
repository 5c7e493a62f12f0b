/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A CUDA program for the tests of `tarn run --pool`, on the driver of this folder: what it can
 * observe of the driver's pools, and how much memory they and the device have. "tell" prints the
 * same with and without the shim. Exits 1 at the first thing that is wrong. */
#define PROBE "stores_probe"
#include "ordered_probe.h"

#include <semaphore.h>

/* Pools of the driver -------------------------------------------------------------------------- */

static void tell_pool(const char *what, cu_pool pool)
{
    printf("%s: used %llu, at most %llu\n", what, (unsigned long long)get(pool, USED),
           (unsigned long long)get(pool, USED_HIGH));
}

static void tell_block(cu_address block)
{
    unsigned list[] = {TYPE, ID,     MANAGED, ORDINAL, LEGACY_IPC,  START,
                       SIZE, MAPPED, HANDLES, MEMPOOL, MAPPING_SIZE};
    cu_address base = 0;
    size_t size = 0;
    CHECK(cu.cuMemGetAddressRange_v2(&base, &size, block + 100) == CU_OK);
    printf("  range %llu %zu:", base - block, size);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        uint64_t value = ask(list[i], block + 1), all = 0;
        void *places[] = {&all};
        CHECK(cu.cuPointerGetAttributes(1, &list[i], places, block + 1) == CU_OK && all == value);
        value = list[i] == START ? value - block : list[i] == ID ? value != 0 : value;
        printf(" %u=%llu", list[i], (unsigned long long)value);
    }
    printf("\n");
}

static void tell(void)
{
    struct cu_pool_properties properties = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    cu_address blocks[20], large, other = 7;
    cu_pool pool, now = NULL;
    int on = 0;
    start();
    printf("%u %u %llu\n", cu.cuMemAllocAsync(&other, 0, S), cu.cuMemAllocAsync(NULL, 1, S), other);
    CHECK(cu.cuDeviceGetDefaultMemPool(&first, 0) == CU_OK &&
          cu.cuMemPoolCreate(&pool, &properties) == CU_OK);
    tell_pool("nothing", first);
    for (int i = 0; i < 20; i++) {
        blocks[i] = take(1000 + (size_t)i * 10000, i % 2 ? S : T);
        tell_block(blocks[i]);
    }
    tell_pool("twenty", first);
    large = take(9 * MIB, S);
    tell_block(large);
    tell_pool("and a large one", first);
    for (int i = 0; i < 15; i++)
        give(blocks[i], i % 3 ? i % 2 ? S : T : LEGACY);
    give(large, S);
    tell_pool("five", first);
    set(first, USED_HIGH, 0);
    tell_pool("anew", first);
    printf("%u %u\n", cu.cuMemPoolSetAttribute(first, USED, &other),
           cu.cuMemPoolGetAttribute(first, 99, &other));
    printf("%u %u\n", cu.cuMemPoolGetAttribute(NULL, USED, &other), cu.cuMemPoolTrimTo(NULL, 0));
    for (int i = 15; i < 20; i++)
        give(blocks[i], LEGACY);
    tell_pool("none", first);
    CHECK(cu.cuFakeUse(5000) == CU_OK);
    tell_pool("somebody's", first);
    set(first, USED_HIGH, 0);
    tell_pool("somebody's anew", first);
    blocks[0] = take_of(5000, pool, S);
    CHECK(cu.cuDeviceSetMemPool(0, pool) == CU_OK && cu.cuDeviceGetMemPool(&now, 0) == CU_OK &&
          now == pool);
    blocks[1] = take(5000, S);
    tell_block(blocks[1]);
    tell_pool("own", pool);
    tell_pool("default", first);
    CHECK(cu.cuMemPoolSetAttribute(pool, OPPORTUNISTIC, &on) == CU_OK);
    blocks[2] = take(5000, S);
    tell_pool("strict", pool);
    printf("%u %u\n", cu.cuMemPoolDestroy(pool), cu.cuMemPoolDestroy(pool));
    tell_block(blocks[1]);
    for (int i = 0; i < 3; i++)
        give(blocks[i], S);
    printf("%u %u\n", cu.cuMemFreeAsync(blocks[0], S),
           cu.cuMemPoolGetAttribute(pool, USED, &other));
    tell_block(take(5000, S));
}

/* Which requests the driver serves one by one. */
static void properties(void)
{
    struct cu_pool_properties wanted = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    cu_pool pool;
    CHECK(is_served(first, S));
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && is_served(pool, S));
    CHECK(cu.cuMemPoolDestroy(pool) == CU_OK);
    wanted.most = 64 * MIB;
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && !is_served(pool, S));
    CHECK(cu.cuDeviceSetMemPool(0, pool) == CU_OK);
    unsigned before = cu.cuFakeLive();
    cu_address block = take(4096, S);
    CHECK(cu.cuFakeLive() == before + 1 && ask(MEMPOOL, block) == (uintptr_t)pool);
    give(block, S);
    struct cu_location place = {CU_LOCATION_DEVICE, 0};
    CHECK(cu.cuMemSetMemPool(&place, 1, first) == CU_OK);
    block = take(4096, S);
    CHECK(cu.cuFakeLive() == before && ask(MEMPOOL, block) == (uintptr_t)first);
    give(block, S);
    CHECK(cu.cuMemPoolDestroy(pool) == CU_OK);
    wanted.most = 0;
    wanted.reserved[50] = 1; /* what nobody knows yet */
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && !is_served(pool, S) &&
          cu.cuMemPoolDestroy(pool) == CU_OK);
    wanted.reserved[50] = 0;
    wanted.usage = 2;
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && !is_served(pool, S) &&
          cu.cuMemPoolDestroy(pool) == CU_OK);
    wanted.usage = 0;
    wanted.location.id = 1; /* of a device that is not the stream's */
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && !is_served(pool, S) &&
          cu.cuMemPoolDestroy(pool) == CU_OK);
    wanted.location = (struct cu_location){CU_LOCATION_HOST_NUMA, 0};
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && !is_served(pool, S) &&
          cu.cuMemPoolDestroy(pool) == CU_OK);
    CHECK(is_served(first, S));
    int off = 0, on = 1; /* no block may come again for the reason that its work happens to have
                            ended */
    CHECK(cu.cuMemPoolSetAttribute(first, OPPORTUNISTIC, &off) == CU_OK && !is_served(first, S));
    CHECK(cu.cuMemPoolSetAttribute(first, OPPORTUNISTIC, &on) == CU_OK && is_served(first, S));
    CHECK(!is_served(first, (cu_stream)0x9001)); /* a stream of another context */
    CHECK(cu.cuCtxSetCurrent(cu.cuFakeOtherContext()) == CU_OK && !is_served(first, S));
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK);
    CHECK(cu.cuMemAllocAsync(&block, MIB + 1, S) == CU_OK && cu.cuMemPoolTrimTo(first, 0) == CU_OK);
    give(block, S);
}

/* A destroyed pool's blocks stay, and its memory goes when the last of them is freed. A new one is
 * another. */
static void pool_destroyed(void)
{
    struct cu_pool_properties wanted = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    cu_pool pool, again;
    for (int i = 0; i < 200; i++) {
        CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK);
        cu_address block = take_of(4096, pool, S), other = take_of(4096, pool, T);
        unsigned before = cu.cuFakeLive();
        give(other, T);
        CHECK(cu.cuMemPoolDestroy(pool) == CU_OK && ask(SIZE, block) == 4096 &&
              cu.cuFakeLive() == before - 1);
        CHECK(cu.cuMemPoolCreate(&again, &wanted) == CU_OK && again == pool);
        other = take_of(4096, again, S);
        CHECK(other != block && get(again, USED) == 4096 && get(again, USED_HIGH) == 4096);
        give(block, S);
        CHECK(cu.cuFakeLive() == 1 && get(again, USED) == 4096);
        if (i % 2) {
            give(other, S);
            CHECK(cu.cuMemPoolDestroy(again) == CU_OK);
        } else {
            CHECK(cu.cuMemPoolDestroy(again) == CU_OK);
            give(other, T); /* late, and after its pool */
            CHECK(cu.cuFakeLive() == 1);
            cu.cuFakeFinish();
            give(take(4096, S), S);
            CHECK(cu.cuMemPoolTrimTo(first, 0) == CU_OK);
        }
        CHECK(cu.cuFakeLive() == 0 && cu.cuFakeDisorder() == 0);
        cu.cuFakeWork();
    }
}

/* What a pool holds above its threshold goes at a wait, whatever call that is; and not before. */
static void threshold(void)
{
    cu_event event;
    CHECK(cu.cuEventCreate(&event, 0) == CU_OK);
    for (int i = 0; i < 6; i++) {
        cu_address block = take(4096, S), other = take(4096, T);
        give(block, S);
        CHECK(cu.cuFakeReserved(first) > 0);
        cu_result code = i == 0   ? cu.cuCtxSynchronize()
                         : i == 1 ? cu.cuCtxSynchronize_v2(primary)
                         : i == 2 ? cu.cuStreamSynchronize(S)
                         : i == 3 ? cu.cuStreamSynchronize_ptsz(S)
                         : i == 4 ? cu.cuEventSynchronize(event)
                                  : cu.cuCtxSynchronize();
        CHECK(code == CU_OK && ask(SIZE, other) == 4096);
        /* The other stream's segment */
        CHECK(get(first, RESERVED) == 2 * MIB && cu.cuFakeLive() == 1);
        give(other, T);
        CHECK(cu.cuStreamSynchronize(T) == CU_OK && get(first, RESERVED) == 0 &&
              cu.cuFakeLive() == 0);
    }
    cu_address elsewhere = take(4096, S); /* freed behind another stream's work, for which that wait
                                             is */
    give(elsewhere, T);
    CHECK(cu.cuStreamSynchronize(S) == CU_OK && cu.cuFakeLive() == 1);
    CHECK(cu.cuStreamSynchronize(T) == CU_OK && cu.cuStreamSynchronize(S) == CU_OK &&
          get(first, RESERVED) == 0);
    give(take(4096, (cu_stream)0x53), (cu_stream)0x53); /* of a stream that has gone */
    CHECK(cu.cuStreamDestroy_v2((cu_stream)0x53) == CU_OK && cu.cuStreamSynchronize(S) == CU_OK);
    CHECK(get(first, RESERVED) > 0 && cu.cuCtxSynchronize() == CU_OK && get(first, RESERVED) == 0);
    set(first, THRESHOLD, 2 * MIB);
    cu_address blocks[] = {take(MIB, S), take(MIB, S), take(MIB, S)};
    for (int i = 0; i < 3; i++)
        give(blocks[i], S);
    CHECK(get(first, RESERVED) == 4 * MIB);
    CHECK(cu.cuStreamSynchronize(S) == CU_OK && get(first, RESERVED) == 2 * MIB);
    give(take(MIB, S), S);
    /* No more than the threshold: it stays */
    CHECK(cu.cuStreamSynchronize(S) == CU_OK && cu.cuFakeLive() == 1);
    set(first, THRESHOLD, UINT64_MAX);
    for (int i = 0; i < 3; i++)
        blocks[i] = take(MIB, T);
    for (int i = 0; i < 3; i++)
        give(blocks[i], T);
    unsigned before = cu.cuFakeLive();
    CHECK(cu.cuCtxSynchronize() == CU_OK && cu.cuFakeLive() == before &&
          get(first, RESERVED) >= 6 * MIB);
    CHECK(get(first, USED) == 0 && cu.cuFakeDisorder() == 0);
}

static void trim_to(void)
{
    cu_address block, other;
    set(first, THRESHOLD, UINT64_MAX);
    block = take(4096, S);
    other = take(4096, T);
    give(block, S);
    CHECK(cu.cuMemPoolTrimTo(first, 64 * MIB) == CU_OK && cu.cuFakeLive() == 2);
    CHECK(cu.cuMemPoolTrimTo(first, 0) == CU_OK && ask(SIZE, other) == 4096);
    /* No wait has seen the end of S's work */
    CHECK(cu.cuFakeLive() == 1 && get(first, RESERVED) > 2 * MIB);
    CHECK(cu.cuStreamSynchronize(S) == CU_OK && cu.cuMemPoolTrimTo(first, 0) == CU_OK);
    CHECK(get(first, RESERVED) == 2 * MIB);
    give(other, T);
    CHECK(cu.cuStreamSynchronize(T) == CU_OK);
    cu.cuFakeFinish(); /* it has, and that was seen before the call */
    CHECK(cu.cuMemPoolTrimTo(first, 0) == CU_OK && get(first, RESERVED) == 0 &&
          cu.cuFakeLive() == 0);
    CHECK(cu.cuFakeDisorder() == 0);
}

/* Who may reach a pool's memory: blocks from before the call and after it, of all streams, and of
 * no other pool. */
static void access_of_pools(void)
{
    struct cu_pool_properties wanted = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    struct cu_access peer = {{CU_LOCATION_DEVICE, 1}, CU_ACCESS_READ_WRITE},
                     own = {{CU_LOCATION_DEVICE, 0}, 0};
    cu_pool pool;
    unsigned flags = 7;
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK);
    cu_address before = take_of(4096, pool, S), other = take(4096, S),
               freed = take_of(4096, pool, T), plain = make(100);
    give(freed, T);
    CHECK(cu.cuMemPoolGetAccess(&flags, pool, &peer.location) == CU_OK && flags == 0);
    CHECK(cu.cuFakeReaches(before, 0) && !cu.cuFakeReaches(before, 1));
    /* What its own device has stays */
    CHECK(cu.cuMemPoolSetAccess(pool, &own, 1) == CU_INVALID_VALUE);
    CHECK(cu.cuMemPoolSetAccess(pool, &peer, 1) == CU_OK);
    CHECK(cu.cuMemPoolGetAccess(&flags, pool, &peer.location) == CU_OK &&
          flags == CU_ACCESS_READ_WRITE);
    CHECK(is_served(pool, S) && is_served(pool, T) && is_served(first, S));
    cu_address blocks[40];
    for (int i = 0; i < 40; i++) { /* from segments of before and of after */
        blocks[i] = take_of(200 * KIB, pool, i % 2 ? S : T);
        CHECK(cu.cuFakeReaches(blocks[i], 1) && cu.cuFakeReaches(blocks[i] + 200 * KIB - 1, 1));
    }
    cu_address large = take_of(3 * MIB, pool, S);
    CHECK(cu.cuFakeReaches(before, 1) && cu.cuFakeReaches(large, 1) && !cu.cuFakeReaches(other, 1));
    CHECK(!cu.cuFakeReaches(plain, 1) && !cu.cuFakeReaches(freed = take(4096, T), 1));
    give(freed, T);
    CHECK(cu.cuDeviceSetMemPool(0, pool) == CU_OK && cu.cuFakeReaches(freed = take(4096, T), 1));
    give(freed, T);
    CHECK(cu.cuMemPoolGetAccess(&flags, first, &peer.location) == CU_OK && flags == 0);
    peer.flags = 0; /* and taken back */
    CHECK(cu.cuMemPoolSetAccess(pool, &peer, 1) == CU_OK && is_served(pool, S));
    CHECK(!cu.cuFakeReaches(before, 1) && !cu.cuFakeReaches(blocks[0], 1));
    CHECK(cu.cuMemPoolGetAccess(&flags, pool, &peer.location) == CU_OK && flags == 0);
    peer.location.id = 2;
    CHECK(cu.cuMemPoolSetAccess(pool, &peer, 1) == CU_INVALID_DEVICE);
    CHECK(cu.cuMemPoolSetAccess(NULL, &peer, 1) == CU_INVALID_VALUE);
    for (int i = 0; i < 40; i++)
        give(blocks[i], i % 2 ? S : T);
    give(large, S);
    give(before, S);
    CHECK(cu.cuMemPoolDestroy(pool) == CU_OK && cu.cuFakeDisorder() == 0);
}

/* Memory --------------------------------------------------------------------------------------- */

/* Under --limit 64M: what counts is what the process has, and what no block is in goes when it is
 * wanted. */
static void limit(void)
{
    cu_address blocks[62], large = 0;
    CHECK(free_now() == 64 * MIB);
    blocks[0] = take(1, S);
    CHECK(free_now() == 62 * MIB);
    give(blocks[0], S);
    CHECK(free_now() == 64 * MIB);
    large = make(64 * MIB);
    CHECK(cu.cuMemAllocAsync(&blocks[0], 1, S) == CU_OUT_OF_MEMORY);
    end(large);
    for (int i = 0; i < 62; i++)
        blocks[i] = take(MIB, S);
    CHECK(cu.cuFakeLive() == 31 && free_now() == 2 * MIB &&
          cu.cuMemAlloc_v2(&large, 3 * MIB) == CU_OUT_OF_MEMORY);
    for (int i = 0; i < 62; i++)
        give(blocks[i], S);
    CHECK(free_now() == 64 * MIB);
    large = take(64 * MIB, T);
    give(large, T);
    large = make(64 * MIB);
    end(large);
}

/* On a device of 9 MiB. */
static void shortage(void)
{
    cu_address blocks[8], large = 0;
    set(first, THRESHOLD, UINT64_MAX);
    for (int i = 0; i < 8; i++)
        blocks[i] = take(MIB, i % 2 ? S : T);
    CHECK(cu.cuMemAlloc_v2(&large, 9 * MIB) == CU_OUT_OF_MEMORY);
    for (int i = 0; i < 8; i++)
        give(blocks[i], i % 2 ? S : T);
    large = make(9 * MIB);
    CHECK(cu.cuFakeLive() == 1);
    end(large);
}

/* On a device of 9 MiB: what a thread freed on its own default stream is idle, and no other can say
 * so to the driver before a wait. What is behind work comes back too. */
static sem_t has_freed, may_end;
static void *keeps_its_stream(void *argument)
{
    cu_address block = 0, *kept = argument;
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK &&
          cu.cuMemAllocAsync_ptsz(&block, MIB, NULL) == CU_OK);
    CHECK(cu.cuMemAllocAsync_ptsz(kept, MIB, PER_THREAD) == CU_OK &&
          cu.cuMemFreeAsync_ptsz(block, NULL) == CU_OK);
    CHECK(cu.cuMemAllocAsync_ptsz(&block, MIB, NULL) == CU_OK &&
          cu.cuMemFreeAsync_ptsz(block, NULL) == CU_OK);
    CHECK(cu.cuMemFreeAsync_ptsz(*kept, NULL) == CU_OK);
    CHECK(cu.cuMemAllocAsync_ptsz(kept, 2000, NULL) == CU_OK);
    CHECK(sem_post(&has_freed) == 0 && sem_wait(&may_end) == 0);
    CHECK(cu.cuMemAllocAsync_ptsz(&block, 4096, NULL) == CU_OK &&
          cu.cuMemFreeAsync_ptsz(block, NULL) == CU_OK);
    CHECK(cu.cuMemFreeAsync_ptsz(*kept, NULL) == CU_OK);
    return NULL;
}

static void shortage_of_threads(void)
{
    pthread_t threads[4];
    cu_address kept[4], large = 0, late_one;
    set(first, THRESHOLD, UINT64_MAX);
    CHECK(sem_init(&has_freed, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, keeps_its_stream, &kept[i]) == 0);
        CHECK(sem_wait(&has_freed) == 0);
    }
    late_one = take(MIB, S);
    give(late_one, T);                                            /* 6 MiB in three segments */
    CHECK(cu.cuMemAlloc_v2(&large, 6 * MIB) == CU_OUT_OF_MEMORY); /* of which two have a block */
    CHECK(ask(SIZE, kept[0]) == 2000 && ask(SIZE, kept[1]) == 2000);
    large = make(5 * MIB);
    CHECK(cu.cuFakeLive() == 3 && cu.cuFakeDisorder() == 0);
    end(large);
    for (int i = 0; i < 2; i++)
        CHECK(sem_post(&may_end) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(cu.cuFakeLive() == 2);
    large = make(9 * MIB);
    CHECK(cu.cuFakeLive() == 1 && cu.cuFakeDisorder() == 0);
    end(large);
}

/* With FAKE_DRIVER_FORGETS the memory of pools goes with the primary context, without it stays; in
 * both cases no block is another's. */
static void contexts(void)
{
    bool forgets = getenv("FAKE_DRIVER_FORGETS");
    for (int i = 0; i < 3; i++) {
        cu_address block = take(4096, S), freed = take(4096, S), other;
        give(freed, S);
        give(take(4096, S), T); /* its event goes too */
        CHECK(cu.cuDevicePrimaryCtxReset_v2(0) == CU_OK);
        CHECK(cu.cuFakeLive() == !forgets && get(first, USED) == (forgets ? 0 : 4096));
        other = take(4096, S);
        CHECK(forgets || other != block);
        CHECK(is_served(first, S) && ask(SIZE, other) == 4096);
        CHECK(forgets || (ask(SIZE, block) == 4096 && cu.cuMemFreeAsync(block, S) == CU_OK));
        give(other, S);
        cu.cuFakeFinish();
        CHECK(cu.cuMemPoolTrimTo(first, 0) == CU_OK && cu.cuFakeLive() == 0 &&
              get(first, USED) == 0);
        cu.cuFakeWork();
    }
}

static const struct command commands[] = {
    {"properties", properties},  {"pool_destroyed", pool_destroyed},
    {"threshold", threshold},    {"trim_to", trim_to},
    {"access", access_of_pools}, {"limit", limit},
    {"shortage", shortage},      {"shortage_of_threads", shortage_of_threads},
    {"contexts", contexts},
};

int main(int argc, char **argv)
{
    open_driver();
    if (argc > 1 && strcmp(argv[1], "tell") == 0) {
        tell();
        return 0;
    }
    const struct command *command =
        argc > 1 ? command_of(commands, sizeof commands / sizeof *commands, argv[1]) : NULL;
    if (command) {
        start();
        CHECK(cu.cuDeviceGetDefaultMemPool(&first, 0) == CU_OK);
        command->run();
        return 0;
    }
    return 2;
}
