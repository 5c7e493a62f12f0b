/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A CUDA program for the tests of `tarn run --pool`, on the driver of this folder: what it can
 * observe of the order of memory. On that driver all streams have work, which ends when the test
 * says so. Exits 1 at the first thing that is wrong. */
#define PROBE "ordered_probe"
#include "ordered_probe.h"

#include <sys/wait.h>
#include <unistd.h>

/* Order ---------------------------------------------------------------------------------------- */

static void reuse(void)
{
    cu_address block = take(4096, S), base;
    size_t size;
    CHECK(is_served(first, S));
    unsigned waits = cu.cuFakeWaits();
    give(block, S);
    CHECK(cu.cuMemGetAddressRange_v2(&base, &size, block) == CU_NOT_FOUND);
    CHECK(cu.cuMemFreeAsync(block, S) == CU_INVALID_VALUE &&
          cu.cuMemFree_v2(block) == CU_INVALID_VALUE);
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

/* Of a size that no thread keeps for itself. */
#define SHARED_SIZE (512 << 10)

static void *default_of_thread(void *argument)
{
    cu_address *block = argument;
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK &&
          cu.cuMemAllocAsync_ptsz(block, SHARED_SIZE, NULL) == CU_OK);
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
    /* In another one's order */
    CHECK(cu.cuMemFreeAsync_ptsz(other, NULL) == CU_OK && !comes_again(other, NULL));
    cu_address own = take(SHARED_SIZE, PER_THREAD);
    CHECK(cu.cuMemFreeAsync(own, PER_THREAD) == CU_OK);
    CHECK(pthread_create(&thread, NULL, default_of_thread, &other) == 0 &&
          pthread_join(thread, NULL) == 0);
    CHECK(other != own && take(SHARED_SIZE, PER_THREAD) == own);
    CHECK(cu.cuMemAllocFromPoolAsync_ptsz(&other, 4096, first, NULL) == CU_OK && other == again);
    CHECK(cu.cuMemFreeAsync(other, NULL) == CU_OK && take(4096, PER_THREAD) != other);
    CHECK(cu.cuFakeDisorder() == 0);
}

/* What a thread's own default stream had is another's when it is certain that its work has ended:
 * after a wait for the context. */
static void thread_ends(void)
{
    cu_address block;
    pthread_t thread;
    set(first, THRESHOLD, UINT64_MAX);
    CHECK(pthread_create(&thread, NULL, default_of_thread, &block) == 0 &&
          pthread_join(thread, NULL) == 0);
    unsigned before = cu.cuFakeLive();
    cu.cuFakeFinish();
    CHECK(take(SHARED_SIZE, S) != block && cu.cuFakeLive() == before + 1);
    CHECK(cu.cuCtxSynchronize() == CU_OK);
    CHECK(take(SHARED_SIZE, T) == block && cu.cuFakeLive() == before + 1);
}

/* Streams end, with blocks that live on and work that is not done; another may come with the same
 * pointer. */
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
    /* Its memory serves another */
    CHECK(comes_again(freed, (cu_stream)0x99) && cu.cuFakeLive() == before);
    /* One that never was */
    CHECK(cu.cuMemAllocAsync(&other, 4096, (cu_stream)0x12345678) == CU_INVALID_HANDLE);
    CHECK(cu.cuMemAllocFromPoolAsync(&other, 4096, first, S) == CU_INVALID_HANDLE &&
          cu.cuFakeDisorder() == 0);
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
    CHECK(get(first, USED) == 0); /* also of what streams had that are gone, and of what no stream
                                     used any more */
}

/* Captures ------------------------------------------------------------------------------------- */

static void capture(void)
{
    cu_address block = take(4096, S), late_one = take(4096, S), node = 0;
    cu_stream captured_late = (cu_stream)0x54;
    cu_graph graph;
    CHECK(is_served(first, S));
    CHECK(cu.cuStreamBeginCapture_v2(T, GLOBAL) == CU_OK);
    unsigned before = cu.cuFakeLive();
    /* The graph's */
    CHECK(cu.cuMemAllocAsync(&node, 4096, T) == CU_OK && cu.cuFakeLive() == before + 1);
    /* No pool serves meanwhile */
    CHECK(take(4096, S) && cu.cuFakeLive() == before + 2);
    /* No node of that graph */
    CHECK(cu.cuMemFreeAsync(block, T) != CU_OK && ask(SIZE, block) == 4096);
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
    CHECK(cu.cuMemFreeAsync(block = take(4096, S), captured_late) != CU_OK &&
          ask(SIZE, block) == 4096);
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

/* A block that a device may reach is freed behind work of that device, by threads with its context,
 * with the block's, and without one. Its memory waits for that work; the end of the other device's
 * context is the end of the work. */
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
        CHECK(cu.cuMemGetAddressRange_v2(NULL, NULL, blocks[i]) == CU_NOT_FOUND &&
              !comes_again(blocks[i], S));
    CHECK(cu.cuMemFreeAsync(blocks[4], (cu_stream)0x12345678) == CU_INVALID_HANDLE &&
          ask(SIZE, blocks[4]) == 4096);
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

/* Faults --------------------------------------------------------------------------------------- */

/* After a call has said that work has failed, the requests and frees that follow say so too; and
 * not any more when the fault is over. */
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
        CHECK(cu.cuCtxSetCurrent(cu.cuFakeOtherContext()) == CU_OK &&
              cu.cuMemAlloc_v2(&other, 4096) == 719);
        CHECK(cu.cuCtxSetCurrent(primary) == CU_OK);
        cu.cuFakeFault(CU_OK);
        give(take(4096, S), S); /* the driver's, which learns so that it works again */
        CHECK(is_served(first, S) && are_pooled());
    }
    give(blocks[0], S);
    give(blocks[1], T);
    end(blocks[2]);
    end(blocks[3]);
    /* No fault of work */
    CHECK(cu.cuMemFree_v2(0x1234) == CU_INVALID_VALUE && is_served(first, S));
    CHECK(cu.cuFakeDisorder() == 0);
}

/* Ids ------------------------------------------------------------------------------------------ */

static void ids(void)
{
    enum { COUNT = 100 };
    uint64_t seen[COUNT];
    for (int i = 0; i < COUNT; i++) {
        cu_address block = take(4096, S);
        seen[i] = ask(ID, block);
        CHECK(seen[i] && ask(ID, block + 1000) == seen[i] &&
              ask(MEMPOOL, block) == (uintptr_t)first);
        for (int j = 0; j < i; j++)
            CHECK(seen[j] != seen[i]);
        give(block, S);
    }
}

/* Calls of the driver -------------------------------------------------------------------------- */

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

/* How many calls of the driver a pair takes, and no more. The driver alone takes two, and three
 * with a wait. */
static void calls(void)
{
    cu_address beside = take(4096, T); /* of another stream, for which a wait is not */
    unsigned small = calls_of(4096, false), large = calls_of(8 * MIB, false);
    give(take(4096, S), S);
    unsigned with_wait = calls_of(4096, true), large_with_wait = calls_of(8 * MIB, true);
    set(first, THRESHOLD, UINT64_MAX);
    unsigned kept = calls_of(4096, true);
    printf("pair %u, large %u; with a wait: pair %u, large %u, kept %u\n", small, large, with_wait,
           large_with_wait, kept);
    give(beside, T);
    CHECK(cu.cuFakeDisorder() == 0);
}

/* Other processes ------------------------------------------------------------------------------ */

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
        CHECK(!is_served(first, S) && cu.cuStreamDestroy_v2(S) == CU_OK &&
              cu.cuCtxSynchronize() == CU_OK);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(ask(SIZE, block) == 4096 && is_served(first, S));
    give(block, S);
}

/* Threads -------------------------------------------------------------------------------------- */

enum { STEPS = 20000 };
static struct threads all;

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
        size_t size = random_size(&seed);
        unsigned how = (unsigned)rand_r(&seed);
        threads_inject(&all, &seed);
        cu_stream stream = how % 4 == 0 ? S : own;
        cu_result code = how % 5 == 0 ? cu.cuMemAllocAsync_ptsz(&block, size, NULL)
                                      : cu.cuMemAllocAsync(&block, size, stream);
        cu_address old = threads_exchange(&all, &seed, block, code, size);
        while (old && (code = free_somehow(old, (unsigned)rand_r(&seed), stream)))
            CHECK(all.injects && size_of(old)); /* a free that fails leaves the block, and may be
                                                   tried again */
        if (i % 500 == 250) {
            CHECK(cu.cuStreamDestroy_v2(own) == CU_OK);
            cu.cuFakeStream(own);
        }
        if (i % 100 == 0 && (code = cu.cuStreamSynchronize(own)))
            CHECK(all.injects);
        if (i % 1000 == 500)
            CHECK(cu.cuMemPoolTrimTo(first, 0) == CU_OK || all.injects);
        if (i % 2000 == 1000)
            (i % 4000 == 1000 ? cu.cuFakeFinish : cu.cuFakeWork)();
    }
    return NULL;
}

static void threads(void)
{
    threads_run(churn);
    cu.cuFakeFinish();
    for (int i = 0; i < PLACES; i++)
        if (all.places[i])
            give(all.places[i], S);
    CHECK(cu.cuCtxSynchronize() == CU_OK && get(first, USED) == 0);
    take_all();
}

static void failures(void)
{
    all.injects = true;
    threads();
    CHECK(cu.cuFakeFailed() > 100);
}

static const struct command commands[] = {
    {"reuse", reuse},
    {"late", late},
    {"defaults", defaults},
    {"thread_ends", thread_ends},
    {"destroyed", destroyed},
    {"many", many},
    {"capture", capture},
    {"capture_beside", capture_beside},
    {"peer_frees", peer_frees},
    {"faults", faults},
    {"calls", calls},
    {"ids", ids},
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
    const struct command *command =
        argc > 1 ? command_of(commands, sizeof commands / sizeof *commands, argv[1]) : NULL;
    if (command) {
        start();
        CHECK((command->run == unnamed ? cu.cuDeviceGetMemPool(&first, 0)
                                       : cu.cuDeviceGetDefaultMemPool(&first, 0)) == CU_OK);
        command->run();
        return 0;
    }
    return 2;
}
