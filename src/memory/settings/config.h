/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The settings of the memory layer: PyTorch's configuration string (c10/core/AllocatorConfig.h,
 * c10/cuda/CUDAAllocatorConfig.h), and tarn's own keys. The settings in force are an immutable
 * copy, which is never freed: call memory_config() without a lock, at any time. Two calls may
 * return different copies. */
#ifndef TARN_MEMORY_CONFIG_H
#define TARN_MEMORY_CONFIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/config.h>
#include <tarn/memory.h>

#define CONFIG_MIB ((size_t)1 << 20)
#define CONFIG_NONE SIZE_MAX            /* bytes: no such limit */
#define CONFIG_ONE ((size_t)1000000000) /* fractions are whole billionths */
#define CONFIG_DIVISIONS 16   /* by doubling sizes: below 2 MiB, below 4 MiB, ..., from 32 GiB on */
#define CONFIG_CLASSES 16     /* named classes of streams */
#define CONFIG_CLASS_BYTES 32 /* of a name, with the 0 at its end */
#define CONFIG_PATH_BYTES 256 /* of a path, with the 0 at its end */
#define CONFIG_MOST_MIB (TARN_MAX_SIZE >> 20)    /* of sizes in MiB */
#define CONFIG_MOST_MS ((size_t)86400000)        /* a day */
#define CONFIG_RESERVE_MOST (CONFIG_ONE / 8 * 9) /* fraction of the device's memory */

enum config_backend { CONFIG_NATIVE, CONFIG_ASYNC };
enum config_compaction {
    CONFIG_COMPACTION_OFF,
    CONFIG_COMPACTION_ON_OOM,
    CONFIG_COMPACTION_ON_OOM_QUIET
};
enum config_segments {
    CONFIG_SEGMENTS_BY_DRIVER,
    CONFIG_SEGMENTS_VIRTUAL,
    CONFIG_SEGMENTS_PLAIN,
    CONFIG_SEGMENTS_EXACT
};

/* An amount of address space. */
struct config_reserve {
    size_t absolute; /* 1: `amount` is bytes; 0: billionths of the device's memory */
    size_t amount;
};

struct config_class {
    char name[CONFIG_CLASS_BYTES]; /* "": there are no further classes */
    struct config_reserve reserve;
};

/* Without padding, so that two copies can be compared as bytes. */
struct memory_config {
    /* PyTorch's settings */
    size_t backend;                                    /* enum config_backend */
    size_t max_split_size, max_non_split_rounding;     /* bytes */
    size_t large_segment_size;                         /* bytes */
    size_t garbage_collection_threshold;               /* billionths; 0 is off */
    size_t roundup_power2_divisions[CONFIG_DIVISIONS]; /* powers of two; 0: off (config_round()) */
    /* 0 or 1, like every field without a comment. */
    size_t expandable_segments;
    struct config_reserve expandable_segments_reserve;
    struct config_class expandable_segments_reserve_by_class[CONFIG_CLASSES];
    size_t release_lock_on_cudamalloc;
    size_t graph_capture_record_stream_reuse;
    size_t per_process_memory_fraction; /* billionths (config_limit()) */
    size_t throw_on_cudamalloc_oom;
    size_t pinned_use_cuda_host_register;
    size_t pinned_num_register_threads; /* a power of two */
    size_t pinned_use_background_threads;
    size_t pinned_reserve_segment_size; /* bytes; 0: none */
    size_t pinned_free_catch_all;
    size_t pinned_max_round_threshold, pinned_max_cached_size; /* bytes; CONFIG_NONE: no limit */

    /* tarn's own settings */
    size_t compaction; /* enum config_compaction */
    size_t segments;   /* enum config_segments */
    size_t limit;      /* bytes; CONFIG_NONE: no limit (config_limit()) */
    /* Bytes of each device's memory that stay free, by the driver's own count. */
    size_t leave_free;
    size_t pinned_limit;          /* bytes; CONFIG_NONE: no limit */
    size_t idle_release;          /* ms until idle memory goes back by itself; 0: never */
    size_t idle_workspaces;       /* bytes per device of unused workspaces that handles may keep */
    char plan[CONFIG_PATH_BYTES]; /* path of the plan file (plan_file.h); "": none */
};

/* How a value is written. The first four kinds are words, and the field is the index of the
 * word. */
enum config_kind {
    CONFIG_BOOLEAN,
    CONFIG_BACKEND,
    CONFIG_SEGMENTS,
    CONFIG_COMPACTION,
    CONFIG_MEBIBYTES,
    CONFIG_MILLISECONDS,
    CONFIG_POWER,    /* a power of two */
    CONFIG_FRACTION, /* 0 to 1; 0 and 1 are excluded if `least` and `most` say so */
    CONFIG_RESERVE,
    CONFIG_LIST_OF_DIVISIONS,
    CONFIG_LIST_OF_CLASSES,
    CONFIG_PATH, /* text to the next separator; blanks inside it count */
};

enum config_rule {
    CONFIG_STAYS,  /* stays until it is set again */
    CONFIG_RESETS, /* reset by each text that does not name it */
    CONFIG_LOADED, /* as CONFIG_STAYS, but constant once memory was used */
};

#define CONFIG_RANGE \
    "a device has one address range, for all streams, of up to four times its memory"
#define CONFIG_LARGE_SEGMENT SIZE_MAX /* as `least`: the value of large_segment_size_mb */

/* X(key, field, kind, rule, initial, least, most, reason): `least` and `most` are in the unit of
 * the written value. `reason` says why the key has no effect; "" if it has one. */
#define MEMORY_CONFIG_LIST(X)                                                                      \
    X(backend, backend, CONFIG_BACKEND, CONFIG_LOADED, CONFIG_NATIVE, 0, 0, "")                    \
    X(max_split_size_mb, max_split_size, CONFIG_MEBIBYTES, CONFIG_RESETS, CONFIG_NONE,             \
      CONFIG_LARGE_SEGMENT, CONFIG_MOST_MIB, "")                                                   \
    X(max_non_split_rounding_mb, max_non_split_rounding, CONFIG_MEBIBYTES, CONFIG_RESETS,          \
      20 * CONFIG_MIB, CONFIG_LARGE_SEGMENT, CONFIG_MOST_MIB, "")                                  \
    X(large_segment_size_mb, large_segment_size, CONFIG_MEBIBYTES, CONFIG_STAYS, 20 * CONFIG_MIB,  \
      11, CONFIG_MOST_MIB, "")                                                                     \
    X(garbage_collection_threshold, garbage_collection_threshold, CONFIG_FRACTION, CONFIG_RESETS,  \
      0, 1, CONFIG_ONE - 1, "")                                                                    \
    X(roundup_power2_divisions, roundup_power2_divisions, CONFIG_LIST_OF_DIVISIONS, CONFIG_RESETS, \
      {0}, 0, 0, "")                                                                               \
    X(expandable_segments, expandable_segments, CONFIG_BOOLEAN, CONFIG_STAYS, 0, 0, 0,             \
      "tarn's memory grows in place whatever this says, where the driver has virtual memory")      \
    X(expandable_segments_reserve, expandable_segments_reserve, CONFIG_RESERVE, CONFIG_STAYS,      \
      {.amount = CONFIG_RESERVE_MOST}, 0, 0, CONFIG_RANGE)                                         \
    X(expandable_segments_reserve_by_class, expandable_segments_reserve_by_class,                  \
      CONFIG_LIST_OF_CLASSES, CONFIG_STAYS, {{.name = ""}}, 0, 0, CONFIG_RANGE)                    \
    X(release_lock_on_cudamalloc, release_lock_on_cudamalloc, CONFIG_BOOLEAN, CONFIG_STAYS, 0, 0,  \
      0, "tarn holds no lock of a device or a stream while it asks the driver for memory")         \
    X(graph_capture_record_stream_reuse, graph_capture_record_stream_reuse, CONFIG_BOOLEAN,        \
      CONFIG_STAYS, 0, 0, 0, "")                                                                   \
    X(per_process_memory_fraction, per_process_memory_fraction, CONFIG_FRACTION, CONFIG_STAYS,     \
      CONFIG_ONE, 0, CONFIG_ONE, "")                                                               \
    X(throw_on_cudamalloc_oom, throw_on_cudamalloc_oom, CONFIG_BOOLEAN, CONFIG_STAYS, 0, 0, 0, "") \
    X(pinned_use_cuda_host_register, pinned_use_cuda_host_register, CONFIG_BOOLEAN, CONFIG_STAYS,  \
      0, 0, 0, "")                                                                                 \
    X(pinned_num_register_threads, pinned_num_register_threads, CONFIG_POWER, CONFIG_STAYS, 1, 1,  \
      128, "")                                                                                     \
    X(pinned_use_background_threads, pinned_use_background_threads, CONFIG_BOOLEAN, CONFIG_STAYS,  \
      0, 0, 0, "")                                                                                 \
    X(pinned_reserve_segment_size_mb, pinned_reserve_segment_size, CONFIG_MEBIBYTES, CONFIG_STAYS, \
      0, 1, CONFIG_MOST_MIB, "")                                                                   \
    X(pinned_free_catch_all, pinned_free_catch_all, CONFIG_BOOLEAN, CONFIG_STAYS, 0, 0, 0,         \
      "tarn's free throws no exception")                                                           \
    X(pinned_max_round_threshold_mb, pinned_max_round_threshold, CONFIG_MEBIBYTES, CONFIG_STAYS,   \
      CONFIG_NONE, 0, CONFIG_MOST_MIB, "")                                                         \
    X(pinned_max_cached_size_mb, pinned_max_cached_size, CONFIG_MEBIBYTES, CONFIG_STAYS,           \
      CONFIG_NONE, 0, CONFIG_MOST_MIB, "")                                                         \
    X(compaction, compaction, CONFIG_COMPACTION, CONFIG_STAYS, CONFIG_COMPACTION_OFF, 0, 0, "")    \
    X(segments, segments, CONFIG_SEGMENTS, CONFIG_LOADED, CONFIG_SEGMENTS_BY_DRIVER, 0, 0, "")     \
    X(limit_mb, limit, CONFIG_MEBIBYTES, CONFIG_STAYS, CONFIG_NONE, 0, CONFIG_MOST_MIB, "")        \
    X(leave_free_mb, leave_free, CONFIG_MEBIBYTES, CONFIG_STAYS, 0, 0, CONFIG_MOST_MIB, "")        \
    X(pinned_limit_mb, pinned_limit, CONFIG_MEBIBYTES, CONFIG_STAYS, CONFIG_NONE, 0,               \
      CONFIG_MOST_MIB, "")                                                                         \
    X(idle_release, idle_release, CONFIG_MILLISECONDS, CONFIG_STAYS, 0, 0, CONFIG_MOST_MS, "")     \
    X(idle_workspaces_mb, idle_workspaces, CONFIG_MEBIBYTES, CONFIG_STAYS, 128 * CONFIG_MIB, 0,    \
      CONFIG_MOST_MIB, "")                                                                         \
    X(plan, plan, CONFIG_PATH, CONFIG_LOADED, "", 0, 0, "")

/* X(alias, key): other names of a key, from PyTorch on ROCm. */
#define MEMORY_CONFIG_ALIASES(X)                             \
    X(release_lock_on_hipmalloc, release_lock_on_cudamalloc) \
    X(pinned_use_hip_host_register, pinned_use_cuda_host_register)

extern _Atomic(const struct memory_config *) memory_config_now;

/* The settings in force; the defaults before memory_config_ready() has succeeded. */
static inline const struct memory_config *memory_config(void)
{
    return atomic_load_explicit(&memory_config_now, memory_order_acquire);
}

/* Reads the environment at the first call. TARN_ERROR_CONFIGURATION at every call while the
 * environment is malformed. */
tarn_status memory_config_ready(void);
/* The same for the first use of memory: from then on settings of rule CONFIG_LOADED are constant.
 * Call after device_layer_ready() has succeeded. */
tarn_status memory_config_use(void);

/* Rounds a requested size, at most TARN_MAX_SIZE: to a division of its power of two if that is set,
 * otherwise to TARN_BLOCK_UNIT. */
size_t config_round(const struct memory_config *config, size_t size);

/* The most bytes that the settings let tarn reserve on a device with `memory` bytes; CONFIG_NONE:
 * no limit. */
size_t config_limit(const struct memory_config *config, size_t memory);

/* Text (config_text.c) ------------------------------------------------------------------------- */

extern const struct memory_config memory_config_defaults;

/* Changes `config` by `text`. On failure `config` is unchanged. `source` names the text in errors.
 * `fixed` is NULL, or the settings in force, of which some cannot change. */
tarn_status config_parse(const char *source, const char *text, const struct memory_config *fixed,
                         struct memory_config *config);

/* Writes the settings as text with a terminating 0, as far as they fit. Returns the bytes of the
 * whole text with its 0. */
size_t config_format(const struct memory_config *config, char *buffer, size_t size);

/* Returns "key: reason" for the key with this number, from 0, if the key has no effect and its
 * value is not the default; otherwise NULL. */
#define X(key, ...) CONFIG_KEY_##key,
enum config_key { MEMORY_CONFIG_LIST(X) CONFIG_KEYS };
#undef X
const char *config_note(const struct memory_config *config, int key);

#endif
