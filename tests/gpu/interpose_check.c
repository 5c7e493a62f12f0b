/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a library in front of the driver depends on, and no document says: whether the driver's own
 * calls come by way of its exported names; whether the pointers of cuGetProcAddress() are the
 * exported functions; what an open dma-buf keeps of memory that was unmapped; and how fast the
 * driver suspends a process, compared with a pool in tarn. Notes, except where something fails that
 * must not.
 *
 * This program exports the names that `tarn run` hooks, so it must be linked with -rdynamic, and
 * not run under `tarn run`. "hold GIB" is the process that is suspended. */
#include "gpu.h"

#define TARN_RUN_POOL
#include "run/abi.h"

#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DMA_BUF 1u       /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */
#define HAS_DMA_BUF 124u /* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
#define HELD_BYTE 0x5a
#define GIB ((size_t)1 << 30)
extern char **environ;

static struct {
#define X(name, version, mode, symbol, parameters, arguments) cu_result(*symbol) parameters;
    RUN_HOOK_LIST(X) RUN_ASK_LIST(X)
#undef X
} run;
static _Atomic unsigned entered;
static _Atomic(const char *) entered_first;

static void note_entry(const char *name)
{
    const char *none = NULL;
    (void)atomic_compare_exchange_strong(&entered_first, &none, name);
    entered++;
}

/* They come first for all code that looks a name up as the loader does. This program itself asks
 * the driver's library. */
#define X(name, version, mode, symbol, parameters, arguments)           \
    __attribute__((visibility("default"))) cu_result symbol parameters; \
    cu_result symbol parameters                                         \
    {                                                                   \
        note_entry(#symbol);                                            \
        return run.symbol ? run.symbol arguments : CU_NOT_FOUND;        \
    }
RUN_HOOK_LIST(X)
#undef X

static void *library;

static bool open_calls(void)
{
    void *found;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
#define X(name, version, mode, symbol, parameters, arguments) \
    found = dlsym(library, #symbol);                          \
    memcpy(&run.symbol, &found, sizeof found);
    RUN_HOOK_LIST(X)
    RUN_ASK_LIST(X)
#undef X
    return run.cuMemAlloc_v2 && run.cuGetProcAddress_v2 && run.cuMemAllocAsync &&
           run.cuMemAllocPitch_v2;
}

/* ---- The driver's own calls ---- */

static void use_much(const char *name, tarn_stream leased)
{
    cu_stream stream = gpu_native(leased);
    cu_address address = 0, base = 0;
    cu_pool pool = NULL;
    cu_graph graph = NULL;
    cu_array array = NULL;
    size_t pitch = 0, size = 0;
    void *memory = NULL;
    struct cu_ipc handle;
    const struct cu_array3d_descriptor flat = {256, 256, 0, 0x20, 4, 0};
    uint64_t value = 0;
    if (CU(name, run.cuMemAllocPitch_v2(&address, &pitch, 1000, 1000, 4)))
        (void)CU(name, run.cuMemFree_v2(address));
    if (CU(name, run.cuMemAllocManaged(&address, MIB, 1)))
        (void)CU(name, run.cuMemFree_v2(address));
    if (CU(name, run.cuMemHostAlloc(&memory, MIB, 0)))
        (void)CU(name, run.cuMemFreeHost(memory));
    if (CU(name, run.cuArray3DCreate_v2(&array, &flat)))
        (void)CU(name, run.cuArrayDestroy(array));
    if (CU(name, run.cuMemAlloc_v2(&address, 4096))) {
        (void)CU(name, run.cuMemGetAddressRange_v2(&base, &size, address));
        (void)CU(name, run.cuPointerGetAttribute(&value, 7, address));
        (void)run.cuIpcGetMemHandle(&handle, address);
        (void)CU(name, run.cuMemFree_v2(address));
    }
    if (CU(name, run.cuDeviceGetDefaultMemPool(&pool, 0)) &&
        CU(name, run.cuMemAllocFromPoolAsync(&address, MIB, pool, stream))) {
        (void)CU(name, run.cuMemFreeAsync(address, stream));
        (void)CU(name, run.cuStreamSynchronize(stream));
        (void)CU(name, run.cuMemPoolTrimTo(pool, 0));
    }
    if (CU(name, run.cuStreamBeginCapture_v2(stream, 2)) &&
        CU(name, run.cuMemAllocAsync(&address, MIB, stream)) &&
        CU(name, run.cuMemFreeAsync(address, stream)) &&
        CU(name, run.cuStreamEndCapture(stream, &graph)))
        (void)gpu_run_graph(graph, leased, 2, name);
    (void)CU(name, run.cuCtxSynchronize());
}

static void own_calls(tarn_stream stream)
{
    const char *name = "interpose: the driver's own calls";
    unsigned before = entered;
    void *found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    cu_result (*ours)(cu_address *, size_t) = cuMemAlloc_v2;
    bool is_first = memcmp(&found, &ours, sizeof found) == 0;
    use_much(name, stream);
    if (!is_first)
        gpu_say(GPU_FAIL, name,
                "this program's names are not found first: it must be linked with -rdynamic");
    gpu_say(GPU_NOTE, name, "%u came by way of exported names, from the start on %u%s%s",
            entered - before, (unsigned)entered, entered ? ", the first to " : "",
            entered ? atomic_load(&entered_first) : "");
}

/* ---- Pointers ---- */

static void pointers(void)
{
    static const struct {
        const char *name, *symbol;
        int version;
        unsigned modes;
    } rows[] = {
#define X(name, version, mode, symbol, parameters, arguments) {#name, #symbol, version, mode},
        RUN_HOOK_LIST(X) RUN_ASK_LIST(X)
#undef X
    };
    const char *name = "interpose: pointers of cuGetProcAddress";
    unsigned same = 0, other = 0, absent = 0;
    const char *first = "";
    for (size_t i = 0; i < COUNT(rows); i++) {
        void *found = dlsym(library, rows[i].symbol), *given = NULL;
        cu_lookup_status status;
        if (!found ||
            run.cuGetProcAddress_v2(rows[i].name, &given, rows[i].version,
                                    rows[i].modes == RUN_PER_THREAD ? RUN_PER_THREAD : 0,
                                    &status) ||
            !given) {
            absent++;
            continue;
        }
        same += found == given;
        other += found != given;
        first = found != given && !*first ? rows[i].symbol : first;
    }
    gpu_say(GPU_NOTE, name, "%u are the exported function, %u are not%s%s, %u are not there", same,
            other, *first ? ", the first " : "", first, absent);
}

/* ---- An open dma-buf ---- */

static size_t free_now(const char *name)
{
    size_t free_bytes = 0;
    (void)CU(name, run.cuMemGetInfo_v2(&free_bytes, NULL));
    return free_bytes;
}

static void dma_buf(void)
{
    const char *name = "interpose: an open dma-buf";
    const size_t size = 64 * MIB;
    struct cu_allocation_properties properties = {.type = CU_ALLOCATION_PINNED,
                                                  .location = {CU_LOCATION_DEVICE, 0}};
    const struct cu_access access = {{CU_LOCATION_DEVICE, 0}, 3};
    cu_address address = 0;
    cu_piece piece = 0;
    int has = 0, file = -1;
    if (gpu.cuDeviceGetAttribute(&has, HAS_DMA_BUF, 0) || !has ||
        !run.cuMemGetHandleForAddressRange) {
        gpu_say(GPU_SKIP, name, "the device has none");
        return;
    }
    properties.flags.rdma = 1;
    size_t before = free_now(name);
    if (!CU(name, gpu.cuMemAddressReserve(&address, size, 0, 0, 0)) ||
        !CU(name, run.cuMemCreate(&piece, size, &properties, 0)) ||
        !CU(name, run.cuMemMap(address, size, 0, piece, 0)) ||
        !CU(name, gpu.cuMemSetAccess(address, size, &access, 1)))
        return;
    size_t held = before - free_now(name);
    cu_result code = run.cuMemGetHandleForAddressRange(&file, address, size, DMA_BUF, 0);
    cu_result unmapped = run.cuMemUnmap(address, size), released = run.cuMemRelease(piece);
    size_t kept = before - free_now(name);
    if (!code)
        close(file);
    gpu_say(GPU_NOTE, name,
            "CUDA error %u for the export of 64 MiB, %u for the unmap, %u for the release; %zu MiB "
            "of %zu stay until "
            "it is closed, "
            "%zu after that",
            code, unmapped, released, kept / MIB, held / MIB, (before - free_now(name)) / MIB);
    (void)gpu.cuMemAddressFree(address, size);
}

/* ---- Suspend and resume ---- */

static double gb_per_s(size_t bytes, uint64_t ns)
{
    return (double)bytes / (double)ns;
}

static void suspend_pool(size_t bytes)
{
    const char *name = "interpose: a pool sleeps";
    const tarn_pool_options options = {.size = sizeof options, .device = 0};
    tarn_pool *pool = NULL;
    void *block = NULL;
    for (int i = 0; i < 3; i++) {
        if (!OK(name, tarn_pool_create(&options, &pool)))
            return;
        const tarn_alloc_options wanted = {
            .size = sizeof wanted, .stream = TARN_STREAM_LEGACY, .pool = pool};
        if (!OK(name, tarn_alloc(&wanted, bytes, &block)) ||
            !CU(name, gpu.cuMemsetD8Async((uintptr_t)block, HELD_BYTE, bytes, NULL)) ||
            !CU(name, run.cuCtxSynchronize()))
            return;
        uint64_t start = gpu_ns();
        bool well = OK(name, tarn_pool_suspend(pool, true));
        uint64_t middle = gpu_ns();
        well = OK(name, tarn_pool_resume(pool)) && CU(name, run.cuCtxSynchronize()) && well;
        uint64_t end = gpu_ns();
        if (well)
            gpu_say(GPU_NOTE, name, "%zu GiB: down %.2f s, %.1f GB/s; up %.2f s, %.1f GB/s",
                    bytes / GIB, (double)(middle - start) / 1e9, gb_per_s(bytes, middle - start),
                    (double)(end - middle) / 1e9, gb_per_s(bytes, end - middle));
        (void)OK(name, tarn_free(block));
        (void)OK(name, tarn_pool_release(pool));
    }
}

/* The process that is suspended. */
static int hold(size_t bytes)
{
    cu_address address = 0;
    char byte = 0;
    unsigned char sample[64] = {0};
    if (gpu_start() || run.cuMemAlloc_v2(&address, bytes) ||
        gpu.cuMemsetD8Async(address, HELD_BYTE, bytes, NULL) || run.cuCtxSynchronize())
        return 1;
    if (write(STDOUT_FILENO, "r", 1) != 1 || read(STDIN_FILENO, &byte, 1) != 1)
        return 1;
    tarn_stream stream = TARN_STREAM_LEGACY;
    bool well = gpu_download(stream, sample, (void *)(uintptr_t)(address + bytes - sizeof sample),
                             sizeof sample);
    for (size_t i = 0; i < sizeof sample; i++)
        well = well && sample[i] == HELD_BYTE;
    return well ? 0 : 1;
}

static bool start_holder(size_t bytes, pid_t *process, int *to, int *from)
{
    int in[2], out[2];
    char text[32], self[] = "/proc/self/exe", byte;
    char *arguments[] = {self, "hold", text, NULL};
    posix_spawn_file_actions_t actions;
    snprintf(text, sizeof text, "%zu", bytes / GIB);
    if (pipe(in) || pipe(out) || posix_spawn_file_actions_init(&actions))
        return false;
    (void)posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    (void)posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_addclose(&actions, in[1]);
    (void)posix_spawn_file_actions_addclose(&actions, out[0]);
    bool well = posix_spawn(process, self, &actions, NULL, arguments, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    *to = in[1];
    *from = out[0];
    return well && read(out[0], &byte, 1) == 1 && byte == 'r';
}

static void suspend_process(size_t bytes)
{
    static const char *const names[] = {"cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint",
                                        "cuCheckpointProcessRestore", "cuCheckpointProcessUnlock"};
    const char *name = "interpose: the driver suspends a process";
    cu_result (*calls[COUNT(names)])(int, void *), code = CU_OK;
    uint64_t took[COUNT(names)] = {0};
    size_t before = 0, after = 0;
    pid_t process = 0;
    int to = -1, from = -1, status = 1;
    for (size_t i = 0; i < COUNT(names); i++) {
        void *found = dlsym(library, names[i]);
        if (!found) {
            gpu_say(GPU_SKIP, name, "this driver has no %s", names[i]);
            return;
        }
        memcpy(&calls[i], &found, sizeof found);
    }
    if (!start_holder(bytes, &process, &to, &from)) {
        gpu_say(GPU_FAIL, name, "the process to suspend did not start");
        return;
    }
    for (size_t i = 0; i < COUNT(names) && !code; i++) {
        before = i == 1 ? free_now(name) : before;
        uint64_t start = gpu_ns();
        code = calls[i](process, NULL);
        took[i] = gpu_ns() - start;
        after = i == 1 ? free_now(name) : after;
        if (code)
            gpu_say(GPU_NOTE, name, "CUDA error %u of %s", code, names[i]);
    }
    if (code)
        (void)kill(process, SIGKILL); /* it may be locked */
    bool ended = write(to, "e", 1) == 1 && waitpid(process, &status, 0) == process && status == 0;
    close(to);
    close(from);
    if (code)
        return;
    gpu_say(ended ? GPU_PASS : GPU_FAIL, name,
            "%zu GiB, of which %zu MiB came free: lock %.2f s; down %.2f s, %.1f GB/s; up %.2f s, "
            "%.1f GB/s; "
            "unlock %.2f s; its contents %s",
            bytes / GIB, (after - before) / MIB, (double)took[0] / 1e9, (double)took[1] / 1e9,
            gb_per_s(bytes, took[1]), (double)took[2] / 1e9, gb_per_s(bytes, took[2]),
            (double)took[3] / 1e9, ended ? "are there" : "are not there");
}

/* ---- The end of a context ---- */

static uint64_t pool_value(cu_pool pool, unsigned attribute)
{
    uint64_t value = 0;
    return run.cuMemPoolGetAttribute(pool, attribute, &value) ? UINT64_MAX : value;
}

/* Whether a reset of the primary context takes the memory of the default pool with it. The last
 * check: nothing of tarn's is there after it. */
static void reset(void)
{
    enum { RESERVED = 5, USED = 7 };
    const char *name = "interpose: a pool after a reset";
    cu_pool pool = NULL, after = NULL;
    cu_address block = 0, base = 0;
    cu_context context = NULL;
    size_t size = 0;
    if (!CU(name, run.cuDeviceGetDefaultMemPool(&pool, 0)) ||
        !CU(name, run.cuMemAllocAsync(&block, 64 * MIB, NULL)) || !CU(name, run.cuCtxSynchronize()))
        return;
    uint64_t used = pool_value(pool, USED);
    cu_result code = run.cuDevicePrimaryCtxReset_v2(0);
    bool well = CU(name, run.cuDevicePrimaryCtxRetain(&context, 0)) &&
                CU(name, gpu.cuCtxSetCurrent(context)) &&
                CU(name, run.cuDeviceGetDefaultMemPool(&after, 0));
    cu_result found = well ? run.cuMemGetAddressRange_v2(&base, &size, block) : CU_NOT_FOUND;
    gpu_say(GPU_NOTE, name,
            "CUDA error %u; the default pool is %s; used %llu MiB before, %lld after, reserved "
            "%lld; error %u for the "
            "address range of its block",
            code, pool == after ? "the same" : "another", (unsigned long long)used >> 20,
            (long long)pool_value(after, USED) >> 20, (long long)pool_value(after, RESERVED) >> 20,
            found);
}

int main(int argc, char **argv)
{
    bool has_calls = open_calls(); /* before the driver is used: then its own calls find theirs */
    if (argc == 3 && strcmp(argv[1], "hold") == 0)
        return hold((size_t)strtoul(argv[2], NULL, 10) * GIB);
    int status = gpu_start();
    tarn_stream stream;
    if (status)
        return status;
    if (gpu_is_simulated || !has_calls) {
        gpu_say(gpu_is_simulated ? GPU_SKIP : GPU_FAIL, "interpose", "libcuda.so.1 lacks a call");
        return gpu_end();
    }
    if (!OK("interpose", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    own_calls(stream);
    pointers();
    dma_buf();
    suspend_pool(8 * GIB);
    for (int i = 0; i < 2; i++)
        suspend_process(8 * GIB);
    (void)OK("interpose", tarn_stream_return(stream));
    reset();
    return gpu_end();
}
