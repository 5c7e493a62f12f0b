/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The allocators that are measured, tarn first. Each is opened at run time, as a program that loads
 * it would have it, and called through function pointers. */
#ifndef BENCH_ALLOC_PEERS_H
#define BENCH_ALLOC_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/status.h>

#define PEERS 4

struct peer {
    const char *name;
    void *(*alloc)(size_t size);
    void (*free)(void *block);
    tarn_status (*free_checked)(void *block); /* in place of `free`, for one whose frees may fail */
    void (*stream_use)(
        int stream); /* gives the calling thread one of 16 streams; -1: the default one. NULL: it
                        knows none */
    void (*trace_set)(bool on); /* starts and stops its trace; NULL: it has none */
};

extern struct peer peers[PEERS];
extern size_t peer_count;

/* Opens what is there, and prints a line each. Ends the program where tarn is not. */
void peers_open(void);

/* Ends the program with a line on stderr. */
void die(const char *what, const char *why) __attribute__((noreturn));

static inline void peer_free(const struct peer *peer, void *block)
{
    if (!peer->free_checked)
        peer->free(block);
    else if (peer->free_checked(block) != TARN_OK)
        die(peer->name, "a free failed");
}

#endif
