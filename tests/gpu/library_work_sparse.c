/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuSPARSE's product of a sparse matrix and a vector, and cuDSS's solution of a sparse system,
 * whose memory comes from tarn through the handle. Matrices are stored by compressed rows. */
#include "library_work.h"

#include <stdlib.h>

#define ROWS 500
#define IN_ROW 8        /* nonzeros of a row of the product's matrix */
#define SPARSE_ROOM MIB /* bytes of scratch memory: more than such a product needs */
#define SYSTEM 400      /* rows of the system */
#define IN_SYSTEM (3 * SYSTEM - 2)

/* Buffers: 0 the rows' starts, 1 columns, 2 values, 3 the vector that goes in, 4 the one that comes
 * out. */

/* ---- cuSPARSE ---- */

static const char *load_cusparse(const char *path)
{
    return job_load(path, TARN_LIBRARY_CUSPARSE);
}

static const char *prepare_cusparse(struct job *job)
{
    int *starts = job->host[0] = malloc((ROWS + 1) * sizeof *starts);
    int *columns = job->host[1] = malloc(ROWS * IN_ROW * sizeof *columns);
    float *values = job->host[2] = job_floats(job, ROWS * IN_ROW);
    float *x = job->host[3] = job_floats(job, ROWS);
    job->expected = calloc(ROWS, sizeof *job->expected);
    if (!starts || !columns || !values || !x || !job->expected)
        return "no host memory";
    for (int row = 0; row <= ROWS; row++)
        starts[row] = row * IN_ROW;
    for (int i = 0; i < ROWS * IN_ROW; i++) { /* rising within a row */
        int step = ROWS / IN_ROW;
        columns[i] = i % IN_ROW * step + (int)(gpu_random(&job->random) % (unsigned)step);
        job->expected[i / IN_ROW] += (double)values[i] * (double)x[columns[i]];
    }
    job->bytes[0] = (ROWS + 1) * sizeof *starts;
    job->bytes[1] = ROWS * IN_ROW * sizeof *columns;
    job->bytes[2] = ROWS * IN_ROW * sizeof *values;
    job->bytes[3] = job->bytes[4] = ROWS * sizeof *x;
    job->bytes[5] = SPARSE_ROOM;
    job->output = 4;
    job->expected_count = ROWS;
    job->tolerance = 1e-5;
    return NULL;
}

static const char *describe_cusparse(struct job *job)
{
    struct cusparseSpMatDescr *matrix = NULL;
    struct cusparseDnVecDescr *x = NULL, *y = NULL;
    const char *why =
        JOB_CALL(cusparseCreateCsr, &matrix, ROWS, ROWS, (int64_t)ROWS * IN_ROW, job->device[0],
                 job->device[1], job->device[2], SPARSE_INDEX_32I, SPARSE_INDEX_32I, 0, TYPE_R_32F);
    job->object[0] = matrix;
    if (!why)
        why = JOB_CALL(cusparseCreateDnVec, &x, ROWS, job->device[3], TYPE_R_32F);
    job->object[1] = x;
    if (!why)
        why = JOB_CALL(cusparseCreateDnVec, &y, ROWS, job->device[4], TYPE_R_32F);
    job->object[2] = y;
    return why;
}

static void forget_cusparse(struct job *job)
{
    if (job->object[0])
        (void)job_calls.cusparseDestroySpMat(job->object[0]);
    for (int i = 1; i < 3; i++)
        if (job->object[i])
            (void)job_calls.cusparseDestroyDnVec(job->object[i]);
}

static const char *queue_cusparse(struct job *job, void *handle)
{
    const float one = 1, zero = 0;
    size_t size = 0;
    const char *why = JOB_CALL(cusparseSpMV_bufferSize, handle, 0, &one, job->object[0],
                               job->object[1], &zero, job->object[2], TYPE_R_32F, 0, &size);
    if (why)
        return why;
    if (size > SPARSE_ROOM)
        return job_say("it wants %zu bytes of scratch memory", size);
    return JOB_CALL(cusparseSpMV, handle, 0, &one, job->object[0], job->object[1], &zero,
                    job->object[2], TYPE_R_32F, 0, job->device[5]);
}

const struct work work_cusparse = {
    .name = "cusparse",
    .what = "SpMV",
    .library = TARN_LIBRARY_CUSPARSE,
    .load = load_cusparse,
    .prepare = prepare_cusparse,
    .describe = describe_cusparse,
    .forget = forget_cusparse,
    .queue = queue_cusparse,
};

/* ---- cuDSS ---- */

static const char *load_cudss(const char *path)
{
    tarn_library_info info = {.size = sizeof info};
    if (tarn_library_info_get(TARN_LIBRARY_CUDSS, &info))
        return tarn_last_error();
    if (atoi(info.version) == 0 && info.version[0])
        return job_say("version %s; what is called here is that of 1.0", info.version);
    return job_load(path, TARN_LIBRARY_CUDSS);
}

/* The matrix has 2.5 on its diagonal and -1 beside it; the right side is made from the solution. */
static const char *prepare_cudss(struct job *job)
{
    int *starts = job->host[0] = calloc(SYSTEM + 1, sizeof *starts);
    int *columns = job->host[1] = calloc(IN_SYSTEM, sizeof *columns);
    double *values = job->host[2] = calloc(IN_SYSTEM, sizeof *values);
    double *right = job->host[3] = calloc(SYSTEM, sizeof *right);
    double *solution = job->expected = calloc(SYSTEM, sizeof *solution);
    if (!starts || !columns || !values || !right || !solution)
        return "no host memory";
    for (int i = 0; i < SYSTEM; i++)
        solution[i] = job_random(job);
    int at = 0;
    for (int row = 0; row < SYSTEM; row++) {
        starts[row] = at;
        for (int column = row ? row - 1 : 0; column <= row + 1 && column < SYSTEM; column++) {
            columns[at] = column;
            values[at] = column == row ? 2.5 : -1;
            right[row] += values[at++] * solution[column];
        }
    }
    starts[SYSTEM] = at;
    job->bytes[0] = (SYSTEM + 1) * sizeof *starts;
    job->bytes[1] = IN_SYSTEM * sizeof *columns;
    job->bytes[2] = IN_SYSTEM * sizeof *values;
    job->bytes[3] = job->bytes[4] = SYSTEM * sizeof *right;
    job->output = 4;
    job->output_is_double = true;
    job->expected_count = SYSTEM;
    job->tolerance = 1e-9;
    return NULL;
}

static const char *describe_cudss(struct job *job)
{
    struct cudssMatrix *matrix = NULL, *right = NULL, *solution = NULL;
    struct cudssConfig *config = NULL;
    const char *why = JOB_CALL(cudssConfigCreate, &config);
    job->object[0] = config;
    if (!why)
        why =
            JOB_CALL(cudssMatrixCreateCsr, &matrix, SYSTEM, SYSTEM, IN_SYSTEM, job->device[0], NULL,
                     job->device[1], job->device[2], TYPE_R_32I, TYPE_R_32I, TYPE_R_64F, 3, 0, 0);
    job->object[1] = matrix;
    if (!why)
        why =
            JOB_CALL(cudssMatrixCreateDn, &right, SYSTEM, 1, SYSTEM, job->device[3], TYPE_R_64F, 0);
    job->object[2] = right;
    if (!why)
        why = JOB_CALL(cudssMatrixCreateDn, &solution, SYSTEM, 1, SYSTEM, job->device[4],
                       TYPE_R_64F, 0);
    job->object[3] = solution;
    return why;
}

static void forget_cudss(struct job *job)
{
    if (job->object[0])
        (void)job_calls.cudssConfigDestroy(job->object[0]);
    for (int i = 1; i < 4; i++)
        if (job->object[i])
            (void)job_calls.cudssMatrixDestroy(job->object[i]);
}

static const char *queue_cudss(struct job *job, void *handle)
{
    static const int phases[] = {DSS_PHASE_ANALYSIS, DSS_PHASE_FACTORIZATION, DSS_PHASE_SOLVE};
    struct cudssData *data = NULL;
    const char *why = JOB_CALL(cudssDataCreate, handle, &data);
    if (why)
        return why;
    for (size_t i = 0; !why && i < COUNT(phases); i++)
        why = JOB_CALL(cudssExecute, handle, phases[i], job->object[0], data, job->object[1],
                       job->object[3], job->object[2]);
    unsigned status = job_calls.cudssDataDestroy(handle, data);
    return why ? why : job_status("cudssDataDestroy", status);
}

const struct work work_cudss = {
    .name = "cudss",
    .what = "sparse solve on tarn's memory",
    .library = TARN_LIBRARY_CUDSS,
    .capture_may_fail = true,
    .serial = true,
    .load = load_cudss,
    .prepare = prepare_cudss,
    .describe = describe_cudss,
    .forget = forget_cudss,
    .queue = queue_cudss,
};
