/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the driver for the tests of `tarn run` share: its functions, its blocks and its captures. fake_driver.c owns them, with devices,
 * plain memory, work and the resolver; fake_memory.c has the other kinds of memory. */
#ifndef TARN_TESTS_FAKE_DRIVER_H
#define TARN_TESTS_FAKE_DRIVER_H

#include "run/abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))
#define X(name, version, mode, symbol, parameters, arguments) EXPORT cu_result symbol parameters;
RUN_HOOK_LIST(X)
RUN_ASK_LIST(X)
#undef X
EXPORT cu_result cuDriverGetVersion(int *version);
EXPORT cu_result cuCtxSetCurrent(cu_context context);
EXPORT cu_result cuGetExportTable(const void **table, const void *id);
EXPORT cu_result cuFakeOnly(void);
/* For tests of --pool: what nobody but they call. */
EXPORT cu_result cuMemPoolGetAttribute(cu_pool pool, unsigned attribute, void *value);
EXPORT unsigned cuFakeWaits(void);          /* for the whole context, and frees, which wait too */
EXPORT unsigned cuFakeLive(void);           /* allocations */
EXPORT void cuFakeFinish(void);             /* the work before all events ends */
EXPORT void cuFakeFail(unsigned calls);     /* the call after so many fails, of those that can; 0: none */
EXPORT unsigned cuFakeFailed(void);         /* how many have failed */
EXPORT cu_context cuFakeOtherContext(void); /* of device 0, and not its primary one */

enum { DEVICES = 2, SLOTS = 1 << 16 };

/* Blocks: the address says the slot. */
struct slot {
    uint64_t size; /* 0: free */
    int device;
    bool of_context, released;
    bool of_pool; /* the default one of its device */
    bool synced;  /* SYNC_MEMOPS */
    uint32_t references;
    uint64_t id;
    cu_context context;
};

extern struct fake {
    pthread_mutex_t lock;
    struct slot slots[SLOTS];
    uint32_t free[SLOTS], free_count, used;
    uint64_t bytes[DEVICES];
    int retained[DEVICES];
    bool initialized;
    uint64_t ids;
    _Atomic unsigned waits, fail, failed;
    _Atomic uint64_t recorded, finished; /* events, by their number */
    struct {
        cu_stream stream;
        cu_capture_mode mode;
        bool invalid;
    } captures[8]; /* of a stream that is 0: none; the legacy stream cannot */
} fake;

/* A block of a device, with one reference; `of_context`: of the thread's current context, whose end frees it. */
cu_result fake_take(int device, uint64_t size, bool of_context, uint64_t *key);
/* Gives a reference back; of a piece its handle, its mappings and retained handles are some. */
cu_result fake_give(uint64_t key);
/* Plain memory of the thread's current context. */
cu_result fake_alloc(cu_address *address, uint64_t size);
/* The slot that an address lies in; NULL where it is in none. */
struct slot *fake_slot_at(cu_address address, cu_address *base);
/* Whether the thread has a current context. */
bool fake_has_context(void);

#endif
