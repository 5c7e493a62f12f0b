/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Chooses the handle that a thread reuses for another stream, for libraries whose handles keep
 * their streams. Owns nothing: the list belongs to the thread's slot, so there is no lock. The
 * handle that was asked for last is at the front and stays on its stream. Every other handle may
 * move: the thread must ask for it again before it uses it. */
#include "base/status.h"
#include "device/capture.h"
#include "handle/handle.h"

/* The place of the handle that was unused for the longest time, of those behind `after`; NULL if
 * there is none. Skips handles with a workspace for a call that has not ended. */
static struct handle **oldest_behind(struct handle *after, const struct handle *before)
{
    struct handle **found = NULL;
    for (struct handle **link = &after->next; *link && *link != before; link = &(*link)->next)
        if (!(*link)->calls)
            found = link;
    return found;
}

struct handle *held_move(struct slot *slot, struct stream *stream, size_t least)
{
    struct error_before error;
    struct handle *before = NULL, *moved = NULL, **place;
    size_t count = 0;
    for (const struct handle *handle = slot->held; handle; handle = handle->next)
        count++;
    /* Ordering two streams needs an event: not while a capture is open. */
    if (count < least || count < 2 || captures_open_anywhere())
        return NULL;
    error_attempt_begin(&error);
    while (!moved && (place = oldest_behind(slot->held, before))) {
        before = *place;
        if (handle_follow(before, stream) == TARN_OK) {
            moved = before;
            *place = moved->next;
            moved->next = slot->held;
            slot->held = moved;
        }
    }
    error_attempt_end(&error, TARN_OK);
    return moved;
}
