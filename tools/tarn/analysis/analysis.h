/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a snapshot says of one device at every moment: which blocks lived, where memory was mapped,
 * what was free.
 *
 * A moment is a number of events: at moment n the first n events have happened. A snapshot without
 * a trace has only moment 0, which is its state. Blocks and ranges are rectangles of addresses and
 * moments. What is true at a moment is a question of which rectangles it crosses. Not thread-safe.
 * The snapshot must outlive its analysis. */
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
    uint64_t room;   /* bytes that it took: from the final state, or rounded up to 512 */
    uint32_t begin;  /* the first moment of its life; 0: it was there before the trace */
    uint32_t freed;  /* the first moment at which its program had freed it, or ANALYSIS_NEVER */
    uint32_t end;    /* the first moment at which it could be used again, or ANALYSIS_NEVER */
    uint32_t stream; /* of snapshot.streams */
    uint32_t pool;   /* of snapshot.pools */
    uint32_t stack;  /* of snapshot.stacks: where it was allocated */
    uint32_t tag;    /* text */
    uint32_t thread; /* that allocated it; 0: not known */
};

/* Memory that the allocator had from the driver. Parts of a mapping that went at different times
 * are ranges of their own. */
struct analysis_range {
    uint64_t address, size; /* bytes */
    uint32_t begin, end;    /* moments; end may be ANALYSIS_NEVER */
    uint32_t stream;        /* of snapshot.streams */
    uint32_t pool;          /* of snapshot.pools */
    bool joins;             /* a free hole may go on in the range behind it: expandable segments */
};

struct analysis_oom {
    uint32_t event; /* index of the event; at the moment of this number it has not happened yet */
    uint64_t asked; /* bytes */
    uint64_t device_free; /* bytes */
    uint64_t there;       /* bytes that the device had at least: allocated and free together */
    uint32_t stream, pool, stack, tag, thread;
};

/* A call site: a frame, and with a depth of 2 or more the path to its caller. Equal paths are
 * stored once. */
struct analysis_path {
    uint32_t frame;  /* of snapshot.frames */
    uint32_t caller; /* of analysis.paths; 0: none that is shown */
};

/* Sums over one moment, bytes. */
struct analysis_state {
    uint64_t allocated;    /* sizes of the blocks that live, as requested */
    uint64_t waiting;      /* sizes of blocks that are freed and cannot be used again yet */
    uint64_t reserved;     /* mapped ranges */
    uint64_t unused;       /* reserved memory that no block covers */
    uint64_t largest_free; /* the largest hole */
    uint64_t idle;         /* the part of `unused` that lies in ranges without a block */
    uint64_t largest_hole; /* the largest hole that touches a range with a block */
    size_t blocks, waiting_blocks, holes, idle_ranges, idle_holes;
};

struct analysis {
    const struct snapshot *snapshot;
    struct workload workload; /* all zero without a trace */
    int device;
    bool has_trace, has_times;
    uint32_t event_count;
    /* ns since the first event, by moment; event_count + 1 values in ascending order */
    uint64_t *times;
    struct analysis_block *blocks; /* ordered by `begin`; those of moment 0 by address */
    struct analysis_range *ranges;
    struct analysis_oom *ooms;
    size_t block_count, range_count, oom_count;
    uint32_t *by_address; /* the blocks in order of address, then of begin */
    uint32_t *range_by_address;
    uint32_t *sites;             /* for each stack: its call site, an index of paths */
    struct analysis_path *paths; /* index 0 stands for "no path" */
    size_t path_count;
    /* for each stack: its module, an index of module_paths; 0: not known */
    uint32_t *modules;
    /* the same for modules; the line of a path's first frame has no meaning */
    struct analysis_path *module_paths;
    size_t module_count;
    uint8_t *categories; /* for each block: enum category */
    /* bytes that were freed while an optimizer ran: its own blocks, and those from before the
     * trace */
    uint64_t renewed;
    /* For each text: one text that stands for all with the same part before the first "/". */
    uint32_t *tops;

    uint32_t peak; /* the first moment at which `allocated` is highest */
    /* the first moment at which `allocated` is highest, of those at which `reserved` is highest */
    uint32_t peak_reserved;
    uint32_t emptiest; /* the first moment at which the free part of `reserved` is highest */
    struct analysis_state at_peak, at_peak_reserved, at_emptiest;
};

/* True if a snapshot has a trace or segments of a device. */
bool analysis_exists(const struct snapshot *snapshot, int device);
/* One more than the highest number of a device that a snapshot names. */
int analysis_devices(const struct snapshot *snapshot);

/* False with `analysis` zeroed when memory is short or the trace has 2^31 events. */
bool analysis_build(const struct snapshot *snapshot, int device, struct analysis *analysis);
void analysis_finish(struct analysis *analysis);

/* Whether the memory is the host's, which a profile lists as one more device. */
static inline bool analysis_is_of_host(const struct analysis *analysis)
{
    return analysis->device + 1 == analysis->snapshot->host_device;
}

/* Whether most of the memory that is reserved at the peak was reserved before the trace began. The
 * trace cannot show why it was. Nor can a replay, because it chooses new places for the blocks that
 * were alive when the trace began. */
bool analysis_begins_late(const struct analysis *analysis);

/* The states at `count` moments in ascending order. False if memory is short. */
bool analysis_states(const struct analysis *analysis, const uint32_t *moments, size_t count,
                     struct analysis_state *states);

/* Whether a recording can show out-of-memory errors: a state and a timeline cannot. */
static inline bool analysis_shows_ooms(const struct analysis *analysis)
{
    return analysis->has_trace && !analysis->snapshot->timeline;
}

/* The moment of an error; `place` is its index in `ooms`. */
static inline uint32_t analysis_oom_moment(const struct analysis *analysis, size_t place)
{
    uint32_t event = analysis->ooms[place].event;
    return event < analysis->event_count ? event : analysis->event_count;
}
/* The moment after an error, whose time is that of the error. */
static inline uint32_t analysis_oom_after(const struct analysis *analysis,
                                          const struct analysis_oom *oom)
{
    return oom->event < analysis->event_count ? oom->event + 1 : analysis->event_count;
}
/* The states at all errors, found in one walk, since a program may have many. The caller frees it.
 * NULL if memory is short. */
struct analysis_state *analysis_oom_states(const struct analysis *analysis);

/* The event of the error that the recording ends with: nothing was allocated after it, so what the
 * program wanted then is not known. ANALYSIS_NEVER if the recording ends otherwise. */
static inline uint32_t analysis_ended_by(const struct analysis *analysis)
{
    if (!analysis->oom_count)
        return ANALYSIS_NEVER;
    uint32_t event = analysis->ooms[analysis->oom_count - 1].event;
    bool more = analysis->block_count && analysis->blocks[analysis->block_count - 1].begin > event;
    return more ? ANALYSIS_NEVER : event;
}

/* The extremes of a range of moments [from, to). */
struct analysis_span {
    uint64_t allocated, reserved; /* the highest of each, bytes */
    uint32_t highest;             /* the first moment at which `allocated` was so */
};
/* Divides all moments into `count` spans: by time if the trace has times, otherwise by events. A
 * span in which nothing happens has the state from before. False if memory is short. */
bool analysis_spans(const struct analysis *analysis, struct analysis_span *spans, size_t count);

/* Whether a block is live at a moment: from its allocation until it is freed. */
static inline bool analysis_lives(const struct analysis_block *block, uint32_t moment)
{
    return block->begin <= moment && moment < block->freed;
}

/* The blocks that live at a moment, the largest first, then by address. The caller frees it. NULL
 * if memory is short. */
uint32_t *analysis_alive(const struct analysis *analysis, uint32_t moment, size_t *count);

/* What blocks are grouped by.
 *
 * A call site is the innermost frame of the program's own code that does not merely pass memory on.
 * Code of PyTorch, Python and installed packages is not the program's own. If a stack has no such
 * frame, the site is a frame that passes memory on, or else one of a backward function, or else one
 * outside of the allocator. analysis_module.c finds the module from the forward() functions of a
 * stack. */
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

/* The call site of blocks that have no stack because they were there before the recording began. */
#define ANALYSIS_SITE_BEFORE UINT32_MAX

struct analysis_group {
    /* a text, category, call site or ANALYSIS_SITE_BEFORE, module, stream, pool or thread; 0 of a
     * text or category: not known */
    uint32_t key;
    uint64_t bytes;
    size_t blocks;
};

uint32_t analysis_key(const struct analysis *analysis, enum analysis_by by,
                      const struct analysis_block *block);
/* The groups of the blocks that live at a moment, the largest first. The caller frees it. NULL if
 * memory is short. */
struct analysis_group *analysis_groups(const struct analysis *analysis, enum analysis_by by,
                                       uint32_t moment, size_t *count);
/* Writes the name of a group, cut to `size` bytes, and returns `label`. Equal groups of two files
 * have equal names. */
const char *analysis_label(const struct analysis *analysis, enum analysis_by by, uint32_t key,
                           char *label, size_t size);

/* How call sites are made from stacks. */
struct analysis_folding {
    unsigned depth; /* frames per call site: the site and its callers; 0: all */
    /* parts of names: functions and files that contain one of them also pass memory on */
    const char *const *folds;
    size_t fold_count;
};

/* Makes the call sites again. False if memory is short; then the analysis is unchanged. */
bool analysis_fold(struct analysis *analysis, const struct analysis_folding *folding);
/* Writes a call site's label. Returns what snprintf() would. */
int analysis_site_label(const struct analysis *analysis, uint32_t site, char *label, size_t size);

/* Finds the modules. False if memory is short; then the analysis is unchanged. */
bool analysis_modules_make(struct analysis *analysis);
/* Writes a module's label. Returns what snprintf() would. */
int analysis_module_label(const struct analysis *analysis, uint32_t module, char *label,
                          size_t size);

/* For analysis_build(): fills `sites`, `modules`, `tops` and `categories`. False when memory is
 * short. */
bool analysis_group_keys(struct analysis *analysis);

#endif
