/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* One piece of work for each library: inputs made from a seed, a call or more through a handle, and
 * the result that the host finds. Texts say what went wrong, in the calling thread's storage; NULL
 * is success. */
#ifndef TESTS_GPU_LIBRARY_WORK_H
#define TESTS_GPU_LIBRARY_WORK_H

#include "gpu.h"
#include "library_abi.h"

#define JOB_BUFFERS 6

struct job;

struct work {
    const char *name, *what;
    tarn_library library;
    bool capture_may_fail; /* the vendor promises no captures of this */
    bool serial;           /* a handle's work on one stream must end before that on the next one */
    /* Finds the library's calls in the file that tarn uses. */
    const char *(*load)(const char *path);
    /* Fills host[] and bytes[] of the inputs, bytes[] of the others, and `expected`. */
    const char *(*prepare)(struct job *job);
    /* Creates and destroys descriptors, which need the handle's library alone. */
    const char *(*describe)(struct job *job);
    void (*forget)(struct job *job);
    /* Queues it on job->stream through a handle; may run during a capture. */
    const char *(*queue)(struct job *job, void *handle);
};

struct job {
    const struct work *work;
    tarn_stream stream;
    uint64_t random;
    void *host[JOB_BUFFERS];   /* inputs; NULL for what only the device has, which is zeroed before
                                  each run */
    void *device[JOB_BUFFERS]; /* tarn's memory */
    size_t bytes[JOB_BUFFERS]; /* 0: no such buffer */
    int output;                /* the buffer to compare */
    double *expected;          /* its values; NULL where `compare` does it */
    size_t expected_count;
    bool output_is_double;
    double tolerance;
    /* In place of `expected`. */
    const char *(*compare)(struct job *job, const void *output);
    void *object[JOB_BUFFERS]; /* descriptors */
    int number;                /* a size of the work's own */
};

extern const struct work work_cublas, work_cublaslt, work_cudnn, work_cusparse, work_cusolver,
    work_cusolver_sp, work_curand, work_cudss;

const char *job_create(struct job *job, const struct work *work, tarn_stream stream, unsigned seed);
void job_destroy(struct job *job);
/* Puts the inputs on the device, and zeroes the rest. Waits. */
const char *job_upload(struct job *job);
/* Waits, and compares the output with what is expected. */
const char *job_compare(struct job *job);

/* A text of the calling thread's. */
const char *job_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From -1 to 1. */
double job_random(struct job *job);

float *job_floats(struct job *job, size_t count);

/* The libraries' calls, found by job_load() in the file at `path`. */
struct job_calls {
#define X(library, symbol, parameters) unsigned(*symbol) parameters;
    LIBRARY_CALL_LIST(X)
#undef X
};
extern struct job_calls job_calls;
const char *job_load(const char *path, tarn_library library);

const char *job_status(const char *name, unsigned status);
#define JOB_CALL(symbol, ...) job_status(#symbol, job_calls.symbol(__VA_ARGS__))

#endif
