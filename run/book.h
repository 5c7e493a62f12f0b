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
#define RUN_FOLDER_VARIABLE "TARN_RUN_FOLDER" /* the folder for books and logs */
#define RUN_LIMIT_VARIABLE "TARN_RUN_LIMIT"   /* the argument of --limit */
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
/* the greatest size of a log; a process maps that many addresses for it */
#define BOOK_LOG_BYTES (UINT64_C(1) << 32)
#define BOOK_STACKS_BYTES (UINT64_C(1) << 26) /* the greatest size of the file of stacks */

/* Kinds of allocations. X(name, text, whether the kind takes memory of the device) */
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

/* What one library has of one kind on one device, in bytes. For kinds that take memory of the
 * device, `live` is in the library's holder, not here. Of graph nodes only `made` and `made_bytes`
 * are known. */
struct book_account {
    _Atomic uint64_t made, made_bytes; /* totals since the start */
    _Atomic uint64_t live, peak;
};

/* The bytes that one library has of one device's memory, over all kinds that take some. */
struct book_holder {
    _Atomic uint64_t live, peak;
};

/* Where one thread counts, so that threads do not write to shared counters. A desk has the thread's
 * changes to one account since it last added them to the account, its holder and its device. A
 * reader adds the desks to the lists; if a sum is negative for a moment, it reads it as 0.
 *
 * Peaks are exact if one thread allocates. Otherwise they are low or high by at most what the desks
 * of the other threads have, 1 MiB each. If a process is killed while a desk is emptied, that
 * desk's figures may be counted twice: `made`, `made_bytes` and `live` of the account or the
 * holder, `blocks`, `used` unless `exact` is set, and the peaks that a reader computes from
 * these. */
struct book_desk {
    _Atomic uint32_t taken;
    _Atomic uint32_t account; /* book_account_number() + 1; 0: none */
    _Atomic uint64_t made, made_bytes;
    _Atomic int64_t live, high; /* bytes; `high` is the greatest value of `live` */
    _Atomic int64_t blocks;     /* live blocks, of kinds that take memory of the device */
    uint64_t padding[2];
};

static inline uint32_t book_account_number(unsigned device, uint32_t library, unsigned kind)
{
    return (device * BOOK_LIBRARIES + library) * RUN_KINDS + kind;
}

struct book_device {
    char uuid[16];    /* as the driver gives it */
    char address[32]; /* on the PCI bus, in NVML's form; empty: not known */
    char name[96];
    uint64_t total; /* bytes, as the driver reports it */
    /* Bytes; UINT64_MAX: none. The process writes it, again if group_limits() finds other limits
     * in its group. */
    _Atomic uint64_t limit;
    _Atomic uint64_t used, peak; /* bytes, of kinds that take memory of the device */
    /* bytes of `used` in imported pieces of kept pools, which NVML counts for no process */
    _Atomic uint64_t taken_over;
    _Atomic uint64_t blocks; /* live blocks of these kinds */
    _Atomic uint32_t asks;   /* set by the process: it waits for the first look of `tarn run` */
    /* set by `tarn run` after its first look, or by the process when it stops waiting for one */
    _Atomic uint32_t looked;
    /* bytes of the process that no hook saw, at the last look; UINT64_MAX: not known */
    _Atomic uint64_t residue;
    _Atomic uint64_t refused, refused_bytes;
    char refusal[BOOK_TEXT]; /* text of the first refusal; complete before `refused` is 1 */
};

struct book_library {
    /* path of the file; if it is too long, "..." and the end of the path. Empty: code of no file */
    char path[BOOK_PATH];
};

/* A call site: where an allocation was called from. Site 0 is "not known". */
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
    char group[64];    /* the name of the group whose limits the process shares; empty: none */
    char command[128];
    uint32_t devices;
    /* nonzero: the process began with a limit, in a group or with pools. Each call updates `used`
     * and its peak at once, and what desks have does not belong to them; accounts, holders and
     * `blocks` still wait for the desks. Constant, also if the limits go later */
    uint32_t exact;
    _Atomic uint32_t limited; /* a device has or had a limit: set once, never cleared */
    uint32_t watched;         /* the book is a file that `tarn run` reads */
    _Atomic uint32_t libraries, sites;
    /* requests for entry points of versions that are newer than the shim knows */
    _Atomic uint64_t unhooked;
    /* allocations that were not written down, for lack of host memory */
    _Atomic uint64_t unfollowed;
    _Atomic uint64_t log_count;   /* records, including those that found no place in the file */
    _Atomic uint64_t log_lost;    /* records that found no place in the file */
    _Atomic uint64_t stack_words; /* words of 4 bytes in the file of stacks */
    _Atomic uint32_t ended;       /* the process went through exit() */
    char unhooked_name[64];       /* name of the first one; complete before `unhooked` is 1 */
    /* the beginning of the first limit's device name that fits no device; empty: none. Constant
     * after the start, also if the limits change */
    char limit_unmet[48];
    uint64_t pool; /* bytes of the largest block that is pooled; 0: nothing is pooled */
    _Atomic uint32_t pool_ended; /* pooling has ended */
    char pool_why[96];           /* the reason; complete before `pool_ended` is 1 */
    struct book_device device[BOOK_DEVICES];
    struct book_library library[BOOK_LIBRARIES];
    struct book_site site[BOOK_SITES];
    struct book_holder holder[BOOK_DEVICES][BOOK_LIBRARIES];
    struct book_account account[BOOK_DEVICES][BOOK_LIBRARIES][RUN_KINDS];
    _Alignas(64) struct book_desk desk[BOOK_DESKS];
};

/* The sum of all desks for an account. RUN_KINDS as `kind`: for all kinds that take memory of the
 * device. BOOK_LIBRARIES as `library`: for all libraries. */
struct book_unsettled {
    uint64_t made, made_bytes;
    uint64_t live, blocks; /* sums of signed figures: read with book_positive() */
    int64_t high;          /* the greatest `high` of a single desk */
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

/* Bytes of a device's memory that a library has. */
static inline uint64_t book_held(const struct book *book, unsigned device, uint32_t library)
{
    return book_positive(atomic_load(&book->holder[device][library].live) +
                         book_unsettled(book, device, library, RUN_KINDS).live);
}

/* A record of the log. A record whose address is 0 was not completed and has no meaning, unless it
 * is a refusal. */
enum book_what { BOOK_ALLOC, BOOK_FREE, BOOK_REFUSED };
struct book_record {
    uint64_t time_ns;       /* since the book's `start_ns` */
    uint64_t address, size; /* of a refusal: bytes left below the limit, and bytes asked for */
    uint64_t stream;        /* the stream as the driver's pointer */
    uint32_t thread;
    uint16_t site;
    uint8_t device, kind;
    uint8_t is_free, padding[3]; /* enum book_what */
    uint32_t stack;              /* of an allocation: its stack's number (stack.c); 0: none */
};

#endif
