/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Who only reads kept pools: this process those of others and its own, and processes beside it. A
 * reader finds what is sealed, and nothing else, in whichever process it was sealed. Memory that
 * the pool has given up stays with a reader until it trims. */
#include "mixed/model/mixed.h"

enum { READERS = 3, LOOKERS = 2, READS = 6 };

/* This process, as a reader. */
static struct reader {
    tarn_pool *pool; /* NULL: none */
    int of;          /* the kept pool */
    unsigned given;  /* as the pool's at the last trim */
    bool torn;       /* a trim was made to fail, and it has found nothing since */
    struct stamp reads[READS];
    int read_count;
} readers[READERS];

/* A process beside this one. */
static struct looker {
    bool live;
    struct side side;
    int of;
} lookers[LOOKERS];

static bool rests(const struct reader *reader)
{
    for (int i = 0; i < reader->read_count; i++)
        if (!is_done(reader->reads[i]))
            return false;
    return true;
}

bool reads_rest(const struct kept *kept)
{
    for (int i = 0; i < READERS; i++)
        if (readers[i].pool && &m.kept[readers[i].of] == kept && !rests(&readers[i]))
            return false;
    return true;
}

bool has_readers(const struct kept *kept)
{
    for (int i = 0; i < READERS; i++)
        if (readers[i].pool && &m.kept[readers[i].of] == kept)
            return true;
    for (int i = 0; i < LOOKERS; i++)
        if (lookers[i].live && &m.kept[lookers[i].of] == kept)
            return true;
    return false;
}

/* A pool of any process, which may have ended. */
static int some_pool(void)
{
    int first = (int)below(KEPT);
    for (int i = 0; i < KEPT; i++) {
        const struct kept *kept = &m.kept[(first + i) % KEPT];
        if (kept->state == KEPT_HERE || kept->state == KEPT_BESIDE || kept->state == KEPT_LEFT)
            return (first + i) % KEPT;
    }
    return -1;
}

static bool has_owner(void)
{
    return m.owner;
}

/* ---- In this process ---- */

static void begin(struct reader *reader)
{
    int of = some_pool();
    struct kept *kept = &m.kept[of < 0 ? 0 : of];
    tarn_keep_options options = {
        .size = sizeof options, .device = kept->device, .segment = kept->segment, .read = true};
    tarn_kept found = {.size = sizeof found};
    tarn_pool *pool = NULL;
    if (of < 0 || any_open(-1))
        return;
    /* Of a pool whose making failed there may be nothing; its own process reads no pool */
    uint64_t reasons = m.owner_is == OWNER_AWAY                          ? BIT(TARN_ERROR_SYSTEM)
                       : kept->state == KEPT_BESIDE && owner_knows(kept) ? 0
                                                                         : BIT(TARN_ERROR_BUSY);
    if (!WELL(reasons, tarn_pool_keep, kept->name, &options, &pool, &found))
        return;
    SO(m.owner_is == OWNER_THERE && !kept->lost && (!kept->strange || kept->asked),
       "an owner gives what it cannot have", "%s", kept->name);
    kept->strange = false;
    SO(kept->state != KEPT_HERE, "a process reads its own pool", "%s", kept->name);
    *reader = (struct reader){.pool = pool, .of = of, .given = kept->given};
    unsigned sealed = 0;
    struct side_block room;
    for (int i = 0; i < SIDE_BLOCKS; i++)
        sealed += kept_truth(kept, i, &room) != NULL;
    SO(found.blocks == sealed, "a reader finds another number of blocks", "%zu, not %u",
       found.blocks, sealed);
}

/* False if it was refused. */
static bool trim(struct reader *reader)
{
    const struct kept *kept = &m.kept[reader->of];
    bool barred = any_open(wait_ends_those_of(kept->device));
    bool good = WELL(barred ? BIT(TARN_ERROR_CAPTURE) : 0, tarn_pool_trim, reader->pool, 0);
    reader->torn |= was_injected();
    if (!good || was_injected())
        return false;
    if (owner_knows(kept))
        reader->given = kept->given;
    return true;
}

/* Reads a sealed block in the order of a stream. */
static void read(struct reader *reader, const tarn_sealed_block *found, unsigned char value)
{
    struct flow *flow = some_flow(m.kept[reader->of].device);
    struct stamp stamp;
    if (rests(reader))
        reader->read_count = 0;
    if (!flow || flow->capture >= 0 || !takes_work(flow) || reader->read_count == READS ||
        m.kept[reader->of].state != KEPT_BESIDE)
        return;
    if (read_bytes(flow, found->pointer, found->bytes, value, "a reader reads something else",
                   &stamp))
        reader->reads[reader->read_count++] = stamp;
}

static void check(struct reader *reader, int name, const tarn_sealed_block *found)
{
    const struct kept *kept = &m.kept[reader->of];
    struct side_block room;
    const struct side_block *truth = kept_truth(kept, name, &room);
    SO(truth, "a reader finds what is not sealed", "block.%d of %s", name, kept->name);
    SO(found->bytes == truth->size && found->data[0] == truth->value,
       "a reader finds another block", "block.%d of %s: %zu bytes, not %zu", name, kept->name,
       found->bytes, truth->size);
    SO(side_holds(found->pointer, found->bytes, found->data), "a reader reads something else",
       "block.%d of %s: not %#x", name, kept->name, truth->value);
    m.count.finds++;
    reader->torn = false;
    read(reader, found, truth->value);
}

static void find(struct reader *reader)
{
    struct kept *kept = &m.kept[reader->of];
    int name = kept_some_name(kept);
    char text[SIDE_NAME];
    struct side_block room;
    tarn_sealed_block found = {.size = sizeof found};
    bool trimmed = false;
    snprintf(text, sizeof text, "block.%d", name);
    for (;;) {
        const struct side_block *truth = kept_truth(kept, name, &room);
        /* A pool of this process gives memory up in many calls */
        bool changed = reader->given != kept->given || kept->state != KEPT_BESIDE;
        bool gave = changed && !trimmed, alone = !owner_knows(kept) && (changed || reader->torn);
        tarn_status status = CALL(tarn_pool_block_find, reader->pool, text, &found);
        if (well("tarn_pool_block_find", status,
                 (gave ? BIT(TARN_ERROR_BUSY) : 0) | (alone ? BIT(TARN_ERROR_SYSTEM) : 0) |
                     (truth ? 0 : BIT(TARN_ERROR_INVALID_ARGUMENT)))) {
            check(reader, name, &found);
            return;
        }
        if (trimmed || status != TARN_ERROR_BUSY || was_injected() || !trim(reader))
            return;
        trimmed = true;
    }
}

static void op_read(void)
{
    struct reader *reader = &readers[below(READERS)];
    if (!reader->pool) {
        begin(reader);
        return;
    }
    switch (below(12)) {
    case 0:
        if (rests(reader) && WELL(0, tarn_pool_release, reader->pool))
            reader->pool = NULL;
        return;
    case 1:
        (void)trim(reader);
        return;
    default:
        for (int i = 0; i < 3; i++)
            find(reader);
    }
}

/* ---- In a process beside this one ---- */

static void look(const struct looker *looker)
{
    const struct kept *kept = &m.kept[looker->of];
    struct side_answer answer = side_give(&looker->side, (struct side_order){.verb = SIDE_LOOK});
    if (answer.status == TARN_ERROR_SYSTEM && !owner_knows(kept))
        return; /* the pool has grown, or the reader has let go of memory */
    SO(answer.status == TARN_OK, "a reader in another process fails", "%s: %s", kept->name,
       answer.text);
    for (int i = 0; i < SIDE_BLOCKS; i++) {
        struct side_block room;
        const struct side_block *truth = kept_truth(kept, i, &room), *found = &answer.blocks[i];
        SO(found->sealed == (truth != NULL), "a reader in another process finds other blocks",
           "block.%d of %s: %d, not %d", i, kept->name, found->sealed, truth != NULL);
        SO(!truth || (found->size == truth->size && found->value == truth->value),
           "a reader in another process reads something else",
           "block.%d of %s: %zu bytes of %#x, not %zu of %#x", i, kept->name, found->size,
           found->value, truth->size, truth->value);
        m.count.finds += found->sealed;
    }
}

static void look_begin(struct looker *looker)
{
    int of = some_pool();
    const struct kept *kept = &m.kept[of < 0 ? 0 : of];
    struct side_order read = {.verb = SIDE_READ, .number = kept->device, .size = kept->segment};
    if (of < 0 || kept->state == KEPT_LEFT || !owner_knows(kept))
        return; /* it would wait for the pool */
    memcpy(read.name, kept->name, sizeof read.name);
    *looker = (struct looker){.live = true, .side = side_begin(), .of = of};
    struct side_answer answer = side_give(&looker->side, read);
    SO(answer.status == TARN_OK, "another process cannot read a pool", "%s: %s", kept->name,
       answer.text);
}

static void look_end(struct looker *looker)
{
    looker->live = false;
    if (CHANCE(2)) {
        SO(side_kill(&looker->side, 0), "a process beside the model's has failed", "a reader");
        return;
    }
    struct side_answer answer = side_give(&looker->side, (struct side_order){.verb = SIDE_LEAVES});
    int code = side_end(&looker->side);
    SO(!answer.status && !code, "a process beside the model's has failed", "%d, %s", code,
       answer.text);
}

static void op_look(void)
{
    struct looker *looker = &lookers[below(LOOKERS)];
    if (!looker->live)
        look_begin(looker);
    else if (CHANCE(10))
        look_end(looker);
    else
        look(looker);
}

/* Call it while nothing captures, and all work has ended. */
void reads_end(void)
{
    for (int i = 0; i < READERS; i++) {
        if (readers[i].pool)
            SURE(tarn_pool_release, readers[i].pool);
        readers[i].pool = NULL;
    }
    for (int i = 0; i < LOOKERS; i++)
        if (lookers[i].live)
            look_end(&lookers[i]);
}

const struct operation read_operations[] = {{"read kept", 16, has_owner, op_read, false},
                                            {"look on", 6, has_owner, op_look, false},
                                            {NULL, 0, NULL, NULL, false}};
