/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* ONNX Runtime itself, from its wheel, with tarn's allocator for memory of the CPU: tarn's host
 * device has such. A session is made and run; its memory is tarn's, and all of it comes back. On
 * any other driver only the structure is tried, by hand. */
#include "check.h"

#include <string.h>
#include <tarn/adaptors/tarn_onnxruntime.h>
#include <tarn/tarn.h>

enum { ROWS = 64, ELEMENTS = ROWS * ROWS };

static const OrtApi *api;

static void ok(OrtStatus *failed)
{
    if (failed) {
        fprintf(stderr, "onnxruntime: %s\n", api->GetErrorMessage(failed));
        exit(1);
    }
}

static tarn_stats stats(void)
{
    tarn_stats found = {.size = sizeof found};
    CHECK(tarn_device_stats_get(0, &found) == TARN_OK);
    return found;
}

static int64_t used(void)
{
    return stats().allocated_bytes[TARN_STAT_ALL].current;
}

/* A model in ONNX's format (onnx/onnx.proto), y = Relu(x + w): fields of protocol buffers, each a
 * number with its bytes. */
struct bytes {
    unsigned char data[65536];
    size_t size;
};

static void number(struct bytes *to, uint64_t value)
{
    for (; value > 127; value >>= 7)
        to->data[to->size++] = (unsigned char)(value | 128);
    to->data[to->size++] = (unsigned char)value;
}

static void field(struct bytes *to, unsigned tag, const void *data, size_t size)
{
    number(to, tag << 3 | 2);
    number(to, size);
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void text(struct bytes *to, unsigned tag, const char *value)
{
    field(to, tag, value, strlen(value));
}

static void integer(struct bytes *to, unsigned tag, uint64_t value)
{
    number(to, tag << 3);
    number(to, value);
}

static void node(struct bytes *graph, const char *operation, const char *first, const char *second,
                 const char *output)
{
    static struct bytes made;
    made.size = 0;
    text(&made, 1, first);
    if (second)
        text(&made, 1, second);
    text(&made, 2, output);
    text(&made, 4, operation);
    field(graph, 1, made.data, made.size);
}

static void value(struct bytes *graph, unsigned tag, const char *name)
{
    static struct bytes dimension, shape, tensor, type, made;
    dimension.size = shape.size = tensor.size = type.size = made.size = 0;
    integer(&dimension, 1, ROWS);
    field(&shape, 1, dimension.data, dimension.size);
    field(&shape, 1, dimension.data, dimension.size);
    integer(&tensor, 1, 1); /* float */
    field(&tensor, 2, shape.data, shape.size);
    field(&type, 1, tensor.data, tensor.size);
    text(&made, 1, name);
    field(&made, 2, type.data, type.size);
    field(graph, tag, made.data, made.size);
}

static const struct bytes *make_model(void)
{
    static struct bytes model, graph, weights, opset;
    static float ones[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        ones[i] = 1;
    integer(&weights, 1, ROWS);
    integer(&weights, 1, ROWS);
    integer(&weights, 2, 1);
    text(&weights, 8, "w");
    field(&weights, 9, ones, sizeof ones);
    node(&graph, "Add", "x", "w", "sum");
    node(&graph, "Relu", "sum", NULL, "y");
    text(&graph, 2, "graph");
    field(&graph, 5, weights.data, weights.size);
    value(&graph, 11, "x");
    value(&graph, 12, "y");
    text(&opset, 1, "");
    integer(&opset, 2, 13);
    integer(&model, 1, 8);
    field(&model, 7, graph.data, graph.size);
    field(&model, 8, opset.data, opset.size);
    return &model;
}

/* A session whose allocator is found in the environment. */
static void run(OrtEnv *environment, tarn_ort_allocator *allocator)
{
    OrtSessionOptions *options = NULL;
    OrtSession *session = NULL;
    ok(api->CreateSessionOptions(&options));
    ok(api->AddSessionConfigEntry(options, "session.use_env_allocators", "1"));
    int64_t calls = stats().allocation[TARN_STAT_ALL].allocated, before = used();
    const struct bytes *model = make_model();
    ok(api->CreateSessionFromArray(environment, model->data, model->size, options, &session));

    OrtValue *input = NULL, *output = NULL;
    int64_t shape[] = {ROWS, ROWS};
    float *values = NULL;
    ok(api->CreateTensorAsOrtValue(&allocator->base, shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
                                   &input));
    ok(api->GetTensorMutableData(input, (void **)&values));
    tarn_block_info info = {.size = sizeof info};
    CHECK(tarn_pointer_info_get(values, &info) == TARN_OK &&
          info.requested >= sizeof(float) * ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = (float)i - 100;
    ok(api->Run(session, NULL, (const char *[]){"x"}, (const OrtValue *[]){input}, 1,
                (const char *[]){"y"}, 1, &output));
    ok(api->GetTensorMutableData(output, (void **)&values));
    CHECK(tarn_pointer_info_get(values, &info) == TARN_OK);
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(values[i] == (i < 99 ? 0 : (float)i - 99));
    CHECK(stats().allocation[TARN_STAT_ALL].allocated >= calls + 3);
    api->ReleaseValue(output);
    api->ReleaseValue(input);
    api->ReleaseSession(session);
    api->ReleaseSessionOptions(options);
    CHECK(used() == before);
}

/* No memory is given out while work may use it: not where a free cannot wait. */
static void check_late(OrtAllocator *base)
{
    int64_t before = used();
    tarn_stream captures = 0;
    void *block = base->Alloc(base, 1 << 20);
    CHECK(block && tarn_stream_lease(0, 0, &captures) == TARN_OK);
    CHECK(tarn_capture_begin(captures, TARN_CAPTURE_THREAD_LOCAL) == TARN_OK);
    base->Free(base, block);
    CHECK(used() == before + (1 << 20));
    void *next = base->Alloc(base, 1 << 20);
    CHECK(next && next != block);
    CHECK(tarn_capture_abort(captures) == TARN_OK);
    base->Free(base, next);
    CHECK(used() == before && tarn_stream_return(captures) == TARN_OK);
}

static void *no_stream(OrtSyncStream *stream)
{
    return stream;
}

/* A stream of which the driver knows nothing: no block, which nobody would order. */
static void check_unknown_stream(tarn_ort_allocator *allocator)
{
    static int nothing[64];
    OrtApi changed = *api;
    int64_t before = used();
    changed.SyncStream_GetHandle = no_stream;
    allocator->api = &changed;
    CHECK(!allocator->base.AllocOnStream(&allocator->base, 1000, (OrtSyncStream *)(void *)nothing));
    allocator->api = api;
    CHECK(used() == before);
}

static void check_structure(tarn_ort_allocator *allocator)
{
    OrtAllocator *base = &allocator->base;
    int64_t before = used();
    void *block = base->Alloc(base, 1000);
    CHECK(block && used() == before + 1024);
    base->Free(base, block);
    base->Free(base, NULL);
    block = base->AllocOnStream(base, 1000, NULL);
    CHECK(block);
    base->Free(base, block);
    block = base->Reserve(base, 1000);
    CHECK(block);
    base->Free(base, block);
    CHECK(used() == before && !base->Alloc(base, (size_t)1 << 50) && !base->Alloc(base, 0));
    check_late(base);
    check_unknown_stream(allocator);
    const char *name = NULL;
    ok(api->MemoryInfoGetName(base->Info(base), &name));
    CHECK(base->version == 23 && name && base->Info(base) == base->Info(base));

    OrtKeyValuePairs *pairs = NULL;
    const char *const *keys = NULL, *const *values = NULL;
    size_t count = 0, found = 0;
    ok(base->GetStats(base, &pairs));
    api->GetKeyValuePairs(pairs, &keys, &values, &count);
    for (size_t i = 0; i < count; i++) {
        found += !strcmp(keys[i], "Limit") && !strcmp(values[i], "-1");
        found += !strcmp(keys[i], "InUse") && strtoll(values[i], NULL, 10) == before;
        found += !strcmp(keys[i], "NumAllocs") && strtoll(values[i], NULL, 10) >= 3;
    }
    CHECK(count == 7 && found == 3);
    api->ReleaseKeyValuePairs(pairs);
}

int main(void)
{
    api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    CHECK(api);
    tarn_pool *pool = NULL;
    tarn_ort_allocator allocator;
    struct tarn_device_properties properties = {.size = sizeof properties};
    CHECK(tarn_pool_default(0, &pool) == TARN_OK &&
          tarn_device_properties_get(0, &properties) == TARN_OK);
    bool is_host = !strcmp(properties.driver, "host");
    OrtStatus *refused = tarn_ort_allocator_init(&allocator, api, NULL, "Cpu");
    CHECK(refused);
    api->ReleaseStatus(refused);
    ok(tarn_ort_allocator_init(&allocator, api, pool, is_host ? "Cpu" : "Cuda"));
    check_structure(&allocator);
    if (is_host) {
        OrtEnv *environment = NULL;
        ok(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "tarn", &environment));
        ok(api->RegisterAllocator(environment, &allocator.base));
        run(environment, &allocator);
        ok(api->UnregisterAllocator(environment, allocator.info));
        api->ReleaseEnv(environment);
        puts("onnxruntime: a session on tarn");
    }
    tarn_ort_allocator_finish(&allocator);
    printf("onnxruntime: done, %s\n", OrtGetApiBase()->GetVersionString());
    return 0;
}
