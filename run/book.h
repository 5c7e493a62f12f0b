/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The book of one process under `tarn run`: a file that the shim in the process maps and writes,
 * and that `tarn run` reads while the process runs and after it has ended, however it ended. A
 * second file, the log, has one record per allocation and free, where the user asked for a
 * snapshot. The program can write into both: `tarn run` trusts nothing in them and maps neither.
 *
 * Counters are atomic and written by the process. `tarn run` writes `residue` after the start, and
 * both write `looked`. An entry of a list is filled before its list's count covers it.
 */
#ifndef TARN_RUN_BOOK_H
#define TARN_RUN_BOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BOOK_MAGIC UINT64_C(0x31306e7572747261)
#define BOOK_VERSION 6

/* The variables that `tarn run` sets for the program. */
#define RUN_FOLDER_VARIABLE "TARN_RUN_FOLDER" /* where books and logs go */
#define RUN_LIMIT_VARIABLE "TARN_RUN_LIMIT"   /* what --limit was given */
#define RUN_POOL_VARIABLE "TARN_RUN_POOL"     /* bytes of the largest block that is pooled */
#define RUN_LOG_VARIABLE "TARN_RUN_LOG"       /* "1": write a log; "2": with stacks */

enum {
    BOOK_DEVICES = 16,
    BOOK_LIBRARIES = 96,
    BOOK_SITES = 2048,
    BOOK_TEXT = 512,
    BOOK_DESKS = 64,
    BOOK_PATH = 240,
    BOOK_FRAMES = 48
};
#define BOOK_LOG_BYTES \
    (UINT64_C(1) << 32)                       /* the most that a log has; a process maps as many
                                                 addresses for it */
#define BOOK_STACKS_BYTES (UINT64_C(1) << 26) /* likewise of the file of stacks */

/* What an allocation is. X(name, text, whether it takes memory of the device) */
#define RUN_KIND_LIST(X)               \
    X(PLAIN, "plain", true)            \
    X(PITCHED, "pitched", true)        \
    X(ORDERED, "stream-ordered", true) \
    X(VIRTUAL, "virtual", true)        \
    X(ARRAY, "array", true)            \
    X(MANAGED, "managed", false)       \
    X(GRAPH, "graph node", false)      \
    X(IMPORTED, "imported", false)     \
    X(HOST, "host", false)             \
    X(REGISTERED, "registered host", false)

enum run_kind {
#define X(name, text, counts) RUN_##name,
    RUN_KIND_LIST(X)
#undef X
        RUN_KINDS
};

static inline bool run_kind_counts(unsigned kind)
{
    static const bool counts[RUN_KINDS] = {
#define X(name, text, counts) counts,
        RUN_KIND_LIST(X)
#undef X
    };
    return kind < RUN_KINDS && counts[kind];
}

/* What one library has of one kind on one device; bytes. Of graph nodes only what was made is
 * known, and of kinds that take memory of the device what is live is in its holder. */
struct book_account {
    _Atomic uint64_t made, made_bytes; /* since the start */
    _Atomic uint64_t live, peak;
};

/* What a library has of a device's memory, of all kinds that take some; bytes. */
struct book_holder {
    _Atomic uint64_t live, peak;
};

/* Where one thread counts, so that threads do not meet: what it changed of one account since it
 * last added that to the account, its holder and its device. All sums are those of the lists with
 * those of the desks; a sum that is negative for a moment is 0. Peaks are exact where one thread
 * allocates, else low or high by at most what the desks of the others have, 1 MiB each. A process
 * that is killed while a desk is emptied may have its figures counted twice. */
struct book_desk {
    _Atomic uint32_t taken;
    _Atomic uint32_t account; /* book_account_number(), and 1; 0: none */
    _Atomic uint64_t made, made_bytes;
    _Atomic int64_t live, high; /* bytes; the most that `live` was */
    _Atomic int64_t blocks;     /* live, of kinds that take memory of the device */
    uint64_t padding[2];
};

static inline uint32_t book_account_number(unsigned device, uint32_t library, unsigned kind)
{
    return (device * BOOK_LIBRARIES + library) * RUN_KINDS + kind;
}

struct book_device {
    char uuid[16];    /* as the driver gives it */
    char address[32]; /* on the PCI bus, as NVML wants it; empty where it is not known */
    char name[96];
    uint64_t total;              /* bytes, as the driver says */
    _Atomic uint64_t limit;      /* bytes; UINT64_MAX: none. May be changed while the process
                                    runs */
    _Atomic uint64_t used, peak; /* of the kinds that take memory of the device */
    _Atomic uint64_t blocks;     /* live, of these kinds */
    _Atomic uint32_t asks;       /* the process waits for the first look */
    _Atomic uint32_t looked;  /* `tarn run` has looked, whatever came of it; or the process waits no
                                 longer for that */
    _Atomic uint64_t residue; /* bytes of the process that no hook sees, at the last look;
                                 UINT64_MAX: not known */
    _Atomic uint64_t refused, refused_bytes;
    char refusal[BOOK_TEXT]; /* the first one, filled before `refused` is 1 */
};

struct book_library {
    char path
        [BOOK_PATH]; /* of its file, or "..." and its end; empty: code that belongs to no file */
};

/* Where calls come from. Site 0 is "not known". */
struct book_site {
    uint64_t offset; /* of the return address in the library's file image */
    uint32_t library;
    char symbol[84]; /* the nearest exported symbol; empty where there is none */
};

struct book {
    uint64_t magic;
    uint32_t version, process;
    uint64_t start_ns; /* CLOCK_REALTIME at cuInit */
    char driver[8];    /* "cuda" or "hip" */
    char group[64];    /* the name of the group that it shares limits with; empty: none */
    char command[128];
    uint32_t devices;
    uint32_t
        exact; /* `used` of the devices is kept with each call, for a limit, a group or pools, and
                  desks have no part in it */
    _Atomic uint32_t limited; /* a device may have a limit */
    uint32_t watched;         /* the book is a file: `tarn run` sees it */
    _Atomic uint32_t libraries, sites;
    _Atomic uint64_t unhooked;    /* entry points of versions that are newer than what the shim
                                     knows */
    _Atomic uint64_t unfollowed;  /* allocations that could not be written down, for lack of host
                                     memory */
    _Atomic uint64_t log_count;   /* records in the log */
    _Atomic uint64_t log_lost;    /* and those that found no place */
    _Atomic uint64_t stack_words; /* of 4 bytes, in the file of stacks */
    _Atomic uint32_t ended;       /* the process went through exit() */
    char unhooked_name[64];       /* the first one, filled before `unhooked` is 1 */
    char limit_unmet[48]; /* what the first limit that is of no device calls one, or its beginning;
                             empty: none */
    uint64_t pool;        /* bytes of the largest block that is pooled; 0: none is */
    _Atomic uint32_t pool_ended; /* nothing is pooled any more */
    char pool_why[96];           /* filled before `pool_ended` is 1 */
    struct book_device device[BOOK_DEVICES];
    struct book_library library[BOOK_LIBRARIES];
    struct book_site site[BOOK_SITES];
    struct book_holder holder[BOOK_DEVICES][BOOK_LIBRARIES];
    struct book_account account[BOOK_DEVICES][BOOK_LIBRARIES][RUN_KINDS];
    _Alignas(64) struct book_desk desk[BOOK_DESKS];
};

/* What the desks have of an account, or, with RUN_KINDS, of all kinds of a library that take memory
 * of the device; of all libraries with BOOK_LIBRARIES. */
struct book_unsettled {
    uint64_t made, made_bytes;
    uint64_t live, blocks; /* sums of signed figures: book_positive() */
    int64_t high;          /* the most of one desk */
};

static inline struct book_unsettled book_unsettled(const struct book *book, unsigned device,
                                                   uint32_t library, unsigned kind)
{
    struct book_unsettled sum = {0};
    for (unsigned i = 0; i < BOOK_DESKS; i++) {
        const struct book_desk *desk = &book->desk[i];
        uint32_t number = atomic_load(&desk->account);
        unsigned own_kind = (number - 1) % RUN_KINDS;
        uint32_t own_library = (number - 1) / RUN_KINDS % BOOK_LIBRARIES;
        if (!number || (number - 1) / RUN_KINDS / BOOK_LIBRARIES != device ||
            (library < BOOK_LIBRARIES && own_library != library) ||
            (kind < RUN_KINDS ? own_kind != kind : !run_kind_counts(own_kind)))
            continue;
        int64_t high = atomic_load(&desk->high);
        sum.made += atomic_load(&desk->made);
        sum.made_bytes += atomic_load(&desk->made_bytes);
        sum.live += (uint64_t)atomic_load(&desk->live);
        sum.blocks += (uint64_t)atomic_load(&desk->blocks);
        sum.high = high > sum.high ? high : sum.high;
    }
    return sum;
}

static inline uint64_t book_positive(uint64_t sum)
{
    return (int64_t)sum > 0 ? sum : 0;
}

/* What a library holds of a device's memory. */
static inline uint64_t book_held(const struct book *book, unsigned device, uint32_t library)
{
    return book_positive(atomic_load(&book->holder[device][library].live) +
                         book_unsettled(book, device, library, RUN_KINDS).live);
}

/* A record of the log. It is what it says where it has an address or is a refusal; others have no
 * meaning. */
enum book_what { BOOK_ALLOC, BOOK_FREE, BOOK_REFUSED };
struct book_record {
    uint64_t time_ns;       /* since `start_ns` of the book */
    uint64_t address, size; /* of a refusal by a limit, what was left below that, and what was asked
                               for */
    uint64_t stream;        /* the driver's pointer */
    uint32_t thread;
    uint16_t site;
    uint8_t device, kind;
    uint8_t is_free, padding[3]; /* enum book_what */
    uint32_t stack;              /* of an allocation: in the file of stacks; 0: none */
};

#endif
