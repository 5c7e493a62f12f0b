/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Random runs of workspaces. Libraries whose calls write to their workspace on their stream, and
 * read it back later; threads, leases, scopes, a pool that is suspended, captures that tarn began,
 * that were announced, and that it does not know, streams that join them, graphs that are launched
 * side by side, clears of all kinds, and shortages.
 *
 * Two oracles. What somebody may use now (a live block of the program's, the workspace of the
 * handle that was asked for last, what a live graph has recorded) is live memory of the right pool,
 * and no byte of it is anybody else's. And each call finds in its workspace what it has written
 * there, though a while passes between. */
#include "driver/driver.h"
#include "support/actor.h"
#include "support/clearing.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW_BUILD 1
#else
#define SLOW_BUILD 0
#endif

enum {
    ACTORS = 3,
    STREAMS = 12,
    LEASES = 2,
    USERS = ACTORS + LEASES,
    GRAPHS = 4,
    BLOCKS = 8,
    SLOTS = 512,
    PART = 256
};
enum { PLAIN, BY_STREAM, BY_CALL, LIBRARIES };

static uint64_t seed;
static tarn_library libraries[LIBRARIES]; /* 0: none on this driver */
static const size_t sizes[LIBRARIES] = {384 << 10, 256 << 10, 320 << 10};
static tarn_stream streams[STREAMS];
static tarn_pool *pool;
static tarn_pool_id pool_id;

static unsigned below(unsigned count)
{
    return (unsigned)(random_next(&seed) >> 20) % count;
}

/* Libraries ------------------------------------------------------------------------------------ */

struct thing {
    void *stream, *workspace;
    size_t size;
};

static int thing_create(void **handle)
{
    *handle = calloc(1, sizeof(struct thing));
    return !*handle;
}

static int thing_destroy(void *handle)
{
    free(handle);
    return 0;
}

static int set_stream_only(void *handle, void *stream)
{
    ((struct thing *)handle)->stream = stream;
    return 0;
}

static int set_stream(void *handle, void *stream)
{
    /* The workspace is its own again, as with cuBLAS */
    *(struct thing *)handle = (struct thing){.stream = stream};
    return 0;
}

static int set_workspace(void *handle, void *pointer, size_t size)
{
    ((struct thing *)handle)->workspace = pointer;
    ((struct thing *)handle)->size = size;
    return 0;
}

/* Threads -------------------------------------------------------------------------------------- */

static struct actor actors[ACTORS];

static void in_actor(int number, void (*run)(void))
{
    actor_turn(&actors[number], run);
}

/* What is known -------------------------------------------------------------------------------- */

enum how { KNOWN, KNOWN_WITH_OWN_POOL, KNOWN_WITH_POOL, ANNOUNCED, UNKNOWN, HOWS };

struct range {
    uintptr_t start, end;
    tarn_pool_id pool;
};

/* A call that was made: what it has written is to be found in its place. */
struct made {
    int slot; /* 0: none */
    unsigned char value;
};

/* A capture, or the graph that it became. */
struct graph {
    bool open, is_there;
    enum how how;
    int stream;
    unsigned joined; /* bits of streams, its own among them */
    uint64_t id;
    void *graph;
    struct range ranges[64];
    struct made made[64];
    int range_count, made_count;
};

static struct graph graphs[GRAPHS];

/* What was asked for last, by an actor or under a lease, of a library. */
static struct use {
    bool valid;
    int stream, capture; /* of `graphs`, or -1 */
    struct thing *thing;
    void *pointer;
    size_t size;
    tarn_lease lease;
} uses[USERS][LIBRARIES];

static struct {
    char *start;
    int stream;
} blocks[BLOCKS];

static unsigned char *places; /* of the device: two parts for each slot */
static bool slot_used[SLOTS];
static struct made pending[SLOTS];
static int pending_count;
static tarn_scope scopes[ACTORS + 2]; /* of each actor's thread, of a stream, of all */

static int capture_on(int stream)
{
    for (int i = 0; i < GRAPHS; i++)
        if (graphs[i].open && graphs[i].joined >> stream & 1)
            return i;
    return -1;
}

static bool any_open(bool known_only)
{
    for (int i = 0; i < GRAPHS; i++)
        if (graphs[i].open && !(known_only && graphs[i].how == UNKNOWN))
            return true;
    return false;
}

/* Handles for these streams must be asked for again. */
static void changed(unsigned joined)
{
    for (int user = 0; user < USERS; user++)
        for (int i = 0; i < LIBRARIES; i++)
            if (joined >> uses[user][i].stream & 1)
                uses[user][i].valid = false;
}

static void forget(int user)
{
    for (int i = 0; i < LIBRARIES; i++)
        uses[user][i].valid = false;
}

/* The oracle of ranges ------------------------------------------------------------------------- */

static struct range claims[1024];
static int claim_count;

static void claim(struct range range)
{
    for (int i = 0; i < claim_count; i++)
        CHECK(range.end <= claims[i].start || claims[i].end <= range.start);
    CHECK(claim_count < 1024);
    claims[claim_count++] = range;
}

static struct range range_of(const struct use *use)
{
    uintptr_t start = (uintptr_t)use->pointer;
    struct range range = {.start = start, .end = start + use->size};
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(use->pointer, &info));
    CHECK(info.base == use->pointer && info.usable_size >= use->size);
    CHECK(strcmp(tarn_tag_text(info.tag), "workspace") == 0);
    range.pool = info.pool;
    return range;
}

static bool is_of_graph(const struct graph *graph, uintptr_t start)
{
    for (int i = 0; i < graph->range_count; i++)
        if (graph->ranges[i].start == start)
            return true;
    return false;
}

static void check_claims(void)
{
    claim_count = 0;
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].start)
            claim((struct range){.start = (uintptr_t)blocks[i].start,
                                 .end = (uintptr_t)blocks[i].start + sizes[0]});
    for (int i = 0; i < GRAPHS; i++)
        for (int j = 0; j < graphs[i].range_count; j++) {
            const struct range *range = &graphs[i].ranges[j];
            tarn_block_info info = {.size = sizeof info};
            OK(tarn_pointer_info_get((void *)range->start, &info));
            claim(*range);
        }
    for (int user = 0; user < USERS; user++)
        for (int i = 0; i < LIBRARIES; i++) {
            const struct use *use = &uses[user][i];
            if (!use->valid)
                continue;
            struct range range = range_of(use);
            const struct graph *graph = use->capture >= 0 ? &graphs[use->capture] : NULL;
            CHECK(range.pool.second ==
                  (graph && graph->how == KNOWN_WITH_POOL ? pool_id.second : 0));
            CHECK((range.pool.first != 0) == (graph && graph->how == KNOWN_WITH_OWN_POOL));
            if (use->thing)
                CHECK(use->thing->workspace == use->pointer &&
                      use->thing->stream == native_of(streams[use->stream]));
            if (!graph || !is_of_graph(graph, range.start))
                claim(range);
        }
}

/* The oracle of contents ----------------------------------------------------------------------- */

static int slot_take(void)
{
    for (int slot = 1; slot < SLOTS; slot++)
        if (!slot_used[slot]) {
            slot_used[slot] = true;
            return slot;
        }
    return 0;
}

static void check_made(const struct made *made)
{
    for (int i = 0; i < 2 * PART; i++)
        CHECK(places[(size_t)made->slot * 2 * PART + (size_t)i] == made->value);
}

/* Writes to both ends of memory, is busy for a while, and copies what is there then. */
static struct made work_with(void *memory, size_t size, int stream)
{
    struct made made = {.slot = slot_take(), .value = (unsigned char)random_next(&seed)};
    void *native = native_of(streams[stream]);
    uintptr_t start = (uintptr_t)memory, last = start + size - PART,
              place = (uintptr_t)&places[(size_t)made.slot * 2 * PART];
    if (!made.slot)
        return made;
    OK(driver->set(0, start, made.value, PART, native));
    OK(driver->set(0, last, made.value, PART, native));
    OK(machine->work(0, native, memory, size, 10000 + below(50000)));
    OK(driver->copy(0, place, start, PART, native));
    OK(driver->copy(0, place + PART, last, PART, native));
    return made;
}

/* All that was queued has ended, and was right. */
static void settle(void)
{
    if (any_open(false))
        return;
    OK(tarn_device_synchronize(0));
    while (pending_count) {
        struct made *made = &pending[--pending_count];
        check_made(made);
        slot_used[made->slot] = false;
    }
}

static void call(struct use *use)
{
    struct graph *graph = use->capture >= 0 ? &graphs[use->capture] : NULL;
    if (graph && graph->made_count == 64)
        return;
    struct made made = work_with(use->pointer, use->size, use->stream);
    if (!made.slot)
        return;
    if (!graph) {
        pending[pending_count++] = made;
        return;
    }
    graph->made[graph->made_count++] = made;
    /* The graph of a capture that tarn does not know is not launched, so it has nothing when the
     * capture is over. */
    if (!is_of_graph(graph, (uintptr_t)use->pointer))
        graph->ranges[graph->range_count++] = range_of(use);
}

/* Operations ----------------------------------------------------------------------------------- */

static struct {
    int user, library, stream;
} asked;

static void ask(void)
{
    struct use *use = &uses[asked.user][asked.library];
    tarn_library library = libraries[asked.library];
    tarn_stream stream = streams[asked.stream];
    void *handle = NULL;
    tarn_status status;
    use->valid = false;
    if (asked.user >= ACTORS && use->lease.number)
        status = tarn_handle_lease_bind(&use->lease, stream);
    else if (asked.user >= ACTORS)
        status = tarn_handle_lease(library, stream, &use->lease);
    else if (asked.library == BY_CALL) {
        OK(tarn_stream_set(stream));
        status = tarn_workspace_get(library, TARN_STREAM_CURRENT, NULL, &use->pointer, &use->size);
        OK(tarn_stream_set(TARN_STREAM_LEGACY));
        if (!status && below(2)) /* the handle that goes with it, on the same stream */
            status = tarn_handle_get(library, stream, &handle);
    } else {
        status = tarn_handle_get(library, stream, &handle);
    }
    CHECK(!status || status == TARN_ERROR_CAPTURE || status == TARN_ERROR_OUT_OF_MEMORY);
    if (status) /* of a by-call library the workspace is the caller's still, and is not looked at
                   any more */
        return;
    if (asked.library != BY_CALL) {
        use->thing = asked.user >= ACTORS ? use->lease.handle : handle;
        use->pointer = use->thing->workspace;
        use->size = use->thing->size;
    }
    use->valid = true;
    use->stream = asked.stream;
    use->capture = capture_on(asked.stream);
}

/* Asks, and makes a call. */
static void ask_for(int user, int library, int stream)
{
    if (!libraries[library] || (user >= ACTORS && library == BY_CALL))
        return;
    asked.user = user;
    asked.library = library;
    asked.stream = stream;
    in_actor(user < ACTORS ? user : (int)below(ACTORS), ask);
    if (uses[user][library].valid)
        call(&uses[user][library]);
}

static void op_ask(void)
{
    int user = (int)below(USERS), library = (int)below(LIBRARIES), stream = (int)below(STREAMS);
    const struct graph *graph = &graphs[below(GRAPHS)];
    ask_for(user, library, graph->open && below(2) ? graph->stream : stream);
}

static void op_call(void)
{
    struct use *use = &uses[below(USERS)][below(LIBRARIES)];
    if (use->valid)
        call(use);
}

static void op_lease_return(void)
{
    struct use *use = &uses[ACTORS + below(LEASES)][below(BY_CALL)];
    if (use->lease.number)
        OK(tarn_handle_return(&use->lease));
    use->valid = false;
}

static void op_thread_ends(void)
{
    int actor = (int)below(ACTORS);
    actor_stop(&actors[actor]);
    forget(actor);
    scopes[actor] = 0;
    actor_start(&actors[actor]);
}

static void allocate(void)
{
    void *got = NULL;
    int stream = asked.stream;
    if (tarn_alloc_on(streams[stream], sizes[0], &got))
        return;
    blocks[asked.library].start = got;
    blocks[asked.library].stream = stream;
}

/* A block of the program's, written to all its life. */
static void op_block(void)
{
    int number = (int)below(BLOCKS);
    if (!blocks[number].start) {
        asked.stream = (int)below(STREAMS);
        asked.library = number;
        if (capture_on(asked.stream) < 0) /* else it would be the graph's */
            in_actor((int)below(ACTORS), allocate);
    }
    if (!blocks[number].start || capture_on(blocks[number].stream) >= 0)
        return;
    struct made made = work_with(blocks[number].start, sizes[0], blocks[number].stream);
    if (made.slot)
        pending[pending_count++] = made;
    if (below(2)) {
        OK(tarn_free(blocks[number].start));
        blocks[number].start = NULL;
    }
}

static void scope_of_thread(void)
{
    OK(scopes[asked.user] ? tarn_scope_end(scopes[asked.user])
                          : tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scopes[asked.user]));
}

static void op_scope(void)
{
    static const tarn_scope_kind kinds[] = {TARN_SCOPE_STREAM, TARN_SCOPE_ALWAYS};
    int number = (int)below(ACTORS + 2);
    tarn_scope before = scopes[number];
    asked.user = number;
    if (number < ACTORS)
        in_actor(number, scope_of_thread);
    else
        OK(before ? tarn_scope_end(before)
                  : tarn_scope_begin(pool, kinds[number - ACTORS], streams[1], &scopes[number]));
    scopes[number] = before ? 0 : scopes[number];
}

static void graph_forget(struct graph *graph)
{
    for (int i = 0; i < graph->made_count; i++)
        slot_used[graph->made[i].slot] = false;
    *graph = (struct graph){0};
}

static void graph_destroy(struct graph *graph)
{
    uint64_t id = graph->id;
    bool own = graph->how == KNOWN_WITH_OWN_POOL;
    OK(driver->graph_destroy(0, graph->graph));
    graph_forget(graph);
    if (!own)
        OK(workspaces_clear_capture(id, NULL));
}

/* Whatever the program can do without. No capture is open. */
static void drop_all(void)
{
    for (int i = 0; i < GRAPHS; i++)
        if (graphs[i].is_there)
            graph_destroy(&graphs[i]);
    for (int i = 0; i < BLOCKS; i++) {
        OK(tarn_free(blocks[i].start));
        blocks[i].start = NULL;
    }
    for (int user = ACTORS; user < USERS; user++)
        for (int i = 0; i < BY_CALL; i++)
            if (uses[user][i].lease.number)
                OK(tarn_handle_return(&uses[user][i].lease));
    for (int i = 0; i < ACTORS; i++) {
        actor_stop(&actors[i]);
        scopes[i] = 0;
        actor_start(&actors[i]);
    }
    memset(uses, 0, sizeof uses);
    OK(workspaces_clear_all(NULL));
    OK(tarn_device_trim(0, 0));
}

/* The program's pool has no memory meanwhile; handles work on. */
static void op_suspend(void)
{
    if (any_open(false))
        return;
    settle();
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_pool_suspend(pool, true));
    for (int i = 0; i < 3; i++) {
        bool is_captured = false;
        for (int j = 0; j < GRAPHS; j++)
            is_captured |= graphs[j].is_there && graphs[j].how == KNOWN_WITH_POOL;
        if (!is_captured) /* which blocks of a suspended pool cannot be asked about */
            check_claims();
        op_ask();
    }
    settle();
    if (tarn_pool_resume(pool) == TARN_OK)
        return;
    drop_all(); /* there was no room */
    OK(tarn_pool_resume(pool));
}

static void ended(struct graph *graph)
{
    changed(graph->joined);
    graph->open = false;
    graph->joined = 0;
}

/* A handle that somebody has asked for on a stream is asked for there again, now that the stream's
 * part in a capture has changed. */
static void ask_again(int user, int library, int stream)
{
    changed(1u << stream);
    ask_for(user, library, stream);
}

static void op_begin(void)
{
    struct graph *graph = &graphs[below(GRAPHS)];
    int stream = 1 + (int)below(STREAMS - 1); /* not the legacy one */
    tarn_capture_state state;
    int user = (int)below(ACTORS), library = (int)below(BY_CALL);
    if (graph->open || graph->is_there || capture_on(stream) >= 0)
        return;
    *graph = (struct graph){.how = (enum how)below(HOWS), .stream = stream};
    void *native = native_of(streams[stream]);
    switch (graph->how) {
    case KNOWN:
        OK(tarn_capture_begin(streams[stream], TARN_CAPTURE_RELAXED));
        break;
    case KNOWN_WITH_OWN_POOL:
    case KNOWN_WITH_POOL:
        OK(tarn_pool_capture_begin(graph->how == KNOWN_WITH_POOL ? pool : NULL, streams[stream],
                                   TARN_CAPTURE_RELAXED));
        break;
    case ANNOUNCED:
        OK(tarn_capture_announce(streams[stream]));
        ask_for(user, library, stream); /* it does not capture yet */
        OK(driver->capture_begin(0, native, DRIVER_CAPTURE_RELAXED));
        break;
    default:
        OK(driver->capture_begin(0, native, DRIVER_CAPTURE_RELAXED));
        break;
    }
    graph->open = true;
    graph->joined = 1u << stream;
    changed(graph->joined);
    OK(tarn_capture_state_get(streams[stream], &state, &graph->id, NULL));
    CHECK(state == TARN_CAPTURE_ACTIVE);
    ask_again(user, library, stream);
}

static void wait_for(int stream, int other)
{
    tarn_event *event = NULL;
    OK(tarn_event_create(0, &event));
    OK(tarn_event_record(event, streams[other]));
    OK(tarn_stream_wait(streams[stream], event));
    OK(tarn_event_destroy(event));
}

static void op_join(void)
{
    struct graph *graph = &graphs[below(GRAPHS)];
    int stream = 1 + (int)below(STREAMS - 1);
    int user = (int)below(ACTORS), library = (int)below(BY_CALL);
    if (!graph->open || capture_on(stream) >= 0)
        return;
    if (below(2)) /* after the capture began, and before the stream joins */
        ask_for(user, library, stream);
    wait_for(stream, graph->stream);
    graph->joined |= 1u << stream;
    ask_again(user, library, stream);
}

static void op_end(void)
{
    struct graph *graph = &graphs[below(GRAPHS)];
    if (!graph->open)
        return;
    bool abort = below(3) == 0 && graph->how < ANNOUNCED;
    unsigned joined = graph->joined;
    for (int stream = 1; stream < STREAMS; stream++)
        if (stream != graph->stream && graph->joined >> stream & 1)
            wait_for(graph->stream, stream);
    tarn_stream stream = streams[graph->stream];
    if (abort) {
        OK(tarn_capture_abort(stream));
        ended(graph);
        graph_forget(graph);
        return;
    }
    if (graph->how >= ANNOUNCED)
        OK(driver->capture_end(0, native_of(stream), &graph->graph));
    if (graph->how < ANNOUNCED)
        OK(tarn_capture_end(stream, &graph->graph));
    else if (graph->how == ANNOUNCED)
        OK(tarn_capture_end_announced(stream, graph->graph));
    ended(graph);
    graph->is_there = true;
    if (graph->how == UNKNOWN) /* if it was seen beside a known one, it has workspaces */
        graph_destroy(graph);
    for (int i = 1; i < STREAMS; i++)
        if (joined >> i & 1)
            ask_for((int)below(ACTORS), (int)below(BY_CALL), i);
}

/* All graphs at once, each on a stream of its own. */
static void op_launch(void)
{
    if (any_open(false))
        return;
    settle();
    for (int i = 0; i < GRAPHS; i++)
        if (graphs[i].is_there)
            OK(driver->graph_launch(0, graphs[i].graph, native_of(streams[i + 1])));
    for (int i = 0; i < 4; i++)
        op_call();
    settle();
    for (int i = 0; i < GRAPHS; i++)
        for (int j = 0; graphs[i].is_there && j < graphs[i].made_count; j++)
            check_made(&graphs[i].made[j]);
}

static void op_destroy(void)
{
    struct graph *graph = &graphs[below(GRAPHS)];
    if (graph->is_there && !any_open(false)) {
        settle();
        graph_destroy(graph);
    }
}

static void clear_all(void)
{
    OK(workspaces_clear_all(NULL));
    forget(asked.user);
}

static void clear_stream(void)
{
    tarn_status status = workspaces_clear_stream(streams[asked.stream], NULL);
    CHECK(status == (capture_on(asked.stream) >= 0 ? TARN_ERROR_CAPTURE : TARN_OK));
    if (!status)
        forget(asked.user);
}

static void clear_capture(void)
{
    const struct graph *graph = &graphs[asked.library];
    bool has = graph->range_count > 0 && graph->how != UNKNOWN;
    if (has || !graph->open) /* by any of its streams that has a workspace of it */
        CHECK(workspaces_clear_capture(graph->id ? graph->id : 12345, NULL) ==
              (graph->open ? TARN_ERROR_CAPTURE : TARN_OK));
}

static void op_clear(void)
{
    asked.user = (int)below(ACTORS);
    asked.stream = (int)below(STREAMS);
    asked.library = (int)below(GRAPHS);
    bool recorded = false;
    for (int i = 0; i < GRAPHS; i++)
        recorded |= graphs[i].is_there;
    switch (below(4)) {
    case 0:
        in_actor(asked.user, clear_all);
        break;
    case 1:
        if (!recorded)
            in_actor(asked.user, clear_stream);
        break;
    case 2:
        if (!graphs[asked.library].is_there)
            in_actor(asked.user, clear_capture);
        break;
    default:
        if (workspaces_clear_pool(pool, NULL) != TARN_ERROR_CAPTURE)
            for (int i = 0; i < GRAPHS; i++)
                CHECK(!graphs[i].is_there || graphs[i].how != KNOWN_WITH_POOL);
        break;
    }
}

/* More than there is beside what somebody uses, or nearly so. */
static void op_shortage(void)
{
    void *block = NULL;
    tarn_status status = tarn_alloc_on(streams[0], (96 + below(4) * 8) * MIB, &block);
    CHECK(!status || status == TARN_ERROR_OUT_OF_MEMORY);
    struct made made = {0};
    if (!status)
        made = work_with(block, 96 * MIB, 0);
    if (made.slot)
        pending[pending_count++] = made;
    OK(tarn_free(block));
    if (below(2))
        (void)tarn_device_trim(0, 0); /* refused while a capture is known */
}

/* More streams than a thread has handles for, one after the other; what was used last is then
 * wanted elsewhere. */
static void op_sweep(void)
{
    int user = (int)below(ACTORS), first = (int)below(STREAMS);
    for (int i = 0; i < TARN_HANDLE_STREAMS + 3; i++)
        ask_for(user, BY_STREAM, (first + i) % STREAMS);
    if (below(2)) {
        asked.user = user;
        in_actor(user, clear_all);
        op_shortage();
    }
}

static void op_trim(void)
{
    if (!any_open(false) && libraries[PLAIN])
        OK(tarn_handle_trim(libraries[below(BY_CALL)], 0, NULL));
}

/* The runs ------------------------------------------------------------------------------------- */

static void begin(void)
{
    void *memory = NULL;
    tarn_library_row rows[] = {
        {.name = "plain", .set_stream = set_stream},
        {.name = "by_stream", .set_stream = set_stream_only, .flags = TARN_LIBRARY_BY_STREAM},
    };
    const char *name = getenv("TARN_DRIVER");
    for (int i = 0; i < 2; i++) {
        rows[i].size = sizeof rows[i];
        rows[i].create = thing_create;
        rows[i].destroy = thing_destroy;
        rows[i].set_workspace = set_workspace;
        OK(tarn_library_register(&rows[i], &libraries[i]));
    }
    if (name && strcmp(name, "cuda") == 0) /* hipBLASLt ends the process where a create finds no
                                              memory */
        libraries[BY_CALL] = TARN_LIBRARY_CUBLASLT;
    for (int i = 0; i < LIBRARIES; i++)
        if (libraries[i])
            OK(tarn_workspace_size_set(libraries[i], (int64_t)sizes[i]));
    OK(tarn_alloc_on(TARN_STREAM_LEGACY, (size_t)SLOTS * 2 * PART, &memory));
    places = memory;
    OK(tarn_stream_adopt(0, NULL, &streams[0]));
    for (int i = 1; i < STREAMS; i++)
        streams[i] = lease(0);
}

static void finish(void)
{
    for (int number = 0; number < ACTORS + 2; number++) {
        asked.user = number;
        if (number < ACTORS && scopes[number])
            in_actor(number, scope_of_thread);
        else if (scopes[number])
            OK(tarn_scope_end(scopes[number]));
        scopes[number] = 0;
    }
    for (int tries = 0; tries < 1000 && any_open(false); tries++)
        op_end();
    settle();
    drop_all();
    for (int i = 0; i < ACTORS; i++)
        actor_stop(&actors[i]);
    OK(workspaces_clear_pool(pool, NULL));
    OK(tarn_pool_release(pool));
    OK(tarn_device_trim(0, 0));
    tarn_workspace_stats stats = {.size = sizeof stats};
    OK(tarn_workspace_stats_get(0, &stats));
    CHECK(stats.captured_count <= stats.count);
    /* Of captures that were announced, or seen beside a known one */
    for (int i = 0; i < STREAMS && stats.count; i++) {
        OK(workspaces_clear_stream(streams[i], NULL));
        OK(tarn_workspace_stats_get(0, &stats));
    }
    CHECK(stats.count == 0 && stats.bytes == 0 && stats.captured_bytes == 0 &&
          stats.deferred_bytes == 0);
    for (int i = 0; i < LIBRARIES; i++)
        if (libraries[i])
            OK(tarn_handle_trim(libraries[i], 0, NULL));
}

static void run(uint64_t number, int operations)
{
    static const struct {
        void (*run)(void);
        unsigned weight;
    } list[] = {{op_ask, 40},        {op_call, 20},   {op_block, 16}, {op_scope, 4},
                {op_suspend, 1},     {op_begin, 8},   {op_join, 8},   {op_end, 5},
                {op_launch, 3},      {op_destroy, 3}, {op_clear, 6},  {op_shortage, 2},
                {op_trim, 1},        {op_sweep, 3},   {settle, 3},    {op_thread_ends, 2},
                {op_lease_return, 2}};
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        sum += list[i].weight;
    seed = number * 0x9e3779b97f4a7c15u + 1;
    OK(tarn_pool_create(NULL, &pool));
    pool_id = pool_info_of(pool).id;
    for (int i = 0; i < ACTORS; i++)
        actor_start(&actors[i]);
    for (int i = 0; i < 2; i++)
        OK(tarn_handle_prewarm(libraries[i], 0, TARN_STREAM_NONE, 24));
    for (int i = 0; i < operations; i++) {
        unsigned at = below(sum);
        size_t chosen = 0;
        while (at >= list[chosen].weight)
            at -= list[chosen++].weight;
        list[chosen].run();
        check_claims();
        if (pending_count > SLOTS / 2)
            settle();
    }
    finish();
}

static void random_runs(void **state)
{
    (void)state;
    const char *seeds = getenv("TARN_SEEDS");
    uint64_t count = seeds ? strtoull(seeds, NULL, 10) : SLOW_BUILD ? 4 : 12;
    begin();
    for (uint64_t number = 1; number <= count; number++)
        run(number, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_runs)};
    setenv("TARN_HIP_VMM", "1", 0);
    host_start_with(1, 128 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
