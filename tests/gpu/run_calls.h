/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the checks of allocations without tarn's own library share (run_check.c, ordered_check.c):
 * the driver's calls as a program finds them, so that `tarn run` may stand behind them, questions
 * about an address, and blocks with contents. */
#ifndef TARN_TESTS_GPU_RUN_CALLS_H
#define TARN_TESTS_GPU_RUN_CALLS_H

#include "gpu.h"

#include "run/abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define SPIN_NS 100000000u
#define SMALL_NS 40000000u /* that a call which does not wait may take */
#define BLOCK 4096
#define KIB ((size_t)1 << 10)

enum { /* CU_POINTER_ATTRIBUTE_ */
       CONTEXT = 1,
       TYPE,
       POINTER,
       SYNC = 6,
       ID,
       MANAGED,
       ORDINAL,
       LEGACY_IPC,
       START,
       SIZE,
       MAPPED,
       MEMPOOL = 17,
       BLOCK_ID = 20
};

static struct {
#define X(name, version, mode, symbol, parameters, arguments) cu_result(*symbol) parameters;
    RUN_HOOK_LIST(X)
    RUN_POOL_HOOK_LIST(X)
#undef X
    cu_result (*cuMemPoolSetAccess)(cu_pool, const struct cu_access *, size_t);
    cu_result (*cuMemPoolGetAccess)(unsigned *, cu_pool, struct cu_location *);
} run;

/* What the driver lacks is NULL. */
static inline bool run_open(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found;
    if (!library)
        return false;
#define X(name, version, mode, symbol, parameters, arguments) \
    found = dlsym(library, #symbol);                          \
    memcpy(&run.symbol, &found, sizeof found);
    RUN_HOOK_LIST(X)
    RUN_POOL_HOOK_LIST(X)
    X(, , , cuMemPoolSetAccess, , )
    X(, , , cuMemPoolGetAccess, , )
#undef X
    return run.cuMemAlloc_v2 && run.cuMemFree_v2 && run.cuPointerGetAttribute &&
           run.cuMemGetAddressRange_v2;
}

static inline void verdict(bool well, const char *name, const char *text)
{
    gpu_say(well ? GPU_PASS : GPU_FAIL, name, "%s", text);
}

static inline uint64_t ask(const char *name, unsigned attribute, cu_address address)
{
    uint64_t value = 0;
    (void)CU(name, run.cuPointerGetAttribute(&value, attribute, address));
    return value;
}

/* Contents ------------------------------------------------------------------------------------- */

enum { CONTENT_PLACES = 64, CONTENT_STEPS = 4000 };

/* Blocks of some streams, which kernels of these write and check. Each is taken for one stream, and
 * given back on another, or on the same one, with nothing else to order what comes after it; 0:
 * none. */
struct contents {
    const char *name;
    const tarn_stream *streams;
    int stream_count;
    uint64_t seed;
    uint64_t write_ns; /* that a kernel may wait before it writes */
    cu_address (*take)(const char *name, size_t size, int on);
    bool (*give)(const char *name, cu_address address, int on, int of);
    bool (*wait)(const char *name, int on); /* now and then; NULL: never */
};

struct contents_place {
    cu_address address;
    size_t size;
    uint32_t seed;
    int stream;
};

static inline bool contents_place_fill(const struct contents *of, struct contents_place *place,
                                       uint64_t *random, uint32_t seed, int on)
{
    place->size = 4 + gpu_random(random) % (gpu_random(random) % 4 ? 20000 : 2 * MIB) / 4 * 4;
    place->seed = seed;
    place->stream = on;
    place->address = of->take(of->name, place->size, on);
    void *words = (void *)(uintptr_t)place->address;
    return words &&
           gpu_fill(of->streams[on], words, place->size, seed, gpu_random(random) % of->write_ns);
}

static inline void contents_check(const struct contents *of)
{
    struct gpu_slots slots;
    struct contents_place places[CONTENT_PLACES] = {{0, 0, 0, 0}};
    uint64_t random = of->seed, wrong = 0;
    size_t checked = 0;
    char text[120];
    if (!gpu_slots_create(&slots, of->streams[0], CONTENT_STEPS))
        return;
    bool well = true;
    for (int i = 0; well && i < CONTENT_STEPS; i++) {
        struct contents_place *place = &places[gpu_random(&random) % CONTENT_PLACES];
        int on = (int)(gpu_random(&random) % (uint64_t)of->stream_count);
        if (place->address) {
            well = gpu_check(of->streams[place->stream], (void *)(uintptr_t)place->address,
                             place->size, place->seed, 0, &slots, checked++) &&
                   of->give(of->name, place->address, on, place->stream);
            place->address = 0;
            continue;
        }
        well = contents_place_fill(of, place, &random, (uint32_t)i, on);
        if (of->wait && gpu_random(&random) % 500 == 0)
            well = of->wait(of->name, on) && well;
    }
    for (int i = 0; i < of->stream_count; i++)
        well = OK(of->name, tarn_stream_synchronize(of->streams[i])) && well;
    well = gpu_slots_read(&slots, of->streams[0]) && well;
    for (size_t i = 0; i < checked; i++)
        wrong += slots.host[i].wrong;
    for (int i = 0; i < CONTENT_PLACES; i++)
        well = (!places[i].address || of->give(of->name, places[i].address, 0, places[i].stream)) &&
               well;
    gpu_slots_destroy(&slots);
    snprintf(text, sizeof text,
             "%zu blocks of %d streams written and checked by kernels, %llu wrong words", checked,
             of->stream_count, (unsigned long long)wrong);
    verdict(well && wrong == 0, of->name, text);
}

#endif
