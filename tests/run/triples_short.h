/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the fake driver tells apart where the toolkit's header is not there to make the list of: names whose prototype has changed. */
X(cuMemAlloc, 2000, RUN_ANY)
X(cuMemAlloc, 3020, RUN_ANY)
X(cuMemFree, 2000, RUN_ANY)
X(cuMemFree, 3020, RUN_ANY)
X(cuMemGetInfo, 2000, RUN_ANY)
X(cuMemGetInfo, 3020, RUN_ANY)
X(cuDeviceTotalMem, 2000, RUN_ANY)
X(cuDeviceTotalMem, 3020, RUN_ANY)
X(cuGetProcAddress, 11030, RUN_ANY)
X(cuGetProcAddress, 12000, RUN_ANY)
X(cuMemAllocAsync, 11020, RUN_LEGACY)
X(cuMemAllocAsync, 11020, RUN_PER_THREAD)
X(cuMemFreeAsync, 11020, RUN_LEGACY)
X(cuMemFreeAsync, 11020, RUN_PER_THREAD)
X(cuCtxCreate, 2000, RUN_ANY)
X(cuCtxCreate, 11040, RUN_ANY)
