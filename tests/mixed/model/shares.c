/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Device memory that others use: anchors, shares that go through a socket and are imported again,
 * and observers. */
#include "mixed/model/mixed.h"

#include <sys/socket.h>
#include <unistd.h>

enum { ANCHORS = 6, SHARES = 3, POOL_SHARES = 2 };

static struct anchor {
    bool live;
    unsigned char *start;
    size_t size;
    int pool, device;
    unsigned turn;
    tarn_host_extent extent;
} anchors[ANCHORS];

static struct share {
    bool live;
    tarn_share *share;
    unsigned char *import; /* NULL: it was not imported */
    unsigned imports;
    unsigned char *start; /* of the block that the share shows */
    size_t size;
    int device, pool, flow;
    unsigned turn;
    struct stamp last;
} shares[SHARES];

static struct pool_share {
    bool live;
    tarn_share *share;            /* NULL: closed */
    tarn_imported_pool *imported; /* NULL: closed */
    bool revoked, anchors;        /* it has segments */
    int device, pool;
    unsigned turn;
    struct stamp last;
} pool_shares[POOL_SHARES];

bool has_anchor(int pool, int device)
{
    for (int i = 0; i < ANCHORS; i++)
        if (anchors[i].live && anchors[i].pool == pool && anchors[i].device == device &&
            (pool < 0 || anchors[i].turn == m.pools[pool].turn))
            return true;
    return false;
}

static bool has_anchor_anywhere(int pool)
{
    bool has = false;
    for (int device = 0; device < m.devices; device++)
        has |= has_anchor(pool, device);
    return has;
}

/* True if memory of the pool can neither move nor be given back. */
bool is_anchored_in(int pool)
{
    if (has_anchor_anywhere(pool))
        return true;
    for (int i = 0; i < SHARES; i++)
        if (shares[i].live && shares[i].share && shares[i].pool == pool &&
            (pool < 0 || shares[i].turn == m.pools[pool].turn))
            return true;
    for (int i = 0; i < POOL_SHARES; i++)
        if (pool_shares[i].live && pool_shares[i].share && pool_shares[i].anchors &&
            pool_shares[i].pool == pool && pool_shares[i].turn == m.pools[pool].turn)
            return true;
    return false;
}

bool is_anchored_on(int device)
{
    for (int i = 0; i < ANCHORS; i++)
        if (anchors[i].live && anchors[i].device == device)
            return true;
    for (int i = 0; i < SHARES; i++)
        if (shares[i].live && shares[i].share && shares[i].device == device)
            return true;
    for (int i = 0; i < POOL_SHARES; i++)
        if (pool_shares[i].live && pool_shares[i].share && pool_shares[i].device == device)
            return true;
    return false;
}

static struct block *some_running(void)
{
    int first = (int)below(BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &m.blocks[(first + i) % BLOCKS];
        if (block_is_usable(block) && block->pool > -2)
            return block;
    }
    return NULL;
}

/* ---- Anchors ---- */

/* The physical memory under an anchor, which must stay as long as the anchor. Known only on the
 * host device. */
static bool extent_of(const struct anchor *anchor, tarn_host_extent *extent)
{
    return !m.vendor &&
           tarn_host_extent_get(anchor->device, anchor->start, anchor->size, extent) == TARN_OK;
}

static void check_extent(const struct anchor *anchor)
{
    tarn_host_extent now = {0};
    if (m.vendor)
        return;
    SO(extent_of(anchor, &now) && now.piece == anchor->extent.piece &&
           now.offset == anchor->extent.offset,
       "anchored memory has moved", "%p: piece %" PRIu64 ", not %" PRIu64, (void *)anchor->start,
       now.piece, anchor->extent.piece);
}

static void op_anchor(void)
{
    struct anchor *anchor = &anchors[below(ANCHORS)];
    const struct block *block = some_running();
    if (anchor->live) {
        check_extent(anchor);
        if (CHANCE(2) && WELL(0, tarn_unanchor, anchor->start, anchor->size))
            anchor->live = false;
        return;
    }
    if (!block || (block->pool >= 0 && m.pools[block->pool].exact))
        return;
    size_t offset = below((unsigned)block->size),
           size = 1 + below((unsigned)(block->size - offset));
    if (!WELL(0, tarn_anchor, block->start + offset, size))
        return;
    *anchor = (struct anchor){.live = true,
                              .start = block->start + offset,
                              .size = size,
                              .pool = block->pool,
                              .turn = block->pool >= 0 ? m.pools[block->pool].turn : 0,
                              .device = block->device};
    (void)extent_of(anchor, &anchor->extent);
}

void anchors_leave(int device)
{
    for (int i = 0; i < ANCHORS; i++)
        if (anchors[i].live && anchors[i].device == device &&
            WELL(0, tarn_unanchor, anchors[i].start, anchors[i].size))
            anchors[i].live = false;
}

/* ---- Shares ---- */

/* Sends a share through a socket, as to another process, and returns what was received. */
static tarn_share *sent(tarn_share *share)
{
    int ends[2];
    tarn_share *received = NULL;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        fault("the test's own limit", "no socket");
    bool good = WELL(0, tarn_share_send, ends[0], share);
    if (good)
        good = WELL(0, tarn_share_receive, ends[1], &received);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return good ? received : NULL;
}

static void share_begin(struct share *share, const struct block *block)
{
    tarn_share *made = NULL;
    void *import = NULL, *again = NULL;
    tarn_share_info info = {.size = sizeof info};
    if (!WELL(BIT(TARN_ERROR_NOT_SUPPORTED), tarn_export, block->start, &made))
        return;
    *share = (struct share){.live = true,
                            .share = made,
                            .start = block->start,
                            .size = block->size,
                            .device = block->device,
                            .pool = block->pool,
                            .turn = block->pool >= 0 ? m.pools[block->pool].turn : 0,
                            .flow = block->flow};
    m.count.shares++;
    if (WELL(0, tarn_share_info_get, made, &info))
        SO(info.bytes >= block->size && info.mapped >= info.offset + info.bytes &&
               info.device == block->device,
           "a share shows another block", "%zu bytes of %zu", info.bytes, block->size);
    tarn_share *copy = CHANCE(2) ? sent(made) : NULL;
    if (WELL(BIT(TARN_ERROR_NOT_SUPPORTED) | BIT(TARN_ERROR_OUT_OF_MEMORY), tarn_import,
             copy ? copy : made, block->device, &import)) {
        share->import = import;
        share->imports = 1;
        SO(import != block->start, "an import is the block itself", "%p", import);
        if (CHANCE(3) && WELL(0, tarn_import, made, block->device, &again)) {
            share->imports++;
            SO(again == import, "the same share was imported at another place", "%p, not %p", again,
               import);
        }
    }
    if (copy)
        SURE(tarn_share_close, copy);
}

static void import_close(struct share *share)
{
    if (share->last.number && !is_done(share->last) && !wait_for_all())
        return;
    while (share->imports > 0 && WELL(0, tarn_import_close, share->import))
        share->imports--;
    if (share->imports == 0)
        share->import = NULL;
}

/* Checks that what is written through an import is in the block, and the other way round. */
static void use_through(struct block *block, unsigned char *import, int device, struct stamp *last)
{
    struct flow *flow = some_flow(device);
    if (block->held || !flow || captures_now(flow) || !takes_work(flow) || !flow_value(flow) ||
        !order_after_users(flow, block))
        return;
    const struct flow *home = &m.flows[block->flow];
    if (home->life == block->life && home != flow) {
        if (captures_now(home) || !takes_work(home))
            return;
        order_after(flow, &m.flows[block->flow]);
    }
    if (!WELL(0, tarn_record_stream, block->start, flow->value))
        return;
    unsigned char value = (unsigned char)below(256);
    struct stamp stamp = use_bytes(flow, import, block->size, block->known ? block->value : -1,
                                   value, "an import does not show what its block holds");
    block->value = value;
    block->known = true;
    block_user(block, stamp);
    *last = stamp;
}

/* Possible as long as the block lives. */
static void through_import(struct share *share)
{
    struct block *block = NULL;
    for (int i = 0; i < BLOCKS && !block; i++)
        if (m.blocks[i].live && m.blocks[i].start == share->start)
            block = &m.blocks[i];
    if (block && share->import && share->share && block_is_usable(block) &&
        block->size <= share->size)
        use_through(block, share->import, share->device, &share->last);
}

static void op_share(void)
{
    struct share *share = &shares[below(SHARES)];
    const struct block *block = some_running();
    if (!share->live) {
        if (block && (m.exports || (block->pool >= 0 && m.pools[block->pool].registrable)))
            share_begin(share, block);
        return;
    }
    unsigned kind = below(6);
    if (kind == 0 && share->share && WELL(0, tarn_share_close, share->share))
        share->share = NULL;
    else if (kind == 1)
        import_close(share);
    else
        through_import(share);
    share->live = share->share || share->import;
}

/* ---- Shares of pools ---- */

static void note_segments(struct pool_share *share)
{
    tarn_share_info info = {.size = sizeof info};
    SURE(tarn_share_info_get, share->share, &info);
    SO(info.device == share->device && info.bytes == info.mapped, "a share shows another pool",
       "%zu bytes", info.bytes);
    share->anchors = info.pieces > 0;
}

static void pool_share_begin(struct pool_share *share)
{
    int index = pool_any(-1, true);
    const struct pool *pool = index < 0 ? NULL : &m.pools[index];
    tarn_share *made = NULL;
    tarn_share_info info = {.size = sizeof info};
    if (!pool || !pool->registrable || !WELL(0, tarn_pool_export, pool->pool, NULL, &made))
        return;
    *share = (struct pool_share){
        .live = true, .share = made, .device = pool->device, .pool = index, .turn = pool->turn};
    m.count.shares++;
    note_segments(share);
    tarn_share *copy = CHANCE(2) ? sent(made) : NULL;
    if (WELL(BIT(TARN_ERROR_NOT_SUPPORTED) | BIT(TARN_ERROR_OUT_OF_MEMORY), tarn_pool_import,
             copy ? copy : made, pool->device, &share->imported) &&
        WELL(0, tarn_share_info_get, made, &info))
        SO(info.importers > 0, "an import of a pool does not count", "%zu", info.importers);
    if (copy)
        SURE(tarn_share_close, copy);
}

static bool pool_import_rests(const struct pool_share *share)
{
    return !share->last.number || is_done(share->last) || wait_for_all();
}

/* Exports the pool's current segments, and updates the import. */
static void pool_share_again(struct pool_share *share)
{
    const struct pool *pool = &m.pools[share->pool];
    tarn_share *next = NULL;
    tarn_import_state state = TARN_IMPORT_REVOKED;
    /* The other share of the pool may have revoked this one */
    const tarn_share *before = CHANCE(2) ? share->share : NULL;
    if (!share->share || share->revoked || !pool->live || !pool->pool || pool->users == 0 ||
        pool->turn != share->turn || pool->state != TARN_POOL_RUNS || !pool_import_rests(share) ||
        !WELL(before ? BIT(TARN_ERROR_INVALID_ARGUMENT) : 0, tarn_pool_export, pool->pool, before,
              &next))
        return;
    SURE(tarn_share_close, share->share);
    share->share = next;
    note_segments(share);
    tarn_share *copy = CHANCE(2) ? sent(next) : NULL;
    uint64_t reasons = BIT(TARN_ERROR_NOT_SUPPORTED) | BIT(TARN_ERROR_OUT_OF_MEMORY) |
                       BIT(TARN_ERROR_INVALID_ARGUMENT);
    if (share->imported &&
        WELL(reasons, tarn_imported_pool_update, share->imported, copy ? copy : next) &&
        WELL(0, tarn_imported_pool_state_get, share->imported, &state))
        SO(state == TARN_IMPORT_CURRENT, "an import is not current after an update", "%d",
           (int)state);
    if (copy)
        SURE(tarn_share_close, copy);
}

/* A block in a segment that was created later is not in the import. */
static void through_pool_import(struct pool_share *share)
{
    struct block *block = &m.blocks[below(BLOCKS)];
    void *pointer = NULL;
    if (share->imported && share->share && block_is_usable(block) && block->pool == share->pool &&
        m.pools[share->pool].live && m.pools[share->pool].turn == share->turn &&
        WELL(BIT(TARN_ERROR_INVALID_POINTER), tarn_imported_pool_find, share->imported,
             block->start, block->size, &pointer))
        use_through(block, pointer, share->device, &share->last);
}

static void op_pool_share(void)
{
    struct pool_share *share = &pool_shares[below(POOL_SHARES)];
    tarn_import_state state = TARN_IMPORT_CURRENT;
    if (!share->live) {
        pool_share_begin(share);
        return;
    }
    switch (below(8)) {
    case 0:
        if (share->share && WELL(0, tarn_share_close, share->share))
            share->share = NULL;
        break;
    case 1:
        if (share->imported && pool_import_rests(share) &&
            WELL(0, tarn_imported_pool_close, share->imported))
            share->imported = NULL;
        break;
    case 2:
        if (share->share && CHANCE(2) && WELL(0, tarn_share_revoke, share->share))
            share->revoked = true;
        if (share->imported && WELL(0, tarn_imported_pool_state_get, share->imported, &state))
            SO((state == TARN_IMPORT_REVOKED) >= share->revoked,
               "an import has not heard of a revocation", "%d", (int)state);
        break;
    case 3:
    case 4:
        pool_share_again(share);
        break;
    default:
        through_pool_import(share);
    }
    share->live = share->share || share->imported;
}

/* ---- Observers ---- */

static tarn_observer observer;
static bool any_thread; /* may call it */
static uint64_t newest;

bool observer_bars(void)
{
    return observer && !any_thread;
}

bool observer_allows(void)
{
    return observer && any_thread;
}

static void hear_mapped(const tarn_mapping *range, void *user)
{
    (void)user;
    SO(range->generation > newest, "a generation was there before", "%" PRIu64 " after %" PRIu64,
       range->generation, newest);
    newest = range->generation;
    for (int i = 0; i < BLOCKS && !m.moves; i++)
        SO(!m.blocks[i].live || m.blocks[i].lost || m.blocks[i].device != range->device ||
               (uintptr_t)m.blocks[i].start >= (uintptr_t)range->address + range->bytes ||
               (uintptr_t)range->address >= (uintptr_t)m.blocks[i].start + m.blocks[i].usable,
           "memory was mapped where a live block is", "%p of %zu bytes, block %d", range->address,
           range->bytes, i);
}

static void hear_unmapping(const tarn_mapping *range, void *user)
{
    (void)user;
    for (int i = 0; i < BLOCKS && !m.moves; i++)
        SO(!m.blocks[i].live || m.blocks[i].lost || m.blocks[i].device != range->device ||
               !block_is_usable(&m.blocks[i]) ||
               (uintptr_t)m.blocks[i].start >= (uintptr_t)range->address + range->bytes ||
               (uintptr_t)range->address >= (uintptr_t)m.blocks[i].start + m.blocks[i].usable,
           "memory of a live block is unmapped", "%p of %zu bytes, block %d", range->address,
           range->bytes, i);
}

/* Frees a block that the model can do without, in the middle of a request. */
static bool free_one_of(int device)
{
    if (!m.reclaims || CHANCE(2))
        return false;
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &m.blocks[i];
        if (!block->live || block->held || block->device != device || block->inside >= 0)
            continue;
        if (tarn_free(block->start) != TARN_OK)
            return false;
        show("%p is freed by a reclaim", (void *)block->start);
        freed(block);
        return true;
    }
    return false;
}

static bool hear_request(int device, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    return free_one_of(device);
}

static bool hear_shortage(const tarn_shortage *shortage, void *user)
{
    (void)user;
    SO(shortage->requested > 0 && shortage->device >= 0 && shortage->device < m.devices,
       "a shortage of nothing", "device %d", shortage->device);
    return free_one_of(shortage->device);
}

static void op_observer(void)
{
    tarn_observer_options options = {.size = sizeof options,
                                     .device = TARN_ALL_DEVICES,
                                     .mapped = hear_mapped,
                                     .unmapping = hear_unmapping,
                                     .out_of_memory = hear_shortage,
                                     .before_growth = hear_request,
                                     .any_thread = m.idle && CHANCE(2)};
    if (!observer && WELL(0, tarn_observer_add, &options, &observer))
        any_thread = options.any_thread;
    else if (observer && CHANCE(4) && WELL(0, tarn_observer_remove, observer))
        observer = 0;
}

static void op_range(void)
{
    const struct block *block = some_running();
    tarn_mapping range;
    if (!block || !WELL(0, tarn_mapping_get, block->start, &range))
        return;
    SO((uintptr_t)range.address <= (uintptr_t)block->start &&
           (uintptr_t)block->start < (uintptr_t)range.address + range.bytes &&
           range.device == block->device,
       "a block is in another range", "%p of %zu bytes", range.address, range.bytes);
}

void shares_end(void)
{
    for (int i = 0; i < ANCHORS; i++)
        if (anchors[i].live) {
            check_extent(&anchors[i]);
            SURE(tarn_unanchor, anchors[i].start, anchors[i].size);
        }
    for (int i = 0; i < SHARES; i++) {
        if (shares[i].live && shares[i].import)
            import_close(&shares[i]);
        if (shares[i].live && shares[i].share)
            SURE(tarn_share_close, shares[i].share);
    }
    for (int i = 0; i < POOL_SHARES; i++) {
        if (pool_shares[i].live && pool_shares[i].imported && pool_import_rests(&pool_shares[i]))
            SURE(tarn_imported_pool_close, pool_shares[i].imported);
        if (pool_shares[i].live && pool_shares[i].share)
            SURE(tarn_share_close, pool_shares[i].share);
    }
    if (observer)
        SURE(tarn_observer_remove, observer);
}

const struct operation share_operations[] = {
    {"anchor", 4, NULL, op_anchor, false},         {"share", 8, NULL, op_share, false},
    {"pool share", 6, NULL, op_pool_share, false}, {"observer", 2, NULL, op_observer, false},
    {"range", 2, NULL, op_range, false},           {NULL, 0, NULL, NULL, false}};
