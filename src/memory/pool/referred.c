/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the notes of blocks that graphs refer to. */
#include "memory/pool/referred.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "memory/heap/cache.h"

atomic_uint_fast64_t referred_changes = 1;
static struct object_pool notes = OBJECT_POOL(struct referred);

void referred_release(struct referred *referred)
{
    if (referred && atomic_fetch_sub(&referred->holders, 1) == 1)
        object_free(&notes, referred);
}

static tarn_status note_locked(struct block *block, struct referred **result)
{
    struct use **uses = block_uses(block);
    struct referred *note = uses ? object_alloc(&notes) : NULL;
    if (!note)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory to note that a graph refers to a block");
    note->block = block_info_locked(block);
    atomic_store(&note->requested, note->block.requested);
    atomic_store(&note->holders, 2);
    tarn_status status = use_add_referred(uses, note);
    if (status) {
        object_free(&notes, note);
        return status;
    }
    if (block->slab)
        slab_set_state_locked(block->slab, block->slot, NOTE_USED);
    *result = note;
    return TARN_OK;
}

/* Whether another thread may free the block without the heap's lock. */
static bool is_of_another(const struct block *block)
{
    struct thread *thread =
        block->slab ? atomic_load_explicit(&slab_owner(block->slab)->thread, memory_order_relaxed)
                    : NULL;
    return thread && thread != thread_here;
}

tarn_status referred_of(uintptr_t address, struct referred **referred, tarn_block_info *info)
{
    struct block block;
    tarn_status status = TARN_OK;
    *referred = NULL;
    if (!block_find_lock(address, &block))
        return TARN_OK;
    struct heap *heap = block.heap;
    bool stops = is_of_another(&block);
    if (stops)
        caches_stop_locked(&heap->caches);
    bool live = !stops || block_find_again_locked(address, &block);
    if (live && address - block.start - block.front < block_usable(&block)) {
        *info = block_info_locked(&block);
        *referred = use_referred(block_uses_of(&block));
        if (*referred)
            atomic_fetch_add(&(*referred)->holders, 1);
        else
            status = note_locked(&block, referred);
    }
    if (stops)
        caches_go_on_locked(&heap->caches);
    block_unlock(&block);
    return status;
}

static void end(struct use *note, const struct site *site)
{
    struct referred *referred = note->referred;
    use_end_referred(note);
    if (site)
        referred->freed = *site;
    atomic_store_explicit(&referred->ended, true, memory_order_release);
    atomic_fetch_add(&referred_changes, 1);
    referred_release(referred);
}

void block_end_referred(struct block *block)
{
    struct use **uses = block_uses_of(block) ? block_uses(block) : NULL,
               *note = uses ? use_take_referred(uses) : NULL;
    if (!note)
        return;
    if (block->slab && !*uses)
        slab_set_state_locked(block->slab, block->slot, NOTE_TAKEN);
    end(note, &site_here);
}

void referred_end_remotely(struct use *note)
{
    end(note, NULL);
}
