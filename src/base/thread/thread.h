/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The library's own threads. */
#ifndef TARN_BASE_THREAD_H
#define TARN_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that gets no signals: those are the program's. False where the system has none to
 * give. */
bool thread_start(pthread_t *thread, void *(*function)(void *), void *argument);

#endif
