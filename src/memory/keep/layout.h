/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The layout of a kept pool: a table of its sealed blocks in a file that its process and its owner
 * map. The owner creates the file, and has it after the process has ended. Only the process that
 * has the pool writes, one thread at a time. An entry's state is written last, so a reader sees
 * complete entries only, wherever the process was killed. Pages behind the used entries are never
 * touched. */
#ifndef TARN_MEMORY_KEEP_LAYOUT_H
#define TARN_MEMORY_KEEP_LAYOUT_H

#include "memory/keep/wire.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define LAYOUT_BLOCKS 32768u

struct layout_block {
    _Atomic uint32_t state; /* written last */
    uint32_t tag;
    uint64_t offset, bytes; /* start, from the pool's first address; size as requested */
    char name[TARN_KEEP_NAME_BYTES];
    unsigned char data[TARN_KEEP_DATA_BYTES];
};
enum { LAYOUT_FREE, LAYOUT_SEALED };

struct layout {
    uint64_t magic, version;
    uint64_t base, size;   /* the pool's addresses in the process that has it */
    _Atomic uint64_t used; /* blocks from here on were never sealed */
    uint64_t unused[3];
    struct layout_block blocks[LAYOUT_BLOCKS];
};

/* Creates the file of a new layout. -1 with errno. */
int layout_create(void);
/* Maps a layout's file, which another process sent. NULL with errno; EPROTO: it is no layout. */
struct layout *layout_map(int file);
void layout_unmap(struct layout *layout);

/* The most blocks that were ever sealed at once: places from there on were never used. */
size_t layout_used(const struct layout *layout);
bool layout_is_sealed(const struct layout_block *block);
/* The number of sealed blocks. */
size_t layout_count(const struct layout *layout);
/* Publishes a block in a free place, or in the first one that was never used. */
void layout_seal(struct layout *layout, struct layout_block *place,
                 const struct layout_block *block);
void layout_unseal(struct layout_block *place);

#endif
