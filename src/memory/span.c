/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the objects that spans and runs are, and nothing of what they mean: that is heap.c's. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/heap.h"

#include <string.h>

#define SPARE_SPANS 64 /* the most that a heap keeps at hand */

static struct object_pool spans = OBJECT_POOL_KEEPING(struct span, heap);
static struct object_pool runs = OBJECT_POOL(struct run);

struct span *span_create(void)
{
    struct span *span = object_alloc(&spans);
    if (!span)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a span");
    return span;
}

void span_destroy(struct span *span)
{
    object_free(&spans, span);
}

struct span *span_create_locked(struct heap *heap)
{
    struct span *span = heap->spare_spans;
    if (!span || pages_fail_armed())
        return span_create();
    heap->spare_spans = span->next;
    heap->spare_count--;
    memset(span, 0, offsetof(struct span, heap));
    return span;
}

void span_destroy_locked(struct heap *heap, struct span *span)
{
    if (!span)
        return;
    if (heap->spare_count == SPARE_SPANS) {
        span_destroy(span);
        return;
    }
    span->next = heap->spare_spans;
    heap->spare_spans = span;
    heap->spare_count++;
}

void spare_spans_destroy_locked(struct heap *heap)
{
    for (struct span *span; (span = heap->spare_spans);) {
        heap->spare_spans = span->next;
        span_destroy(span);
    }
    heap->spare_count = 0;
}

struct run *run_create(void)
{
    struct run *run = object_alloc(&runs);
    if (!run)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a run");
    return run;
}

void run_destroy(struct run *run)
{
    object_free(&runs, run);
}
