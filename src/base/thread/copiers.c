/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns threads that copy, and their queue; the copies belong to the caller. `copiers_lock` protects
 * the queue and which copies are in progress. It is not held over a copy. */
#include "base/thread/copiers.h"
#include "base/thread/thread.h"

#include <sched.h>
#include <string.h>

static void *copiers_main(void *argument)
{
    struct copiers *copiers = argument;
    mutex_lock(&copiers->copiers_lock);
    for (;;) {
        while (!copiers->first && !copiers->ends)
            (void)condition_wait(&copiers->handed_out, &copiers->copiers_lock, NULL);
        struct copiers_copy *copy = copiers->first;
        if (!copy)
            break;
        copiers->first = copy->next;
        mutex_unlock(&copiers->copiers_lock);
        memcpy(copy->to, copy->from, copy->size);
        mutex_lock(&copiers->copiers_lock);
        copy->under_way = false;
        pthread_cond_signal(&copiers->done); /* only the owner waits */
    }
    mutex_unlock(&copiers->copiers_lock);
    return NULL;
}

static unsigned processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : (unsigned)CPU_COUNT(&set);
}

bool copiers_start(struct copiers *copiers, unsigned threads)
{
    unsigned most = processors();
    memset(copiers, 0, sizeof *copiers);
    mutex_init(&copiers->copiers_lock, LOCK_LEAF);
    pthread_cond_init(&copiers->handed_out, NULL);
    pthread_cond_init(&copiers->done, NULL);
    if (most > COPIERS_MOST)
        most = COPIERS_MOST;
    if (threads > most)
        threads = most;
    while (copiers->count < threads &&
           thread_start(&copiers->threads[copiers->count], copiers_main, copiers))
        copiers->count++;
    if (!copiers->count)
        copiers_end(copiers);
    return copiers->count;
}

void copiers_end(struct copiers *copiers)
{
    struct cancel before = cancel_off();
    mutex_lock(&copiers->copiers_lock);
    copiers->ends = true;
    pthread_cond_broadcast(&copiers->handed_out);
    mutex_unlock(&copiers->copiers_lock);
    for (unsigned i = 0; i < copiers->count; i++)
        pthread_join(copiers->threads[i], NULL);
    cancel_restore(before);
    pthread_cond_destroy(&copiers->handed_out);
    pthread_cond_destroy(&copiers->done);
    mutex_finish(&copiers->copiers_lock);
}

void copiers_give(struct copiers *copiers, struct copiers_copy *copy)
{
    mutex_lock(&copiers->copiers_lock);
    copy->next = NULL;
    copy->under_way = true;
    if (copiers->first)
        copiers->last->next = copy;
    else
        copiers->first = copy;
    copiers->last = copy;
    pthread_cond_signal(&copiers->handed_out);
    mutex_unlock(&copiers->copiers_lock);
}

void copiers_wait(struct copiers *copiers, struct copiers_copy *copy)
{
    mutex_lock(&copiers->copiers_lock);
    while (copy->under_way)
        (void)condition_wait(&copiers->done, &copiers->copiers_lock, NULL);
    mutex_unlock(&copiers->copiers_lock);
}
