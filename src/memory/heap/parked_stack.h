/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The stack of a heap's parked blocks. parked.h says which blocks may be parked and why. Here is
 * only how they are kept. */
#ifndef TARN_MEMORY_PARKED_STACK_H
#define TARN_MEMORY_PARKED_STACK_H

#include "memory/heap/span.h"
#include "record/counters.h"

#define HEAP_PARKED 8

struct parked_block {
    size_t size; /* bytes */
    uintptr_t start;
    uint64_t before; /* the zone's state before the block was cut */
    struct span *span;
};

/* A member of the heap. The lock of `part` protects every field; `count` and `parks` may be read
 * without it, as hints. A block in the stack is not live, and no other block is parked. While
 * `parks` is false, and while hands are open (hands.h), the stack gets no block. */
struct parked_stack {
    /* What the heap counts of blocks with their own span, parked or not. */
    struct counters_part part;
    struct parked_block blocks[HEAP_PARKED]; /* newest last */
    atomic_uint count;
    /* The heap's stream and pool are in use, and no tool has to see each block. */
    atomic_bool parks;
    bool parks_afterwards; /* what `parks` was before a pause. The heap's lock */
};

static inline bool stack_parks(const struct parked_stack *stack)
{
    return atomic_load_explicit(&stack->parks, memory_order_relaxed);
}

static inline unsigned stack_count(const struct parked_stack *stack)
{
    return atomic_load_explicit(&stack->count, memory_order_relaxed);
}

/* The place of the newest block of exactly `size` bytes, counted from 1; 0: there is none. */
static inline unsigned stack_find_locked(const struct parked_stack *stack, size_t size)
{
    unsigned place = stack_count(stack);
    while (place > 0 && stack->blocks[place - 1].size != size)
        place--;
    return place;
}

/* Takes out the block at a place, counted from 0. */
static inline void stack_remove_locked(struct parked_stack *stack, unsigned place)
{
    unsigned count = stack_count(stack) - 1;
    for (; place < count; place++)
        stack->blocks[place] = stack->blocks[place + 1];
    atomic_store_explicit(&stack->count, count, memory_order_relaxed);
}

/* Puts in a block, as the newest. There are fewer than HEAP_PARKED. */
static inline void stack_put_locked(struct parked_stack *stack, struct span *span)
{
    unsigned count = stack_count(stack);
    stack->blocks[count].size = span->size;
    stack->blocks[count].start = span->start;
    stack->blocks[count].before = span->before;
    stack->blocks[count].span = span;
    atomic_store_explicit(&stack->count, count + 1, memory_order_relaxed);
}

/* Takes out all blocks, and returns how many. Takes the part's lock. */
unsigned stack_empty(struct parked_stack *stack, struct span *spans[HEAP_PARKED]);
/* Sets `parks`, and returns what it was. Takes the part's lock. */
bool stack_set_parks(struct parked_stack *stack, bool parks);

#endif
