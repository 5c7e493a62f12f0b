/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The threads of the model, and what each loses when it ends. */
#include "mixed/model/mixed.h"
#include "support/actor.h"

static struct actor actors[ACTORS];

void actor_run(int number, void (*run)(void))
{
    m.actor = number;
    actor_turn(&actors[number], run);
}

static int beginning;

static void begin_inside(void)
{
    per_thread_begin(beginning);
}

void actors_begin(void)
{
    for (beginning = 0; beginning < ACTORS; beginning++) {
        actor_start(&actors[beginning]);
        actor_run(beginning, begin_inside);
    }
}

/* Ends the thread with everything that belongs to it, and starts another one. */
void actor_renew(int number)
{
    per_thread_end(number);
    scopes_left_by(number);
    uses_forget(number);
    asks_forget(number);
    actor_stop(&actors[number]);
    m.turns[number]++;
    actor_start(&actors[number]);
    beginning = number;
    actor_run(number, begin_inside);
}

void actors_end(void)
{
    for (int i = 0; i < ACTORS; i++) {
        per_thread_end(i);
        scopes_left_by(i);
        uses_forget(i);
        actor_stop(&actors[i]);
    }
}
