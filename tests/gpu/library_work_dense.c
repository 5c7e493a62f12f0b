/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuBLAS, cuBLASLt and cuSOLVER on small matrices, cuDNN's activation, cuRAND's moments. Matrices
 * are stored by columns. */
#include "library_work.h"

#include <math.h>
#include <stdlib.h>

#define SIDE 96           /* of the matrices of products */
#define CHOLESKY_SIDE 64  /* of those that are factorised */
#define CHOLESKY_ROOM MIB /* bytes of scratch memory: more than this side needs */
#define NUMBERS 65536     /* random ones */
#define TENSOR (4 * 8 * 16 * 16)

/* ---- Products ---- */

static const char *prepare_product(struct job *job)
{
    const size_t n = SIDE;
    float *a = job->host[0] = job_floats(job, n * n);
    float *b = job->host[1] = job_floats(job, n * n);
    job->expected = calloc(n * n, sizeof *job->expected);
    if (!a || !b || !job->expected)
        return "no host memory";
    for (size_t column = 0; column < n; column++)
        for (size_t k = 0; k < n; k++)
            for (size_t row = 0; row < n; row++)
                job->expected[column * n + row] +=
                    (double)a[k * n + row] * (double)b[column * n + k];
    for (int i = 0; i < 3; i++)
        job->bytes[i] = n * n * sizeof(float);
    job->output = 2;
    job->expected_count = n * n;
    job->tolerance = 1e-4;
    return NULL;
}

static const char *load_cublas(const char *path)
{
    return job_load(path, TARN_LIBRARY_CUBLAS);
}

static const char *queue_cublas(struct job *job, void *handle)
{
    const float one = 1, zero = 0;
    return JOB_CALL(cublasSgemm_v2, handle, 0, 0, SIDE, SIDE, SIDE, &one, job->device[0], SIDE,
                    job->device[1], SIDE, &zero, job->device[2], SIDE);
}

const struct work work_cublas = {
    .name = "cublas",
    .what = "GEMM",
    .library = TARN_LIBRARY_CUBLAS,
    .load = load_cublas,
    .prepare = prepare_product,
    .queue = queue_cublas,
};

static const char *load_cublaslt(const char *path)
{
    return job_load(path, TARN_LIBRARY_CUBLASLT);
}

static const char *describe_cublaslt(struct job *job)
{
    const char *why =
        JOB_CALL(cublasLtMatmulDescCreate, &job->object[0], LT_COMPUTE_32F, TYPE_R_32F);
    return why ? why
               : JOB_CALL(cublasLtMatrixLayoutCreate, &job->object[1], TYPE_R_32F, SIDE, SIDE,
                          SIDE);
}

static void forget_cublaslt(struct job *job)
{
    if (job->object[0])
        (void)job_calls.cublasLtMatmulDescDestroy(job->object[0]);
    if (job->object[1])
        (void)job_calls.cublasLtMatrixLayoutDestroy(job->object[1]);
}

static const char *queue_cublaslt(struct job *job, void *handle)
{
    const float one = 1, zero = 0;
    void *workspace = NULL, *layout = job->object[1];
    size_t size = 0;
    if (tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &workspace, &size))
        return tarn_last_error();
    return JOB_CALL(cublasLtMatmul, handle, job->object[0], &one, job->device[0], layout,
                    job->device[1], layout, &zero, job->device[2], layout, job->device[2], layout,
                    NULL, workspace, size, gpu_native(job->stream));
}

const struct work work_cublaslt = {
    .name = "cublaslt",
    .what = "GEMM with tarn's workspace",
    .library = TARN_LIBRARY_CUBLASLT,
    .load = load_cublaslt,
    .prepare = prepare_product,
    .describe = describe_cublaslt,
    .forget = forget_cublaslt,
    .queue = queue_cublaslt,
};

/* ---- Cholesky ---- */

static const char *load_cusolver(const char *path)
{
    return job_load(path, TARN_LIBRARY_CUSOLVER_DN);
}

/* A symmetric matrix with a heavy diagonal, and its factor; what lies above the diagonal is the
 * library's affair. */
static const char *prepare_cusolver(struct job *job)
{
    const size_t n = CHOLESKY_SIDE;
    double *a = job->host[0] = calloc(n * n, sizeof *a);
    double *l = job->expected = calloc(n * n, sizeof *l);
    if (!a || !l)
        return "no host memory";
    for (size_t column = 0; column < n; column++) {
        for (size_t row = column; row < n; row++)
            a[column * n + row] = a[row * n + column] = job_random(job);
        a[column * n + column] = (double)n + 1;
    }
    for (size_t column = 0; column < n; column++) {
        for (size_t row = 0; row < n; row++) {
            double sum = a[column * n + row];
            for (size_t k = 0; k < column; k++)
                sum -= l[k * n + row] * l[k * n + column];
            l[column * n + row] = row < column    ? 0
                                  : row == column ? sqrt(sum)
                                                  : sum / l[column * n + column];
        }
    }
    for (size_t column = 0; column < n; column++)
        for (size_t row = 0; row < column; row++)
            l[column * n + row] = NAN; /* not compared */
    job->bytes[0] = n * n * sizeof *a;
    job->bytes[1] = CHOLESKY_ROOM;
    job->bytes[2] = sizeof(int);
    job->expected_count = n * n;
    job->output_is_double = true;
    job->tolerance = 1e-10;
    return NULL;
}

static const char *queue_cusolver(struct job *job, void *handle)
{
    int size = 0;
    const char *why = JOB_CALL(cusolverDnDpotrf_bufferSize, handle, 0, CHOLESKY_SIDE,
                               job->device[0], CHOLESKY_SIDE, &size);
    if (why)
        return why;
    if ((size_t)size * sizeof(double) > CHOLESKY_ROOM)
        return job_say("it wants %d numbers of scratch memory", size);
    return JOB_CALL(cusolverDnDpotrf, handle, 0, CHOLESKY_SIDE, job->device[0], CHOLESKY_SIDE,
                    job->device[1], size, job->device[2]);
}

const struct work work_cusolver = {
    .name = "cusolver_dn",
    .what = "Cholesky",
    .library = TARN_LIBRARY_CUSOLVER_DN,
    .capture_may_fail = true,
    .load = load_cusolver,
    .prepare = prepare_cusolver,
    .queue = queue_cusolver,
};

static const char *load_nothing(const char *path)
{
    (void)path;
    return NULL;
}

const struct work work_cusolver_sp = {
    .name = "cusolver_sp", .library = TARN_LIBRARY_CUSOLVER_SP, .load = load_nothing};

/* ---- cuDNN ---- */

static const char *load_cudnn(const char *path)
{
    return job_load(path, TARN_LIBRARY_CUDNN);
}

static const char *prepare_cudnn(struct job *job)
{
    float *x = job->host[0] = job_floats(job, TENSOR);
    job->expected = calloc(TENSOR, sizeof *job->expected);
    if (!x || !job->expected)
        return "no host memory";
    for (size_t i = 0; i < TENSOR; i++)
        job->expected[i] = x[i] > 0 ? (double)x[i] : 0;
    job->bytes[0] = job->bytes[1] = TENSOR * sizeof *x;
    job->output = 1;
    job->expected_count = TENSOR;
    return NULL;
}

static const char *describe_cudnn(struct job *job)
{
    struct cudnnTensorStruct *tensor = NULL;
    struct cudnnActivationStruct *activation = NULL;
    const char *why = JOB_CALL(cudnnCreateTensorDescriptor, &tensor);
    job->object[0] = tensor;
    if (!why)
        why = JOB_CALL(cudnnSetTensor4dDescriptor, tensor, 0, 0, 4, 8, 16, 16);
    if (!why)
        why = JOB_CALL(cudnnCreateActivationDescriptor, &activation);
    job->object[1] = activation;
    return why ? why : JOB_CALL(cudnnSetActivationDescriptor, activation, DNN_RELU, 0, 0);
}

static void forget_cudnn(struct job *job)
{
    if (job->object[0])
        (void)job_calls.cudnnDestroyTensorDescriptor(job->object[0]);
    if (job->object[1])
        (void)job_calls.cudnnDestroyActivationDescriptor(job->object[1]);
}

static const char *queue_cudnn(struct job *job, void *handle)
{
    const float one = 1, zero = 0;
    return JOB_CALL(cudnnActivationForward, handle, job->object[1], &one, job->object[0],
                    job->device[0], &zero, job->object[0], job->device[1]);
}

const struct work work_cudnn = {
    .name = "cudnn",
    .what = "ReLU",
    .library = TARN_LIBRARY_CUDNN,
    .load = load_cudnn,
    .prepare = prepare_cudnn,
    .describe = describe_cudnn,
    .forget = forget_cudnn,
    .queue = queue_cudnn,
};

/* ---- cuRAND ---- */

static const char *load_curand(const char *path)
{
    return job_load(path, TARN_LIBRARY_CURAND);
}

static const char *compare_moments(struct job *job, const void *output)
{
    const float *values = output;
    double sum = 0, squares = 0;
    (void)job;
    for (size_t i = 0; i < NUMBERS; i++) {
        if (!(values[i] > 0 && values[i] <= 1))
            return job_say("number %zu is %.9g, not in (0, 1]", i, (double)values[i]);
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    double mean = sum / NUMBERS, variance = squares / NUMBERS - mean * mean;
    if (fabs(mean - 0.5) > 0.01 || fabs(variance - 1.0 / 12) > 0.005)
        return job_say("mean %.4f, variance %.4f", mean, variance);
    return NULL;
}

static const char *prepare_curand(struct job *job)
{
    job->bytes[0] = NUMBERS * sizeof(float);
    job->compare = compare_moments;
    return NULL;
}

static const char *queue_curand(struct job *job, void *generator)
{
    return JOB_CALL(curandGenerateUniform, generator, job->device[0], NUMBERS);
}

/* A generator has one state, which streams must not use side by side. */
const struct work work_curand = {
    .name = "curand",
    .what = "moments of uniform numbers",
    .library = TARN_LIBRARY_CURAND,
    .capture_may_fail = true,
    .serial = true,
    .load = load_curand,
    .prepare = prepare_curand,
    .queue = queue_curand,
};
