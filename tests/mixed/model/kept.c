/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools. Some are pools of the model as others are. Some belong to a process beside it, which
 * the model tells what to do, and kills at any time: then the next one takes the pool over, which
 * is another process or the model itself. Whoever takes a pool over must find what was sealed, and
 * nothing else. */
#include "mixed/model/mixed.h"
#include "support/owner.h"

#include <sys/syscall.h>
#include <unistd.h>

static unsigned names; /* of pools, so far */

static int index_of(const struct kept *kept)
{
    return (int)(kept - m.kept);
}

static struct block *sealed_as(const struct kept *kept, int name)
{
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].kept == index_of(kept) + 1 &&
            m.blocks[i].seal == name + 1)
            return &m.blocks[i];
    return NULL;
}

const struct side_block *kept_truth(const struct kept *kept, int name, struct side_block *room)
{
    *room = kept->blocks[name];
    if (kept->state == KEPT_HERE || kept->state == KEPT_ENDS) {
        const struct block *block = sealed_as(kept, name);
        *room = (struct side_block){0};
        if (block)
            *room = (struct side_block){block->sealed_size, block->sealed_value, true};
    }
    return room->sealed ? room : NULL;
}

static bool has_blocks(const struct kept *kept)
{
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].kept == index_of(kept) + 1)
            return true;
    return false;
}

/* A pool that is no more leaves its place when nothing refers to it. */
static struct kept *some_free(void)
{
    for (int i = 0; i < KEPT; i++) {
        struct kept *kept = &m.kept[i];
        if (kept->state == KEPT_ENDS && !has_blocks(kept) && !has_readers(kept) && !kept->numbered)
            kept->state = KEPT_NONE;
        if (kept->state == KEPT_NONE)
            return kept;
    }
    return NULL;
}

static struct kept *some_kept(int state)
{
    int first = (int)below(KEPT);
    for (int i = 0; i < KEPT; i++)
        if ((int)m.kept[(first + i) % KEPT].state == state)
            return &m.kept[(first + i) % KEPT];
    return NULL;
}

static bool has_owner(void)
{
    return m.owner;
}

static void name_of(int number, char name[SIDE_NAME])
{
    snprintf(name, SIDE_NAME, "block.%d", number);
}

/* ---- In this process ---- */

/* True while a pool that was taken over has ended for the model and still has memory. */
static bool unsure;

static void take_segment(const tarn_memory_segment *segment, void *user)
{
    struct kept *kept = user;
    kept->lingers |= memcmp(&segment->pool, &kept->id, sizeof kept->id) == 0;
}

static bool lingers(struct kept *kept)
{
    kept->lingers = false;
    MINE(tarn_memory_list(take_segment, kept));
    return kept->lingers;
}

uint64_t adopted_on(int device)
{
    uint64_t bytes = 0;
    unsure = false;
    for (int i = 0; i < KEPT; i++) {
        struct kept *kept = &m.kept[i];
        if (!kept->numbered || kept->device != device)
            continue;
        if (kept->state == KEPT_HERE)
            bytes += pool_adopted(m.pools[kept->pool].pool, kept->numbered);
        else if (!lingers(kept))
            kept->numbered = 0;
        else
            unsure = true;
    }
    return bytes;
}

bool adopted_is_unsure(uint64_t reported, uint64_t created)
{
    return unsure || (m.owner && m.may_be_lost && created > reported);
}

/* The pool's memory is what the call said. None of it is listed: another process has made it. */
static void check_segments(const struct pool *pool, size_t mapped)
{
    tarn_stats stats = {.size = sizeof stats};
    size_t count = 0;
    MINE(tarn_pool_stats_get(pool->pool, &stats));
    SO((size_t)stats.reserved_bytes[0].current == mapped, "a pool has other memory than it says",
       "%" PRId64 " bytes, not %zu", stats.reserved_bytes[0].current, mapped);
    SURE(tarn_pool_segments_get, pool->pool, NULL, 0, &count);
    SO(count == 0, "a pool lists what was taken over", "%zu segments", count);
}

static void find_block(const struct kept *kept, int name, const struct flow *flow)
{
    struct block *slot = block_free_slot();
    tarn_sealed_block found = {.size = sizeof found};
    char text[SIDE_NAME];
    const struct side_block *truth = &kept->blocks[name];
    name_of(name, text);
    SURE(tarn_pool_block_find, m.pools[kept->pool].pool, text, &found);
    SO(found.bytes == truth->size && found.data[0] == truth->value,
       "a block that was taken over is another", "%s of %s: %zu bytes, not %zu", text, kept->name,
       found.bytes, truth->size);
    struct block block = {.live = true,
                          .known = true,
                          .start = found.pointer,
                          .size = found.bytes,
                          .device = kept->device,
                          .flow = (int)(flow - m.flows),
                          .life = flow->life,
                          .pool = kept->pool,
                          .actor = -1,
                          .inside = -1,
                          .kept = index_of(kept) + 1,
                          .seal = name + 1,
                          .sealed_size = found.bytes,
                          .value = truth->value,
                          .sealed_value = truth->value};
    MINE(tarn_usable_size_get(found.pointer, &block.usable));
    struct span_of_bytes bytes = {(uintptr_t)block.start, (uintptr_t)block.start + block.usable};
    check_fresh(bytes, NULL, kept->pool, "a block that was taken over", NULL);
    SO(side_holds(found.pointer, found.bytes, found.data), "what was sealed has other contents",
       "%s of %s, not %#x", text, kept->name, truth->value);
    show("%s of %s is %p", text, kept->name, found.pointer);
    *slot = block;
}

static unsigned sealed_in(const struct kept *kept, size_t *bytes)
{
    unsigned count = 0;
    *bytes = 0;
    for (int i = 0; i < SIDE_BLOCKS; i++)
        if (kept->blocks[i].sealed) {
            count++;
            *bytes += kept->blocks[i].size;
        }
    return count;
}

static unsigned free_slots(void)
{
    unsigned count = 0;
    for (int i = 0; i < BLOCKS; i++)
        count += !m.blocks[i].live;
    return count;
}

/* A flow for whose stream the pool's sealed blocks become blocks. */
static struct flow *heir_flow(const struct kept *kept)
{
    struct flow *flow = some_flow(kept->device);
    return flow && flow->capture < 0 && takes_work(flow) && flow_value(flow) ? flow : NULL;
}

/* Of a pool that was lost nothing is there. */
static void check_lost(struct kept *kept, bool adopted)
{
    SO(!kept->lost || !adopted, "a pool is there that was lost", "%s", kept->name);
    if (kept->torn && !adopted) /* the owner did not know it */
        memset(kept->blocks, 0, sizeof kept->blocks);
    kept->torn = false;
}

/* Takes a pool over, or makes it. */
static void take_over(struct kept *kept)
{
    struct flow *flow = heir_flow(kept);
    int index = 0;
    size_t bytes;
    unsigned sealed = sealed_in(kept, &bytes);
    while (index < POOLS && m.pools[index].live)
        index++;
    if (!flow || index == POOLS || any_open(-1) || free_slots() < sealed || !reads_rest(kept))
        return;
    struct pool *pool = &m.pools[index];
    tarn_kept found = {.size = sizeof found};
    tarn_keep_options options = {.size = sizeof options,
                                 .device = kept->device,
                                 .stream = flow->value,
                                 .segment = kept->segment,
                                 .wait_ms = 30000};
    tarn_pool *got = NULL;
    bool limited = m.limit[kept->device] != TARN_NO_LIMIT;
    if (kept->state == KEPT_NONE)
        snprintf(kept->name, sizeof kept->name, "pool.%u", ++names);
    bool away = m.owner_is != OWNER_THERE;
    show("pool %s, which has %u sealed blocks", kept->name, sealed);
    bool good =
        WELL((limited ? BIT(TARN_ERROR_OUT_OF_MEMORY) : 0) | (away ? BIT(TARN_ERROR_SYSTEM) : 0),
             tarn_pool_keep, kept->name, &options, &got, &found);
    if (!good) {
        SO(!got, "a failed call wrote its result", "%p", (void *)got);
        kept->lost = away || (kept->lost && !was_injected());
        kept->state = KEPT_LEFT;
        return;
    }
    SO(!away, "a pool without an owner", "%s", kept->name);
    m.count.adoptions += found.adopted;
    check_lost(kept, found.adopted);
    SO(found.blocks == sealed && found.bytes == bytes && (found.adopted || !sealed),
       "a pool that was taken over is another", "%s: %zu blocks of %zu bytes, not %u of %zu",
       kept->name, found.blocks, found.bytes, sealed, bytes);
    *pool = (struct pool){.live = true,
                          .pool = got,
                          .device = kept->device,
                          .users = 1,
                          .kept = index_of(kept) + 1,
                          .turn = ++m.pool_turns,
                          .state = TARN_POOL_RUNS,
                          .limit = TARN_NO_LIMIT,
                          .id = pool_info(got).id};
    kept->pool = index;
    kept->state = KEPT_HERE;
    kept->strange = kept->lost = false;
    kept->bytes = found.mapped;
    kept->id = pool->id;
    kept->numbered = found.mapped ? pool_numbered(got) : 0;
    check_segments(pool, found.mapped);
    for (int i = 0; i < SIDE_BLOCKS; i++)
        if (kept->blocks[i].sealed)
            find_block(kept, i, flow);
    memset(kept->blocks, 0, sizeof kept->blocks);
}

static void begin_new(struct kept *kept)
{
    *kept = (struct kept){.state = KEPT_NONE,
                          .device = CHANCE(4) ? m.devices - 1 : 0,
                          .segment = (CHANCE(2) ? 4 : 8) * MIB};
}

static void op_keep(void)
{
    struct kept *kept = some_free();
    if (!kept)
        return;
    begin_new(kept);
    take_over(kept);
}

void kept_released(int pool)
{
    if (m.pools[pool].kept)
        m.kept[m.pools[pool].kept - 1].state = KEPT_ENDS;
}

/* ---- Seals ---- */

void seals_end(int pool)
{
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].pool == pool)
            m.blocks[i].seal = 0;
}

bool seal_off(struct block *block)
{
    if (!block->seal)
        return true;
    if (!WELL(0, tarn_pool_block_unseal, block->start))
        return false;
    block->seal = 0;
    return true;
}

static bool has_rested(const struct block *block)
{
    for (int i = 0; i < block->user_count; i++)
        if (!is_done(block->users[i]))
            return false;
    return true;
}

/* An event after which the block's contents are complete. */
static tarn_event *event_after(struct block *block)
{
    struct flow *flow = some_flow(block->device);
    tarn_event *event = NULL;
    if (!flow || flow->capture >= 0 || !takes_work(flow) || any_open(-1) || !flow_value(flow) ||
        !order_after_users(flow, block) || !WELL(0, tarn_event_create, flow->device, &event))
        return NULL;
    if (WELL(0, tarn_event_record, event, flow->value))
        return event;
    SURE(tarn_event_destroy, event);
    return NULL;
}

static void seal(struct block *block)
{
    const struct kept *kept = &m.kept[block->kept - 1];
    int name = (int)below(SIDE_BLOCKS);
    char text[SIDE_NAME];
    unsigned char data[TARN_KEEP_DATA_BYTES] = {block->value};
    bool refused = block->seal || sealed_as(kept, name);
    tarn_event *event = NULL;
    if (!has_rested(block) && !(event = event_after(block)))
        return;
    name_of(name, text);
    bool good = WELL(refused ? BIT(TARN_ERROR_INVALID_ARGUMENT) : 0, tarn_pool_block_seal,
                     block->start, text, data, event);
    if (event)
        SURE(tarn_event_destroy, event);
    SO(!good || !refused, "two blocks have a name, or one two", "%s of %s", text, kept->name);
    if (!good)
        return;
    show("%p is %s of %s", (void *)block->start, text, kept->name);
    block->seal = name + 1;
    block->sealed_size = block->size;
    block->sealed_value = block->value;
}

static struct block *some_kept_block(void)
{
    int first = (int)below(BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &m.blocks[(first + i) % BLOCKS];
        if (block->live && block->kept && block_is_usable(block))
            return block;
    }
    return NULL;
}

static void op_seal(void)
{
    struct block *block = some_kept_block();
    if (!block || block->held || block->inside >= 0)
        return;
    if (block->seal && CHANCE(4))
        (void)seal_off(block);
    else if (block->known)
        seal(block);
}

/* So that there is something to seal. */
void kept_fill(void)
{
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].live && m.pools[i].kept && m.pools[i].state == TARN_POOL_RUNS &&
            m.pools[i].users)
            block_want_in(i);
}

int kept_some_name(const struct kept *kept)
{
    int name = (int)below(SIDE_BLOCKS);
    struct side_block room;
    for (int i = 0; i < SIDE_BLOCKS && !CHANCE(4) && !kept_truth(kept, name, &room); i++)
        name = (name + 1) % SIDE_BLOCKS;
    return name;
}

static void op_find(void)
{
    const struct kept *kept = some_kept(KEPT_HERE);
    if (!kept)
        return;
    int name = kept_some_name(kept);
    char text[SIDE_NAME];
    tarn_sealed_block found = {.size = sizeof found};
    if (!m.pools[kept->pool].users)
        return;
    const struct block *block = sealed_as(kept, name);
    name_of(name, text);
    bool good = WELL(block ? 0 : BIT(TARN_ERROR_INVALID_ARGUMENT), tarn_pool_block_find,
                     m.pools[kept->pool].pool, text, &found);
    m.count.finds += good;
    SO(!good || (block && found.pointer == block->start && found.bytes == block->sealed_size &&
                 found.data[0] == block->sealed_value),
       "another block was found", "%s of %s: %p of %zu bytes", text, kept->name, found.pointer,
       found.bytes);
}

/* ---- As a file ---- */

static struct flow *legacy_of(int device)
{
    for (int i = 0; i < FLOWS; i++)
        if (m.flows[i].live && m.flows[i].kind == LEGACY && m.flows[i].device == device)
            return &m.flows[i];
    return NULL;
}

static bool is_awake(const struct kept *kept)
{
    return kept && m.pools[kept->pool].users && m.pools[kept->pool].state == TARN_POOL_RUNS;
}

/* Loads what was saved of one pool into another, or into the same. */
static void load(struct kept *to, const struct side_block saved[SIDE_BLOCKS], int file)
{
    const struct flow *flow = legacy_of(to->device);
    struct side_block room;
    bool clashes = false;
    for (int i = 0; i < SIDE_BLOCKS; i++)
        clashes |= saved[i].sealed && kept_truth(to, i, &room);
    bool good =
        WELL(BIT(TARN_ERROR_OUT_OF_MEMORY) | (clashes ? BIT(TARN_ERROR_INVALID_ARGUMENT) : 0),
             tarn_pool_load, m.pools[to->pool].pool, file);
    SO(!good || !clashes, "two blocks have a name, or one two", "%s", to->name);
    memcpy(to->blocks, saved, sizeof to->blocks);
    for (int i = 0; i < SIDE_BLOCKS && good; i++)
        if (saved[i].sealed)
            find_block(to, i, flow);
    memset(to->blocks, 0, sizeof to->blocks);
}

static void op_image(void)
{
    const struct kept *from = some_kept(KEPT_HERE);
    struct kept *to = some_kept(KEPT_HERE);
    struct side_block saved[SIDE_BLOCKS] = {{0}};
    unsigned count = 0;
    if (!is_awake(from) || any_open(-1) || !legacy_of(to->device))
        return;
    int file = (int)syscall(SYS_memfd_create, "image", 1u); /* MFD_CLOEXEC */
    SO(file >= 0, "the test's own limit", "no file");
    for (int i = 0; i < SIDE_BLOCKS; i++)
        count += kept_truth(from, i, &saved[i]) != NULL;
    if (WELL(0, tarn_pool_save, m.pools[from->pool].pool, file) && is_awake(to) &&
        free_slots() >= count)
        load(to, saved, file);
    (void)close(file);
}

/* ---- In a process beside this one ---- */

struct side_answer side_give(const struct side *side, struct side_order order)
{
    struct side_answer answer;
    show("order %d, block %d, %zu bytes, to process %d", (int)order.verb, order.number, order.size,
         (int)side->process);
    SO(side_ask(side, &order, &answer), "a process beside the model's has ended",
       "order %d to process %d", (int)order.verb, (int)side->process);
    return answer;
}

struct side side_begin(void)
{
    struct side side = side_start();
    (void)side_give(&side,
                    (struct side_order){.verb = SIDE_BEGIN, .number = m.devices, .size = m.memory});
    return side;
}

/* Gives an order, which must succeed, unless it gives this status. */
static bool order(struct kept *kept, struct side_order order, tarn_status reason)
{
    struct side_answer answer = side_give(&kept->side, order);
    bool missed = m.owner_is != OWNER_THERE && !m.service &&
                  (order.verb == SIDE_ALLOCATE || order.verb == SIDE_RESUME);
    owner_look_beside(kept, &order, answer.bytes);
    SO(answer.status == TARN_OK || answer.status == (int)reason ||
           (missed && answer.status == TARN_ERROR_SYSTEM),
       "a call of another process failed without a reason", "order %d on %s gave %s: %s",
       (int)order.verb, kept->name, tarn_status_name((tarn_status)answer.status), answer.text);
    return answer.status == TARN_OK;
}

/* Compares what a process has found with what was sealed. */
static void check_found(const struct kept *kept, const struct side_answer *answer)
{
    for (int i = 0; i < SIDE_BLOCKS; i++) {
        const struct side_block *now = &answer->blocks[i], *then = &kept->blocks[i];
        SO(now->sealed == then->sealed &&
               (!now->sealed || (now->size == then->size && now->value == then->value)),
           "another process finds other blocks",
           "block.%d of %s: %d, %zu bytes of %#x, not %d, %zu of %#x", i, kept->name, now->sealed,
           now->size, now->value, then->sealed, then->size, then->value);
    }
}

/* Another process takes the pool over, or makes it. */
static void next_generation(struct kept *kept)
{
    struct side_order keep = {.verb = SIDE_KEEP, .number = kept->device, .size = kept->segment};
    size_t bytes;
    if (kept->state == KEPT_NONE)
        snprintf(kept->name, sizeof kept->name, "pool.%u", ++names);
    memcpy(keep.name, kept->name, sizeof keep.name);
    kept->side = side_begin();
    struct side_answer answer = side_give(&kept->side, keep);
    SO(answer.status == TARN_OK, "another process cannot take a pool over", "%s: %s", kept->name,
       answer.text);
    check_lost(kept, answer.adopted);
    SO(answer.count == sealed_in(kept, &bytes), "a pool that was taken over is another",
       "%s: %zu blocks, not %u", kept->name, answer.count, sealed_in(kept, &bytes));
    check_found(kept, &answer);
    kept->state = KEPT_BESIDE;
    kept->strange = kept->lost = false;
    kept->bytes = answer.bytes;
    kept->asleep = TARN_POOL_RUNS;
}

/* The process has done what it was told last, and ends with its socket. */
static void close_side(struct kept *kept)
{
    int code = side_end(&kept->side);
    SO(code == 0, "a process beside the model's has failed", "it ended with %d", code);
}

/* What is not sealed is free memory from now on. */
static void is_left(struct kept *kept)
{
    for (int i = 0; i < SIDE_BLOCKS; i++)
        if (!kept->blocks[i].sealed)
            kept->blocks[i] = (struct side_block){0};
    kept->state = KEPT_LEFT;
    kept->given++;
    owner_keeps_what_it_knows(kept);
}

/* A shutdown ends a pool without memory or live blocks. The next one of that name is another, which
 * its readers do not see. */
static bool is_empty_and_read(const struct kept *kept)
{
    bool has_memory = false;
    for (int i = 0; i < SIDE_BLOCKS; i++)
        has_memory |= kept->blocks[i].size && kept->asleep != TARN_POOL_DISCARDED;
    return !has_memory && has_readers(kept);
}

/* The process that has the pool is killed, perhaps while it works, or ends in order. */
static void end_generation(struct kept *kept)
{
    if (CHANCE(2) || is_empty_and_read(kept)) {
        bool works = kept->asleep == TARN_POOL_RUNS && CHANCE(2);
        kept->asked |= works;
        SO(side_kill(&kept->side, works ? 1 + below(60) : 0),
           "a process beside the model's has failed", "%s", kept->name);
    } else {
        (void)order(kept, (struct side_order){.verb = SIDE_LEAVES, .flag = true}, TARN_OK);
        close_side(kept);
    }
    is_left(kept);
}

/* Wakes a pool. Blocks without contents get some. */
static void wake(struct kept *kept)
{
    if (!order(kept, (struct side_order){.verb = SIDE_RESUME}, TARN_ERROR_OUT_OF_MEMORY))
        return;
    for (int i = 0; i < SIDE_BLOCKS && kept->asleep == TARN_POOL_DISCARDED; i++)
        if (kept->blocks[i].size)
            (void)order(kept,
                        (struct side_order){
                            .verb = SIDE_WRITE, .number = i, .value = kept->blocks[i].value},
                        TARN_OK);
    kept->asleep = TARN_POOL_RUNS;
    kept->given++;
}

static void suspend(struct kept *kept)
{
    bool saves = CHANCE(2);
    if (!saves && !reads_rest(kept))
        return;
    (void)order(kept, (struct side_order){.verb = SIDE_SUSPEND, .flag = saves}, TARN_OK);
    kept->asleep = saves ? TARN_POOL_SAVED : TARN_POOL_DISCARDED;
    for (int i = 0; i < SIDE_BLOCKS; i++)
        kept->blocks[i].sealed &= saves;
    kept->given++;
}

static void change_block(struct kept *kept)
{
    int number = (int)below(SIDE_BLOCKS);
    struct side_block *block = &kept->blocks[number];
    struct side_order what = {.number = number, .value = (unsigned char)below(256)};
    bool runs = kept->asleep == TARN_POOL_RUNS;
    if (block->sealed && !reads_rest(kept))
        return; /* its readers would have to be told */
    if (!block->size) {
        what.verb = SIDE_ALLOCATE;
        what.size = 1 + below(CHANCE(3) ? 10 << 20 : 1 << 20);
        kept->given++;
        if (runs && order(kept, what, TARN_ERROR_OUT_OF_MEMORY))
            *block = (struct side_block){what.size, what.value, false};
    } else if (CHANCE(4)) {
        what.verb = SIDE_FREE;
        (void)order(kept, what, TARN_OK);
        *block = (struct side_block){0};
    } else if (block->sealed) {
        what.verb = SIDE_UNSEAL;
        (void)order(kept, what, TARN_OK);
        block->sealed = false;
    } else if (runs && CHANCE(3)) {
        what.verb = SIDE_WRITE;
        (void)order(kept, what, TARN_OK);
        block->value = what.value;
    } else if (runs) {
        what.verb = SIDE_SEAL;
        what.value = block->value;
        (void)order(kept, what, TARN_OK);
        block->sealed = true;
    }
}

static void change(struct kept *kept)
{
    switch (below(12)) {
    case 0:
        end_generation(kept);
        return;
    case 1:
        (void)order(kept, (struct side_order){.verb = SIDE_TRIM}, TARN_OK);
        kept->given++;
        return;
    case 2:
        if (kept->asleep == TARN_POOL_RUNS)
            suspend(kept);
        return;
    case 3:
        if (CHANCE(4) && reads_rest(kept)) {
            (void)order(kept, (struct side_order){.verb = SIDE_FREES}, TARN_OK);
            close_side(kept);
            memset(kept->blocks, 0, sizeof kept->blocks);
            kept->state = KEPT_ENDS;
        }
        return;
    default:
        if (kept->asleep != TARN_POOL_RUNS && CHANCE(2))
            wake(kept);
        for (int i = 0; i < 5; i++)
            change_block(kept);
    }
}

void kept_change_beside(void)
{
    struct kept *kept = some_kept(KEPT_BESIDE);
    if (kept)
        change(kept);
}

/* A pool of another process begins, changes, or is taken over by a third. */
static void op_beside(void)
{
    struct kept *kept = some_kept(KEPT_BESIDE), *unused;
    if (kept && !CHANCE(6)) {
        change(kept);
    } else if (m.owner_is != OWNER_THERE) {
        return;
    } else if ((kept = some_kept(KEPT_LEFT))) {
        if (reads_rest(kept))
            next_generation(kept);
    } else if ((unused = some_free())) {
        begin_new(unused);
        next_generation(unused);
        for (int i = 0; i < 2 * SIDE_BLOCKS; i++)
            change_block(unused);
    }
}

/* This process takes over what another has left, or has now. */
static void op_inherit(void)
{
    struct kept *kept = some_kept(KEPT_LEFT);
    if (!kept && CHANCE(2) && (kept = some_kept(KEPT_BESIDE)) && !any_open(-1))
        end_generation(kept);
    if (kept && kept->state == KEPT_LEFT)
        take_over(kept);
}

/* ---- The end ---- */

void kept_sides_end(void)
{
    reads_end();
    for (int i = 0; i < KEPT; i++) {
        struct kept *kept = &m.kept[i];
        if (kept->state != KEPT_BESIDE)
            continue;
        (void)order(kept, (struct side_order){.verb = SIDE_FREES}, TARN_OK);
        close_side(kept);
        kept->state = KEPT_ENDS;
    }
}

void kept_check_none(void)
{
    char text[2000];
    if (!m.owner)
        return;
    owner_list(text, sizeof text);
    SO(!*text, "an owner still has pools", "%s", text);
    unsigned held = owner_wait();
    SO(held == 0, "a service manager still has descriptors", "%u", held);
}

/* What is left is taken over once more, and ends. */
void kept_end(void)
{
    for (int i = 0; i < KEPT; i++) {
        struct kept *kept = &m.kept[i];
        if (kept->state != KEPT_LEFT)
            continue;
        next_generation(kept);
        (void)order(kept, (struct side_order){.verb = SIDE_FREES}, TARN_OK);
        close_side(kept);
    }
}

/* A pool that had ended for the model, but waited for work, is left without sealed blocks. */
static void check_none_sealed(void)
{
    static const char none[] = " 0 sealed blocks";
    char text[2000];
    owner_list(text, sizeof text);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line != 0) {
        const char *at = strstr(line, none);
        SO(at && at < line + strcspn(line, "\n"), "an owner still has pools", "%s", text);
    }
}

void kept_note(struct heir heirs[KEPT])
{
    for (int i = 0; i < KEPT; i++) {
        const struct kept *kept = &m.kept[i];
        struct heir *heir = &heirs[i];
        *heir = (struct heir){.device = kept->device,
                              .devices = m.devices,
                              .memory = m.memory,
                              .segment = kept->segment};
        heir->strange = kept->strange;
        heir->torn = kept->strange && kept->torn;
        if (kept->state != KEPT_NONE && kept->state != KEPT_GONE &&
            (kept->state != KEPT_ENDS || has_blocks(kept)))
            memcpy(heir->name, kept->name, sizeof heir->name);
        for (int name = 0; name < SIDE_BLOCKS; name++)
            if (!kept_truth(kept, name, &heir->blocks[name]))
                heir->blocks[name] = (struct side_block){0};
    }
}

void heirs_check(const struct heir heirs[KEPT])
{
    memset(m.kept, 0, sizeof m.kept);
    for (int i = 0; i < KEPT; i++) {
        const struct heir *heir = &heirs[i];
        struct kept *kept = &m.kept[i];
        if (!heir->name[0])
            continue;
        m.devices = heir->devices;
        m.memory = heir->memory;
        *kept = (struct kept){.state = KEPT_LEFT,
                              .device = heir->device,
                              .segment = heir->segment,
                              .strange = heir->strange,
                              .torn = heir->torn};
        memcpy(kept->name, heir->name, sizeof kept->name);
        memcpy(kept->blocks, heir->blocks, sizeof kept->blocks);
        owner_judges(kept);
    }
    kept_end();
    check_none_sealed();
}

const struct operation kept_operations[] = {
    {"keep", 3, has_owner, op_keep, false},       {"fill kept", 4, has_owner, kept_fill, false},
    {"seal", 20, has_owner, op_seal, false},      {"find", 6, has_owner, op_find, false},
    {"image", 3, has_owner, op_image, false},     {"beside", 10, has_owner, op_beside, false},
    {"inherit", 5, has_owner, op_inherit, false}, {NULL, 0, NULL, NULL, false}};
