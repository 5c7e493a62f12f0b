/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Items that threads hand to whoever looks next. Adding takes no lock and makes no call, so a
 * thread of the driver may add, too. Whoever takes gets all items. An item may be freed or added
 * again when it was taken. */
#ifndef TARN_BASE_INBOX_H
#define TARN_BASE_INBOX_H

#include <stdatomic.h>
#include <stddef.h>

struct inbox_item {
    struct inbox_item *next;
};

struct inbox {
    _Atomic(struct inbox_item *) newest;
};

/* From here on another thread may take the item. */
static inline void inbox_add(struct inbox *inbox, struct inbox_item *item)
{
    item->next = atomic_load(&inbox->newest);
    while (!atomic_compare_exchange_weak(&inbox->newest, &item->next, item))
        ;
}

/* Takes all items, the newest first; NULL: there is none. */
static inline struct inbox_item *inbox_take(struct inbox *inbox)
{
    return atomic_load(&inbox->newest) ? atomic_exchange(&inbox->newest, NULL) : NULL;
}

/* The struct that contains an item. */
#define INBOX_ENTRY(item, type, member) ((type *)((char *)(item)-offsetof(type, member)))

#endif
