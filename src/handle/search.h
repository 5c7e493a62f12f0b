/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finding the file of a library, among several places and versions. */
#ifndef TARN_HANDLE_SEARCH_H
#define TARN_HANDLE_SEARCH_H

#include "driver/loader.h"
#include "handle/library.h"

/* Opens the first file of a library that has what its row needs, in the order that tarn/handle.h
 * gives, and fills the calls that are not there yet. With no lock held.
 * TARN_ERROR_LIBRARY_NOT_FOUND with what was tried and why each failed, in `why`; then nothing else
 * is written. */
tarn_status library_search(const struct library *row, struct loaded *loaded,
                           struct library_calls *calls, char *why, size_t size);

#endif
