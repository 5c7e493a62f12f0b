/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the pointer to the receiver of announcements of blocks. It is set before the first use of memory, and read without a lock. */
#include "memory/settings/announce.h"

const struct announcer *announcer;
