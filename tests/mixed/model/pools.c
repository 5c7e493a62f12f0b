/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pools and scopes, limits and trims, suspend and resume, checkpoint and restore. */
#include "mixed/model/mixed.h"
#include "support/live.h"

bool is_held_by_graph(int pool)
{
    return pool >= 0 && m.pools[pool].graphs > 0;
}

int pool_any(int device, bool running)
{
    int first = (int)below(POOLS);
    for (int i = 0; i < POOLS; i++) {
        int at = (first + i) % POOLS;
        const struct pool *pool = &m.pools[at];
        if (pool->live && pool->pool && pool->users > 0 && (device < 0 || pool->device == device) &&
            (!running || pool->state == TARN_POOL_RUNS))
            return at;
    }
    return -1;
}

tarn_pool_info pool_info(tarn_pool *pool)
{
    tarn_pool_info info = {.size = sizeof info};
    MINE(tarn_pool_info_get(pool, &info));
    return info;
}

/* If nothing counts the pool any more, its blocks belong to no pool. */
void pool_settle(int index)
{
    struct pool *pool = &m.pools[index];
    if (!pool->live || pool->users + pool->scopes + pool->graphs > 0)
        return;
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].pool == index) {
            m.blocks[i].pool = -2;
            m.blocks[i].lost = pool->state != TARN_POOL_RUNS;
        }
    for (int i = 0; i < CHECKPOINTS; i++)
        if (m.checkpoints[i].live && m.checkpoints[i].pool == index)
            m.checkpoints[i].pool = -1;
    pool->live = false;
    kept_released(index);
    pool_ended(index);
}

/* Segments that were not freed, because the call was made to fail. */
enum { LEFT = 256 };
static struct {
    int device;
    uintptr_t start;
} left[LEFT];
static int left_count;

/* An allocator of the model's own, which gets its segments from the driver. */
static void *segment_alloc(size_t size, int device, void *stream, void *user)
{
    uintptr_t address = 0;
    (void)stream;
    (void)user;
    return driver->alloc(device, size, &address) ? NULL : (void *)address;
}

static void segment_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size;
    (void)stream;
    (void)user;
    if (driver->free(device, (uintptr_t)pointer) == TARN_OK)
        return;
    SO(left_count < LEFT, "the test's own limit", "too many segments could not be freed");
    left[left_count].device = device;
    left[left_count++].start = (uintptr_t)pointer;
}

void segments_settle(void)
{
    for (; left_count > 0; left_count--)
        MINE(driver->free(left[left_count - 1].device, left[left_count - 1].start));
}

static const tarn_pool_allocator allocator = {
    .size = sizeof allocator, .alloc = segment_alloc, .free = segment_free};

static void pool_create(struct pool *pool)
{
    int device = CHANCE(4) ? m.devices - 1 : 0;
    unsigned kind = below(8);
    bool registrable = kind == 2 && CHANCE(3), theirs = kind == 0 && CHANCE(2),
         stays = m.idle && CHANCE(6);
    tarn_pool_options options = {.size = sizeof options,
                                 .device = device,
                                 .use_on_oom = CHANCE(4) && !registrable,
                                 .no_remap = CHANCE(4),
                                 .segments = kind == 0   ? TARN_SEGMENTS_PLAIN
                                             : kind == 1 ? TARN_SEGMENTS_EXACT
                                                         : TARN_SEGMENTS_DEFAULT,
                                 .no_split = kind <= 1 && CHANCE(4),
                                 .allocator = theirs ? &allocator : NULL,
                                 .registrable = registrable,
                                 .idle_release = stays ? TARN_NO_IDLE_RELEASE : 0};
    if (!WELL(registrable ? BIT(TARN_ERROR_NOT_SUPPORTED) | BIT(TARN_ERROR_INVALID_ARGUMENT) : 0,
              tarn_pool_create, &options, &pool->pool))
        return;
    pool->live = true;
    pool->device = device;
    pool->users = 1;
    pool->scopes = pool->graphs = pool->holds = 0;
    pool->tag = 0;
    pool->registrable = registrable;
    pool->theirs = theirs;
    pool->stays = stays;
    pool->kept = 0;
    pool->turn = ++m.pool_turns;
    pool->use_on_oom = options.use_on_oom;
    pool->plain = kind <= 1 || m.plain || (fell_back(device) && !registrable);
    pool->exact = kind == 1;
    pool->state = TARN_POOL_RUNS;
    pool->limit = TARN_NO_LIMIT;
    pool->id = pool_info(pool->pool).id;
}

static void op_create(void)
{
    for (int i = 0; i < POOLS; i++)
        if (!m.pools[i].live) {
            pool_create(&m.pools[i]);
            return;
        }
}

void pool_release_one(int index)
{
    struct pool *pool = &m.pools[index];
    if (!WELL(0, tarn_pool_release, pool->pool))
        return;
    pool->users--;
    pool_settle(index);
}

static bool blocks_in(int pool)
{
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].pool == pool)
            return true;
    return false;
}

static void op_release(void)
{
    int index = pool_any(-1, false);
    if (index >= 0 && (m.pools[index].users > 1 || !blocks_in(index) || CHANCE(3)))
        pool_release_one(index);
}

static void op_count(void)
{
    int index = pool_any(-1, false);
    tarn_pool *found = NULL;
    if (index < 0 || m.pools[index].users > 2)
        return;
    if (CHANCE(2) ? WELL(0, tarn_pool_retain, m.pools[index].pool)
                  : WELL(0, tarn_pool_find, m.pools[index].id, &found))
        m.pools[index].users++;
}

/* Wrappers, so that a change of these calls' names changes one place. */
static tarn_status trim_device(int device, size_t keep)
{
    return CALL(tarn_device_trim, device, keep);
}

static void op_trim(void)
{
    int device = (int)below((unsigned)m.devices);
    size_t keep = CHANCE(2) ? 0 : below((unsigned)m.memory);
    bool unknown = unknown_open(wait_ends_those_of(device));
    tarn_status status = trim_device(device, keep);
    bool barred = known_open(wait_ends_those_of(device));
    /* on a device that never had memory there is nothing to refuse */
    tarn_stats stats = {.size = sizeof stats};
    MINE(tarn_device_stats_get(device, &stats));
    SO(!barred || status != TARN_OK || stats.reserved_bytes[0].peak == 0,
       "a trim during a known capture", "it was not refused");
    (void)well("tarn_device_trim", status, barred || unknown ? BIT(TARN_ERROR_CAPTURE) : 0);
}

static size_t reserved_on(int device)
{
    tarn_stats stats = {.size = sizeof stats};
    MINE(tarn_device_stats_get(device, &stats));
    return (size_t)stats.reserved_bytes[0].current;
}

/* Compacts a device. Whatever the limits are, memory that was moved through host memory must be
 * back, unless something was made to fail. */
static void compact_on(int device)
{
    size_t gained = SIZE_MAX, before = reserved_on(device);
    /* the call waits by real time, and the model's clock stands still meanwhile */
    bool barred = !wait_for_all();
    bool anchored = is_anchored_on(device), away = m.compacts;
    m.compacts = m.moves = true;
    tarn_status status =
        CALL(tarn_compact, device, CHANCE(2) ? SIZE_MAX : below((unsigned)m.memory), &gained);
    SO(status || !barred || !before, "a compaction during a capture", "it was not refused");
    m.moves = false;
    m.compacts = away || anchored || was_injected();
    (void)well("tarn_compact", status,
               (anchored ? BIT(TARN_ERROR_BUSY) : 0) | BIT(TARN_ERROR_NOT_SUPPORTED) |
                   BIT(TARN_ERROR_NOT_READY) | (m.vendor ? BIT(TARN_ERROR_OUT_OF_MEMORY) : 0) |
                   (barred ? BIT(TARN_ERROR_CAPTURE) : 0));
    size_t after = reserved_on(device), less = before > after ? before - after : 0;
    SO(gained == less || (status && gained == SIZE_MAX && !less),
       "a compaction gained something else", "%zu bytes, not %zu", gained, less);
    check_ledgers();
}

static void op_compact(void)
{
    compact_on((int)below((unsigned)m.devices));
}

static void op_trim_pool(void)
{
    int index = pool_any(-1, false);
    if (index >= 0)
        (void)WELL(any_open(wait_ends_those_of(m.pools[index].device)) ? BIT(TARN_ERROR_CAPTURE)
                                                                       : 0,
                   tarn_pool_trim, m.pools[index].pool, CHANCE(2) ? 0 : below((unsigned)m.memory));
}

static void op_limit(void)
{
    int device = (int)below((unsigned)m.devices), index = pool_any(-1, false);
    size_t limit = below(3) ? TARN_NO_LIMIT : below((unsigned)m.memory);
    if (CHANCE(2)) {
        if (WELL(0, tarn_device_limit_set, device, limit))
            m.limit[device] = limit;
    } else if (index >= 0) {
        if (WELL(0, tarn_pool_limit_set, m.pools[index].pool, limit))
            m.pools[index].limit = limit;
    }
}

static void op_check_live(void)
{
    int index = pool_any(-1, false);
    void *pointers[BLOCKS];
    tarn_pool_block blocks[BLOCKS];
    size_t count = 0, found = 0;
    if (index < 0)
        return;
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].pool == index)
            pointers[count++] = m.blocks[i].start;
    if (!WELL(0, tarn_pool_blocks_get, m.pools[index].pool, blocks, BLOCKS, &found))
        return;
    SO(found == count, "the live blocks of a pool are others", "%zu, and %zu are known", found,
       count);
    for (size_t i = 0; i < count; i++)
        SO(live_has(blocks, found, pointers[i]), "a live block of a pool is not listed", "%p",
           pointers[i]);
}

/* ---- Suspends ---- */

static bool is_being_captured(int pool)
{
    for (int i = 0; i < CAPTURES; i++)
        if ((m.captures[i].state == OPEN || m.captures[i].state == SAID) &&
            m.captures[i].pool == pool)
            return true;
    return false;
}

void contents_of_pool(int index, bool known)
{
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].pool == index) {
            m.blocks[i].known &= known;
            m.blocks[i].user_count = 0; /* the suspend has waited for its users */
        }
    if (!known)
        seals_end(index);
}

void pool_suspend(int index)
{
    struct pool *pool = &m.pools[index];
    bool keep = CHANCE(2);
    if (pool->state != TARN_POOL_RUNS)
        return;
    /* An unknown capture bars only a wait for its stream or the device. captures_look() checks that
     * it goes on */
    bool barred = any_open(wait_ends_those_of(pool->device)),
         known = known_open(wait_ends_those_of(pool->device));
    m.moves = true;
    tarn_status status = CALL(tarn_pool_suspend, pool->pool, keep);
    m.moves = false;
    uint64_t reasons = (known ? BIT(TARN_ERROR_CAPTURE) : 0) |
                       (pool->plain ? BIT(TARN_ERROR_NOT_SUPPORTED) : 0) |
                       (is_anchored_in(index) ? BIT(TARN_ERROR_BUSY) : 0);
    bool good = well("tarn_pool_suspend", status, reasons | (barred ? BIT(TARN_ERROR_CAPTURE) : 0));
    SO(!good || !reasons, "a suspend that is not allowed", "it was not refused");
    pool->state = pool_info(pool->pool).state;
    if (pool->state == TARN_POOL_RUNS)
        return;
    m.count.suspends++;
    contents_of_pool(index, pool->state == TARN_POOL_SAVED);
}

static void op_suspend(void)
{
    int index = pool_any(-1, true);
    if (index >= 0)
        pool_suspend(index);
}

/* Lets others take what the device has left, and frees some of the pool's blocks. */
static void crowd(int index)
{
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].pool == index && !m.blocks[i].held && CHANCE(2))
            block_free(&m.blocks[i]);
    for (size_t size = m.memory / 4; size > m.memory / 32; size /= 2) {
        struct flow *flow = some_flow(m.pools[index].device);
        if (flow && !captures_now(flow))
            block_want(flow, size);
    }
}

/* True if there is room for a pool's live blocks, tarn's own among them, each in granules of its
 * own. */
static bool has_room(int index)
{
    const struct pool *pool = &m.pools[index];
    struct driver_properties properties;
    tarn_stats stats = {.size = sizeof stats};
    size_t free_bytes = 0, total = 0, reserved = reserved_on(pool->device);
    MINE(driver->device_properties(pool->device, &properties));
    MINE(driver->memory_info(pool->device, &free_bytes, &total));
    MINE(tarn_pool_stats_get(pool->pool, &stats));
    size_t need = (size_t)stats.active_bytes[0].current +
                  (size_t)stats.active[0].current * 3 * properties.granule;
    return free_bytes >= need + 8 * MIB /* for leave_free_mb */ &&
           (m.limit[pool->device] == TARN_NO_LIMIT || m.limit[pool->device] >= reserved + need);
}

static void op_resume(void)
{
    int first = (int)below(POOLS);
    for (int i = 0; i < POOLS; i++) {
        struct pool *pool = &m.pools[(first + i) % POOLS];
        if (!pool->live || !pool->users || pool->state == TARN_POOL_RUNS)
            continue;
        bool barred = any_open(wait_ends_those_of(pool->device)),
             known = known_open(wait_ends_those_of(pool->device));
        /* True if a sleep has prepared the pool, and keeps it until the sleep ends */
        bool prepared = pool->state == TARN_POOL_CHANGES;
        if (!prepared && CHANCE(3))
            crowd((first + i) % POOLS);
        bool needs_blocks_alone =
            !pool->graphs && !pool->registrable && !pool->kept && has_room((first + i) % POOLS);
        bool needs_nothing = pool->kept && pool->state == TARN_POOL_SAVED;
        m.moves = true;
        tarn_status status = CALL(tarn_pool_resume, pool->pool);
        m.moves = false;
        if (well("tarn_pool_resume", status,
                 (barred ? BIT(TARN_ERROR_CAPTURE) : 0) |
                     (prepared ? BIT(TARN_ERROR_SUSPENDED) : 0) |
                     (needs_blocks_alone || needs_nothing ? 0 : BIT(TARN_ERROR_OUT_OF_MEMORY)))) {
            SO(!known && !prepared, "a resume that is not allowed", "it was not refused");
            night_leaves((first + i) % POOLS);
        }
        pool->state = pool_info(pool->pool).state;
        return;
    }
}

/* Allocates blocks of a pool and frees every second one. */
static void fragment(int device, int index)
{
    bool before[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        before[i] = m.blocks[i].live;
    for (int i = 0; i < 10; i++) {
        struct flow *flow = some_flow(device);
        if (index >= 0)
            block_want_in(index);
        else if (flow)
            block_want(flow, 1 + below(6 << 20));
    }
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && !before[i] && CHANCE(2) && block_may_go(&m.blocks[i]))
            block_free(&m.blocks[i]);
}

/* Sets a limit below what is reserved, for a while. It only stops growth. */
static void op_below_a_limit(void)
{
    int device = (int)below((unsigned)m.devices), index = CHANCE(2) ? pool_any(-1, false) : -1;
    size_t *limit = index < 0 ? &m.limit[device] : &m.pools[index].limit, before = *limit;
    if (index >= 0)
        device = m.pools[index].device;
    bool compacts = CHANCE(2) && (index < 0 || m.pools[index].state == TARN_POOL_RUNS);
    if (compacts)
        fragment(device, index);
    size_t low = reserved_on(device) >> below(4);
    if (index < 0 ? !WELL(0, tarn_device_limit_set, device, low)
                  : !WELL(0, tarn_pool_limit_set, m.pools[index].pool, low))
        return;
    *limit = low;
    if (compacts)
        compact_on(device);
    if (index >= 0 && CHANCE(2))
        pool_suspend(index);
    if (CHANCE(2))
        op_resume();
    if (index < 0)
        SURE(tarn_device_limit_set, device, before);
    else
        SURE(tarn_pool_limit_set, m.pools[index].pool, before);
    *limit = before;
}

/* ---- Checkpoints ---- */

void checkpoint_make(int index)
{
    for (int i = 0; i < CHECKPOINTS; i++) {
        struct checkpoint *checkpoint = &m.checkpoints[i];
        if (checkpoint->live)
            continue;
        if (!WELL(0, tarn_pool_checkpoint, m.pools[index].pool, &checkpoint->checkpoint))
            return;
        checkpoint->live = true;
        checkpoint->pool = index;
        checkpoint->turn = m.pools[index].turn;
        checkpoint->count = 0;
        for (int k = 0; k < BLOCKS; k++) {
            const struct block *block = &m.blocks[k];
            if (block->live && block->pool == index)
                checkpoint->saved[checkpoint->count++] = (struct saved){
                    block->start, block->size, block->usable, block->flow, block->life, block->tag};
        }
        return;
    }
}

static void op_checkpoint(void)
{
    int index = pool_any(-1, true);
    if (index >= 0)
        checkpoint_make(index);
}

static void checkpoint_destroy(struct checkpoint *checkpoint)
{
    SURE(tarn_checkpoint_destroy, checkpoint->checkpoint);
    checkpoint->live = false;
}

static const struct saved *saved_at(const struct checkpoint *checkpoint, const unsigned char *start)
{
    for (int i = 0; i < checkpoint->count; i++)
        if (checkpoint->saved[i].start == start)
            return &checkpoint->saved[i];
    return NULL;
}

static struct block *block_in(int pool, const unsigned char *start)
{
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].pool == pool && m.blocks[i].start == start)
            return &m.blocks[i];
    return NULL;
}

static struct changes {
    int count;
    struct {
        unsigned char *start;
        size_t usable, requested;
        tarn_stream stream;
        bool live;
    } list[2 * BLOCKS];
} changes;

static void changed(const tarn_pool_block *block, bool live, void *user)
{
    struct changes *into = user;
    SO(into->count < 2 * BLOCKS, "a restore changes blocks that nobody has", "%d", into->count);
    into->list[into->count].start = block->address;
    into->list[into->count].usable = block->usable_size;
    into->list[into->count].requested = block->requested;
    into->list[into->count].stream = block->stream;
    into->list[into->count++].live = live;
}

/* True if a block that a graph still uses may be taken: it was freed inside the capture, and the
 * graph counts the same pool. */
static bool may_be_taken(int pool)
{
    for (int i = 0; i < CAPTURES; i++)
        for (int k = 0; k < m.captures[i].held_count; k++)
            if (m.blocks[m.captures[i].held[k]].pool == pool &&
                (m.captures[i].pool != pool || m.captures[i].state != GRAPH ||
                 m.captures[i].inside_count + HELD > RANGES))
                return false;
    return true;
}

static void is_no_more(struct block *block)
{
    for (int i = 0; i < CAPTURES; i++) {
        struct capture *capture = &m.captures[i];
        for (int k = 0; k < capture->held_count; k++)
            if (capture->held[k] == block - m.blocks) {
                capture->inside[capture->inside_count++] = (struct span_of_bytes){
                    (uintptr_t)block->start, (uintptr_t)block->start + block->usable};
                capture->held[k--] = capture->held[--capture->held_count];
            }
    }
    ghosts_of(block, "a block that a restore has taken");
    block->live = false;
}

static void is_again(const struct saved *saved, int pool)
{
    struct block *block = block_free_slot();
    struct flow *flow = &m.flows[saved->flow];
    /* True if its thread or its lease has ended, or the program destroyed the stream without
     * telling tarn */
    bool ended = flow->kind != ADOPTED && flow->kind != LEGACY && flow->life != saved->life;
    SO(ended || (flow->live && flow->life == saved->life),
       "a block is restored although its stream is gone", "%p", (void *)saved->start);
    SO(block, "the test's own limit", "too many blocks");
    struct span_of_bytes bytes = {(uintptr_t)saved->start, (uintptr_t)saved->start + saved->usable};
    check_fresh(bytes, ended ? NULL : flow, pool, "a restored block", NULL);
    *block = (struct block){.live = true,
                            .start = saved->start,
                            .size = saved->size,
                            .usable = saved->usable,
                            .device = flow->device,
                            .flow = saved->flow,
                            .life = saved->life,
                            .pool = pool,
                            .kept = m.pools[pool].kept,
                            .actor = -1,
                            .inside = -1,
                            .tag = saved->tag};
    ghosts_to(block); /* also for its own stream, which may end before the block does */
    tarn_block_info info = {.size = sizeof info};
    MINE(tarn_pointer_info_get(saved->start, &info));
    SO(info.tag == saved->tag && (ended || info.stream == flow->value || flow->kind == FOUND) &&
           info.requested == saved->size,
       "a restored block is another", "%p: tag %u, not %u; %zu bytes, not %zu",
       (void *)saved->start, info.tag, saved->tag, info.requested, saved->size);
}

static void restore(struct checkpoint *checkpoint)
{
    int pool = checkpoint->pool;
    if (m.pools[pool].state != TARN_POOL_RUNS || is_being_captured(pool) || !may_be_taken(pool) ||
        !m.pools[pool].users)
        return;
    changes.count = 0;
    if (!WELL(BIT(TARN_ERROR_BUSY) | BIT(TARN_ERROR_NO_ROOM), tarn_pool_restore, m.pools[pool].pool,
              checkpoint->checkpoint, changed, &changes)) {
        SO(changes.count == 0, "a restore that failed has changed blocks", "%d", changes.count);
        return;
    }
    m.count.restores++;
    /* A block of now is the same as one of the checkpoint if address, size and stream are the
     * same */
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &m.blocks[i];
        const struct saved *saved =
            block->live && block->pool == pool ? saved_at(checkpoint, block->start) : NULL;
        if (saved && saved->usable == block->usable) {
            block->known &= block->size == saved->size;
            if (block->size != saved->size) /* freed, and there again */
                block->seal = 0;
            block->size = saved->size;
            block->tag = saved->tag;
        }
    }
    int gone = 0, back = 0, wanted_gone = 0, wanted_back = 0;
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].pool == pool &&
            !saved_at(checkpoint, m.blocks[i].start))
            wanted_gone++;
    for (int i = 0; i < checkpoint->count; i++)
        wanted_back += !block_in(pool, checkpoint->saved[i].start);
    for (int i = 0; i < changes.count; i++)
        if (!changes.list[i].live) {
            struct block *block = block_in(pool, changes.list[i].start);
            SO(block, "a restore takes what was no block", "%p", (void *)changes.list[i].start);
            gone++;
            is_no_more(block);
        }
    for (int i = 0; i < changes.count; i++)
        if (changes.list[i].live) {
            const struct saved *saved = saved_at(checkpoint, changes.list[i].start);
            SO(saved, "a restore makes a block that never was", "%p",
               (void *)changes.list[i].start);
            back++;
            is_again(saved, pool);
        }
    SO(gone >= wanted_gone && back >= wanted_back, "a restore left blocks as they were",
       "%d of %d are gone, %d of %d are back", gone, wanted_gone, back, wanted_back);
}

static void op_restore(void)
{
    struct checkpoint *checkpoint = &m.checkpoints[below(CHECKPOINTS)];
    if (!checkpoint->live)
        return;
    if (checkpoint->pool < 0 || CHANCE(6))
        checkpoint_destroy(checkpoint);
    else
        restore(checkpoint);
}

void checkpoints_restore(int index)
{
    for (int i = 0; i < CHECKPOINTS; i++)
        if (m.checkpoints[i].live && m.checkpoints[i].pool == index)
            restore(&m.checkpoints[i]);
}

/* ---- Scopes ---- */

static bool is_newest(const struct scope *scope)
{
    for (int i = 0; i < SCOPES; i++)
        if (m.scopes[i].live && m.scopes[i].kind == TARN_SCOPE_THREAD &&
            m.scopes[i].since[m.actor] > scope->since[m.actor])
            return false;
    return true;
}

static bool is_begun_already(int pool, tarn_scope_kind kind, tarn_stream stream)
{
    for (int i = 0; i < SCOPES; i++) {
        const struct scope *scope = &m.scopes[i];
        if (scope->live && scope->pool == pool && scope->kind == kind &&
            (kind == TARN_SCOPE_ALWAYS || (kind == TARN_SCOPE_STREAM && scope->stream == stream) ||
             (kind == TARN_SCOPE_THREAD && scope->actor == m.actor)))
            return true;
    }
    return false;
}

static void scope_begin(struct scope *scope, int index, tarn_scope_kind kind, struct flow *flow)
{
    if (index < 0 || !flow || flow->device != m.pools[index].device || flow->kind == FOUND)
        return;
    bool open = is_begun_already(index, kind, flow->value);
    MINE(tarn_device_set(m.pools[index].device));
    tarn_status status = CALL(tarn_scope_begin, m.pools[index].pool, kind,
                              kind == TARN_SCOPE_STREAM ? flow->value : 0, &scope->value);
    MINE(tarn_device_set(0));
    if (!well("tarn_scope_begin", status, open ? BIT(TARN_ERROR_SCOPE) : 0))
        return;
    SO(!open, "a scope that is open already", "it was begun");
    tarn_scope value = scope->value;
    *scope = (struct scope){.live = true,
                            .value = value,
                            .kind = kind,
                            .pool = index,
                            .flow = (int)(flow - m.flows),
                            .life = flow->life,
                            .stream = flow->value,
                            .actor = m.actor};
    scope->since[kind == TARN_SCOPE_THREAD ? m.actor : 0] = ++m.clock;
    show("scope of pool %d, kind %d, flow %d", index, (int)kind, scope->flow);
    m.pools[index].scopes++;
}

static void scope_is_over(struct scope *scope)
{
    scope->live = false;
    m.pools[scope->pool].scopes--;
    pool_settle(scope->pool);
}

static bool is_empty(const struct scope *scope)
{
    for (int i = 0; i < ACTORS; i++)
        if (scope->since[i])
            return false;
    return true;
}

static void op_scope(void)
{
    struct scope *scope = &m.scopes[below(SCOPES)];
    if (!scope->live) {
        tarn_scope_kind kind = (tarn_scope_kind)below(3);
        if (CHANCE(2))
            scope_begin(scope, pool_any(-1, false), kind, some_flow(-1));
        return;
    }
    /* workers have to leave it first; if one has ended, what it began before the scope holds the
     * scope up */
    bool joined = false;
    for (int i = 0; i < ACTORS; i++)
        joined |= scope->kind == TARN_SCOPE_THREAD && i != m.actor && scope->since[i];
    if (joined && scope->actor == m.actor)
        return;
    if (scope->kind != TARN_SCOPE_THREAD || scope->actor == m.actor) {
        bool wrong = scope->kind == TARN_SCOPE_THREAD && !is_newest(scope);
        bool good = WELL(wrong ? BIT(TARN_ERROR_SCOPE) : 0, tarn_scope_end, scope->value);
        SO(!good || !wrong, "scopes end in a wrong order", "it was not refused");
        if (good)
            scope_is_over(scope);
    } else if (!scope->since[m.actor]) {
        if (WELL(0, tarn_scope_join, scope->value))
            scope->since[m.actor] = ++m.clock;
    } else {
        bool wrong = !is_newest(scope);
        bool good = WELL(wrong ? BIT(TARN_ERROR_SCOPE) : 0, tarn_scope_end, scope->value);
        SO(!good || !wrong, "scopes are left in a wrong order", "it was not refused");
        if (good)
            scope->since[m.actor] = 0;
        if (good && is_empty(scope))
            scope_is_over(scope);
    }
}

void scope_begin_on(int pool, struct flow *flow)
{
    for (int i = 0; i < SCOPES; i++)
        if (!m.scopes[i].live) {
            scope_begin(&m.scopes[i], pool, TARN_SCOPE_STREAM, flow);
            return;
        }
}

/* A thread ends. A scope that it began goes on for its workers. */
void scopes_left_by(int actor)
{
    for (int i = 0; i < SCOPES; i++) {
        struct scope *scope = &m.scopes[i];
        if (!scope->live || scope->kind != TARN_SCOPE_THREAD)
            continue;
        bool was = scope->since[actor] != 0;
        scope->since[actor] = 0;
        if (scope->actor == actor)
            scope->actor = -1;
        if (was && is_empty(scope))
            scope_is_over(scope);
    }
}

void pools_make_room(void)
{
    for (int i = 0; i < SCOPES; i++)
        if (m.scopes[i].live && m.scopes[i].kind != TARN_SCOPE_THREAD) {
            SURE(tarn_scope_end, m.scopes[i].value);
            scope_is_over(&m.scopes[i]);
        }
    for (int device = 0; device < m.devices; device++)
        SURE(tarn_device_limit_set, device, TARN_NO_LIMIT);
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].live && m.pools[i].pool && m.pools[i].users > 0) {
            SURE(tarn_pool_limit_set, m.pools[i].pool, TARN_NO_LIMIT);
            if (m.pools[i].state == TARN_POOL_RUNS)
                SURE(tarn_pool_trim, m.pools[i].pool, 0);
        }
}

void pools_end(void)
{
    for (int i = 0; i < CHECKPOINTS; i++)
        if (m.checkpoints[i].live)
            checkpoint_destroy(&m.checkpoints[i]);
    for (int i = 0; i < POOLS; i++)
        while (m.pools[i].live && m.pools[i].users > 0) {
            SURE(tarn_pool_release, m.pools[i].pool);
            m.pools[i].users--;
            pool_settle(i);
        }
}

const struct operation pool_operations[] = {{"pool create", 5, NULL, op_create, false},
                                            {"pool release", 1, NULL, op_release, false},
                                            {"pool count", 1, NULL, op_count, false},
                                            {"trim", 2, NULL, op_trim, false},
                                            {"compact", 2, NULL, op_compact, false},
                                            {"trim a pool", 2, NULL, op_trim_pool, false},
                                            {"limit", 1, NULL, op_limit, false},
                                            {"check live", 2, NULL, op_check_live, false},
                                            {"below a limit", 6, NULL, op_below_a_limit, false},
                                            {"suspend", 3, NULL, op_suspend, false},
                                            {"resume", 6, NULL, op_resume, false},
                                            {"checkpoint", 6, NULL, op_checkpoint, false},
                                            {"restore", 12, NULL, op_restore, false},
                                            {"scope", 8, NULL, op_scope, false},
                                            {NULL, 0, NULL, NULL, false}};
