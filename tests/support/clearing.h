/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* One-line calls for the four things that tarn_workspace_clear() can clear. `cleared` may be
 * NULL. */
#ifndef TARN_TESTS_SUPPORT_CLEARING_H
#define TARN_TESTS_SUPPORT_CLEARING_H

#include <tarn/handle.h>

static inline tarn_status clear_chosen(tarn_workspace_choice choice,
                                       tarn_workspace_cleared *cleared)
{
    choice.size = sizeof choice;
    if (cleared)
        cleared->size = sizeof *cleared;
    return tarn_workspace_clear(&choice, cleared);
}

static inline tarn_status workspaces_clear_all(tarn_workspace_cleared *cleared)
{
    if (cleared)
        cleared->size = sizeof *cleared;
    return tarn_workspace_clear(NULL, cleared);
}

static inline tarn_status workspaces_clear_stream(tarn_stream stream,
                                                  tarn_workspace_cleared *cleared)
{
    return clear_chosen(
        (tarn_workspace_choice){.which = TARN_WORKSPACES_OF_STREAM, .stream = stream}, cleared);
}

static inline tarn_status workspaces_clear_capture(uint64_t capture,
                                                   tarn_workspace_cleared *cleared)
{
    return clear_chosen(
        (tarn_workspace_choice){.which = TARN_WORKSPACES_OF_CAPTURE, .capture = capture}, cleared);
}

static inline tarn_status workspaces_clear_pool(tarn_pool *pool, tarn_workspace_cleared *cleared)
{
    return clear_chosen((tarn_workspace_choice){.which = TARN_WORKSPACES_OF_POOL, .pool = pool},
                        cleared);
}

#endif
