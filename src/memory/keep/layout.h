/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The layout of a kept pool: a table of its sealed blocks in a file that its process and its owner
 * map. The owner makes it, and keeps it when the process ends. Only the process that has the pool
 * writes, one thread at a time; a reader sees a record whole, because its state is written last.
 * So the table is consistent wherever its process is killed. */
#ifndef TARN_MEMORY_KEEP_LAYOUT_H
#define TARN_MEMORY_KEEP_LAYOUT_H

#include "memory/keep/wire.h"

#include <stdatomic.h>
#include <stddef.h>

#define LAYOUT_BLOCKS 65536u      /* places; a power of two */
#define LAYOUT_BLOCKS_MOST 32768u /* sealed at a time, so that a search ends soon */

struct layout_block {
    _Atomic uint32_t state; /* written last. GONE: free, and a search goes on behind it */
    uint32_t tag;
    uint64_t offset, bytes; /* from the start of the pool's addresses; as requested */
    char name[TARN_KEEP_NAME_BYTES];
    unsigned char data[TARN_KEEP_DATA_BYTES];
};
enum { LAYOUT_EMPTY, LAYOUT_SEALED, LAYOUT_GONE };

struct layout {
    uint64_t magic, version;
    uint64_t base, size; /* the pool's addresses in the process that has it */
    uint64_t unused[4];
    struct layout_block blocks[LAYOUT_BLOCKS];
};

/* Makes the file of a new layout, or -1 with errno; and maps one, which came from another process.
 * NULL with errno, EPROTO for a file that is no layout. */
int layout_create(void);
struct layout *layout_map(int file);
void layout_unmap(struct layout *layout);

/* The sealed block of a name, or NULL. */
struct layout_block *layout_find(struct layout *layout, const char *name);
/* Enters a block, whose other fields are filled in from `block`, under a name that none has; there
 * is a place. And takes one out. */
struct layout_block *layout_enter(struct layout *layout, const struct layout_block *block);
void layout_leave(struct layout *layout, struct layout_block *block);
size_t layout_count(const struct layout *layout); /* looks at every place */

#endif
