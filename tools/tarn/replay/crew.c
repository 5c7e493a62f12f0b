/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A crew's threads sleep until it is their turn. `lock` protects whose turn it is, and the job. */
#include "replay/crew.h"

#include <pthread.h>
#include <stdlib.h>

#define NOBODY UINT32_MAX

struct member {
    struct crew *crew;
    pthread_t thread;
    pthread_cond_t turn;
    uint32_t number;
};

struct crew {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool (*job)(void *context);
    void *context;
    uint32_t at_work; /* NOBODY between jobs */
    bool result, ending;
    uint32_t count; /* threads that run */
    struct member members[];
};

static void *member_run(void *argument)
{
    struct member *member = argument;
    struct crew *crew = member->crew;
    pthread_mutex_lock(&crew->lock);
    for (;;) {
        while (crew->at_work != member->number && !crew->ending)
            pthread_cond_wait(&member->turn, &crew->lock);
        if (crew->ending)
            break;
        pthread_mutex_unlock(&crew->lock);
        /* the job was set before it became this thread's turn */
        bool result = crew->job(crew->context);
        pthread_mutex_lock(&crew->lock);
        crew->result = result;
        crew->at_work = NOBODY;
        pthread_cond_signal(&crew->done);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

struct crew *crew_create(uint32_t threads)
{
    struct crew *crew = calloc(1, sizeof *crew + threads * sizeof *crew->members);
    if (!crew)
        return NULL;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->done, NULL);
    crew->at_work = NOBODY;
    for (; crew->count < threads; crew->count++) {
        struct member *member = &crew->members[crew->count];
        *member = (struct member){.crew = crew, .number = crew->count};
        pthread_cond_init(&member->turn, NULL);
        if (pthread_create(&member->thread, NULL, member_run, member)) {
            pthread_cond_destroy(&member->turn);
            crew_destroy(crew);
            return NULL;
        }
    }
    return crew;
}

void crew_destroy(struct crew *crew)
{
    if (!crew)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->ending = true;
    for (uint32_t i = 0; i < crew->count; i++)
        pthread_cond_signal(&crew->members[i].turn);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->count; i++) {
        pthread_join(crew->members[i].thread, NULL);
        pthread_cond_destroy(&crew->members[i].turn);
    }
    pthread_cond_destroy(&crew->done);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

bool crew_do(struct crew *crew, uint32_t thread, bool (*job)(void *context), void *context)
{
    pthread_mutex_lock(&crew->lock);
    crew->job = job;
    crew->context = context;
    crew->at_work = thread;
    pthread_cond_signal(&crew->members[thread].turn);
    while (crew->at_work != NOBODY)
        pthread_cond_wait(&crew->done, &crew->lock);
    bool result = crew->result;
    pthread_mutex_unlock(&crew->lock);
    return result;
}
