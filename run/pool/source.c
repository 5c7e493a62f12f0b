/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sources, which are pools of the driver: from which of them blocks may be cut, and what the
 * program asks about them. Of a source with lanes the driver counts whole segments as used. So
 * `used` is computed from blocks here, and `reserved` is the driver's. Invariant: a source keeps
 * its number as long as lanes refer to it. Its lock is a leaf. */
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

static struct source {
    _Atomic(cu_pool) pool; /* NULL: the pool was destroyed, or this is no source */
    unsigned device;
    _Atomic int references; /* one per lane, and one for the driver's pool; 0: this is no source */
    _Atomic bool unfit;
    _Atomic uint64_t threshold;
    _Atomic uint64_t segments, blocks; /* bytes of lanes' segments, and of the blocks in them */
    _Atomic uint64_t passed;           /* bytes of blocks that the driver itself served */
    _Atomic uint64_t high;             /* the greatest sum of `blocks` and `passed` */
} sources[SOURCES];
static struct word_lock lock;
static _Atomic unsigned closing;

/* For each device, the source that its own requests come from, plus 1, in the lower half, and the
 * value of `current_changes` at that time in the upper half. 0: not known. */
static _Atomic uint64_t current[BOOK_DEVICES];
static _Atomic uint32_t current_changes;

cu_pool source_pool(unsigned source)
{
    return source ? atomic_load_explicit(&sources[source - 1].pool, memory_order_acquire) : NULL;
}

unsigned source_device(unsigned source)
{
    return sources[source - 1].device;
}

bool source_is_fit(unsigned source)
{
    return source_pool(source) &&
           !atomic_load_explicit(&sources[source - 1].unfit, memory_order_relaxed);
}

bool sources_are_closing(void)
{
    return atomic_load_explicit(&closing, memory_order_relaxed) > 0;
}

void source_segment(unsigned source, int64_t bytes)
{
    atomic_fetch_add(&sources[source - 1].segments, (uint64_t)bytes);
}

static void raise_high(struct source *source, uint64_t now)
{
    uint64_t before = atomic_load(&source->high);
    while (before < now && !atomic_compare_exchange_weak(&source->high, &before, now))
        ;
}

/* Corrects `passed` by what the driver says is used of the pool, which includes blocks whose calls
 * no hook saw. */
static uint64_t learn_used(struct source *source, uint64_t said)
{
    uint64_t segments = atomic_load(&source->segments),
             passed = said > segments ? said - segments : 0;
    atomic_store(&source->passed, passed);
    uint64_t used = passed + atomic_load(&source->blocks);
    raise_high(source, used);
    return used;
}

void source_block(unsigned number, int64_t bytes)
{
    struct source *source = &sources[number - 1];
    uint64_t blocks = atomic_fetch_add(&source->blocks, (uint64_t)bytes) + (uint64_t)bytes;
    if (bytes > 0)
        raise_high(source, blocks + atomic_load(&source->passed));
}

void pool_passes(unsigned number, int64_t bytes)
{
    if (!number)
        return;
    struct source *source = &sources[number - 1];
    uint64_t before = atomic_load(&source->passed);
    while (!atomic_compare_exchange_weak(&source->passed, &before,
                                         book_positive(before + (uint64_t)bytes)))
        ;
    if (bytes > 0)
        raise_high(source, before + (uint64_t)bytes + atomic_load(&source->blocks));
}

void source_refer(unsigned number, int change)
{
    struct source *source = &sources[number - 1];
    word_lock_take(&lock);
    if (atomic_fetch_add(&source->references, change) == -change && !atomic_load(&source->pool))
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

bool source_is_above(unsigned number)
{
    const struct source *source = &sources[number - 1];
    cu_pool pool = source_pool(number);
    uint64_t threshold = atomic_load(&source->threshold);
    uint64_t segments = atomic_load(&source->segments);
    return pool && segments && threshold != UINT64_MAX &&
           (segments > threshold || ask(pool, RESERVED_CURRENT) > threshold);
}

void sources_settle(void)
{
    for (unsigned number = 1; number <= SOURCES; number++) {
        cu_pool pool = source_pool(number);
        uint64_t threshold = atomic_load(&sources[number - 1].threshold);
        if (!pool || threshold == UINT64_MAX || ask(pool, RESERVED_CURRENT) <= threshold)
            continue;
        cu_capture_mode mode = mode_relax();
        (void)PASS(cuMemPoolTrimTo, (pool, threshold));
        mode_restore(mode);
    }
}

cu_context source_context(unsigned source)
{
    return (cu_context)(void *)&sources[source - 1];
}

/* True if a source's memory has gone. The driver then says that less is in use than lanes have. */
static bool is_gone(unsigned number)
{
    const struct source *source = &sources[number - 1];
    cu_pool pool = source_pool(number);
    uint64_t segments = atomic_load(&source->segments);
    return segments && (!pool || ask(pool, USED_CURRENT) < segments);
}

void sources_end(unsigned device)
{
    current_changes++; /* the device's default pool may be another one from now on */
    for (unsigned number = 1; number <= SOURCES; number++) {
        if (sources[number - 1].device != device || !atomic_load(&sources[number - 1].references) ||
            !is_gone(number))
            continue;
        segments_end_of(number);
        charge_drop(source_context(number));
        lanes_trim(number, device);
    }
}

/* The source of an existing pool; 0: none. */
static unsigned find(cu_pool pool)
{
    for (unsigned i = 0; pool && i < SOURCES; i++)
        if (atomic_load_explicit(&sources[i].pool, memory_order_acquire) == pool)
            return i + 1;
    return 0;
}

static bool can_cut(void)
{
    return real.cuMemAllocFromPoolAsync && real.cuMemFreeAsync && real.cuMemPoolGetAttribute &&
           real.cuDeviceGetMemPool && real.cuDeviceGetDefaultMemPool && real.cuStreamQuery &&
           real.cuStreamGetCtx && real.cuEventCreate && real.cuEventRecord && real.cuEventQuery &&
           real.cuEventDestroy_v2 && !atomic_load(&book->pool_ended);
}

unsigned pool_source(cu_pool pool, unsigned device)
{
    unsigned number = find(pool);
    if (number || !book->pool || !pool || device >= book->devices || pool_captures() || !can_cut())
        return number;
    const struct source made = {.device = device,
                                .threshold = ask(pool, RELEASE_THRESHOLD),
                                .passed = ask(pool, USED_CURRENT),
                                .high = ask(pool, USED_HIGH),
                                .unfit = !ask(pool, REUSE_ALLOW_OPPORTUNISTIC)};
    word_lock_take(&lock);
    unsigned at = 0;
    while (at < SOURCES && sources[at].references)
        at++;
    number = find(pool);
    if (!number && at < SOURCES) {
        sources[at].device = made.device;
        atomic_store(&sources[at].unfit, made.unfit);
        atomic_store(&sources[at].threshold, made.threshold);
        atomic_store(&sources[at].segments, 0);
        atomic_store(&sources[at].blocks, 0);
        atomic_store(&sources[at].passed, made.passed);
        atomic_store(&sources[at].high, made.high);
        atomic_store(&sources[at].references, 1);
        atomic_store_explicit(&sources[at].pool, pool, memory_order_release);
        number = at + 1;
    }
    word_lock_give(&lock);
    return number;
}

/* False for a pool with a size limit of its own, with exportable handles, or with properties that
 * this code does not know: these are left to the driver. */
bool pool_can_be_source(const struct cu_pool_properties *properties)
{
    bool plain = properties->type == CU_ALLOCATION_PINNED && !properties->handle_types &&
                 !properties->win32 && !properties->most && !properties->usage;
    for (size_t i = 0; i < sizeof properties->reserved; i++)
        plain = plain && !properties->reserved[i];
    return plain;
}

/* A pool qualifies only if its properties are known: it is the device's default pool, which has
 * none, or the program was seen to create it. */
static unsigned find_current(unsigned device)
{
    cu_pool pool = NULL, first = NULL;
    if (!can_cut() || real.cuDeviceGetMemPool(&pool, (cu_device)device) || find(pool))
        return find(pool);
    return real.cuDeviceGetDefaultMemPool(&first, (cu_device)device) || pool != first
               ? 0
               : pool_source(pool, device);
}

unsigned pool_source_of_device(unsigned device)
{
    if (!book->pool || device >= book->devices)
        return 0;
    uint32_t changes = atomic_load_explicit(&current_changes, memory_order_acquire);
    uint64_t known = atomic_load_explicit(&current[device], memory_order_relaxed);
    if (known && known >> 32 == changes)
        return (unsigned)(known & UINT32_MAX) - 1;
    if (pool_captures())
        return 0;
    unsigned source = find_current(device);
    atomic_store(&current[device], (uint64_t)changes << 32 | (source + 1));
    return source;
}

unsigned pool_source_known(cu_pool pool, unsigned device)
{
    unsigned source = pool_source_of_device(device);
    return source_pool(source) == pool ? source : 0;
}

/* What the program asks ------------------------------------------------------------------------ */

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
    unsigned source = find(pool);
    if (source && atomic_load(&sources[source - 1].segments) && !pool_captures() &&
        ask(pool, RESERVED_CURRENT) > keep) {
        late_look();
        lanes_trim(source, source_device(source));
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
        struct source *source = &sources[number - 1];
        uint64_t *said = value;
        uint64_t used =
            learn_used(source, attribute == USED_CURRENT ? *said : ask(pool, USED_CURRENT));
        *said = attribute == USED_CURRENT ? used : atomic_load(&source->high);
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
        struct source *source = &sources[number - 1];
        if (attribute == RELEASE_THRESHOLD) {
            atomic_store(&source->threshold, *(const uint64_t *)value);
        } else if (attribute == REUSE_ALLOW_OPPORTUNISTIC) {
            atomic_store(&source->unfit, !*(const int *)value);
        } else if (attribute == USED_HIGH) {
            atomic_store(&source->high, 0);
            (void)learn_used(source, ask(pool, USED_CURRENT));
        }
    }
    shim_leave();
    return code;
}

/* Call it before the pool is destroyed. Its live blocks stay, and the driver keeps their memory
 * until they are freed. */
void pool_source_leaves(cu_pool pool)
{
    unsigned source = find(pool);
    if (source && atomic_load(&sources[source - 1].segments) && !pool_captures())
        lanes_trim(source, source_device(source));
}

void pool_source_gone(cu_pool pool)
{
    unsigned source = find(pool);
    current_changes++;
    if (!source)
        return;
    atomic_store(&sources[source - 1].pool, NULL);
    closing++;
    source_refer(source, -1);
    lanes_close(source);
}
