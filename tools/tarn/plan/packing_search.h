/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Whether blocks with known lifetimes fit below a height: a complete search, cut off by a number of
 * steps. Not thread-safe. */
#ifndef TOOLS_PACKING_SEARCH_H
#define TOOLS_PACKING_SEARCH_H

#include "plan/packing.h"

#define PACKING_SEARCH_MOST 2000 /* blocks */

enum packing_answer {
    PACKING_CUT,   /* not known: the steps were used up */
    PACKING_FITS,  /* the offsets are those of a placement that fits */
    PACKING_NEVER, /* there is none */
};

struct packing_search;

/* For `count` blocks, at most PACKING_SEARCH_MOST of them, which must stay where they are, and
 * heights of up to `most` bytes. NULL when memory is short. Destroying NULL is fine. */
struct packing_search *packing_search_create(const struct packing_block *blocks, size_t count,
                                             uint64_t most);
void packing_search_destroy(struct packing_search *search);

/* Bytes: of this all offsets are multiples. It is the greatest common divisor of the sizes; only if
 * `most` is more than 2^29 times that, it is larger, sizes are rounded up to it, and no height is
 * refuted. */
uint64_t packing_search_unit(const struct packing_search *search);

/* Looks for a placement of at most `height` bytes, for about `limit` steps, which it adds to
 * `steps`. `way` is the number of the order in which blocks are tried: another one leads to other
 * placements. Only with PACKING_FITS are `offsets`, one for each block, written. */
enum packing_answer packing_search_run(struct packing_search *search, uint64_t height, uint64_t way,
                                       uint64_t limit, uint64_t *steps, uint64_t *offsets);

/* Looks for such a placement level by level, with at most `width` nodes in each, as long as fewer
 * than `limit` steps were taken. True when it has found one, whose `offsets` are then written; else
 * nothing is known. */
bool packing_search_beam(struct packing_search *search, uint64_t height, uint64_t way,
                         uint32_t width, uint64_t limit, uint64_t *steps, uint64_t *offsets);

#endif
