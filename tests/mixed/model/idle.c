/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Idle memory that goes back by itself, as the thread of idle_release has it go: between the steps.
 * What was not free on the device at the pass before stays, and what is in use. A pass while a
 * capture is known does nothing, and none records an event. What has rested for long goes. */
#include "mixed/model/mixed.h"

#define DAY UINT64_C(86400000000000) /* ns: the setting */
#define LITTLE (16 * (int64_t)MIB)
#define SLACK MIB /* of statistics that threads have not published; less than a granule */

/* Bytes; 0 if the model cannot ask. */
struct memory {
    int64_t reserved, free;
};

/* The default pools of the devices come behind the others. */
struct sight {
    struct memory devices[DEVICES], pools[POOLS + DEVICES];
    unsigned turns[POOLS];
    bool all_run;
    uint64_t suspends; /* and sleeps, so far: what a resume maps may have rested */
};

static struct memory memory_of(const tarn_stats *stats)
{
    int64_t reserved = stats->reserved_bytes[0].current;
    return (struct memory){reserved, reserved - stats->allocated_bytes[0].current};
}

static struct memory memory_in(tarn_pool *pool)
{
    tarn_stats stats = {.size = sizeof stats};
    MINE(tarn_pool_stats_get(pool, &stats));
    return memory_of(&stats);
}

static struct sight look(void)
{
    struct sight sight = {.all_run = !is_night(), .suspends = m.count.suspends + m.count.sleeps};
    for (int i = 0; i < POOLS; i++) {
        const struct pool *pool = &m.pools[i];
        sight.all_run &= !pool->live || pool->state == TARN_POOL_RUNS;
        sight.turns[i] = pool->turn;
        if (pool->live && pool->pool && pool->users)
            sight.pools[i] = memory_in(pool->pool);
    }
    for (int i = 0; i < m.devices; i++) {
        tarn_pool *pool;
        tarn_stats stats = {.size = sizeof stats};
        MINE(tarn_pool_default(i, &pool));
        sight.pools[POOLS + i] = memory_in(pool);
        MINE(tarn_device_stats_get(i, &stats));
        sight.devices[i] = memory_of(&stats);
    }
    return sight;
}

static struct sight last; /* after the last pass */

/* True if nothing of the pool may go. */
static bool pool_stays(int index)
{
    const struct pool *pool = &m.pools[index];
    return observer_bars() || pool->stays || pool->state != TARN_POOL_RUNS || pool->graphs ||
           (has_anchor(index, pool->device) && !observer_allows());
}

/* The same for a device's default pool. Blocks from while caching is off, and their anchors, are
 * apart. */
static bool default_stays(int device)
{
    return observer_bars() || (has_anchor(-1, device) && !m.was_uncached && !observer_allows());
}

/* Whether memory that went was free at the last pass. */
static bool has_rested(const struct memory *then, int64_t gone)
{
    return gone <= then->free + (int64_t)SLACK;
}

static void check_pool(const struct sight *before, const struct sight *after, bool still, int i)
{
    int64_t gone = before->pools[i].reserved - after->pools[i].reserved;
    bool stays = i < POOLS ? pool_stays(i) : default_stays(i - POOLS);
    bool same = i >= POOLS || before->turns[i] == last.turns[i];
    SO(!gone || !stays, "memory went back of a pool that keeps it", "%" PRId64 " bytes of pool %d",
       gone, i);
    SO(!still || !same || has_rested(&last.pools[i], gone),
       "memory of a pool went back before its time",
       "%" PRId64 " bytes of pool %d, of which %" PRId64 " were free at the last pass", gone, i,
       last.pools[i].free);
}

static void check_pass(const struct sight *before, const struct sight *after)
{
    bool still = before->suspends == last.suspends && last.all_run && before->all_run;
    for (int i = 0; i < m.devices; i++) {
        int64_t gone = before->devices[i].reserved - after->devices[i].reserved;
        SO(gone >= 0 && (!still || has_rested(&last.devices[i], gone)),
           "memory went back before its time",
           "%" PRId64 " bytes of device %d, of which %" PRId64 " were free at the last pass", gone,
           i, last.devices[i].free);
        SO(!gone || !observer_bars(), "memory went back although an observer bars it",
           "%" PRId64 " bytes of device %d", gone, i);
    }
    for (int i = 0; i < POOLS + m.devices; i++)
        check_pool(before, after, still, i);
}

/* Blocks whose contents are known have them, where they are mapped now. */
static void check_contents(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        const struct block *block = &m.blocks[i];
        bool rests = block_is_usable(block) && block->known && !block->held && block->inside < 0;
        for (int k = 0; rests && k < block->user_count; k++)
            rests = is_done(block->users[k]);
        SO(!rests ||
               (block->start[0] == block->value && block->start[block->size - 1] == block->value),
           "a block has lost its contents to a pass over idle memory", "block %d at %p", i,
           (void *)block->start);
    }
}

/* Calls of the driver that a pass makes if it finds something to do. */
static uint64_t calls_of_pass(int device)
{
    return calls_of(device, "event_query") + calls_of(device, "unmap") +
           calls_of(device, "release");
}

/* A pass while a capture is known. Other threads may call the driver meanwhile, not each time. */
static void pass_in_vain(void)
{
    uint64_t calls = 1;
    for (int tries = 0; calls && tries < 4; tries++) {
        uint64_t before = calls_of_pass(0) + calls_of_pass(m.devices - 1);
        idle_pass(DAY);
        calls = calls_of_pass(0) + calls_of_pass(m.devices - 1) - before;
    }
    SO(!calls, "a pass over idle memory beside a capture", "%" PRIu64 " calls of the driver",
       calls);
}

/* Passes beside which an event was recorded: by another thread now and then, by a pass never. */
static int recorded;

static void pass(void)
{
    struct sight before = look();
    uint64_t records = 0;
    for (int i = 0; i < m.devices; i++)
        records -= calls_of(i, "event_record");
    if (known_open(-1))
        pass_in_vain();
    else
        idle_pass(DAY);
    for (int i = 0; i < m.devices; i++)
        records += calls_of(i, "event_record");
    recorded += records > 0;
    SO(recorded < 4, "passes over idle memory record events", "%d do", recorded);
    struct sight after = look();
    check_pass(&before, &after);
    last = after;
    check_contents();
}

/* True if all idle memory of a device goes: nothing on it is outside of what passes look at, and
 * this thread's calls record all marks. Those of a vendor's per-thread default streams, which are
 * on the first device, would need calls by their threads. */
static bool goes_from(int device)
{
    bool goes = !(m.vendor && device == 0) && !m.plain && !fell_back(device) && !m.was_uncached &&
                !observer_bars() && !is_night() && (!is_anchored_on(device) || observer_allows());
    for (int i = 0; i < POOLS; i++)
        goes &= !m.pools[i].live || m.pools[i].device != device ||
                (!m.pools[i].plain && !m.pools[i].kept && !pool_stays(i));
    return goes;
}

/* What a pass could not do without marks, which only calls by the program record: for streams that
 * were found the calls pass these. */
static void record_marks(void)
{
    tarn_pool *pool;
    for (int i = 0; i < FLOWS; i++)
        if (m.flows[i].live)
            (void)flow_value(&m.flows[i]);
    SURE(tarn_pool_default, 0, &pool);
}

/* What has rested goes: a trim finds little more. */
static void rest(void)
{
    if (!wait_for_all())
        return;
    for (int i = 0; i < 4; i++) {
        pass();
        record_marks();
    }
    for (int device = 0; device < m.devices; device++) {
        SURE(tarn_device_trim, device, 0);
        int64_t more = last.devices[device].reserved - look().devices[device].reserved;
        SO(!goes_from(device) || more <= LITTLE, "memory that rested did not go back",
           "%" PRId64 " bytes of device %d", more, device);
    }
    last = look();
}

void idle_look(void)
{
    pass();
    if (m.step % 99 == 0)
        rest();
}
