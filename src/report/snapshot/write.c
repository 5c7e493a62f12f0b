/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls that write snapshots. Owns nothing; the picture and the sink live as long as a
 * call. */
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "memory/settings/hooks.h"
#include "report/snapshot/snapshot.h"

/* Reads a caller's options; NULL means the defaults. */
static tarn_status read_options(const tarn_snapshot_options *given, tarn_snapshot_options *options)
{
    static const tarn_snapshot_options plain = {.size = sizeof plain, .max_bytes = TARN_NO_LIMIT};
    tarn_status status =
        sized_read("tarn_snapshot_options", given ? given : &plain, options, sizeof *options);
    if (status)
        return status;
    if ((unsigned)options->format > TARN_SNAPSHOT_CHROME)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%d is not a snapshot format",
                      (int)options->format);
    if (!options->max_bytes)
        options->max_bytes = TARN_NO_LIMIT;
    return memory_ready();
}

/* Writes a snapshot of now. */
static tarn_status snapshot_to(struct sink *sink, const tarn_snapshot_options *options)
{
    struct picture *picture = pages_alloc(sizeof *picture);
    if (!picture)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a snapshot");
    tarn_status status = picture_take(picture);
    if (!status && options->format == TARN_SNAPSHOT_CHROME)
        status = snapshot_write_chrome(picture, sink, options->max_bytes);
    else if (!status)
        status = snapshot_write_pickle(picture, sink, options->max_bytes);
    picture_finish(picture);
    pages_free(picture, sizeof *picture);
    return status;
}

/* Writes to a sink and ends it. Returns the first error. */
static tarn_status write_and_end(struct sink *sink, const tarn_snapshot_options *options)
{
    tarn_status status = snapshot_to(sink, options);
    if (!status)
        return sink_end(sink, false);
    struct error_before cause;
    error_attempt_begin(&cause);
    (void)sink_end(sink, true);
    error_attempt_end(&cause, TARN_OK);
    return status;
}

static struct sink *sink_make(void)
{
    struct sink *sink = pages_alloc(sizeof *sink);
    if (!sink)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to write a snapshot");
    return sink;
}

tarn_status tarn_snapshot_write(const char *path, const tarn_snapshot_options *options)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_snapshot_options own;
    tarn_status status = read_options(options, &own);
    if (status)
        return status;
    struct sink *sink = sink_make();
    if (!sink)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    status = sink_to_file(sink, path, 0600);
    if (!status)
        status = write_and_end(sink, &own);
    pages_free(sink, sizeof *sink);
    return status;
}

tarn_status tarn_snapshot_print(bool (*write)(const void *data, size_t size, void *user),
                                void *user, const tarn_snapshot_options *options)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    if (!write)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "write is NULL");
    tarn_snapshot_options own;
    tarn_status status = read_options(options, &own);
    if (status)
        return status;
    struct sink *sink = sink_make();
    if (!sink)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    sink_to_function(sink, write, user);
    status = write_and_end(sink, &own);
    pages_free(sink, sizeof *sink);
    return status;
}
