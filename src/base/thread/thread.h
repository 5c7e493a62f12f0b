/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The library's own threads. */
#ifndef TARN_BASE_THREAD_H
#define TARN_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that gets no signals, which belong to the program. False: the system has no
 * thread left. */
bool thread_start(pthread_t *thread, void *(*function)(void *), void *argument);

#endif
