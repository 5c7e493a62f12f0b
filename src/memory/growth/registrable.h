/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Segments of registrable pools. A segment is one piece, and one run of a heap, from its creation
 * until it is given back as a whole. It is never joined to another, and its memory is never mapped
 * elsewhere. So one registration covers all of it. */
#ifndef TARN_MEMORY_REGISTRABLE_H
#define TARN_MEMORY_REGISTRABLE_H

#include "memory/heap/heap.h"

/* Does heap_grow() for a registrable store: adds one segment. If the device or its limit has no
 * room for the usual size, the call fails and tries no smaller one. A smaller one would depend on
 * what else is on the device, and ranks would then differ. */
tarn_status registrable_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                             struct span **span);

/* A segment, for the list of them. */
struct registrable_segment {
    uint64_t serial; /* its number in the store; of a plain one, the generation of its mapping */
    uintptr_t start;
    size_t size; /* bytes */
};

/* Lists a store's segments in the order of their creation, up to `room`; returns their number. If
 * that is more than `room`, those in the list are any of them. Called with no lock held. */
size_t registrable_list(struct store *store, struct registrable_segment *list, size_t room);

#endif
