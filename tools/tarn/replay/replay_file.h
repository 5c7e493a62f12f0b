/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* One file of `tarn replay`. It is read, replayed and measured in a process of its own, so that
 * neither a hostile file nor a crash of the library reaches the other files. */
#ifndef TOOLS_REPLAY_FILE_H
#define TOOLS_REPLAY_FILE_H

#include "replay/replay.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A device whose trace was replayed. */
struct replay_device {
    struct replay_result result;
    struct replay_repetition *repetitions; /* as many as were requested, unless the replay failed */
    size_t repetition_count;
};

/* What a snapshot has of a device's segments: of all, or of one stream and pool. */
struct replay_state {
    int device;
    uint64_t stream, pool[2]; /* of a part, as recorded */
    bool whole;               /* this is the whole device; its parts follow */
    uint64_t segments, expandable_segments;
    /* Blocks that are live or wait for a late free; free blocks */
    uint64_t blocks, free_blocks;
    uint64_t requested, allocated, active, reserved, largest_free; /* bytes */
};

struct replay_file {
    const char *path;
    const struct replay_options *options; /* the options that it was run with */
    char error[1024];                     /* why the file as a whole failed; empty: it did not */
    bool modelled;
    struct replay_device *devices; /* those with a trace */
    size_t device_count;
    struct replay_state *states; /* of a file without a trace */
    size_t state_count;
    uint64_t state_events; /* of a file without a trace: events of all devices */
};

/* Reads and replays a file in a child process, with a progress bar on standard error if `progress`.
 * The caller passes `file` to replay_file_finish(). True if nothing failed and nothing diverged.
 * Does not use tarn in this process. */
bool replay_file_run(const char *path, const struct replay_options *options, bool progress,
                     struct replay_file *file);

/* The result of a file. REPLAY_UNFIT: a run did not fit into its device, and nothing else is
 * wrong. */
enum replay_verdict { REPLAY_WELL, REPLAY_UNFIT, REPLAY_FAILED };
enum replay_verdict replay_file_verdict(const struct replay_file *file);

void replay_file_finish(struct replay_file *file);

#endif
