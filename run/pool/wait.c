/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Hooks of calls that destroy a stream or wait. In a wait the driver returns memory that its pools
 * have above their release thresholds. So before a wait, lanes give their segments without blocks
 * back to the driver's pools. */
#include "lane.h"

HOOK cu_result cuStreamDestroy(cu_stream stream)
{
    if (!shim_enter())
        return PASS(cuStreamDestroy, (stream));
    lanes_leave_stream(stream);
    cu_result code = PASS(cuStreamDestroy, (stream));
    shim_leave();
    return code;
}

HOOK cu_result cuStreamDestroy_v2(cu_stream stream)
{
    if (!shim_enter())
        return PASS(cuStreamDestroy_v2, (stream));
    lanes_leave_stream(stream);
    cu_result code = PASS(cuStreamDestroy_v2, (stream));
    shim_leave();
    return code;
}

static void waited(cu_result code, uint64_t turn)
{
    if (code)
        pool_heard(NO_DEVICE, code);
    else
        lanes_after_wait(turn);
}

HOOK cu_result cuStreamSynchronize(cu_stream stream)
{
    if (!shim_enter())
        return PASS(cuStreamSynchronize, (stream));
    lanes_before_wait(&(struct lane_wait){.stream = stream ? stream : LEGACY});
    cu_result code = PASS(cuStreamSynchronize, (stream));
    waited(code, 0);
    shim_leave();
    return code;
}

HOOK cu_result cuStreamSynchronize_ptsz(cu_stream stream)
{
    if (!shim_enter())
        return PASS(cuStreamSynchronize_ptsz, (stream));
    lanes_before_wait(&(struct lane_wait){.stream = stream ? stream : PER_THREAD});
    cu_result code = PASS(cuStreamSynchronize_ptsz, (stream));
    waited(code, 0);
    shim_leave();
    return code;
}

HOOK cu_result cuEventSynchronize(cu_event event)
{
    if (!shim_enter())
        return PASS(cuEventSynchronize, (event));
    lanes_before_wait(&(struct lane_wait){.stream = NULL});
    cu_result code = PASS(cuEventSynchronize, (event));
    waited(code, 0);
    shim_leave();
    return code;
}

HOOK cu_result cuCtxSynchronize(void)
{
    if (!shim_enter())
        return PASS(cuCtxSynchronize, ());
    const struct lane_wait wait = lanes_wait_for_context();
    lanes_before_wait(&wait);
    uint64_t turn = lanes_turn();
    cu_result code = PASS(cuCtxSynchronize, ());
    waited(code, turn);
    shim_leave();
    return code;
}

/* Concludes nothing from a wait for a context that may not be the current one. */
HOOK cu_result cuCtxSynchronize_v2(cu_context context)
{
    if (!shim_enter())
        return PASS(cuCtxSynchronize_v2, (context));
    lanes_before_wait(&(struct lane_wait){.stream = NULL});
    cu_result code = PASS(cuCtxSynchronize_v2, (context));
    waited(code, 0);
    shim_leave();
    return code;
}
