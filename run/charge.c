/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Charges: what a hook does to the book before and after the driver's call. A device's `used` is taken before the call, so that two
 * threads cannot pass a limit together, and given back if the driver fails. All sums saturate at 0: a free that was never charged, or was
 * charged to a context that has gone, changes nothing. */
#include "shim.h"

#include <string.h>

/* The device of a context, by thread: contexts rarely change. `context_changes` grows when one goes, as its pointer may come again. */
static _Atomic uint64_t context_changes;
static _Thread_local struct {
    cu_context context;
    uint64_t changes;
    unsigned device;
} last __attribute__((tls_model("initial-exec")));

unsigned current_device(cu_context *context)
{
    uint64_t changes = atomic_load_explicit(&context_changes, memory_order_acquire);
    cu_device device;
    *context = NULL;
    if (!real.cuCtxGetCurrent || real.cuCtxGetCurrent(context) || !*context)
        return NO_DEVICE;
    if (*context == last.context && changes == last.changes)
        return last.device;
    if (!real.cuCtxGetDevice || real.cuCtxGetDevice(&device) || device < 0 || (unsigned)device >= book->devices)
        return NO_DEVICE;
    last.context = *context;
    last.changes = changes;
    last.device = (unsigned)device;
    return last.device;
}

static void raise_to(_Atomic uint64_t *peak, uint64_t value)
{
    uint64_t before = atomic_load_explicit(peak, memory_order_relaxed);
    while (before < value && !atomic_compare_exchange_weak(peak, &before, value))
        ;
}

static void subtract(_Atomic uint64_t *from, uint64_t value)
{
    uint64_t before = atomic_load_explicit(from, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(from, &before, before > value ? before - value : 0))
        ;
}

static struct book_account *account_of(const struct block *block)
{
    return &book->account[block->device][book->site[block->site].library][block->kind];
}

static struct book_holder *holder_of(const struct block *block)
{
    return &book->holder[block->device][book->site[block->site].library];
}

static bool reserve(struct charge *charge, uint64_t size)
{
    struct book_device *device = &book->device[charge->block.device];
    uint64_t limit = atomic_load_explicit(&device->limit, memory_order_relaxed);
    uint64_t unseen = limit == UINT64_MAX ? 0 : limits_unseen(device);
    uint64_t used = atomic_fetch_add(&device->used, size) + size;
    if (used < size || (limit != UINT64_MAX && used + unseen > limit)) {
        subtract(&device->used, size);
        return false;
    }
    charge->reserved = size;
    return true;
}

cu_result charge_begin(struct charge *charge, enum run_kind kind, unsigned device, uint64_t size, void *caller)
{
    *charge =
        (struct charge){.block = {.kind = (uint8_t)kind, .device = (uint8_t)device, .size = size, .references = 1}};
    if (device >= book->devices)
        return CU_OK;
    charge->block.site = (uint16_t)site_of(caller);
    if (!run_kind_counts(kind) || reserve(charge, size))
        return CU_OK;
    limits_refuse(device, size, charge->block.site);
    return CU_OUT_OF_MEMORY;
}

static void add(_Atomic uint64_t *live, _Atomic uint64_t *peak, uint64_t size)
{
    raise_to(peak, atomic_fetch_add(live, size) + size);
}

static void enter(const struct block *block)
{
    struct book_account *account = account_of(block);
    atomic_fetch_add(&account->made, 1);
    atomic_fetch_add(&account->made_bytes, block->size);
    if (run_kind_counts(block->kind)) {
        add(&holder_of(block)->live, &holder_of(block)->peak, block->size);
        raise_to(&book->device[block->device].peak, atomic_load(&book->device[block->device].used));
    } else if (block->kind != RUN_GRAPH) {
        add(&account->live, &account->peak, block->size);
    }
}

static void leave(const struct block *block)
{
    if (run_kind_counts(block->kind)) {
        subtract(&holder_of(block)->live, block->size);
        subtract(&book->device[block->device].used, block->size);
    } else {
        subtract(&account_of(block)->live, block->size);
    }
}

void charge_end(struct charge *charge, cu_result code, enum block_space space, uint64_t key, uint64_t size)
{
    struct block *block = &charge->block;
    if (block->device >= book->devices)
        return;
    struct book_device *device = &book->device[block->device];
    if (code || !key) {
        subtract(&device->used, charge->reserved);
        return;
    }
    uint64_t takes =
        run_kind_counts(block->kind) ? size : 0; /* the kind may be another than was thought before the call */
    if (charge->reserved < takes)
        atomic_fetch_add(&device->used, takes - charge->reserved);
    else
        subtract(&device->used, charge->reserved - takes);
    block->size = size;
    block->space = (uint8_t)space;
    block->key = key;
    if (block->kind != RUN_GRAPH) {
        struct block old;
        if (!blocks_put(block, &old)) {
            subtract(&device->used, takes);
            atomic_fetch_add(&book->unfollowed, 1);
            return;
        }
        if (old.space)
            charge_free(&old, NULL);
    }
    enter(block);
    log_write(block, charge->stream, false);
}

void charge_free(const struct block *block, cu_stream stream)
{
    leave(block);
    log_write(block, stream, true);
}

void charge_restore(const struct block *block)
{
    struct block old;
    if (!blocks_put(block, &old)) {
        leave(block);
        atomic_fetch_add(&book->unfollowed, 1);
    }
}

void charge_drop(cu_context context)
{
    struct block_cursor cursor = {0};
    struct block block;
    atomic_fetch_add(&context_changes, 1);
    while (context && blocks_take_of(context, &cursor, &block))
        charge_free(&block, NULL);
}
