/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that are truly at once, on objects of their own and on shared ones: blocks that go from
 * one to the other, shared pools, captures of each kind, handles, trims, suspends, sleeps of the
 * process, shares, compactions, caching, a kept pool and a reader of it. What is checked: no two
 * live blocks share a byte; each block holds what was written to it last, in the order of the
 * streams; a known capture goes on whatever the others do; each status is one that the header
 * names; nothing is left. There is a kept pool if TARN_PROGRAM names its owner.
 *
 *   mixed.threads [--seed N] [--steps N] [--seconds N] [--no-shorten]
 *
 * A run has 2 to 4 threads, each with a list of operations that the seed gives; it runs in a child
 * process. How the threads meet is not the seed's: one that fails is repeated with fewer
 * operations, several times each, and the fewest that still fail are printed. TARN_SEED and
 * TARN_MODEL_STEPS stand for the options; without either the seeds are 1 to 6, or to
 * TARN_MIXED_SEEDS. */
#include "mixed/threads/threads.h"
#include "support/owner.h"

#include <inttypes.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tarn/snapshot.h>
#include <time.h>
#include <unistd.h>

struct step {
    int thread, operation;
    uint64_t word;
};

struct worker workers[THREADS];
_Thread_local struct worker *worker_here;
pthread_rwlock_t queueing = PTHREAD_RWLOCK_INITIALIZER;

int thread_count;
static const struct step *steps_now;
static int step_count;
static tarn_pool *pools[POOLS];
tarn_library library;

static uint32_t progress[THREADS * STREAMS * 16];
static unsigned char places[THREADS][SLOTS][PART];
unsigned char patterns[256][PART];

/* ---- Faults ---- */

static struct told {
    bool over;
    char what[128], text[512];
    uint64_t counts[COUNTED];
} * told;

void fault(const char *what, const char *format, ...)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    va_list arguments;
    pthread_mutex_lock(&once); /* the first fault ends the process */
    va_start(arguments, format);
    vsnprintf(told->text, sizeof told->text, format, arguments);
    va_end(arguments);
    snprintf(told->what, sizeof told->what, "%s", what);
    _exit(3);
}

void count(enum counted what)
{
    __atomic_fetch_add(&told->counts[what], 1, __ATOMIC_RELAXED);
}

bool well(const char *name, tarn_status status, uint64_t reasons)
{
    uint64_t promised = 0;
    if (status == TARN_OK)
        return true;
    count(REFUSED);
    SO(promised_statuses(name, &promised) && promised & BIT(status),
       "a status that the header does not name", "%s gave %s: %s", name, tarn_status_name(status),
       tarn_last_error());
    SO(reasons & BIT(status), "a call failed without a reason", "%s gave %s: %s", name,
       tarn_status_name(status), tarn_last_error());
    return false;
}
static uint64_t word(uint64_t *random)
{
    uint64_t z = *random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

unsigned below(struct worker *worker, unsigned most)
{
    return most ? (unsigned)((word(&worker->random) >> 20) % most) : 0;
}

/* ---- Owners ---- */

static pthread_mutex_t owners_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uintptr_t start, end; /* 0: owned by nobody */
} owners[LIVE];

static void own(const void *start, size_t size)
{
    uintptr_t from = (uintptr_t)start, to = from + size;
    int at = -1;
    pthread_mutex_lock(&owners_lock);
    for (int i = 0; i < LIVE; i++) {
        if (owners[i].end == 0)
            at = i;
        else
            SO(to <= owners[i].start || owners[i].end <= from, "two owners share a byte",
               "%#" PRIxPTR " to %#" PRIxPTR " was handed out beside %#" PRIxPTR " to %#" PRIxPTR,
               from, to, owners[i].start, owners[i].end);
    }
    SO(at >= 0, "the test's own limit", "too many blocks");
    owners[at].start = from;
    owners[at].end = to;
    pthread_mutex_unlock(&owners_lock);
}

/* Call it before the block is freed: from then on anybody may get it. */
static void disown(const void *start)
{
    pthread_mutex_lock(&owners_lock);
    for (int i = 0; i < LIVE; i++)
        if (owners[i].end && owners[i].start == (uintptr_t)start) {
            owners[i].start = owners[i].end = 0;
            pthread_mutex_unlock(&owners_lock);
            return;
        }
    fault("the test's own mistake", "%p is nobody's", start);
}

/* ---- Work ---- */

static int lane_of(const struct worker *worker, int flow)
{
    return worker->number * STREAMS + flow;
}

/* Runs on the stream after the earlier work there. */
static void count_progress(void *place)
{
    (void)__atomic_fetch_add((uint32_t *)place, 1, __ATOMIC_RELEASE);
}

void queue_end(struct worker *worker, int index)
{
    struct flow *flow = &worker->flows[index];
    flow->queued++;
    MINE(driver->call(0, flow->native, count_progress, &progress[lane_of(worker, index) * 16]));
}

bool has_ended(const struct worker *worker, int index, uint32_t number)
{
    return __atomic_load_n(&progress[lane_of(worker, index) * 16], __ATOMIC_ACQUIRE) >= number;
}

static void look(struct worker *worker)
{
    for (int i = 0; i < SLOTS; i++) {
        struct check *check = &worker->checks[i];
        if (!check->waits || !has_ended(worker, check->flow, check->number))
            continue;
        const unsigned char *place = places[worker->number][i];
        for (int k = 0; k < PART; k++)
            SO(place[k] == check->value, "a block holds what another has written",
               "%#x in place of %#x", place[k], check->value);
        check->waits = false;
        worker->pending--;
        count(CHECKS);
    }
}

static void settle(struct worker *worker)
{
    for (int i = 0; i < STREAMS; i++)
        (void)WELL(BARRED, tarn_stream_synchronize, worker->flows[i].value);
    machine->settle();
    look(worker);
}

void check_later(struct worker *worker, int index, const unsigned char *at, size_t size, int value)
{
    for (int i = 0; i < SLOTS; i++) {
        if (worker->checks[i].waits)
            continue;
        memset(places[worker->number][i] + size, value, PART - size);
        MINE(driver->copy(0, (uintptr_t)places[worker->number][i], (uintptr_t)at, size,
                          worker->flows[index].native));
        worker->checks[i] =
            (struct check){index, worker->flows[index].queued + 1, (unsigned char)value, true};
        worker->pending++;
        return;
    }
}

void use(struct worker *worker, int index, struct block *block)
{
    size_t part = block->size < PART ? block->size : PART;
    unsigned char *ends[2] = {block->start, block->start + block->size - part},
                  value = (unsigned char)below(worker, 256);
    struct flow *flow = &worker->flows[index];
    pthread_rwlock_rdlock(&queueing);
    for (int i = 0; i < 2 && block->known && worker->pending < SLOTS / 2; i++)
        check_later(worker, index, ends[i], part, block->value);
    for (int i = 0; i < 2; i++)
        MINE(driver->copy(0, (uintptr_t)ends[i], (uintptr_t)patterns[value], part, flow->native));
    MINE(machine->work(0, flow->native, block->start, block->size,
                       below(worker, 4) ? 500 + below(worker, 20000) : 0));
    for (int i = 0; i < 2 && worker->pending < SLOTS / 2; i++)
        check_later(worker, index, ends[i], part, value);
    queue_end(worker, index);
    pthread_rwlock_unlock(&queueing);
    block->value = value;
    block->known = true;
}

/* ---- Operations ---- */

struct block *some_block(struct worker *worker, bool live)
{
    unsigned first = below(worker, OWN);
    for (unsigned i = 0; i < OWN; i++)
        if (worker->blocks[(first + i) % OWN].live == live)
            return &worker->blocks[(first + i) % OWN];
    return NULL;
}

size_t some_size(struct worker *worker)
{
    static const unsigned most[] = {512, 40000, 40000, 1u << 20, 3u << 20, 8u << 20};
    return 1 + below(worker, most[below(worker, 6)]);
}

void taken(struct block *block, void *start, size_t size, int flow)
{
    *block = (struct block){.live = true, .start = start, .size = size, .flow = flow};
    own(start, size);
    count(ALLOCATIONS);
}

static void op_allocate(struct worker *worker)
{
    struct block *block = some_block(worker, false);
    int flow = (int)below(worker, STREAMS);
    size_t size = some_size(worker);
    void *got = NULL;
    if (!block)
        return;
    if (below(worker, 3) ? WELL(SHORT, tarn_alloc_on, worker->flows[flow].value, size, &got)
                         : WELL(SHORT, tarn_pool_alloc, pools[below(worker, POOLS)],
                                worker->flows[flow].value, size, &got)) {
        taken(block, got, size, flow);
        use(worker, flow, block);
    }
}

void give_back(struct worker *worker, struct block *block)
{
    block->live = false;
    disown(block->start);
    (void)worker;
    (void)WELL(0, tarn_free, block->start);
}

static void op_use(struct worker *worker)
{
    struct block *block = some_block(worker, true);
    if (block)
        use(worker, block->flow, block);
}

static void op_free(struct worker *worker)
{
    struct block *block = some_block(worker, true);
    if (block)
        give_back(worker, block);
}

/* One mailbox per thread: a block, and an event after its work. */
static struct mail {
    pthread_mutex_t lock;
    struct block block;
    tarn_event *event;
} mails[THREADS];

static void op_give(struct worker *worker)
{
    struct block *block = some_block(worker, true);
    struct mail *mail = &mails[below(worker, (unsigned)thread_count)];
    if (!block)
        return;
    pthread_mutex_lock(&mail->lock);
    pthread_rwlock_rdlock(&queueing);
    bool recorded = !mail->block.live &&
                    WELL(0, tarn_event_record, mail->event, worker->flows[block->flow].value);
    pthread_rwlock_unlock(&queueing);
    if (recorded) {
        mail->block = *block;
        block->live = false;
        count(HANDED);
    }
    pthread_mutex_unlock(&mail->lock);
}

/* Takes another thread's block, uses it on a stream of this thread as the headers demand, and frees
 * it here. */
static void op_take(struct worker *worker)
{
    struct mail *mail = &mails[worker->number];
    int flow = (int)below(worker, STREAMS);
    struct block block = {.live = false};
    pthread_mutex_lock(&mail->lock);
    pthread_rwlock_rdlock(&queueing);
    bool waits =
        mail->block.live && WELL(0, tarn_stream_wait, worker->flows[flow].value, mail->event);
    pthread_rwlock_unlock(&queueing);
    if (waits) {
        block = mail->block;
        mail->block.live = false;
    }
    pthread_mutex_unlock(&mail->lock);
    if (!block.live)
        return;
    bool recorded = below(worker, 2);
    if (recorded)
        (void)WELL(0, tarn_record_stream, block.start, worker->flows[flow].value);
    use(worker, flow, &block);
    disown(block.start);
    if (recorded)
        (void)WELL(0, tarn_free, block.start);
    else
        (void)WELL(0, tarn_free_on, block.start, worker->flows[flow].value);
}

static void is_active(struct worker *worker, int flow)
{
    struct driver_capture capture = {0};
    MINE(driver->capture_status(0, worker->flows[flow].native, &capture));
    SO(capture.state == DRIVER_CAPTURE_ACTIVE, "a known capture was spoilt", "of thread %d",
       worker->number);
}

/* Allocates inside a capture, writes a pattern to each block, and frees half of them. */
static void inside(struct worker *worker, int flow, bool in_pool)
{
    struct block blocks[4] = {{.live = false}};
    for (int i = 0; i < 4; i++) {
        size_t size = some_size(worker) / 4 + 1;
        void *got = NULL;
        is_active(worker, flow);
        if (!WELL(SHORT, tarn_alloc_on, worker->flows[flow].value, size, &got))
            continue;
        taken(&blocks[i], got, size, flow);
        MINE(driver->copy(0, (uintptr_t)got, (uintptr_t)patterns[i], size < PART ? size : PART,
                          worker->flows[flow].native));
        if (in_pool && below(worker, 2))
            give_back(worker, &blocks[i]);
    }
    is_active(worker, flow);
    for (int i = 0; i < 4; i++)
        if (blocks[i].live)
            give_back(worker, &blocks[i]);
}

/* Makes a capture of each kind. If it has a pool, whose memory is the graph's alone, launches the
 * graph once. */
static void op_capture(struct worker *worker)
{
    int flow = (int)below(worker, STREAMS);
    tarn_stream stream = worker->flows[flow].value;
    void *native = worker->flows[flow].native, *graph = NULL;
    bool in_pool = below(worker, 2), announced = below(worker, 2);
    tarn_capture_mode mode = (tarn_capture_mode)below(worker, 3);
    uint64_t reasons = BIT(TARN_ERROR_BUSY);
    if (announced) {
        if (!(in_pool ? WELL(reasons, tarn_pool_capture_announce, NULL, stream)
                      : WELL(reasons, tarn_capture_announce, stream)))
            return;
        MINE(driver->capture_begin(0, native, DRIVER_CAPTURE_RELAXED));
    } else if (!(in_pool ? WELL(reasons, tarn_pool_capture_begin, NULL, stream, mode)
                         : WELL(reasons, tarn_capture_begin, stream, mode))) {
        return;
    }
    worker->captures = true;
    inside(worker, flow, in_pool);
    is_active(worker, flow);
    if (announced) {
        MINE(driver->capture_end(0, native, &graph));
        SO(WELL(0, tarn_capture_end_announced, stream, graph), "a capture does not end",
           "of thread %d", worker->number);
    } else {
        SO(WELL(0, tarn_capture_end, stream, &graph), "a capture does not end", "of thread %d",
           worker->number);
    }
    worker->captures = false;
    if (in_pool && below(worker, 2)) {
        pthread_rwlock_rdlock(&queueing);
        MINE(driver->graph_launch(0, graph, native));
        queue_end(worker, flow);
        pthread_rwlock_unlock(&queueing);
    }
    MINE(driver->graph_destroy(0, graph));
    count(CAPTURES);
}

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

static int thing_set_stream(void *handle, void *stream)
{
    *(struct thing *)handle = (struct thing){.stream = stream};
    return 0;
}

static int thing_set_workspace(void *handle, void *pointer, size_t size)
{
    ((struct thing *)handle)->workspace = pointer;
    ((struct thing *)handle)->size = size;
    return 0;
}

static void op_handle(struct worker *worker)
{
    int flow = (int)below(worker, STREAMS);
    void *handle = NULL;
    if (!WELL(SHORT | BARRED, tarn_handle_get, library, worker->flows[flow].value, &handle))
        return;
    const struct thing *thing = handle;
    SO(thing->stream == worker->flows[flow].native, "a handle is bound to another stream", "%p",
       thing->stream);
    struct block block = {
        .live = true, .start = thing->workspace, .size = thing->size, .flow = flow};
    if (block.start)
        use(worker, flow, &block);
}

static void op_trim(struct worker *worker)
{
    if (below(worker, 2))
        (void)WELL(BARRED, tarn_device_trim, 0, 0);
    else
        (void)WELL(BARRED, tarn_pool_trim, pools[below(worker, POOLS)], 0);
}

/* Suspends the thread's own pool for a while. */
static void op_suspend(struct worker *worker)
{
    int flow = (int)below(worker, STREAMS);
    const tarn_pool_options options = {.size = sizeof options, .use_on_oom = below(worker, 2)};
    tarn_pool *pool = NULL;
    void *got = NULL;
    struct block block;
    size_t size = some_size(worker);
    if (!WELL(0, tarn_pool_create, &options, &pool))
        return;
    if (WELL(SHORT, tarn_pool_alloc, pool, worker->flows[flow].value, size, &got)) {
        taken(&block, got, size, flow);
        use(worker, flow, &block);
        if (WELL(BARRED, tarn_pool_suspend, pool, true)) {
            tarn_status status = TARN_OK;
            for (int i = 0; i < 100; i++)
                if ((status = tarn_pool_resume(pool)) == TARN_OK ||
                    (status != TARN_ERROR_CAPTURE && i > 3))
                    break;
            if (well("tarn_pool_resume", status, SHORT | BARRED))
                use(worker, flow, &block);
        }
        give_back(worker, &block);
    }
    (void)WELL(0, tarn_pool_release, pool);
}

static void op_scope(struct worker *worker)
{
    tarn_scope scope = 0;
    if (!WELL(0, tarn_scope_begin, pools[below(worker, POOLS)], TARN_SCOPE_THREAD, 0, &scope))
        return;
    op_allocate(worker);
    (void)WELL(0, tarn_scope_end, scope);
}

static void op_renew(struct worker *worker)
{
    int index = (int)below(worker, STREAMS);
    struct flow *flow = &worker->flows[index];
    settle(worker);
    for (int i = 0; i < OWN; i++)
        if (worker->blocks[i].live && worker->blocks[i].flow == index)
            give_back(worker, &worker->blocks[i]);
    for (int i = 0; i < KEPT; i++)
        if (worker->kept[i].live && worker->kept[i].flow == index)
            give_back(worker, &worker->kept[i]);
    seals_leave(worker, index);
    for (int i = 0; i < SLOTS; i++)
        if (worker->checks[i].waits && worker->checks[i].flow == index)
            return; /* the wait was refused */
    imports_close(worker);
    for (int i = 0; i < IMPORTS; i++)
        if (worker->imports[i].pointer && worker->imports[i].flow == index)
            return;
    if (!WELL(0, tarn_stream_return, flow->value) ||
        !WELL(0, tarn_stream_lease, 0, 0, &flow->value))
        fault("the test's own mistake", "no stream");
    MINE(tarn_stream_native_get(flow->value, &flow->native));
}

static void count_segment(const tarn_memory_segment *segment, void *user)
{
    *(size_t *)user += segment->part_count;
}

static void op_report(struct worker *worker)
{
    size_t parts = 0;
    tarn_stats stats = {.size = sizeof stats};
    (void)worker;
    (void)WELL(BIT(TARN_ERROR_OUT_OF_HOST_MEMORY), tarn_memory_list, count_segment, &parts);
    (void)WELL(0, tarn_device_stats_get, 0, &stats);
    SO(stats.reserved_bytes[0].current >= 0, "a counter is negative", "%" PRId64,
       stats.reserved_bytes[0].current);
}

static void op_advance(struct worker *worker)
{
    uint64_t now = 0;
    MINE(machine->time(&now));
    MINE(machine->advance(now + below(worker, 60000)));
}

static const struct operation {
    const char *name;
    unsigned weight;
    void (*run)(struct worker *worker);
} operations[] = {
    {"allocate", 30, op_allocate}, {"use", 25, op_use},        {"free", 20, op_free},
    {"give", 8, op_give},          {"take", 10, op_take},      {"capture", 5, op_capture},
    {"handle", 6, op_handle},      {"trim", 2, op_trim},       {"suspend", 2, op_suspend},
    {"scope", 3, op_scope},        {"renew", 1, op_renew},     {"report", 1, op_report},
    {"advance", 8, op_advance},    {"sleep", 4, op_sleep},     {"keep", 5, op_keep},
    {"guest", 3, op_guest},        {"share", 4, op_share},     {"common", 4, op_common},
    {"compact", 2, op_compact},    {"caching", 2, op_caching}, {"sealed", 24, op_sealed}};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* ---- A run, in a child ---- */

static void *work(void *argument)
{
    struct worker *worker = worker_here = argument;
    for (int i = 0; i < step_count; i++) {
        if (steps_now[i].thread % thread_count != worker->number)
            continue;
        worker->random = steps_now[i].word;
        operations[steps_now[i].operation].run(worker);
        look(worker);
        if (worker->pending > SLOTS / 3)
            settle(worker);
    }
    for (int i = 0; i < OWN; i++)
        if (worker->blocks[i].live)
            give_back(worker, &worker->blocks[i]);
    return NULL;
}

static bool has_owner; /* of kept pools */

static void begin(uint64_t seed)
{
    static const size_t memories[] = {64, 96, 256};
    const char *name = getenv("TARN_DRIVER");
    const tarn_library_row row = {.size = sizeof row,
                                  .name = "threads",
                                  .create = thing_create,
                                  .destroy = thing_destroy,
                                  .set_stream = thing_set_stream,
                                  .set_workspace = thing_set_workspace};
    uint64_t random = seed;
    for (int i = 0; i < 256; i++)
        memset(patterns[i], i, PART);
    thread_count = 2 + (int)(word(&random) % 3);
    /* Makes records slow, so that what happens between a query and a record shows. */
    if (name && strcmp(name, "cuda") == 0 && word(&random) % 2)
        (void)setenv("TARN_SIM_SLOW", "cuEventRecord:1", 0);
    if (name && strcmp(name, "hip") == 0 && word(&random) % 2)
        (void)setenv("TARN_SIM_SLOW", "hipEventRecord:1", 0);
    size_t memory = memories[word(&random) % 3] * MIB;
    seals_make(has_owner, seed % 2, memory);
    host_start_with(1, memory);
    moves_begin(word(&random));
    MINE(tarn_library_register(&row, &library));
    MINE(tarn_workspace_size_set(library, 300000));
    for (int i = 0; i < POOLS; i++)
        MINE(tarn_pool_create(NULL, &pools[i]));
    for (int i = 0; i < thread_count; i++) {
        workers[i].number = i;
        pthread_mutex_init(&mails[i].lock, NULL);
        MINE(tarn_event_create(0, &mails[i].event));
        moves_begin_of(&workers[i]);
        for (int k = 0; k < STREAMS; k++) {
            MINE(tarn_stream_lease(0, 0, &workers[i].flows[k].value));
            MINE(tarn_stream_native_get(workers[i].flows[k].value, &workers[i].flows[k].native));
        }
    }
    seals_begin(has_owner);
}

static void end(void)
{
    MINE(tarn_device_synchronize(0));
    machine->settle();
    seals_end();
    for (int i = 0; i < thread_count; i++) {
        look(&workers[i]);
        imports_close(&workers[i]);
        if (mails[i].block.live)
            give_back(&workers[i], &mails[i].block);
        MINE(tarn_event_destroy(mails[i].event));
    }
    for (int i = 0; i < POOLS; i++)
        MINE(tarn_pool_release(pools[i]));
    moves_end();
    MINE(tarn_device_synchronize(0));
    machine->settle();
    for (int i = 0; i < thread_count; i++) {
        look(&workers[i]);
        for (int k = 0; k < STREAMS; k++)
            MINE(tarn_stream_return(workers[i].flows[k].value));
    }
    MINE(tarn_workspace_clear(NULL, NULL));
    MINE(tarn_handle_trim(library, 0, NULL));
    MINE(tarn_device_trim(0, 0));
    tarn_host_ledger ledger = {.size = sizeof ledger};
    tarn_stats stats = {.size = sizeof stats};
    MINE(machine->ledger_get(0, &ledger));
    MINE(tarn_device_stats_get(0, &stats));
    SO(ledger.created == 0 && ledger.mapped == 0 && stats.reserved_bytes[0].current == 0 &&
           stats.active_bytes[0].current == 0,
       "memory is left", "%" PRIu64 " bytes created, %" PRId64 " active", ledger.created,
       stats.active_bytes[0].current);
}

_Noreturn static void run(uint64_t seed)
{
    begin(seed);
    for (int i = 0; i < thread_count; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            fault("the test's own limit", "no thread");
    for (int i = 0; i < thread_count; i++)
        pthread_join(workers[i].thread, NULL);
    end();
    told->over = true;
    exit(0); /* a finding of the sanitizers changes this status */
}

static bool run_in_child(uint64_t seed, const struct step *steps, int count)
{
    int status = 0;
    memset(told, 0, sizeof *told);
    has_owner = owner_begin("threads", seed % 2);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        steps_now = steps;
        step_count = count;
        run(seed);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(2);
    owner_end();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && told->over)
        return true;
    if (!told->what[0])
        snprintf(told->what, sizeof told->what,
                 WIFSIGNALED(status) ? "signal %d" : "exit status %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}

/* True if one of several runs fails in the same way. */
static bool still_fails(uint64_t seed, const struct step *steps, int count, const char *what)
{
    for (int i = 0; i < 6; i++)
        if (!run_in_child(seed, steps, count) && strcmp(told->what, what) == 0)
            return true;
    return false;
}

static int shorten(uint64_t seed, struct step *steps, int count, const char *what)
{
    struct step *less = malloc((size_t)count * sizeof *less);
    time_t until = time(NULL) + 60;
    for (int part = count / 2; part > 0; part /= 2)
        for (int at = 0; at < count && time(NULL) < until;) {
            int without = count - at < part ? count - at : part;
            memcpy(less, steps, (size_t)at * sizeof *steps);
            memcpy(less + at, steps + at + without, (size_t)(count - at - without) * sizeof *steps);
            if (still_fails(seed, less, count - without, what)) {
                count -= without;
                memcpy(steps, less, (size_t)count * sizeof *steps);
            } else {
                at += part;
            }
        }
    free(less);
    return count;
}

static bool shortens = true;

static bool try(uint64_t seed, struct step *steps, int count)
{
    static const uint64_t golden = 0x2545f4914f6cdd1du;
    uint64_t random = seed * golden;
    unsigned weights = 0;
    struct told first;
    for (int i = 0; i < OPERATIONS; i++)
        weights += operations[i].weight;
    for (int i = 0; i < count; i++) {
        unsigned at = (unsigned)(word(&random) % weights);
        int chosen = 0;
        while (at >= operations[chosen].weight)
            at -= operations[chosen++].weight;
        steps[i] = (struct step){(int)(word(&random) % 12), chosen, word(&random)};
    }
    if (run_in_child(seed, steps, count)) {
        printf("seed %" PRIu64 ": %d steps, %" PRIu64 " allocations, %" PRIu64 " contents, %" PRIu64
               " captures, %" PRIu64 " blocks to other threads, %" PRIu64 " sleeps, %" PRIu64
               " shares, %" PRIu64 " compactions, %" PRIu64 " seals, %" PRIu64
               " sealed blocks found, %" PRIu64 " refused\n",
               seed, count, told->counts[ALLOCATIONS], told->counts[CHECKS], told->counts[CAPTURES],
               told->counts[HANDED], told->counts[SLEEPS], told->counts[SHARES],
               told->counts[COMPACTIONS], told->counts[SEALS], told->counts[FINDS],
               told->counts[REFUSED]);
        fflush(stdout);
        return true;
    }
    first = *told;
    printf("seed %" PRIu64 ": %s: %s\n", seed, first.what, first.text);
    fflush(stdout);
    if (shortens)
        count = shorten(seed, steps, count, first.what);
    printf("%d operations give: %s: %s\n", count, first.what, first.text);
    for (int i = 0; i < count && count <= 60; i++)
        printf("  %d %s\n", steps[i].thread, operations[steps[i].operation].name);
    return false;
}

static const char *option(int count, char **list, const char *name, const char *variable)
{
    for (int i = 1; i + 1 < count; i++)
        if (strcmp(list[i], name) == 0)
            return list[i + 1];
    return variable ? getenv(variable) : NULL;
}

int main(int argument_count, char **arguments)
{
    const char *seed = option(argument_count, arguments, "--seed", "TARN_SEED"),
               *length = option(argument_count, arguments, "--steps", "TARN_MODEL_STEPS"),
               *limit = option(argument_count, arguments, "--seconds", NULL),
               *wanted = getenv("TARN_MIXED_SEEDS");
    int count = length ? atoi(length) : 1500;
    count = count > STEPS_MOST ? STEPS_MOST : count;
    struct step *steps = malloc(STEPS_MOST * sizeof *steps);
    time_t until = time(NULL) + (limit ? atoi(limit) : 0);
    uint64_t first = seed    ? strtoull(seed, NULL, 0)
                     : limit ? (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid()
                             : 1;
    uint64_t seeds = seed ? 1 : wanted ? strtoull(wanted, NULL, 10) : 6;
    bool holds = true;
    for (int i = 1; i < argument_count; i++)
        shortens &= strcmp(arguments[i], "--no-shorten") != 0;
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!steps || told == MAP_FAILED)
        return 2;
    promises_read();
    for (uint64_t i = 0; holds && (i < seeds || time(NULL) < until); i++)
        holds = try(first + i, steps, count);
    free(steps);
    return !holds;
}
