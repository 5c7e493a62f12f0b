/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finding the file of a library, among several places and versions. */
#ifndef TARN_HANDLE_SEARCH_H
#define TARN_HANDLE_SEARCH_H

#include "driver/loader.h"
#include "handle/library.h"

/* Searches for a library's file in the order that tarn/handle.h describes, and opens the first one
 * that has the functions which the row requires. Resolves those of `calls` that are NULL. Called
 * with no lock held. On TARN_ERROR_LIBRARY_NOT_FOUND `why` receives what was tried and why each
 * failed, and nothing else is written. */
tarn_status library_search(const struct library *row, struct loaded *loaded,
                           struct library_calls *calls, char *why, size_t size);

#endif
