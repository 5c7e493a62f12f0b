/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The arithmetic of plain segments. Owns nothing. */
#include "memory/arena/rules.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#define SLAB_SEGMENT (256 * KIB) /* bytes; a smaller segment has no room for a slab */

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static void overlay(size_t *size, size_t own)
{
    *size = own ? own : *size;
}

struct segment_rules rules_of(const struct memory_config *config, const tarn_segment_sizes *own)
{
    size_t divisions = config->roundup_power2_divisions[0];
    struct segment_rules rules = {
        .small_segment = 2 * MIB,
        .large_segment = config->large_segment_size,
        .own_segment = 10 * MIB,
        .rounding = 2 * MIB,
        .max_split = config->max_split_size,
        .max_non_split_rounding = config->max_non_split_rounding,
        .slab_most = 8 * KIB,
    };
    overlay(&rules.small_segment, own->small_segment);
    overlay(&rules.large_segment, own->large_segment);
    overlay(&rules.own_segment, own->own_segment);
    overlay(&rules.rounding, own->rounding);
    overlay(&rules.max_split, own->max_split);
    overlay(&rules.max_non_split_rounding, own->max_non_split_rounding);
    if (divisions > 1 && 2 * divisions * TARN_BLOCK_UNIT < rules.slab_most)
        /* above this size, steps are coarser than 512 B */
        rules.slab_most = 2 * divisions * TARN_BLOCK_UNIT;
    if (rules.max_split <= rules.slab_most)
        /* an oversize block is counted as such, and a slab's block is not */
        rules.slab_most = rules.max_split - TARN_BLOCK_UNIT;
    if (rules.small_segment < SLAB_SEGMENT)
        rules.slab_most = 0;
    return rules;
}

size_t rules_segment(const struct segment_rules *rules, size_t size)
{
    bool large = size > MIB;
    size_t shared = large ? rules->large_segment : rules->small_segment;
    if (size <= shared && (!large || size < rules->own_segment))
        return shared;
    return round_up(size, rules->rounding);
}

bool rules_may_serve(const struct segment_rules *rules, size_t size, size_t found)
{
    if (size < rules->max_split)
        return found < rules->max_split;
    return found - size < rules->max_non_split_rounding;
}

bool rules_cut(const struct segment_rules *rules, bool large, size_t size, size_t rest)
{
    return large ? size < rules->max_split && rest > RULES_LARGE_REST : rest >= TARN_BLOCK_UNIT;
}
