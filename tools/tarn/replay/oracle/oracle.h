/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The oracle: it watches an allocator from outside and reports what the allocator must not do.
 *
 * The caller tells it of every block that is handed out and taken back. It asks the driver, not the
 * allocator, where a block's memory is. It demands the following. A block is aligned and large
 * enough. No two live blocks share a byte of address or of physical memory. Every byte of a live
 * block is mapped and accessible, and stays where it is. No unfinished work of an earlier owner
 * uses a block, except work of the block's own stream. Each violation is reported as a divergence.
 * Not thread-safe. */
#ifndef TOOLS_ORACLE_H
#define TOOLS_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORACLE_ALIGNMENT UINT64_C(512) /* bytes: every address is a multiple */

/* The physical memory at an address, as the driver reports it. */
struct oracle_extent {
    uint64_t piece, offset, length; /* length: contiguous bytes from the address on */
    bool accessible;
};

struct oracle_config {
    /* Finds the extent at `address`, at most `size` bytes of it. False if nothing is mapped
     * there. */
    bool (*extent)(void *context, uint64_t address, uint64_t size, struct oracle_extent *extent);
    /* Called for every divergence with one line of text. */
    void (*report)(void *context, const char *text);
    void *context;
    /* Compaction may exchange memory under live blocks. Then a block's memory is checked at its end
     * as if it had just got it. The driver never reuses a piece's name, so what was noted of
     * earlier pieces stays true. */
    bool compacts;
};

/* What an allocator handed out. */
struct oracle_block {
    uint64_t address, requested, usable; /* usable: the block's size as the allocator reports it */
    /* any number that identifies the stream that it was allocated for */
    uint32_t stream;
    uint32_t label; /* any number that identifies the block in reports */
};

struct oracle;

/* NULL when memory is short. */
struct oracle *oracle_create(const struct oracle_config *config);
void oracle_destroy(struct oracle *oracle);

/* A block was handed out at time `now`, in ns of the clock that the ends of work are given in.
 * `ticket` identifies the block from now on. It is 0 if this is not a valid block, which is then
 * not watched. False if memory is short, or more than 2^24 pieces were used. */
bool oracle_allocated(struct oracle *oracle, const struct oracle_block *block, uint64_t now,
                      uint32_t *ticket);

/* A block is being given back; call it before the allocator. Work of its own stream may use it
 * until `own_end`, work of any other stream until `foreign_end`. A ticket of 0 does nothing. */
void oracle_freed(struct oracle *oracle, uint32_t ticket, uint64_t own_end, uint64_t foreign_end);

/* Blocks that are live. */
size_t oracle_live(const struct oracle *oracle);

/* Divergences reported so far. */
uint64_t oracle_divergences(const struct oracle *oracle);

/* Reports a divergence that the caller found. */
void oracle_report(struct oracle *oracle, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
