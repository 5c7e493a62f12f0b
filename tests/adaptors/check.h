/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Contract tests are programs of their own, since vendors' headers and cmocka need not meet. */
#ifndef TESTS_ADAPTORS_CHECK_H
#define TESTS_ADAPTORS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <tarn/core.h>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: %s; tarn: %s\n", __FILE__, __LINE__, #condition, \
                    tarn_last_error());                                              \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#endif
