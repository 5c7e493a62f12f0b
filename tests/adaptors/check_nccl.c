/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares the stand-in for nccl.h with NCCL's own. Compiling it is the test: cc -fsyntax-only with
 * the folders of nccl.h and of CUDA's headers. PyPI's nvidia-nccl-cu12 has the former. */
#include <nccl.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 7)
#error "this nccl.h is older than what is compared"
#endif
_Static_assert(NCCL_VERSION(2, 29, 7) == 22907, "the version that has ncclCommSuspend()");
_Static_assert(ncclSuccess == 0 && ncclInternalError == 3 && ncclInvalidArgument == 4 &&
                   ncclInvalidUsage == 5 && ncclInProgress == 7,
               "results");
_Static_assert(ncclStatGpuMemSuspend == 0 && ncclStatGpuMemSuspended == 1 &&
                   ncclStatGpuMemPersist == 2 && ncclStatGpuMemTotal == 3,
               "statistics");
_Static_assert(NCCL_WIN_DEFAULT == 0 && NCCL_WIN_COLL_SYMMETRIC == 1 && NCCL_SUSPEND_MEM == 1,
               "flags");

#define SAME(function, type) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&function), type), #function)
SAME(ncclCommRegister, ncclResult_t (*)(const ncclComm_t, void *, size_t, void **));
SAME(ncclCommDeregister, ncclResult_t (*)(const ncclComm_t, void *));
SAME(ncclCommWindowRegister, ncclResult_t (*)(ncclComm_t, void *, size_t, ncclWindow_t *, int));
SAME(ncclCommWindowDeregister, ncclResult_t (*)(ncclComm_t, ncclWindow_t));
SAME(ncclCommSuspend, ncclResult_t (*)(ncclComm_t, int));
SAME(ncclCommResume, ncclResult_t (*)(ncclComm_t));
SAME(ncclCommMemStats, ncclResult_t (*)(ncclComm_t, ncclCommMemStat_t, uint64_t *));
SAME(ncclCommGetAsyncError, ncclResult_t (*)(ncclComm_t, ncclResult_t *));
SAME(ncclCommCuDevice, ncclResult_t (*)(const ncclComm_t, int *));
SAME(ncclGetErrorString, const char *(*)(ncclResult_t));

#include "tarn_nccl.h"
