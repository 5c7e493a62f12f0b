/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The machine's memory, which an integrated GPU shares with the processor. Where a discrete GPU
 * refuses a request, the kernel ends a process here. So growth on such a device, and of pinned
 * memory there, asks first. */
#ifndef TARN_BASE_MACHINE_H
#define TARN_BASE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/status.h>

struct machine_memory {
    size_t available; /* bytes that can be taken before the kernel ends a process, without swap */
    size_t reserve;   /* bytes of the machine's memory that stay free for others */
};

/* Reads what the kernel, the process's control groups and a simulated driver say now: the one with
 * the least room decides. False if the system does not tell. */
bool machine_memory_get(struct machine_memory *memory);

/* Claims bytes of the machine's memory before they are created. TARN_ERROR_OUT_OF_MEMORY: with the
 * claims of other threads, less than the reserve would be left. A claim with `must` is never
 * refused. In each case the caller then calls machine_claim_end(): when the bytes exist, so that
 * the kernel counts them, or when they never will. */
tarn_status machine_claim(size_t size, bool must);
void machine_claim_end(size_t size);

/* Whether this is WSL2, whose system pages the memory of GPUs. */
bool machine_is_wsl(void);

/* The bits of the process's addresses, by the kernel and by RLIMIT_AS; 0 if the system does not
 * tell. */
int machine_address_bits(void);

/* What a simulated driver says of its machine, in bytes; false: nothing. NULL with any other. */
extern bool (*machine_simulated)(size_t *available, size_t *total);

/* For tests. A folder that stands for /; "" otherwise. Bytes that simulated devices have taken,
 * which the files there do not count; NULL otherwise. */
extern const char *machine_root;
extern size_t (*machine_taken)(void);

#endif
