/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A kept pool that all threads have, and a reader of it in the same process. A process before this
 * one made the pool, so that this one could begin to read it and then take it over. Each thread
 * seals blocks by names of its own, so it knows which of these must be found, in the pool and by
 * the reader. What other threads have sealed may come and go meanwhile: what is found of it is
 * whole, and its contents are right if the seal is the same after the read. In half of the runs
 * the owner is killed at times, and a service manager starts it again: nobody notices. */
#include "mixed/threads/threads.h"
#include "support/owner.h"

#include <signal.h>
#include <sys/wait.h>
#include <tarn/keep.h>
#include <unistd.h>

enum { NAME = 16, FIRST_BYTES = 300000, FIRST_VALUE = 0x3c };

static tarn_pool *pool, *reader; /* NULL: there is no owner */
static bool service;

/* What was found by the reader stays mapped until the reader's trim. A thread that reads it holds
 * it shared. */
static pthread_rwlock_t reading = PTHREAD_RWLOCK_INITIALIZER;

static tarn_keep_options options_of(bool reads)
{
    return (tarn_keep_options){
        .size = sizeof(tarn_keep_options), .segment = 4 * MIB, .wait_ms = 60000, .read = reads};
}

static void name_of(int thread, int number, char name[NAME])
{
    snprintf(name, NAME, "%d.%d", thread, number);
}

/* What the data of a sealed block says. */
struct label {
    unsigned char value; /* of both ends of the contents */
    unsigned char thread, number;
    uint64_t size;
};

/* ---- What must hold ---- */

static bool holds(const unsigned char *start, size_t size, unsigned char value)
{
    size_t part = size < PART ? size : PART;
    return memcmp(start, patterns[value], part) == 0 &&
           memcmp(start + size - part, patterns[value], part) == 0;
}

static struct label label_of(const tarn_sealed_block *found)
{
    struct label label;
    memcpy(&label, found->data, sizeof label);
    return label;
}

/* A block is what its name says, also while others seal and unseal. */
static void check_label(const tarn_sealed_block *found, int thread, int number)
{
    struct label label = label_of(found);
    SO(label.thread == thread && label.number == number && label.size == found->bytes,
       "a sealed block is another", "%d.%d of %zu bytes, not %d.%d of %zu", label.thread,
       label.number, (size_t)label.size, thread, number, found->bytes);
}

/* ---- The reader ---- */

static void let_go(void)
{
    pthread_rwlock_wrlock(&reading);
    (void)WELL(BARRED, tarn_pool_trim, reader, 0);
    pthread_rwlock_unlock(&reading);
}

/* Finds a block by the reader. False if the reader still has older memory at some addresses of the
 * pool; or, unless the block is `there`, if nothing is sealed by that name. */
static bool seek(const char *name, bool there, tarn_sealed_block *found)
{
    *found = (tarn_sealed_block){.size = sizeof *found};
    return WELL(BIT(TARN_ERROR_BUSY) | (there ? 0 : BIT(TARN_ERROR_INVALID_ARGUMENT)),
                tarn_pool_block_find, reader, name, found);
}

/* Reads what the reader finds of another thread, or of an earlier process. */
static void read_any(int thread, int number, const char *name, bool stays)
{
    tarn_sealed_block found, again;
    pthread_rwlock_rdlock(&reading);
    if (seek(name, stays, &found)) {
        bool right = holds(found.pointer, found.bytes, label_of(&found).value);
        check_label(&found, thread, number);
        bool same = seek(name, stays, &again) && again.seal == found.seal;
        SO(right || !same, "a reader reads something else", "%s of %zu bytes", name, found.bytes);
        count(FINDS);
    }
    pthread_rwlock_unlock(&reading);
}

/* Reads a block of this thread, or finds that it is not sealed. */
static void read_own(struct worker *worker, int number)
{
    const struct sealed *sealed = &worker->sealed[number];
    char name[NAME];
    tarn_sealed_block found;
    name_of(worker->number, number, name);
    pthread_rwlock_rdlock(&reading);
    if (seek(name, sealed->is, &found)) {
        SO(sealed->is, "a reader finds what is not sealed", "%s", name);
        check_label(&found, worker->number, number);
        SO(found.bytes == sealed->block.size &&
               holds(found.pointer, found.bytes, sealed->block.value),
           "a reader reads something else", "%s of %zu bytes", name, found.bytes);
        count(FINDS);
    }
    pthread_rwlock_unlock(&reading);
}

static void op_read(struct worker *worker)
{
    int thread = (int)below(worker, (unsigned)thread_count), number = (int)below(worker, SEALED);
    char name[NAME];
    name_of(thread, number, name);
    if (!below(worker, 6))
        let_go();
    if (!below(worker, 4))
        read_any(THREADS, 0, "first", true);
    else if (thread == worker->number)
        read_own(worker, number);
    else
        read_any(thread, number, name, false);
}

/* ---- The pool ---- */

static void op_find(struct worker *worker)
{
    int thread = (int)below(worker, (unsigned)thread_count), number = (int)below(worker, SEALED);
    const struct sealed *own = thread == worker->number ? &worker->sealed[number] : NULL;
    tarn_sealed_block found = {.size = sizeof found};
    char name[NAME];
    name_of(thread, number, name);
    if (!WELL(own && own->is ? 0 : BIT(TARN_ERROR_INVALID_ARGUMENT), tarn_pool_block_find, pool,
              name, &found))
        return;
    check_label(&found, thread, number);
    SO(!own || (own->is && found.pointer == own->block.start), "another block was found",
       "%s at %p", name, found.pointer);
    count(FINDS);
}

/* The contents are complete after the event, or when the stream has come to rest. */
static void seal(struct worker *worker, int number)
{
    struct sealed *sealed = &worker->sealed[number];
    tarn_stream stream = worker->flows[sealed->block.flow].value;
    struct label label = {sealed->block.value, (unsigned char)worker->number, (unsigned char)number,
                          sealed->block.size};
    unsigned char data[TARN_KEEP_DATA_BYTES] = {0};
    char name[NAME];
    bool waits = below(worker, 2);
    memcpy(data, &label, sizeof label);
    name_of(worker->number, number, name);
    pthread_rwlock_rdlock(&queueing);
    bool ready = waits ? WELL(BARRED, tarn_stream_synchronize, stream)
                       : WELL(0, tarn_event_record, worker->sealing, stream);
    pthread_rwlock_unlock(&queueing);
    if (!ready)
        return;
    sealed->is = WELL(0, tarn_pool_block_seal, sealed->block.start, name, data,
                      waits ? NULL : worker->sealing);
    count(SEALS);
}

static void unseal(struct sealed *sealed)
{
    (void)WELL(0, tarn_pool_block_unseal, sealed->block.start);
    sealed->is = false;
}

/* A free takes the seal off. */
static void give_up(struct worker *worker, struct sealed *sealed)
{
    sealed->is = false;
    give_back(worker, &sealed->block);
}

/* Fills a block, seals it, unseals it or frees it. */
static void op_change(struct worker *worker)
{
    int number = (int)below(worker, SEALED), flow = (int)below(worker, STREAMS);
    struct sealed *sealed = &worker->sealed[number];
    size_t size = some_size(worker);
    void *got = NULL;
    if (!sealed->block.live) {
        if (!WELL(SHORT, tarn_pool_alloc, pool, worker->flows[flow].value, size, &got))
            return;
        taken(&sealed->block, got, size, flow);
        use(worker, flow, &sealed->block);
    } else if (!below(worker, 4)) {
        give_up(worker, sealed);
    } else if (!sealed->is) {
        if (below(worker, 2))
            use(worker, sealed->block.flow, &sealed->block);
        seal(worker, number);
    } else if (below(worker, 2)) {
        unseal(sealed);
        use(worker, sealed->block.flow, &sealed->block);
    }
    if (!below(worker, 2))
        read_own(worker, number);
}

/* Only one thread at a time has the owner's manager. */
static void op_owner(void)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    if (!service || pthread_mutex_trylock(&one))
        return;
    owner_kill(false);
    owner_start();
    pthread_mutex_unlock(&one);
}

void op_sealed(struct worker *worker)
{
    if (!pool)
        return;
    switch (below(worker, 16)) {
    case 0:
        (void)WELL(BARRED, tarn_pool_trim, pool, 0);
        return;
    case 1:
        if (!below(worker, 4))
            op_owner();
        return;
    case 2:
    case 3:
        op_find(worker);
        return;
    case 4:
    case 5:
    case 6:
        op_read(worker);
        return;
    default:
        op_change(worker);
    }
}

void seals_leave(struct worker *worker, int flow)
{
    for (int i = 0; i < SEALED; i++)
        if (worker->sealed[i].block.live && worker->sealed[i].block.flow == flow)
            give_up(worker, &worker->sealed[i]);
}

/* ---- The run ---- */

/* Makes the pool, seals a block in it, and is killed. */
_Noreturn static void make(size_t memory)
{
    const tarn_keep_options options = options_of(false);
    struct label label = {FIRST_VALUE, THREADS, 0, FIRST_BYTES};
    unsigned char data[TARN_KEEP_DATA_BYTES] = {0};
    void *got = NULL;
    host_start_with(1, memory);
    MINE(tarn_pool_keep("threads", &options, &pool, NULL));
    MINE(tarn_pool_alloc(pool, 0, FIRST_BYTES, &got));
    memset(got, FIRST_VALUE, FIRST_BYTES);
    memcpy(data, &label, sizeof label);
    MINE(tarn_pool_block_seal(got, "first", data, NULL));
    (void)raise(SIGKILL);
    _exit(1);
}

void seals_make(bool has_owner, bool is_service, size_t memory)
{
    int status = 0;
    if (!has_owner)
        return;
    service = is_service;
    fflush(NULL);
    pid_t maker = fork();
    if (maker == 0)
        make(memory);
    if (maker < 0 || waitpid(maker, &status, 0) != maker || !WIFSIGNALED(status) ||
        WTERMSIG(status) != SIGKILL)
        fault("the test's own", "no process makes a kept pool: it ended with %d", status);
}

void seals_begin(bool has_owner)
{
    const tarn_keep_options options[] = {options_of(true), options_of(false)};
    tarn_kept kept = {.size = sizeof kept};
    if (!has_owner)
        return;
    MINE(tarn_pool_keep("threads", &options[0], &reader, NULL));
    MINE(tarn_pool_keep("threads", &options[1], &pool, &kept));
    SO(kept.adopted && kept.blocks == 1, "a kept pool is another", "%zu blocks", kept.blocks);
    for (int i = 0; i < thread_count; i++)
        MINE(tarn_event_create(0, &workers[i].sealing));
}

void seals_end(void)
{
    tarn_sealed_block first = {.size = sizeof first};
    if (!pool)
        return;
    read_any(THREADS, 0, "first", true);
    for (int i = 0; i < thread_count; i++) {
        for (int k = 0; k < SEALED; k++) {
            read_own(&workers[i], k);
            if (workers[i].sealed[k].block.live)
                give_up(&workers[i], &workers[i].sealed[k]);
            read_own(&workers[i], k);
        }
        MINE(tarn_event_destroy(workers[i].sealing));
    }
    MINE(tarn_pool_block_find(pool, "first", &first));
    MINE(tarn_free(first.pointer));
    MINE(tarn_pool_release(reader));
    MINE(tarn_pool_release(pool));
}
