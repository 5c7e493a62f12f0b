/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A CUDA program for the tests of `tarn run --pool`, on the driver of this folder: what it can observe of stream-ordered memory. On that driver
 * all streams have work, which ends when the test says so. "tell" prints the same with and without the shim. Exits 1 at the first thing that
 * is wrong. */
#define PROBE "ordered_probe"
#include "pool_probe.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPPORTUNISTIC = 2, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH, USED, USED_HIGH };
#define LEGACY ((cu_stream)1)
#define PER_THREAD ((cu_stream)2)
#define S ((cu_stream)0x51)
#define T ((cu_stream)0x52)
#define PEER_STREAM ((cu_stream)0xa001) /* of device 1 */

static cu_pool first; /* the default pool */

static cu_address take(size_t size, cu_stream stream)
{
    cu_address address = 0;
    CHECK(cu.cuMemAllocAsync(&address, size, stream) == CU_OK && address);
    return address;
}

static cu_address take_of(size_t size, cu_pool pool, cu_stream stream)
{
    cu_address address = 0;
    CHECK(cu.cuMemAllocFromPoolAsync(&address, size, pool, stream) == CU_OK && address);
    return address;
}

static void give(cu_address address, cu_stream stream)
{
    CHECK(cu.cuMemFreeAsync(address, stream) == CU_OK);
}

static uint64_t get(cu_pool pool, unsigned attribute)
{
    uint64_t value = 0;
    CHECK(cu.cuMemPoolGetAttribute(pool, attribute, &value) == CU_OK);
    return value;
}

static void set(cu_pool pool, unsigned attribute, uint64_t value)
{
    CHECK(cu.cuMemPoolSetAttribute(pool, attribute, &value) == CU_OK);
}

/* Whether one more request of a stream needs no call of the driver. */
static bool is_served(cu_pool pool, cu_stream stream)
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
static bool comes_again(cu_address block, cu_stream stream)
{
    cu_address others[64];
    bool again = false;
    for (int i = 0; i < 64; i++)
        again = (others[i] = take(4096, stream)) == block || again;
    for (int i = 0; i < 64; i++)
        give(others[i], stream);
    return again;
}

/* Order ------------------------------------------------------------------------------------------------------------- */

static void reuse(void)
{
    cu_address block = take(4096, S), base;
    size_t size;
    CHECK(is_served(first, S));
    unsigned waits = cu.cuFakeWaits();
    give(block, S);
    CHECK(cu.cuMemGetAddressRange_v2(&base, &size, block) == CU_NOT_FOUND);
    CHECK(cu.cuMemFreeAsync(block, S) == CU_INVALID_VALUE && cu.cuMemFree_v2(block) == CU_INVALID_VALUE);
    CHECK(!comes_again(block, T) && comes_again(block, S)); /* at once, and only there */
    block = take(4096, S);
    give(block, T); /* behind the work of another stream: nobody's before that has ended */
    CHECK(!comes_again(block, S) && !comes_again(block, T));
    block = take(4096, S);
    CHECK(cu.cuMemFreeAsync(block + 512, S) != CU_OK && cu.cuMemFree_v2(block + 512) != CU_OK);
    CHECK(ask(SIZE, block) == 4096);
    give(block, S);
    block = take(4096, S); /* by the other call: the program says that its work has ended */
    CHECK(cu.cuMemFree_v2(block) == CU_OK && cu.cuFakeWaits() == waits);
    CHECK(cu.cuMemFree_v2(block) == CU_INVALID_VALUE && comes_again(block, S));
    block = make(4096); /* a plain block, whose memory is in no pool of the driver */
    give(block, S);
    CHECK(!comes_again(block, S) && cu.cuFakeDisorder() == 0);
}

/* A block that waits for work comes again when that has ended. */
static void late(void)
{
    enum { MANY = 3000 };
    static cu_address blocks[MANY];
    cu_address block = take(4096, S);
    CHECK(comes_again(0, S) == false);
    give(block, T);
    CHECK(!comes_again(block, S));
    cu.cuFakeFinish();
    CHECK(comes_again(block, S));
    cu.cuFakeWork();
    for (int i = 0; i < MANY; i++)
        blocks[i] = take(4096, S);
    for (int i = 0; i < MANY; i++)
        give(blocks[i], T);
    cu.cuFakeFinish();
    CHECK(!comes_again(0, S));
    CHECK(cu.cuStreamSynchronize(S) == CU_OK && cu.cuFakeLive() == 0 && cu.cuFakeDisorder() == 0);
}

static void *default_of_thread(void *argument)
{
    cu_address *block = argument;
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK && cu.cuMemAllocAsync_ptsz(block, 4096, NULL) == CU_OK);
    CHECK(cu.cuMemFreeAsync_ptsz(*block, NULL) == CU_OK);
    return NULL;
}

/* The default streams: one by two names, and one per thread by two names. */
static void defaults(void)
{
    cu_address block = take(4096, NULL), again = 0, other = 0;
    pthread_t thread;
    give(block, LEGACY);
    CHECK((again = take(4096, LEGACY)) == block);
    give(again, NULL);
    CHECK(cu.cuMemAllocAsync_ptsz(&again, 4096, NULL) == CU_OK && again != block);
    CHECK(!comes_again(again, NULL));
    CHECK(cu.cuMemFreeAsync_ptsz(again, NULL) == CU_OK && !comes_again(again, NULL));
    CHECK(take(4096, PER_THREAD) == again);
    CHECK(cu.cuMemFreeAsync(again, PER_THREAD) == CU_OK);
    CHECK(cu.cuMemAllocAsync_ptsz(&other, 4096, LEGACY) == CU_OK && other == block);
    CHECK(cu.cuMemFreeAsync_ptsz(other, NULL) == CU_OK && !comes_again(other, NULL)); /* in another one's order */
    CHECK(pthread_create(&thread, NULL, default_of_thread, &other) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(other != again && cu.cuMemAllocFromPoolAsync_ptsz(&other, 4096, first, NULL) == CU_OK && other == again);
    CHECK(cu.cuMemFreeAsync(other, NULL) == CU_OK && take(4096, PER_THREAD) != other);
    CHECK(cu.cuFakeDisorder() == 0);
}

/* What a thread's own default stream had is another's when it is certain that its work has ended: after a wait for the context. */
static void thread_ends(void)
{
    cu_address block;
    pthread_t thread;
    set(first, THRESHOLD, UINT64_MAX);
    CHECK(pthread_create(&thread, NULL, default_of_thread, &block) == 0 && pthread_join(thread, NULL) == 0);
    unsigned before = cu.cuFakeLive();
    cu.cuFakeFinish();
    CHECK(take(4096, S) != block && cu.cuFakeLive() == before + 1);
    CHECK(cu.cuCtxSynchronize() == CU_OK);
    CHECK(take(4096, T) == block && cu.cuFakeLive() == before + 1);
}

/* Streams end, with blocks that live on and work that is not done; another may come with the same pointer. */
static void destroyed(void)
{
    cu_address kept, freed, other = 0;
    set(first, THRESHOLD, UINT64_MAX);
    kept = take(4096, S);
    freed = take(4096, S);
    give(freed, S);
    CHECK(cu.cuStreamDestroy_v2(S) == CU_OK && ask(SIZE, kept) == 4096);
    CHECK(cu.cuMemAllocAsync(&other, 4096, S) == CU_INVALID_HANDLE && other == 0);
    CHECK(cu.cuMemFreeAsync(kept, S) == CU_INVALID_HANDLE && ask(SIZE, kept) == 4096);
    CHECK(!comes_again(freed, T));
    cu.cuFakeStream(S);
    CHECK(!comes_again(freed, S)); /* the new one is not behind the old one's work */
    give(kept, S);
    CHECK(!comes_again(kept, S));
    CHECK(cu.cuStreamDestroy(S) == CU_OK);
    cu.cuFakeFinish();
    unsigned before = cu.cuFakeLive();
    CHECK(comes_again(freed, (cu_stream)0x99) && cu.cuFakeLive() == before);             /* its memory serves another */
    CHECK(cu.cuMemAllocAsync(&other, 4096, (cu_stream)0x12345678) == CU_INVALID_HANDLE); /* one that never was */
    CHECK(cu.cuMemAllocFromPoolAsync(&other, 4096, first, S) == CU_INVALID_HANDLE && cu.cuFakeDisorder() == 0);
}

/* Streams that come and go leave nothing behind; and there may be more of them than lanes. */
static void many(void)
{
    enum { MANY = 600 };
    cu_address blocks[MANY];
    set(first, THRESHOLD, UINT64_MAX);
    cu.cuFakeFinish();
    for (uintptr_t i = 0; i < MANY; i++) {
        give(take(4096, S), S);
        CHECK(cu.cuStreamDestroy_v2(S) == CU_OK);
        cu.cuFakeStream(S);
    }
    CHECK(cu.cuFakeLive() == 1);
    for (uintptr_t i = 0; i < MANY; i++)
        blocks[i] = take(4096, (cu_stream)(0x100 + i));
    CHECK(cu.cuFakeLive() == MANY);
    for (uintptr_t i = 0; i < MANY; i++)
        give(blocks[i], (cu_stream)(0x100 + i));
    CHECK(cu.cuMemPoolTrimTo(first, 0) == CU_OK && cu.cuFakeLive() == 0);
}

/* Captures ---------------------------------------------------------------------------------------------------------- */

static void capture(void)
{
    cu_address block = take(4096, S), late_one = take(4096, S), node = 0;
    cu_stream captured_late = (cu_stream)0x54;
    cu_graph graph;
    CHECK(is_served(first, S));
    CHECK(cu.cuStreamBeginCapture_v2(T, GLOBAL) == CU_OK);
    unsigned before = cu.cuFakeLive();
    CHECK(cu.cuMemAllocAsync(&node, 4096, T) == CU_OK && cu.cuFakeLive() == before + 1); /* the graph's */
    CHECK(take(4096, S) && cu.cuFakeLive() == before + 2);                               /* no pool serves meanwhile */
    CHECK(cu.cuMemFreeAsync(block, T) != CU_OK && ask(SIZE, block) == 4096);             /* no node of that graph */
    give(block, S);
    give(late_one, (cu_stream)0x53);
    CHECK(get(first, USED) > 0 && cu.cuStreamDestroy_v2((cu_stream)0x53) == CU_OK);
    CHECK(cu.cuStreamEndCapture(T, &graph) == CU_OK); /* and none of this has ended it */
    CHECK(is_served(first, S));
    give(take(4096, captured_late), captured_late);
    CHECK(is_served(first, captured_late));
    give(take(4096, S), T);
    CHECK(cu.cuFakeCapture(captured_late) == CU_OK); /* a capture that nobody saw begin */
    before = cu.cuFakeLive();
    CHECK(cu.cuMemAllocAsync(&node, 4096, captured_late) == CU_OK && cu.cuFakeLive() == before + 1);
    CHECK(cu.cuMemFreeAsync(block = take(4096, S), captured_late) != CU_OK && ask(SIZE, block) == 4096);
    give(take(4096, (cu_stream)0x55), S);
    CHECK(cu.cuFakeCapture(NULL) == CU_OK); /* which no question of the shim's own has ended */
    give(block, S);
    block = take(4096, S);
    CHECK(cu.cuStreamBeginCapture_v2(T, GLOBAL) == CU_OK);
    CHECK(cu.cuMemFree_v2(block) == CU_CAPTURE_UNSUPPORTED && ask(SIZE, block) == 4096);
    CHECK(cu.cuStreamEndCapture(T, &graph) == 901);
    give(block, S);
}

/* Another thread's capture, which begins while this one looks at its streams. */
static void *lane_of_thread(void *argument)
{
    (void)argument;
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK);
    for (uintptr_t i = 0; i < 3000; i++) {
        cu_stream stream = (cu_stream)(0x100 + i % 20);
        give(take(4096, stream), i % 3 ? stream : T);
        if (i % 50 == 49) {
            CHECK(cu.cuStreamDestroy_v2(stream) == CU_OK);
            cu.cuFakeStream(stream);
        }
    }
    return NULL;
}

static void capture_beside(void)
{
    pthread_t thread;
    cu_graph graph;
    CHECK(pthread_create(&thread, NULL, lane_of_thread, NULL) == 0);
    for (int i = 0; i < 300000; i++) {
        CHECK(cu.cuStreamBeginCapture_v2(S, GLOBAL) == CU_OK);
        CHECK(cu.cuStreamEndCapture(S, &graph) == CU_OK);
    }
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Pools of the driver ----------------------------------------------------------------------------------------------- */

static void tell_pool(const char *what, cu_pool pool)
{
    printf("%s: used %llu, at most %llu\n", what, (unsigned long long)get(pool, USED),
           (unsigned long long)get(pool, USED_HIGH));
}

static void tell_block(cu_address block)
{
    unsigned list[] = {TYPE, ID, MANAGED, ORDINAL, LEGACY_IPC, START, SIZE, MAPPED, HANDLES, MEMPOOL, MAPPING_SIZE};
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
    CHECK(cu.cuDeviceGetDefaultMemPool(&first, 0) == CU_OK && cu.cuMemPoolCreate(&pool, &properties) == CU_OK);
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
        CHECK((i % 3 ? cu.cuMemFreeAsync(blocks[i], i % 2 ? S : T) : cu.cuMemFree_v2(blocks[i])) == CU_OK);
    give(large, S);
    tell_pool("five", first);
    set(first, USED_HIGH, 0);
    tell_pool("anew", first);
    printf("%u %u\n", cu.cuMemPoolSetAttribute(first, USED, &other), cu.cuMemPoolGetAttribute(first, 99, &other));
    printf("%u %u\n", cu.cuMemPoolGetAttribute(NULL, USED, &other), cu.cuMemPoolTrimTo(NULL, 0));
    for (int i = 15; i < 20; i++)
        give(blocks[i], LEGACY);
    tell_pool("none", first);
    CHECK(cu.cuFakeUse(5000) == CU_OK);
    tell_pool("somebody's", first);
    set(first, USED_HIGH, 0);
    tell_pool("somebody's anew", first);
    blocks[0] = take_of(5000, pool, S);
    CHECK(cu.cuDeviceSetMemPool(0, pool) == CU_OK && cu.cuDeviceGetMemPool(&now, 0) == CU_OK && now == pool);
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
    printf("%u %u\n", cu.cuMemFreeAsync(blocks[0], S), cu.cuMemPoolGetAttribute(pool, USED, &other));
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
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && !is_served(pool, S) && cu.cuMemPoolDestroy(pool) == CU_OK);
    wanted.reserved[50] = 0;
    wanted.usage = 2;
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && !is_served(pool, S) && cu.cuMemPoolDestroy(pool) == CU_OK);
    wanted.usage = 0;
    wanted.location.id = 1; /* of a device that is not the stream's */
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && !is_served(pool, S) && cu.cuMemPoolDestroy(pool) == CU_OK);
    wanted.location = (struct cu_location){CU_LOCATION_HOST_NUMA, 0};
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK && !is_served(pool, S) && cu.cuMemPoolDestroy(pool) == CU_OK);
    CHECK(is_served(first, S));
    int off = 0, on = 1; /* no block may come again for the reason that its work happens to have ended */
    CHECK(cu.cuMemPoolSetAttribute(first, OPPORTUNISTIC, &off) == CU_OK && !is_served(first, S));
    CHECK(cu.cuMemPoolSetAttribute(first, OPPORTUNISTIC, &on) == CU_OK && is_served(first, S));
    CHECK(!is_served(first, (cu_stream)0x9001)); /* a stream of another context */
    CHECK(cu.cuCtxSetCurrent(cu.cuFakeOtherContext()) == CU_OK && !is_served(first, S));
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK);
    CHECK(cu.cuMemAllocAsync(&block, MIB + 1, S) == CU_OK && cu.cuMemPoolTrimTo(first, 0) == CU_OK);
    give(block, S);
}

/* A destroyed pool's blocks stay, and its memory goes when the last of them is freed. A new one is another. */
static void pool_destroyed(void)
{
    struct cu_pool_properties wanted = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    cu_pool pool, again;
    for (int i = 0; i < 200; i++) {
        CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK);
        cu_address block = take_of(4096, pool, S), other = take_of(4096, pool, T);
        unsigned before = cu.cuFakeLive();
        give(other, T);
        CHECK(cu.cuMemPoolDestroy(pool) == CU_OK && ask(SIZE, block) == 4096 && cu.cuFakeLive() == before - 1);
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
        CHECK(get(first, RESERVED) == 2 * MIB && cu.cuFakeLive() == 1); /* the other stream's segment */
        give(other, T);
        CHECK(cu.cuStreamSynchronize(T) == CU_OK && get(first, RESERVED) == 0 && cu.cuFakeLive() == 0);
    }
    cu_address elsewhere = take(4096, S); /* freed behind another stream's work, for which that wait is */
    give(elsewhere, T);
    CHECK(cu.cuStreamSynchronize(S) == CU_OK && cu.cuFakeLive() == 1);
    CHECK(cu.cuStreamSynchronize(T) == CU_OK && cu.cuStreamSynchronize(S) == CU_OK && get(first, RESERVED) == 0);
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
    CHECK(cu.cuStreamSynchronize(S) == CU_OK && cu.cuFakeLive() == 1); /* no more than the threshold: it stays */
    set(first, THRESHOLD, UINT64_MAX);
    for (int i = 0; i < 3; i++)
        blocks[i] = take(MIB, T);
    for (int i = 0; i < 3; i++)
        give(blocks[i], T);
    unsigned before = cu.cuFakeLive();
    CHECK(cu.cuCtxSynchronize() == CU_OK && cu.cuFakeLive() == before && get(first, RESERVED) >= 6 * MIB);
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
    CHECK(cu.cuFakeLive() == 1 && get(first, RESERVED) > 2 * MIB); /* no wait has seen the end of S's work */
    CHECK(cu.cuStreamSynchronize(S) == CU_OK && cu.cuMemPoolTrimTo(first, 0) == CU_OK);
    CHECK(get(first, RESERVED) == 2 * MIB);
    give(other, T);
    CHECK(cu.cuStreamSynchronize(T) == CU_OK);
    cu.cuFakeFinish(); /* it has, and that was seen before the call */
    CHECK(cu.cuMemPoolTrimTo(first, 0) == CU_OK && get(first, RESERVED) == 0 && cu.cuFakeLive() == 0);
    CHECK(cu.cuFakeDisorder() == 0);
}

/* Who may reach a pool's memory: blocks from before the call and after it, of all streams, and of no other pool. */
static void access_of_pools(void)
{
    struct cu_pool_properties wanted = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    struct cu_access peer = {{CU_LOCATION_DEVICE, 1}, CU_ACCESS_READ_WRITE}, own = {{CU_LOCATION_DEVICE, 0}, 0};
    cu_pool pool;
    unsigned flags = 7;
    CHECK(cu.cuMemPoolCreate(&pool, &wanted) == CU_OK);
    cu_address before = take_of(4096, pool, S), other = take(4096, S), freed = take_of(4096, pool, T),
               plain = make(100);
    give(freed, T);
    CHECK(cu.cuMemPoolGetAccess(&flags, pool, &peer.location) == CU_OK && flags == 0);
    CHECK(cu.cuFakeReaches(before, 0) && !cu.cuFakeReaches(before, 1));
    CHECK(cu.cuMemPoolSetAccess(pool, &own, 1) == CU_INVALID_VALUE); /* what its own device has stays */
    CHECK(cu.cuMemPoolSetAccess(pool, &peer, 1) == CU_OK);
    CHECK(cu.cuMemPoolGetAccess(&flags, pool, &peer.location) == CU_OK && flags == CU_ACCESS_READ_WRITE);
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

/* A block that a device may reach is freed behind work of that device, by threads with its context, with the block's, and without one. Its
 * memory waits for that work; the end of the other device's context is the end of the work. */
static void *free_of_thread(void *block)
{
    CHECK(cu.cuMemFreeAsync((cu_address)(uintptr_t)block, PEER_STREAM) == CU_OK);
    return NULL;
}

static void peer_frees(void)
{
    cu_context context;
    pthread_t thread;
    cu_address blocks[5];
    set(first, THRESHOLD, UINT64_MAX);
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, 1) == CU_OK);
    for (int i = 0; i < 5; i++)
        blocks[i] = take(4096, S);
    give(blocks[0], PEER_STREAM);
    CHECK(cu.cuCtxSetCurrent(context) == CU_OK);
    give(blocks[1], PEER_STREAM);
    give(blocks[2], NULL);
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK);
    CHECK(pthread_create(&thread, NULL, free_of_thread, (void *)(uintptr_t)blocks[3]) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(cu.cuMemGetAddressRange_v2(NULL, NULL, blocks[i]) == CU_NOT_FOUND && !comes_again(blocks[i], S));
    CHECK(cu.cuMemFreeAsync(blocks[4], (cu_stream)0x12345678) == CU_INVALID_HANDLE && ask(SIZE, blocks[4]) == 4096);
    CHECK(cu.cuDevicePrimaryCtxReset_v2(1) == CU_OK);
    cu_address others[400];
    unsigned again = 0;
    for (int i = 0; i < 400; i++) {
        others[i] = take(4096, S);
        for (int j = 0; j < 4; j++)
            again += others[i] == blocks[j];
    }
    CHECK(again == 4);
    for (int i = 0; i < 400; i++)
        give(others[i], S);
    give(blocks[4], PEER_STREAM);
    CHECK(!comes_again(blocks[4], S));
    cu.cuFakeFinish();
    CHECK(comes_again(blocks[4], S) && cu.cuFakeDisorder() == 0);
}

/* Faults ------------------------------------------------------------------------------------------------------------ */

/* After a call has said that work has failed, the requests and frees that follow say so too; and not any more when the fault is over. */
static void faults(void)
{
    cu_event event;
    cu_address blocks[] = {take(4096, S), take(4096, S), take(4096, S), make(4096)}, other = 5;
    CHECK(is_served(first, S) && cu.cuEventCreate(&event, 0) == CU_OK);
    for (int i = 0; i < 6; i++) {
        cu.cuFakeFault(719);
        cu_result code = i == 0   ? cu.cuStreamSynchronize(S)
                         : i == 1 ? cu.cuEventSynchronize(event)
                         : i == 2 ? cu.cuCtxSynchronize()
                         : i == 3 ? cu.cuMemFree_v2(blocks[3])
                         : i == 4 ? cu.cuMemAlloc_v2(&other, 3 * MIB)
                                  : cu.cuMemFreeAsync(blocks[0], T);
        CHECK(code == 719 && other == 5);
        CHECK(cu.cuMemAlloc_v2(&other, 4096) == 719 && cu.cuMemAllocAsync(&other, 4096, S) == 719);
        CHECK(cu.cuMemAllocFromPoolAsync(&other, 4096, first, S) == 719 && other == 5);
        CHECK(cu.cuMemFreeAsync(blocks[0], S) == 719 && cu.cuMemFreeAsync(blocks[1], T) == 719);
        CHECK(cu.cuMemFree_v2(blocks[2]) == 719 && cu.cuMemFree_v2(blocks[3]) == 719);
        for (int j = 0; j < 4; j++)
            CHECK(ask(SIZE, blocks[j]) == 4096);
        CHECK(cu.cuCtxSetCurrent(cu.cuFakeOtherContext()) == CU_OK && cu.cuMemAlloc_v2(&other, 4096) == 719);
        CHECK(cu.cuCtxSetCurrent(primary) == CU_OK);
        cu.cuFakeFault(CU_OK);
        give(take(4096, S), S); /* the driver's, which learns so that it works again */
        CHECK(is_served(first, S) && are_pooled());
    }
    give(blocks[0], S);
    give(blocks[1], T);
    end(blocks[2]);
    end(blocks[3]);
    CHECK(cu.cuMemFree_v2(0x1234) == CU_INVALID_VALUE && is_served(first, S)); /* no fault of work */
    CHECK(cu.cuFakeDisorder() == 0);
}

/* Ids ---------------------------------------------------------------------------------------------------------------- */

static void ids(void)
{
    enum { COUNT = 100 };
    uint64_t seen[COUNT];
    for (int i = 0; i < COUNT; i++) {
        cu_address block = take(4096, S);
        seen[i] = ask(ID, block);
        CHECK(seen[i] && ask(ID, block + 1000) == seen[i] && ask(MEMPOOL, block) == (uintptr_t)first);
        for (int j = 0; j < i; j++)
            CHECK(seen[j] != seen[i]);
        give(block, S);
    }
}

/* Calls of the driver ----------------------------------------------------------------------------------------------- */

static unsigned calls_of(size_t size, bool waits)
{
    enum { ROUNDS = 10 };
    unsigned before = 0;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        before = i == ROUNDS ? cu.cuFakeCalls() : before;
        give(take(size, S), S);
        CHECK(!waits || cu.cuStreamSynchronize(S) == CU_OK);
    }
    CHECK((cu.cuFakeCalls() - before) % ROUNDS == 0);
    return (cu.cuFakeCalls() - before) / ROUNDS;
}

/* How many calls of the driver a pair takes, and no more. The driver alone takes two, and three with a wait. */
static void calls(void)
{
    cu_address beside = take(4096, T); /* of another stream, for which a wait is not */
    unsigned small = calls_of(4096, false), large = calls_of(8 * MIB, false);
    give(take(4096, S), S);
    unsigned with_wait = calls_of(4096, true), large_with_wait = calls_of(8 * MIB, true);
    set(first, THRESHOLD, UINT64_MAX);
    unsigned kept = calls_of(4096, true);
    printf("pair %u, large %u; with a wait: pair %u, large %u, kept %u\n", small, large, with_wait, large_with_wait, kept);
    give(beside, T);
    CHECK(cu.cuFakeDisorder() == 0);
}

/* Memory ------------------------------------------------------------------------------------------------------------- */

/* Under --limit 64M: what counts is what the process has, and what no block is in goes when it is wanted. */
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
    CHECK(cu.cuFakeLive() == 31 && free_now() == 2 * MIB && cu.cuMemAlloc_v2(&large, 3 * MIB) == CU_OUT_OF_MEMORY);
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

/* On a device of 9 MiB: what a thread freed on its own default stream is idle, and no other can say so to the driver before a wait. What is
 * behind work comes back too. */
static sem_t has_freed, may_end;
static void *keeps_its_stream(void *argument)
{
    cu_address block = 0, *kept = argument;
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK && cu.cuMemAllocAsync_ptsz(&block, MIB, NULL) == CU_OK);
    CHECK(cu.cuMemAllocAsync_ptsz(kept, MIB, PER_THREAD) == CU_OK && cu.cuMemFreeAsync_ptsz(block, NULL) == CU_OK);
    CHECK(cu.cuMemAllocAsync_ptsz(&block, MIB, NULL) == CU_OK && cu.cuMemFreeAsync_ptsz(block, NULL) == CU_OK);
    CHECK(cu.cuMemFreeAsync_ptsz(*kept, NULL) == CU_OK);
    CHECK(cu.cuMemAllocAsync_ptsz(kept, 2000, NULL) == CU_OK);
    CHECK(sem_post(&has_freed) == 0 && sem_wait(&may_end) == 0);
    CHECK(cu.cuMemAllocAsync_ptsz(&block, 4096, NULL) == CU_OK && cu.cuMemFreeAsync_ptsz(block, NULL) == CU_OK);
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

/* With FAKE_DRIVER_FORGETS the memory of pools goes with the primary context, without it stays; in both cases no block is another's. */
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
        CHECK(cu.cuMemPoolTrimTo(first, 0) == CU_OK && cu.cuFakeLive() == 0 && get(first, USED) == 0);
        cu.cuFakeWork();
    }
}

/* Other processes ---------------------------------------------------------------------------------------------------- */

static void ipc(void)
{
    struct cu_ipc handle = {{0}};
    cu_address block = take(4096, S), plain = make(4096);
    CHECK(is_served(first, S));
    CHECK(cu.cuIpcGetMemHandle(&handle, block) == CU_INVALID_VALUE);
    CHECK(!is_served(first, S) && ask(SIZE, block) == 4096);
    give(block, S);
    end(plain);
    CHECK(cu.cuMemFreeAsync(block, S) == CU_INVALID_VALUE);
}

/* The default pool, of which the program has been told by a call that is no hook. */
static void unnamed(void)
{
    CHECK(is_served(first, S) && get(first, USED) == 0);
}

static void never(void)
{
    CHECK(!is_served(first, S));
}

static void forks(void)
{
    int status;
    cu_address block = take(4096, S);
    pid_t child = fork();
    if (child == 0) {
        CHECK(!is_served(first, S) && cu.cuStreamDestroy_v2(S) == CU_OK && cu.cuCtxSynchronize() == CU_OK);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(ask(SIZE, block) == 4096 && is_served(first, S));
    give(block, S);
}

/* Threads ------------------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, PLACES = 64, STEPS = 20000 };
static _Atomic(cu_address) places[PLACES];
static bool injects;

/* No two blocks may share a byte: the range of each is its own. */
static size_t size_of(cu_address block)
{
    cu_address base = 0;
    size_t size = 0;
    CHECK(cu.cuMemGetAddressRange_v2(&base, &size, block) == CU_OK && base == block);
    return size;
}

static cu_result free_somehow(cu_address block, unsigned how, cu_stream stream)
{
    return how % 8 == 0   ? cu.cuMemFreeAsync_ptsz(block, NULL)
           : how % 8 == 1 ? cu.cuMemFreeAsync(block, NULL)
           : how % 8 == 2 ? cu.cuMemFreeAsync(block, T)
                          : cu.cuMemFreeAsync(block, stream);
}

static void *churn(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    cu_stream own = (cu_stream)(0x100 + (uintptr_t)argument);
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK);
    for (int i = 0; i < STEPS; i++) {
        cu_address block = 0;
        size_t size = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 5000 : 1200000);
        unsigned how = (unsigned)rand_r(&seed);
        if (injects && rand_r(&seed) % 64 == 0)
            cu.cuFakeFail(1 + (unsigned)rand_r(&seed) % 4);
        cu_stream stream = how % 4 == 0 ? S : own;
        cu_result code =
            how % 5 == 0 ? cu.cuMemAllocAsync_ptsz(&block, size, NULL) : cu.cuMemAllocAsync(&block, size, stream);
        CHECK(code == CU_OK || (injects && code == CU_OUT_OF_MEMORY));
        CHECK(code || (size_of(block) == size && block % 512 == 0));
        cu_address old = atomic_exchange(&places[(size_t)rand_r(&seed) % PLACES], block);
        while (old && (code = free_somehow(old, (unsigned)rand_r(&seed), stream)))
            CHECK(injects && size_of(old)); /* a free that fails leaves the block, and may be tried again */
        if (i % 500 == 250) {
            CHECK(cu.cuStreamDestroy_v2(own) == CU_OK);
            cu.cuFakeStream(own);
        }
        if (i % 100 == 0 && (code = cu.cuStreamSynchronize(own)))
            CHECK(injects);
        if (i % 1000 == 500)
            CHECK(cu.cuMemPoolTrimTo(first, 0) == CU_OK || injects);
        if (i % 2000 == 1000)
            (i % 4000 == 1000 ? cu.cuFakeFinish : cu.cuFakeWork)();
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    cu.cuFakeFail(0);
    cu.cuFakeFinish();
    for (int i = 0; i < PLACES; i++)
        if (places[i])
            give(places[i], S);
    CHECK(cu.cuCtxSynchronize() == CU_OK && get(first, USED) == 0);
    cu_address all = make(1024 * MIB); /* nothing was lost */
    CHECK(cu.cuFakeLive() == 1);
    end(all);
}

static void failures(void)
{
    injects = true;
    threads();
    CHECK(cu.cuFakeFailed() > 100);
}

static const struct {
    const char *name;
    void (*run)(void);
} commands[] = {
    {"reuse", reuse},
    {"late", late},
    {"defaults", defaults},
    {"thread_ends", thread_ends},
    {"destroyed", destroyed},
    {"many", many},
    {"capture", capture},
    {"capture_beside", capture_beside},
    {"properties", properties},
    {"pool_destroyed", pool_destroyed},
    {"threshold", threshold},
    {"trim_to", trim_to},
    {"access", access_of_pools},
    {"peer_frees", peer_frees},
    {"faults", faults},
    {"calls", calls},
    {"ids", ids},
    {"limit", limit},
    {"shortage", shortage},
    {"shortage_of_threads", shortage_of_threads},
    {"contexts", contexts},
    {"ipc", ipc},
    {"never", never},
    {"unnamed", unnamed},
    {"forks", forks},
    {"threads", threads},
    {"failures", failures},
};

int main(int argc, char **argv)
{
    open_driver();
    if (argc > 1 && strcmp(argv[1], "tell") == 0) {
        tell();
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, argv[1]) == 0) {
            start();
            CHECK((commands[i].run == unnamed ? cu.cuDeviceGetMemPool(&first, 0)
                                              : cu.cuDeviceGetDefaultMemPool(&first, 0)) == CU_OK);
            commands[i].run();
            return 0;
        }
    return 2;
}
