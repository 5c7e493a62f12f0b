/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a kept pool has in addition to its `struct pool`: reserved addresses, segments, the
 * connection to the owner, and the sealed blocks. To heaps and stores it is a pool of plain
 * segments with a caller's allocator: that allocator is in window.c. A `struct keep` lasts as long
 * as its pool. */
#ifndef TARN_MEMORY_KEEP_H
#define TARN_MEMORY_KEEP_H

#include "base/thread/lock.h"
#include "base/tree.h"
#include "memory/keep/layout.h"
#include "memory/pool/contents.h"
#include "memory/pool/pool.h"

#define UNREAD UINT64_MAX

/* One segment of the pool's addresses. */
struct keep_piece {
    uint64_t offset, size; /* bytes */
    uint64_t number;       /* no other segment that the pool ever had has it */
    driver_piece handle;   /* valid while `mapped`, `kept` or `stuck` */
    bool taken_over;       /* imported. `files` may have its file */
    bool mapped;           /* for the device and its peers */
    bool stuck;            /* not mapped, and the driver has refused to release it */
    bool kept;             /* the owner has its file, or is to have it */
    unsigned look;         /* of a reader: the last in which the owner gave it */
};

/* The files of segments that were taken over. */
struct keep_files {
    mutex lock;
    int in, out;       /* connected; -1 before the first file */
    unsigned messages; /* on their way from one to the other */
    bool lost;         /* a file could not be kept, and since then none is */
};

struct keep {
    struct pool *pool;
    struct device *device;
    struct keep *next; /* keeps_lock (window.c); of those that have ended too */
    struct layout *layout;
    uint64_t wish;  /* where the process before had it; 0: none had it */
    uintptr_t base; /* reserved addresses, constant */
    size_t window;  /* bytes of them, constant when they are reserved */
    char path[KEEP_SOCKET_BYTES], name[TARN_KEEP_NAME_BYTES];
    char uuid[sizeof(((struct driver_identity *)0)->uuid)]; /* of the device */
    bool reads;    /* beside the process that has the pool. Then no heap has its memory */
    bool writable; /* keeps_lock: the driver does not refuse writes to all of it */
    bool begun;    /* the arena lists the pool */
    bool returns;  /* the adoption failed: at the end, the owner keeps its segments */
    bool spares;   /* a block that is freed keeps its seal: keep_spare() */

    /* A thread saves the pool to a file, or loads one. `contents` and `left` belong to that
     * thread. */
    _Atomic bool transfers;
    struct contents contents;
    void *left; /* the mapping of a file to or from which copies may go on; or NULL */
    size_t left_bytes;

    mutex talking;  /* held from a request to the owner until its answer */
    int socket;     /* -1: the owner is gone */
    int file;       /* of the layout, for another owner */
    bool asked;     /* the owner may have given the pool */
    bool missed;    /* the owner did not come back when it was waited for */
    bool silent;    /* it did not answer in time */
    bool closed;    /* it closed the connection */
    unsigned looks; /* a reader's: how often it has asked the owner for the segments */
    /* A reader's: what `segments` of the layout was when it last asked; UINT64_MAX: ask again. */
    uint64_t looked_at;

    struct keep_files files;

    mutex lock; /* of all fields below, once callers find the pool; no other is taken under it */
    struct keep_piece pieces[KEEP_SEGMENTS_MOST];
    unsigned piece_count; /* by offset */
    struct tree seals;    /* the sealed blocks, by offset */
    struct seal **names;  /* LAYOUT_BLOCKS lists of seals, by the hash of the name */
    size_t seal_count;
    uint64_t numbered; /* the highest number of a segment */
    uint64_t read;     /* by a reader: `changes` of the layout; or UNREAD */
    size_t hidden;     /* blocks that a reader cannot reach, since it has older memory there */
    uint64_t taken[LAYOUT_BLOCKS / 64]; /* a bit for each place of the layout */
};

/* The kept pool of a store, or NULL. */
static inline struct keep *keep_of_store(const struct store *store)
{
    return store_has(store, STORE_KEPT) ? store->allocator.user : NULL;
}

/* The allocator of kept pools. It frees segments, and is told when the pool ends. Its `user` is the
 * pool's `struct keep`. */
extern const tarn_pool_allocator keep_allocator;

/* Reads from the layout where the pool was, if a process had it. */
tarn_status window_wish(struct keep *keep);
/* Reserves addresses for a pool: at `wish` if it is not 0, otherwise at the place of the slot. If
 * those are taken, reserves others. A pool without a wish gets half as many if the driver does not
 * have them in one piece, or they are over a quarter of the process's, and so on to `least`. */
tarn_status window_reserve(struct keep *keep, uint64_t wish, uint32_t slot, size_t least);
/* Gives the addresses back. False if the driver refuses that, or refused to unmap what is there. */
bool window_unreserve(struct keep *keep);
/* Maps a segment that came with its file, at its offset: for no device yet if the pool has not
 * begun. A reader keeps what it has already, and leaves out what would lie over older segments. */
tarn_status window_adopt(struct keep *keep, const struct keep_segment *segment, int file);
/* After all segments came: those that did not come are no longer the owner's. */
void window_settle(struct keep *keep);
/* Unmaps a reader's segments that are no longer the owner's, or says whether there are any. */
tarn_status window_let_go(struct keep *keep);
bool window_has_old(struct keep *keep);
/* Whether the pool has as many segments as an owner keeps. */
bool keep_is_full(const struct store *store);
/* Whether another process has made the kept pool's segment at this address. */
bool keep_took_over(const struct store *store, uintptr_t address);
/* Whether an address is in a pool that this process only reads. If so, writes the pool's name. */
bool window_reads(uintptr_t address, char name[TARN_KEEP_NAME_BYTES]);
/* Lets the device and its peers reach the segments, and from now on each peer that is enabled. */
tarn_status window_enter(struct keep *keep);
/* Unmaps the segments that are in no heap; the owner keeps them. Those stay that the driver refuses
 * to unmap or to release. */
void window_abandon(struct keep *keep);
/* Keeps a pool that has ended, and of which something stays; takes all these, by `next`. */
void window_leave(struct keep *keep);
struct keep *window_left(void);
/* Tries to release again what the driver has refused to release, of a device's pools that go on. */
void windows_release_stuck(const struct device *device);
/* Gives a new peer of the device access to every kept pool. */
tarn_status keeps_grant(const struct device *device, int peer);

/* Keeps copies of the files of a batch of segments; without room for them, none of the pool's. */
void files_put(struct keep_files *files, const struct keep_message *batch, const int *list);
/* Returns another descriptor of a segment's file, for the caller to close; -1 if none was kept. */
int files_get(struct keep_files *files, uint64_t offset);
/* Closes the file of one segment; of all, and no later ones are kept. */
void files_drop(struct keep_files *files, uint64_t offset);
void files_drop_all(struct keep_files *files);
void files_begin(struct keep_files *files);

/* For the first use of memory: makes the process's pipe if the environment names an owner, so that
 * children that are forked from now on hold it. */
void keep_begin(void);
/* Returns the end of the process's pipe that is for an owner, and makes the pipe if there is none.
 * TARN_ERROR_SYSTEM if it cannot be made. */
tarn_status keep_pipe(int *file);

/* Opens the pool's connection to its owner; makes a last request and closes it. */
tarn_status owner_connect(struct keep *keep);
void owner_leave(struct keep *keep, enum keep_verb verb);
/* Gets the pool from the owner, or has it made: `found`. TARN_ERROR_BUSY if a process has it and
 * does not end within `wait_ms`. */
tarn_status owner_get(struct keep *keep, unsigned wait_ms, struct keep_message *found);
/* Call it after owner_get(): receives the pool's segments and maps them. A `status` that is a
 * failure is returned, and nothing is mapped. */
tarn_status owner_segments(struct keep *keep, size_t count, tarn_status status);
/* If the process runs under `tarn run`, has that count the adopted segments as this process's, and
 * tells the owner so. The pool has not begun. */
tarn_status owner_count(struct keep *keep);
uint64_t window_take_over(struct keep *keep); /* the bytes that are counted now */
/* Asks the owner for the segments again, and maps what is new, for a reader. Holds `talking`. */
tarn_status owner_look_locked(struct keep *keep);
/* Tells the owner which segments a reader has, if there is an owner. Holds `talking`. */
void owner_tell_locked(struct keep *keep);
/* ADD with a file, or REMOVE: answered by an OK. If the owner has ended, registers the pool with
 * the one that listens now. TARN_ERROR_SYSTEM if the owner refuses or is gone. */
tarn_status owner_ask(struct keep *keep, enum keep_verb verb, const struct keep_segment *segment,
                      int file);

/* The segments that the owner has or is to have, or all that a reader has, from an offset on: at
 * most KEEP_BATCH. */
unsigned window_kept(struct keep *keep, uint64_t from, struct keep_segment segments[KEEP_BATCH]);
/* Whether the owner has a segment's file, or is to have it. */
void window_keep(struct keep *keep, uint64_t offset, bool kept);
/* Makes a file of such a segment. */
tarn_status window_export(struct keep *keep, uint64_t offset, int *file);

/* Creates a segment for a kept pool, and hands it to the owner. */
tarn_status keep_segment(const struct store *store, size_t size, uintptr_t *address);
/* Gives a segment back. On failure all of it stays, for another attempt. */
tarn_status keep_give_back(const struct store *store, uintptr_t address, size_t size);
/* Gives the memory of a segment of a suspended pool to the driver: the owner has no file of it
 * afterwards. The addresses stay. If the driver refuses to unmap, the segment keeps its memory, and
 * that failure is returned. If the driver refuses to release, the piece is `stuck` and TARN_OK is
 * returned: the segment has no memory. windows_release_stuck() and keep_occupy() try again. */
tarn_status keep_vacate(const struct store *store, uintptr_t address, size_t size);
/* Makes memory for these addresses again, and hands it to the owner. On failure they have none. */
tarn_status keep_occupy(const struct store *store, uintptr_t address, size_t size);
/* Removes all seals. */
void keep_forget_all(const struct store *store);
/* Fails if the pool is being saved to a file, or loaded, or is only read. */
tarn_status keep_refuse_suspend(const struct store *store, const char *what);
/* Fails if the pool is only read. */
tarn_status keep_refuse_reader(const struct keep *keep, const char *what);
/* Fails, and says what to do, if an address is in a pool that is only read. */
tarn_status keep_refuse_pointer(uintptr_t address);
/* Unmaps what a reader still has of the memory that the pool has given up. */
tarn_status keep_let_go(const struct store *store);
/* Removes the seal of a block that is being freed. Heap lock. */
void keep_forget_locked(const struct store *store, uintptr_t address);
/* For a restore of the pool, beside which nobody uses it: whether frees from now on are of blocks
 * that are live again at once, and keep their seals. */
void keep_spare(const struct store *store, bool spare);
/* A sealed block, as a save of the pool found it. */
struct keep_sealed {
    uint64_t offset, bytes;
    uint64_t number; /* of its seal: no other has it */
    char name[TARN_KEEP_NAME_BYTES];
    unsigned char data[TARN_KEEP_DATA_BYTES];
};
/* Writes all to a list with room for LAYOUT_BLOCKS, by their addresses, and returns how many there
 * are. */
size_t keep_list(struct keep *keep, struct keep_sealed *list);
/* Whether a block that keep_list() has listed still has the seal that it had then. */
bool keep_is_sealed(struct keep *keep, const struct keep_sealed *sealed);
/* Drops what a save or load has left whose copies were not known to end. They have ended. */
void keep_leave_nothing(struct keep *keep);
/* Called when the pool has ended. */
void keep_destroy(struct keep *keep);
/* Unmaps and releases what the driver has refused before, if it lets that go now: of a device's
 * pools, and of all pools that have ended. Called by segments_free_stuck(), which ends the segments
 * that count what goes. */
void keeps_free_stuck(const struct device *device);

#endif
