/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that copy. A crew owns its threads and its queue; the copies are its owner's. `crew_lock` protects the queue and which
 * copies are in progress, and is not held over a copy. */
#include "base/thread/crew.h"
#include "base/thread/thread.h"

#include <sched.h>
#include <string.h>

static void *crew_main(void *argument)
{
    struct crew *crew = argument;
    mutex_lock(&crew->crew_lock);
    for (;;) {
        while (!crew->first && !crew->ends)
            (void)condition_wait(&crew->handed_out, &crew->crew_lock, NULL);
        struct crew_copy *copy = crew->first;
        if (!copy)
            break;
        crew->first = copy->next;
        mutex_unlock(&crew->crew_lock);
        memcpy(copy->to, copy->from, copy->size);
        mutex_lock(&crew->crew_lock);
        copy->under_way = false;
        pthread_cond_signal(&crew->done); /* the owner alone waits */
    }
    mutex_unlock(&crew->crew_lock);
    return NULL;
}

static unsigned processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : (unsigned)CPU_COUNT(&set);
}

bool crew_start(struct crew *crew, unsigned threads)
{
    unsigned most = processors();
    memset(crew, 0, sizeof *crew);
    mutex_init(&crew->crew_lock, LOCK_CREW);
    pthread_cond_init(&crew->handed_out, NULL);
    pthread_cond_init(&crew->done, NULL);
    if (most > CREW_MOST)
        most = CREW_MOST;
    if (threads > most)
        threads = most;
    while (crew->count < threads && thread_start(&crew->threads[crew->count], crew_main, crew))
        crew->count++;
    if (!crew->count)
        crew_end(crew);
    return crew->count;
}

void crew_end(struct crew *crew)
{
    struct cancel before = cancel_off();
    mutex_lock(&crew->crew_lock);
    crew->ends = true;
    pthread_cond_broadcast(&crew->handed_out);
    mutex_unlock(&crew->crew_lock);
    for (unsigned i = 0; i < crew->count; i++)
        pthread_join(crew->threads[i], NULL);
    cancel_restore(before);
    pthread_cond_destroy(&crew->handed_out);
    pthread_cond_destroy(&crew->done);
    mutex_finish(&crew->crew_lock);
}

void crew_give(struct crew *crew, struct crew_copy *copy)
{
    mutex_lock(&crew->crew_lock);
    copy->next = NULL;
    copy->under_way = true;
    if (crew->first)
        crew->last->next = copy;
    else
        crew->first = copy;
    crew->last = copy;
    pthread_cond_signal(&crew->handed_out);
    mutex_unlock(&crew->crew_lock);
}

void crew_wait(struct crew *crew, struct crew_copy *copy)
{
    mutex_lock(&crew->crew_lock);
    while (copy->under_way)
        (void)condition_wait(&crew->done, &crew->crew_lock, NULL);
    mutex_unlock(&crew->crew_lock);
}
