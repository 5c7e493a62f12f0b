/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the pointer to what learns of blocks. */
#include "memory/settings/announce.h"

const struct announcer *announcer;
