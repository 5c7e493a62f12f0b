/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A board: one page that the exporter of a pool writes and its importers read, in a memfd that goes
 * along with each share of the pool. Who is there is told by locks on it, which the kernel drops
 * with the process that holds them, however that ends. These belong to a file description, so each
 * side opens the memfd anew by /proc for its own. */
#ifndef TARN_MEMORY_BOARD_H
#define TARN_MEMORY_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

struct board_words {
    uint64_t magic;
    uint64_t process, space;         /* of the exporter: its number, and the PID namespace in which
                                        it has it */
    atomic_uint_fast64_t generation; /* of the newest layout that was exported */
    atomic_uint_fast64_t revoked;    /* 1: the exporter wants its memory back */
};

struct board {
    int file;    /* the exporter's, to be sent, which is open to read alone: nobody locks by it;
                    else -1 */
    int own;     /* that has this side's lock; -1: there is no board */
    int process; /* an importer's pidfd of the exporter; -1: none could be opened, as in another PID
                    namespace */
    bool gone;   /* the exporter's process had ended when the importer came */
    struct board_words *words;
};

/* The exporter's. TARN_ERROR_SYSTEM. */
tarn_status board_create(struct board *board);

/* An importer's, by the file that came; the file stays the caller's. Nothing is taken on trust:
 * TARN_ERROR_INVALID_ARGUMENT for a file that is no board. TARN_ERROR_SYSTEM. */
tarn_status board_join(int file, struct board *board);

/* Ends either. */
void board_leave(struct board *board);

/* An importer asks whether the exporter is there still; the exporter, how many processes are
 * importers: at most BOARD_IMPORTERS, which it counts for BOARD_COUNT_NS at most, whatever one of
 * them has locked. The exporter's process is asked first, where it is known. Importers whose bytes
 * are the same count as one. */
enum { BOARD_IMPORTERS = 1024, BOARD_COUNT_NS = 100000000 };
bool board_has_exporter(const struct board *board);
tarn_status board_importers(const struct board *board, size_t *count);

#endif
