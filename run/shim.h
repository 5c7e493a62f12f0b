/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The shim for CUDA (for HIP: hip/). It is a libcuda.so.1 in front of the real one, which it needs
 * by its path; the real one serves all that the shim does not export. The shim exports hooks, one
 * per row of RUN_HOOK_LIST. A hook passes the call on and writes down what the call did. With
 * --pool it may serve the call itself; under a limit it answers with what the limit leaves.
 *
 * The shim does nothing before cuInit() has succeeded. In a child of fork() after that, every hook
 * only passes calls on. What goes wrong in the shim (no host memory, no place in a list, no folder)
 * is counted or left out, and never makes a call fail. A limit does that, and so does --pool for a
 * wrong address, both with the driver's own code. No lock is held over a call of the driver that
 * may wait. */
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

/* The driver's own functions; NULL if it has none of that name. real_find() fills them in, before a
 * hook calls one. */
struct real {
#define X(name, version, mode, symbol, parameters, arguments) run_result(*symbol) parameters;
    RUN_HOOK_LIST(X) RUN_ASK_LIST(X)
#undef X
};
extern struct real real;

#define X(name, version, mode, symbol, parameters, arguments) HOOK run_result symbol parameters;
RUN_HOOK_LIST(X)
#undef X

/* Finds the driver's functions. It may be called again, and by several threads at once. The
 * constructor calls it; a hook that runs earlier, such as one that the driver's constructor calls,
 * does so too. */
void real_find(void);
/* The path by which this library needs the real driver; empty if it needs none. */
HOOK const char *tarn_run_driver(void);
/* A tarn in the process calls these three. */
/* An imported piece of a kept pool is the process's from now on. False: it was not counted. In the
 * group it is pending. */
HOOK bool tarn_run_takes_over(int device, uint64_t piece, uint64_t size);
/* The pool's owner counts these bytes no more: they are in use in the group. */
HOOK void tarn_run_has_taken_over(int device, uint64_t size);
/* The process's slot in its group; -1: it is in none. */
HOOK int tarn_run_slot(void);

/* Calls the real function of a row, for a hook. Gives 500 ("not found") if the driver has none; in
 * that case the resolver does not return the hook either. */
#define PASS(symbol, arguments)                                             \
    (__builtin_expect(real.symbol != NULL, 1) || (real_find(), real.symbol) \
         ? real.symbol arguments                                            \
         : RUN_NOT_FOUND)

/* Makes a call that allocates. If the driver has no memory and a pool can return some, makes it
 * again. */
#define AGAIN(device, call)                                                        \
    __extension__({                                                                \
        run_result first_code = (call);                                            \
        first_code == RUN_OUT_OF_MEMORY &&pool_trim(device) ? (call) : first_code; \
    })

/* Process and thread -------------------------------------------------------------------------- */

extern struct book *book; /* this process's book; set before the shim is awake */
extern _Atomic int shim_state;
enum { SHIM_ASLEEP, SHIM_AWAKE, SHIM_PASSING };

/* How many hooks this thread is inside of. What the driver calls of its own exports inside a hook
 * is not written down a second time. */
extern _Thread_local unsigned shim_depth __attribute__((tls_model("initial-exec")));

/* Begins a hook. False: the hook only passes the call on. After true, shim_leave() ends it. */
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

/* Call it after the driver's cuInit() succeeded. */
void shim_wake(void);

/* Files ---------------------------------------------------------------------------------------- */

/* A file that the shim keeps open. The program may close its number and open another file there. */
struct own_file {
    int number; /* -1: none */
    dev_t device;
    ino_t node;
    char *path; /* from malloc() */
};
/* Opens a file, which only its user can read if this call creates it. Returns the descriptor, or
 * -1. */
int own_file_open(struct own_file *own, const char *path, int flags);
/* Returns the file's number, for use at once. If the program has closed it, opens it again. -1: the
 * file is gone. Not for two threads at once. */
int own_file(struct own_file *own);
void own_file_close(struct own_file *own);
/* Gives a part of a file room on its disk: a store into a hole of a file on a full disk would kill
 * the process. */
bool file_reserve(int file, uint64_t at, uint64_t bytes);

/* Who calls ------------------------------------------------------------------------------------ */

/* Returns the site in the book of a return address. An address in the CUDA runtime, as a shared
 * library, is passed over: its caller counts. */
uint32_t site_of(void *return_address);
/* Returns the site of one frame of a stack, in whatever library it is. */
uint32_t site_of_frame(void *return_address);
/* Returns the number of the stack above a hook with this return address; 0 if no stacks are
 * wanted. */
uint32_t stack_of(void *caller);
void stack_open(const char *path);

/* Live blocks ---------------------------------------------------------------------------------- */

/* What a block's key is. Keys are unique within a space. */
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
    /* of a mapping: its piece; of a pooled block: its id, 0 until somebody asks for it */
    uint64_t other;
    run_context context; /* the context whose end also ends the block; NULL: none */
    /* of a block that blocks_take() took out: the place that log_place() returned for the record of
     * its free */
    uint64_t place;
    uint32_t references;
    uint16_t site;
    uint8_t space, kind, device;
    bool pooled;     /* cut from a segment; the segment counts as used, not the block */
    bool synced;     /* pooled: SYNC_MEMOPS is on for it */
    bool taken_over; /* a piece of a kept pool that another process created */
    /* a pooled block: the number of its lane, or 0. Otherwise: the number of the source that the
     * block comes from, or that the pool is (pool/lane.h); 0: none */
    uint16_t owner;
};

/* Enters a block under its key. If the table has another block with that key, because its free was
 * not seen, that one is returned in *old; otherwise old->space is SPACE_NONE. False without host
 * memory. */
bool blocks_put(const struct block *block, struct block *old);
/* Takes a block out of the table, before it is freed, and gives its free a place in the log. False
 * if there is no such block. */
bool blocks_take(enum block_space space, uint64_t key, struct block *block);
/* Looks a block up. */
bool blocks_find(enum block_space space, uint64_t key, struct block *block);
/* Adds to the references of a block. *block: the block afterwards. When no reference is left, the
 * block is taken out. */
enum block_change { BLOCK_UNKNOWN, BLOCK_KEPT, BLOCK_GONE };
enum block_change blocks_refer(enum block_space space, uint64_t key, int change,
                               struct block *block);
/* Gives a block an id, unless it has one. Unless `synced` is NULL, also stores that. *block: the
 * block afterwards. */
bool blocks_note(enum block_space space, uint64_t key, uint64_t id, const bool *synced,
                 struct block *block);
/* Takes out the blocks that end with a context, one per call. The cursor is zero at first. */
struct block_cursor {
    size_t shard, slot;
};
bool blocks_take_of(run_context context, struct block_cursor *cursor, struct block *block);

/* Charges -------------------------------------------------------------------------------------- */

/* An allocation in progress. */
struct charge {
    struct block block;
    uint64_t reserved; /* bytes that are already counted in `used` of the device */
    uint64_t left;     /* of a refused charge: bytes that were left below the limit */
    run_stream stream;
    void *caller;
};

#define NO_DEVICE 255

/* Returns the device of the thread's current context, or NO_DEVICE, and the context. Each vendor
 * has its own. */
unsigned current_device(run_context *context);
/* Fills in the book's devices. Each vendor has its own. */
void describe_devices(void);
/* Returns the primary context of a device; NULL if it is not active. */
run_context primary_context(int device);
/* True if a stream captures. CUDA only. */
bool stream_captures(run_stream stream, bool per_thread);
/* Call it when a context has ended. Threads forget what they remember of their current context,
 * because a new context may get the same pointer. */
void current_device_changes(void);

/* Call it before the driver's call: it takes the bytes from the device's limit. RUN_OUT_OF_MEMORY:
 * they do not fit, and the driver's call must not be made. */
run_result charge_begin(struct charge *charge, enum run_kind kind, unsigned device, uint64_t size,
                        void *caller);
/* Call it after the driver's call. With RUN_OK it records the block under its key, with the `size`
 * that the driver gave it. */
void charge_end(struct charge *charge, run_result code, enum block_space space, uint64_t key,
                uint64_t size);
/* charge_free(): a block that was taken out has been freed. charge_restore(): its free failed, and
 * it is put back. */
void charge_free(const struct block *block, run_stream stream);
void charge_restore(const struct block *block);
/* Writes down a block of a pool. It counts for its library; its device's `used` does not change.
 * False without host memory: nothing was written down. */
bool charge_pooled(struct block *block, run_stream stream, void *caller);
/* Counts a segment of a pool as used by its device. False if it does not fit the limit.
 * charge_segment_free() undoes it. */
bool charge_segment(unsigned device, uint64_t size);
void charge_segment_free(unsigned device, uint64_t size);
/* Call it once the limits are known and before the first charge. */
void charges_begin(void);
/* Bytes of a device in use; exact if book->exact is set. */
uint64_t charge_used(unsigned device);
/* Counts an imported piece of a kept pool as this process's, even beyond the limit: the memory is
 * there. In the group it is expected. False: it was not counted. */
bool charge_taken_over(unsigned device, uint64_t piece, uint64_t size, void *caller);
/* Frees, in the book, all blocks that end with a context. */
void charge_drop(run_context context);

/* Reads the text of --limit into the book. NULL is allowed, and rules for devices that do not exist
 * are ignored. */
void limits_read(const char *text);
/* Bytes that count against a limit in addition to those that hooks saw. Waits a little for the
 * first look of `tarn run`, once per device. */
uint64_t limits_unseen(struct book_device *device);
/* Says that a request was refused and which libraries have the memory, once per device. */
void limits_refuse(unsigned device, uint64_t size, uint32_t site);
/* Bytes that are left below a device's limit. */
uint64_t limits_left(unsigned device);

/* Joins the group that shares a limit, if the environment names one. */
void group_join(void);
bool group_joined(void);
/* True if the group counts a device. It counts the first BOOK_DEVICES devices that its processes
 * have. */
bool group_has(unsigned device);
/* Leaves the group, in a child of fork(). */
void group_forked(void);
/* Copies the group's limits into the book, if they have changed. Called before a device's size or
 * free memory is reported, and before each charge of a kind that takes memory of the device. So
 * other kinds do not notice a change, nor do blocks cut from a pool's segment that is there. */
void group_limits(void);
/* Takes bytes if all processes together stay below the limit, and writes `unseen`, what no hook of
 * this process saw, into its slot. True for a device that the group does not count. If false,
 * `left` is what was left below the limit, which is less than `size`. */
bool group_reserve(unsigned device, uint64_t size, uint64_t unseen, uint64_t limit, uint64_t *left);
/* group_add() counts bytes that were taken without a check. group_subtract() counts bytes that were
 * returned. */
void group_add(unsigned device, uint64_t size);
void group_subtract(unsigned device, uint64_t size);
/* This process's slot in its group; -1: it is in none. */
int group_slot(void);
/* Counts bytes that this process has taken over from the owner's slot: group_expect() before the
 * owner has been told, group_expected() when it counts them no more. */
void group_expect(unsigned device, uint64_t size);
void group_expected(unsigned device, uint64_t size);
/* Bytes of a device that all processes of the group have, with those that no hook saw. */
uint64_t group_used(unsigned device, uint64_t unseen);

/* The log of allocations and frees. A free's record gets its place before the driver's call, since
 * another thread may get the address right after it. */
#define LOG_FULL UINT64_MAX
/* Takes the next place. Returns its number + 1; LOG_FULL: no room; 0: no log. */
uint64_t log_place(void);
/* Adds a record to the log, if there is one. A block that has a place gets its record there. For a
 * refusal the block's key is the number of bytes that were left. */
void log_write(const struct block *block, run_stream stream, uint32_t stack, enum book_what what);

#endif
