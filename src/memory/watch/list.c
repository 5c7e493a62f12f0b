/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Shows a picture as structures of the public API. Owns nothing: the picture exists only during the
 * call. The caller's function runs with no lock held. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "memory/settings/hooks.h"
#include "memory/watch/picture.h"

#include <tarn/snapshot.h>

_Static_assert((int)TARN_MEMORY_FREE == PICTURE_FREE && (int)TARN_MEMORY_LIVE == PICTURE_LIVE &&
                   (int)TARN_MEMORY_WAITING == PICTURE_WAITING,
               "the states are the picture's");

static size_t most_parts(const struct picture *picture)
{
    size_t most = 1;
    for (size_t i = 0; i < picture->runs.count; i++)
        if (picture_runs(picture)[i].block_count > most)
            most = picture_runs(picture)[i].block_count;
    return most;
}

CALLS_BACK static void show(const struct picture *picture, const struct picture_run *run,
                            tarn_memory_part *parts,
                            void (*each)(const tarn_memory_segment *segment, void *user),
                            void *user)
{
    static const struct trace_place nowhere;
    const struct trace_place *place = trace_place_value(run->place);
    if (!place)
        place = &nowhere;
    for (size_t i = 0; i < run->block_count; i++) {
        const struct picture_block *block = &picture_blocks(picture)[run->first_block + i];
        parts[i] = (tarn_memory_part){.address = (void *)block->address,
                                      .bytes = block->size,
                                      .requested = block->requested,
                                      .state = (tarn_memory_state)block->state,
                                      .tag = block->tag};
    }
    struct callback callback;
    callback_begin(&callback);
    each(&(tarn_memory_segment){.size = sizeof(tarn_memory_segment),
                                .address = (void *)run->address,
                                .bytes = run->size,
                                .device = (int)place->device,
                                .stream = place->stream,
                                .native = (void *)(uintptr_t)place->native,
                                .pool = {place->pool[0], place->pool[1]},
                                .large = run->large,
                                .is_virtual = run->virtual,
                                .parts = parts,
                                .part_count = run->block_count},
         user);
    callback_end(&callback);
}

static tarn_status show_all(const struct picture *picture,
                            void (*each)(const tarn_memory_segment *segment, void *user),
                            void *user)
{
    size_t most = most_parts(picture), room = most * sizeof(tarn_memory_part);
    tarn_memory_part *parts = pages_map(room);
    if (!parts)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a list of %zu parts",
                      most);
    for (size_t i = 0; i < picture->runs.count; i++)
        show(picture, &picture_runs(picture)[i], parts, each, user);
    pages_unmap(parts, room);
    return TARN_OK;
}

tarn_status tarn_memory_list(void (*each)(const tarn_memory_segment *segment, void *user),
                             void *user)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_status status = memory_ready();
    if (status)
        return status;
    if (!each)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "each is NULL");
    struct picture *picture = pages_alloc(sizeof *picture);
    if (!picture)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a list of segments");
    status = picture_take(picture);
    if (!status)
        status = show_all(picture, each, user);
    picture_finish(picture);
    pages_free(picture, sizeof *picture);
    return status;
}
