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
EXPORT unsigned cuFakeWaits(void);               /* for the whole context, and frees, which wait too */
EXPORT unsigned cuFakeLive(void);                /* allocations */
EXPORT void cuFakeFinish(void);                  /* the work of all streams ends, and what comes later ends at once */
EXPORT void cuFakeWork(void);                    /* from now on all streams have work that does not end */
EXPORT void cuFakeStream(cu_stream stream);      /* one that was destroyed comes again, as another */
EXPORT unsigned cuFakeUse(size_t bytes);         /* of device 0's default pool, taken by no call that is known */
EXPORT unsigned cuFakeCapture(cu_stream stream); /* it captures, by no call that is known; NULL: that capture ends */
EXPORT unsigned cuFakeDisorder(void);            /* memory of pools that was freed while work could still use it */
EXPORT uint64_t cuFakeReserved(cu_pool pool);
EXPORT void cuFakeFail(unsigned calls);     /* the call after so many fails, of those that can; 0: none */
EXPORT unsigned cuFakeFailed(void);         /* how many have failed */
EXPORT cu_context cuFakeOtherContext(void); /* of device 0, and not its primary one */

enum { DEVICES = 2, SLOTS = 1 << 16 };

/* Blocks: the address says the slot. */
struct slot {
    uint64_t size; /* 0: free */
    int device;
    bool of_context, released;
    unsigned pool;    /* its number, from 1; 0: none */
    cu_stream stream; /* of a pool: in whose order it was allocated */
    bool is_safe;     /* a wait for that has ended since */
    bool synced;      /* SYNC_MEMOPS */
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
    struct fake_pool {
        bool there;
        int device;
        uint64_t threshold, most;       /* most: its own limit; 0: none */
        uint64_t used, high, kept;      /* kept: free, and still the pool's */
        uint64_t unseen, reserved_high; /* unseen: freed behind work that no wait has seen the end of */
        bool opportunistic;
    } pools[8];          /* the first are the devices' default ones */
    cu_stream captured;  /* by cuFakeCapture() */
    unsigned current[2]; /* pools of devices */
    cu_stream gone[16];  /* destroyed */
    struct {
        cu_stream stream;
        uint64_t number; /* its events up to this one have ended */
    } waited[64];
    _Atomic unsigned disorder;
} fake;

/* A block of a device, with one reference; `of_context`: of the thread's current context, whose end frees it. */
cu_result fake_take(int device, uint64_t size, bool of_context, uint64_t *key);
/* Gives a reference back; of a piece its handle, its mappings and retained handles are some. */
cu_result fake_give(uint64_t key);
/* Plain memory of the thread's current context. */
cu_result fake_alloc(cu_address *address, uint64_t size);
/* The slot that an address lies in; NULL where it is in none. */
struct slot *fake_slot_at(cu_address address, cu_address *base);
/* Whether a stream is one; and whether work runs on streams. */
bool fake_is_stream(cu_stream stream);
bool fake_is_busy(void);
/* What of pools a wait, or the end of a context, gives back. */
void fake_wait(void);
/* The work of a stream, or with NULL of all, has ended. */
void fake_ended(cu_stream stream);
void fake_pools_end(void);
/* A block of a pool goes; locked. */
void fake_pool_drop(struct slot *slot, bool seen);
/* Whether this call is the one that is to fail. */
bool fake_fails(void);
/* Whether the thread has a current context. */
bool fake_has_context(void);

#endif
