/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the driver for the tests of `tarn run` share: its functions, its blocks and its
 * captures. fake_driver.c owns them, with devices, plain memory and the resolver; fake_work.c has
 * streams, events, captures and waits, fake_pools.c stream-ordered memory, and fake_memory.c the
 * other kinds. Blocks, pools and what was waited for are under the lock. */
#ifndef TARN_TESTS_FAKE_DRIVER_H
#define TARN_TESTS_FAKE_DRIVER_H

#include "run/abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#ifndef TRIPLES /* or what scripts/run-wheels makes of another header */
#define TRIPLES "triples.h"
#endif

#define EXPORT __attribute__((visibility("default")))
#define X(name, version, mode, symbol, parameters, arguments) EXPORT cu_result symbol parameters;
RUN_HOOK_LIST(X)
RUN_ASK_LIST(X)
#undef X
EXPORT cu_result cuCtxSetCurrent(cu_context context);
EXPORT cu_result cuGetExportTable(const void **table, const void *id);
EXPORT cu_result cuFakeOnly(void);
/* Neither hooked nor asked. */
EXPORT cu_result cuMemPoolSetAccess(cu_pool pool, const struct cu_access *access, size_t count);
EXPORT cu_result cuMemPoolGetAccess(unsigned *flags, cu_pool pool, struct cu_location *location);
EXPORT cu_result cuMemsetD8_v2(cu_address address, unsigned char value, size_t count);
/* For tests of --pool: what nobody but they call. */
EXPORT unsigned cuFakeWaits(void);               /* for the whole context, and frees, which wait
                                                    too */
EXPORT unsigned cuFakeLive(void);                /* allocations */
EXPORT void cuFakeFinish(void);                  /* the work of all streams ends, and what comes
                                                    later ends at once */
EXPORT void cuFakeWork(void);                    /* from now on all streams have work that does not
                                                    end */
EXPORT void cuFakeStream(cu_stream stream);      /* one that was destroyed comes again, as
                                                    another */
EXPORT unsigned cuFakeUse(size_t bytes);         /* of device 0's default pool, taken by no call
                                                    that is known */
EXPORT unsigned cuFakeCapture(cu_stream stream); /* it captures, by no call that is known; NULL:
                                                    that capture ends */
EXPORT unsigned cuFakeDisorder(void);            /* memory of pools that was freed while work could
                                                    still use it */
EXPORT uint64_t cuFakeReserved(cu_pool pool);
/* Whether that device may use the block there */
EXPORT unsigned cuFakeReaches(cu_address address, int device);
EXPORT void
cuFakeFault(unsigned code);        /* a kernel has failed so: until a context ends, all that looks
                                      at work says so */
EXPORT unsigned cuFakeCalls(void); /* of this thread, of calls of which the shim may make too
                                      many */
EXPORT void cuFakeFail(unsigned calls);     /* the call after so many fails, of those that can; 0:
                                               none */
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
    _Atomic uint64_t bytes[DEVICES];
    _Atomic int retained[DEVICES];
    _Atomic bool initialized;
    uint64_t ids;
    _Atomic unsigned waits, fail, failed, fault;
    _Atomic uint64_t recorded, finished; /* events, by their number */
    struct fake_capture {
        _Atomic(cu_stream) stream;
        _Atomic cu_capture_mode mode;
        _Atomic bool invalid;
    } captures[8]; /* of a stream that is 0: none; the legacy stream cannot */
    struct fake_pool {
        bool there, reached[DEVICES]; /* reached: by devices beside its own */
        int device;
        uint64_t threshold, most;  /* most: its own limit; 0: none */
        uint64_t used, high, kept; /* kept: free, and still the pool's */
        uint64_t lost;             /* freed by cuMemFree(), and counted as used for good: seen on an
                                      H200, CUDA 13.0 */
        uint64_t unseen, reserved_high; /* unseen: freed behind work that no wait has seen the end
                                           of */
        bool opportunistic;
    } pools[8];                   /* the first are the devices' default ones */
    cu_stream captured;           /* by cuFakeCapture() */
    _Atomic unsigned current[2];  /* pools of devices */
    _Atomic(cu_stream) gone[16];  /* destroyed */
    _Atomic(cu_context) made[16]; /* by cuStreamCreate(), which numbers them from 0xb000: their
                                     contexts */
    struct {
        cu_stream stream;
        uint64_t number; /* its events up to this one have ended */
    } waited[64];
    _Atomic unsigned disorder;
} fake;

/* A block of a device, with one reference; `of_context`: of the thread's current context, whose end
 * frees it. */
cu_result fake_take(int device, uint64_t size, bool of_context, uint64_t *key);
/* Gives a reference back; of a piece its handle, its mappings and retained handles are some. */
cu_result fake_give(uint64_t key);
/* Plain memory of the thread's current context. */
cu_result fake_alloc(cu_address *address, uint64_t size);
/* The slot that an address lies in; NULL where it is in none. Locked. */
struct slot *fake_slot_at(cu_address address, cu_address *base);
/* The same as a copy, not locked. */
bool fake_look(cu_address address, cu_address *base, struct slot *copy);
/* Whether a stream is one; and whether work runs on streams. */
bool fake_is_stream(cu_stream stream);
bool fake_is_busy(void);
/* What of pools a wait, or the end of a context, gives back. */
void fake_wait(void);
/* The work of a stream, or with NULL of all, has ended. */
void fake_ended(cu_stream stream);
void fake_pools_end(void);
/* A block of a pool goes; locked. */
void fake_pool_drop(struct slot *slot);
/* Frees a block as cuMemFree() does, of a pool or not. */
cu_result fake_pool_lose(cu_address address);
/* Whether this call is the one that is to fail. */
bool fake_fails(void);
/* The error of work that has failed; 0: none. */
cu_result fake_fault(void);
/* What a capture in the global mode forbids it invalidates. */
cu_result fake_forbidden(void);
/* Counts for cuFakeCalls(). */
void fake_called(void);
/* The thread's current context, and whether it is one; a primary one; a stream's; and a context's
 * device, or -1. */
cu_context fake_context(void);
bool fake_has_context(void);
cu_context fake_primary(int device);
cu_context fake_context_of(cu_stream stream);
int fake_device_of(cu_context context);

#endif
