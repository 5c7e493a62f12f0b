/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Whether a shutdown may begin. */
#ifndef TARN_DEVICE_SHUTDOWN_H
#define TARN_DEVICE_SHUTDOWN_H

#include <tarn/status.h>

/* Sets what tarn_shutdown() asks first. If it fails, so does the shutdown, and nothing was done. */
void device_on_shutdown_ask(tarn_status (*callback)(void));

#endif
