/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls of kept pools. tarn_pool_keep() gets a pool from the owner, maps its segments,
 * enters them in a heap, and takes the sealed blocks out of the free memory. Everything that may
 * fail comes before the pool can be found by others; after a failure the owner still has all.
 *
 * A pool that is only read has its segments mapped, and none in a heap: to the rest of tarn it is
 * empty (reader.c). */
#include "memory/keep/keep.h"
#include "base/file.h"
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/variable.h"
#include "memory/growth/segment.h"
#include "memory/keep/reader.h"
#include "memory/keep/seals.h"
#include "memory/settings/hooks.h"
#include "memory/share/pointer.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENT_BYTES ((size_t)256 << 20)
#define SMALL_PART 16   /* a segment of small blocks is this part of a large one */
#define WINDOW_FACTOR 2 /* of the device's memory: room among segments of different sizes */
#define NAMES_BYTES (LAYOUT_BLOCKS * sizeof(struct seal *))

static struct object_pool keeps_of_pools = OBJECT_POOL(struct keep);

/* Options -------------------------------------------------------------------------------------- */

static tarn_status check_name(const char *what, const char *name)
{
    size_t length = name ? strnlen(name, TARN_KEEP_NAME_BYTES) : 0;
    if (length && length < TARN_KEEP_NAME_BYTES)
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT, "the name of %s must have 1 to %d bytes", what,
                  TARN_KEEP_NAME_BYTES - 1);
}

static tarn_status read_options(const tarn_keep_options *given, tarn_keep_options *options)
{
    static const tarn_keep_options nothing_special = {.size = sizeof nothing_special,
                                                      .device = TARN_CURRENT_DEVICE};
    tarn_status status =
        sized_read("tarn_keep_options", given ? given : &nothing_special, options, sizeof *options);
    if (status)
        return status;
    const char *named = options->socket ? options->socket : variable_get("TARN_KEEP");
    if (!named || !*named)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "no owner was named: set `socket`, or the variable TARN_KEEP, to the socket "
                      "of a `tarn keep --socket PATH`");
    if (strlen(named) >= KEEP_SOCKET_BYTES)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the path of a socket has at most %d bytes: %s",
                      KEEP_SOCKET_BYTES - 1, named);
    options->socket = named;
    return TARN_OK;
}

static size_t segment_of(const tarn_keep_options *options)
{
    return options->segment ? options->segment : SEGMENT_BYTES;
}

static tarn_status check_device(const struct device *device, const tarn_keep_options *options)
{
    const struct driver_properties *known = &device->properties;
    if (!known->virtual_memory || !known->exportable)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "device %d has no virtual memory that other processes can open: %s",
                      device->number, known->name);
    if (options->segment % known->granule || options->segment > known->memory)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "a segment of %zu bytes is not a multiple of %zu up to the device's memory",
                      options->segment, known->granule);
    return TARN_OK;
}

/* Sealed blocks -------------------------------------------------------------------------------- */

/* Whether each block lies in one segment, behind the block before it. */
static tarn_status sealed_check(const struct keep *keep, const struct sealed *sealed)
{
    uint64_t end = 0;
    unsigned at = 0;
    for (size_t i = 0; i < sealed->count; i++) {
        const struct layout_block *block = &sealed->list[i];
        while (at < keep->piece_count &&
               keep->pieces[at].offset + keep->pieces[at].size <= block->offset)
            at++;
        const struct keep_piece *piece = at < keep->piece_count ? &keep->pieces[at] : NULL;
        if (!sealed_lies_in(piece, block) || block->offset < end)
            return failed(TARN_ERROR_SYSTEM,
                          "block \"%s\" of pool %s lies in no segment of the pool: its layout is "
                          "broken; tarn keep --drop %s gives the memory up",
                          block->name, keep->name, keep->name);
        end = block->offset + sealed_usable(block->bytes);
    }
    return TARN_OK;
}

/* The pool ------------------------------------------------------------------------------------- */

/* The last of a pool that has ended. What the driver refuses to give up stays until it does. */
static void finish(struct keep *keep)
{
    if (!window_unreserve(keep)) {
        window_leave(keep);
        return;
    }
    mutex_finish(&keep->talking);
    mutex_finish(&keep->files.lock);
    mutex_finish(&keep->lock);
    object_free(&keeps_of_pools, keep);
}

void keep_destroy(struct keep *keep)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct error_before before;
    error_attempt_begin(&before);
    if (contents_are_settled(&keep->contents, keep->device))
        keep_leave_nothing(keep);
    contents_end(&keep->contents, keep->device);
    files_drop_all(&keep->files);
    window_abandon(keep);
    owner_leave(keep, keep->returns ? KEEP_RETURN : KEEP_END);
    error_attempt_end(&before, TARN_OK);
    for (struct tree_node *node; (node = tree_first(&keep->seals));) {
        tree_remove(&keep->seals, node);
        object_free(&seals, SEAL_OF(node));
    }
    if (keep->names)
        pages_unmap(keep->names, NAMES_BYTES);
    if (keep->layout)
        layout_unmap(keep->layout);
    finish(keep);
}

void keeps_free_stuck(const struct device *device)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct error_before before;
    error_attempt_begin(&before);
    windows_release_stuck(device);
    for (struct keep *keep = window_left(), *next; keep; keep = next) {
        next = keep->next;
        window_abandon(keep);
        finish(keep);
    }
    error_attempt_end(&before, TARN_OK);
}

/* Takes back what was done for a pool that is not to be; the owner still has its segments. The
 * first `taken` sealed blocks are live. */
static void give_up(struct keep *keep, const struct sealed *sealed, size_t taken)
{
    struct error_before before;
    keep->returns = true;
    error_attempt_begin(&before);
    for (size_t i = 0; i < taken; i++)
        (void)block_free_now((void *)(keep->base + sealed->list[i].offset));
    if (keep->begun)
        pool_release(keep->pool); /* its end is the end of `keep` */
    else
        keep_destroy(keep);
    error_attempt_end(&before, TARN_OK);
}

/* Asks which device it is. Without an answer, no other process could take the pool over. */
static tarn_status identify(struct keep *keep)
{
    struct driver_identity identity = {.uuid = ""};
    if (!driver->identity)
        return TARN_OK;
    driver->identity(keep->device->number, &identity);
    memcpy(keep->uuid, identity.uuid, sizeof keep->uuid);
    if (*keep->uuid)
        return TARN_OK;
    return failed(TARN_ERROR_DRIVER, "the driver does not say which device %d is: it has no UUID",
                  keep->device->number);
}

static tarn_status keep_make(struct device *device, const char *name,
                             const tarn_keep_options *options, struct keep **result)
{
    size_t granule = device->properties.granule;
    struct keep *keep = object_alloc(&keeps_of_pools);
    if (!keep)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a kept pool");
    mutex_init(&keep->talking, LOCK_KEEP_TALKING);
    mutex_init(&keep->lock, LOCK_LEAF);
    files_begin(&keep->files);
    keep->seals.order = seals_by_offset;
    keep->device = device;
    keep->reads = options->read;
    keep->writable = !keep->reads || !driver->set_read;
    keep->window = device->properties.memory / granule * granule * WINDOW_FACTOR;
    memcpy(keep->path, options->socket, strlen(options->socket));
    memcpy(keep->name, name, strlen(name));
    keep->socket = keep->file = -1;
    *result = keep;
    keep->names = pages_map(NAMES_BYTES);
    tarn_status status = TARN_OK;
    if (!keep->names)
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a kept pool");
    if (!status)
        status = identify(keep);
    if (!status)
        status = owner_connect(keep);
    if (status)
        give_up(keep, NULL, 0);
    return status;
}

/* The seals of this process for the blocks of the layout. */
static tarn_status seals_make(struct keep *keep, const struct sealed *sealed)
{
    for (size_t i = 0; i < sealed->count; i++) {
        const struct layout_block *block = &sealed->list[i];
        if (seal_named_locked(keep, block->name))
            return failed(TARN_ERROR_SYSTEM,
                          "pool %s has two sealed blocks \"%s\": its layout is broken", keep->name,
                          block->name);
        struct seal *seal = object_alloc(&seals);
        if (!seal)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a seal");
        seal_enter_locked(keep, seal, block,
                          atomic_load_explicit(&block->state, memory_order_relaxed));
    }
    return TARN_OK;
}

/* Enters segments as free memory of a heap, and takes the sealed blocks out of it: the first
 * `taken`. */
static tarn_status enter_all(struct keep *keep, struct heap *heap, const struct sealed *sealed,
                             size_t *taken)
{
    tarn_status status = TARN_OK;
    for (unsigned i = 0; i < keep->piece_count; i++) {
        status = segment_enter(heap, keep->base + keep->pieces[i].offset, keep->pieces[i].size);
        if (status)
            return status;
    }
    struct span *last = NULL;
    for (*taken = 0; !status && *taken < sealed->count; *taken += !status) {
        const struct layout_block *sealed_block = &sealed->list[*taken];
        tarn_pool_block block = {.address = (void *)(keep->base + sealed_block->offset),
                                 .usable_size = sealed_usable(sealed_block->bytes),
                                 .requested = sealed_block->bytes};
        status = block_take_at(heap, &block, 0, &last);
    }
    return status;
}

/* A pool that callers find only when it has its segments and numbers. */
static tarn_status pool_make(struct keep *keep, const tarn_keep_options *options,
                             struct arena *arena)
{
    struct pool *pool = NULL;
    size_t granule = keep->device->properties.granule;
    size_t segment = segment_of(options);
    size_t small = segment / SMALL_PART / granule * granule;
    tarn_status status = pool_create(arena, false, &pool);
    if (status)
        return status;
    struct store *store = &pool->store;
    store_is_of(store, KIND_PLAIN, STORE_OF_POOL | STORE_NO_SLABS | STORE_KEPT);
    store->sizes = (tarn_segment_sizes){.size = sizeof store->sizes,
                                        .small_segment = small ? small : granule,
                                        .large_segment = segment,
                                        .own_segment = segment,
                                        .rounding = granule};
    store->allocator = keep_allocator;
    store->allocator.user = keep;
    atomic_store(&pool->users, 1);
    atomic_store(&pool->unready, true);
    keep->pool = pool;
    return TARN_OK;
}

/* Maps what the owner gives, and reads which blocks of it are sealed. */
static tarn_status map_all(struct keep *keep, const tarn_keep_options *options,
                           struct sealed *sealed)
{
    struct keep_message found;
    tarn_status status = owner_get(keep, options->wait_ms, &found);
    if (status)
        return status;
    status = window_wish(keep);
    if (!status)
        status = window_reserve(keep, keep->wish, found.slot, segment_of(options));
    status = owner_segments(keep, found.count, status);
    keep->looked_at = keep->numbered; /* in case the last one came */
    if (keep->reads || status)
        return status;
    status = sealed_read(keep, sealed);
    if (!status)
        status = sealed_check(keep, sealed);
    if (!status)
        status = seals_make(keep, sealed);
    return status ? status : owner_count(keep);
}

/* Makes a pool of it. */
static tarn_status build(struct keep *keep, const tarn_keep_options *options, struct arena *arena,
                         struct stream *stream, const struct sealed *sealed, size_t *taken)
{
    struct heap *heap = NULL;
    tarn_status status = pool_make(keep, options, arena);
    if (status)
        return status;
    keep->begun = true;
    pool_begin(keep->pool);
    status = window_enter(keep);
    if (keep->reads)
        return status ? status : reader_look(keep);
    if (!status)
        status = heap_of(&keep->pool->store, stream, &heap);
    return status ? status : enter_all(keep, heap, sealed, taken);
}

/* What was found. A reader without a wish came before the pool's process had addresses. */
static void describe(const struct keep *keep, tarn_kept *kept)
{
    kept->adopted = keep->wish != 0 || keep->reads;
    kept->read_only = !keep->writable;
    kept->moved = kept->adopted && keep->wish != keep->base;
    kept->blocks = keep->seal_count;
    for (struct tree_node *node = tree_first(&keep->seals); node; node = tree_next(node))
        kept->bytes += SEAL_OF(node)->bytes;
    for (unsigned i = 0; i < keep->piece_count; i++)
        kept->mapped += keep->pieces[i].size;
}

/* Writes where this process has the pool. One that was killed may not have come to the rest. */
static void publish(struct keep *keep)
{
    keep->layout->size = keep->window;
    atomic_store_explicit(&keep->layout->base, keep->base, memory_order_release);
    layout_numbers(keep->layout, keep->numbered);
    keep->numbered = atomic_load_explicit(&keep->layout->segments, memory_order_relaxed);
    layout_changed(keep->layout, false);
}

static tarn_status keep_pool(struct device *device, const char *name,
                             const tarn_keep_options *options, struct arena *arena,
                             struct stream *stream, tarn_pool **pool, tarn_kept *kept)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct sealed sealed = {0};
    size_t taken = 0;
    struct keep *keep = NULL;
    (void)segments_free_stuck(arena);
    tarn_status status = keep_make(device, name, options, &keep);
    if (status)
        return status;
    status = map_all(keep, options, &sealed);
    if (!status)
        status = build(keep, options, arena, stream, &sealed, &taken);
    if (status) {
        give_up(keep, &sealed, taken);
    } else {
        describe(keep, kept);
        if (!keep->reads)
            publish(keep);
        atomic_store(&keep->pool->unready, false);
        *pool = (tarn_pool *)keep->pool;
    }
    sealed_end(&sealed);
    return status;
}

tarn_status tarn_pool_keep(const char *name, const tarn_keep_options *given, tarn_pool **pool,
                           tarn_kept *kept)
{
    tarn_keep_options options;
    tarn_kept result = {.size = sizeof result};
    struct device *device = NULL;
    struct arena *arena = NULL;
    struct stream *stream = NULL;
    if (!pool)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pool is NULL");
    tarn_status status = memory_ready();
    if (!status && kept)
        status = sized_check("tarn_kept", kept, sizeof *kept);
    if (!status)
        status = check_name("a kept pool", name);
    if (!status)
        status = read_options(given, &options);
    if (status)
        return status;
    int number = options.device == TARN_CURRENT_DEVICE ? thread_device() : options.device;
    status = device_find(number, &device);
    if (!status)
        status = device_check(device);
    if (!status)
        status = check_device(device, &options);
    if (!status)
        status = stream_find(options.stream, number, &stream);
    if (!status)
        status = arena_of(device, &arena);
    if (!status)
        status = keep_pool(device, name, &options, arena, stream, pool, &result);
    if (!status && kept)
        sized_write(kept, &result, sizeof result);
    return status;
}

/* Seals ---------------------------------------------------------------------------------------- */

/* The block's seal; NULL: it has none. Then it is the caller's to free, without a lock. */
static struct seal *unseal_locked(struct keep *keep, uint64_t offset)
{
    struct seal *seal = seal_at_locked(keep, offset);
    if (!seal)
        return NULL;
    layout_unseal(keep->layout, seal->place);
    return seal_forget_locked(keep, seal);
}

static bool unseal(struct keep *keep, uintptr_t address)
{
    mutex_lock(&keep->lock);
    struct seal *seal = unseal_locked(keep, address - keep->base);
    mutex_unlock(&keep->lock);
    object_free(&seals, seal);
    return seal != NULL;
}

/* What a failed adoption takes back stays sealed. */
void keep_forget_locked(const struct store *store, uintptr_t address)
{
    struct keep *keep = keep_of_store(store);
    if (!keep->returns && !keep->spares)
        (void)unseal(keep, address);
}

void keep_spare(const struct store *store, bool spare)
{
    keep_of_store(store)->spares = spare;
}

void keep_forget_all(const struct store *store)
{
    struct keep *keep = keep_of_store(store);
    for (struct seal *seal = NULL;; object_free(&seals, seal)) {
        mutex_lock(&keep->lock);
        const struct tree_node *first = tree_first(&keep->seals);
        seal = first ? unseal_locked(keep, SEAL_OF(first)->offset) : NULL;
        mutex_unlock(&keep->lock);
        if (!seal)
            return;
    }
}

tarn_status keep_refuse_suspend(const struct store *store, const char *what)
{
    const struct keep *keep = keep_of_store(store);
    if (atomic_load(&keep->transfers))
        return failed(TARN_ERROR_BUSY, "%s: pool %s is being saved to a file, or loaded", what,
                      keep->name);
    return keep_refuse_reader(keep, what);
}

/* The first free place of the layout, which has one. */
static size_t free_place_locked(const struct keep *keep)
{
    size_t word = 0;
    while (keep->taken[word] == UINT64_MAX)
        word++;
    return word * 64 + (size_t)__builtin_ctzll(~keep->taken[word]);
}

static tarn_status seal_locked(struct keep *keep, struct layout_block *block, struct seal *seal)
{
    const struct seal *before = seal_at_locked(keep, block->offset);
    if (before)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the block is sealed as \"%s\" already: tarn_pool_block_unseal() first",
                      before->name);
    if (seal_named_locked(keep, block->name))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "pool %s has a sealed block of the name \"%s\" already", keep->name,
                      block->name);
    if (keep->seal_count >= LAYOUT_BLOCKS)
        return failed(TARN_ERROR_NO_ROOM, "pool %s has %u sealed blocks, the most that it can have",
                      keep->name, LAYOUT_BLOCKS);
    size_t place = free_place_locked(keep);
    layout_seal(keep->layout, place, block);
    atomic_store_explicit(&block->number, (uint32_t)layout_number(0, &keep->layout->blocks[place]),
                          memory_order_relaxed);
    seal_enter_locked(keep, seal, block, place);
    return TARN_OK;
}

size_t keep_list(struct keep *keep, struct keep_sealed *list)
{
    size_t count = 0;
    mutex_lock(&keep->lock);
    for (struct tree_node *node = tree_first(&keep->seals); node; node = tree_next(node)) {
        const struct seal *seal = SEAL_OF(node);
        struct keep_sealed *entry = &list[count++];
        *entry = (struct keep_sealed){seal->offset, seal->bytes, seal->number, {0}, {0}};
        memcpy(entry->name, seal->name, sizeof entry->name);
        memcpy(entry->data, seal->data, sizeof entry->data);
    }
    mutex_unlock(&keep->lock);
    return count;
}

bool keep_is_sealed(struct keep *keep, const struct keep_sealed *sealed)
{
    mutex_lock(&keep->lock);
    const struct seal *seal = seal_at_locked(keep, sealed->offset);
    bool is_sealed = seal && seal->number == sealed->number;
    mutex_unlock(&keep->lock);
    return is_sealed;
}

/* What is sealed, and by which name. */
struct sealing {
    struct layout_block block;
    struct seal *seal;
    const void *pointer;
};

static tarn_status refuse_pointer(const void *pointer)
{
    return failed(TARN_ERROR_INVALID_POINTER, "%p is not the start of a block of a kept pool",
                  pointer);
}

/* Under the lock of the block's heap, so that the block is not freed meanwhile. */
static tarn_status seal_block(struct store *store, const tarn_block_info *info, void *argument)
{
    struct sealing *sealing = argument;
    struct keep *keep = keep_of_store(store);
    if (!keep || info->base != sealing->pointer)
        return refuse_pointer(sealing->pointer);
    sealing->block.offset = (uintptr_t)info->base - keep->base;
    sealing->block.bytes = info->requested;
    mutex_lock(&keep->lock);
    tarn_status status = seal_locked(keep, &sealing->block, sealing->seal);
    mutex_unlock(&keep->lock);
    return status;
}

static tarn_status wait_for(tarn_event *event)
{
    tarn_status status = event ? event_check(event) : TARN_OK;
    return status || !event ? status : tarn_event_synchronize(event);
}

tarn_status tarn_pool_block_seal(const void *pointer, const char *name, const void *data,
                                 tarn_event *event)
{
    struct sealing sealing = {.pointer = pointer};
    tarn_status status = memory_ready();
    if (!status)
        status = check_name("a sealed block", name);
    if (!status)
        status = wait_for(event);
    if (status)
        return status;
    memcpy(sealing.block.name, name, strlen(name));
    if (data)
        memcpy(sealing.block.data, data, sizeof sealing.block.data);
    sealing.seal = object_alloc(&seals);
    if (!sealing.seal)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a seal");
    status = pointer_do(pointer, seal_block, &sealing);
    if (!status)
        return TARN_OK;
    object_free(&seals, sealing.seal);
    return status;
}

static tarn_status unseal_block(struct store *store, const tarn_block_info *info, void *argument)
{
    struct keep *keep = keep_of_store(store);
    const void *pointer = *(const void **)argument;
    if (keep && info->base == pointer && unseal(keep, (uintptr_t)pointer))
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_POINTER, "%p is not the start of a sealed block", pointer);
}

tarn_status tarn_pool_block_unseal(const void *pointer)
{
    tarn_status status = memory_ready();
    return status ? status : pointer_do(pointer, unseal_block, &pointer);
}

static tarn_status not_found(struct keep *keep, const char *name)
{
    mutex_lock(&keep->lock);
    size_t hidden = keep->hidden;
    mutex_unlock(&keep->lock);
    if (hidden)
        return failed(TARN_ERROR_BUSY,
                      "pool %s has no sealed block \"%s\" that can be reached: %zu are where this "
                      "process still has memory that the pool has given up: tarn_pool_trim()",
                      keep->name, name, hidden);
    return failed(TARN_ERROR_INVALID_ARGUMENT, "pool %s has no sealed block \"%s\"", keep->name,
                  name);
}

tarn_status tarn_pool_block_find(tarn_pool *pool, const char *name, tarn_sealed_block *block)
{
    tarn_status status = pool_check(pool);
    if (!status)
        status = sized_check("tarn_sealed_block", block, sizeof *block);
    if (!status)
        status = check_name("a sealed block", name);
    if (status)
        return status;
    struct keep *keep = keep_of_store(store_of_public(pool));
    if (!keep)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the pool is not one of tarn_pool_keep()");
    tarn_sealed_block found = {.size = sizeof found};
    status = keep->reads ? reader_find(keep, name, &found) : TARN_OK;
    if (!keep->reads) {
        mutex_lock(&keep->lock);
        seal_find_locked(keep, name, &found);
        mutex_unlock(&keep->lock);
    }
    if (!status && !found.pointer)
        status = not_found(keep, name);
    if (status)
        return status;
    sized_write(block, &found, sizeof found);
    return TARN_OK;
}
