/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pools of the driver: which of them blocks may be cut from, and what the program asks of them. Of a store with lanes the driver counts whole
 * segments as used, so `used` is answered from blocks; `reserved` is the driver's. Keeps: a store's number stays its own as long as lanes
 * refer to it. Its lock is a leaf. */
#include "../lock.h"
#include "lane.h"
#include "segments.h"

enum attribute { /* CU_MEMPOOL_ATTR_ */
                 REUSE_ALLOW_OPPORTUNISTIC = 2,
                 RELEASE_THRESHOLD = 4,
                 RESERVED_CURRENT = 5,
                 USED_CURRENT = 7,
                 USED_HIGH = 8,
};

static struct store {
    _Atomic(cu_pool) pool; /* NULL: destroyed, or no store */
    unsigned device;
    _Atomic int references; /* lanes, and one for the driver's pool; 0: no store */
    _Atomic bool unfit;
    _Atomic uint64_t threshold;
    _Atomic uint64_t segments, blocks; /* bytes of lanes, and of blocks in these */
    _Atomic uint64_t passed;           /* bytes of blocks that the driver served */
    _Atomic uint64_t high;             /* the most of both kinds of blocks */
} stores[STORES];
static struct word_lock lock;
static _Atomic unsigned closing;

/* The store that a device's own requests come from, and behind it how often any device's was changed. 0: not known. */
static _Atomic uint64_t current[BOOK_DEVICES];
static _Atomic uint32_t current_changes;

cu_pool store_pool(unsigned store)
{
    return store ? atomic_load_explicit(&stores[store - 1].pool, memory_order_acquire) : NULL;
}

unsigned store_device(unsigned store)
{
    return stores[store - 1].device;
}

bool store_is_fit(unsigned store)
{
    return store_pool(store) && !atomic_load_explicit(&stores[store - 1].unfit, memory_order_relaxed);
}

bool stores_are_closing(void)
{
    return atomic_load_explicit(&closing, memory_order_relaxed) > 0;
}

void store_segment(unsigned store, int64_t bytes)
{
    atomic_fetch_add(&stores[store - 1].segments, (uint64_t)bytes);
}

static void raise_high(struct store *store, uint64_t now)
{
    uint64_t before = atomic_load(&store->high);
    while (before < now && !atomic_compare_exchange_weak(&store->high, &before, now))
        ;
}

/* The driver said how much of the pool is used, which includes blocks that no hook saw come or go. */
static uint64_t learn_used(struct store *store, uint64_t said)
{
    uint64_t segments = atomic_load(&store->segments), passed = said > segments ? said - segments : 0;
    atomic_store(&store->passed, passed);
    uint64_t used = passed + atomic_load(&store->blocks);
    raise_high(store, used);
    return used;
}

void store_block(unsigned number, int64_t bytes)
{
    struct store *store = &stores[number - 1];
    uint64_t blocks = atomic_fetch_add(&store->blocks, (uint64_t)bytes) + (uint64_t)bytes;
    if (bytes > 0)
        raise_high(store, blocks + atomic_load(&store->passed));
}

void pool_passes(unsigned number, int64_t bytes)
{
    if (!number)
        return;
    struct store *store = &stores[number - 1];
    uint64_t before = atomic_load(&store->passed);
    while (!atomic_compare_exchange_weak(&store->passed, &before, book_positive(before + (uint64_t)bytes)))
        ;
    if (bytes > 0)
        raise_high(store, before + (uint64_t)bytes + atomic_load(&store->blocks));
}

void store_refer(unsigned number, int change)
{
    struct store *store = &stores[number - 1];
    word_lock_take(&lock);
    if (atomic_fetch_add(&store->references, change) == -change && !atomic_load(&store->pool))
        closing--;
    word_lock_give(&lock);
}

static uint64_t ask(cu_pool pool, enum attribute attribute)
{
    uint64_t value = 0;
    cu_capture_mode mode = mode_relax();
    cu_result code = real.cuMemPoolGetAttribute(pool, attribute, &value);
    mode_restore(mode);
    return code ? 0 : value;
}

bool store_is_above(unsigned number)
{
    const struct store *store = &stores[number - 1];
    cu_pool pool = store_pool(number);
    uint64_t threshold = atomic_load(&store->threshold);
    uint64_t segments = atomic_load(&store->segments);
    return pool && segments && threshold != UINT64_MAX &&
           (segments > threshold || ask(pool, RESERVED_CURRENT) > threshold);
}

void stores_settle(void)
{
    for (unsigned number = 1; number <= STORES; number++) {
        cu_pool pool = store_pool(number);
        uint64_t threshold = atomic_load(&stores[number - 1].threshold);
        if (!pool || threshold == UINT64_MAX || ask(pool, RESERVED_CURRENT) <= threshold)
            continue;
        cu_capture_mode mode = mode_relax();
        (void)PASS(cuMemPoolTrimTo, (pool, threshold));
        mode_restore(mode);
    }
}

cu_context store_context(unsigned store)
{
    return (cu_context)(void *)&stores[store - 1];
}

/* The driver says of its pool how much is in use. */
static bool is_gone(unsigned number)
{
    const struct store *store = &stores[number - 1];
    cu_pool pool = store_pool(number);
    uint64_t segments = atomic_load(&store->segments);
    return segments && (!pool || ask(pool, USED_CURRENT) < segments);
}

void stores_end(unsigned device)
{
    current_changes++; /* its default pool may be another from now on */
    for (unsigned number = 1; number <= STORES; number++) {
        if (stores[number - 1].device != device || !atomic_load(&stores[number - 1].references) || !is_gone(number))
            continue;
        segments_end_of(number);
        charge_drop(store_context(number));
        lanes_trim(number, device);
    }
}

/* The store of a pool that is there. */
static unsigned find(cu_pool pool)
{
    for (unsigned i = 0; pool && i < STORES; i++)
        if (atomic_load_explicit(&stores[i].pool, memory_order_acquire) == pool)
            return i + 1;
    return 0;
}

static bool can_cut(void)
{
    return real.cuMemAllocFromPoolAsync && real.cuMemFreeAsync && real.cuMemPoolGetAttribute &&
           real.cuDeviceGetMemPool && real.cuDeviceGetDefaultMemPool && real.cuStreamQuery && real.cuStreamGetCtx &&
           real.cuEventCreate && real.cuEventRecord && real.cuEventQuery && real.cuEventDestroy_v2 &&
           !atomic_load(&book->pool_ended);
}

unsigned pool_store(cu_pool pool, unsigned device)
{
    unsigned number = find(pool);
    if (number || !book->pool || !pool || device >= book->devices || pool_captures() || !can_cut())
        return number;
    const struct store made = {.device = device,
                               .threshold = ask(pool, RELEASE_THRESHOLD),
                               .passed = ask(pool, USED_CURRENT),
                               .high = ask(pool, USED_HIGH),
                               .unfit = !ask(pool, REUSE_ALLOW_OPPORTUNISTIC)};
    word_lock_take(&lock);
    unsigned at = 0;
    while (at < STORES && stores[at].references)
        at++;
    number = find(pool);
    if (!number && at < STORES) {
        stores[at].device = made.device;
        atomic_store(&stores[at].unfit, made.unfit);
        atomic_store(&stores[at].threshold, made.threshold);
        atomic_store(&stores[at].segments, 0);
        atomic_store(&stores[at].blocks, 0);
        atomic_store(&stores[at].passed, made.passed);
        atomic_store(&stores[at].high, made.high);
        atomic_store(&stores[at].references, 1);
        atomic_store_explicit(&stores[at].pool, pool, memory_order_release);
        number = at + 1;
    }
    word_lock_give(&lock);
    return number;
}

/* A limit of its own, handles for others and what this code does not know are the driver's to keep. */
bool pool_can_be_store(const struct cu_pool_properties *properties)
{
    bool plain = properties->type == CU_ALLOCATION_PINNED && !properties->handle_types && !properties->win32 &&
                 !properties->most && !properties->usage;
    for (size_t i = 0; i < sizeof properties->reserved; i++)
        plain = plain && !properties->reserved[i];
    return plain;
}

/* Only the default pool is known to have no properties, or one that the program was seen to create. */
static unsigned find_current(unsigned device)
{
    cu_pool pool = NULL, first = NULL;
    if (!can_cut() || real.cuDeviceGetMemPool(&pool, (cu_device)device) || find(pool))
        return find(pool);
    return real.cuDeviceGetDefaultMemPool(&first, (cu_device)device) || pool != first ? 0 : pool_store(pool, device);
}

unsigned pool_store_of_device(unsigned device)
{
    if (!book->pool || device >= book->devices)
        return 0;
    uint32_t changes = atomic_load_explicit(&current_changes, memory_order_acquire);
    uint64_t known = atomic_load_explicit(&current[device], memory_order_relaxed);
    if (known && known >> 32 == changes)
        return (unsigned)(known & UINT32_MAX) - 1;
    if (pool_captures())
        return 0;
    unsigned store = find_current(device);
    atomic_store(&current[device], (uint64_t)changes << 32 | (store + 1));
    return store;
}

unsigned pool_store_known(cu_pool pool, unsigned device)
{
    unsigned store = pool_store_of_device(device);
    return store_pool(store) == pool ? store : 0;
}

/* What the program asks ----------------------------------------------------------------------------------------------- */

HOOK cu_result cuDeviceSetMemPool(cu_device device, cu_pool pool)
{
    if (!shim_enter())
        return PASS(cuDeviceSetMemPool, (device, pool));
    cu_result code = PASS(cuDeviceSetMemPool, (device, pool));
    current_changes++;
    shim_leave();
    return code;
}

HOOK cu_result cuMemSetMemPool(struct cu_location *location, unsigned type, cu_pool pool)
{
    if (!shim_enter())
        return PASS(cuMemSetMemPool, (location, type, pool));
    cu_result code = PASS(cuMemSetMemPool, (location, type, pool));
    current_changes++;
    shim_leave();
    return code;
}

HOOK cu_result cuMemPoolTrimTo(cu_pool pool, size_t keep)
{
    if (!shim_enter())
        return PASS(cuMemPoolTrimTo, (pool, keep));
    unsigned store = find(pool);
    if (store && atomic_load(&stores[store - 1].segments) && !pool_captures() && ask(pool, RESERVED_CURRENT) > keep) {
        late_look();
        lanes_trim(store, store_device(store));
    }
    cu_result code = PASS(cuMemPoolTrimTo, (pool, keep));
    shim_leave();
    return code;
}

HOOK cu_result cuMemPoolGetAttribute(cu_pool pool, unsigned attribute, void *value)
{
    cu_result code = PASS(cuMemPoolGetAttribute, (pool, attribute, value));
    if (code || !value || (attribute != USED_CURRENT && attribute != USED_HIGH) || !shim_enter())
        return code;
    unsigned number = find(pool);
    if (number) {
        struct store *store = &stores[number - 1];
        uint64_t *said = value;
        uint64_t used = learn_used(store, attribute == USED_CURRENT ? *said : ask(pool, USED_CURRENT));
        *said = attribute == USED_CURRENT ? used : atomic_load(&store->high);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuMemPoolSetAttribute(cu_pool pool, unsigned attribute, void *value)
{
    if (!shim_enter())
        return PASS(cuMemPoolSetAttribute, (pool, attribute, value));
    cu_result code = PASS(cuMemPoolSetAttribute, (pool, attribute, value));
    unsigned number = find(pool);
    if (!code && value && number) {
        struct store *store = &stores[number - 1];
        if (attribute == RELEASE_THRESHOLD) {
            atomic_store(&store->threshold, *(const uint64_t *)value);
        } else if (attribute == REUSE_ALLOW_OPPORTUNISTIC) {
            atomic_store(&store->unfit, !*(const int *)value);
        } else if (attribute == USED_HIGH) {
            atomic_store(&store->high, 0);
            (void)learn_used(store, ask(pool, USED_CURRENT));
        }
    }
    shim_leave();
    return code;
}

/* Its blocks stay, and the driver keeps its memory until they are freed. */
void pool_store_leaves(cu_pool pool)
{
    unsigned store = find(pool);
    if (store && atomic_load(&stores[store - 1].segments) && !pool_captures())
        lanes_trim(store, store_device(store));
}

void pool_store_gone(cu_pool pool)
{
    unsigned store = find(pool);
    current_changes++;
    if (!store)
        return;
    atomic_store(&stores[store - 1].pool, NULL);
    closing++;
    store_refer(store, -1);
    lanes_close(store);
}
