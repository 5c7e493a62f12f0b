/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that take turns: one runs at a time, so that a run can be repeated, yet each has what a thread has of its own. */
#include "mixed/model/mixed.h"

#include <pthread.h>
#include <semaphore.h>

static struct actor {
    pthread_t thread;
    sem_t go, done;
    void (*run)(void); /* NULL: it ends */
} actors[ACTORS];

static void *act(void *argument)
{
    struct actor *actor = argument;
    for (sem_wait(&actor->go); actor->run; sem_wait(&actor->go)) {
        actor->run();
        sem_post(&actor->done);
    }
    return NULL;
}

void actor_run(int number, void (*run)(void))
{
    m.actor = number;
    actors[number].run = run;
    sem_post(&actors[number].go);
    sem_wait(&actors[number].done);
}

static void begin(int number)
{
    sem_init(&actors[number].go, 0, 0);
    sem_init(&actors[number].done, 0, 0);
    if (pthread_create(&actors[number].thread, NULL, act, &actors[number]))
        fault("the test's own limit", "no thread");
}

static void end(int number)
{
    actors[number].run = NULL;
    sem_post(&actors[number].go);
    pthread_join(actors[number].thread, NULL);
}

static int beginning;

static void begin_inside(void)
{
    per_thread_begin(beginning);
}

void actors_begin(void)
{
    for (beginning = 0; beginning < ACTORS; beginning++) {
        begin(beginning);
        actor_run(beginning, begin_inside);
    }
}

/* The thread ends, with all that goes with it; and another one is there. */
void actor_renew(int number)
{
    per_thread_end(number);
    scopes_left_by(number);
    uses_forget(number);
    asks_forget(number);
    end(number);
    m.turns[number]++;
    begin(number);
    beginning = number;
    actor_run(number, begin_inside);
}

void actors_end(void)
{
    for (int i = 0; i < ACTORS; i++) {
        per_thread_end(i);
        scopes_left_by(i);
        uses_forget(i);
        end(i);
    }
}
