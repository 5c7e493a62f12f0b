/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A CUDA program for the tests of `tarn run --pool`, on the driver of this folder: what it can
 * observe of its memory. Commands that print print the same with and without the shim. Whether a
 * request went to the driver is told by that driver. Exits 1 at the first thing that is wrong. */
#define PROBE "pool_probe"
#include "pool_probe.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

/* Questions ------------------------------------------------------------------------------------ */

static void tell_range(const char *what, cu_address asked, cu_address block)
{
    cu_address base = 1;
    size_t size = 2;
    cu_result code = cu.cuMemGetAddressRange_v2(&base, &size, asked);
    printf("%s: range %u %lld %zu;", what, code, code ? -1ll : (long long)(base - block), size);
    printf(" %u %u", cu.cuMemGetAddressRange_v2(NULL, NULL, asked),
           cu.cuMemGetAddressRange_v2(&base, NULL, asked));
    printf(" %u\n", cu.cuMemGetAddressRange_v2(NULL, &size, asked));
}

/* Of what is an address the distance to the block is printed, of ids whether they are there. */
static uint64_t normal(unsigned attribute, uint64_t value, cu_address block)
{
    if (attribute == CONTEXT)
        return value == (uintptr_t)primary;
    if (attribute == POINTER || attribute == START || attribute == MAPPING_START)
        return value - block;
    return attribute == ID || attribute == BLOCK_ID ? value != 0 : value;
}

static void tell_attributes(const char *what, cu_address asked, cu_address block)
{
    unsigned list[] = {CONTEXT, TYPE,         POINTER,       HOST_POINTER, SYNC,   ID,
                       MANAGED, ORDINAL,      START,         SIZE,         MAPPED, HANDLES,
                       MEMPOOL, MAPPING_SIZE, MAPPING_START, BLOCK_ID,     999};
    enum { COUNT = sizeof list / sizeof *list };
    uint64_t values[COUNT];
    void *places[COUNT];
    printf("%s:", what);
    for (int i = 0; i < COUNT; i++) {
        uint64_t value = 0;
        cu_result code = cu.cuPointerGetAttribute(&value, list[i], asked);
        printf(" %u=%u:%llu", list[i], code,
               code ? 0ull : (unsigned long long)normal(list[i], value, block));
        values[i] = 0;
        places[i] = &values[i];
    }
    printf("\n  all: %u", cu.cuPointerGetAttributes(COUNT, list, places, asked));
    for (int i = 0; i < COUNT; i++)
        printf(" %llu", values[i] ? (unsigned long long)normal(list[i], values[i], block) : 0ull);
    printf("\n");
}

static void tell(void)
{
    static const size_t sizes[] = {1, 100, 513, 1000, 4097, 65000, 300000, 1048575, 1048577};
    cu_address address = 7, blocks[sizeof sizes / sizeof *sizes];
    struct cu_ipc handle;
    cu_piece piece;
    int file;
    start();
    printf("nothing: %u %u", cu.cuMemAlloc_v2(&address, 0), cu.cuMemAlloc_v2(NULL, 4096));
    printf(" %llu %u %u\n", address, cu.cuMemFree_v2(0), cu.cuMemFree_v2(0x1234));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cu_address block = blocks[i] = make(sizes[i]);
        printf("%zu bytes, aligned %d\n", sizes[i], block % 512 == 0);
        tell_range("start", block, block);
        tell_range("middle", block + sizes[i] / 2, block);
        tell_range("last", block + sizes[i] - 1, block);
        tell_range("behind", block + sizes[i], block);
        tell_attributes("start", block, block);
        tell_attributes("middle", block + sizes[i] / 2, block);
        tell_attributes("behind", block + sizes[i], block);
        printf("piece %u\n", cu.cuMemRetainAllocationHandle(&piece, (void *)(uintptr_t)block));
        if (sizes[i] > 1)
            printf("middle: free %u\n", cu.cuMemFree_v2(block + sizes[i] / 2));
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        printf("free %u %u %u\n", cu.cuMemFree_v2(blocks[i]), cu.cuMemFree_v2(blocks[i]),
               cu.cuMemFreeAsync(blocks[i], NULL));
        tell_range("freed", blocks[i], blocks[i]);
        tell_attributes("freed", blocks[i], blocks[i]);
    }
    unsigned on = 1;
    printf("freed: %u %u", cu.cuPointerSetAttribute(&on, SYNC, blocks[0]),
           cu.cuIpcGetMemHandle(&handle, blocks[0]));
    printf(" %u\n", cu.cuMemGetHandleForAddressRange(&file, blocks[0], 1, 1, 0));
}

/* Two lifetimes never have the same id, whoever served them; and one has one id, wherever it is
 * asked. */
static void ids(void)
{
    enum { COUNT = 200 };
    static uint64_t seen[COUNT][2];
    cu_address large = make(3 * MIB), last = 0;
    uint64_t large_id = ask(ID, large);
    bool again = false;
    for (int i = 0; i < COUNT; i++) {
        cu_address block = make(4096);
        unsigned list[] = {BLOCK_ID, ID};
        uint64_t values[2] = {0};
        void *places[] = {&values[0], &values[1]};
        CHECK(cu.cuPointerGetAttributes(2, list, places, block + 77) == CU_OK);
        seen[i][0] = ask(ID, block + 4095);
        seen[i][1] = ask(BLOCK_ID, block);
        CHECK(values[1] == seen[i][0] && values[0] == seen[i][1] && values[0] && values[1]);
        for (int j = 0; j < i; j++)
            CHECK(seen[j][0] != seen[i][0] && seen[j][1] != seen[i][1]);
        CHECK(seen[i][0] != large_id);
        again = again || block == last;
        last = block;
        end(block);
    }
    CHECK(again); /* else nothing was shown */
}

/* Of one block, not of those beside it; and not of the next one in its place. */
static void sync_memops(void)
{
    cu_address block = make(4096), other = make(4096);
    unsigned on = 1, off = 0;
    CHECK(are_pooled());
    CHECK(cu.cuPointerSetAttribute(&on, SYNC, block + 8) == CU_OK);
    CHECK(ask(SYNC, block) == 1 && ask(SYNC, other) == 0);
    CHECK(cu.cuPointerSetAttribute(&off, SYNC, other) == CU_OK && ask(SYNC, block) == 1);
    CHECK(cu.cuPointerSetAttribute(NULL, SYNC, block) == CU_INVALID_VALUE);
    CHECK(!are_pooled());
}

/* Frees ---------------------------------------------------------------------------------------- */

static void *free_them(void *address)
{
    cu_address *blocks = address;
    cu_context none = primary;
    end(blocks[0]); /* the thread has no context, and needs none */
    CHECK(cu.cuCtxGetCurrent(&none) == CU_OK && !none);
    CHECK(cu.cuCtxSetCurrent(cu.cuFakeOtherContext()) == CU_OK);
    end(blocks[1]);
    cu_context current = NULL;
    CHECK(cu.cuCtxGetCurrent(&current) == CU_OK && current == cu.cuFakeOtherContext());
    return NULL;
}

static void waits(void)
{
    pthread_t thread;
    cu_address block = make(4096), other = make(100);
    unsigned before = cu.cuFakeWaits();
    end(block);
    CHECK(cu.cuFakeWaits() == before + 1);
    end(other);
    CHECK(cu.cuFakeWaits() == before + 2);
    cu_address blocks[] = {make(4096), make(4096)};
    before = cu.cuFakeWaits();
    CHECK(pthread_create(&thread, NULL, free_them, blocks) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(cu.cuFakeWaits() == before + 2);
    CHECK(are_pooled());
}

/* In the order of a stream: the block is gone at once, and its place is nobody's before the work
 * has ended. */
static void ordered(void)
{
    cu_address block = make(4096), others[64], base;
    size_t size;
    unsigned before = cu.cuFakeWaits();
    CHECK(are_pooled());
    before = cu.cuFakeWaits();
    CHECK(cu.cuMemFreeAsync(block, (cu_stream)0x55) == CU_OK && cu.cuFakeWaits() == before);
    CHECK(cu.cuMemGetAddressRange_v2(&base, &size, block) == CU_NOT_FOUND);
    CHECK(cu.cuMemFreeAsync(block, (cu_stream)0x55) == CU_INVALID_VALUE);
    CHECK(cu.cuMemFree_v2(block) == CU_INVALID_VALUE);
    for (int i = 0; i < 64; i++)
        CHECK((others[i] = make(4096)) != block);
    cu.cuFakeFinish();
    bool again = false;
    for (int i = 0; i < 64; i++)
        end(others[i]);
    for (int i = 0; i < 64; i++)
        again = (others[i] = make(4096)) == block || again;
    CHECK(again);
    for (int i = 0; i < 64; i++)
        CHECK(cu.cuMemFreeAsync_ptsz(others[i], NULL) == CU_OK);
}

/* Captures ------------------------------------------------------------------------------------- */

static void capture(void)
{
    cu_stream stream = (cu_stream)0x99;
    cu_graph graph;
    cu_address block = make(4096), other = 5;
    CHECK(are_pooled());
    /* What it forbids the driver refuses */
    CHECK(cu.cuStreamBeginCapture_v2(stream, GLOBAL) == CU_OK);
    CHECK(cu.cuMemAlloc_v2(&other, 4096) == CU_CAPTURE_UNSUPPORTED && other == 5);
    CHECK(cu.cuStreamEndCapture(stream, &graph) == 901);
    CHECK(cu.cuStreamBeginCapture_v2_ptsz(stream, GLOBAL) == CU_OK);
    CHECK(cu.cuMemFree_v2(block) == CU_CAPTURE_UNSUPPORTED && ask(SIZE, block) == 4096);
    CHECK(cu.cuMemFreeAsync(block, stream) != CU_OK && ask(SIZE, block) == 4096);
    CHECK(cu.cuStreamEndCapture_ptsz(stream, &graph) == 901);
    CHECK(cu.cuStreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, GLOBAL) == CU_OK);
    CHECK(cu.cuMemFree_v2(block) == CU_CAPTURE_UNSUPPORTED &&
          cu.cuStreamEndCapture(stream, &graph) == 901);
    CHECK(are_pooled());
    CHECK(cu.cuStreamBeginCapture(stream) == CU_OK &&
          cu.cuStreamEndCapture(stream, &graph) == CU_OK);
    /* What it allows the driver does */
    CHECK(cu.cuStreamBeginCapture_v2(stream, RELAXED) == CU_OK);
    /* Of a stream that does not capture */
    CHECK(cu.cuStreamEndCapture((cu_stream)0x98, &graph) != CU_OK);
    CHECK(!are_pooled());
    unsigned before = cu.cuFakeWaits();
    end(block);
    CHECK(cu.cuFakeWaits() == before + 1);
    CHECK(cu.cuMemAllocAsync(&other, 4096, stream) == CU_OK); /* a node */
    CHECK(cu.cuStreamEndCapture(stream, &graph) == CU_OK);
    CHECK(are_pooled());
    /* One that did not begin */
    CHECK(cu.cuStreamBeginCapture_v2(NULL, GLOBAL) != CU_OK && are_pooled());
}

/* Contexts ------------------------------------------------------------------------------------- */

static void contexts(void)
{
    cu_address block = make(4096), base;
    cu_context again;
    size_t size;
    CHECK(are_pooled());
    CHECK(cu.cuCtxSetCurrent(cu.cuFakeOtherContext()) == CU_OK);
    CHECK(!are_pooled());
    cu_address other = make(4096);
    CHECK(ask(CONTEXT, other) == (uintptr_t)cu.cuFakeOtherContext() && ask(LEGACY_IPC, other) == 1);
    CHECK(cu.cuCtxDestroy_v2(cu.cuFakeOtherContext()) == CU_OK && cu.cuMemFree_v2(other) != CU_OK);
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK && ask(SIZE, block) == 4096);
    for (int i = 0; i < 3; i++) { /* all goes with the primary context, and it may come back */
        CHECK(cu.cuDevicePrimaryCtxReset_v2(0) == CU_OK && cu.cuFakeLive() == 0);
        CHECK(cu.cuMemGetAddressRange_v2(&base, &size, block) == CU_NOT_FOUND);
        CHECK(cu.cuMemFree_v2(block) == CU_INVALID_VALUE && free_now() == 1024 * MIB);
        block = make(4096);
        CHECK(are_pooled() && ask(SIZE, block) == 4096);
    }
    CHECK(cu.cuMemFreeAsync(block, NULL) == CU_OK); /* its event has not come when its context
                                                       goes */
    CHECK(cu.cuDevicePrimaryCtxReset(0) == CU_OK);
    block = make(4096);
    CHECK(cu.cuDevicePrimaryCtxRetain(&again, 0) == CU_OK &&
          cu.cuDevicePrimaryCtxRelease_v2(0) == CU_OK);
    CHECK(ask(SIZE, block) == 4096 && are_pooled()); /* not the last */
    CHECK(cu.cuDevicePrimaryCtxRelease_v2(0) == CU_OK && cu.cuFakeLive() == 0);
    CHECK(cu.cuMemFree_v2(block) == CU_INVALID_VALUE);
    CHECK(cu.cuDevicePrimaryCtxRelease(0) == CU_INVALID_CONTEXT);
}

/* The first request is of another context. */
static void other_first(void)
{
    CHECK(cu.cuCtxSetCurrent(cu.cuFakeOtherContext()) == CU_OK);
    cu_address block = make(4096);
    CHECK(!are_pooled() && ask(CONTEXT, block) == (uintptr_t)cu.cuFakeOtherContext() &&
          ask(LEGACY_IPC, block) == 1);
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK && are_pooled());
    CHECK(cu.cuCtxDestroy(cu.cuFakeOtherContext()) == CU_OK && cu.cuMemFree_v2(block) != CU_OK);
}

/* Memory --------------------------------------------------------------------------------------- */

/* Under --limit 64M: what counts is what the process has. */
static void limit(void)
{
    cu_address blocks[80], large = 0;
    CHECK(free_now() == 64 * MIB);
    blocks[0] = make(1);
    CHECK(free_now() == 62 * MIB); /* a segment */
    CHECK(cu.cuMemAlloc_v2(&large, 63 * MIB) == CU_OUT_OF_MEMORY);
    end(blocks[0]);
    CHECK(free_now() == 64 * MIB); /* which goes when it is wanted */
    large = make(64 * MIB);
    CHECK(free_now() == 0 && cu.cuMemAlloc_v2(&blocks[0], 1) == CU_OUT_OF_MEMORY);
    end(large);
    for (int i = 0; i < 64; i++)
        blocks[i] = make(MIB - 512);
    CHECK(cu.cuFakeLive() == 32 && free_now() == 0);
    CHECK(cu.cuMemAlloc_v2(&large, 1 * MIB) == CU_OUT_OF_MEMORY);
    for (int i = 0; i < 64; i++)
        end(blocks[i]);
    large = make(64 * MIB);
    end(large);
}

/* On a device of 9 MiB. */
static void shortage(void)
{
    cu_address blocks[9], large = 0;
    cu_array array;
    struct cu_array_descriptor flat = {128, 1, 0x01, 1};
    for (int i = 0; i < 9; i++)
        blocks[i] = make(MIB); /* the last is passed on: no segment fits */
    CHECK(cu.cuFakeLive() == 5 && cu.cuMemAlloc_v2(&large, MIB) == CU_OUT_OF_MEMORY);
    for (int i = 0; i < 9; i++)
        end(blocks[i]);
    CHECK(cu.cuArrayCreate_v2(&array, &flat) == CU_OK && cu.cuArrayDestroy(array) == CU_OK);
    large = make(9 * MIB); /* what the pools kept is no reason to fail */
    CHECK(cu.cuFakeLive() == 1);
    end(large);
    for (int i = 0; i < 8; i++)
        blocks[i] = make(MIB);
    CHECK(cu.cuMemAlloc_v2(&large, 2 * MIB) == CU_OUT_OF_MEMORY);
    end(blocks[0]);
    end(blocks[1]);
    CHECK(cu.cuMemAllocAsync(&large, 2 * MIB, NULL) == CU_OK);
}

/* Other kinds go to the driver one by one. */
static void kinds(void)
{
    cu_address address[3];
    size_t pitch;
    CHECK(are_pooled());
    unsigned before = cu.cuFakeLive();
    CHECK(cu.cuMemAllocManaged(&address[0], 4096, 1) == CU_OK &&
          cu.cuMemAllocPitch_v2(&address[1], &pitch, 9, 9, 4) == CU_OK);
    address[2] = make(MIB + 1); /* above the size */
    CHECK(cu.cuFakeLive() == before + 3);
    for (int i = 0; i < 3; i++)
        end(address[i]);
}

/* Other processes ------------------------------------------------------------------------------ */

static void ipc(void)
{
    struct cu_ipc handle = {{0}};
    cu_address block = make(4096), large = make(3 * MIB);
    CHECK(are_pooled());
    CHECK(ask(LEGACY_IPC, block) == 0 && ask(LEGACY_IPC, large) == 1);
    CHECK(cu.cuIpcGetMemHandle(&handle, block) == CU_INVALID_VALUE &&
          cu.cuIpcGetMemHandle(&handle, block) != CU_OK);
    CHECK(cu.cuIpcGetMemHandle(&handle, large) == CU_OK);
    CHECK(!are_pooled());
    cu_address later = make(4096);
    CHECK(ask(LEGACY_IPC, later) == 1 && cu.cuIpcGetMemHandle(&handle, later) == CU_OK);
    CHECK(ask(SIZE, block) == 4096); /* one that was handed out before stays valid */
    end(block);
    end(later);
    CHECK(cu.cuMemFree_v2(block) == CU_INVALID_VALUE);
}

static const char *second; /* argument */

/* Each of these calls ends it, and is passed on. */
static void ends(void)
{
    struct cu_ipc handle = {{0}};
    struct cu_ipc_event event_handle;
    struct cu_allocation_properties properties = {
        .type = 1, .handle_types = 1, .location = {CU_LOCATION_DEVICE, 0}};
    struct cu_pool_properties pool_properties = {
        .type = 1, .handle_types = 1, .location = {CU_LOCATION_DEVICE, 0}};
    cu_address block = make(4096), address;
    cu_event event;
    cu_piece piece;
    cu_pool pool;
    int file = 0;
    uint64_t tokens;
    CHECK(are_pooled());
    bool is = false;
#define IS(name) (strcmp(second, name) == 0 && (is = true))
    CHECK(cu.cuEventCreate(&event, 0) == CU_OK);
    CHECK(!IS("cuIpcOpenMemHandle") || cu.cuIpcOpenMemHandle_v2(&address, handle, 1) == CU_OK);
    CHECK(!IS("cuIpcGetEventHandle") || cu.cuIpcGetEventHandle(&event_handle, event) == CU_OK);
    memset(&event_handle, 0, sizeof event_handle);
    CHECK(!IS("cuIpcOpenEventHandle") || cu.cuIpcOpenEventHandle(&event, event_handle) == CU_OK);
    CHECK(!IS("cuMemCreate") || cu.cuMemCreate(&piece, 2 * MIB, &properties, 0) == CU_OK);
    CHECK(!IS("cuMemPoolCreate") || cu.cuMemPoolCreate(&pool, &pool_properties) == CU_OK);
    CHECK(!IS("cuMemExportToShareableHandle") ||
          cu.cuMemExportToShareableHandle(&file, 1, 1, 0) == CU_OK);
    CHECK(!IS("cuMemImportFromShareableHandle") ||
          cu.cuMemImportFromShareableHandle(&piece, NULL, 1) == CU_OK);
    CHECK(!IS("cuMemPoolExportToShareableHandle") ||
          cu.cuMemPoolExportToShareableHandle(&file, NULL, 1, 0) == CU_OK);
    CHECK(!IS("cuMemPoolImportFromShareableHandle") ||
          cu.cuMemPoolImportFromShareableHandle(&pool, NULL, 1, 0) == CU_OK);
    CHECK(!IS("tokens") || cu.cuPointerGetAttribute(&tokens, TOKENS, block) == CU_OK);
    if (IS("cuMemGetHandleForAddressRange")) { /* within the block, and not beyond it */
        CHECK(cu.cuMemGetHandleForAddressRange(&file, block + 96, 4000, 1, 0) == CU_OK &&
              file == 1);
        CHECK(cu.cuMemGetHandleForAddressRange(&file, block, 4097, 1, 0) == CU_INVALID_VALUE);
        CHECK(cu.cuMemGetHandleForAddressRange(&file, block + 4096, SIZE_MAX, 1, 0) ==
              CU_INVALID_VALUE);
    }
    if (!is)
        CHECK(dlopen(second, RTLD_NOW));
    CHECK(!are_pooled() && ask(SIZE, block) == 4096);
    end(block);
}

/* Nothing was ever pooled. */
static void never(void)
{
    CHECK(!are_pooled());
}

/* Processes and threads ------------------------------------------------------------------------ */

static void forks(void)
{
    int status;
    cu_address block = make(4096), other;
    CHECK(are_pooled());
    pid_t child = fork();
    if (child == 0) {
        unsigned before = cu.cuFakeLive();
        for (int i = 0; i < 10; i++)
            CHECK(cu.cuMemAlloc_v2(&other, 4096) == CU_OK);
        CHECK(cu.cuFakeLive() == before + 10);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(ask(SIZE, block) == 4096 && are_pooled());
    end(block);
}

/* tarn's host device makes no thread for it. */
static void alone(void)
{
    cu_address blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = make(1 + (size_t)i * 10000);
    for (int i = 0; i < 100; i++)
        end(blocks[i]);
    end(make(1024 * MIB));
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    int count = 0;
    while (readdir(tasks))
        count++;
    CHECK(count == 3); /* with . and .. */
    closedir(tasks);
}

/* Blocks that several threads make and free, each its own and the others'. No two share a byte, and
 * ranges are right. */
enum { STEPS = 30000 };
static struct threads all;

static void *churn(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK);
    for (int i = 0; i < STEPS; i++) {
        cu_address block = 0;
        size_t size = random_size(&seed);
        threads_inject(&all, &seed);
        cu_result code = cu.cuMemAlloc_v2(&block, size);
        cu_address old = threads_exchange(&all, &seed, block, code, size);
        while (old && cu.cuMemFree_v2(old))
            CHECK(all.injects && size_of(old)); /* a free that fails leaves the block, and may be
                                                   tried again */
    }
    return NULL;
}

static void threads(void)
{
    threads_run(churn);
    for (int i = 0; i < PLACES; i++)
        if (all.places[i])
            end(all.places[i]);
    CHECK(free_now() == 1024 * MIB);
    take_all();
}

/* The driver does not take a segment back when a large request needs its memory: it is asked once
 * more. */
static void refused(void)
{
    end(make(1000));
    cu.cuFakeFail(2); /* the free, behind the request */
    cu_address all = make(1024 * MIB);
    CHECK(cu.cuFakeFailed() == 1 && cu.cuFakeLive() == 1);
    end(all);
}

static void failures(void)
{
    all.injects = true;
    threads();
    CHECK(cu.cuFakeFailed() > 100);
}

static const struct command commands[] = {
    {"ids", ids},         {"sync_memops", sync_memops},
    {"waits", waits},     {"ordered", ordered},
    {"capture", capture}, {"contexts", contexts},
    {"limit", limit},     {"shortage", shortage},
    {"kinds", kinds},     {"ipc", ipc},
    {"ends", ends},       {"never", never},
    {"alone", alone},     {"other_first", other_first},
    {"forks", forks},     {"refused", refused},
    {"threads", threads}, {"failures", failures},
};

int main(int argc, char **argv)
{
    open_driver();
    second = argc > 2 ? argv[2] : "";
    if (argc > 1 && strcmp(argv[1], "tell") == 0) {
        tell();
        return 0;
    }
    const struct command *command =
        argc > 1 ? command_of(commands, sizeof commands / sizeof *commands, argv[1]) : NULL;
    if (command) {
        start();
        command->run();
        return 0;
    }
    return 2;
}
