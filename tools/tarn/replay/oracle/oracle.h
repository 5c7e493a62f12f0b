/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The oracle: watches an allocator from outside and says when it did what it must not.
 *
 * It learns of every block that is handed out and taken back, and asks the driver, not the
 * allocator, where the memory of a block is. What it holds true (DESIGN section 5): a block is
 * aligned and large enough; no two live blocks share a byte of address or of physical memory; every
 * byte of a live block is mapped, accessible, and stays where it is; a block carries no unfinished
 * work of an earlier owner, except work of its own stream. Each breach is reported as a divergence.
 * Not thread-safe. */
#ifndef TOOLS_ORACLE_H
#define TOOLS_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORACLE_ALIGNMENT UINT64_C(512) /* bytes: every address is a multiple */

/* The physical memory behind an address, as the driver tells. */
struct oracle_extent {
    uint64_t piece, offset, length; /* length: bytes from the address on without a break */
    bool accessible;
};

struct oracle_config {
    /* The extent at `address`, at most `size` bytes of it; false where nothing is mapped. */
    bool (*extent)(void *context, uint64_t address, uint64_t size, struct oracle_extent *extent);
    /* Called for every divergence with one line of text. */
    void (*report)(void *context, const char *text);
    void *context;
    /* Memory may be exchanged under live blocks: then what a block has at its end is checked as if
     * it had just got it. The driver's names of pieces come never twice, so what was noted of the
     * pieces before says nothing wrong. */
    bool compacts;
};

/* What an allocator handed out. */
struct oracle_block {
    uint64_t address, requested, usable; /* usable: bytes that the allocator says the block has */
    uint32_t stream;                     /* any number that names the stream that it was handed out
                                            on */
    uint32_t label;                      /* any number that names it in reports */
};

struct oracle;

/* NULL when memory is short. */
struct oracle *oracle_create(const struct oracle_config *config);
void oracle_destroy(struct oracle *oracle);

/* A block was handed out at time `now` (ns of the clock that ends are told in). `ticket` names it
 * from now on; it is 0, and the block not watched further, when what was handed out is not a block.
 * False when memory is short, or more than 2^24 pieces were met. */
bool oracle_allocated(struct oracle *oracle, const struct oracle_block *block, uint64_t now,
                      uint32_t *ticket);

/* A block is given back: called before the allocator is. Work of its own stream may use it until
 * `own_end`, work of any other until `foreign_end`. A ticket of 0 does nothing. */
void oracle_freed(struct oracle *oracle, uint32_t ticket, uint64_t own_end, uint64_t foreign_end);

/* Blocks that are live. */
size_t oracle_live(const struct oracle *oracle);

/* Divergences reported so far. */
uint64_t oracle_divergences(const struct oracle *oracle);

/* Reports a divergence that the caller found. */
void oracle_report(struct oracle *oracle, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
