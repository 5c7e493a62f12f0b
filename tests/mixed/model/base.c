/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Lanes of work, the order between them, contents, and who owns which bytes.
 *
 * Each piece of work ends by writing its number into its lane's progress. So the memory alone shows
 * what has ended, whatever the clock and the driver say. If tarn hands out memory whose work has
 * not written its number, tarn cannot have known that the work had ended. */
#include "mixed/model/mixed.h"

static uint32_t progress[LANES * 16], serials[70000];
static unsigned char places[SLOTS * PART];
static unsigned char patterns[256][PART];
static int slot_next;

void base_begin(void)
{
    for (uint32_t i = 0; i < sizeof serials / sizeof *serials; i++)
        serials[i] = i;
    for (int i = 0; i < 256; i++)
        memset(patterns[i], i, PART);
}

void settle(void)
{
    machine->settle();
}

bool is_done(struct stamp stamp)
{
    settle();
    return __atomic_load_n(&progress[stamp.lane * 16], __ATOMIC_RELAXED) >= stamp.number;
}

bool is_usable_by(const struct flow *flow, int actor)
{
    return flow->live && (flow->actor < 0 || flow->actor == actor);
}

/* False for the legacy stream while a blocking stream captures; with some drivers, one of any
 * device. */
bool takes_work(const struct flow *flow)
{
    if (!is_usable_by(flow, m.actor))
        return false;
    for (int i = 0; i < FLOWS && flow->kind == LEGACY; i++)
        if (m.flows[i].live && m.flows[i].blocking &&
            (m.vendor || m.flows[i].device == flow->device) && captures_now(&m.flows[i]))
            return false;
    return true;
}

struct flow *some_flow(int device)
{
    int first = (int)below(FLOWS);
    for (int i = 0; i < FLOWS; i++) {
        struct flow *flow = &m.flows[(first + i) % FLOWS];
        if (is_usable_by(flow, m.actor) && (device < 0 || flow->device == device))
            return flow;
    }
    return NULL;
}

/* True if a flow captures. While a capture is only announced, its stream runs. */
bool captures_now(const struct flow *flow)
{
    return flow->capture >= 0 && m.captures[flow->capture].state == OPEN;
}

bool known_open(int device)
{
    for (int i = 0; i < CAPTURES; i++)
        if ((m.captures[i].state == SAID || m.captures[i].state == OPEN) &&
            m.captures[i].how != UNKNOWN && (device < 0 || m.captures[i].device == device))
            return true;
    return false;
}

bool any_open(int device)
{
    for (int i = 0; i < CAPTURES; i++)
        if ((m.captures[i].state == SAID || m.captures[i].state == OPEN) &&
            (device < 0 || m.captures[i].device == device))
            return true;
    return false;
}

int wait_ends_those_of(int device)
{
    return m.waits_for_all ? -1 : device;
}

bool unknown_open(int device)
{
    for (int i = 0; i < CAPTURES; i++)
        if (m.captures[i].state == OPEN && m.captures[i].how == UNKNOWN &&
            (device < 0 || m.captures[i].device == device))
            return true;
    return false;
}

/* ---- Lanes ---- */

/* Takes a lane that nobody uses and whose work has ended. */
static int lane_take(void)
{
    for (int lane = 0; lane < LANES; lane++) {
        bool used = false;
        for (int i = 0; i < FLOWS; i++)
            used |= m.flows[i].live && m.flows[i].lane == lane;
        if (!used && is_done((struct stamp){lane, m.queued[lane]}))
            return lane;
    }
    fault("the test's own limit", "no lane is free");
}

void lane_begin(struct flow *flow)
{
    flow->lane = lane_take();
    flow->life = ++m.lives;
    flow->after[flow->lane] = m.queued[flow->lane];
}

static void join(struct flow *flow, const struct flow *other)
{
    for (int i = 0; i < LANES; i++)
        if (other->after[i] > flow->after[i])
            flow->after[i] = other->after[i];
}

/* Applies the order that the vendor makes: the legacy stream waits for the blocking streams of its
 * device, and they for it. */
void queue_begin(struct flow *flow)
{
    for (int i = 0; i < FLOWS; i++) {
        struct flow *other = &m.flows[i];
        if (other->live && other->device == flow->device && other != flow &&
            ((flow->kind == LEGACY && other->blocking) ||
             (other->kind == LEGACY && flow->blocking)))
            join(flow, other);
    }
}

struct stamp queue_end(struct flow *flow)
{
    uint32_t number = ++m.queued[flow->lane];
    SO(number < sizeof serials / sizeof *serials, "the test's own limit",
       "too much work on one lane");
    MINE(driver->copy(flow->device, (uintptr_t)&progress[flow->lane * 16],
                      (uintptr_t)&serials[number], sizeof number, flow->native));
    flow->after[flow->lane] = number;
    return (struct stamp){flow->lane, number};
}

void order_after(struct flow *flow, struct flow *from)
{
    driver_event event = NULL;
    if (flow == from)
        return;
    MINE(driver->event_create(from->device, &event));
    queue_begin(from);
    MINE(driver->event_record(from->device, event, from->native));
    MINE(driver->stream_wait_event(flow->device, flow->native, event));
    MINE(driver->event_destroy(from->device, event));
    join(flow, from);
    show("flow %d (lane %d) waits for flow %d (lane %d)", (int)(flow - m.flows), flow->lane,
         (int)(from - m.flows), from->lane);
}

bool order_after_stamp(struct flow *flow, struct stamp stamp)
{
    if (is_done(stamp) || flow->after[stamp.lane] >= stamp.number)
        return true;
    for (int i = 0; i < FLOWS; i++) {
        struct flow *from = &m.flows[i];
        if (!takes_work(from) || from->after[stamp.lane] < stamp.number || captures_now(from) ||
            !takes_work(flow))
            continue;
        order_after(flow, from);
        return true;
    }
    return false;
}

/* ---- Contents ---- */

int slot_take(void)
{
    for (int i = 0; i < SLOTS; i++) {
        slot_next = (slot_next + 1) % SLOTS;
        if (!m.slot_used[slot_next]) {
            m.slot_used[slot_next] = true;
            return slot_next;
        }
    }
    return -1;
}

void pending_add(struct check check)
{
    m.pending[m.pending_count++] = check;
}

static void look(const struct check *check, size_t size)
{
    const unsigned char *place = &places[check->slot * PART];
    m.count.checks++;
    for (size_t i = 0; i < size; i++)
        SO(place[i] == check->value, check->what,
           "it holds %#x in place of %#x (byte %zu), work %" PRIu32 " of lane %d", place[i],
           check->value, i, check->stamp.number, check->stamp.lane);
}

/* Copies the bytes to a place in the flow's order. The place is checked when that has run. */
static bool check_later(struct flow *flow, uintptr_t at, size_t size, int value, const char *what,
                        struct check *check)
{
    *check = (struct check){.slot = slot_take(), .value = (unsigned char)value, .what = what};
    if (check->slot < 0)
        return false;
    unsigned char *place = &places[check->slot * PART];
    memset(place + size, value, PART - size);
    MINE(driver->copy(flow->device, (uintptr_t)place, at, size, flow->native));
    return true;
}

enum { SPOTS = 3 };
static size_t spots_of(size_t size, size_t at[SPOTS])
{
    size_t part = size < PART ? size : PART;
    at[0] = 0;
    at[1] = (size - part) / 2;
    at[2] = size - part;
    return part;
}

struct stamp use_bytes(struct flow *flow, void *start, size_t size, int before, int value,
                       const char *what)
{
    struct capture *capture = captures_now(flow) ? &m.captures[flow->capture] : NULL;
    struct check checks[2 * SPOTS];
    size_t at[SPOTS], part = spots_of(size, at);
    int count = 0;
    bool room = !capture || capture->check_count + 2 * SPOTS <= CHECKS;
    room &= m.pending_count + 2 * SPOTS < SLOTS / 2;
    if (!capture)
        queue_begin(flow);
    for (int i = 0; i < SPOTS && before >= 0 && room && !capture; i++)
        count += check_later(flow, (uintptr_t)start + at[i], part, before, what, &checks[count]);
    for (int i = 0; i < SPOTS; i++)
        MINE(driver->copy(flow->device, (uintptr_t)start + at[i], (uintptr_t)patterns[value], part,
                          flow->native));
    /* a vendor's constant means a stream of the current device */
    MINE(tarn_device_set(flow->device));
    MINE(
        machine->work(flow->device, flow->native, start, size, CHANCE(4) ? 0 : 500 + below(30000)));
    MINE(tarn_device_set(0));
    for (int i = 0; i < SPOTS && room; i++)
        count += check_later(flow, (uintptr_t)start + at[i], part, value, what, &checks[count]);
    if (capture) {
        memcpy(&capture->checks[capture->check_count], checks, (size_t)count * sizeof *checks);
        capture->check_count += count;
        return (struct stamp){0, 0};
    }
    struct stamp stamp = queue_end(flow);
    show("work %" PRIu32 " of lane %d (flow %d) on %p", stamp.number, stamp.lane,
         (int)(flow - m.flows), start);
    for (int i = 0; i < count; i++) {
        checks[i].stamp = stamp;
        pending_add(checks[i]);
    }
    return stamp;
}

bool read_bytes(struct flow *flow, const void *start, size_t size, int value, const char *what,
                struct stamp *stamp)
{
    struct check checks[SPOTS];
    size_t at[SPOTS], part = spots_of(size, at);
    int count = 0;
    if (m.pending_count + SPOTS >= SLOTS / 2)
        return false;
    queue_begin(flow);
    for (int i = 0; i < SPOTS; i++)
        count += check_later(flow, (uintptr_t)start + at[i], part, value, what, &checks[count]);
    *stamp = queue_end(flow);
    for (int i = 0; i < count; i++) {
        checks[i].stamp = *stamp;
        pending_add(checks[i]);
    }
    return true;
}

void check_pending(void)
{
    int kept = 0;
    settle();
    for (int i = 0; i < m.pending_count; i++) {
        const struct check *check = &m.pending[i];
        if (!is_done(check->stamp)) {
            m.pending[kept++] = *check;
            continue;
        }
        look(check, PART);
        m.slot_used[check->slot] = false;
    }
    m.pending_count = kept;
    for (int i = 0; i < CAPTURES; i++)
        check_slots_of(&m.captures[i]);
}

/* Checks what a graph's last launch has copied. */
void check_slots_of(struct capture *capture)
{
    if (capture->state != GRAPH || !capture->fresh || !is_done(capture->launched))
        return;
    capture->fresh = false;
    for (int i = 0; i < capture->check_count; i++)
        look(&capture->checks[i], PART);
}

bool wait_for_all(void)
{
    for (int device = 0; device < m.devices; device++)
        if (any_open(device))
            return false;
    for (int device = 0; device < m.devices; device++)
        MINE(driver->device_synchronize(device));
    settle();
    check_pending();
    return true;
}

/* ---- Ghosts ---- */

void block_user(struct block *block, struct stamp stamp)
{
    int kept = 0;
    if (stamp.number == 0)
        return;
    for (int i = 0; i < block->user_count; i++)
        if (block->users[i].lane == stamp.lane && block->users[i].number > stamp.number)
            stamp = block->users[i];
    for (int i = 0; i < block->user_count; i++)
        if (block->users[i].lane != stamp.lane && !is_done(block->users[i]))
            block->users[kept++] = block->users[i];
    block->user_count = kept;
    if (kept == USERS_OF_BLOCK) { /* users for which there is no room are waited for */
        ghost_add((struct span_of_bytes){(uintptr_t)block->start,
                                         (uintptr_t)block->start + block->usable},
                  block->users[0], -1, "a block");
        block->users[0] = block->users[--block->user_count];
    }
    block->users[block->user_count++] = stamp;
}

void ghost_add(struct span_of_bytes bytes, struct stamp stamp, int pool, const char *what)
{
    int kept = 0;
    if (stamp.number == 0 || is_done(stamp))
        return;
    if (m.ghost_count == GHOSTS) {
        for (int i = 0; i < m.ghost_count; i++)
            if (!is_done(m.ghosts[i].stamp))
                m.ghosts[kept++] = m.ghosts[i];
        m.ghost_count = kept;
    }
    if (m.ghost_count < GHOSTS)
        m.ghosts[m.ghost_count++] = (struct ghost){bytes, stamp, pool, what};
}

void ghosts_of(const struct block *block, const char *what)
{
    for (int i = 0; i < block->user_count; i++)
        ghost_add((struct span_of_bytes){(uintptr_t)block->start,
                                         (uintptr_t)block->start + block->usable},
                  block->users[i], -1, what);
}

/* Work still runs on memory that is now a block's: every user of the block comes after that
 * work. */
void ghosts_to(struct block *block)
{
    for (int i = 0; i < m.ghost_count; i++)
        if (m.ghosts[i].bytes.start < (uintptr_t)block->start + block->usable &&
            (uintptr_t)block->start < m.ghosts[i].bytes.end && !is_done(m.ghosts[i].stamp))
            block_user(block, m.ghosts[i].stamp);
}

static bool overlap(struct span_of_bytes a, struct span_of_bytes b)
{
    return a.start < b.end && b.start < a.end;
}

static struct span_of_bytes bytes_of(const struct block *block)
{
    return (struct span_of_bytes){(uintptr_t)block->start, (uintptr_t)block->start + block->usable};
}

/* True if the lane belongs to a stream that takes part in the same capture. Whoever launches its
 * graph orders it after all of these. */
static bool is_of_capture(const struct flow *flow, int lane)
{
    if (!captures_now(flow))
        return false;
    for (int i = 0; i < FLOWS; i++)
        if (m.flows[i].lane == lane && m.flows[i].capture == flow->capture)
            return true;
    return false;
}

static void check_work(struct span_of_bytes bytes, struct flow *flow, int pool, const char *what)
{
    int kept = 0;
    for (int i = 0; i < m.ghost_count; i++) {
        const struct ghost ghost = m.ghosts[i];
        if (is_done(ghost.stamp))
            continue;
        m.ghosts[kept++] = ghost;
        if (!overlap(bytes, ghost.bytes) || flow->after[ghost.stamp.lane] >= ghost.stamp.number ||
            is_of_capture(flow, ghost.stamp.lane))
            continue;
        queue_begin(flow); /* the order that the vendor itself makes */
        if (flow->after[ghost.stamp.lane] >= ghost.stamp.number)
            continue;
        /* another thread had this slot before, and tarn may make the stream wait for it; the
         * contents show if it did not */
        if (flow->kind == PER_THREAD)
            continue;
        if (ghost.pool >= 0 && ghost.pool == pool && !captures_now(flow) &&
            order_after_stamp(flow, ghost.stamp))
            continue; /* the caller must order other work of the pool before a launch */
        if (ghost.pool >= 0 && ghost.pool == pool && captures_now(flow) &&
            m.captures[flow->capture].pool != pool)
            continue; /* a scope led the capture to this pool, so the graph is never launched */
        fault("memory was handed out while work that it is not ordered after is on it",
              "%s of %zu bytes at %#" PRIxPTR " for flow %d (lane %d): %s had %#" PRIxPTR
              " to %#" PRIxPTR ", work %" PRIu32 " of lane %d",
              what, (size_t)(bytes.end - bytes.start), bytes.start, (int)(flow - m.flows),
              flow->lane, ghost.what, ghost.bytes.start, ghost.bytes.end, ghost.stamp.number,
              ghost.stamp.lane);
    }
    m.ghost_count = kept;
}

/* ---- Owners ---- */

struct owned {
    struct span_of_bytes bytes;
    const char *what;
    int number, pool;
    bool weak; /* freed inside a graph; only the graph's own pool may hand it out again */
};

static struct owned owners[BLOCKS + CAPTURES * RANGES * 2 + (ACTORS + LEASES) * LIBRARIES];

static int owners_list(void)
{
    int count = 0;
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live)
            owners[count++] =
                (struct owned){bytes_of(&m.blocks[i]), "a block", i, m.blocks[i].pool, false};
    for (int i = 0; i < CAPTURES; i++) {
        const struct capture *capture = &m.captures[i];
        if (capture->state != OPEN && capture->state != GRAPH)
            continue;
        for (int k = 0; k < capture->workspace_count && !capture->cleared; k++)
            owners[count++] = (struct owned){capture->workspaces[k], "a graph's workspace", i,
                                             capture->pool, false};
        for (int k = 0; k < capture->inside_count; k++)
            owners[count++] = (struct owned){capture->inside[k], "what a graph freed inside", i,
                                             capture->pool, true};
    }
    for (int user = 0; user < ACTORS + LEASES; user++)
        for (int i = 0; i < LIBRARIES; i++) {
            const struct use *use = &m.uses[user][i];
            uintptr_t start = (uintptr_t)use->pointer;
            if (use->valid && start &&
                !(use->capture >= 0 && capture_has_workspace(&m.captures[use->capture], start)))
                owners[count++] =
                    (struct owned){{start, start + use->size},
                                   "a handle's workspace",
                                   user,
                                   use->capture >= 0 ? m.captures[use->capture].pool : -1,
                                   false};
        }
    return count;
}

static bool may_share(const struct owned *a, const struct owned *b)
{
    if (!a->weak && !b->weak)
        return false;
    return a->pool == b->pool;
}

static int by_start(const void *a, const void *b)
{
    const struct owned *left = a, *right = b;
    return left->bytes.start < right->bytes.start ? -1 : left->bytes.start > right->bytes.start;
}

void check_owners(void)
{
    int count = owners_list();
    qsort(owners, (size_t)count, sizeof *owners, by_start);
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count && owners[k].bytes.start < owners[i].bytes.end; k++)
            SO(may_share(&owners[i], &owners[k]), "two owners share a byte",
               "%s (%d) has %#" PRIxPTR " to %#" PRIxPTR ", %s (%d) has %#" PRIxPTR
               " to %#" PRIxPTR,
               owners[i].what, owners[i].number, owners[i].bytes.start, owners[i].bytes.end,
               owners[k].what, owners[k].number, owners[k].bytes.start, owners[k].bytes.end);
    for (int i = 0; i < count; i++) {
        tarn_block_info info = {.size = sizeof info};
        if (owners[i].weak)
            continue;
        SO(tarn_pointer_info_get((void *)owners[i].bytes.start, &info) == TARN_OK &&
               (uintptr_t)info.base == owners[i].bytes.start,
           "what somebody has is no live block", "%s (%d) at %#" PRIxPTR ": %s", owners[i].what,
           owners[i].number, owners[i].bytes.start, tarn_last_error());
    }
}

void check_fresh(struct span_of_bytes bytes, struct flow *flow, int pool, const char *what,
                 const struct block *but)
{
    int count = owners_list();
    struct owned fresh = {bytes, what, -1, pool, false};
    for (int i = 0; i < count; i++)
        if (overlap(bytes, owners[i].bytes) &&
            (uintptr_t)(but ? but->start : NULL) != owners[i].bytes.start)
            SO(may_share(&owners[i], &fresh), "what somebody has was handed out",
               "%s at %#" PRIxPTR " to %#" PRIxPTR ": %s (%d) has %#" PRIxPTR " to %#" PRIxPTR,
               what, bytes.start, bytes.end, owners[i].what, owners[i].number,
               owners[i].bytes.start, owners[i].bytes.end);
    if (flow)
        check_work(bytes, flow, pool, what);
}

/* Bytes of the vendor's library: its handles have memory of their own, less than a granule each. */
static uint64_t created_by_libraries(void)
{
    tarn_handle_stats stats = {.size = sizeof stats};
    if (!m.libraries[LIBRARIES - 1] || tarn_handle_stats_get(m.libraries[LIBRARIES - 1], 0, &stats))
        return 0;
    return (stats.created - stats.destroyed) * 2 * MIB;
}

/* Without caching a block is an allocation of its own, which the driver rounds up to granules. */
static uint64_t rounding[DEVICES];

static void add_rounding(const tarn_memory_segment *segment, void *user)
{
    (void)user;
    if (!segment->is_virtual)
        rounding[segment->device] +=
            (segment->bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB) - segment->bytes;
}

/* Checks that what the driver has created is what tarn says that it reserves. */
void check_ledgers(void)
{
    memset(rounding, 0, sizeof rounding);
    if (m.was_uncached)
        MINE(tarn_memory_list(add_rounding, NULL));
    segments_settle();
    for (int device = 0; device < m.devices; device++) {
        tarn_host_ledger ledger = {.size = sizeof ledger};
        tarn_stats stats = {.size = sizeof stats};
        MINE(machine->ledger_get(device, &ledger));
        if (tarn_device_stats_get(device, &stats) != TARN_OK)
            fault("statistics", "%s", tarn_last_error());
        uint64_t theirs = device == 0 ? created_by_libraries() : 0;
        uint64_t reported = (uint64_t)stats.reserved_bytes[0].current + theirs + rounding[device] -
                            adopted_on(device);
        /* Blocks that could not be freed are in no list, so their rounding is not known */
        bool stuck = m.was_uncached && m.count.injected && ledger.created > reported &&
                     ledger.created - reported < ledger.plain * 2 * MIB;
        SO(reported == ledger.created || (m.compacts && reported > ledger.created) || stuck ||
               adopted_is_unsure(reported, ledger.created),
           "what is created is not reported",
           "device %d: %" PRIu64 " bytes are created, %" PRId64 " are reported", device,
           ledger.created, stats.reserved_bytes[0].current);
        SO(stats.active_bytes[0].current >= 0 && stats.allocated_bytes[0].current >= 0 &&
               stats.requested_bytes[0].current >= 0 && stats.inactive_split_bytes[0].current >= 0,
           "a counter is negative", "active %" PRId64 ", allocated %" PRId64,
           stats.active_bytes[0].current, stats.allocated_bytes[0].current);
    }
}
