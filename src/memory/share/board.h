/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A board: one page, in a memfd, that the exporter of a pool writes and its importers read. The
 * memfd goes along with each share of the pool. Locks on the file tell which processes are alive:
 * the kernel drops them when their process ends, however that ends. A lock belongs to a file
 * description, so each side opens the memfd again through /proc. */
#ifndef TARN_MEMORY_BOARD_H
#define TARN_MEMORY_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

struct board_words {
    uint64_t magic;
    /* Of the exporter: its PID, and the PID namespace of that number. */
    uint64_t process, space;
    atomic_uint_fast64_t generation; /* number of the newest exported layout */
    atomic_uint_fast64_t revoked;    /* 1: the exporter wants its memory back */
};

struct board {
    int file; /* the exporter's file to send, open for reading only, never locked; -1: none */
    int own;  /* the file that has this side's lock; -1: there is no board */
    /* The importer's pidfd of the exporter; -1: none, for example in another PID namespace. */
    int process;
    bool gone; /* the exporter's process had ended when the importer joined */
    struct board_words *words;
};

/* Creates the exporter's side. TARN_ERROR_SYSTEM. */
tarn_status board_create(struct board *board);

/* Creates an importer's side from a received file, which stays the caller's. Trusts nothing in it:
 * TARN_ERROR_INVALID_ARGUMENT if the file is no board. TARN_ERROR_SYSTEM. */
tarn_status board_join(int file, struct board *board);

/* Ends either side. */
void board_leave(struct board *board);

/* The most importers that are counted, and the most time for it, whatever one of them has
 * locked. */
enum { BOARD_IMPORTERS = 1024, BOARD_COUNT_NS = 100000000 };
/* Importer: whether the exporter still exists. Asks its process first, if that is known. */
bool board_has_exporter(const struct board *board);
/* Exporter: how many processes are importers. Those with equal bytes count as one. */
tarn_status board_importers(const struct board *board, size_t *count);

#endif
