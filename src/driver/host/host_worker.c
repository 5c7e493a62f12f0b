/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The threads that run real work: fills, copies, host functions. A stream whose head is real work
 * is in `ready`, by priority. A worker takes it, runs the head without a lock, and reports its end.
 * If more streams are ready than workers are idle, another worker is started, so a host function
 * that blocks holds up only its own stream. Workers block all signals and live until
 * host_workers_finish(). All state is under the streams lock. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/lock.h"
#include "driver/host/host.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define STACK_BYTES ((size_t)1 << 20)

struct worker {
    struct worker *next;
    pthread_t thread;
};

static struct {
    struct host_stream *first, **end;
} ready[HOST_PRIORITIES]; /* index: the negated priority; `end` NULL while empty */
static unsigned ready_count, idle_count, busy_count;
static bool stopping;
static struct worker *workers;
static pthread_cond_t work_waits = PTHREAD_COND_INITIALIZER, all_wait = PTHREAD_COND_INITIALIZER;
static struct object_pool worker_objects = OBJECT_POOL(struct worker);

/* The ready stream of the highest priority that has waited longest, or NULL. */
static struct host_stream *ready_pop(void)
{
    for (int i = HOST_PRIORITIES - 1; i >= 0; i--) {
        struct host_stream *stream = ready[i].first;
        if (!stream)
            continue;
        ready[i].first = stream->link;
        if (!ready[i].first)
            ready[i].end = NULL;
        ready_count--;
        return stream;
    }
    return NULL;
}

/* Reads an operation at the head of its queue. It stays there, unchanged, until
 * host_stream_ended_locked(). */
static void run(const struct host_op *op)
{
    switch (op->kind) {
    case HOST_OP_FILL:
        memset((void *)op->move.to, op->move.value, op->move.size);
        break;
    case HOST_OP_COPY:
        host_move_bytes(op->move.to, op->move.from, op->move.size);
        break;
    case HOST_OP_CALL:
        op->call.function(op->call.argument);
        break;
    case HOST_OP_WAIT:
    case HOST_OP_TIMED:
        break;
    }
}

static void *worker_main(void *unused)
{
    (void)unused;
    host_streams_lock();
    for (;;) {
        struct host_stream *stream = ready_pop();
        if (stream) {
            stream->state = HOST_STREAM_RUNS;
            busy_count++;
            const struct host_op *op = stream->head;
            host_streams_unlock();
            run(op);
            host_streams_lock();
            host_stream_ended_locked(stream);
            host_streams_unlock();
            host_settle();
            host_streams_lock();
            if (--busy_count == 0 && ready_count == 0)
                pthread_cond_broadcast(&all_wait);
        } else if (stopping) {
            break;
        } else {
            idle_count++;
            host_streams_sleep_relocking(&work_waits);
            idle_count--;
        }
    }
    host_streams_unlock();
    return NULL;
}

/* Starts a thread with all signals blocked. */
static int thread_start(pthread_t *thread)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    int code = pthread_attr_init(&attributes);
    if (code)
        return code;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(thread, &attributes, worker_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return code;
}

/* Returns 0, or the system's error. Does not touch the last error, since a call may succeed without
 * the worker. */
static int worker_add(void)
{
    struct worker *worker = object_alloc(&worker_objects);
    if (!worker)
        return ENOMEM;
    int code = thread_start(&worker->thread);
    if (code) {
        object_free(&worker_objects, worker);
        return code;
    }
    worker->next = workers;
    workers = worker;
    return 0;
}

tarn_status host_workers_ensure_locked(void)
{
    int code = workers ? 0 : worker_add();
    return code ? failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host: no thread for real work: %s",
                         strerror(code))
                : TARN_OK;
}

void host_workers_push_locked(struct host_stream *stream)
{
    int i = -stream->priority;
    stream->link = NULL;
    if (!ready[i].end)
        ready[i].end = &ready[i].first;
    *ready[i].end = stream;
    ready[i].end = &stream->link;
    ready_count++;
    if (idle_count >= ready_count)
        pthread_cond_signal(&work_waits);
    else
        (void)worker_add(); /* on failure the existing workers do it later */
}

void host_workers_settle(void)
{
    host_streams_lock();
    while (ready_count > 0 || busy_count > 0)
        host_streams_sleep_relocking(&all_wait);
    host_streams_unlock();
}

void host_workers_finish(void)
{
    host_streams_lock();
    stopping = true;
    pthread_cond_broadcast(&work_waits);
    struct worker *all = workers;
    workers = NULL;
    host_streams_unlock();
    while (all) {
        struct worker *worker = all;
        all = worker->next;
        pthread_join(worker->thread, NULL);
        object_free(&worker_objects, worker);
    }
    stopping = false;
}
