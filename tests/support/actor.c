/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/actor.h"

#include "support/host.h"

static void *act(void *argument)
{
    struct actor *actor = argument;
    for (sem_wait(&actor->go); actor->turn; sem_wait(&actor->go)) {
        actor->turn();
        sem_post(&actor->done);
    }
    return NULL;
}

void actor_start(struct actor *actor)
{
    sem_init(&actor->go, 0, 0);
    sem_init(&actor->done, 0, 0);
    CHECK(pthread_create(&actor->thread, NULL, act, actor) == 0);
}

void actor_turn(struct actor *actor, void (*turn)(void))
{
    actor->turn = turn;
    sem_post(&actor->go);
    sem_wait(&actor->done);
}

void actor_stop(struct actor *actor)
{
    actor->turn = NULL;
    sem_post(&actor->go);
    pthread_join(actor->thread, NULL);
    sem_destroy(&actor->go);
    sem_destroy(&actor->done);
}
