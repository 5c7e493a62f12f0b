/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Readers: processes that map a pool's memory beside the process that has it, and find what that
 * process seals. Owns no data: a reader's segments are in window.c, its records of seals in
 * seals.c.
 *
 * `talking` is held while one thread brings the records up to date, and while it asks the owner or
 * unmaps segments. `lock` protects the records and the segments, and is held for each change alone.
 * A find that has nothing to bring up to date takes `lock` alone. Another process writes the layout
 * meanwhile, under no lock of this one. */
#include "memory/keep/reader.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "memory/keep/seals.h"

tarn_status keep_refuse_reader(const struct keep *keep, const char *what)
{
    if (!keep->reads)
        return TARN_OK;
    return failed(TARN_ERROR_NOT_SUPPORTED,
                  "%s: pool %s is only read by this process; the process that has it, by "
                  "tarn_pool_keep() without `read`, can do that",
                  what, keep->name);
}

static bool is_reachable(struct keep *keep, const struct layout_block *block)
{
    bool found = false;
    mutex_lock(&keep->lock);
    for (unsigned i = 0; !found && i < keep->piece_count; i++)
        found = keep->pieces[i].kept && sealed_lies_in(&keep->pieces[i], block);
    mutex_unlock(&keep->lock);
    return found;
}

/* Removes the records of what is no longer sealed. */
static void forget_old(struct keep *keep)
{
    struct seal *old = NULL;
    mutex_lock(&keep->lock);
    for (struct tree_node *node = tree_first(&keep->seals); node;) {
        struct seal *seal = SEAL_OF(node);
        node = tree_next(node);
        if (layout_has(keep->layout, seal->place, seal->number))
            continue;
        (void)seal_forget_locked(keep, seal);
        seal->next = old;
        old = seal;
    }
    mutex_unlock(&keep->lock);
    for (struct seal *next; old; old = next) {
        next = old->next;
        object_free(&seals, old);
    }
}

/* Makes records of what is newly sealed. Where another block has the name or the addresses, it had
 * its seal before, and a later change says so. */
static tarn_status follow(struct keep *keep, const struct sealed *sealed)
{
    size_t hidden = 0;
    for (size_t i = 0; i < sealed->count; i++) {
        const struct layout_block *block = &sealed->list[i];
        if (!is_reachable(keep, block)) {
            hidden++;
            continue;
        }
        struct seal *seal = object_alloc(&seals);
        if (!seal)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a seal");
        mutex_lock(&keep->lock);
        bool taken = seal_named_locked(keep, block->name) || seal_at_locked(keep, block->offset);
        if (!taken)
            seal_enter_locked(keep, seal, block,
                              atomic_load_explicit(&block->state, memory_order_relaxed));
        mutex_unlock(&keep->lock);
        if (taken)
            object_free(&seals, seal);
    }
    mutex_lock(&keep->lock);
    keep->hidden = hidden;
    mutex_unlock(&keep->lock);
    return TARN_OK;
}

/* Updates the reader's records (reader.h). The owner is asked only if a block is sealed that has no
 * record, and the pool has got a segment since the owner was last asked. Without an owner that
 * fails, and `read` stays: so finds of blocks that have records fail too, until an owner answers or
 * a change leaves no such block. Otherwise no owner is needed: the pool may have ended. */
static tarn_status look_locked(struct keep *keep)
{
    struct sealed sealed = {0};
    uint64_t changes = atomic_load_explicit(&keep->layout->changes, memory_order_acquire);
    forget_old(keep);
    tarn_status status = sealed_read(keep, &sealed);
    if (!status && sealed.count > 0 &&
        atomic_load_explicit(&keep->layout->segments, memory_order_acquire) != keep->looked_at)
        status = owner_look_locked(keep);
    if (!status)
        status = follow(keep, &sealed);
    if (!status) {
        mutex_lock(&keep->lock);
        keep->read = changes;
        mutex_unlock(&keep->lock);
    }
    sealed_end(&sealed);
    return status;
}

tarn_status reader_look(struct keep *keep)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    mutex_lock(&keep->talking);
    tarn_status status = look_locked(keep);
    mutex_unlock(&keep->talking);
    return status;
}

/* Asks the owner. Without an answer nothing changes. */
static void ask_if_there_is_an_owner(struct keep *keep)
{
    struct error_before before;
    error_attempt_begin(&before);
    (void)owner_look_locked(keep);
    error_attempt_end(&before, TARN_OK);
}

/* If the owner does not answer, what it has given up is not known, and stays. Of a pool that has
 * ended, all goes. What the pool has now where memory was let go is mapped at once: later there may
 * be no owner. */
tarn_status keep_let_go(const struct store *store)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct keep *keep = keep_of_store(store);
    if (!keep->reads)
        return TARN_OK;
    mutex_lock(&keep->talking);
    ask_if_there_is_an_owner(keep);
    mutex_unlock(&keep->talking);
    if (!window_has_old(keep))
        return TARN_OK;
    tarn_status status = device_wait(keep->device, "a trim");
    if (status)
        return status;
    mutex_lock(&keep->talking);
    status = window_let_go(keep);
    owner_tell_locked(keep);
    keep->looked_at = UINT64_MAX;
    if (!status && !keep->silent)
        ask_if_there_is_an_owner(keep);
    mutex_lock(&keep->lock);
    keep->read = UNREAD;
    mutex_unlock(&keep->lock);
    mutex_unlock(&keep->talking);
    return status;
}

tarn_status keep_refuse_pointer(uintptr_t address)
{
    char name[TARN_KEEP_NAME_BYTES];
    if (!window_reads(address, name))
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_POINTER,
                  "%p is in the kept pool %s, which this process only reads: the process that has "
                  "the pool frees, seals and unseals its blocks; tarn_pool_release() of this "
                  "process's pool lets go of all of them",
                  (void *)address, name);
}

/* Sees what was sealed when it began, and so looks at most once: later changes are for the next
 * find. If nothing has changed since the last look, it takes `lock` alone, even if the pool has
 * grown. */
tarn_status reader_find(struct keep *keep, const char *name, tarn_sealed_block *found)
{
    for (bool looked = false;; looked = true) {
        mutex_lock(&keep->lock);
        bool read = looked ? keep->read != UNREAD
                           : keep->read ==
                                 atomic_load_explicit(&keep->layout->changes, memory_order_acquire);
        if (read)
            seal_find_locked(keep, name, found);
        mutex_unlock(&keep->lock);
        tarn_status status = read ? TARN_OK : reader_look(keep);
        if (read || status)
            return status;
    }
}
