/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The shim for CUDA (for HIP: hip/): a libcuda.so.1 in front of the real one, which it needs by its
 * path. What it does not export is the real one's. It exports hooks, one per row of RUN_HOOK_LIST;
 * each passes the call on, unchanged, and writes down what it did.
 *
 * Nothing is done before cuInit() has succeeded, and nothing more in a child of fork() after that:
 * then every hook only passes on. Whatever goes wrong here (no host memory, no place in a list, no
 * folder) is counted or left out, and never makes a call fail. Only a limit does that, with the
 * driver's own code. No lock is held over a call of the driver that may wait. */
#ifndef TARN_RUN_SHIM_H
#define TARN_RUN_SHIM_H

#ifdef TARN_RUN_HIP
#include "hip/abi.h"
#else
#include "abi.h"
#endif
#include "book.h"

#include <sys/types.h>

#define HOOK __attribute__((visibility("default")))
#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

/* The driver's own functions; NULL where it has none of that name. Filled by real_find(), before
 * any hook is of use. */
struct real {
#define X(name, version, mode, symbol, parameters, arguments) run_result(*symbol) parameters;
    RUN_HOOK_LIST(X) RUN_ASK_LIST(X)
#undef X
};
extern struct real real;

#define X(name, version, mode, symbol, parameters, arguments) HOOK run_result symbol parameters;
RUN_HOOK_LIST(X)
#undef X

/* Finds them, once; harmless again and from several threads. The constructor calls it; a hook that
 * is called earlier, by the driver's constructor say, does so itself. */
void real_find(void);
/* The file that this library needs by its path: the real driver. Empty where it needs none. */
HOOK const char *tarn_run_driver(void);

/* The real function of a row, for a hook. Gives 500, "not found", where the driver has none: but
 * then nobody is given the hook. */
#define PASS(symbol, arguments)                                             \
    (__builtin_expect(real.symbol != NULL, 1) || (real_find(), real.symbol) \
         ? real.symbol arguments                                            \
         : RUN_NOT_FOUND)

/* A call for memory, again where the driver had none and a pool gives some back. */
#define AGAIN(device, call)                                                        \
    __extension__({                                                                \
        run_result first_code = (call);                                            \
        first_code == RUN_OUT_OF_MEMORY &&pool_trim(device) ? (call) : first_code; \
    })

/* Process and thread --------------------------------------------------------------------------- */

extern struct book *book; /* once awake; this process's */
extern _Atomic int shim_state;
enum { SHIM_ASLEEP, SHIM_AWAKE, SHIM_PASSING };

/* How deep in hooks this thread is: what the driver calls of its own exports is not written down
 * twice. */
extern _Thread_local unsigned shim_depth __attribute__((tls_model("initial-exec")));

/* Whether a hook has anything to do; then it ends with shim_leave(). */
static inline bool shim_enter(void)
{
    if (atomic_load_explicit(&shim_state, memory_order_acquire) != SHIM_AWAKE || shim_depth)
        return false;
    shim_depth = 1;
    return true;
}

static inline void shim_leave(void)
{
    shim_depth = 0;
}

/* After the driver's cuInit() succeeded. */
void shim_wake(void);
/* ns since the book's start. */
uint64_t shim_now(void);

/* Files ---------------------------------------------------------------------------------------- */

/* A file that stays open, though the program may close its number and open another file there. */
struct own_file {
    int number; /* -1: none */
    dev_t device;
    ino_t node;
    char *path; /* of the heap */
};
/* Opens it, with O_CREAT for its user alone. Its number, or -1. */
int own_file_open(struct own_file *own, const char *path, int flags);
/* Its number, of which the caller makes use at once; where the program has closed it, it is opened
 * again. -1: it is gone. Not for two threads at once. */
int own_file(struct own_file *own);
void own_file_close(struct own_file *own);

/* Who calls ------------------------------------------------------------------------------------ */

/* The site in the book of a return address. What lies in the CUDA runtime as a shared library is
 * passed over: its caller counts. */
uint32_t site_of(void *return_address);
/* The same for one frame of a stack, whatever it lies in. */
uint32_t site_of_frame(void *return_address);
/* The number of the stack above a hook with this return address; 0 where stacks are not wanted. */
uint32_t stack_of(void *caller);
void stack_open(const char *path);

/* Live blocks ---------------------------------------------------------------------------------- */

/* Keys are unique within a space. */
enum block_space {
    SPACE_NONE,
    SPACE_ADDRESS,
    SPACE_PIECE,
    SPACE_MAPPING,
    SPACE_ARRAY,
    SPACE_POOL,
    SPACE_REGISTERED
};

struct block {
    uint64_t key; /* address or handle */
    uint64_t size;
    uint64_t other;      /* of a mapping the piece; of a pooled block its id, or 0 before it was
                            asked for */
    run_context context; /* with which it goes; NULL: with none */
    uint64_t place;      /* of a block that was taken out: its free's in the log, as log_place()
                            says */
    uint32_t references;
    uint16_t site;
    uint8_t space, kind, device;
    bool pooled;    /* part of a segment, which counts as used in its place */
    bool synced;    /* pooled: SYNC_MEMOPS is on for it */
    uint16_t owner; /* pooled: its lane; else the source that it, or the pool, is: pool/lane.h. 0:
                       none */
};

/* Enters a block with its key. One that had the key before, whose free was not seen, is given out:
 * else old->space is SPACE_NONE. False without host memory. */
bool blocks_put(const struct block *block, struct block *old);
/* Takes a block out, before it is freed, and gives its free a place in the log; false where there
 * is none. */
bool blocks_take(enum block_space space, uint64_t key, struct block *block);
/* Looks one up. */
bool blocks_find(enum block_space space, uint64_t key, struct block *block);
/* Adds to the references of a block. When none is left it is taken out, and *block is what it
 * was. */
enum block_change { BLOCK_UNKNOWN, BLOCK_KEPT, BLOCK_GONE };
enum block_change blocks_refer(enum block_space space, uint64_t key, int change,
                               struct block *block);
/* Gives a block an id, unless it has one, and sets `synced` if that is not NULL; *block is what it
 * is then. */
bool blocks_note(enum block_space space, uint64_t key, uint64_t id, const bool *synced,
                 struct block *block);
/* Takes out all that goes with a context, one by one; the cursor is zero at first. */
struct block_cursor {
    size_t shard, slot;
};
bool blocks_take_of(run_context context, struct block_cursor *cursor, struct block *block);

/* Charges -------------------------------------------------------------------------------------- */

/* An allocation in progress. */
struct charge {
    struct block block;
    uint64_t reserved; /* bytes of `used` that are taken already */
    run_stream stream;
    void *caller;
};

#define NO_DEVICE 255

/* The device of the thread's current context, or NO_DEVICE; and that context, with which its memory
 * goes. The vendor's. */
unsigned current_device(run_context *context);
/* Fills the book's devices in; the vendor's. */
void describe_devices(void);
/* The primary context of a device, if it is active. */
run_context primary_context(int device);
/* Whether a stream captures; CUDA's. */
bool stream_captures(run_stream stream, bool per_thread);
/* A context has gone, and another may come at its place. */
void current_device_changes(void);

/* Before the driver's call: takes the bytes from the device's limit. RUN_OUT_OF_MEMORY where they
 * exceed it: then the call is not made. */
run_result charge_begin(struct charge *charge, enum run_kind kind, unsigned device, uint64_t size,
                        void *caller);
/* After it: with RUN_OK the block is written down under its key and, where the driver made it
 * another size, with that. */
void charge_end(struct charge *charge, run_result code, enum block_space space, uint64_t key,
                uint64_t size);
/* A block that was taken out has been freed; or has not, and is put back. */
void charge_free(const struct block *block, run_stream stream);
void charge_restore(const struct block *block);
/* A block of a pool: counts as its library's, not as used. False without host memory: then nothing
 * was written down. */
bool charge_pooled(struct block *block, run_stream stream, void *caller);
/* What a pool takes from its device for blocks, and gives back. False above the limit. */
bool charge_segment(unsigned device, uint64_t size);
void charge_segment_free(unsigned device, uint64_t size);
/* When the limits are known, before the first charge. */
void charges_begin(void);
/* Under a limit: what is in use of a device. */
uint64_t charge_used(unsigned device);
/* All that goes with a context. */
void charge_drop(run_context context);

/* Limits: puts them into the book; NULL and what names no device is passed over. */
void limits_read(const char *text);
/* Bytes that count against a limit beside those that hooks saw. Waits a little for the first look
 * of `tarn run`, once per device. */
uint64_t limits_unseen(struct book_device *device);
/* Says, once per device, who holds what where a request is refused. */
void limits_refuse(unsigned device, uint64_t size, uint32_t site);
/* Bytes below a device's limit that nobody has. */
uint64_t limits_left(unsigned device);

/* The group that shares a limit, if there is one: this process takes its place in it. */
void group_join(void);
bool group_joined(void);
/* Whether the group counts a device: it has a row for each of the first that its processes had. */
bool group_has(unsigned device);
/* In a child of fork(). */
void group_forked(void);
/* Puts the group's limits into the book, where they have changed. */
void group_limits(void);
/* Takes bytes if all processes together stay below the limit; what this one has that no hook sees
 * is written down with it. True for a device that the group does not count. */
bool group_reserve(unsigned device, uint64_t size, uint64_t unseen, uint64_t limit);
/* What was not known before the driver's call, and what is given back. */
void group_add(unsigned device, uint64_t size);
void group_subtract(unsigned device, uint64_t size);
/* Bytes that all processes have, what no hook sees included. */
uint64_t group_used(unsigned device, uint64_t unseen);

/* The log: one record, if there is one. What has a place already goes there: that of a free is from
 * before the driver's call, after which another thread may have the address. Of a refusal the
 * block's key is what was left, in bytes. */
void log_open(const char *path);
#define LOG_FULL UINT64_MAX
uint64_t log_place(void); /* the next one, and 1; LOG_FULL where there is no room, 0 where there is
                             no log */
void log_write(const struct block *block, run_stream stream, uint32_t stack, enum book_what what);

#endif
