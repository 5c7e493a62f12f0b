/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that take turns: one runs at a time, so that a run can be repeated, yet each has what a
 * thread has of its own. */
#ifndef TESTS_SUPPORT_ACTOR_H
#define TESTS_SUPPORT_ACTOR_H

#include <pthread.h>
#include <semaphore.h>

struct actor {
    pthread_t thread;
    sem_t go, done;
    void (*turn)(void); /* NULL: it ends */
};

/* Fails the test where there is no thread. */
void actor_start(struct actor *actor);
/* Runs a function in the actor's thread, while the caller waits. */
void actor_turn(struct actor *actor, void (*turn)(void));
/* Ends the thread, with all that a thread takes with it. It may be started again. */
void actor_stop(struct actor *actor);

#endif
