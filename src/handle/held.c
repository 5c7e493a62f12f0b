/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Chooses which of its handles a thread reuses for another stream, if a library's handles keep
 * their streams. Owns nothing: the list belongs to the slot, and only its thread uses it, so there
 * is no lock. The handle that was asked for last is at the front and stays on its stream. The
 * thread must ask for any of the others again before it uses it, so those may move to another
 * stream. */
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
    if (count < least || count < 2 ||
        captures_open_anywhere()) /* ordering two streams needs an event: not while a capture is
                                     open */
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
