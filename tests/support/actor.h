/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that take turns: one runs at a time, so that a run can be repeated, and each has the
 * thread-local state of a real thread. */
#ifndef TESTS_SUPPORT_ACTOR_H
#define TESTS_SUPPORT_ACTOR_H

#include <pthread.h>
#include <semaphore.h>

struct actor {
    pthread_t thread;
    sem_t go, done;
    void (*turn)(void); /* NULL: the thread ends */
};

/* Starts the thread. Fails the test if that is not possible. */
void actor_start(struct actor *actor);
/* Runs a function in the actor's thread, while the caller waits. */
void actor_turn(struct actor *actor, void (*turn)(void));
/* Ends the thread, and with it all that belongs to a thread. It may be started again. */
void actor_stop(struct actor *actor);

#endif
