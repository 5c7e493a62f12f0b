/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Charges: what a hook writes into the book before and after the driver's call.
 *
 * If book->exact is set (a limit, a group or pools), a device's `used` is raised before the call,
 * so that two threads cannot pass a limit together, and lowered again if the driver fails.
 * Otherwise threads share nothing: each counts at its desk, and empties the desk into the lists now
 * and then. A free of a block that was never charged, or that ended with its context, changes
 * nothing. */
#include "pool/pool.h"
#include "shim.h"

#include <pthread.h>
#include <string.h>

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

/* Desks ---------------------------------------------------------------------------------------- */

/* how much a desk may have before it is emptied */
enum { DESK_BYTES = 1 << 20, DESK_CALLS = 4096 };

static _Thread_local struct book_desk *own_desk __attribute__((tls_model("initial-exec")));
static pthread_key_t desk_key;
static bool desks_are_there;

static void bump(_Atomic uint64_t *value, uint64_t by)
{
    atomic_store_explicit(value, atomic_load_explicit(value, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

/* Adds a desk's changes to an account, its holder and its device. Sums may be negative for a
 * moment: one thread's desk may have the free of a block whose allocation is at another's. */
static void settle(uint32_t number, uint64_t made, uint64_t made_bytes, int64_t live, int64_t high,
                   int64_t blocks)
{
    unsigned kind = number % RUN_KINDS, index = number / RUN_KINDS / BOOK_LIBRARIES;
    uint32_t library = number / RUN_KINDS % BOOK_LIBRARIES;
    struct book_account *account = &book->account[index][library][kind];
    struct book_device *device = &book->device[index];
    atomic_fetch_add(&account->made, made);
    atomic_fetch_add(&account->made_bytes, made_bytes);
    if (!run_kind_counts(kind)) {
        uint64_t before = atomic_fetch_add(&account->live, (uint64_t)live);
        raise_to(&account->peak, book_positive(before + (uint64_t)high));
        return;
    }
    struct book_holder *holder = &book->holder[index][library];
    uint64_t before = atomic_fetch_add(&holder->live, (uint64_t)live);
    raise_to(&holder->peak, book_positive(before + (uint64_t)high));
    atomic_fetch_add(&device->blocks, (uint64_t)blocks);
    if (book->exact)
        return;
    before = atomic_fetch_add(&device->used, (uint64_t)live);
    raise_to(&device->peak, book_positive(before + (uint64_t)high));
}

static void desk_empty(struct book_desk *desk)
{
    uint32_t number = atomic_load_explicit(&desk->account, memory_order_relaxed);
    if (number)
        settle(number - 1, atomic_load(&desk->made), atomic_load(&desk->made_bytes),
               atomic_load(&desk->live), atomic_load(&desk->high), atomic_load(&desk->blocks));
    atomic_store_explicit(&desk->account, 0, memory_order_release);
    atomic_store_explicit(&desk->made, 0, memory_order_release);
    atomic_store_explicit(&desk->made_bytes, 0, memory_order_release);
    atomic_store_explicit(&desk->live, 0, memory_order_release);
    atomic_store_explicit(&desk->high, 0, memory_order_release);
    atomic_store_explicit(&desk->blocks, 0, memory_order_release);
}

/* Runs at a thread's end. In a child of fork() the desk belongs to the parent, and is left
 * alone. */
static void desk_leave(void *desk)
{
    if (atomic_load(&shim_state) != SHIM_AWAKE)
        return;
    own_desk = NULL;
    desk_empty(desk);
    atomic_store(&((struct book_desk *)desk)->taken, 0);
}

void charges_begin(void)
{
    book->exact = atomic_load(&book->limited) || group_joined() || book->pool;
    desks_are_there = pthread_key_create(&desk_key, desk_leave) == 0;
}

/* A desk for this thread; NULL if all are taken: then each of its calls counts in the lists at
 * once. */
static struct book_desk *desk_take(void)
{
    for (unsigned i = 0; desks_are_there && i < BOOK_DESKS; i++) {
        uint32_t nobody = 0;
        if (atomic_load_explicit(&book->desk[i].taken, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong(&book->desk[i].taken, &nobody, 1)) {
            if (pthread_setspecific(desk_key, &book->desk[i]) == 0)
                return own_desk = &book->desk[i];
            atomic_store(&book->desk[i].taken, 0);
            break;
        }
    }
    return NULL;
}

static void count(const struct block *block, bool is_made)
{
    uint32_t number =
        book_account_number(block->device, book->site[block->site].library, block->kind);
    bool counts = run_kind_counts(block->kind);
    int64_t bytes = block->kind == RUN_GRAPH ? 0
                    : is_made                ? (int64_t)block->size
                                             : -(int64_t)block->size;
    struct book_desk *desk = own_desk ? own_desk : desk_take();
    if (!desk) {
        settle(number, is_made, is_made ? block->size : 0, bytes, bytes > 0 ? bytes : 0,
               !counts   ? 0
               : is_made ? 1
                         : -1);
        return;
    }
    uint32_t there = atomic_load_explicit(&desk->account, memory_order_relaxed);
    if (there != number + 1) {
        if (there)
            desk_empty(desk);
        atomic_store_explicit(&desk->account, number + 1, memory_order_relaxed);
    }
    int64_t live = atomic_load_explicit(&desk->live, memory_order_relaxed) + bytes;
    atomic_store_explicit(&desk->live, live, memory_order_relaxed);
    if (live > atomic_load_explicit(&desk->high, memory_order_relaxed))
        atomic_store_explicit(&desk->high, live, memory_order_relaxed);
    if (is_made) {
        bump(&desk->made, 1);
        bump(&desk->made_bytes, block->size);
    }
    if (counts)
        atomic_store_explicit(&desk->blocks,
                              atomic_load_explicit(&desk->blocks, memory_order_relaxed) +
                                  (is_made ? 1 : -1),
                              memory_order_relaxed);
    if (live > DESK_BYTES || live < -DESK_BYTES ||
        atomic_load_explicit(&desk->made, memory_order_relaxed) > DESK_CALLS)
        desk_empty(desk);
}

/* larger than any device's memory; sums with more would overflow */
#define MOST_BYTES (UINT64_C(1) << 56)

/* Limits --------------------------------------------------------------------------------------- */

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Adds to what is in use of a device, in the book and in the group. */
static void use(unsigned device, uint64_t size)
{
    if (!book->exact)
        return;
    atomic_fetch_add(&book->device[device].used, size);
    if (group_joined())
        group_add(device, size);
}

static void unuse(unsigned device, uint64_t size)
{
    if (!book->exact)
        return;
    subtract(&book->device[device].used, size);
    if (group_joined())
        group_subtract(device, size);
}

/* Counts the size in `used`, or sets the charge's `left` to what was left, which is less than the
 * size. */
static bool reserve(struct charge *charge, uint64_t size)
{
    unsigned index = charge->block.device;
    struct book_device *device = &book->device[index];
    if (!book->exact) {
        charge->reserved = size;
        return true;
    }
    /* the driver will refuse it; the shim does so only if there is a limit */
    if (size > MOST_BYTES) {
        charge->left = lesser(limits_left(index), MOST_BYTES);
        return atomic_load(&device->limit) == UINT64_MAX && !group_has(index);
    }
    if (group_joined())
        group_limits();
    uint64_t limit = atomic_load_explicit(&device->limit, memory_order_relaxed);
    uint64_t unseen = limit == UINT64_MAX ? 0 : limits_unseen(device);
    bool shared = group_has(index);
    if (shared && !group_reserve(index, size, unseen, limit, &charge->left))
        return false;
    if (shared) {
        atomic_fetch_add(&device->used, size);
    } else {
        /* compare and exchange: adding first, even for a moment, could make another thread's
         * request fail */
        uint64_t used = atomic_load(&device->used);
        do {
            charge->left = limit - lesser(limit, used + unseen);
            if (size > charge->left)
                return false;
        } while (!atomic_compare_exchange_weak(&device->used, &used, used + size));
    }
    charge->reserved = size;
    return true;
}

run_result charge_begin(struct charge *charge, enum run_kind kind, unsigned device, uint64_t size,
                        void *caller)
{
    *charge = (struct charge){
        .caller = caller,
        .block = {.kind = (uint8_t)kind, .device = (uint8_t)device, .size = size, .references = 1}};
    if (device >= book->devices)
        return RUN_OK;
    charge->block.site = (uint16_t)site_of(caller);
    if (!run_kind_counts(kind) || reserve(charge, size) ||
        (pool_trim(device) && reserve(charge, size)))
        return RUN_OK;
    limits_refuse(device, size, charge->block.site);
    struct block refused = charge->block;
    refused.key = charge->left;
    log_write(&refused, NULL, stack_of(caller), BOOK_REFUSED);
    return RUN_OUT_OF_MEMORY;
}

static void enter(const struct block *block)
{
    count(block, true);
    if (book->exact && run_kind_counts(block->kind))
        raise_to(&book->device[block->device].peak, atomic_load(&book->device[block->device].used));
}

static void leave(const struct block *block)
{
    count(block, false);
    if (block->taken_over)
        atomic_fetch_sub(&book->device[block->device].taken_over, block->size);
    if (run_kind_counts(block->kind) && !block->pooled)
        unuse(block->device, block->size);
}

void charge_end(struct charge *charge, run_result code, enum block_space space, uint64_t key,
                uint64_t size)
{
    struct block *block = &charge->block;
    if (block->device >= book->devices)
        return;
    if (code || !key) {
        unuse(block->device, charge->reserved);
        return;
    }
    /* the driver's call may have shown that the block is of another kind */
    uint64_t takes = run_kind_counts(block->kind) ? size : 0;
    if (charge->reserved < takes)
        use(block->device, takes - charge->reserved);
    else
        unuse(block->device, charge->reserved - takes);
    block->size = size;
    block->space = (uint8_t)space;
    block->key = key;
    if (block->kind != RUN_GRAPH) {
        struct block old;
        if (!blocks_put(block, &old)) {
            unuse(block->device, takes);
            atomic_fetch_add(&book->unfollowed, 1);
            return;
        }
        if (old.space)
            charge_free(&old, NULL);
    }
    enter(block);
    log_write(block, charge->stream, stack_of(charge->caller), BOOK_ALLOC);
}

bool charge_taken_over(unsigned device, uint64_t piece, uint64_t size, void *caller)
{
    struct block old, block = {.kind = RUN_VIRTUAL,
                               .space = SPACE_PIECE,
                               .device = (uint8_t)device,
                               .key = piece,
                               .size = size,
                               .taken_over = true,
                               .references = 1};
    if (device >= book->devices)
        return false;
    block.site = (uint16_t)site_of(caller);
    if (!blocks_put(&block, &old)) {
        atomic_fetch_add(&book->unfollowed, 1);
        return false;
    }
    if (old.space)
        charge_free(&old, NULL);
    atomic_fetch_add(&book->device[device].taken_over, size);
    if (book->exact) {
        atomic_fetch_add(&book->device[device].used, size);
        group_expect(device, size);
    }
    enter(&block);
    log_write(&block, NULL, stack_of(caller), BOOK_ALLOC);
    return true;
}

bool charge_pooled(struct block *block, run_stream stream, void *caller)
{
    struct block old;
    block->site = (uint16_t)site_of(caller);
    if (!blocks_put(block, &old))
        return false;
    if (old.space)
        charge_free(&old, NULL);
    count(block, true);
    log_write(block, stream, stack_of(caller), BOOK_ALLOC);
    return true;
}

bool charge_segment(unsigned device, uint64_t size)
{
    struct charge charge = {.block = {.device = (uint8_t)device}};
    if (!reserve(&charge, size))
        return false;
    raise_to(&book->device[device].peak, atomic_load(&book->device[device].used));
    return true;
}

void charge_segment_free(unsigned device, uint64_t size)
{
    unuse(device, size);
}

void charge_free(const struct block *block, run_stream stream)
{
    leave(block);
    log_write(block, stream, 0, BOOK_FREE);
}

void charge_restore(const struct block *block)
{
    struct block again = *block, old;
    again.place = 0;
    if (!blocks_put(&again, &old)) {
        leave(block);
        atomic_fetch_add(&book->unfollowed, 1);
    }
}

uint64_t charge_used(unsigned device)
{
    return atomic_load(&book->device[device].used);
}

void charge_drop(run_context context)
{
    struct block_cursor cursor = {0};
    struct block block;
    current_device_changes();
    while (context && blocks_take_of(context, &cursor, &block)) {
        charge_free(&block, NULL);
        if (block.pooled)
            pool_forget(&block);
    }
}
