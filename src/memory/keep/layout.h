/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The layout of a kept pool: a table of its sealed blocks in a file that its process and its owner
 * map. The owner makes it, and keeps it when the process ends. Only the process that has the pool
 * writes, one thread at a time; a reader sees an entry whole, because its state is written last. So
 * the table is consistent wherever its process is killed. Pages behind what was used stay
 * untouched. A process reads the table once, when it adopts the pool, and checks what it read: its
 * own records say afterwards what is sealed and which places are free. */
#ifndef TARN_MEMORY_KEEP_LAYOUT_H
#define TARN_MEMORY_KEEP_LAYOUT_H

#include "memory/keep/wire.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define LAYOUT_BLOCKS 32768u

struct layout_block {
    _Atomic uint32_t state; /* written last */
    uint32_t unused;
    uint64_t offset, bytes; /* from the start of the pool's addresses; as requested */
    char name[TARN_KEEP_NAME_BYTES];
    unsigned char data[TARN_KEEP_DATA_BYTES];
};
enum { LAYOUT_FREE, LAYOUT_SEALED };

struct layout {
    uint64_t magic, version;
    _Atomic uint64_t base; /* of the pool's addresses in the process that has it, or had it last;
                              0: none had it. Written behind `size` */
    uint64_t size;         /* bytes of these addresses */
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
/* Publishes a block in a free place; frees one. */
void layout_seal(struct layout *layout, size_t place, const struct layout_block *block);
void layout_unseal(struct layout *layout, size_t place);

#endif
