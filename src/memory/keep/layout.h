/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The layout of a kept pool: a table of its sealed blocks in a file that its process and its owner
 * map. The owner makes it, and keeps it when the process ends. Only the process that has the pool
 * writes, one thread at a time, except that an owner empties the table when it drops a pool. A
 * reader sees an entry whole, because its state is written last. So the table is consistent
 * wherever its process is killed. Pages behind what was used stay untouched. A process reads the
 * table once, when it adopts the pool, and checks what it read: its own records say afterwards what
 * is sealed and which places are free. Processes that read the pool beside it map the table without
 * a right to write it, and read it again when it has changed. */
#ifndef TARN_MEMORY_KEEP_LAYOUT_H
#define TARN_MEMORY_KEEP_LAYOUT_H

#include "memory/keep/wire.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define LAYOUT_BLOCKS 32768u

struct layout_block {
    _Atomic uint32_t state;  /* written last */
    _Atomic uint32_t number; /* how many seals the place has had; written first */
    uint64_t offset, bytes;  /* from the start of the pool's addresses; as requested */
    char name[TARN_KEEP_NAME_BYTES];
    unsigned char data[TARN_KEEP_DATA_BYTES];
};
enum { LAYOUT_FREE, LAYOUT_SEALED };

struct layout {
    uint64_t magic, version;
    /* Of the pool's addresses in the process that has it, or had it last; 0: none had it.
     * Written behind `size`. */
    _Atomic uint64_t base;
    uint64_t size; /* bytes of these addresses */
    /* Blocks from here on were never sealed, or the pool was dropped. */
    _Atomic uint64_t used;
    /* Goes up after each seal, and each end of one, but not with a new segment. */
    _Atomic uint64_t changes;
    _Atomic uint64_t segments; /* the highest number of a segment that the owner has or had */
    uint64_t unused;
    struct layout_block blocks[LAYOUT_BLOCKS];
};

/* Creates the file of a new layout. -1 with errno. */
int layout_create(void);
/* Maps a layout's file, which another process sent, to read it or to write it too. NULL with errno;
 * EPROTO: it is no layout. */
struct layout *layout_map(int file, bool writes);
void layout_unmap(struct layout *layout);

/* The most blocks that were ever sealed at once: places from there on were never used. */
size_t layout_used(const struct layout *layout);
bool layout_is_sealed(const struct layout_block *block);
/* Copies a place whose block is sealed, while another process may write it. False if it is not
 * sealed, or changed meanwhile. */
bool layout_read(const struct layout_block *block, struct layout_block *copy);
/* The number of a place's seal: no other seal of the pool has it (for 2^32 seals of that place). */
uint64_t layout_number(size_t place, const struct layout_block *block);
/* Whether a place has the seal of this number. */
bool layout_has(const struct layout *layout, size_t place, uint64_t number);
/* The number of sealed blocks. */
size_t layout_count(const struct layout *layout);
/* Publishes a block in a free place; frees one. */
void layout_seal(struct layout *layout, size_t place, const struct layout_block *block);
void layout_unseal(struct layout *layout, size_t place);
/* The owner has segments with numbers up to this. */
void layout_numbers(struct layout *layout, uint64_t number);
/* The pool has another process, or, with `over`, is no more: its readers read the table again. */
void layout_changed(struct layout *layout, bool over);

#endif
