/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Decides whether blocks with known lifetimes fit below a height: a complete search, which ends
 * after a number of steps. Not thread-safe. */
#ifndef TOOLS_PACKING_SEARCH_H
#define TOOLS_PACKING_SEARCH_H

#include "plan/packing.h"

#define PACKING_SEARCH_MOST 2000 /* blocks */

enum packing_answer {
    PACKING_CUT,   /* not decided: the steps were used up */
    PACKING_FITS,  /* a placement fits; its offsets were written */
    PACKING_NEVER, /* no placement fits */
};

struct packing_search;

/* For `count` blocks, at most PACKING_SEARCH_MOST, which must not be moved or freed meanwhile, and
 * heights of up to `most` bytes. Returns NULL if memory is short. Destroying NULL is allowed. */
struct packing_search *packing_search_create(const struct packing_block *blocks, size_t count,
                                             uint64_t most);
void packing_search_destroy(struct packing_search *search);

/* Bytes of which all offsets are multiples: the greatest common divisor of the sizes. If `most` is
 * more than 2^29 times that, the unit is larger, sizes are rounded up to it, and no height is
 * refuted. */
uint64_t packing_search_unit(const struct packing_search *search);

/* Looks for a placement of at most `height` bytes, for about `limit` steps, which it adds to
 * `steps`. `way` numbers the order in which blocks are tried; another order leads to other
 * placements. `offsets`, one per block, are written only with PACKING_FITS. */
enum packing_answer packing_search_run(struct packing_search *search, uint64_t height, uint64_t way,
                                       uint64_t limit, uint64_t *steps, uint64_t *offsets);

/* Looks for such a placement level by level, with at most `width` nodes per level, while fewer than
 * `limit` steps were taken. True if it has found one, and has written `offsets`. False decides
 * nothing. */
bool packing_search_beam(struct packing_search *search, uint64_t height, uint64_t way,
                         uint32_t width, uint64_t limit, uint64_t *steps, uint64_t *offsets);

#endif
