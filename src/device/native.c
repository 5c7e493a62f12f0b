/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the tables from native streams to slots: open addressing, at most half full, read without a
 * lock.
 *
 * A slot is never freed, and the native stream is compared in the slot itself. So a reader during a
 * change may miss an entry, but never finds a wrong one. A list that has become too small is kept
 * for readers that still use it; all old lists together are as large as the current one. Changes
 * are made under the lock of the caller (stream.c's `entering`). */
#include "device/native.h"
#include "base/pages.h"
#include "device/stream.h"

#include <stdint.h>

#define FIRST_ROOM 64u /* a power of two */

struct native_list {
    struct native_list *before; /* smaller, left to readers */
    size_t room;                /* a power of two */
    _Atomic(struct stream *) at[];
};

static size_t list_bytes(size_t room)
{
    return sizeof(struct native_list) + room * sizeof(struct stream *);
}

/* Where the search for a stream begins. */
static size_t home_of(const struct native_list *list, driver_stream native)
{
    uint64_t hash = ((uint64_t)(uintptr_t)native >> 3) * 0x9e3779b97f4a7c15u;
    return (size_t)(hash >> 32) & (list->room - 1);
}

static size_t after(const struct native_list *list, size_t place)
{
    return (place + 1) & (list->room - 1);
}

struct stream *native_find(struct native_table *table, driver_stream native)
{
    struct native_list *list = atomic_load_explicit(&table->list, memory_order_acquire);
    size_t place = list ? home_of(list, native) : 0;
    for (size_t tries = 0; list && tries < list->room; tries++, place = after(list, place)) {
        struct stream *stream = atomic_load_explicit(&list->at[place], memory_order_acquire);
        if (!stream || atomic_load_explicit(&stream->native, memory_order_acquire) == native)
            return stream;
    }
    return NULL;
}

static void list_put(struct native_list *list, struct stream *stream)
{
    size_t place = home_of(list, stream->native);
    while (atomic_load_explicit(&list->at[place], memory_order_relaxed))
        place = after(list, place);
    atomic_store_explicit(&list->at[place], stream, memory_order_release);
}

/* A list of twice the room in place of the table's. */
static struct native_list *list_grow(struct native_table *table, struct native_list *before)
{
    size_t room = before ? 2 * before->room : FIRST_ROOM;
    struct native_list *list = pages_alloc(list_bytes(room));
    if (!list)
        return NULL;
    list->before = before;
    list->room = room;
    for (size_t i = 0; before && i < before->room; i++) {
        struct stream *stream = atomic_load_explicit(&before->at[i], memory_order_relaxed);
        if (stream)
            list_put(list, stream);
    }
    atomic_store_explicit(&table->list, list, memory_order_release);
    return list;
}

bool native_enter(struct native_table *table, struct stream *stream)
{
    struct native_list *list = atomic_load_explicit(&table->list, memory_order_relaxed);
    if (!list || 2 * (table->used + 1) > list->room)
        list = list_grow(table, list);
    if (!list)
        return false;
    list_put(list, stream);
    table->used++;
    return true;
}

/* Closes the gap by moving up what would not be found behind it. */
void native_leave(struct native_table *table, const struct stream *stream)
{
    struct native_list *list = atomic_load_explicit(&table->list, memory_order_relaxed);
    size_t gap = home_of(list, stream->native);
    while (atomic_load_explicit(&list->at[gap], memory_order_relaxed) != stream)
        gap = after(list, gap);
    for (size_t place = after(list, gap);; place = after(list, place)) {
        struct stream *moved = atomic_load_explicit(&list->at[place], memory_order_relaxed);
        if (!moved)
            break;
        size_t home = home_of(list, moved->native), mask = list->room - 1;
        if (((place - home) & mask) < ((place - gap) & mask))
            continue; /* its search begins behind the gap */
        atomic_store_explicit(&list->at[gap], moved, memory_order_release);
        gap = place;
    }
    atomic_store_explicit(&list->at[gap], NULL, memory_order_release);
    table->used--;
}
