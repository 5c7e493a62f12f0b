/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A process's records of the sealed blocks of a kept pool. They are in `seals`, `names` and `taken`
 * of its `struct keep`, whose `lock` protects them. In the process that has the pool they say what
 * is sealed. Those of a reader follow the layout (reader.c). */
#ifndef TARN_MEMORY_KEEP_SEALS_H
#define TARN_MEMORY_KEEP_SEALS_H

#include "base/pages.h"
#include "memory/keep/keep.h"

/* A sealed block of this process. */
struct seal {
    struct tree_node by_offset;
    struct seal *next; /* of those whose names have the same hash */
    uint64_t offset, bytes;
    size_t place;    /* in the layout */
    uint64_t number; /* no other seal of the pool ever has it */
    char name[TARN_KEEP_NAME_BYTES];
    unsigned char data[TARN_KEEP_DATA_BYTES];
};

#define SEAL_OF(node) TREE_ENTRY(node, struct seal, by_offset)

extern struct object_pool seals;

/* Copies of the sealed blocks of a layout, by offset: another process could still write to it. */
struct sealed {
    struct layout_block *list; /* `state` is the index of its place */
    size_t count, bytes;
};

/* Copies those of which this process has no record. The caller ends the list. */
tarn_status sealed_read(const struct keep *keep, struct sealed *sealed);
void sealed_end(struct sealed *sealed);

/* Bytes of a block of the pool that was requested with `bytes`. */
uint64_t sealed_usable(uint64_t bytes);
/* Whether a block of a layout lies in a segment; false for no segment. */
bool sealed_lies_in(const struct keep_piece *piece, const struct layout_block *block);

/* The order of the records. */
int seals_by_offset(const struct tree_node *a, const struct tree_node *b);

/* The record of a name, or of an offset; NULL: none. */
struct seal *seal_named_locked(const struct keep *keep, const char *name);
struct seal *seal_at_locked(const struct keep *keep, uint64_t offset);
/* Fills in a new record, and enters it. */
void seal_enter_locked(struct keep *keep, struct seal *seal, const struct layout_block *block,
                       size_t place);
/* Takes a record out. It is the caller's to free, without a lock. */
struct seal *seal_forget_locked(struct keep *keep, struct seal *seal);
/* Writes to `found` what is sealed by a name, if anything is. A reader's record counts only while
 * the layout has the seal. */
void seal_find_locked(const struct keep *keep, const char *name, tarn_sealed_block *found);

#endif
