/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* For tests with a variable `host`, which driver/host/host.h has too. */
#ifndef TARN_TESTS_SUPPORT_FAIL_HITS_H
#define TARN_TESTS_SUPPORT_FAIL_HITS_H

#include <stdint.h>

/* Driver calls that tarn_host_fail_set() has made fail since it was last called. */
uint64_t host_fail_hits(void);

#endif
