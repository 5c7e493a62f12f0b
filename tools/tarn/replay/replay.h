/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Replays a workload through tarn's public API, each step watched by the oracle.
 *
 * Uses tarn, which a process can configure once: call replay_configure() first, in a process of its
 * own. The results are plain values without pointers, fit to be sent through a pipe. */
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
#define REPLAY_MAX_STREAMS 256 /* to deal over */
#define REPLAY_KEPT_DIVERGENCES 8
#define REPLAY_DEFAULT_MEMORY (UINT64_C(80) << 30) /* bytes */
#define REPLAY_MAX_LAG 1e9                         /* ms */
#define REPLAY_MAX_MEMORY \
    (UINT64_C(8) << 40) /* bytes per device: it takes four times as many
                           addresses */

/* Whose allocator runs a trace. */
enum replay_policy {
    REPLAY_TARN,
    REPLAY_NATIVE,
    REPLAY_EXPANDABLE,
    REPLAY_POLICIES
}; /* all except tarn's are models of PyTorch's */

struct replay_options {
    const char *driver;
    /* Bytes; 0: the recorded device's where that is known, else the larger of 80 GiB and 1.25 x the
     * recorded peak. */
    uint64_t device_memory;
    uint64_t lag;          /* ns from a block's free to the end of its last use */
    uint32_t repeat;       /* at least 1 */
    uint32_t deal_streams; /* streams that the blocks are dealt over; 0: those of the recording */
    uint32_t deal_threads; /* threads that they are dealt over; 0: one */
    uint64_t vary;         /* seed of a run that differs a little: workload_vary(); 0: none */

    const char *what_if;       /* the text that these options are from; NULL for those of the
                                  command line */
    const char *conf;          /* settings, or of PyTorch's policy; NULL: none */
    enum replay_policy policy; /* a model is run alone; tarn beside all of them */
    bool least;                /* the smallest devices are searched */
    bool compare; /* runs are compared: it is an answer that one does not fit, and what is wasted is
                     measured */
};

/* The allocation that found no room. */
struct replay_shortage {
    bool there, before; /* before: among what was alive before the trace */
    uint64_t event;     /* its number in the trace */
    uint64_t size;      /* bytes, as asked for */
};

/* One repetition: what was alive before is allocated, then the trace runs. Driver calls, times and
 * peaks are the ledger's, from the end of the repetition before. */
struct replay_repetition {
    double seconds; /* for the events, with the oracle */
    double
        setup_seconds; /* for giving back what the repetition before left, and allocating what was
                          alive before the trace */
    uint64_t peak_active, peak_reserved; /* bytes */
    uint64_t time_a_ns, time_b_ns;       /* driver time by cost tables A and B, waits included */
    uint64_t time_c_ns;                  /* the same by C, where there is one */
    uint64_t waited_ns;                  /* of these, waits for work */
    uint64_t calls[REPLAY_MAX_CALLS];    /* of the driver, by kind */
};

/* What a model gave. */
struct replay_model {
    struct c10_result run;
    uint64_t time_a_ns, time_b_ns, time_c_ns; /* driver time by the cost tables; C where there is
                                                 one */
};

struct replay_result {
    int device;
    bool modelled;          /* the recorded segments come from a model, not from a GPU */
    uint64_t device_memory; /* bytes */
    uint64_t events, streams, threads, pools, allocations, initial_blocks, recorded_ooms,
        lost_events;
    uint64_t waits, captures, refused; /* refused: of both, that could not be made here */
    uint64_t ooms_here;                /* of the recorded ones those that were tried, and failed
                                          here too */
    uint64_t ooms_tried;
    bool unsized;   /* how large the recorded device was is not known, so none was tried */
    bool has_order; /* the recording is tarn's own */
    uint64_t late_frees, moved_frees,
        trims;    /* moved: in the order of another stream than the block's; trims: the program's
                     own */
    uint64_t lag; /* ns */
    uint64_t peak_requested, peak_active, peak_reserved; /* bytes, over all repetitions */
    uint64_t recorded_peak_reserved;                     /* bytes, or WORKLOAD_NOT_KNOWN */
    /* Why `error`; or of a model, where it alone is run */
    struct replay_shortage shortage;
    struct replay_shortage denied; /* the first request that failed in the recording, and here
                                      too */
    uint64_t wasted;               /* bytes: reserved - requested when reserved reached its peak;
                                      with `compare` */
    struct replay_model models[REPLAY_POLICIES]; /* by policy; that of tarn is empty */
    uint64_t least[REPLAY_POLICIES]; /* bytes: the smallest devices, by policy; 0 where one was not
                                        searched or not found */
    bool has_table_c;                /* unless TARN_HOST_COSTS is empty */
    struct replay_repetition first;  /* the first repetition: one run from an empty device, as the
                                        models' are */
    uint64_t repetitions;            /* that were run */
    uint64_t divergences;
    char divergence[REPLAY_KEPT_DIVERGENCES][256]; /* the first of them */
    char error[512];                               /* why the replay stopped; empty if it did not */
    char call_names[REPLAY_MAX_CALLS][24];
};

/* The memory of the device that a workload runs on: what the options say, what is known of the
 * recorded one, or enough. */
uint64_t replay_device_memory(const struct replay_options *options,
                              const struct workload *workload);

/* What a run had no room for first, requests that failed in the recording among it; NULL for
 * none. */
const struct replay_shortage *replay_lack(const struct replay_result *result);

/* Chooses the driver, and makes its devices. False with `error` filled. */
bool replay_configure(const struct replay_options *options, int devices, uint64_t memory,
                      char *error, size_t error_size);

/* Replays a workload on its device. `repeated` is called after every repetition; `progress`, which
 * may be NULL, counts operations as they are done. False with result->error filled when an
 * operation failed that the recording says had succeeded, or host memory is short; what was
 * measured until then is in `result`. Divergences are in `result` alone. */
bool replay_run(const struct replay_options *options, const struct workload *workload,
                void (*repeated)(void *context, const struct replay_repetition *repetition),
                void *context, _Atomic uint64_t *progress, struct replay_result *result);

/* Fills a result with what the workload is, and nothing of what was measured. */
void replay_describe(const struct replay_options *options, const struct workload *workload,
                     struct replay_result *result);

/* PyTorch's settings for a model: what the options say where they name it, else its defaults. */
struct c10_policy replay_policy_settings(const struct replay_options *options,
                                         enum replay_policy policy);

/* Runs a model on a device of `memory` bytes, into result->models. False when host memory is
 * short. */
bool replay_run_model(const struct replay_options *options, const struct workload *workload,
                      uint64_t memory, enum replay_policy policy, struct replay_result *result);

/* Runs the model that the options name alone. An allocation that finds no room is in
 * result->shortage, and no failure: the policy goes on without it. False with result->error filled
 * when host memory is short. */
bool replay_run_alone(const struct replay_options *options, const struct workload *workload,
                      uint64_t memory, struct replay_result *result);

#endif
