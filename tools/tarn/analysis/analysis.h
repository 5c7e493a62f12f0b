/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What one device's part of a snapshot says, at every moment: which blocks lived, where memory was
 * mapped, what was free.
 *
 * A moment is a number of events: at moment 0 none has happened, at moment n the first n have. A
 * snapshot without a trace has the one moment 0, which is its state. Blocks and ranges are
 * rectangles in address and moments, so all that is asked of a moment is which of them it crosses.
 * Not thread-safe; the snapshot must outlive its analysis. */
#ifndef TOOLS_ANALYSIS_H
#define TOOLS_ANALYSIS_H

#include "input/snapshot.h"
#include "input/workload.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANALYSIS_NEVER UINT32_MAX

/* Memory that a program had, from its allocation to when it could be used again. */
struct analysis_block {
    uint64_t address;
    uint64_t size;   /* bytes, as requested */
    uint64_t room;   /* bytes that it took: as the final state has it, or rounded up to 512 */
    uint32_t begin;  /* the first moment of its life; 0: it was there before the trace */
    uint32_t freed;  /* the first moment at which its program had freed it, or ANALYSIS_NEVER */
    uint32_t end;    /* the first moment at which it could be used again, or ANALYSIS_NEVER */
    uint32_t stream; /* of snapshot.streams */
    uint32_t pool;   /* of snapshot.pools */
    uint32_t stack;  /* of snapshot.stacks: where it was allocated */
    uint32_t tag;    /* text */
    uint32_t thread; /* that allocated it; 0: not known */
};

/* Memory that the allocator had from the driver. */
struct analysis_range {
    uint64_t address, size; /* bytes */
    uint32_t begin, end;    /* moments; end may be ANALYSIS_NEVER */
    uint32_t stream;        /* of snapshot.streams */
    uint32_t pool;          /* of snapshot.pools */
    bool joins;             /* a free hole may go on in the range behind it: expandable segments */
};

struct analysis_oom {
    uint32_t event; /* its number in the trace; the state in which it happened is that of the moment
                       of this number */
    uint64_t asked; /* bytes */
    uint64_t device_free; /* bytes */
    uint64_t there;       /* bytes: the device had them at least, what was allocated and what was
                             free */
    uint32_t stream, pool, stack, tag, thread;
};

/* A call site: the frame that is shown, and with a depth of 2 or more the path to its caller.
 * Distinct ones are stored once. */
struct analysis_path {
    uint32_t frame;  /* of snapshot.frames */
    uint32_t caller; /* of analysis.paths; 0: none that is shown */
};

/* Sums over one moment, bytes. */
struct analysis_state {
    uint64_t allocated;    /* sizes of the blocks that live, as requested */
    uint64_t waiting;      /* the same of those that are freed and cannot be used again yet */
    uint64_t reserved;     /* mapped ranges */
    uint64_t unused;       /* what of these no block covers */
    uint64_t largest_free; /* the largest hole */
    uint64_t idle;         /* what of `unused` lies in ranges without a block */
    uint64_t largest_hole; /* the largest hole that is not only of such ranges */
    size_t blocks, waiting_blocks, ranges, holes, idle_ranges, idle_holes;
};

struct analysis {
    const struct snapshot *snapshot;
    struct workload workload; /* zeroed where there is no trace */
    int device;
    bool has_trace, has_times;
    uint32_t event_count;
    uint64_t *times;               /* ns since the first event, by moment; event_count + 1 of them,
                                      never falling */
    struct analysis_block *blocks; /* by begin; those of moment 0 by address */
    struct analysis_range *ranges;
    struct analysis_oom *ooms;
    size_t block_count, range_count, oom_count;
    uint32_t *by_address; /* the blocks in order of address, then of begin */
    uint32_t *range_by_address;
    uint32_t *sites;             /* by stack: its call site, of paths; see below */
    struct analysis_path *paths; /* index 0 stands for "no path" */
    size_t path_count;
    uint32_t *modules;                  /* by stack: its module, of module_paths; 0: none is told */
    struct analysis_path *module_paths; /* the same for modules: the line of the first frame says
                                           nothing */
    size_t module_count;
    uint8_t *categories; /* by block: enum category */
    uint64_t renewed;    /* bytes that were freed while an optimizer ran: its own, and of before the
                            trace */
    /* By text: a text that begins with the same part before the first "/" and stands for all of
     * these. */
    uint32_t *tops;

    uint32_t peak;          /* the first moment at which `allocated` is highest */
    uint32_t peak_reserved; /* of the moments at which `reserved` is highest the first at which most
                               is allocated */
    uint32_t emptiest;      /* the first moment at which most of `reserved` is free */
    struct analysis_state at_peak, at_peak_reserved, at_emptiest;
};

/* Whether a snapshot has anything of a device: a trace or segments. */
bool analysis_exists(const struct snapshot *snapshot, int device);
/* How many devices to ask for: one more than the highest that a snapshot names. */
int analysis_devices(const struct snapshot *snapshot);

/* False with `analysis` zeroed when memory is short or the trace has 2^31 events. */
bool analysis_build(const struct snapshot *snapshot, int device, struct analysis *analysis);
void analysis_finish(struct analysis *analysis);

/* Whether most of what was reserved at the peak was so before the trace. Then the trace does not
 * show why, and a replay, which places the blocks from before it anew, does not either. */
bool analysis_begins_late(const struct analysis *analysis);

/* The states at `count` moments that do not fall. False when memory is short. */
bool analysis_states(const struct analysis *analysis, const uint32_t *moments, size_t count,
                     struct analysis_state *states);

/* The moment of an error, by its place in `ooms`. */
static inline uint32_t analysis_oom_moment(const struct analysis *analysis, size_t place)
{
    uint32_t event = analysis->ooms[place].event;
    return event < analysis->event_count ? event : analysis->event_count;
}
/* The states at all errors, found in one walk, since a program that goes on after them may have
 * many; the caller frees it. NULL when memory is short. */
struct analysis_state *analysis_oom_states(const struct analysis *analysis);

/* How a range of moments went: [from, to), and the moments at which its extremes were. */
struct analysis_span {
    uint64_t allocated, reserved; /* the highest of each, bytes */
    uint32_t highest;             /* the first moment at which `allocated` was so */
};
/* Divides all moments into `count` spans, by time where the trace has times, else by events. A span
 * of time in which nothing happened has what was before it. False when memory is short. */
bool analysis_spans(const struct analysis *analysis, struct analysis_span *spans, size_t count);

/* Whether a block is allocated at a moment, and whether it is freed but not to be used again
 * yet. */
static inline bool analysis_lives(const struct analysis_block *block, uint32_t moment)
{
    return block->begin <= moment && moment < block->freed;
}
static inline bool analysis_waits(const struct analysis_block *block, uint32_t moment)
{
    return block->freed <= moment && moment < block->end;
}

/* The blocks that live at a moment, the largest first and then by address; the caller frees it.
 * NULL when memory is short. */
uint32_t *analysis_alive(const struct analysis *analysis, uint32_t moment, size_t *count);

/* What blocks are put together by. A call site is the innermost frame that belongs to neither
 * PyTorch nor Python nor an installed package and only hands on what it allocates; where a stack
 * has none such, one that hands on, of a backward function, or of what is no allocator. A module is
 * told by the forward() functions of a stack: analysis_module.c. */
enum analysis_by {
    ANALYSIS_BY_TAG,
    ANALYSIS_BY_TOP, /* the part of the tag before the first "/" */
    ANALYSIS_BY_CATEGORY,
    ANALYSIS_BY_SITE,
    ANALYSIS_BY_MODULE,
    ANALYSIS_BY_STREAM,
    ANALYSIS_BY_POOL,
    ANALYSIS_BY_THREAD,
    ANALYSIS_BY_COUNT,
};

/* The call site of blocks without a stack that were there before the recording began. */
#define ANALYSIS_SITE_BEFORE UINT32_MAX

struct analysis_group {
    uint32_t
        key; /* text, category, call site or ANALYSIS_SITE_BEFORE, module, stream, pool, thread; 0
                of the first two: none is known */
    uint64_t bytes;
    size_t blocks;
};

uint32_t analysis_key(const struct analysis *analysis, enum analysis_by by,
                      const struct analysis_block *block);
/* The groups of the blocks that live at a moment, the largest first; the caller frees it. NULL when
 * memory is short. */
struct analysis_group *analysis_groups(const struct analysis *analysis, enum analysis_by by,
                                       uint32_t moment, size_t *count);
/* What to call a group, cut to `size` bytes; the same in every file that has the same of it. Gives
 * `label`. */
const char *analysis_label(const struct analysis *analysis, enum analysis_by by, uint32_t key,
                           char *label, size_t size);

/* How call sites are made of stacks. */
struct analysis_folding {
    unsigned depth;           /* so many frames of a stack: the site, its callers; 0: all of them */
    const char *const *folds; /* functions and files with one of these in their name hand on what
                                 they allocate, too */
    size_t fold_count;
};

/* Makes the call sites again. False when memory is short; then the analysis is as it was. */
bool analysis_fold(struct analysis *analysis, const struct analysis_folding *folding);
/* Writes a call site's label; gives what snprintf() would. */
int analysis_site_label(const struct analysis *analysis, uint32_t site, char *label, size_t size);

/* Finds the modules. False when memory is short; then the analysis is as it was. */
bool analysis_modules_make(struct analysis *analysis);
/* Writes a module's label; gives what snprintf() would. */
int analysis_module_label(const struct analysis *analysis, uint32_t module, char *label,
                          size_t size);

/* For analysis_build(): fills `sites`, `modules`, `tops` and `categories`. False when memory is
 * short. */
bool analysis_group_keys(struct analysis *analysis);

#endif
