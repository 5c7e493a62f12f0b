/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn: memory pools and library handles that follow the thread, the device and the stream. */
#ifndef TARN_TARN_H
#define TARN_TARN_H

/* The version of these headers. */
/* clang-format off */
#define TARN_VERSION_MAJOR 0
#define TARN_VERSION_MINOR 1
#define TARN_VERSION_PATCH 0
/* clang-format on */

#include <tarn/config.h>
#include <tarn/device.h>
#include <tarn/handle.h>
#include <tarn/memory.h>
#include <tarn/observe.h>
#include <tarn/pinned.h>
#include <tarn/pool.h>
#include <tarn/share.h>
#include <tarn/snapshot.h>
#include <tarn/stats.h>
#include <tarn/status.h>
#include <tarn/stream.h>
#include <tarn/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that runs, "0.1.0", which may differ from the header's. */
TARN_API const char *tarn_version(void);

#ifdef __cplusplus
}
#endif
#endif
