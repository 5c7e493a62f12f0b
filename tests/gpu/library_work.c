/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "library_work.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *job_say(const char *format, ...)
{
    static _Thread_local char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

double job_random(struct job *job)
{
    return (double)(gpu_random(&job->random) >> 11) * 0x1p-52 - 1;
}

float *job_floats(struct job *job, size_t count)
{
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; values && i < count; i++)
        values[i] = (float)job_random(job);
    return values;
}

struct job_calls job_calls;

const char *job_load(const char *path, tarn_library library)
{
#define X(number, symbol, parameters) {TARN_LIBRARY_##number, #symbol, &job_calls.symbol},
    static const struct {
        tarn_library library;
        const char *symbol;
        void *function;
    } symbols[] = {LIBRARY_CALL_LIST(X)};
#undef X
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!opened)
        return dlerror();
    for (size_t i = 0; i < COUNT(symbols); i++) {
        void *found = symbols[i].library == library ? dlsym(opened, symbols[i].symbol) : NULL;
        if (found)
            memcpy(symbols[i].function, &found, sizeof found);
        else if (symbols[i].library == library)
            return job_say("it has no %s", symbols[i].symbol);
    }
    return NULL;
}

const char *job_status(const char *name, unsigned status)
{
    return status ? job_say("%s gave %u", name, status) : NULL;
}

const char *job_create(struct job *job, const struct work *work, tarn_stream stream, unsigned seed)
{
    *job = (struct job){.work = work, .stream = stream, .random = 0x9E3779B97F4A7C15u * (seed + 1)};
    const char *why = work->prepare(job);
    for (int i = 0; !why && i < JOB_BUFFERS; i++)
        if (job->bytes[i] && tarn_alloc_on(stream, job->bytes[i], &job->device[i]))
            why = tarn_last_error();
    if (!why && work->describe)
        why = work->describe(job);
    return why;
}

void job_destroy(struct job *job)
{
    if (job->work->forget)
        job->work->forget(job);
    for (int i = 0; i < JOB_BUFFERS; i++) {
        free(job->host[i]);
        (void)OK(job->work->name, tarn_free(job->device[i]));
    }
    free(job->expected);
}

const char *job_upload(struct job *job)
{
    cu_stream native = gpu_native(job->stream);
    for (int i = 0; i < JOB_BUFFERS; i++) {
        cu_address to = (uintptr_t)job->device[i];
        cu_result code = CU_OK;
        if (job->bytes[i] && job->host[i])
            code = gpu.cuMemcpyAsync(to, (uintptr_t)job->host[i], job->bytes[i], native);
        else if (job->bytes[i])
            code = gpu.cuMemsetD8Async(to, 0, job->bytes[i], native);
        if (code)
            return job_say("an upload gave CUDA error %u", code);
    }
    return tarn_stream_synchronize(job->stream) ? tarn_last_error() : NULL;
}

static const char *compare_values(const struct job *job, const void *output)
{
    const float *floats = output;
    const double *doubles = output;
    for (size_t i = 0; i < job->expected_count; i++) {
        double got = job->output_is_double ? doubles[i] : (double)floats[i];
        double room = job->tolerance * (1 + fabs(job->expected[i]));
        if (!isnan(job->expected[i]) && !(fabs(got - job->expected[i]) <= room))
            return job_say("value %zu is %.9g, the host finds %.9g", i, got, job->expected[i]);
    }
    return NULL;
}

const char *job_compare(struct job *job)
{
    size_t bytes = job->bytes[job->output];
    void *output = malloc(bytes);
    if (!output)
        return "no host memory";
    const char *why = NULL;
    if (!gpu_download(job->stream, output, job->device[job->output], bytes))
        why = "a download failed";
    else
        why = job->compare ? job->compare(job, output) : compare_values(job, output);
    free(output);
    return why;
}
