/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the model of tests/mixed/test_model.c knows, and what its parts ask of each other. Nothing
 * here comes from what tarn keeps: the model is told by the headers what each call means, and by
 * the memory itself what has run.
 *
 *   base.c     lanes of work, the order between them, contents, and who owns which bytes
 *   promise.c  which statuses a header promises
 *   calls.c    calls, which give one of these, and those that are made to fail
 *   actors.c   threads that take turns
 *   blocks.c   allocation and free in all forms, and use
 *   streams.c  order between streams, streams that come and go
 *   pools.c    pools, scopes, limits, trims, suspends, checkpoints
 *   graphs.c   captures of each kind, and the graphs that come of them
 *   handles.c  libraries that write to their workspace
 *   ranges.c   pages of ranges
 *   pinned.c   pinned memory of the host
 *   shares.c   anchors, shares, observers
 *   sleeps.c   the process asleep and awake
 *   counts.c   who counts what, and what is left of things that have ended
 *   asks.c     what tarn says when it is asked, reports and settings
 *   idle.c     idle memory that goes back by itself: what may go, and what must
 *   kept.c     kept pools: of this process, of processes beside it, and those that have ended
 *   reads.c    who only reads kept pools, here and in processes beside this one
 *   owners.c   the owner is killed and comes back, and which pools it knows then
 *   sides.c    the processes beside this one
 *   inside.c   how many requests were where a plan has them; passes of idle_release; segments that
 *              were taken over */
#ifndef TESTS_MIXED_MODEL_H
#define TESTS_MIXED_MODEL_H

#include "base/pages.h"
#include "driver/driver.h"
#include "mixed/model/promise.h"
#include "mixed/model/sides.h"
#include "support/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEVICES = 2,
    FLOWS = 18,
    LANES = 120,
    BLOCKS = 96,
    USERS_OF_BLOCK = 12,
    POOLS = 6,
    SCOPES = 8,
    CHECKPOINTS = 3,
    PINNED = 24,
    PINNED_OF_GRAPH = 6,
    EVENTS = 5,
    CAPTURES = 5,
    ACTORS = 3,
    LEASES = 2,
    LIBRARIES = 3,
    PART = 64,
    SLOTS = 6000,
    GHOSTS = 4096,
    RANGES = 80,
    HELD = 40,
    KEPT = 4,
    CHECKS = 160,
    STEPS_MOST = 40000
};

uint64_t requests_planned(void);
void idle_pass(uint64_t ns);
bool fell_back(int device);
uint64_t pool_numbered(tarn_pool *pool);
uint64_t pool_adopted(tarn_pool *pool, uint64_t numbered);

struct span_of_bytes {
    uintptr_t start, end;
};

/* A point in a lane's work. The work up to `number` has ended when the lane's progress, which the
 * work itself writes, has reached that number. */
struct stamp {
    int lane;
    uint32_t number;
};

/* A stream that the model uses. Each incarnation has a lane of its own, so that what is left of an
 * earlier one stays known. */
enum flow_kind { LEGACY, LEASED, ADOPTED, FOUND, PER_THREAD };
struct flow {
    bool live, blocking;
    enum flow_kind kind;
    int device, actor; /* actor: the thread of a PER_THREAD stream; otherwise -1 */
    int lane;
    unsigned life; /* incarnation; no value is used twice */
    int capture;   /* index of the capture that it takes part in; -1: none */
    tarn_stream value;
    void *native;
    uint32_t after[LANES]; /* for each lane: its next work runs after this number */
};

struct block {
    bool live, known; /* known: its contents are `value` */
    unsigned char *start;
    size_t size, usable;
    int device, flow; /* what it was allocated for */
    /* the flow's incarnation then; if the flow has another now, that stream is gone */
    unsigned life;
    int pool;      /* -1: the default pool; -2: a pool that is gone */
    int actor;     /* the thread that allocated it */
    unsigned turn; /* which of the threads with that number */
    int held;      /* how many captures and graphs use it */
    int inside;    /* the capture that it was allocated in, -1: none */
    tarn_tag tag;
    unsigned char value;
    bool lost; /* its pool was released while it was suspended */
    int kept;  /* index + 1 of the kept pool that it is in; 0: none */
    int seal;  /* its name there + 1; 0: it is not sealed */
    size_t sealed_size;
    unsigned char sealed_value;
    struct stamp users[USERS_OF_BLOCK];
    int user_count;
};

/* Bytes that were given back, or belong to a workspace, while work on them has not ended. */
struct ghost {
    struct span_of_bytes bytes;
    struct stamp stamp;
    int pool; /* for a graph's launch: the pool that the graph counts; otherwise -1 */
    const char *what;
};

struct check {
    int slot; /* -1: none */
    unsigned char value;
    struct stamp stamp;
    const char *what;
};

struct pool {
    bool live, use_on_oom, plain, exact, registrable;
    bool stays;    /* its idle memory never goes back by itself */
    bool theirs;   /* its segments come from the model's own allocator */
    int kept;      /* index + 1 of the kept pool that it is; 0: none */
    int holds;     /* references by tarn_pool_hold(), which count as graphs */
    unsigned turn; /* which of the pools with this number */
    tarn_tag tag;
    tarn_pool *pool;
    tarn_pool_id id;
    int device, users, scopes, graphs;
    tarn_pool_state state;
    size_t limit;
};

struct scope {
    bool live;
    tarn_scope value;
    tarn_scope_kind kind;
    int pool, flow, actor;
    unsigned life;
    tarn_stream stream;
    /* when each actor joined; 0: not in it. For kinds other than THREAD only the first counts */
    uint64_t since[ACTORS];
};

struct saved {
    unsigned char *start;
    size_t size, usable;
    int flow;
    unsigned life;
    tarn_tag tag;
};

struct checkpoint {
    bool live;
    tarn_checkpoint *checkpoint;
    int pool, count;
    unsigned turn;
    struct saved saved[BLOCKS];
};

struct event {
    bool recorded, live;
    tarn_event *event;
    int device;
    uint32_t after[LANES];
};

enum how { KNOWN, OWN_POOL, WITH_POOL, ANNOUNCED, ANNOUNCED_POOL, UNKNOWN, HOWS };
enum capture_state { UNUSED, SAID, OPEN, GRAPH };

/* A kept pool of an owner: one of `m.pools`, one that a process beside this one has, or one that is
 * left of such a process. */
struct kept {
    enum {
        KEPT_NONE,
        KEPT_HERE,
        KEPT_BESIDE,
        KEPT_LEFT,
        KEPT_ENDS,
        KEPT_GONE
    } state; /* ENDS: its blocks may live on here. GONE: lost, and only its readers have it */
    char name[16];
    int device, pool; /* pool: of HERE */
    size_t segment;
    struct side side;                      /* of BESIDE */
    tarn_pool_state asleep;                /* of BESIDE */
    struct side_block blocks[SIDE_BLOCKS]; /* of BESIDE, LEFT and GONE, by name */
    tarn_pool_id id;                       /* of HERE, and of ENDS if it was that */
    uint64_t numbered; /* its newest segment when it was taken over; 0: there was none */
    bool lingers;
    unsigned given; /* how often it may have given memory up */
    /* For owners.c */
    bool strange; /* its process has not told the owner that runs now of it, as far as is known */
    bool asked;   /* of a strange one: its process may have told the owner */
    bool torn;    /* of a strange one: calls of its process were made to fail meanwhile */
    bool lost;    /* of LEFT: nobody has anything of it. Whoever takes it over makes it */
    size_t bytes; /* of HERE and BESIDE: its memory, when it was looked at last */
};

/* A capture, and after its end the graph. */
struct capture {
    enum capture_state state;
    enum how how;
    tarn_capture_mode mode; /* unless it is relaxed, only its own thread can end it */
    int flow, pool, actor, device;
    int kept;        /* index + 1 of the pool that tarn was told the graph uses; 0: none */
    unsigned joined; /* bits of flows */
    unsigned ever;   /* flows that ever took part in it */
    uint64_t id, since;
    void *graph;
    bool launchable;
    int held[HELD], held_count;
    struct span_of_bytes inside[RANGES];
    int inside_count;
    struct span_of_bytes workspaces[RANGES];
    int workspace_count;
    struct span_of_bytes pinned[PINNED_OF_GRAPH]; /* pinned host memory, live or freed since */
    int pinned_count;
    struct check checks[CHECKS];
    int check_count;
    struct stamp launched; /* its last launch */
    /* the last launch writes its places anew, and they were not checked yet */
    bool fresh;
    bool cleared;
};

struct pinned {
    bool live, known;
    unsigned char *start;
    size_t size, usable;
    unsigned char value;
    struct stamp last; /* its work runs one after the other */
    bool used;
    int flow; /* the flow of that work */
};

struct thing { /* a handle of the model's libraries */
    void *stream, *workspace;
    size_t size;
    unsigned char *own; /* the handle's own memory, which all its work uses; NULL: it has none */
    bool known;
    unsigned char value; /* what its last work wrote there */
};

struct use {
    bool valid;
    int flow, capture;
    unsigned life;
    struct thing *thing;
    unsigned char *pointer;
    size_t size;
    unsigned clears; /* how many clears there were when it was asked for */
    bool leased;
    tarn_lease lease;
    int actor; /* -1 for a lease */
};

struct model {
    uint64_t seed, random;
    int step, steps;
    int actor; /* whose turn it is */
    unsigned turns[ACTORS];
    int devices;
    size_t memory;
    bool vendor;        /* the driver is CUDA or HIP, simulated */
    bool waits_for_all; /* HIP: no device can be waited for while any stream captures */
    bool plain;         /* the default pool has plain segments, by its settings */
    unsigned inject;    /* what fails in this step; 0: nothing */
    bool injected_now;  /* something has failed since owner_look() */
    /* pieces of host memory may be mapped and reported, after a compaction that could not end */
    bool compacts;
    bool exports; /* memory of device 0 can be exported */
    bool planned; /* requests follow a plan */
    bool idle;    /* idle memory goes back by itself */
    bool owner;   /* there may be kept pools, because there is an owner at times */
    bool service; /* whoever starts the owner again has held its descriptors */
    enum { OWNER_THERE, OWNER_AWAY, OWNER_COMES } owner_is; /* COMES: within a step */
    bool uncached, was_uncached;
    bool moves;    /* live blocks may move in this call */
    bool reclaims; /* an observer may free in this call */
    bool bounded;  /* this call may refuse to wait */
    /* the driver went on failing, so the device may be lost: memory could be neither mapped again
     * nor unmapped */
    bool may_be_lost;
    uint32_t queued[LANES];
    unsigned lives, clears;
    struct flow flows[FLOWS];
    int flow_count;
    struct block blocks[BLOCKS];
    struct ghost ghosts[GHOSTS];
    int ghost_count;
    struct check pending[SLOTS];
    int pending_count;
    bool slot_used[SLOTS];
    struct pool pools[POOLS];
    struct kept kept[KEPT];
    struct scope scopes[SCOPES];
    struct checkpoint checkpoints[CHECKPOINTS];
    struct event events[EVENTS];
    struct capture captures[CAPTURES];
    struct use uses[ACTORS + LEASES][LIBRARIES];
    struct pinned pinned[PINNED];
    tarn_library libraries[LIBRARIES];
    tarn_tag tags[3];
    uint64_t ended[STEPS_MOST / 4]; /* captures whose workspaces were not cleared */
    int ended_count;
    uint64_t clock; /* counts scopes */
    unsigned pool_turns;
    size_t limit[DEVICES];
    struct {
        uint64_t allocations, shortages, injected, launches, suspends, restores, workspaces, checks,
            refused, sleeps, shares, adoptions, finds, owners, losses;
    } count;
};
extern struct model m;

/* ---- The run ---- */

/* Ends the run with a fault. `what` names its kind, which is the same whenever the same fault
 * occurs. */
_Noreturn void fault(const char *what, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define SO(condition, what, ...) ((condition) ? (void)0 : fault(what, __VA_ARGS__))
/* A call that the test makes for itself, which must succeed. */
#define MINE(call) \
    ((call) == TARN_OK ? (void)0 : fault("the test's own call", "%s: %s", #call, tarn_last_error()))

/* Ends the run without a fault, because there is no more to see. */
_Noreturn void run_over(void);

/* With TARN_MIXED_SHOW, prints a line about what the model does. */
void show(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t word(void);
unsigned below(unsigned count);
#define CHANCE(n) (below(n) == 0)

/* ---- calls.c ---- */

void ask_begin(const char *name);
tarn_status ask_end(const char *name, tarn_status status);
/* A call of tarn. It may be made to fail, and must return a status that its header names. */
#define CALL(function, ...) (ask_begin(#function), ask_end(#function, function(__VA_ARGS__)))
/* The same, and nothing is made to fail in it. */
#define SURE(function, ...) sure(#function, (call_quiet(), CALL(function, __VA_ARGS__)))
void call_quiet(void);
void sure(const char *name, tarn_status status);
/* True if a call succeeded. If it did not, it was made to fail, or must have returned one of
 * `reasons`, bits of statuses. */
bool well(const char *name, tarn_status status, uint64_t reasons);
#define WELL(reasons, function, ...) well(#function, CALL(function, __VA_ARGS__), (reasons))
/* The same for functions without arguments. */
#define CALL0(function) (ask_begin(#function), ask_end(#function, function()))
#define WELL0(reasons, function) well(#function, CALL0(function), (reasons))
#define SURE0(function) sure(#function, (call_quiet(), CALL0(function)))
bool was_injected(void);

/* ---- base.c ---- */

void base_begin(void);
void settle(void);
bool is_done(struct stamp stamp);
bool is_usable_by(const struct flow *flow, int actor);
/* A flow of the device (-1: of either) to which the current actor may give work. NULL: none. */
struct flow *some_flow(int device);
bool captures_now(const struct flow *flow);
bool takes_work(const struct flow *flow);
/* Gives a flow a new lane. */
void lane_begin(struct flow *flow);
/* Orders what is queued on `flow` from now on after `stamp`, or after all that is queued on
 * `from`. */
bool order_after_stamp(struct flow *flow, struct stamp stamp);
void order_after(struct flow *flow, struct flow *from);
/* Queues work of a flow on memory: it demands that the memory has the value `before` (unless that
 * is -1), writes `value`, is busy for a while, and demands that `value` is still there. On a flow
 * that captures, the work becomes part of the capture. */
struct stamp use_bytes(struct flow *flow, void *start, size_t size, int before, int value,
                       const char *what);
/* Queues work that reads memory, which must hold `value`. False if there is no room for it. */
bool read_bytes(struct flow *flow, const void *start, size_t size, int value, const char *what,
                struct stamp *stamp);
void queue_begin(struct flow *flow);
struct stamp queue_end(struct flow *flow);
void block_user(struct block *block, struct stamp stamp);
void ghost_add(struct span_of_bytes bytes, struct stamp stamp, int pool, const char *what);
void ghosts_of(const struct block *block, const char *what);
void ghosts_to(struct block *block);
/* Checks bytes that were just handed out to a flow. Nobody may own them, and no work may be on them
 * that the flow does not run after. With NULL as the flow the latter is not checked. */
void check_fresh(struct span_of_bytes bytes, struct flow *flow, int pool, const char *what,
                 const struct block *but);
void check_pending(void);
void check_owners(void);
void check_ledgers(void);
void check_slots_of(struct capture *capture);
/* Ends all queued work. False while that cannot be waited for. */
bool wait_for_all(void);
int slot_take(void);
void pending_add(struct check check);
bool known_open(int device);
bool any_open(int device);
bool unknown_open(int device);
/* Whose captures a wait for the device would end: those of the device, or with -1 those of all. */
int wait_ends_those_of(int device);

/* ---- actors.c ---- */

void actors_begin(void);
void actor_run(int actor, void (*run)(void));
void actor_renew(int actor);
void actors_end(void);

/* ---- Operations ---- */

struct operation {
    const char *name;
    unsigned weight;
    bool (*may)(void); /* NULL: always */
    void (*run)(void);
    bool by_main; /* only the main thread does it */
};
extern const struct operation block_operations[], stream_operations[], pool_operations[],
    graph_operations[], handle_operations[], pinned_operations[], share_operations[],
    sleep_operations[], count_operations[], ask_operations[], range_operations[], kept_operations[],
    read_operations[], owner_operations[];

/* blocks.c */
struct block *block_free_slot(void);
bool block_may_go(const struct block *block);
void block_free(struct block *block);
/* Lets a stream work on a block, if the flow takes work. */
void block_use_by(struct block *block, struct flow *flow);
/* Allocates one more block for a flow by tarn_alloc_on(), if the model has room. */
void block_want(struct flow *flow, size_t size);
/* Allocates one more block in a pool that is awake. */
void block_want_in(int pool);
/* Notes that a block was freed. */
void freed(struct block *block);
bool block_is_usable(const struct block *block);
void blocks_end(void);
/* The pool that serves this actor's request for a flow, by the open scopes. */
int pool_routed(const struct flow *flow);
bool flow_value(struct flow *flow);
/* Orders the flow's next work after the block's users. False if that is not possible. */
bool order_after_users(struct flow *flow, const struct block *block);

/* streams.c */
void streams_begin(void);
void streams_end(void);
void stream_renew(struct flow *flow);
void per_thread_begin(int actor);
void per_thread_end(int actor);

/* pools.c */
void pool_settle(int pool);
void segments_settle(void);
void scopes_left_by(int actor);
void pools_end(void);
/* Removes limits, ends scopes and trims all pools. */
void pools_make_room(void);
/* The contents of a pool's blocks are unchanged (`known`), or undefined. */
void contents_of_pool(int index, bool known);
int pool_any(int device, bool running);
tarn_pool_info pool_info(tarn_pool *pool);
void pool_suspend(int index);
/* Drops one of the model's references to a pool. */
void pool_release_one(int index);
void scope_begin_on(int pool, struct flow *flow);
void checkpoint_make(int index);
void checkpoints_restore(int index); /* all checkpoints of the pool */

/* graphs.c */
void captures_look(void);
void captures_end(void);
bool is_held_by_graph(int pool);
void held_by(struct capture *capture, struct block *block);
void graph_destroy(struct capture *capture);

/* pinned.c */
/* Orders a launch of the capture's graph after the work on its pinned blocks. False if that is not
 * possible. */
bool order_after_pinned(struct flow *flow, const struct capture *capture);
/* The graph was launched: its pinned blocks are in use until the launch has ended. */
void pinned_launched(const struct capture *capture);
/* True if no graph uses pinned memory, and no work of a destroyed graph does. */
bool pinned_is_without_graphs(void);
void pinned_end(void);

/* shares.c */
bool is_anchored_in(int pool);
/* Whether the program has an anchor in a pool of the device: a share is none. */
bool has_anchor(int pool, int device);
bool is_anchored_on(int device);
/* Removes all anchors and shares of a device's memory. */
void anchors_leave(int device);
/* Whether an observer hears of mappings in the program's own threads only, or in any. */
bool observer_bars(void);
bool observer_allows(void);
void shares_end(void);

/* idle.c */
/* Idle memory goes back by itself, as the model is. */
void idle_look(void);

/* sleeps.c */
bool is_night(void);
/* A pool's owner has resumed it: every sleep leaves it alone from now on, even one that is only
 * prepared. */
void night_leaves(int pool);
/* True if a sleep may count the pool that had this number in that turn. */
bool night_counts(int pool, unsigned turn);
/* True if a sleep counts a pool that has ended for everybody else. */
bool night_keeps_ended(void);
void sleeps_end(bool may_be_short);

/* counts.c */
void pool_ended(int slot);
/* Call it before a sleep: notes which pools have ended only for the model. */
void ended_look(void);

/* ranges.c */
void ranges_end(void);

/* kept.c */
/* Takes the seal off a block that is to be written. False if that failed. */
bool seal_off(struct block *block);
/* Of a pool whose contents are gone. */
void seals_end(int pool);
/* The model's pool has ended; its blocks may live. */
void kept_released(int pool);
/* Bytes of a device that this process has taken over: its driver has not created them. */
uint64_t adopted_on(int device);
/* True if these bytes of a device may differ, because the driver has refused to give up a kept
 * pool's memory. */
bool adopted_is_unsure(uint64_t reported, uint64_t created);
/* What is sealed by a name of a kept pool. NULL: nothing. */
const struct side_block *kept_truth(const struct kept *kept, int name, struct side_block *room);
/* A name of a kept pool, mostly one of a sealed block. */
int kept_some_name(const struct kept *kept);
/* Gives an order to the process that has the pool. If that has ended, this is a fault. */
struct side_answer side_give(const struct side *side, struct side_order order);
/* Starts a process beside this one, on the same devices. */
struct side side_begin(void);
/* Lets a pool of a process beside this one change, or begin. */
void kept_change_beside(void);
/* Gives kept pools of this process blocks. */
void kept_fill(void);
void kept_sides_end(void);
void kept_end(void);
/* The owner has no pool. */
void kept_check_none(void);
/* Notes what is sealed, for a process that is killed. */
void kept_note(struct heir heirs[KEPT]);
/* Another process takes over what a killed one has left. */
void heirs_check(const struct heir heirs[KEPT]);

/* owners.c */
/* True if the owner knows all of a pool that a process has. */
bool owner_knows(const struct kept *kept);
/* True if a call of this process may fail because a kept pool cannot grow without an owner. */
bool owner_is_missed(void);
/* After each step, and whenever a process beside this one has answered: checks that no pool grows
 * without an owner, and finds out which pools the owner knows now. */
void owner_look(void);
void owner_look_beside(struct kept *kept, const struct side_order *order, size_t bytes);
/* The process that had the pool has ended: the pool is left or lost. */
void owner_keeps_what_it_knows(struct kept *kept);
/* Whoever could take the pool over finds nothing. */
void owner_loses(struct kept *kept);
/* Of what a killed process has left: whether the owner knew it. */
void owner_judges(struct kept *kept);
/* Starts an owner if there is none. */
void owner_return(void);

/* reads.c */
/* True if no work here reads the pool. */
bool reads_rest(const struct kept *kept);
bool has_readers(const struct kept *kept);
void reads_end(void);

/* asks.c */
void caching_turn(bool wanted);
/* Checks that tarn_memory_list() shows what the model knows. */
void memory_look(void);
void asks_forget(int actor);
void asks_end(void);

/* handles.c */
void handles_begin(void);
/* Makes everybody give up handles, and clears workspaces except those of captures. */
void handles_let_go(void);
void handles_end(void);
void uses_changed(unsigned flows);
void uses_forget(int actor);
void workspaces_were_cleared(void);
void uses_of_flow(int flow);
bool capture_has_workspace(const struct capture *capture, uintptr_t start);

#endif
