/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A session of ONNX Runtime on tarn: MODEL is loaded with the CUDA provider, and its device memory
 * is tarn's.
 *
 *     cc onnxruntime.c -ltarn -lonnxruntime && ./a.out MODEL */
#include <stdio.h>
#include <stdlib.h>
#include <tarn/adaptors/tarn_onnxruntime.h>
#include <tarn/tarn.h>

static const OrtApi *api;

static void ok(OrtStatus *failed)
{
    if (!failed)
        return;
    fprintf(stderr, "%s\n", api->GetErrorMessage(failed));
    exit(1);
}

int main(int count, char **arguments)
{
    if (count != 2)
        return fprintf(stderr, "usage: %s MODEL\n", arguments[0]), 2;
    api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    tarn_pool *pool = NULL;
    if (tarn_pool_default(0, &pool))
        return fprintf(stderr, "%s\n", tarn_last_error()), 1;

    OrtEnv *environment = NULL;
    OrtSessionOptions *options = NULL;
    OrtCUDAProviderOptionsV2 *cuda = NULL;
    OrtSession *session = NULL;
    tarn_ort_allocator allocator;
    ok(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "tarn", &environment));
    ok(tarn_ort_allocator_init(&allocator, api, pool, "Cuda"));
    ok(api->RegisterAllocator(environment, &allocator.base));
    ok(api->CreateSessionOptions(&options));
    ok(api->AddSessionConfigEntry(options, "session.use_env_allocators", "1"));
    ok(api->CreateCUDAProviderOptions(&cuda));
    ok(api->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda));
    ok(api->CreateSession(environment, arguments[1], options, &session));

    tarn_stats stats = {.size = sizeof stats};
    tarn_device_stats_get(0, &stats);
    printf("the session has %lld bytes from tarn\n",
           (long long)stats.allocated_bytes[TARN_STAT_ALL].current);
    api->ReleaseSession(session);
    api->ReleaseCUDAProviderOptions(cuda);
    api->ReleaseSessionOptions(options);
    ok(api->UnregisterAllocator(environment, allocator.info));
    tarn_ort_allocator_finish(&allocator);
    api->ReleaseEnv(environment);
    return 0;
}
