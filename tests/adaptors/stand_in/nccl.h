/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What adaptors/nccl takes of NCCL's header, so that it can be compiled where that is missing.
 * tests/adaptors/check_nccl.c compares it with the real one, of NCCL 2.32. */
#ifndef TESTS_STAND_IN_NCCL_H
#define TESTS_STAND_IN_NCCL_H

#include <stddef.h>
#include <stdint.h>

#define NCCL_VERSION_CODE 23203

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;

typedef enum {
    ncclSuccess = 0,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclInProgress = 7
} ncclResult_t;

typedef enum {
    ncclStatGpuMemSuspend = 0,
    ncclStatGpuMemSuspended = 1,
    ncclStatGpuMemPersist = 2,
    ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_SUSPEND_MEM 0x01

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size,
                                    ncclWindow_t *window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
const char *ncclGetErrorString(ncclResult_t result);

#endif
