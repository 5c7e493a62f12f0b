/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Processes beside the model's: one that has a kept pool, and one that only reads it. They are the
 * test's program, run again in a role. They do what they are ordered, and nothing else; what is
 * right the model knows. */
#ifndef TESTS_MIXED_SIDES_H
#define TESTS_MIXED_SIDES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { SIDE_BLOCKS = 8, SIDE_NAME = 16, SIDE_PART = 64 };

struct side {
    pid_t process;
    int socket;
};

/* A block of a kept pool. Its number is its name. */
struct side_block {
    size_t size; /* 0: there is none */
    unsigned char value;
    bool sealed;
};

/* What a process has left that was killed. */
struct heir {
    char name[SIDE_NAME]; /* "": nothing */
    int device, devices;
    size_t segment, memory;
    struct side_block blocks[SIDE_BLOCKS];
    bool strange, torn; /* as of the pool that it was */
};

enum side_verb {
    SIDE_BEGIN,    /* the device's `size` and number */
    SIDE_KEEP,     /* takes the pool over, or makes it; says what is sealed in it */
    SIDE_READ,     /* or reads it */
    SIDE_LOOK,     /* the sealed blocks that a reader finds */
    SIDE_ALLOCATE, /* a block of the pool, and fills it */
    SIDE_SEAL,
    SIDE_UNSEAL,
    SIDE_WRITE,
    SIDE_FREE,
    SIDE_TRIM,
    SIDE_SUSPEND, /* `flag`: saves */
    SIDE_RESUME,
    SIDE_WORK,   /* allocates and frees `size` times; then it is killed */
    SIDE_FREES,  /* frees all blocks, and releases the pool */
    SIDE_LEAVES, /* releases what it reads; or shuts down, which leaves the pool to the owner */
};

struct side_order {
    enum side_verb verb;
    int number; /* of a block; of a device */
    size_t size;
    unsigned char value;
    bool flag;
    char name[SIDE_NAME];
};

struct side_answer {
    int status;
    char text[200];                        /* of a failure */
    struct side_block blocks[SIDE_BLOCKS]; /* of KEEP and LOOK: what it found, and can read */
    size_t count;                          /* of KEEP: how many the call said are sealed */
    bool adopted;                          /* of KEEP: there was a pool */
    size_t bytes;                          /* the pool's memory now */
};

/* Starts this program again as a process beside this one. */
struct side side_start(void);
bool side_ask(const struct side *side, const struct side_order *order, struct side_answer *answer);
/* Kills it, after it has worked for some calls of its own. False if it ends otherwise. */
bool side_kill(struct side *side, unsigned calls);
/* Whether a sealed block has its contents. Its data are a value, and whether all bytes have it, or
 * the first, middle and last parts alone. */
bool side_holds(const void *block, size_t size, const unsigned char data[2]);
/* Waits for its end, and returns its exit status. */
int side_end(struct side *side);
/* Plays such a process, if the arguments say so. */
bool side_play(int argc, char **argv);

#endif
