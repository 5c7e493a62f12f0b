/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the parts of the fuzzer of the public API share: the input, what earlier calls of the
 * sequence gave, and ways to choose an argument from these or from what is wrong.
 *
 * A slot keeps what a call gave after it was given back, so that stale names are tried as often as
 * good ones. `live` says only what must be given back at the end of the sequence. */
#ifndef TESTS_FUZZ_API_H
#define TESTS_FUZZ_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/debug.h>
#include <tarn/host.h>
#include <tarn/live.h>
#include <tarn/metrics.h>
#include <tarn/tarn.h>

#define DEVICES 3
#define DEVICE_MEMORY ((size_t)64 << 20)
#define SLOTS 16
#define BLOCKS 64

/* One function of the API and what chooses its arguments. Parts are lists that are added to at
 * their ends, so that stored inputs keep what they mean. tests/build/test_fuzz.sh holds the names
 * to src/tarn.map. */
struct api_call {
    const char *name;
    void (*call)(void);
};
#define CALL(function)             \
    {                              \
#function, fuzz_##function \
    }
/* Another way to call a function of the list, which has an entry of its own. */
#define ALSO(function, way)   \
    {                         \
#function, fuzz_##way \
    }
extern const struct api_call api_memory[], api_pools[], api_streams[], api_handles[], api_reports[],
    api_host[];

enum block_kind { DEVICE_BLOCK, PINNED_BLOCK, IMPORTED_BLOCK };

struct block {
    void *pointer;
    size_t size;
    tarn_stream stream;
    enum block_kind kind;
    bool live;
};

struct slot {
    void *object;
    uint64_t value;
    bool live;
};

/* What one thread alone can give back. */
struct mine {
    struct slot scopes[SLOTS]; /* begun or joined, in order */
    size_t scope_count;
    tarn_workspace_call calls[4];
    unsigned regions;
};

extern struct world {
    struct block blocks[BLOCKS];
    struct slot pools[SLOTS], events[SLOTS], shares[SLOTS], checkpoints[SLOTS], graphs[SLOTS];
    struct slot imported[SLOTS]; /* pools */
    struct slot ranges[SLOTS];
    struct slot streams[SLOTS], leased_streams[SLOTS], scopes[SLOTS], observers[SLOTS],
        captures[SLOTS];
    tarn_lease leases[SLOTS];
    struct slot pins[SLOTS]; /* object and, as value, size */
    struct mine threads[2];
    int sockets[2]; /* ends of one connection */
    int wrong_file; /* that is no socket */
    void *natives[DEVICES];
    tarn_library library;
    char directory[64]; /* of this process alone: where files are written */
} world;

/* Of the two threads that take part, the one that runs. */
extern _Thread_local int this_thread;
static inline struct mine *mine(void)
{
    return &world.threads[this_thread];
}

/* Ends the process where what must hold does not. */
void demand_at(bool condition, const char *text, const char *file, int line);
#define DEMAND(condition) demand_at((condition), #condition, __FILE__, __LINE__)

/* ---- The input: zeros behind its end ---- */
uint8_t take(void);
bool take_bool(void);
uint64_t take_number(void); /* any, small ones more often */

/* The entry of a table that `number` selects: every number selects one. */
#define PICK(table, number) ((table)[(number) % (sizeof(table) / sizeof *(table))])

/* ---- Arguments ---- */
int any_device(void);
size_t any_size(void);
void *any_pointer(void); /* to a block of any kind, into one, or wrong */
tarn_stream any_stream(void);
/* An object of these slots, or a pointer that is none of them; and a place for the result of a
 * call, sometimes NULL. */
void *any_object(const struct slot *slots);
uint64_t any_value(const struct slot *slots);
void *wrong_pointer(void);
tarn_library any_library(void);
const char *any_text(void);
const char *any_path(void);
size_t struct_size(size_t right);
/* Sometimes NULL in place of a pointer to a result or to options. */
void *or_null(void *pointer);

/* ---- What came of it ---- */
bool has_room(const struct slot *slots); /* else nothing more of the kind is made */
struct slot *slot_add(struct slot *slots, void *object, uint64_t value);
void slot_ended(struct slot *slots, const void *object, uint64_t value);
void block_add(enum block_kind kind, void *pointer, size_t size, tarn_stream stream);
void block_ended(enum block_kind kind, const void *pointer);
struct block *any_block(void);

/* Remove all sleepers, and all holds of pools. */
void fuzz_sleepers_end(void);
void fuzz_holds_end(void);
/* Ends all ranges, whose graphs are gone. */
void fuzz_ranges_end(void);

/* Ends what the calling thread alone can end, and what any can. */
void end_mine(void);
void end_all(void);

#endif
