/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Replays a workload through tarn's public API, with the oracle watching each step.
 *
 * A process can configure tarn only once, so call replay_configure() first, in a process of its
 * own. Results are plain values without pointers, so that they can be sent through a pipe. */
#ifndef TOOLS_REPLAY_H
#define TOOLS_REPLAY_H

#include "input/workload.h"
#include "policy/c10.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define REPLAY_MAX_CALLS 64 /* kinds of driver calls */
#define REPLAY_MAX_REPEAT 10000
#define REPLAY_MAX_SEED 1000000000
#define REPLAY_MAX_STREAMS 256 /* to distribute blocks over */
#define REPLAY_KEPT_DIVERGENCES 8
#define REPLAY_DEFAULT_MEMORY (UINT64_C(80) << 30) /* bytes */
#define REPLAY_MAX_LAG 1e9                         /* ms */
/* Bytes per device; a device takes four times as many addresses. */
#define REPLAY_MAX_MEMORY (UINT64_C(8) << 40)

/* The allocator that runs a trace. */
enum replay_policy {
    REPLAY_TARN,
    REPLAY_NATIVE,
    REPLAY_EXPANDABLE,
    REPLAY_POLICIES
}; /* all except tarn are models of PyTorch */

struct replay_options {
    const char *driver;
    /* Bytes. 0: as much as the recorded device had if that is known, otherwise 80 GiB or 1.25 x the
     * recorded peak, whichever is larger. */
    uint64_t device_memory;
    uint64_t lag;          /* ns from a block's free to the end of its last use */
    uint32_t repeat;       /* at least 1 */
    uint32_t deal_streams; /* streams that blocks are distributed over; 0: the recorded streams */
    uint32_t deal_threads; /* threads that blocks are distributed over; 0: the recorded threads */
    /* seed of a run that differs a little (workload_vary()); 0: no differences */
    uint64_t vary;

    /* the SPEC that these options come from; NULL: the command line alone */
    const char *what_if;
    const char *conf;          /* settings of tarn, or of PyTorch's policy; NULL: none */
    enum replay_policy policy; /* a model runs alone; tarn runs beside all models */
    bool least;                /* search the smallest devices */
    int only;          /* one more than the number of the device to replay; 0: all of the file */
    bool leave_ranges; /* without the pages of ranges (workload_leave_ranges()) */
    bool compare; /* runs are compared: one that does not fit is a result, and waste is measured */
};

/* An allocation that found no room. */
struct replay_shortage {
    bool there, before; /* before: it was one of the blocks from before the trace */
    uint64_t event;     /* its number in the trace */
    uint64_t size;      /* bytes that were requested */
};

/* One repetition: the blocks from before the trace are allocated, then the trace runs. Driver
 * calls, times and peaks come from the ledger, since the end of the previous repetition. */
struct replay_repetition {
    double seconds; /* for the events, including the oracle */
    /* for freeing what the previous repetition left, and allocating the blocks from before the
     * trace */
    double setup_seconds;
    uint64_t peak_active, peak_reserved; /* bytes */
    uint64_t time_a_ns, time_b_ns;       /* driver time by cost tables A and B, waits included */
    uint64_t time_c_ns;                  /* the same by table C, if there is one */
    uint64_t waited_ns;                  /* the part of it that was spent waiting for work */
    uint64_t calls[REPLAY_MAX_CALLS];    /* of the driver, by kind */
};

/* The result of a model. */
struct replay_model {
    struct c10_result run;
    /* driver time by the cost tables; C if there is one */
    uint64_t time_a_ns, time_b_ns, time_c_ns;
};

struct replay_result {
    int device;
    bool modelled;          /* the recorded segments come from a model, not from a GPU */
    uint64_t device_memory; /* bytes */
    uint64_t events, streams, threads, pools, allocations, initial_blocks, recorded_ooms,
        lost_events;
    uint64_t waits, captures, refused; /* refused: waits and captures that could not be repeated */
    /* recorded failures that were tried again and failed here too */
    uint64_t ooms_here;
    uint64_t ooms_tried;
    /* the size of the recorded device is not known, so no failed request was tried */
    bool unsized;
    bool has_order; /* tarn made the recording */
    uint64_t late_frees, moved_frees,
        /* moved: frees on another stream than the block's; trims: by the program itself */
        trims;
    uint64_t lag;                                        /* ns */
    uint64_t peak_requested, peak_active, peak_reserved; /* bytes, over all repetitions */
    uint64_t recorded_peak_reserved;                     /* bytes, or WORKLOAD_NOT_KNOWN */
    /* The cause of `error`; for a model that runs alone, its first allocation without room */
    struct replay_shortage shortage;
    struct replay_shortage denied; /* the first request that failed in the recording and here */
    /* bytes: reserved - requested when reserved reached its peak; only with `compare` */
    uint64_t wasted;
    struct replay_model models[REPLAY_POLICIES]; /* by policy; tarn's is empty */
    /* bytes: the smallest device of each policy; 0: not searched or not found */
    uint64_t least[REPLAY_POLICIES];
    bool has_table_c; /* false if TARN_HOST_COSTS is empty */
    /* the first repetition, which starts from an empty device as the models do */
    struct replay_repetition first;
    uint64_t repetitions; /* how many were run */
    uint64_t divergences;
    char divergence[REPLAY_KEPT_DIVERGENCES][256]; /* the first ones */
    char error[512];                               /* why the replay stopped; empty if it did not */
    char call_names[REPLAY_MAX_CALLS][24];
};

/* The memory of the device that a workload runs on: from the options, or that of the recorded
 * device, or enough. */
uint64_t replay_device_memory(const struct replay_options *options,
                              const struct workload *workload);

/* The first allocation without room, among them requests that failed in the recording; NULL if
 * there was none. */
const struct replay_shortage *replay_lack(const struct replay_result *result);

/* Chooses the driver, and creates its devices. False with `error` filled. */
bool replay_configure(const struct replay_options *options, int devices, uint64_t memory,
                      char *error, size_t error_size);

/* Replays a workload on its device. Calls `repeated` after every repetition. `progress`, which may
 * be NULL, counts operations. False with result->error filled if an operation failed that succeeded
 * in the recording, or host memory is short; `result` has what was measured until then. Divergences
 * do not make it return false; they are in `result`. */
bool replay_run(const struct replay_options *options, const struct workload *workload,
                void (*repeated)(void *context, const struct replay_repetition *repetition),
                void *context, _Atomic uint64_t *progress, struct replay_result *result);

/* Fills in what a result says of the workload, and none of what is measured. */
void replay_describe(const struct replay_options *options, const struct workload *workload,
                     struct replay_result *result);

/* A model's settings: those of the options, otherwise PyTorch's defaults. */
struct c10_policy replay_policy_settings(const struct replay_options *options,
                                         enum replay_policy policy);

/* Runs a model on a device of `memory` bytes, into result->models. False if host memory is
 * short. */
bool replay_run_model(const struct replay_options *options, const struct workload *workload,
                      uint64_t memory, enum replay_policy policy, struct replay_result *result);

/* Runs the model that the options name, alone. An allocation without room is in result->shortage
 * and is not a failure: the policy goes on without it. False with result->error filled if host
 * memory is short. */
bool replay_run_alone(const struct replay_options *options, const struct workload *workload,
                      uint64_t memory, struct replay_result *result);

#endif
