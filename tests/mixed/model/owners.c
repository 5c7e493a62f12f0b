/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The owner of kept pools is killed and comes back (docs/keep.md). If a service manager has held
 * its descriptors, the next owner has everything, and nobody notices. Otherwise it knows nothing:
 * what no process has is lost, and a process tells it of a pool when that grows or gives memory up.
 * Such a pool is `strange` until then. Without an owner no pool grows.
 *
 * Whether a process has told the owner shows by the size of the pool, which nothing else changes.
 * If the size is what it was, the owner's list says it. */
#include "mixed/model/mixed.h"
#include "support/owner.h"

static bool has_owner(void)
{
    return m.owner;
}

bool owner_knows(const struct kept *kept)
{
    return m.owner_is == OWNER_THERE && !kept->strange && !kept->lost && kept->state != KEPT_GONE;
}

bool owner_is_missed(void)
{
    bool here = false;
    for (int i = 0; i < KEPT; i++)
        here |= m.kept[i].state == KEPT_HERE;
    return here && m.owner_is != OWNER_THERE && !m.service;
}

/* ---- What the owner knows ---- */

/* An owner that comes back serves now. */
static void has_come(void)
{
    (void)owner_wait();
    m.owner_is = OWNER_THERE;
}

static size_t bytes_here(const struct kept *kept)
{
    tarn_stats stats = {.size = sizeof stats};
    if (!m.pools[kept->pool].users) /* the model has no handle of it any more */
        return kept->bytes;
    MINE(tarn_pool_stats_get(m.pools[kept->pool].pool, &stats));
    return (size_t)stats.reserved_bytes[0].current;
}

/* `sure`: in what may have changed the pool nothing was made to fail. */
static void has_size(struct kept *kept, size_t bytes, bool sure)
{
    SO(m.owner_is != OWNER_AWAY || bytes <= kept->bytes, "a pool grows without an owner",
       "%s: %zu bytes, %zu before", kept->name, bytes, kept->bytes);
    bool told = bytes > kept->bytes || (bytes < kept->bytes && m.owner_is == OWNER_THERE && sure);
    if (kept->strange && m.owner_is != OWNER_AWAY && told) {
        show("the owner knows %s", kept->name);
        kept->strange = kept->torn = false;
    }
    kept->bytes = bytes;
}

void owner_look(void)
{
    for (int i = 0; i < KEPT; i++) {
        struct kept *kept = &m.kept[i];
        if (kept->state == KEPT_GONE && !has_readers(kept)) {
            kept->state = KEPT_LEFT;
            memset(kept->blocks, 0, sizeof kept->blocks);
        }
        if (kept->state != KEPT_HERE && kept->state != KEPT_ENDS)
            continue;
        kept->asked = true;
        kept->torn |= kept->strange && m.injected_now;
        if (kept->state == KEPT_HERE)
            has_size(kept, bytes_here(kept), !m.injected_now);
    }
    m.injected_now = false;
}

void owner_look_beside(struct kept *kept, const struct side_order *order, size_t bytes)
{
    switch (order->verb) {
    case SIDE_ALLOCATE:
    case SIDE_TRIM:
    case SIDE_SUSPEND:
    case SIDE_RESUME:
    case SIDE_WORK:
    case SIDE_FREES:
    case SIDE_LEAVES:
        kept->asked = true;
        break;
    default:
        break;
    }
    if (order->verb != SIDE_WORK && order->verb != SIDE_FREES && order->verb != SIDE_LEAVES)
        has_size(kept, bytes, true);
}

void owner_loses(struct kept *kept)
{
    show("%s is lost", kept->name);
    m.count.losses++;
    kept->strange = false;
    kept->lost = true;
    kept->state = has_readers(kept) ? KEPT_GONE : KEPT_LEFT;
    if (kept->state == KEPT_LEFT)
        memset(kept->blocks, 0, sizeof kept->blocks);
}

void owner_keeps_what_it_knows(struct kept *kept)
{
    if (!kept->strange)
        return;
    if (m.owner_is == OWNER_COMES)
        has_come();
    bool listed = m.owner_is == OWNER_THERE && owner_lists(kept->name);
    SO(!listed || kept->asked, "an owner has a pool of which nobody has told it", "%s", kept->name);
    if (listed)
        kept->strange = kept->torn = false;
    else
        owner_loses(kept);
}

void owner_judges(struct kept *kept)
{
    if (kept->strange && !kept->torn && !owner_lists(kept->name)) {
        kept->lost = true;
        memset(kept->blocks, 0, sizeof kept->blocks);
    }
}

/* ---- It ends and begins ---- */

static void knows_nothing(void)
{
    for (int i = 0; i < KEPT && !m.service; i++) {
        struct kept *kept = &m.kept[i];
        if (kept->state == KEPT_LEFT) {
            owner_loses(kept);
        } else if (kept->state == KEPT_HERE || kept->state == KEPT_BESIDE ||
                   kept->state == KEPT_ENDS) {
            kept->strange = true;
            kept->asked = kept->torn = false;
        }
    }
}

static void kill_owner(bool removes)
{
    show("the owner is killed");
    m.count.owners++;
    owner_kill(removes);
    m.owner_is = OWNER_AWAY;
    knows_nothing();
}

void owner_return(void)
{
    if (!m.owner || m.owner_is == OWNER_THERE)
        return;
    show("an owner begins");
    owner_start();
    m.owner_is = OWNER_THERE;
}

/* Others need the owner while it is away, and comes back: they wait for it. */
static void come_back_beside_others(void)
{
    kill_owner(false);
    m.owner_is = OWNER_COMES;
    show("an owner begins soon");
    owner_start_after(below(20));
    if (CHANCE(2))
        kept_fill();
    else
        kept_change_beside();
    owner_look();
    has_come();
}

static void op_owner_ends(void)
{
    if (m.owner_is != OWNER_THERE)
        return;
    if (CHANCE(3)) {
        come_back_beside_others();
    } else if (m.service || CHANCE(2)) {
        kill_owner(false);
        owner_return();
    } else {
        kill_owner(true);
    }
}

const struct operation owner_operations[] = {{"owner ends", 2, has_owner, op_owner_ends, false},
                                             {"owner begins", 20, has_owner, owner_return, false},
                                             {NULL, 0, NULL, NULL, false}};
