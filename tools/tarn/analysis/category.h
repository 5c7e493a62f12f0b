/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What memory is for, in the terms of people who train and serve models. Stacks, lifetimes and
 * sizes show it. */
#ifndef TOOLS_CATEGORY_H
#define TOOLS_CATEGORY_H

#include "analysis/analysis.h"

enum category {
    CATEGORY_UNKNOWN,
    CATEGORY_WEIGHTS,
    CATEGORY_GRADIENTS,
    CATEGORY_OPTIMIZER,
    CATEGORY_ACTIVATIONS, /* kept for a backward pass */
    CATEGORY_CACHES,      /* kept by a model from one call to the next */
    CATEGORY_WORKSPACES,  /* of libraries */
    CATEGORY_TEMPORARIES,
    /* blocks that stay and were there before the recording, which does not show what they are */
    CATEGORY_BEFORE,
    CATEGORY_COUNT,
};

/* A user's rule: blocks with `text` in a function or file of their stack have this category. It
 * precedes all other rules. */
struct category_rule {
    enum category category;
    const char *text;
};

/* "weights", "gradients", ... */
const char *category_name(enum category category);
/* The category of a name; CATEGORY_COUNT if there is none. */
enum category category_of_name(const char *name, size_t length);

/* Fills analysis->categories anew. False when memory is short; then they are as they were.
 *
 * A stack says where a block was allocated: in a library's workspace, in an optimizer, in a
 * backward pass, in a module's forward, or in none of these. A backward pass lasts from its first
 * allocation to its last. Then
 *     workspaces   are allocated by functions that are named so;
 *     optimizer    is what an optimizer allocates and keeps until after the next backward pass, or
 *                  for good; and what was there before and is freed while it runs;
 *     gradients    are allocated in a backward pass, still there when it ends, and as large as a
 *                  weight;
 *     activations  are allocated in a forward pass, or outside, and there when the backward pass
 *                  begins, but not after the one after it;
 *     caches       are allocated in a forward pass and stay longer; without a backward pass, until
 *                  their call site has allocated twice more (if that is so of more than eight
 *                  stacks, they are activations whose backward pass was not recorded); and what is
 *                  allocated outside and stays, but not by a module, where modules made the weights
 *                  and there is no backward pass;
 *     weights      are allocated outside of all these and stay, or were there before;
 *     temporaries  are all others.
 * Where an optimizer runs that made no state in the recording, what was there before may be its
 * state, too. A state without a trace has only its stacks. Where no stack tells any of this,
 * nothing is known. */
bool categories_make(struct analysis *analysis, const struct category_rule *rules,
                     size_t rule_count);

#endif
